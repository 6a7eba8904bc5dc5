"""The state of one run of name resolution."""

from collections.abc import Callable, Mapping

import msgspec
from sqlglot import exp

from cordwood.errors import QueryRefused, QueryUnsupported, Span
from cordwood.model.endpoint import Parameter
from cordwood.sql.diagnostics import span_of
from cordwood.sql.record_shapes import RecordShapes
from cordwood.sql.scope import Lineage, Scope
from cordwood.sql.stages import Target


class OutputColumn(msgspec.Struct, frozen=True):
    """An output column of a query.

    A name may be empty, as a key of an event may be. `column` is its name within the tree, if another column has the
    same name.
    """

    name: str
    lineage: Lineage
    column: str | None = None


class Cte(msgspec.Struct):
    """A named sub-query in scope.

    `name` is its name in the resolved tree; `is_value` is set if its rows are values. `constants` are its columns if it
    is one row of constants.
    """

    name: str
    outputs: list[OutputColumn]
    is_value: bool = False
    constants: dict[str, exp.Expr] | None = None


QueryResolver = Callable[["Resolution", exp.Expr, "CteScope", Scope | None], list[OutputColumn]]


class CteScope(msgspec.Struct, frozen=True):
    """The named sub-queries in scope; an inner query that redefines one has a CteScope of its own."""

    by_name: Mapping[str, Cte] = msgspec.field(default_factory=dict)

    def with_cte(self, name: str, cte: Cte) -> "CteScope":
        return CteScope({**self.by_name, name.lower(): cte})


class Resolution(msgspec.Struct):
    """The state of one resolution.

    With `may_read_streams`, tables may be streams: those in `known_streams`, or any stream if that is None. Otherwise a
    query reads only the sub-queries in its CteScope. `find_sub_query` resolves a sub-query of the endpoint, and
    `find_endpoint` an endpoint that the query reads by name.
    """

    text: str
    target: Target
    records: RecordShapes
    parameters: Mapping[str, Parameter]
    resolve_query: QueryResolver
    may_read_streams: bool = False
    known_streams: frozenset[str] | None = None
    file: str | None = None
    first_line: int = 1
    keeps_time_functions: bool = False
    find_sub_query: Callable[[str], Cte | None] = lambda _name: None
    find_endpoint: Callable[[str], Cte | None] = lambda _name: None
    sub_query_names: tuple[str, ...] = ()
    streams: dict[str, None] = msgspec.field(default_factory=dict)
    used_names: set[str] = msgspec.field(default_factory=set)

    def unique_name(self, name: str) -> str:
        """Return a name that is unique in this tree."""
        candidate, count = name, 1
        while candidate.lower() in self.used_names:
            count += 1
            candidate = f"{name}_{count}"
        self.used_names.add(candidate.lower())
        return candidate

    def span(self, node: exp.Expr) -> Span | None:
        return span_of(node, self.text)

    def refuse(self, node: exp.Expr, message: str, hint: str | None = None) -> QueryRefused:
        return QueryRefused(message, hint=hint, span=self.span(node))

    def unsupported(self, node: exp.Expr, subject: str, hint: str | None = None) -> QueryUnsupported:
        return QueryUnsupported(f"{subject} is not supported.", hint=hint, span=self.span(node))
