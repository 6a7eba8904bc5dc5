"""Translation of queries to the tree of the equivalent BigQuery query."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.aliases import Spelled, canonical, has_aggregate, spell_out
from cordwood.clickhouse_sql.calls import Call
from cordwood.clickhouse_sql.comparisons import as_number
from cordwood.clickhouse_sql.expressions import Expressions
from cordwood.clickhouse_sql.functions import FUNCTIONS
from cordwood.clickhouse_sql.functions.aggregates import aggregate
from cordwood.clickhouse_sql.scope import (
    ELEMENT,
    LOGS,
    Branch,
    Filtered,
    Joined,
    Need,
    QueryBranch,
    Row,
    Union,
    column,
)
from cordwood.clickhouse_sql.template import fill
from cordwood.clickhouse_sql.translate import Condition, Translator, whole_map
from cordwood.clickhouse_sql.values import STRING, Value, common
from cordwood.errors import QueryRefused, QueryUnsupported, UnknownName
from cordwood.model.parameter import Parameter
from cordwood.sql.budget import copied, spend
from cordwood.sql.nodes import internal
from cordwood.sql.positions import span_of


class _Named(msgspec.Struct, frozen=True):
    """A query of WITH, and the names that it can reference: those before it.

    `is_value` for a named value, as in `WITH 5 AS five`.
    """

    query: exp.Expr
    names: "_Names"
    is_value: bool = False


_IN_FROM: Final = "Write it in FROM, as in SELECT … FROM (SELECT …), or send two queries."
# BigQuery has OFFSET only after LIMIT.
_NO_LIMIT: Final = 2**62
_Names = Mapping[str, _Named]


class Built(msgspec.Struct, frozen=True):
    """A translated query: its tree, and its columns with their types."""

    tree: exp.Expr
    columns: tuple[tuple[str, Value], ...]


class Builder(msgspec.Struct):
    """The translator of a whole query.

    `logs` returns new branches of the table for each query that reads it; the answer has at most `max_rows` rows.
    """

    text: str
    logs: Callable[[], Sequence[Branch]]
    parameters: Mapping[str, Parameter]
    max_rows: int

    def query(self, node: exp.Expr, names: _Names | None = None, *, is_outermost: bool) -> Built:
        spend()
        names = self._with(node, names or {})
        if isinstance(node, exp.Subquery):
            return self.query(node.this, names, is_outermost=is_outermost)
        if isinstance(node, exp.Union):
            return self._union(node, names, is_outermost=is_outermost)
        if not isinstance(node, exp.Select):
            raise self._refused(node, "Only a SELECT can be sent.")
        return _SelectBuilder(self, names, is_outermost).build(node)

    def _with(self, node: exp.Expr, names: _Names) -> _Names:
        with_ = node.args.get("with_")
        known = dict(names)
        for cte in with_.expressions if with_ is not None else ():
            is_value = bool(cte.args.get("scalar"))
            if is_value is isinstance(cte.this, exp.Query):
                raise self._refused(cte, "A query cannot stand in an expression.", _IN_FROM)
            known = {**known, cte.alias: _Named(cte.this, known, is_value)}
        return known

    def _union(self, node: exp.Union, names: _Names, *, is_outermost: bool) -> Built:
        """Translate a UNION ALL; long chains nest on the left, so these are walked without recursion."""
        parts: list[exp.Expr] = []
        left: exp.Expr = node
        while isinstance(left, exp.Union):
            if left.args.get("distinct") is not False:
                raise self._refused(left, "UNION is refused.", "Write UNION ALL.")
            parts.append(left.expression)
            left = left.this
        parts.append(left)
        built = [self.query(part, names, is_outermost=is_outermost) for part in reversed(parts)]
        self._check_columns(node, built)
        tree = _bracketed(built[0].tree)
        for one in built[1:]:
            tree = exp.Union(this=tree, expression=_bracketed(one.tree), distinct=False)
        return Built(tree, built[0].columns)

    def _check_columns(self, node: exp.Expr, built: Sequence[Built]) -> None:
        first = built[0].columns
        for one in built[1:]:
            if len(one.columns) != len(first):
                message = f"The branches of UNION ALL have {len(first)} and {len(one.columns)} columns."
                raise self._refused(node, message, "Select as many in each.")
            for (name, left), (_, right) in zip(first, one.columns, strict=True):
                if common(left.type, right.type) is None:
                    message = f'The column "{name[:40]}" is a {left.type} in one branch and a {right.type} in another.'
                    raise self._refused(node, message, "Convert one of them, as in toString(…).")

    def branches(self, select: exp.Expr, names: _Names) -> tuple[Sequence[Branch], frozenset[str]]:
        """Return the branches of FROM, and the names that may qualify its columns."""
        from_ = select.args.get("from_")
        if from_ is None:
            return [QueryBranch(_one_row(), {})], frozenset()
        source = from_.this
        if isinstance(source, exp.Subquery):
            return [self._query_branch(source.this, names)], frozenset({source.alias})
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            raise self._refused(source, "Table functions are refused.", "Read FROM logs.")
        spelled = frozenset({source.name, source.alias or source.name})
        if source.name in names and not names[source.name].is_value:
            named = names[source.name]
            return [self._query_branch(copied(named.query), named.names)], spelled
        if source.name != LOGS:
            raise QueryRefused(
                f'"{source.name[:60]}" cannot be read here.',
                hint="There is one table: logs. Write WHERE source = 'edge_logs' for the events of one source.",
                span=span_of(source, self.text),
            )
        return self.logs(), spelled

    def _query_branch(self, node: exp.Expr, names: _Names) -> Branch:
        built = self.query(node, names, is_outermost=False)
        columns: dict[str, Value] = {}
        for name, value in built.columns:
            if name in columns:
                raise self._refused(node, f'Two columns are called "{name[:60]}".', "Give one of them an alias.")
            columns[name] = msgspec.structs.replace(value, node=column(name), default=None)
        return QueryBranch(built.tree, columns)

    def _refused(self, node: exp.Expr, message: str, hint: str | None = None) -> QueryRefused:
        return QueryRefused(message, hint=hint, span=span_of(node, self.text))


def _bracketed(tree: exp.Expr) -> exp.Expr:
    has_rest = any(tree.args.get(key) for key in ("order", "limit", "offset"))
    return exp.Subquery(this=tree) if has_rest else tree


def _one_row() -> exp.Expr:
    return exp.Select(expressions=[exp.Alias(this=exp.Literal.number(1), alias=exp.to_identifier("c0", quoted=True))])


class _Groups(Translator, kw_only=True):
    """The translator of expressions over groups: their keys, and aggregates of the columns of `rows`."""

    rows: Translator
    keys: Mapping[str, Need]

    def value(self, node: exp.Expr) -> Value:
        key = self._key(node)
        if key is not None:
            return key
        try:
            return super().value(node)
        except QueryUnsupported as fault:
            if fault.span is not None:
                raise
            raise QueryUnsupported(fault.message, hint=fault.hint, span=self.span(node)) from fault

    def condition(self, node: exp.Expr) -> Condition:
        key = self._key(node)
        if key is None:
            return super().condition(node)
        return Condition(Translator.truth(self, node).plain())

    def _key(self, node: exp.Expr) -> Value | None:
        if not self.keys or isinstance(node.unnest(), exp.Literal):
            return None
        need = self.keys.get(canonical(node))
        return None if need is None else self.rows.row.value(need)

    def call(self, call: Call) -> Value:
        return aggregate(self.rows, call) if call.is_aggregate else super().call(call)


class _NoRow:
    """The row of a grouped query, in which only keys and aggregates are visible."""

    has_attributes = True

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, need: Need) -> Value | None:
        what = f"log_attributes['{need.name}']" if need.kind == "attribute" else need.name
        raise QueryUnsupported(
            f"{what[:80]} is neither aggregated nor in GROUP BY.", hint="Add it to GROUP BY, or write any(…) around it."
        )


class _SelectBuilder(msgspec.Struct):
    """The translator of one SELECT."""

    builder: Builder
    names: _Names
    is_outermost: bool
    expressions: dict[str, exp.Expr] = {}

    def build(self, select: exp.Expr) -> Built:
        branches, tables = self.builder.branches(select, self.names)
        self._check_qualifiers(select, tables)
        values = {name: named.query for name, named in self.names.items() if named.is_value}
        spelled = spell_out(select, self.builder.text, values)
        filtered, rest = self._pruned(branches, spelled)
        arrays = self._arrays(spelled)
        if arrays:
            joined = self._joined(filtered, arrays)
            condition = self._all(joined, rest)
            filtered = [Filtered(joined, None if condition.constant is True else condition.node)]
        if self._is_aggregate(spelled):
            return self._aggregated(spelled, filtered)
        return self._page(spelled, filtered)

    def _check_qualifiers(self, select: exp.Expr, tables: frozenset[str]) -> None:
        for node in select.walk(prune=lambda node: isinstance(node, exp.Query) and node is not select):
            if isinstance(node, exp.Column) and node.table and node.table not in tables:
                hint = "Write log_attributes['a.b'] for a field of the event."
                span = span_of(node, self.builder.text)
                raise UnknownName(f'There is no table "{node.table[:60]}" here.', hint=hint, span=span)

    def _translator(self, row: Row) -> Translator:
        return Translator(self.builder.text, row, FUNCTIONS, self.builder.parameters)

    def _evaluate(self, row: Row, name: str) -> Value:
        return self._translator(row).plain(self.expressions[name])

    def _all(self, row: Row, conjuncts: Sequence[exp.Expr]) -> Condition:
        tree = conjuncts[0] if conjuncts else exp.Boolean(this=True)
        for part in conjuncts[1:]:
            tree = exp.And(this=tree, expression=part)
        return self._translator(row).condition(tree)

    def _pruned(self, branches: Sequence[Branch], spelled: Spelled) -> tuple[list[Filtered], list[exp.Expr]]:
        """Return the branches that the conditions do not exclude, and the conditions on elements of arrays."""
        rest = [part for part in spelled.where if _has_array_join(part)]
        own = [part for part in spelled.where if not _has_array_join(part)]
        found = [(branch, self._all(branch, own)) for branch in branches]
        left = [one for one in found if one[1].constant is not False] or found[:1]
        filtered = [Filtered(branch, None if where.constant is True else where.node) for branch, where in left]
        return filtered, rest

    def _arrays(self, spelled: Spelled) -> list[exp.Expr]:
        """Return the distinct arrays of arrayJoin, and store the number of its array on each call."""
        found: dict[str, exp.Expr] = {}
        for part in _parts(spelled):
            for node in part.walk():
                if not _is_array_join(node):
                    continue
                if _has_array_join(node.this):
                    raise QueryUnsupported(
                        "arrayJoin within arrayJoin is not supported.", span=span_of(node, self.builder.text)
                    )
                name = canonical(node.this)
                found.setdefault(name, node.this)
                node.meta[ELEMENT] = list(found).index(name)
        return list(found.values())

    def _joined(self, filtered: Sequence[Filtered], arrays: Sequence[exp.Expr]) -> Joined:
        union = Union(filtered, self._evaluate)
        inner = self._translator(union)
        return Joined(union, [inner.array(array) for array in arrays])

    def _is_aggregate(self, spelled: Spelled) -> bool:
        if spelled.is_grouped or spelled.is_distinct or spelled.having is not None:
            return True
        return any(map(has_aggregate, _parts(spelled)))

    def _page(self, spelled: Spelled, filtered: list[Filtered]) -> Built:
        """Translate a query without aggregation. Several branches are limited individually before their union."""
        if len(filtered) == 1:
            return self._selected(spelled, self._translator(filtered[0].branch), filtered[0])
        bound = self._bound(spelled)
        union = Union(filtered, self._evaluate, limit=bound)
        if bound is not None:
            for one in filtered:
                one.order = self._order(spelled, self._translator(one.branch))
        return self._selected(spelled, self._translator(union), Filtered(union))

    def _bound(self, spelled: Spelled) -> int | None:
        """Return the number of rows of each branch that suffice for the answer; None for all."""
        if spelled.limit is None and not self.is_outermost:
            return None
        most = self.builder.max_rows + 1
        limit = most if spelled.limit is None else spelled.limit
        return (min(limit, most) if self.is_outermost else limit) + spelled.offset

    def _selected(self, spelled: Spelled, translator: Translator, filtered: Filtered) -> Built:
        columns = [(item.name, self._shown(translator, item.node)) for item in spelled.items]
        order = self._order(spelled, translator)
        return self._finished(spelled, columns, filtered, order)

    def _aggregated(self, spelled: Spelled, filtered: list[Filtered]) -> Built:
        union = Union(filtered, self._evaluate)
        rows = self._translator(union)
        written = [item.node for item in spelled.items] if self._groups_items(spelled) else list(spelled.keys)
        keys: dict[str, Need] = {}
        for key in written:
            if has_aggregate(key):
                raise QueryRefused("An aggregate cannot be a key.", span=span_of(key, self.builder.text))
            name = canonical(key)
            self.expressions[name] = key
            keys[name] = Need("expression", name)
        grouping = [self._key_node(union, need) for need in keys.values()]
        text = self.builder.text
        groups = _Groups(text, _NoRow(text), FUNCTIONS, self.builder.parameters, rows=rows, keys=keys)
        columns = [(item.name, self._shown(groups, item.node)) for item in spelled.items]
        order = self._order(spelled, groups)
        having = groups.condition(spelled.having) if spelled.having is not None else None
        group = exp.Group(expressions=grouping) if grouping else None
        return self._finished(spelled, columns, Filtered(union), order, group=group, having=having)

    def _groups_items(self, spelled: Spelled) -> bool:
        """Return whether DISTINCT is translated to a grouping by all columns; refuse it with aggregates."""
        if not spelled.is_distinct:
            return False
        if spelled.is_grouped or any(has_aggregate(item.node) for item in spelled.items):
            raise QueryUnsupported("DISTINCT beside aggregates is not supported.")
        return True

    def _key_node(self, union: Union, need: Need) -> exp.Expr:
        value = union.value(need)
        if value is None or value.type.name in ("Map", "Interval"):
            raise QueryUnsupported(f"Rows cannot be grouped by {need.name[:60]}.")
        return value.node

    def _order(self, spelled: Spelled, translator: Translator) -> exp.Expr | None:
        orders: list[exp.Expr] = []
        for one in spelled.orders:
            value = translator.plain(one.node)
            if value.is_constant:
                continue
            if value.type.name in ("Map", "Interval"):
                raise translator.refused(one.node, f"Rows cannot be ordered by a {value.type}.")
            is_first = one.nulls_first if value.type.nullable else not one.is_descending
            node = value.node
            if value.type.name == "Float64":
                node, is_first = internal("not_nan", node), False if not value.type.nullable else is_first
            orders.append(exp.Ordered(this=node, desc=one.is_descending, nulls_first=is_first))
        return exp.Order(expressions=orders) if orders else None

    def _shown(self, translator: Translator, node: exp.Expr) -> Value:
        value = translator.value(node)
        if self.is_outermost and isinstance(node.unnest(), exp.Column) and node.unnest().name == "event_message":
            # Without its default, so that it is redacted after the rows are chosen.
            return msgspec.structs.replace(value, default=None)
        value = value.as_plain()
        if value.type.name == "Map":
            return whole_map(translator, node, value)
        if value.type.name == "Interval":
            raise translator.refused(node, "An interval cannot be selected.")
        return _answered(translator, node, value) if self.is_outermost else value

    def _finished(
        self,
        spelled: Spelled,
        columns: list[tuple[str, Value]],
        filtered: Filtered,
        order: exp.Expr | None,
        *,
        group: exp.Expr | None = None,
        having: Condition | None = None,
    ) -> Built:
        items = [exp.Alias(this=value.node, alias=exp.to_identifier(name, quoted=True)) for name, value in columns]
        select = exp.Select(expressions=items, from_=exp.From(this=filtered.branch.relation()))
        if filtered.where is not None:
            select.set("where", exp.Where(this=filtered.where))
        if group is not None:
            select.set("group", group)
        if having is not None and having.constant is not True:
            select.set("having", exp.Having(this=having.node))
        if order is not None:
            select.set("order", order)
        limit = _NO_LIMIT if spelled.limit is None and spelled.offset else spelled.limit
        if limit is not None:
            select.set("limit", exp.Limit(expression=exp.Literal.number(limit)))
        if spelled.offset:
            select.set("offset", exp.Offset(expression=exp.Literal.number(spelled.offset)))
        return Built(select, tuple(columns))


def _answered(t: Expressions, node: exp.Expr, value: Value) -> Value:
    """Return the value in its JSON form: times as text with microseconds, conditions as 0 and 1, NaN as NULL."""
    match value.type.name:
        case "DateTime":
            made = t.fill(node, "format_timestamp('%Y-%m-%dT%H:%M:%E6S', @moment, 'UTC')", moment=value.node)
            return msgspec.structs.replace(value, node=made)
        case "UInt8":
            return msgspec.structs.replace(value, node=as_number(value).node)
        case "Float64" if not value.is_constant:
            return msgspec.structs.replace(value, node=internal("finite", value.node))
        case "Nothing":
            return msgspec.structs.replace(value, node=fill("cast(null as string)"), type=STRING.or_null())
    return value


def _parts(spelled: Spelled) -> Iterator[exp.Expr]:
    yield from (item.node for item in spelled.items)
    yield from spelled.where
    yield from spelled.keys
    if spelled.having is not None:
        yield spelled.having
    yield from (one.node for one in spelled.orders)


def _is_array_join(node: exp.Expr) -> bool:
    return isinstance(node, exp.Explode)


def _has_array_join(node: exp.Expr) -> bool:
    return any(map(_is_array_join, node.walk()))
