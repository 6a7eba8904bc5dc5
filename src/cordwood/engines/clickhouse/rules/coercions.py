"""Implicit conversions to the type that a context requires: texts to times, INT64 to FLOAT64, events' values to any."""

import re
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    NAMES,
    cast,
    fail_if_with,
    once,
    timestamp_of,
    utc_wall_clock,
)
from cordwood.engines.clickhouse.rules.zones import first_timestamp_in
from cordwood.model.datatype import MOMENTS, NUMBERS, Kind
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_text
from cordwood.sql.datatypes import Conversion, Conversions, convert_to, inherit, kind_of
from cordwood.sql.fragment import fragment, quoted_constant, text_part
from cordwood.sql.lowering import RAISED, is_safe
from cordwood.sql.rules.times import CANONICAL, engine_spelling, invalid_message, needs_check


def read_as(node: exp.Expr, kind: Kind) -> exp.Expr:
    return convert_to(_READERS, node, kind)


def wall_clock(node: exp.Expr) -> exp.Expr:
    """Return any time as its wall clock in UTC."""
    kind = kind_of(node)
    if kind in (Kind.TIMESTAMP, Kind.DATE):
        return utc_wall_clock(node)
    if kind in (Kind.STRING, Kind.VARIANT):
        return utc_wall_clock(read_as(node, Kind.TIMESTAMP))
    return node


def _cast(kind: Kind) -> Conversion:
    return lambda node: cast(node, kind)


def _try_cast(kind: Kind) -> Conversion:
    name = quoted_constant(NAMES[kind])
    return lambda node: fragment(f"accurateCastOrNull({{0}}, {name})", event_text(node))


def event_text_of(value: str) -> str:
    """Return an SQL template that decodes a stored value, which is JSON text, to the string that it represents."""
    return f"JSONExtract({value}, 'Nullable(String)')"


# The meta key of the text from which an event's value was made, if it is available.
_TEXT: Final = "event_text"


def with_text(value: exp.Expr, text: exp.Expr) -> exp.Expr:
    """Attach its text to an event's value that was made from it, for readers that need the text."""
    value.meta[_TEXT] = copied(text)
    return value


def attached_text(node: exp.Expr) -> exp.Expr | None:
    text = node.unnest().meta_get(_TEXT) if kind_of(node) is Kind.VARIANT else None
    return copied(text) if isinstance(text, exp.Expr) else None


def event_text(node: exp.Expr) -> exp.Expr:
    """Return an event's value as the text that it represents."""
    return attached_text(node) or fragment(event_text_of("{0}"), node)


# A time zone's name at the end of a text; ClickHouse itself parses offsets only.
_WITH_ZONE_NAME: Final = re.compile(r"^(.*\d) ([A-Za-z_]+/[A-Za-z_/+-]+[0-9]*)$")


def text_to_time(node: exp.Expr, value: exp.Expr, kind: Kind) -> exp.Expr:
    """Parse a text as a time in BigQuery's syntax; `node` tells whether a failure is NULL."""
    if needs_check(value, kind):
        texts = [text_part(f"^({CANONICAL[kind]})$"), text_part(RAISED + invalid_message(value, kind))]
        return once(_parse_column(node, kind), value, texts=texts)
    canonical = engine_spelling(value, kind)
    with_zone = _WITH_ZONE_NAME.match(canonical or constant_text(value) or "") if kind is Kind.TIMESTAMP else None
    if with_zone:
        parsed = once(_PARSERS[Kind.DATETIME].replace("#", ""), text_part(with_zone[1]))
        return first_timestamp_in(parsed, exp.Literal.string(with_zone[2]))
    text = inherit(text_part(canonical), value) if canonical is not None else value
    return once(_PARSERS[kind].replace("#", "OrNull" if is_safe(node) else ""), text)


def _parse_column(node: exp.Expr, kind: Kind) -> str:
    """Return the template that parses a column of texts, over a pattern and a message.

    It uses the parser that returns NULL, because ClickHouse also evaluates the values below a NULL.
    """
    parsed = _PARSERS[kind].replace("#", "OrNull")
    has_time = "match(@a, {0})"
    if is_safe(node):
        return f"if({has_time}, {parsed}, NULL)"
    return fail_if_with(node, f"(NOT {has_time} OR (@a IS NOT NULL AND {parsed} IS NULL))", "{1}", parsed)


# T and Z may be in lower case. Only the first ten characters of a text are parsed as a date.
_PARSERS: Final = {
    Kind.TIMESTAMP: "parseDateTime64BestEffort#(upper(@a), 6, 'UTC')",
    Kind.DATETIME: "parseDateTime64BestEffort#(upper(@a), 6)",
    Kind.DATE: "toDate32(parseDateTime64BestEffort#(upper(substring(@a, 1, 10)), 0, 'UTC'))",
    Kind.TIME: "CAST(parseDateTime64BestEffort#(concat('1970-01-01 ', @a), 6), 'Nullable(Time64(6))')",
}


def _text_to(kind: Kind) -> Conversion:
    return lambda node: text_to_time(node, node, kind)


_READERS: Final[Conversions] = {
    **{(Kind.STRING, kind): _text_to(kind) for kind in MOMENTS},
    (Kind.STRING, Kind.BYTES): lambda node: node,
    (Kind.STRING, Kind.JSON): lambda node: fragment("toJSONString({0})", node),
    (Kind.DATE, Kind.DATETIME): _cast(Kind.DATETIME),
    (Kind.DATE, Kind.TIMESTAMP): _cast(Kind.TIMESTAMP),
    (Kind.DATETIME, Kind.TIMESTAMP): timestamp_of,
    (Kind.DATETIME, Kind.DATE): _cast(Kind.DATE),
    (Kind.TIMESTAMP, Kind.DATETIME): utc_wall_clock,
    (Kind.TIMESTAMP, Kind.DATE): _cast(Kind.DATE),
    (Kind.INT64, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.INT64, Kind.NUMERIC): _cast(Kind.NUMERIC),
    (Kind.NUMERIC, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.BIGNUMERIC, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.STRING): event_text,
    (Kind.VARIANT, Kind.BYTES): event_text,
    (Kind.VARIANT, Kind.JSON): lambda node: node,
    **{(Kind.VARIANT, kind): _try_cast(Kind.FLOAT64) for kind in NUMBERS},
    **{(Kind.VARIANT, kind): _try_cast(kind) for kind in (Kind.BOOL, *MOMENTS)},
}
