"""Implicit conversions to the type that a context requires: texts to times, INT64 to FLOAT64, events' values to any."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    NAMES,
    fail_with,
    once,
    timestamp_of,
    utc_wall_clock,
    variant_text,
)
from cordwood.model.datatype import MOMENTS, Kind
from cordwood.sql.datatypes import Conversion, Conversions, convert_to, kind_of
from cordwood.sql.fragment import fragment, text_part
from cordwood.sql.lowering import RAISED, is_safe
from cordwood.sql.nodes import Recast
from cordwood.sql.rules.times import CANONICAL, engine_spelling, invalid_message, needs_check


def read_as(node: exp.Expr, kind: Kind) -> exp.Expr:
    if isinstance(node, exp.Null) and kind in MOMENTS:
        return fragment(f"NULL::{NAMES[kind]}")  # DuckDB's functions of times are overloaded by type
    return convert_to(_READERS, node, kind)


def wall_clock(node: exp.Expr) -> exp.Expr:
    """Return any time as its wall clock in UTC, which DuckDB's date functions take."""
    kind = kind_of(node)
    if isinstance(node, exp.Null):
        return read_as(node, Kind.DATETIME)
    if kind is Kind.TIMESTAMP:
        return utc_wall_clock(node)
    if kind is Kind.DATE:
        return fragment("{0}::TIMESTAMP", node)
    if kind in (Kind.STRING, Kind.VARIANT):
        return utc_wall_clock(read_as(node, Kind.TIMESTAMP))
    return node


def _cast(kind: Kind) -> Conversion:
    return lambda node: fragment(f"{{0}}::{NAMES[kind]}", node, operation=Recast())


def _try_cast(kind: Kind) -> Conversion:
    return lambda node: fragment(f"try_cast({{0}} AS {NAMES[kind]})", variant_text(node))


def text_to_time(node: exp.Expr, value: exp.Expr, kind: Kind) -> exp.Expr:
    """Parse a text as a time in BigQuery's syntax; `node` tells whether a failure is NULL."""
    if needs_check(value, kind):
        texts = [text_part(f"^({CANONICAL[kind]})$"), text_part(RAISED + invalid_message(value, kind))]
        return once(_parse_column(node, kind), value, texts=texts)
    canonical = engine_spelling(value, kind)
    text = exp.Literal.string(canonical) if canonical is not None else value
    return once(f"try(@a::{NAMES[kind]})", text) if is_safe(node) else fragment(f"{{0}}::{NAMES[kind]}", text)


def _parse_column(node: exp.Expr, kind: Kind) -> str:
    """Return the template that parses a column of texts; its operands are the pattern of valid texts and an error message.

    DuckDB parses most texts directly, three times as fast as matching the pattern; only texts that it rejects are
    matched. Its parser accepts more than BigQuery's, so only texts that pass a cheap test of their form are given to it.
    """
    cast = "try_cast" if is_safe(node) else "cast"
    # Accepts lower-case letters, and offsets with one-digit hours.
    normalized = r"regexp_replace(upper(@a), '(:\d.*[+-])(\d)(:|$)', '\10\2\3')"
    failure = fail_with(node, "{1}")
    checked = f"CASE WHEN @a IS NULL THEN NULL WHEN regexp_matches(@a, {{0}}) THEN {cast}({normalized} AS {NAMES[kind]}) ELSE {failure} END"
    return f"coalesce(CASE WHEN {_PARSES_DIRECTLY[kind]} THEN try_cast(@a AS {NAMES[kind]}) END, {checked})"


_YEAR: Final = "@a LIKE '____-%-%' AND @a > '0001'"

# Longer texts may have too many fractional digits; a wall clock must not end in a possible zone.
_PARSES_DIRECTLY: Final = {
    Kind.TIMESTAMP: f"{_YEAR} AND length(@a) <= 35",
    Kind.DATETIME: f"{_YEAR} AND length(@a) IN (10, 19)",
    Kind.DATE: _YEAR,
    Kind.TIME: "length(@a) = 8 AND @a < '24'",
}


def _text_to(kind: Kind) -> Conversion:
    return lambda node: text_to_time(node, node, kind)


def _day(node: exp.Expr) -> exp.Expr:
    return fragment("{0}::DATE", utc_wall_clock(node))


_READERS: Final[Conversions] = {
    **{(Kind.STRING, kind): _text_to(kind) for kind in MOMENTS},
    (Kind.STRING, Kind.BYTES): lambda node: fragment("encode({0})", node),
    (Kind.STRING, Kind.JSON): _cast(Kind.JSON),
    (Kind.DATE, Kind.DATETIME): _cast(Kind.DATETIME),
    (Kind.DATE, Kind.TIMESTAMP): lambda node: timestamp_of(fragment("{0}::TIMESTAMP", node)),
    (Kind.DATETIME, Kind.TIMESTAMP): timestamp_of,
    (Kind.DATETIME, Kind.DATE): _cast(Kind.DATE),
    (Kind.TIMESTAMP, Kind.DATETIME): utc_wall_clock,
    (Kind.TIMESTAMP, Kind.DATE): _day,
    (Kind.INT64, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.INT64, Kind.NUMERIC): _cast(Kind.NUMERIC),
    (Kind.NUMERIC, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.BIGNUMERIC, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.STRING): variant_text,
    (Kind.VARIANT, Kind.BYTES): lambda node: fragment("encode({0})", variant_text(node)),
    (Kind.VARIANT, Kind.INT64): _try_cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.FLOAT64): _try_cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.NUMERIC): _try_cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.BIGNUMERIC): _try_cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.BOOL): _try_cast(Kind.BOOL),
    (Kind.VARIANT, Kind.TIMESTAMP): _try_cast(Kind.TIMESTAMP),
    (Kind.VARIANT, Kind.DATETIME): _try_cast(Kind.DATETIME),
    (Kind.VARIANT, Kind.DATE): _try_cast(Kind.DATE),
    (Kind.VARIANT, Kind.TIME): _try_cast(Kind.TIME),
    (Kind.VARIANT, Kind.JSON): _cast(Kind.JSON),
}
