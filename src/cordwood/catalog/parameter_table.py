"""The [parameters] table of an endpoint's settings."""

import re
from collections.abc import Mapping

import msgspec

from cordwood.catalog.toml_document import Document, Path
from cordwood.errors import BadParameter
from cordwood.model.datatype import Kind
from cordwood.model.parameter import Parameter, TextKind
from cordwood.sql.bind import value_of

_SETTINGS = ("type", "kind", "required", "default", "one_of", "description", "example")

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Names with another meaning in a request.
_RESERVED = ("sql", "lql", "api_key")
_UNSUPPORTED_KINDS = (Kind.ARRAY, Kind.STRUCT, Kind.JSON, Kind.INTERVAL, Kind.VARIANT)
_TYPES = {
    **{kind.value.lower(): kind for kind in Kind if kind not in _UNSUPPORTED_KINDS},
    "int": Kind.INT64,
    "integer": Kind.INT64,
    "float": Kind.FLOAT64,
    "boolean": Kind.BOOL,
    "text": Kind.STRING,
}


def read_parameters(document: Document) -> tuple[Parameter, ...]:
    """Return the declared parameters in the order of the file."""
    tables = document.tables.get("parameters", {})
    if not isinstance(tables, Mapping):
        raise document.fault_at("parameters must be a table.", ("parameters",), "Write: [parameters.project]")
    _check_distinct_names(document, list(tables))
    return tuple(_parameter(document, name, table) for name, table in tables.items())


def _check_distinct_names(document: Document, names: list[str]) -> None:
    """Refuse names that differ only in case: BigQuery and some engines do not distinguish them."""
    seen_names: set[str] = set()
    for name in names:
        if name.lower() in seen_names:
            message = f"{name} differs from another parameter's name only in case."
            raise document.fault_at(message, ("parameters", name))
        seen_names.add(name.lower())


def _parameter(document: Document, name: str, table: object) -> Parameter:
    path: Path = ("parameters", name)
    if not isinstance(table, Mapping):
        raise document.fault_at(f"The parameter {name} must be a table.", path, f"Write: [parameters.{name}]")
    if not _NAME.fullmatch(name) or name.lower() in _RESERVED:
        raise document.fault_at(f"{name!r} cannot be a parameter's name.", path)
    document.check_names(table, _SETTINGS, path)
    parameter = Parameter(
        name=name,
        type=_type(document, path, table),
        kind=_kind(document, path, table),
        required=document.value_of(table, path, "required", bool) or False,
        default=_default(document, path, table),
        one_of=_allowed_values(document, path, table),
        description=document.value_of(table, path, "description", str) or "",
        example=_example(document, path, table),
    )
    _check_agreement(document, path, parameter)
    _check_values(document, path, parameter)
    return parameter


def _check_agreement(document: Document, path: Path, parameter: Parameter) -> None:
    if parameter.required and parameter.default is not None:
        raise document.fault_at("A required parameter has no use for a default.", (*path, "default"))
    if parameter.kind is TextKind.REGEX and parameter.type is not Kind.STRING:
        raise document.fault_at('Only a text can be of kind "regex".', (*path, "kind"))
    values = {"default": parameter.default, "example": parameter.example}
    outside = [key for key, value in values.items() if value not in (None, *(parameter.one_of or (value,)))]
    if outside:
        raise document.fault_at(f"The {outside[0]} {values[outside[0]]!r} is not in one_of.", (*path, outside[0]))


def _check_values(document: Document, path: Path, parameter: Parameter) -> None:
    """Refuse a default, choice or example that is not of the parameter's type."""
    defaults = () if parameter.default is None else (parameter.default,)
    unbounded = msgspec.structs.replace(parameter, one_of=(), description="")
    examples = () if parameter.example is None else (parameter.example,)
    for key, values in (("default", defaults), ("one_of", parameter.one_of), ("example", examples)):
        for value in values:
            try:
                value_of(unbounded, value, lambda _: None)
            except BadParameter as fault:
                raise document.fault_at(fault.message, (*path, key)) from fault


def _type(document: Document, path: Path, table: Mapping[str, object]) -> Kind:
    text = (document.value_of(table, path, "type", str) or "string").lower()
    if text not in _TYPES:
        raise document.fault_at(f"{text!r} is no type.", (*path, "type"), f"There are: {', '.join(_TYPES)}.")
    return _TYPES[text]


def _kind(document: Document, path: Path, table: Mapping[str, object]) -> TextKind:
    text = document.value_of(table, path, "kind", str) or "plain"
    try:
        return TextKind(text)
    except ValueError as problem:
        kinds = ", ".join(TextKind)
        raise document.fault_at(f"{text!r} is no kind.", (*path, "kind"), f"There are: {kinds}.") from problem


def _default(document: Document, path: Path, table: Mapping[str, object]) -> str | None:
    return document.text_of((*path, "default"), table["default"]) if "default" in table else None


def _example(document: Document, path: Path, table: Mapping[str, object]) -> str | None:
    return document.text_of((*path, "example"), table["example"]) if "example" in table else None


def _allowed_values(document: Document, path: Path, table: Mapping[str, object]) -> tuple[str, ...]:
    values = table.get("one_of", [])
    if not isinstance(values, list) or ("one_of" in table and not values):
        raise document.fault_at("one_of must be a list of values.", (*path, "one_of"))
    return tuple(document.text_of((*path, "one_of"), value) for value in values)
