"""Parameters and the time of the call, as slots whose values are bound and never printed."""

from typing import Final

from sqlglot import exp

from cordwood.errors import UnknownName, closest
from cordwood.model.datatype import Kind
from cordwood.sql.nodes import NOW, placeholder, set_type
from cordwood.sql.positions import copy_position
from cordwood.sql.resolve.resolution import Resolution

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


def slot(resolution: Resolution, node: exp.Expr) -> exp.Expr:
    """Return a typed slot for an @name that the endpoint declares."""
    name = node.name
    by_name = {declared_name.lower(): parameter for declared_name, parameter in resolution.parameters.items()}
    parameter = by_name.get(name.lower())
    if parameter is None:
        raise _undeclared_parameter(resolution, node, list(resolution.parameters))
    placeholder = exp.Parameter(this=exp.Var(this=parameter.name))
    return copy_position(node, set_type(placeholder, SLOT_TYPES[parameter.type]))


def time_from_call(node: exp.Expr) -> exp.Expr:
    """Return CURRENT_TIMESTAMP or a related function, computed from the time of the call."""
    value = placeholder(NOW, exp.DType.TIMESTAMPTZ)
    zone = node.this
    if isinstance(node, exp.CurrentDate):
        value = exp.Date(this=value, zone=zone)
    elif isinstance(node, exp.CurrentDatetime):
        value = exp.Datetime(this=value, expression=zone)
    elif isinstance(node, exp.CurrentTime):
        value = exp.Time(this=value, zone=zone) if zone is not None else exp.TsOrDsToTime(this=value)
    return copy_position(node, value)


def _undeclared_parameter(resolution: Resolution, node: exp.Expr, names: list[str]) -> UnknownName:
    closest_name = closest(node.name, names)
    if closest_name:
        hint = f"Did you mean @{closest_name}?"
    else:
        hint = f"There are: {', '.join('@' + name for name in names)}." if names else "None is declared."
    return UnknownName(f"The parameter @{node.name} is not declared.", hint=hint, span=resolution.span(node))
