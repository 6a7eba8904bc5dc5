"""The state of one run of `resolve`."""

from collections.abc import Callable, Mapping

import msgspec
from sqlglot import exp

from cordwood.errors import QueryRefused, QueryUnsupported, Span
from cordwood.model.parameter import Parameter
from cordwood.sql.places import span_of
from cordwood.sql.records import Records
from cordwood.sql.scope import Nature, Scope
from cordwood.sql.target import Target


class Output(msgspec.Struct, frozen=True):
    """An output column of a query.

    A name may be empty, as a key of an event may. `column` is its name within the tree if another column has the same
    name.
    """

    name: str
    nature: Nature
    column: str | None = None


class Cte(msgspec.Struct):
    """A named sub-query in scope. `name` is its name in the resolved tree; `is_value` if its rows are values.

    `constants` are its columns if it is one row of values that reads nothing.
    """

    name: str
    outputs: list[Output]
    is_value: bool = False
    constants: dict[str, exp.Expr] | None = None


Queries = Callable[["Work", exp.Expr, "Names", Scope | None], list[Output]]


class Names(msgspec.Struct, frozen=True):
    """The named sub-queries in scope; a scope that shadows one has Names of its own."""

    ctes: Mapping[str, Cte] = msgspec.field(default_factory=dict)

    def with_cte(self, spelt: str, cte: Cte) -> "Names":
        return Names({**self.ctes, spelt.lower(): cte})


class Work(msgspec.Struct):
    """The state of one resolution.

    With `may_read_streams`, tables may be streams: those in `known_streams`, or any if that is None. Otherwise a query
    reads only the sub-queries in its Names. `demand` resolves a sub-query of the endpoint, and `demand_endpoint` an
    endpoint that it reads by name.
    """

    text: str
    target: Target
    records: Records
    parameters: Mapping[str, Parameter]
    query: Queries
    may_read_streams: bool = False
    known_streams: frozenset[str] | None = None
    file: str | None = None
    first_line: int = 1
    is_timeless: bool = False
    demand: Callable[[str], Cte | None] = lambda _name: None
    demand_endpoint: Callable[[str], Cte | None] = lambda _name: None
    offered: tuple[str, ...] = ()
    streams: dict[str, None] = msgspec.field(default_factory=dict)
    spelt: set[str] = msgspec.field(default_factory=set)

    def unique(self, name: str) -> str:
        """Return a name that is unique in this tree."""
        candidate, count = name, 1
        while candidate.lower() in self.spelt:
            count += 1
            candidate = f"{name}_{count}"
        self.spelt.add(candidate.lower())
        return candidate

    def span(self, node: exp.Expr) -> Span | None:
        return span_of(node, self.text)

    def refuse(self, node: exp.Expr, message: str, hint: str | None = None) -> QueryRefused:
        return QueryRefused(message, hint=hint, span=self.span(node))

    def unsupported(self, node: exp.Expr, what: str, hint: str | None = None) -> QueryUnsupported:
        return QueryUnsupported(f"{what} is not supported.", hint=hint, span=self.span(node))
