"""Entry points of name resolution: saved queries, sandbox queries, and stand-alone SQL."""

from collections.abc import Collection, Mapping

import msgspec
from sqlglot import exp

from cordwood.model.shape import Shape
from cordwood.sql.budget import copied
from cordwood.sql.program import Program
from cordwood.sql.record_shapes import RecordShapes
from cordwood.sql.resolve.ordering import remove_inner_orders
from cordwood.sql.resolve.queries import resolve_cte, resolve_query
from cordwood.sql.resolve.resolution import Cte, CteScope, Resolution
from cordwood.sql.resolve.tables import drop_select_kind, make_names_unique
from cordwood.sql.stages import Admitted, Lowered, Resolved, StreamTable, Target, table_named_as_stream
from cordwood.sql.tree_printer import Printed


class _SubQueries(msgspec.Struct):
    """The endpoint's sub-queries, resolved at their first reference; unreferenced sub-queries cost nothing."""

    program: Program
    resolution: Resolution
    resolved: dict[str, exp.Expr] = msgspec.field(default_factory=dict)
    ctes: dict[str, Cte] = msgspec.field(default_factory=dict)
    in_progress: list[str] = msgspec.field(default_factory=list)
    endpoints: dict[str, Cte] = msgspec.field(default_factory=dict)

    def resolve(self, name: str) -> Cte | None:
        """Resolve a sub-query; None if there is none of this name, or it is later in WITH than one that reads it."""
        lower = name.lower()
        if self._is_later(lower):
            return None
        if lower in self.ctes:
            _mark_inline(self.resolved[self.ctes[lower].name])
            return self.ctes[lower]
        sub_query = self.program.sub_queries.get(lower)
        if sub_query is None or lower in self.in_progress:
            return None
        self.in_progress.append(lower)
        copy = copied(sub_query)
        # Errors tell by the WITH around a sub-query why a name in it cannot be read.
        exp.With(expressions=[copy], recursive=self.program.is_recursive)
        cte = resolve_cte(self.resolution, copy, CteScope(), None, recursive=self.program.is_recursive)
        self.in_progress.pop()
        self.resolved[cte.name] = copy
        self.ctes[lower] = cte
        return cte

    def _is_later(self, lower: str) -> bool:
        """Return whether the sub-query is not yet defined for the one that is resolved now; RECURSIVE defines all."""
        if self.program.is_recursive or not self.in_progress or lower not in self.program.sub_queries:
            return False
        names = list(self.program.sub_queries)
        return names.index(lower) >= names.index(self.in_progress[-1])

    def resolve_endpoint(self, name: str) -> Cte | None:
        """Resolve an endpoint that the query reads, in a scope of its own, to a CTE placed before its readers."""
        if name in self.endpoints:
            return self.endpoints[name]
        included = self.program.included.get(name)
        if included is None:
            return None
        inner, sub_queries = _included_resolution(self.resolution, included)
        tree = copied(included.final)
        is_value = drop_select_kind(tree)
        outputs = make_names_unique(tree, resolve_query(inner, tree, CteScope(), None))
        _prepend_sub_queries(tree, sub_queries)
        unique_name = self.resolution.unique_name(name)
        alias = exp.TableAlias(this=exp.to_identifier(unique_name, quoted=True))
        self.resolved[unique_name] = exp.CTE(this=tree, alias=alias)
        self.endpoints[name] = Cte(unique_name, outputs, is_value=is_value)
        return self.endpoints[name]

    def sub_query_names(self) -> tuple[str, ...]:
        """Return the names of the referenced sub-queries, in the order of the endpoint's text."""
        return tuple(cte.alias for lower, cte in self.program.sub_queries.items() if lower in self.ctes)


def _mark_inline(cte: exp.Expr) -> None:
    """Mark a filter with several readers to be inlined, because running it with each reader's predicates is cheaper."""
    query = cte.this
    if isinstance(query, exp.Select) and not any(query.args.get(key) for key in ("group", "distinct", "limit")):
        cte.set("materialized", False)  # noqa: FBT003 - an argument of the node


def resolve_saved(program: Program, target: Target, shapes: Mapping[str, Shape]) -> Resolved:
    resolution, sub_queries = _start_resolution(program, target, shapes)
    tree = copied(program.final)
    drop_select_kind(tree)
    resolve_query(resolution, tree, CteScope(), None)
    return _finish_resolution(resolution, sub_queries, tree)


def resolve_sandbox(program: Program, admitted: Admitted, target: Target, shapes: Mapping[str, Shape]) -> Resolved:
    resolution, sub_queries = _start_resolution(program, target, shapes)
    sandbox = msgspec.structs.replace(resolution, text=admitted.text, may_read_streams=False)
    drop_select_kind(admitted.tree)
    resolve_query(sandbox, admitted.tree, CteScope(), None)
    return _finish_resolution(sandbox, sub_queries, admitted.tree)


def resolve_standalone(admitted: Admitted, target: Target) -> Resolved:
    resolution = Resolution(admitted.text, target, RecordShapes({}), {}, resolve_query, keeps_time_functions=True)
    drop_select_kind(admitted.tree)
    resolve_query(resolution, admitted.tree, CteScope(), None)
    remove_inner_orders(admitted.tree)
    return Resolved(admitted.tree, admitted.text)


def check_endpoint(program: Program, streams: Collection[str] | None) -> None:
    """Resolve the whole endpoint with empty shapes; an error found here would be raised for every request."""
    resolution, sub_queries = _start_resolution(program, _OutlineTarget(), {})
    resolution.known_streams = frozenset(streams) if streams is not None else None
    for name in program.sub_queries:
        sub_queries.resolve(name)
    resolve_query(resolution, copied(program.final), CteScope(), None)


def _start_resolution(program: Program, target: Target, shapes: Mapping[str, Shape]) -> tuple[Resolution, _SubQueries]:
    resolution = Resolution(
        program.endpoint.sql,
        target,
        RecordShapes(shapes),
        program.parameters,
        resolve_query,
        may_read_streams=True,
        sub_query_names=program.sub_query_names,
    )
    return resolution, _attach_sub_queries(resolution, program)


def _included_resolution(resolution: Resolution, program: Program) -> tuple[Resolution, _SubQueries]:
    """Return the state that resolves an included endpoint: its own text, names and parameters, and shared columns."""
    inner = msgspec.structs.replace(
        resolution, text=program.endpoint.sql, parameters=program.parameters, sub_query_names=program.sub_query_names
    )
    return inner, _attach_sub_queries(inner, program)


def _attach_sub_queries(resolution: Resolution, program: Program) -> _SubQueries:
    """Connect the resolution with the program's sub-queries and with the endpoints that it reads."""
    sub_queries = _SubQueries(program, resolution)
    resolution.find_sub_query = sub_queries.resolve
    resolution.find_endpoint = sub_queries.resolve_endpoint
    return sub_queries


def _prepend_sub_queries(tree: exp.Expr, sub_queries: _SubQueries) -> None:
    """Add the endpoint's resolved sub-queries before the query's own."""
    if not sub_queries.resolved:
        return
    own_with = tree.args.get("with_")
    ctes = [*sub_queries.resolved.values(), *(own_with.expressions if own_with is not None else [])]
    recursive = sub_queries.program.is_recursive or bool(own_with is not None and own_with.args.get("recursive"))
    tree.set("with_", exp.With(expressions=ctes, recursive=recursive))


def _finish_resolution(resolution: Resolution, sub_queries: _SubQueries, tree: exp.Expr) -> Resolved:
    """Return the resolved query. Its WITH list begins with the sub-queries of the endpoint that it references."""
    _prepend_sub_queries(tree, sub_queries)
    remove_inner_orders(tree)
    return Resolved(
        tree,
        resolution.text,
        sub_queries=sub_queries.sub_query_names(),
        unseen_paths=tuple(
            path if suggestion is None else f"{path}; did you mean {suggestion}?"
            for path, suggestion in resolution.records.unseen_paths.items()
        ),
        streams=tuple(resolution.streams),
        shape_lookups=resolution.records.shape_lookups,
    )


class _OutlineTarget:
    """A target for checks in which only names matter: it prints BigQuery SQL and lowers nothing."""

    name = "outline"

    def stream_table(self, stream: str) -> StreamTable:
        return table_named_as_stream(stream)

    def lower(self, resolved: Resolved) -> Lowered:
        return Lowered(resolved.tree, resolved)

    def print(self, tree: exp.Expr) -> Printed:
        return Printed((tree.sql("bigquery"),))
