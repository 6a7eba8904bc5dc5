"""Checks of argument counts and time zones."""

from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.expressions import Expressions


def arguments(translator: Expressions, call: Call, minimum: int, maximum: int | None = None) -> tuple[exp.Expr, ...]:
    """Return the arguments; refuse any other number of them.

    `maximum` is `minimum` by default, and -1 for no limit.
    """
    maximum = minimum if maximum is None else maximum
    count = len(call.arguments)
    if call.parameters:
        raise translator.refusal(call.node, f"{call.display_name} takes its arguments in one pair of brackets.")
    if count < minimum or (maximum >= 0 and count > maximum):
        expected = (
            str(minimum) if maximum == minimum else f"{minimum} or more" if maximum < 0 else f"{minimum} to {maximum}"
        )
        raise translator.refusal(call.node, f"{call.display_name} takes {expected} arguments, and {count} were given.")
    return call.arguments


def arguments_before_zone(translator: Expressions, call: Call, count: int) -> tuple[exp.Expr, ...]:
    """Return so many arguments; a time zone may follow them, which must be UTC."""
    parts = arguments(translator, call, count, count + 1)
    if len(parts) > count:
        check_zone(translator, parts[count])
    return parts[:count]


def check_zone(translator: Expressions, node: exp.Expr) -> None:
    """Refuse a time zone other than UTC."""
    if translator.constant_text(node, "A time zone").upper() not in ("UTC", "GMT", "ETC/UTC", "Z"):
        raise translator.refusal(
            node, "Time zones other than UTC are not supported.", "Leave the zone out, or write 'UTC'."
        )
