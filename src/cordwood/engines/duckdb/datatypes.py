"""Map DuckDB's types to BigQuery's, and convert values to the cells of an answer.

Values are converted in SQL where possible, because that is faster than in Python.
"""

from collections.abc import Callable, Sequence
from math import isfinite

import msgspec
from duckdb.sqltypes import DuckDBPyType

from cordwood.engines.duckdb.rules.building_blocks import decode_engine_name
from cordwood.engines.duckdb.rules.times import INTERVAL_TEXT_SQL
from cordwood.engines.duckdb.storage.tables import quote_identifier
from cordwood.engines.records import (
    TEXT_BY_SPECIAL_FLOAT,
    convert_struct_or_array_json,
    integer_if_integral,
    mark_event_numbers,
    read_event_number,
    wrap_objects_as_records,
)
from cordwood.model.datatype import Cell, Datatype, Kind

_KIND_BY_TYPE_NAME = {
    "boolean": Kind.BOOL,
    "tinyint": Kind.INT64,
    "smallint": Kind.INT64,
    "integer": Kind.INT64,
    "bigint": Kind.INT64,
    "utinyint": Kind.INT64,
    "usmallint": Kind.INT64,
    "uinteger": Kind.INT64,
    "ubigint": Kind.INT64,
    "hugeint": Kind.INT64,
    "uhugeint": Kind.INT64,
    "float": Kind.FLOAT64,
    "double": Kind.FLOAT64,
    "decimal": Kind.NUMERIC,
    "bignum": Kind.BIGNUMERIC,
    "blob": Kind.BYTES,
    "timestamp with time zone": Kind.TIMESTAMP,
    "timestamp": Kind.DATETIME,
    "timestamp_s": Kind.DATETIME,
    "timestamp_ms": Kind.DATETIME,
    "timestamp_ns": Kind.DATETIME,
    "date": Kind.DATE,
    "time": Kind.TIME,
    "interval": Kind.INTERVAL,
    "json": Kind.JSON,
    "variant": Kind.VARIANT,
    "list": Kind.ARRAY,
    "array": Kind.ARRAY,
    "struct": Kind.STRUCT,
    "map": Kind.JSON,
}


def datatype_of(duckdb_type: DuckDBPyType) -> Datatype:
    """Return the BigQuery type of a DuckDB type, or STRING for a type that BigQuery lacks."""
    kind = _KIND_BY_TYPE_NAME.get(_type_name(duckdb_type), Kind.STRING)
    if kind is Kind.ARRAY:
        return Datatype(kind, element=datatype_of(_child_types(duckdb_type)[0][1]))
    if kind is Kind.STRUCT:
        return Datatype(
            kind,
            fields=tuple((decode_engine_name(name), datatype_of(child)) for name, child in _child_types(duckdb_type)),
        )
    return Datatype(kind)


# A function that converts the fetched values of a column to cells.
CellReader = Callable[[Sequence[object]], list[Cell]]


def render_cell_sql(value: str, duckdb_type: DuckDBPyType) -> str:
    """Return SQL that converts a value of the type `duckdb_type` to the form that the column's `CellReader` expects."""
    name = _type_name(duckdb_type)
    if name in {"list", "array", "struct"}:
        return f"to_json({_render_nested_json_sql(value, duckdb_type)})::VARCHAR"
    return _CELL_TEMPLATE_BY_TYPE.get(name, "{0}").format(value)


def cell_readers(types: Sequence[DuckDBPyType], declared_types: Sequence[Datatype | None]) -> list[CellReader | None]:
    """Return the readers of an answer's columns; `declared_types` are their types in BigQuery, or are empty."""
    declared_types = declared_types or (None,) * len(types)
    return [_cell_reader(*column_types) for column_types in zip(types, declared_types, strict=False)]


def _cell_reader(duckdb_type: DuckDBPyType, declared_type: Datatype | None) -> CellReader | None:
    """Return the function that converts a fetched column to cells, or None if its values are cells already."""
    if _type_name(duckdb_type) in {"list", "array", "struct"}:
        return _array_or_struct_cell_reader(mark_event_numbers(datatype_of(duckdb_type), declared_type))
    if declared_type is not None and declared_type.is_event_number:
        return _EVENT_NUMBER_READER_BY_TYPE_NAME.get(_type_name(duckdb_type))
    return _CELL_READER_BY_TYPE_NAME.get(_type_name(duckdb_type))


_DATETIME_TEMPLATE = (
    "CASE WHEN {0}::VARCHAR LIKE '%.%' THEN rpad(replace({0}::VARCHAR, ' ', 'T'), 26, '0')"
    " ELSE replace({0}::VARCHAR, ' ', 'T') END"
)
_TIME_TEMPLATE = "CASE WHEN {0}::VARCHAR LIKE '%.%' THEN rpad({0}::VARCHAR, 15, '0') ELSE {0}::VARCHAR END"

_CELL_TEMPLATE_BY_TYPE = {
    "timestamp with time zone": "epoch_us({0})",
    "timestamp": _DATETIME_TEMPLATE,
    "timestamp_s": _DATETIME_TEMPLATE,
    "timestamp_ms": _DATETIME_TEMPLATE,
    "timestamp_ns": _DATETIME_TEMPLATE,
    "date": "{0}::VARCHAR",
    "time": _TIME_TEMPLATE,
    "blob": "base64({0})",
    "decimal": "{0}::VARCHAR",
    "bignum": "{0}::VARCHAR",
    "interval": INTERVAL_TEXT_SQL.replace("@a", "{0}"),
    "uuid": "{0}::VARCHAR",
    "enum": "{0}::VARCHAR",
    "json": "{0}::VARCHAR",
    "map": "to_json({0})::VARCHAR",
    "variant": "{0}::JSON::VARCHAR",
    "bit": "{0}::VARCHAR",
}

# JSON cannot represent infinity and NaN, so they are rendered as texts.
_FLOAT_JSON_TEMPLATE = "CASE WHEN isfinite({0}) THEN to_json({0}) ELSE to_json(replace({0}::VARCHAR, 'nan', 'NaN')) END"
_NESTED_JSON_TEMPLATE_BY_TYPE = _CELL_TEMPLATE_BY_TYPE | {
    "json": "{0}::JSON",
    "map": "to_json({0})",
    "variant": "{0}::JSON",
    "decimal": "{0}",
    "double": _FLOAT_JSON_TEMPLATE,
    "float": _FLOAT_JSON_TEMPLATE,
}


def _render_nested_json_sql(value: str, duckdb_type: DuckDBPyType, depth: int = 0) -> str:
    """Return SQL that prepares a value for `to_json`, including the values inside arrays and structs."""
    name = _type_name(duckdb_type)
    if name in {"list", "array"}:
        variable = f"x{depth}"
        element = _render_nested_json_sql(variable, _child_types(duckdb_type)[0][1], depth + 1)
        return value if element == variable else f"list_transform({value}, lambda {variable}: {element})"
    if name == "struct":
        fields = [
            f"{quote_identifier(key)} := {_render_nested_json_sql(f'{value}.{quote_identifier(key)}', child, depth)}"
            for key, child in _child_types(duckdb_type)
        ]
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({', '.join(fields)}) END"
    return _NESTED_JSON_TEMPLATE_BY_TYPE.get(name, "{0}").format(value)


def _type_name(duckdb_type: DuckDBPyType) -> str:
    return "json" if str(duckdb_type) == "JSON" else str(duckdb_type.id)


def _child_types(duckdb_type: DuckDBPyType) -> list[tuple[str, DuckDBPyType]]:
    return [(name, child) for name, child in duckdb_type.children if isinstance(child, DuckDBPyType)]


def _read_floats(values: Sequence[object]) -> list[Cell]:
    """Convert a column of floats; infinity and NaN, which JSON lacks, become the texts that BigQuery prints."""
    return [_float_or_text(value) if isinstance(value, float) else None for value in values]


def _float_or_text(value: float) -> float | str:
    return value if isfinite(value) else TEXT_BY_SPECIAL_FLOAT.get(value, "NaN")


def _read_event_numbers(values: Sequence[object]) -> list[Cell]:
    return [
        None
        if not isinstance(value, float)
        else integer_if_integral(value)
        if isfinite(value)
        else _float_or_text(value)
        for value in values
    ]


def _read_decimals(values: Sequence[object]) -> list[Cell]:
    return [None if value is None else msgspec.Raw(_strip_trailing_zeros(str(value)).encode()) for value in values]


def _strip_trailing_zeros(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number


def _read_json(values: Sequence[object]) -> list[Cell]:
    return [None if value is None else msgspec.Raw(str(value).encode()) for value in values]


def _array_or_struct_cell_reader(datatype: Datatype) -> CellReader:
    """Return the function that converts a fetched column of arrays or structs to cells.

    Objects inside an event's value become records, which are arrays with one struct; structs that the query made stay
    structs.
    """
    return lambda values: [
        None if value is None else convert_struct_or_array_json(str(value), datatype) for value in values
    ]


def _wrap_json_as_records(values: Sequence[object]) -> list[Cell]:
    return [None if value is None or value == "null" else wrap_objects_as_records(str(value)) for value in values]


_EVENT_NUMBER_READER_BY_TYPE_NAME: dict[str, CellReader] = {
    "double": _read_event_numbers,
    "variant": lambda values: [None if value is None else read_event_number(str(value)) for value in values],
}
_CELL_READER_BY_TYPE_NAME: dict[str, CellReader] = {
    "double": _read_floats,
    "float": _read_floats,
    "decimal": _read_decimals,
    "bignum": _read_decimals,
    "json": _read_json,
    "map": _wrap_json_as_records,
    "variant": _wrap_json_as_records,
}
