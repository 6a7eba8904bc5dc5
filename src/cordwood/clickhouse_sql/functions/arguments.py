"""Checks of argument counts and time zones."""

from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.expressions import Expressions


def arguments(t: Expressions, call: Call, least: int, most: int | None = None) -> tuple[exp.Expr, ...]:
    """Return the arguments; refuse any other number of them.

    `most` is `least` by default, and -1 for no limit.
    """
    most = least if most is None else most
    count = len(call.arguments)
    if call.parameters:
        raise t.refused(call.node, f"{call.spelled} takes its arguments in one pair of brackets.")
    if count < least or (most >= 0 and count > most):
        wanted = str(least) if most == least else f"{least} or more" if most < 0 else f"{least} to {most}"
        raise t.refused(call.node, f"{call.spelled} takes {wanted} arguments, and {count} were given.")
    return call.arguments


def arguments_before_zone(t: Expressions, call: Call, count: int) -> tuple[exp.Expr, ...]:
    """Return so many arguments; a time zone may follow them, which must be UTC."""
    found = arguments(t, call, count, count + 1)
    if len(found) > count:
        check_zone(t, found[count])
    return found[:count]


def check_zone(t: Expressions, node: exp.Expr) -> None:
    """Refuse a time zone other than UTC."""
    if t.constant_text(node, "A time zone").upper() not in ("UTC", "GMT", "ETC/UTC", "Z"):
        raise t.refused(node, "Time zones other than UTC are not supported.", "Leave the zone out, or write 'UTC'.")
