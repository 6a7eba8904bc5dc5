"""Followed queries: each row is made from one event, so that the query can run on events as they arrive.

A check refuses clauses that need several events. Then every read of a stream is restricted to a range of receive times.
Hidden columns with the position of each row's event are added to the answer: the event's receive time, its timestamp,
and a digest of its id. The hidden columns are added after redaction, so that visible columns do not change. A digest
replaces the id because the order of rows must not reveal ids.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryRefused, Span
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Parameter
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.diagnostics import span_of
from cordwood.sql.grouping import has_aggregate
from cordwood.sql.nodes import (
    add_condition,
    digest_call,
    outermost_select,
    parameter_node,
    referenced_cte,
    relations_of,
    typed_column,
)
from cordwood.sql.query_templates import sort_key
from cordwood.sql.stages import AdmittedTree, ResolvedQuery

# The parameters of the range of receive times: from FIRST_RECEIPT_TIME_PARAMETER to LAST_RECEIPT_TIME_PARAMETER. Of the
# events received exactly at FIRST_RECEIPT_TIME_PARAMETER, only those are read whose (timestamp, digest of the id) is
# greater than (AFTER_EVENT_TIME_PARAMETER, AFTER_EVENT_KEY_PARAMETER).
FIRST_RECEIPT_TIME_PARAMETER: Final = "cordwood_first_receipt"
LAST_RECEIPT_TIME_PARAMETER: Final = "cordwood_last_receipt"
AFTER_EVENT_TIME_PARAMETER: Final = "cordwood_after_time"
AFTER_EVENT_KEY_PARAMETER: Final = "cordwood_after_key"
RECEIPT_TIME_RANGE_PARAMETERS: Final = {
    name: Parameter(name, kind, required=True)
    for name, kind in (
        (FIRST_RECEIPT_TIME_PARAMETER, Kind.TIMESTAMP),
        (LAST_RECEIPT_TIME_PARAMETER, Kind.TIMESTAMP),
        (AFTER_EVENT_TIME_PARAMETER, Kind.TIMESTAMP),
        (AFTER_EVENT_KEY_PARAMETER, Kind.STRING),
    )
}
# The number of hidden columns, which are the last columns of the answer.
EVENT_POSITION_COLUMN_COUNT: Final = 3
_EVENT_POSITION_COLUMN_NAMES: Final = ("receipt of the event", "time of the event", "key of the event")
_EVENT_POSITION_COLUMN_TYPES: Final = (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPTZ, exp.DType.TEXT)

# Clauses that are refused because they combine several events, by their key in sqlglot's SELECT.
_REFUSED_CLAUSE_BY_ARGUMENT_KEY: Final = {
    "group": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "distinct": "DISTINCT",
    "windows": "WINDOW",
    "limit": "LIMIT",
    "offset": "OFFSET",
}
_PAGING_CLAUSE_BY_ARGUMENT_KEY: Final = {"order": "ORDER BY", "limit": "LIMIT", "offset": "OFFSET"}


def refuse_order_and_limit(admitted: AdmittedTree) -> None:
    """Raise QueryRefused if a caller's query orders or limits its rows."""
    for key, clause in _PAGING_CLAUSE_BY_ARGUMENT_KEY.items():
        node = admitted.tree.args.get(key)
        if node is not None:
            raise refused_clause_error(clause, span_of(node, admitted.query_text))


def rewrite_as_followed_query(resolved: ResolvedQuery) -> ResolvedQuery:
    """Restrict a query to a range of receive times, order it by receipt and add hidden columns; mutates the tree.

    ORDER BY and LIMIT of the outermost query are dropped, because in a saved query they only select a page. Raise
    QueryRefused if a row needs more than one event.
    """
    tree = resolved.tree
    for key in _PAGING_CLAUSE_BY_ARGUMENT_KEY:
        tree.set(key, None)
    used = {node.name.lower() for node in tree.find_all(exp.Identifier, exp.Var)}
    if not used.isdisjoint((*_EVENT_POSITION_COLUMN_NAMES, *RECEIPT_TIME_RANGE_PARAMETERS)):
        raise QueryRefused("A followed query cannot use the names of the columns and parameters that follow it.")
    _FollowedQueryRewriter(resolved.query_text).add_position_columns(tree)
    columns = len(outermost_select(tree).expressions)
    ordinals = range(columns - EVENT_POSITION_COLUMN_COUNT + 1, columns + 1)
    keys = [sort_key(exp.Literal.number(ordinal), is_descending=False) for ordinal in ordinals]
    tree.set("order", exp.Order(expressions=keys))
    return msgspec.structs.replace(resolved, is_followed_query=True)


class _FollowedQueryRewriter:
    """Rewriter that checks one tree and adds the hidden columns to it. It rewrites each CTE only once."""

    def __init__(self, text: str) -> None:
        self._query_text = text
        self._visited_query_by_id: dict[int, exp.Expr] = {}

    def add_position_columns(self, query: exp.Expr) -> None:
        """Add the hidden columns to a query; refuse a query whose rows are not each made from one event."""
        charge_nodes()
        if id(query) in self._visited_query_by_id:
            return
        self._visited_query_by_id[id(query)] = query
        with_ = query.args.get("with_")
        if with_ is not None and with_.args.get("recursive") and _reads_events(with_):
            self._raise_refused_clause(query, "WITH RECURSIVE")
        if isinstance(query, exp.Select):
            self._add_position_columns_to_select(query)
        elif isinstance(query, exp.Union) and not query.args.get("distinct"):
            self._refuse_clauses_combining_events(query)
            self.add_position_columns(query.this)
            self.add_position_columns(query.expression)
        elif isinstance(query, exp.Subquery):
            self._refuse_clauses_combining_events(query)
            self.add_position_columns(query.this)
        else:
            self._raise_refused_clause(
                query, "UNION DISTINCT" if isinstance(query, exp.Union) else type(query).__name__.upper()
            )

    def _add_position_columns_to_select(self, select: exp.Select) -> None:
        self._refuse_clauses_combining_events(select)
        if select.args.get("kind"):
            self._raise_refused_clause(select, f"SELECT AS {select.args['kind']}")
        source = self._find_event_relation(select)
        self._refuse_expressions_combining_events(select)
        for name, column in zip(
            _EVENT_POSITION_COLUMN_NAMES, self._position_columns_of_source(select, source), strict=True
        ):
            select.append("expressions", exp.Alias(this=column, alias=exp.to_identifier(name, quoted=True)))

    def _refuse_clauses_combining_events(self, query: exp.Expr) -> None:
        for key, clause in _REFUSED_CLAUSE_BY_ARGUMENT_KEY.items():
            node = query.args.get(key)
            if node:
                self._raise_refused_clause(node if isinstance(node, exp.Expr) else query, clause)
        query.set("order", None)

    def _find_event_relation(self, select: exp.Select) -> exp.Expr:
        """Return the only relation of the SELECT that reads events; refuse a SELECT without exactly one."""
        sources = [relation for relation in relations_of(select) if _reads_events(relation)]
        if not sources:
            self._raise_refused_clause(select, "a SELECT that reads no events")
        if len(sources) > 1:
            self._raise_refused_clause(sources[1], "a JOIN of events")
        if sources[0].args.get("pivots"):
            self._raise_refused_clause(sources[0], "PIVOT")
        self._check_joins(select)
        return sources[0]

    def _check_joins(self, select: exp.Select) -> None:
        for join in _all_joins(select):
            is_outer = join.side in ("RIGHT", "FULL") or (bool(join.side) and _reads_events(join.this))
            if is_outer or join.kind in ("SEMI", "ANTI") or join.method:
                self._raise_refused_clause(join, f"{join.side or join.kind or join.method} JOIN")

    def _refuse_expressions_combining_events(self, select: exp.Select) -> None:
        """Refuse aggregates, analytic functions, and sub-queries that read events."""
        for node in _select_where_and_join_expressions(select):
            if has_aggregate(node):
                self._raise_refused_clause(node, "an aggregate")
            for part in node.find_all(exp.Window, exp.Query):
                if isinstance(part, exp.Window) and part.parent_select is select:
                    self._raise_refused_clause(part, "an analytic function")
                if isinstance(part, exp.Query) and _reads_events(part):
                    self._raise_refused_clause(part, "a sub-query over events in an expression")

    def _position_columns_of_source(self, select: exp.Select, source: exp.Expr) -> list[exp.Expr]:
        """Return the columns of `source` with an event's position: receive time, timestamp, and digest of the id.

        They become the hidden columns, which are the last columns of the answer.
        """
        alias = source.alias_or_name
        if isinstance(source, exp.Table) and source.meta_get("stream") is not None:
            _restrict_to_receipt_time_range(select, alias)
            return _stream_position_columns(alias)
        cte = referenced_cte(source) if isinstance(source, exp.Table) else None
        self.add_position_columns(source.this if cte is None else cte.this)
        if cte is not None and cte.args["alias"].columns:
            self._raise_refused_clause(source, "WITH a list of columns")
        return [
            typed_column(name, alias, type_)
            for name, type_ in zip(_EVENT_POSITION_COLUMN_NAMES, _EVENT_POSITION_COLUMN_TYPES, strict=True)
        ]

    def _raise_refused_clause(self, node: exp.Expr, part: str) -> None:
        raise refused_clause_error(part, span_of(node, self._query_text))


def refused_clause_error(part: str, span: Span | None) -> QueryRefused:
    """Return the error for a followed query that has a clause which combines several events."""
    return QueryRefused(
        f"A query that is followed cannot have {part}: each of its rows is made from one event as it arrives.",
        hint="Leave it out, or run the query instead of following it.",
        span=span,
    )


def _select_where_and_join_expressions(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the expressions that the SELECT selects, its conditions in WHERE and ON, and the arrays that it unnests."""
    yield from select.expressions
    where = select.args.get("where")
    if where is not None:
        yield where.this
    for join in _all_joins(select):
        if join.args.get("on") is not None:
            yield join.args["on"]
        if isinstance(join.this, exp.Unnest):
            yield from join.this.expressions


def _all_joins(select: exp.Select) -> Iterator[exp.Join]:
    """Yield all joins of the FROM clause, including those in parentheses."""
    from_ = select.args.get("from_")
    pending = [*(select.args.get("joins") or ()), *((from_.this.args.get("joins") or ()) if from_ is not None else ())]
    while pending:
        join = pending.pop()
        yield join
        relation = join.this
        while isinstance(relation, exp.Expr):
            pending += relation.args.get("joins") or ()
            relation = relation.this if isinstance(relation, exp.Subquery) and not relation.alias else None


def _reads_events(node: exp.Expr) -> bool:
    """Return whether the node reads a stream, directly or through a CTE."""
    pending, seen = [node], set[int]()
    while pending:
        current = pending.pop()
        for table in current.find_all(exp.Table):
            charge_nodes()
            if table.meta_get("stream") is not None:
                return True
            cte = referenced_cte(table)
            if cte is not None and id(cte) not in seen:
                seen.add(id(cte))
                pending.append(cte.this)
    return False


def _stream_position_columns(alias: str) -> list[exp.Expr]:
    times = [typed_column(name, alias, exp.DType.TIMESTAMPTZ) for name in ("ingested_at", "timestamp")]
    return [*times, digest_call(typed_column("id", alias, exp.DType.TEXT))]


def _receipt_range_placeholder(name: str) -> exp.Expr:
    return parameter_node(name, exp.DType.TEXT if name == AFTER_EVENT_KEY_PARAMETER else exp.DType.TIMESTAMPTZ)


def _restrict_to_receipt_time_range(select: exp.Select, alias: str) -> None:
    """Restrict a SELECT that reads a stream to the range of receive times."""
    receipt, time, key = _stream_position_columns(alias)
    later_in_batch = _conjunction(
        _comparison(exp.EQ, copy_tree(time), _receipt_range_placeholder(AFTER_EVENT_TIME_PARAMETER)),
        _comparison(exp.GT, key, _receipt_range_placeholder(AFTER_EVENT_KEY_PARAMETER)),
    )
    is_after = _disjunction(
        _comparison(exp.GT, copy_tree(receipt), _receipt_range_placeholder(FIRST_RECEIPT_TIME_PARAMETER)),
        _comparison(exp.GT, time, _receipt_range_placeholder(AFTER_EVENT_TIME_PARAMETER)),
        exp.Paren(this=later_in_batch),
    )
    condition = _conjunction(
        _comparison(exp.GTE, copy_tree(receipt), _receipt_range_placeholder(FIRST_RECEIPT_TIME_PARAMETER)),
        _comparison(exp.LTE, receipt, _receipt_range_placeholder(LAST_RECEIPT_TIME_PARAMETER)),
        exp.Paren(this=is_after),
    )
    add_condition(select, condition)


def _comparison(operator: Callable[..., exp.Expr], left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return operator(this=left, expression=right)


def _conjunction(*conditions: exp.Expr) -> exp.Expr:
    return exp.and_(*conditions, copy=False, wrap=False)


def _disjunction(*conditions: exp.Expr) -> exp.Expr:
    return exp.or_(*conditions, copy=False, wrap=False)
