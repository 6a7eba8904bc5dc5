"""Conversion of labels to numbers, durations in seconds and sizes in bytes, as expressions of SQL."""

from sqlglot import exp

from cordwood.logql.syntax import Measure
from cordwood.sql.nodes import internal
from cordwood.sql.query_templates import fill


def as_number(text: exp.Expr, measure: Measure, offset: int) -> exp.Expr:
    """Return a text as a number; NULL if it is none."""
    if measure is Measure.DURATION:
        return internal("duration_seconds", text)
    if measure is Measure.BYTES:
        return internal("size_bytes", text)
    return fill("SAFE_CAST(@text AS FLOAT64)", offset, text=text)
