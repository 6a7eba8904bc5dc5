"""Map ClickHouse's types to BigQuery's, and render the values of a column for an answer."""

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec

from cordwood.engines.records import integer_if_integral, read_event_number, wrap_objects_as_records
from cordwood.errors import BadQueryValue
from cordwood.model.datatype import Cell, Datatype, Kind

CellRenderer = Callable[[object], Cell]
NestedRenderer = Callable[[object], object]

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - wall clocks have no zone

_KIND_BY_TYPE_NAME: Final = {
    "Bool": Kind.BOOL,
    "Float32": Kind.FLOAT64,
    "Float64": Kind.FLOAT64,
    "Decimal": Kind.NUMERIC,
    "Date": Kind.DATE,
    "Date32": Kind.DATE,
    "Time": Kind.TIME,
    "Time64": Kind.TIME,
    "JSON": Kind.JSON,
    "Dynamic": Kind.JSON,
    "Variant": Kind.JSON,
}


def datatype_of_engine_type(kind: Any) -> Datatype:
    """Return the data type for the client's type object. A String may represent another type: see `rendered_type`."""
    base = kind.base_type or ""
    if base == "Array":
        return Datatype(Kind.ARRAY, element=datatype_of_engine_type(kind.element_type))
    if base in ("Tuple", "Nested"):
        return _struct_datatype(kind)
    return Datatype(_kind_of_engine_type(base, kind.name))


def _kind_of_engine_type(base: str, name: str) -> Kind:
    """Return the kind of a ClickHouse type.

    A DateTime with a time zone represents a TIMESTAMP. A DateTime without a time zone represents a DATETIME.
    """
    if base.startswith("DateTime"):
        return Kind.TIMESTAMP if "'" in name else Kind.DATETIME
    if base.lstrip("U").startswith("Int") and "Interval" not in base:
        return Kind.INT64
    return _KIND_BY_TYPE_NAME.get(base, Kind.STRING)


def _struct_datatype(kind: Any) -> Datatype:
    names = list(kind.element_names) or [""] * len(kind.element_types)
    parts = zip(names, kind.element_types, strict=True)
    return Datatype(Kind.STRUCT, fields=tuple((name, datatype_of_engine_type(part)) for name, part in parts))


def rendered_type(engine_type: Datatype, declared_type: Datatype | None) -> Datatype:
    """Return the type as which the values of a column are rendered in the answer.

    This is the type that the compiler declared, if ClickHouse's type can represent it. Otherwise, it is ClickHouse's
    type.
    """
    if declared_type is None:
        return engine_type
    if declared_type.is_event_number and engine_type.kind in (Kind.FLOAT64, Kind.INT64, Kind.STRING):
        return declared_type
    if declared_type.kind is engine_type.kind is Kind.ARRAY and engine_type.element is not None:
        return Datatype(Kind.ARRAY, element=rendered_type(engine_type.element, declared_type.element))
    if declared_type.kind is engine_type.kind is Kind.STRUCT:
        return _rendered_struct(engine_type, declared_type)
    return (
        declared_type
        if (engine_type.kind, declared_type.kind) in _COMPATIBLE_ENGINE_AND_DECLARED_KINDS
        else engine_type
    )


def _rendered_struct(engine_type: Datatype, declared_type: Datatype) -> Datatype:
    if len(declared_type.fields) != len(engine_type.fields):
        return engine_type
    pairs = zip(declared_type.fields, engine_type.fields, strict=True)
    return Datatype(
        Kind.STRUCT, fields=tuple((m[0] or t[0], rendered_type(t[1] or engine_type, m[1])) for m, t in pairs)
    )


# Pairs of a ClickHouse type's kind and the kind of the type that the compiler declared. For these pairs, ClickHouse may
# return values of the declared type as the ClickHouse type, so they are rendered as the declared type.
_COMPATIBLE_ENGINE_AND_DECLARED_KINDS: Final = frozenset(
    {(Kind.STRING, kind) for kind in (Kind.BYTES, Kind.JSON, Kind.VARIANT, Kind.INTERVAL)}
    | {
        (Kind.TIMESTAMP, Kind.DATETIME),
        (Kind.DATETIME, Kind.TIMESTAMP),
        (Kind.INT64, Kind.BOOL),
        (Kind.INT64, Kind.FLOAT64),
        (Kind.INT64, Kind.NUMERIC),
        (Kind.NUMERIC, Kind.BIGNUMERIC),
        (Kind.STRUCT, Kind.INTERVAL),
    }
)


def to_bindable_value(value: object) -> object:
    """Convert a parameter's value to a form that the client passes to the server without loss.

    Times become texts, because the client would truncate them to seconds.
    """
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, (date, time)):
        return value.isoformat()
    return (
        value.decode("utf-8", "surrogateescape")
        if isinstance(value, bytes)
        else str(value)
        if isinstance(value, Decimal)
        else value
    )


def has_bytes(datatype: Datatype | None) -> bool:
    if datatype is None:
        return False
    return (
        datatype.kind is Kind.BYTES
        or has_bytes(datatype.element)
        or any(has_bytes(field) for _, field in datatype.fields)
    )


def cell_renderer(datatype: Datatype) -> CellRenderer:
    """Return the function that converts a value of this type, as the client returns it, to a cell of the answer."""
    if datatype.kind in _JSON_RENDERER_BY_KIND:
        return _JSON_RENDERER_BY_KIND[datatype.kind]
    if datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        render = _nested_renderer(datatype)
        return lambda value: None if value is None else _encode_raw_json(render(value))
    scalar = _scalar_renderer(datatype)
    return lambda value: None if value is None else scalar(value)


def _scalar_renderer(datatype: Datatype) -> CellRenderer:
    if datatype.is_event_number:
        return _render_event_number
    return _SCALAR_RENDERER_BY_KIND.get(datatype.kind, _render_unchanged)


def _nested_renderer(datatype: Datatype | None) -> NestedRenderer:
    """Return the function that renders a value inside an ARRAY or a STRUCT.

    A struct becomes a JSON object. In events' values, objects become records, which are arrays with one object.
    """
    if datatype is None:
        return lambda value: value
    if datatype.kind is Kind.ARRAY:
        return _array_renderer(datatype.element)
    if datatype.kind is Kind.STRUCT:
        return _struct_renderer(datatype)
    write = _JSON_RENDERER_BY_KIND.get(datatype.kind) or _scalar_renderer(datatype)
    return lambda value: None if value is None else write(value)


def _array_renderer(element: Datatype | None) -> NestedRenderer:
    if element is not None and element.kind is Kind.VARIANT:
        return _render_event_value_array
    render = _nested_renderer(element)
    return lambda value: None if value is None else [render(item) for item in _as_list(value)]


def _struct_renderer(datatype: Datatype) -> NestedRenderer:
    names = [name or f"_field_{index}" for index, (name, _) in enumerate(datatype.fields, 1)]
    renderers = [_nested_renderer(field) for _, field in datatype.fields]

    def render(value: object) -> object:
        if value is None:
            return None
        values = value.values() if isinstance(value, Mapping) else _as_list(value)
        return dict(
            zip(names, [render_field(item) for render_field, item in zip(renderers, values, strict=True)], strict=True)
        )

    return render


def _render_event_value_array(value: object) -> object:
    """Render an array of events' values. An object that is an element is not wrapped in an array of its own."""
    texts = ["null" if item is None else str(item) for item in _as_list(value)]
    return wrap_objects_as_records(f"[{','.join(texts)}]")


def _render_json(value: object) -> Cell:
    return None if value is None else msgspec.Raw(str(value).encode())


def _render_variant(value: object) -> Cell:
    """Render an event's value; a value that is not valid JSON is rendered as a text."""
    if value is None or value == "null":
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value)
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return _encode_raw_json(text)
    except RecursionError:
        return wrap_objects_as_records(text)
    # Sort the keys, because the DuckDB engine returns them in sorted order, too.
    return msgspec.Raw(msgspec.json.encode(msgspec.json.decode(wrap_objects_as_records(text)), order="sorted"))


def _encode_raw_json(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _render_unchanged(value: object) -> Cell:
    if isinstance(value, (str, int, float, bool)):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _render_float(value: object) -> Cell:
    number = float(str(value)) if not isinstance(value, (int, float)) else float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _render_event_number(value: object) -> Cell:
    """Render a number from events; a number that may be a large integer is an event's value, which is JSON."""
    number = read_event_number(value) if isinstance(value, str) else _render_float(value)
    return integer_if_integral(number) if isinstance(number, float) else number


def _render_number(value: object) -> Cell:
    """Render a number with all its digits and without trailing zeros."""
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return msgspec.Raw((text.rstrip("0").rstrip(".") if "." in text else text).encode())


def _render_datetime(value: object) -> Cell:
    try:
        return (_EPOCH + timedelta(microseconds=int(str(value)))).isoformat()
    except OverflowError:
        raise BadQueryValue("DATETIME out of range: it would be before 0001-01-01 or after 9999-12-31") from None


def _render_date(value: object) -> Cell:
    return value.isoformat() if isinstance(value, date) else str(value)


def _render_time(value: object) -> Cell:
    if isinstance(value, timedelta):
        return (_EPOCH + value).time().isoformat()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _render_interval(value: object) -> Cell:
    """Render months, days and microseconds as `Y-M D H:M:S`; each of the three parts has its own sign.

    If any part is NULL, the result is NULL.
    """
    if isinstance(value, str):
        return value
    parts = list(value.values()) if isinstance(value, Mapping) else _as_list(value)
    if None in parts:
        return None
    months, days, micros = (int(str(part)) for part in parts)
    seconds, fraction = divmod(abs(micros), 1_000_000)
    clock = f"{seconds // 3600}:{seconds // 60 % 60}:{seconds % 60}"
    if fraction:
        clock += f".{fraction // 1000:03d}" if fraction % 1000 == 0 else f".{fraction:06d}"
    years = f"{abs(months) // 12}-{abs(months) % 12}"
    return f"{'-' * (months < 0)}{years} {days} {'-' * (micros < 0)}{clock}"


def _render_bytes(value: object) -> Cell:
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    return base64.b64encode(raw).decode("ascii")


_SCALAR_RENDERER_BY_KIND: Final[Mapping[Kind, CellRenderer]] = {
    Kind.BOOL: bool,
    Kind.FLOAT64: _render_float,
    Kind.NUMERIC: _render_number,
    Kind.BIGNUMERIC: _render_number,
    Kind.DATETIME: _render_datetime,
    Kind.DATE: _render_date,
    Kind.TIME: _render_time,
    Kind.INTERVAL: _render_interval,
    Kind.BYTES: _render_bytes,
}

_JSON_RENDERER_BY_KIND: Final[Mapping[Kind, CellRenderer]] = {Kind.JSON: _render_json, Kind.VARIANT: _render_variant}
