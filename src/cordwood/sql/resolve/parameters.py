"""Parameters and the time of the call, as slots whose values are bound and never printed."""

from typing import Final

from sqlglot import exp

from cordwood.errors import UnknownName, closest
from cordwood.model.datatype import Kind
from cordwood.sql.nodes import NOW, typed
from cordwood.sql.places import copy_place
from cordwood.sql.resolve.work import Work

SLOT_TYPES: Final[dict[Kind, exp.DType]] = {
    Kind.STRING: exp.DType.VARCHAR,
    Kind.BYTES: exp.DType.BINARY,
    Kind.INT64: exp.DType.BIGINT,
    Kind.FLOAT64: exp.DType.DOUBLE,
    Kind.NUMERIC: exp.DType.DECIMAL,
    Kind.BIGNUMERIC: exp.DType.BIGDECIMAL,
    Kind.BOOL: exp.DType.BOOLEAN,
    Kind.TIMESTAMP: exp.DType.TIMESTAMPTZ,
    Kind.DATETIME: exp.DType.TIMESTAMP,
    Kind.DATE: exp.DType.DATE,
    Kind.TIME: exp.DType.TIME,
    Kind.JSON: exp.DType.JSON,
    Kind.VARIANT: exp.DType.VARIANT,
}


def slot(work: Work, node: exp.Expr) -> exp.Expr:
    """Return a typed slot for an @name that the endpoint declares."""
    name = node.name
    declared = {known.lower(): parameter for known, parameter in work.parameters.items()}
    parameter = declared.get(name.lower())
    if parameter is None:
        raise _undeclared(work, node, list(work.parameters))
    made = exp.Parameter(this=exp.Var(this=parameter.name))
    return copy_place(node, typed(made, SLOT_TYPES[parameter.type]))


def moment(node: exp.Expr) -> exp.Expr:
    """Return CURRENT_TIMESTAMP or a related function, computed from the time of the call."""
    now = typed(exp.Parameter(this=exp.Var(this=NOW)), exp.DType.TIMESTAMPTZ)
    zone = node.this
    if isinstance(node, exp.CurrentDate):
        now = exp.Date(this=now, zone=zone)
    elif isinstance(node, exp.CurrentDatetime):
        now = exp.Datetime(this=now, expression=zone)
    elif isinstance(node, exp.CurrentTime):
        now = exp.Time(this=now, zone=zone) if zone is not None else exp.TsOrDsToTime(this=now)
    return copy_place(node, now)


def _undeclared(work: Work, node: exp.Expr, names: list[str]) -> UnknownName:
    close = closest(node.name, names)
    if close:
        hint = f"Did you mean @{close}?"
    else:
        hint = f"There are: {', '.join('@' + name for name in names)}." if names else "None is declared."
    return UnknownName(f"The parameter @{node.name} is not declared.", hint=hint, span=work.span(node))
