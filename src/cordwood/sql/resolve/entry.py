"""Entry points of name resolution: saved queries, sandbox queries, and stand-alone SQL."""

from collections.abc import Collection, Mapping

import msgspec
from sqlglot import exp

from cordwood.model.shape import Shape
from cordwood.sql.budget import copied
from cordwood.sql.draft import Printed
from cordwood.sql.program import Program
from cordwood.sql.records import Records
from cordwood.sql.resolve.ordering import settle_orders
from cordwood.sql.resolve.queries import read_cte, resolve_query
from cordwood.sql.resolve.tables import as_table, told_apart
from cordwood.sql.resolve.work import Cte, Names, Work
from cordwood.sql.stages import Admitted, Lowered, Resolved
from cordwood.sql.target import StreamTable, Target, table_of_its_name


class _SubQueries(msgspec.Struct):
    """The endpoint's sub-queries, resolved at their first reference; unreferenced ones cost nothing."""

    program: Program
    owner: Work
    read: dict[str, exp.Expr] = msgspec.field(default_factory=dict)
    known: dict[str, Cte] = msgspec.field(default_factory=dict)
    under_way: list[str] = msgspec.field(default_factory=list)
    endpoints: dict[str, Cte] = msgspec.field(default_factory=dict)

    def demand(self, name: str) -> Cte | None:
        lower = name.lower()
        if lower in self.known:
            _inline(self.read[self.known[lower].name])
            return self.known[lower]
        saved = self.program.sub_queries.get(lower)
        if saved is None or lower in self.under_way:
            return None
        self.under_way.append(lower)
        copy = copied(saved)
        cte = read_cte(self.owner, copy, Names(), None, recursive=self.program.is_recursive)
        self.under_way.pop()
        self.read[cte.name] = copy
        self.known[lower] = cte
        return cte

    def demand_endpoint(self, name: str) -> Cte | None:
        """Resolve an endpoint that the query reads, in a scope of its own, to a sub-query before all that read it."""
        if name in self.endpoints:
            return self.endpoints[name]
        included = self.program.included.get(name)
        if included is None:
            return None
        inner, saved = _owner_within(self.owner, included)
        tree = copied(included.final)
        is_value = as_table(tree)
        outputs = told_apart(tree, resolve_query(inner, tree, Names(), None))
        _prepend(tree, saved)
        unique = self.owner.unique(name)
        alias = exp.TableAlias(this=exp.to_identifier(unique, quoted=True))
        self.read[unique] = exp.CTE(this=tree, alias=alias)
        self.endpoints[name] = Cte(unique, outputs, is_value=is_value)
        return self.endpoints[name]

    def names(self) -> tuple[str, ...]:
        """Return the names of those that were referenced, in the order of the endpoint."""
        return tuple(cte.alias for lower, cte in self.program.sub_queries.items() if lower in self.known)


def _inline(cte: exp.Expr) -> None:
    """Inline a filter with several readers, because running it with each reader's predicates is cheaper."""
    query = cte.this
    if isinstance(query, exp.Select) and not any(query.args.get(key) for key in ("group", "distinct", "limit")):
        cte.set("materialized", False)  # noqa: FBT003 - an argument of the node


def resolve_saved(program: Program, target: Target, shapes: Mapping[str, Shape]) -> Resolved:
    owner, saved = _owner(program, target, shapes)
    tree = copied(program.final)
    as_table(tree)
    resolve_query(owner, tree, Names(), None)
    return _resolved(owner, saved, tree)


def resolve_visiting(program: Program, admitted: Admitted, target: Target, shapes: Mapping[str, Shape]) -> Resolved:
    owner, saved = _owner(program, target, shapes)
    visitor = msgspec.structs.replace(owner, text=admitted.text, may_read_streams=False)
    as_table(admitted.tree)
    resolve_query(visitor, admitted.tree, Names(), None)
    return _resolved(visitor, saved, admitted.tree)


def resolve_alone(admitted: Admitted, target: Target) -> Resolved:
    work = Work(admitted.text, target, Records({}), {}, resolve_query, is_timeless=True)
    as_table(admitted.tree)
    resolve_query(work, admitted.tree, Names(), None)
    settle_orders(admitted.tree)
    return Resolved(admitted.tree, admitted.text)


def try_all(program: Program, streams: Collection[str] | None) -> None:
    """Resolve the whole endpoint with empty shapes; an error here would be raised for any request."""
    owner, saved = _owner(program, _Outline(), {})
    owner.known_streams = frozenset(streams) if streams is not None else None
    for name in program.sub_queries:
        saved.demand(name)
    resolve_query(owner, copied(program.final), Names(), None)


def _owner(program: Program, target: Target, shapes: Mapping[str, Shape]) -> tuple[Work, _SubQueries]:
    owner = Work(
        program.endpoint.sql,
        target,
        Records(shapes),
        program.parameters,
        resolve_query,
        may_read_streams=True,
        offered=program.names,
    )
    return owner, _attached(owner, program)


def _owner_within(owner: Work, program: Program) -> tuple[Work, _SubQueries]:
    """Return the state that resolves an included endpoint: its own text, names and parameters, and shared columns."""
    inner = msgspec.structs.replace(
        owner, text=program.endpoint.sql, parameters=program.parameters, offered=program.names
    )
    return inner, _attached(inner, program)


def _attached(owner: Work, program: Program) -> _SubQueries:
    saved = _SubQueries(program, owner)
    owner.demand = saved.demand
    owner.demand_endpoint = saved.demand_endpoint
    return saved


def _prepend(tree: exp.Expr, saved: _SubQueries) -> None:
    """Add the resolved sub-queries of the endpoint before those of the query."""
    if not saved.read:
        return
    own = tree.args.get("with_")
    ctes = [*saved.read.values(), *(own.expressions if own is not None else [])]
    recursive = saved.program.is_recursive or bool(own is not None and own.args.get("recursive"))
    tree.set("with_", exp.With(expressions=ctes, recursive=recursive))


def _resolved(work: Work, saved: _SubQueries, tree: exp.Expr) -> Resolved:
    """Return the resolved query, with the sub-queries that it references before those of its own."""
    _prepend(tree, saved)
    settle_orders(tree)
    return Resolved(
        tree,
        work.text,
        sub_queries=saved.names(),
        unseen_paths=tuple(
            path if meant is None else f"{path}; did you mean {meant}?" for path, meant in work.records.unseen.items()
        ),
        streams=tuple(work.streams),
        facts=work.records.facts,
    )


class _Outline:
    """A target for checks in which only names matter."""

    name = "outline"

    def stream_table(self, stream: str) -> StreamTable:
        return table_of_its_name(stream)

    def lower(self, resolved: Resolved) -> Lowered:
        return Lowered(resolved.tree, resolved)

    def print(self, tree: exp.Expr) -> Printed:
        return Printed((tree.sql("bigquery"),))
