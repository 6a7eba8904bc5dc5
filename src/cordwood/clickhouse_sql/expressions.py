"""The interface of the translator to the translation of functions: values of arguments, and errors with positions."""

from collections.abc import Mapping
from typing import Protocol

from sqlglot import exp

from cordwood.clickhouse_sql.scope import Row
from cordwood.clickhouse_sql.values import Value
from cordwood.errors import QueryRefused, Span
from cordwood.model.endpoint import Parameter


class Expressions(Protocol):
    """Translation of arguments to values. A wrong type is refused at the argument's position."""

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
        """Return the value as a number; refuse others at the node's position."""
        ...

    def array(self, node: exp.Expr) -> Value: ...

    def condition_value(self, node: exp.Expr) -> Value: ...

    def filter(self, node: exp.Expr) -> exp.Expr:
        """Return a condition of which NULL has the same effect as false."""
        ...

    def constant_text(self, node: exp.Expr, subject: str) -> str: ...

    def constant_number(self, node: exp.Expr, subject: str) -> float: ...

    def fill(self, node: exp.Expr, template: str, **parts: exp.Expr) -> exp.Expr:
        """Return a filled template of BigQuery SQL at the node's position."""
        ...

    def refusal(self, node: exp.Expr, message: str, hint: str | None = None) -> QueryRefused:
        """Return a refusal at the node's position."""
        ...
