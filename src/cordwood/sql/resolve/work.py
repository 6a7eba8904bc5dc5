"""What one run of `resolve` knows and gathers while it walks a tree."""

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
    """A column that a query yields.

    An event's key may be empty, and so may be a name. `column` is how the tree spells it where another column has the name already.
    """

    name: str
    nature: Nature
    column: str | None = None


class Cte(msgspec.Struct):
    """A named sub-query in scope. `name` is how it is spelt in the tree made; `is_value` when its rows are values.

    `constants` are its columns when it is one row of values that reads nothing.
    """

    name: str
    outputs: list[Output]
    is_value: bool = False
    constants: dict[str, exp.Expr] | None = None


Queries = Callable[["Work", exp.Expr, "Names", Scope | None], list[Output]]


class Names(msgspec.Struct, frozen=True):
    """The named sub-queries in scope at some place; a shadowing one is a new Names."""

    ctes: Mapping[str, Cte] = msgspec.field(default_factory=dict)

    def with_cte(self, spelt: str, cte: Cte) -> "Names":
        return Names({**self.ctes, spelt.lower(): cte})


class Work(msgspec.Struct):
    """`streams` is None where a query may read streams by name, else only what `names` gives it can be read."""

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
    offered: tuple[str, ...] = ()
    streams: dict[str, None] = msgspec.field(default_factory=dict)
    spelt: set[str] = msgspec.field(default_factory=set)

    def unique(self, name: str) -> str:
        """A spelling nobody else has in this tree."""
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
