"""JSON Schemas of result columns, of parameters, and of the events of a stream."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cordwood.model.datatype import Datatype, Kind
from cordwood.model.endpoint import Parameter, TextKind
from cordwood.model.rows import Column
from cordwood.model.shape import ELEMENT, Path, Shape, ValueKind
from cordwood.model.stream import Stream
from cordwood.web.encode.cells import distinct_names

Schema = dict[str, Any]

_TEXT = {"type": "string"}
# The JSON type of each column type. Types that are missing here may have any JSON value.
_COLUMN_SCHEMAS: Mapping[Kind, Schema] = {
    Kind.STRING: _TEXT,
    Kind.BYTES: {"type": "string", "contentEncoding": "base64"},
    Kind.INT64: {"type": "integer", "format": "int64"},
    # NaN, infinities and numbers with more digits than a double holds are strings in JSON.
    Kind.FLOAT64: {"type": ["number", "string"]},
    Kind.NUMERIC: {"type": ["number", "string"]},
    Kind.BIGNUMERIC: {"type": ["number", "string"]},
    Kind.BOOL: {"type": "boolean"},
    Kind.TIMESTAMP: {"type": "integer", "format": "int64", "description": "Microseconds since 1970, UTC."},
    Kind.DATETIME: {"type": "string", "description": "YYYY-MM-DDTHH:MM:SS[.ffffff], without a zone."},
    Kind.DATE: {"type": "string", "format": "date"},
    Kind.TIME: _TEXT,
    Kind.INTERVAL: _TEXT,
}
_PARAMETER_SCHEMAS: Mapping[Kind, Schema] = {
    Kind.INT64: {"type": "integer", "format": "int64"},
    Kind.FLOAT64: {"type": "number"},
    Kind.NUMERIC: {"type": "number"},
    Kind.BIGNUMERIC: {"type": "number"},
    Kind.BOOL: {"type": "boolean"},
    Kind.BYTES: {"type": "string", "contentEncoding": "base64"},
    Kind.DATE: {"type": "string", "format": "date"},
    Kind.TIMESTAMP: {"type": "string", "format": "date-time"},
}
_EXAMPLES: Mapping[Kind, str] = {
    Kind.TIMESTAMP: "2026-01-31T12:00:00Z",
    Kind.DATETIME: "2026-01-31T12:00:00",
    Kind.DATE: "2026-01-31",
    Kind.TIME: "12:00:00",
}
_FLAT_TYPES: Mapping[str, Callable[[str], object]] = {
    "integer": int,
    "number": float,
    "boolean": lambda text: text.lower() == "true",
    "string": str,
}
_EVENT_SCHEMAS = {
    ValueKind.OBJECT: "object",
    ValueKind.ARRAY: "array",
    ValueKind.TEXT: "string",
    ValueKind.NUMBER: "number",
    ValueKind.BOOL: "boolean",
}


def row_schema(columns: Sequence[tuple[str, Datatype | None]]) -> Schema:
    """Return the schema of a result row. Repeated column names get a number, as they do in answers."""
    named = [Column(name, datatype or Datatype(Kind.VARIANT)) for name, datatype in columns]
    schemas = [_nullable(cell_schema(column.datatype)) for column in named]
    return {"type": "object", "properties": dict(zip(distinct_names(named), schemas, strict=True))}


def cell_schema(datatype: Datatype | None) -> Schema:
    """Return the schema of a cell. A record is an array with one element."""
    if datatype is None:
        return {}
    if datatype.kind is Kind.STRUCT:
        return {"type": "array", "items": _record(datatype)}
    if datatype.kind is Kind.ARRAY:
        element = datatype.element
        return {"type": "array", "items": _record(element) if _is_record(element) else _nullable(cell_schema(element))}
    return dict(_COLUMN_SCHEMAS.get(datatype.kind, {}))


def parameter_schema(parameter: Parameter) -> Schema:
    """Return the schema of a parameter's value."""
    schema = dict(_PARAMETER_SCHEMAS.get(parameter.type, _TEXT))
    read = _FLAT_TYPES[schema["type"]]
    if parameter.kind is TextKind.REGEX:
        schema["format"] = "regex"
    if parameter.one_of:
        schema["enum"] = [read(value) for value in parameter.one_of]
    if parameter.default is not None:
        schema["default"] = read(parameter.default)
    return schema


def member_schema(parameter: Parameter) -> Schema:
    """Return the schema of a parameter as a member of a JSON body, with description and example."""
    described = {"description": parameter.description} if parameter.description else {}
    example = example_of(parameter)
    shown = {} if example is None else {"examples": [example]}
    return {**parameter_schema(parameter), **described, **shown}


def example_of(parameter: Parameter) -> object:
    """Return the example of a parameter, or one for its type; None if neither exists."""
    if parameter.example is not None:
        return _FLAT_TYPES[_PARAMETER_SCHEMAS.get(parameter.type, _TEXT)["type"]](parameter.example)
    if parameter.one_of or parameter.default is not None:
        return None
    return _EXAMPLES.get(parameter.type)


def stream_schema(stream: Stream, shape: Shape, address: str) -> Schema:
    """Return the JSON Schema of the events that were seen in a stream."""
    root: Schema = {"type": "object", "properties": _fixed_columns()}
    for path, kinds in _sorted(shape):
        _insert(root, path, sorted(_EVENT_SCHEMAS[kind] for kind in kinds))
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": address, "title": stream.name}
    return {**head, **root}


def flat_schema(shape: Shape) -> dict[str, str]:
    """Return a map from dotted paths to type names, without records and lists of records."""
    flat = {"id": "string", "timestamp": "datetime", "event_message": "string"}
    kinds = dict(_sorted(shape))
    for path, found in kinds.items():
        if ELEMENT in path:
            continue
        plain = found - {ValueKind.OBJECT, ValueKind.ARRAY}
        elements = kinds.get((*path, ELEMENT), frozenset()) - {ValueKind.OBJECT, ValueKind.ARRAY}
        names = [_EVENT_SCHEMAS[kind] for kind in sorted(plain)] + [
            f"{_EVENT_SCHEMAS[kind]}[]" for kind in sorted(elements)
        ]
        if names:
            flat[".".join(path)] = "|".join(names)
    return flat


def _fixed_columns() -> dict[str, Schema]:
    return {"id": {"type": "string"}, "timestamp": {"type": "number"}, "event_message": {"type": "string"}}


def _insert(root: Schema, path: Path, types: list[str]) -> None:
    node = root
    for step in path:
        node = (
            node.setdefault("items", {}) if step == ELEMENT else node.setdefault("properties", {}).setdefault(step, {})
        )
    node["type"] = types[0] if len(types) == 1 else types


def _sorted(shape: Shape) -> Iterator[tuple[Path, frozenset[ValueKind]]]:
    return iter(sorted(shape.kinds.items()))


def _is_record(datatype: Datatype | None) -> bool:
    return datatype is not None and datatype.kind is Kind.STRUCT


def _record(datatype: Datatype | None) -> Schema:
    fields = datatype.fields if datatype else ()
    return {"type": "object", "properties": {name: _nullable(cell_schema(field)) for name, field in fields if name}}


def _nullable(schema: Schema) -> Schema:
    """Return the schema extended by null. A schema without a type allows null already."""
    types = schema.get("type")
    if types is None:
        return schema
    return {**schema, "type": [*(types if isinstance(types, list) else [types]), "null"]}
