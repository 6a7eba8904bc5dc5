"""The interface through which functions translate their arguments and report errors with positions.

The number of arguments, and time zones among them, are checked here.
"""

from collections.abc import Mapping
from typing import Protocol

from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.scope import Row
from cordwood.clickhouse_sql.values import Value
from cordwood.errors import QueryRefused, Span
from cordwood.model.endpoint import Parameter


class ArgumentTranslator(Protocol):
    """Translates arguments to values. A wrong type is refused at the argument's position."""

    @property
    def row(self) -> Row:
        """The columns in scope."""
        ...

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The endpoint's parameters."""
        ...

    def span(self, node: exp.Expr) -> Span | None: ...

    def value(self, node: exp.Expr) -> Value: ...

    def value_with_default(self, node: exp.Expr) -> Value:
        """Return the value, with its default instead of NULL."""
        ...

    def string(self, node: exp.Expr) -> Value: ...

    def number(self, node: exp.Expr) -> Value: ...

    def number_of(self, node: exp.Expr, value: Value) -> Value:
        """Return the value as a number; refuse any other value at the node's position."""
        ...

    def array(self, node: exp.Expr) -> Value: ...

    def condition_value(self, node: exp.Expr) -> Value: ...

    def filter(self, node: exp.Expr) -> exp.Expr:
        """Return a condition in which NULL has the same effect as false."""
        ...

    def constant_text(self, node: exp.Expr, subject: str) -> str: ...

    def constant_number(self, node: exp.Expr, subject: str) -> float: ...

    def fill(self, node: exp.Expr, template: str, **parts: exp.Expr) -> exp.Expr:
        """Return a filled template of BigQuery SQL at the node's position."""
        ...

    def refusal(self, node: exp.Expr, message: str, hint: str | None = None) -> QueryRefused:
        """Return a refusal with the node's position."""
        ...


def arguments(
    translator: ArgumentTranslator, call: Call, minimum: int, maximum: int | None = None
) -> tuple[exp.Expr, ...]:
    """Return the arguments; refuse a number outside of `minimum` and `maximum`.

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


def arguments_before_zone(translator: ArgumentTranslator, call: Call, count: int) -> tuple[exp.Expr, ...]:
    """Return `count` arguments; a time zone may follow them, which must be UTC."""
    parts = arguments(translator, call, count, count + 1)
    if len(parts) > count:
        check_zone(translator, parts[count])
    return parts[:count]


def check_zone(translator: ArgumentTranslator, node: exp.Expr) -> None:
    """Refuse a time zone other than UTC."""
    if translator.constant_text(node, "A time zone").upper() not in ("UTC", "GMT", "ETC/UTC", "Z"):
        raise translator.refusal(
            node, "Time zones other than UTC are not supported.", "Leave the zone out, or write 'UTC'."
        )
