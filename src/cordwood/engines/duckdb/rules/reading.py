"""A value read as the type that its place demands: texts as times, whole numbers as floats, event values as any."""

import re
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.words import NAMES, instant, naive
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.reading import Reader, Readers, read_by
from cordwood.sql.fragment import fragment
from cordwood.sql.typing import kind_of


def read_as(node: exp.Expr, kind: Kind) -> exp.Expr:
    return read_by(_READERS, node, kind)


def clock(node: exp.Expr) -> exp.Expr:
    """Any time as a wall clock in UTC: what the engine's date functions work on."""
    own = kind_of(node)
    if own is Kind.TIMESTAMP:
        return naive(node)
    if own is Kind.DATE:
        return fragment("{0}::TIMESTAMP", node)
    if own in (Kind.STRING, Kind.VARIANT):
        return naive(read_as(node, Kind.TIMESTAMP))
    return node


def _cast(kind: Kind) -> Reader:
    return lambda node: fragment(f"{{0}}::{NAMES[kind]}", node)


def _try_cast(kind: Kind) -> Reader:
    """By way of text, which the engine reads from its shredded columns without putting the value together."""
    return lambda node: fragment(f"try_cast({{0}}::VARCHAR AS {NAMES[kind]})", node)


def _event_text(node: exp.Expr) -> exp.Expr:
    return fragment("{0}::VARCHAR", node)


_SHORT_OFFSET: Final = re.compile(r"(:\d.*[+-])(\d)((?::\d\d)?)$")


def _text_as_timestamp(node: exp.Expr) -> exp.Expr:
    """BigQuery reads an hour of one digit in an offset, the engine does not."""
    if isinstance(node, exp.Literal) and node.is_string:
        node = exp.Literal.string(_SHORT_OFFSET.sub(r"\g<1>0\2\3", str(node.this)))
    return fragment("{0}::TIMESTAMPTZ", node)


def _day(node: exp.Expr) -> exp.Expr:
    return fragment("{0}::DATE", naive(node))


_READERS: Final[Readers] = {
    (Kind.STRING, Kind.TIMESTAMP): _text_as_timestamp,
    (Kind.STRING, Kind.DATETIME): _cast(Kind.DATETIME),
    (Kind.STRING, Kind.DATE): _cast(Kind.DATE),
    (Kind.STRING, Kind.TIME): _cast(Kind.TIME),
    (Kind.STRING, Kind.BYTES): lambda node: fragment("encode({0})", node),
    (Kind.STRING, Kind.JSON): _cast(Kind.JSON),
    (Kind.DATE, Kind.DATETIME): _cast(Kind.DATETIME),
    (Kind.DATE, Kind.TIMESTAMP): lambda node: instant(fragment("{0}::TIMESTAMP", node)),
    (Kind.DATETIME, Kind.TIMESTAMP): instant,
    (Kind.DATETIME, Kind.DATE): _cast(Kind.DATE),
    (Kind.TIMESTAMP, Kind.DATETIME): naive,
    (Kind.TIMESTAMP, Kind.DATE): _day,
    (Kind.INT64, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.INT64, Kind.NUMERIC): _cast(Kind.NUMERIC),
    (Kind.NUMERIC, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.BIGNUMERIC, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.STRING): _event_text,
    (Kind.VARIANT, Kind.BYTES): lambda node: fragment("encode({0}::VARCHAR)", node),
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
