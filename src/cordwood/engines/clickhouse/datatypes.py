"""ClickHouse's types and ours: what a column is, and how its values are rendered."""

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import msgspec

from cordwood.model.datatype import Datatype, Kind
from cordwood.model.rows import Cell

Render = Callable[[object], Cell]
Nested = Callable[[object], object]

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - wall clocks have no zone

_KINDS: Final = {
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


def datatype_of(kind: Any) -> Datatype:
    """The type that the client's type object tells; texts may be more than ClickHouse knows."""
    base = kind.base_type or ""
    if base == "Array":
        return Datatype(Kind.ARRAY, element=datatype_of(kind.element_type))
    if base in ("Tuple", "Nested"):
        names = list(kind.element_names) or [""] * len(kind.element_types)
        return Datatype(
            Kind.STRUCT,
            fields=tuple((name, datatype_of(part)) for name, part in zip(names, kind.element_types, strict=True)),
        )
    if base.startswith("DateTime"):
        return Datatype(Kind.TIMESTAMP if "'" in kind.name else Kind.DATETIME)
    if base.lstrip("U").startswith("Int") and "Interval" not in base:
        return Datatype(Kind.INT64)
    return Datatype(_KINDS.get(base, Kind.STRING))


def settled(told: Datatype, meant: Datatype | None) -> Datatype:
    """The type to render by: what the compiler meant, where ClickHouse's own type can hold it."""
    if meant is None:
        return told
    if meant.kind is Kind.ARRAY and told.kind is Kind.ARRAY and told.element is not None:
        return Datatype(Kind.ARRAY, element=settled(told.element, meant.element))
    if meant.kind is Kind.STRUCT and told.kind is Kind.STRUCT and len(meant.fields) == len(told.fields):
        pairs = zip(meant.fields, told.fields, strict=True)
        return Datatype(Kind.STRUCT, fields=tuple((m[0] or t[0], settled(t[1] or told, m[1])) for m, t in pairs))
    return meant if (told.kind, meant.kind) in _HELD else told


# What is not told by ClickHouse's type: the kinds held in its texts, its whole numbers, its floats.
_HELD: Final = frozenset(
    {(Kind.STRING, kind) for kind in (Kind.BYTES, Kind.JSON, Kind.VARIANT, Kind.INTERVAL)}
    | {(Kind.INT64, Kind.BOOL), (Kind.INT64, Kind.FLOAT64), (Kind.INT64, Kind.NUMERIC), (Kind.NUMERIC, Kind.BIGNUMERIC)}
)


def has_bytes(datatype: Datatype | None) -> bool:
    if datatype is None:
        return False
    return (
        datatype.kind is Kind.BYTES
        or has_bytes(datatype.element)
        or any(has_bytes(field) for _, field in datatype.fields)
    )


def renderer(datatype: Datatype) -> Render:
    """A cell from the client's value."""
    if datatype.kind in _WRITTEN:
        return _WRITTEN[datatype.kind]
    if datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        nested = nested_renderer(datatype)
        wrap = datatype.kind is Kind.STRUCT
        return lambda value: None if value is None else _raw([nested(value)] if wrap else nested(value))
    scalar = _SCALARS.get(datatype.kind, _as_is)
    return lambda value: None if value is None else scalar(value)


def nested_renderer(datatype: Datatype | None) -> Nested:
    """A value inside an ARRAY or a STRUCT; structs in structs are arrays of one record, as in events."""
    if datatype is None:
        return lambda value: value
    if datatype.kind is Kind.ARRAY:
        element = nested_renderer(datatype.element)
        return lambda value: None if value is None else [element(one) for one in _listed(value)]
    if datatype.kind is Kind.STRUCT:
        return _record_renderer(datatype)
    if datatype.kind in (Kind.JSON, Kind.VARIANT):
        return lambda value: None if value is None else _raw(_decoded(value))
    scalar = _SCALARS.get(datatype.kind, _as_is)
    return lambda value: None if value is None else scalar(value)


def _record_renderer(datatype: Datatype) -> Nested:
    names = [name or f"_field_{at}" for at, (name, _) in enumerate(datatype.fields, 1)]
    parts = [nested_renderer(field) for _, field in datatype.fields]
    structs = [field is not None and field.kind is Kind.STRUCT for _, field in datatype.fields]

    def render(value: object) -> object:
        if value is None:
            return None
        values = value.values() if isinstance(value, Mapping) else _listed(value)
        shown = [part(one) for part, one in zip(parts, values, strict=True)]
        boxed = [[one] if struct and one is not None else one for one, struct in zip(shown, structs, strict=True)]
        return dict(zip(names, boxed, strict=True))

    return render


def wrapped(value: object) -> object:
    """Every object as an array of one record; the elements of arrays stay what they are."""
    return [_inside(value)] if isinstance(value, dict) else _inside(value)


def _inside(value: object) -> object:
    if isinstance(value, dict):
        return {key: wrapped(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_inside(one) for one in value]
    return value


def _json(value: object) -> Cell:
    return None if value is None else _raw(_decoded(value))


def _variant(value: object) -> Cell:
    decoded = _decoded(value)
    return None if decoded is None else _raw(wrapped(decoded))


def _decoded(value: object) -> object:
    if isinstance(value, (str, bytes)):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
    return value


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _as_is(value: object) -> Cell:
    if isinstance(value, (str, int, float, bool)):
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _float(value: object) -> Cell:
    number = float(str(value)) if not isinstance(value, (int, float)) else float(value)
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def _number(value: object) -> Cell:
    """With all its digits, and no zeros after them."""
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return msgspec.Raw((text.rstrip("0").rstrip(".") if "." in text else text).encode())


def _datetime(value: object) -> Cell:
    return (_EPOCH + timedelta(microseconds=int(str(value)))).isoformat()


def _date(value: object) -> Cell:
    return value.isoformat() if isinstance(value, date) else str(value)


def _time(value: object) -> Cell:
    if isinstance(value, timedelta):
        return (_EPOCH + value).time().isoformat()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _bytes(value: object) -> Cell:
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
    return base64.b64encode(raw).decode("ascii")


_SCALARS: Final[Mapping[Kind, Render]] = {
    Kind.BOOL: bool,
    Kind.FLOAT64: _float,
    Kind.NUMERIC: _number,
    Kind.BIGNUMERIC: _number,
    Kind.DATETIME: _datetime,
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.BYTES: _bytes,
}

_WRITTEN: Final[Mapping[Kind, Render]] = {Kind.JSON: _json, Kind.VARIANT: _variant}
