"""Estimate the size of an engine's plan for a lowered tree, before the engine expands the tree.

An engine inlines a CTE at every reference, so 40 CTEs that each read the previous CTE twice become 2^40 relations. The
estimate measures each CTE once and multiplies its size by the number of references. Sizes are in points: a point is
about half a microsecond of planning in the slower engine; docs/decisions/0086 has the measurements.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import PlanTooLarge, Span
from cordwood.sql.budget import charge_nodes
from cordwood.sql.diagnostics import span_of
from cordwood.sql.lowering import fragment_parts, is_fragment, measure_fragment

# The maximum number of points of a plan: ten times the points of the largest known client query, or one to two seconds
# of planning in the slower engine.
MAX_PLANNING_COST_POINTS: Final = 3_200_000
# The maximum length of the printed SQL. For each character, planners use about 300 bytes of memory.
MAX_PRINTED_SQL_CHARACTERS: Final = 350_000

_COST_POINTS_PER_RELATION: Final = 1_500
_COST_POINTS_PER_WINDOW: Final = 4_000
# Joins are expensive: planning a join of n relations takes time in n^3. Sub-queries in expressions count as relations.
_COST_POINTS_PER_CUBED_RELATIONS: Final = 8
_COST_POINTS_PER_GROUPING_SET: Final = 20
_COST_POINTS_PER_CHARACTER: Final = 2
_EXPANDED_CHARACTERS_PER_COST_POINT: Final = 10
_CHARACTERS_PER_NODE: Final = 5
# Sums stop at this value instead of growing further.
_MAX_SIZE_SUM: Final = 10**15

# Relations are counted in halves, because some constructs cost half a relation.
_HALF_RELATIONS_PER_RELATION: Final = 2
_HALF_RELATIONS_PER_DISTINCT: Final = 1
_HALF_RELATIONS_PER_CORRELATED_SUB_QUERY: Final = 1
# How often engines plan a CTE for each reference, if the referring query has correlated sub-queries or LATERAL joins.
_CTE_REPEATS_IN_CORRELATED_QUERY: Final = 3

# IN with at most this many values is planned as one comparison for each value. (BETWEEN is planned as two comparisons.)
_MAX_EXPANDED_IN_VALUES: Final = 5
_NO_EXPANDED_CHARACTERS: Final[Mapping[str, int]] = {}
# Clauses of a query that prevent planners from choosing one join order for its relations and those of the enclosing
# query.
_JOIN_ORDER_BARRIER_CLAUSES: Final = ("group", "distinct", "limit", "offset")


class PlanSize(msgspec.Struct):
    """The estimated size of a part of a statement's tree.

    `half_relation_count` counts, in units of half a relation, the relations in the part that planners join with those
    of the enclosing query. `expanded_characters` is the length of the SQL if every column is replaced by its
    expression, as planners do when they push filters down and merge SELECTs: `x || x AS x` doubles with every
    sub-query. `expanded_characters_by_column` has the expanded length of each column of a query, by name.
    `outer_relation_names` are the relations outside of the part to which columns in the part refer.
    """

    cost_points: int = 0
    printed_characters: int = 0
    expanded_characters: int = 0
    half_relation_count: int = 0
    relation_count: int = 0
    outer_relation_names: frozenset[str] = frozenset()
    expanded_characters_by_column: Mapping[str, int] = msgspec.field(default_factory=dict)

    def add(self, other: "PlanSize", count: int = 1) -> None:
        """Add the size of another part, planned `count` times; its `half_relation_count` is added at most once."""
        self.cost_points = min(self.cost_points + other.cost_points * count, _MAX_SIZE_SUM)
        self.printed_characters = min(self.printed_characters + other.printed_characters * count, _MAX_SIZE_SUM)
        self.expanded_characters = min(self.expanded_characters + other.expanded_characters * count, _MAX_SIZE_SUM)
        self.half_relation_count = min(
            self.half_relation_count + other.half_relation_count * min(count, 1), _MAX_SIZE_SUM
        )
        self.relation_count = min(self.relation_count + other.relation_count * count, _MAX_SIZE_SUM)
        if other.outer_relation_names:
            self.outer_relation_names |= other.outer_relation_names

    def add_with_columns(self, other: "PlanSize") -> None:
        """Add the size of another part, which is planned once; if it has columns, copy the sizes of its columns."""
        self.add(other)
        self.expanded_characters_by_column = other.expanded_characters_by_column or self.expanded_characters_by_column

    @property
    def total_cost_points(self) -> int:
        """The estimated size in points: the part's own points, plus points for the expanded characters.

        Few points are given for expanded characters, because planners plan common parts once.
        """
        return self.cost_points + self.expanded_characters // _EXPANDED_CHARACTERS_PER_COST_POINT


class MeasuredPlan(msgspec.Struct):
    """The size of a whole statement, and the first query in it that alone exceeds the limit, if any."""

    size: PlanSize
    too_large_query: exp.Expr | None
    cte_sizes: Mapping[str, PlanSize]
    reference_counts: Mapping[str, int]

    @property
    def is_too_large(self) -> bool:
        return (
            self.size.total_cost_points > MAX_PLANNING_COST_POINTS
            or self.size.printed_characters > MAX_PRINTED_SQL_CHARACTERS
        )


def measure_plan(tree: exp.Expr) -> MeasuredPlan:
    meter = _PlanMeter(reference_counts=Counter(_table_names(tree)))
    size = meter.measure(tree)
    return MeasuredPlan(size, meter.too_large_query, meter.cte_sizes, meter.reference_counts)


def check_plan_size(tree: exp.Expr, text: str) -> None:
    """Raise PlanTooLarge if the engine's plan would be too large, with the position in `text`, the author's SQL."""
    plan = measure_plan(tree)
    if plan.is_too_large:
        raise plan_too_large_error(
            plan, span_of(plan.too_large_query, text) if plan.too_large_query is not None else None
        )


def plan_too_large_error(plan: MeasuredPlan, span: Span | None) -> PlanTooLarge:
    size = plan.size
    if size.total_cost_points <= MAX_PLANNING_COST_POINTS:
        message = f"The query is {size.printed_characters:,} characters of the engine's SQL; at most {MAX_PRINTED_SQL_CHARACTERS:,} are planned."
        return PlanTooLarge(message, hint="Select fewer columns, and nest fewer functions in each other.", span=span)
    return PlanTooLarge(
        f"The plan of this query has {size.total_cost_points:,} points, with {size.relation_count:,} relations where sub-queries"
        f" of WITH stand where they are read; at most {MAX_PLANNING_COST_POINTS:,} points are planned.",
        hint="Read each sub-query of WITH once, join fewer relations, or group by fewer sets.",
        span=span,
    )


def _table_names(tree: exp.Expr) -> Iterable[str]:
    return (table.name for table in tree.find_all(exp.Table))


class _PlanMeter(msgspec.Struct):
    """Meter of the plan size of one statement, in which every CTE has a unique name.

    `expanded_characters_by_relation_and_column` has the expanded characters of each column of each visible relation, by
    alias. `correlated_sub_query_count` is the number of correlated sub-queries so far.
    """

    reference_counts: Mapping[str, int]
    cte_sizes: dict[str, PlanSize] = msgspec.field(default_factory=dict)
    too_large_query: exp.Expr | None = None
    correlated_sub_query_count: int = 0
    expanded_characters_by_relation_and_column: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)

    def measure(self, node: exp.Expr) -> PlanSize:
        size = PlanSize()
        self._add_node(node, size)
        return size

    def _add_node(self, node: exp.Expr, size: PlanSize) -> None:
        """Add the size of a node and its descendants to `size`; tables and queries in it are measured separately."""
        role = _COST_ROLE_BY_NODE_CLASS.get(type(node), _NodeCostRole.OTHER)
        if role is _NodeCostRole.TABLE:
            size.add_with_columns(self._measure_table(node))
        elif role is _NodeCostRole.QUERY:
            query_size = self._measure_query(node)
            size.add_with_columns(
                self._measure_scalar_sub_query(query_size) if _is_scalar_sub_query(node) else query_size
            )
        elif role is _NodeCostRole.CALL and is_fragment(node):
            self._add_fragment(node, size)
        else:
            self._add_size_without_children(node, role, size)
            for part in node.iter_expressions():
                count = _times_planned_by_engine(node, part) if role is _NodeCostRole.REPEATING else 1
                if count == 1:
                    self._add_node(part, size)
                else:
                    size.add(self.measure(part), count)

    def _measure_scalar_sub_query(self, size: PlanSize) -> PlanSize:
        """Return the size of a sub-query that is used as a value; double the points of a correlated sub-query.

        Engines plan a correlated sub-query twice.
        """
        if size.outer_relation_names:
            size.cost_points = min(2 * size.cost_points, _MAX_SIZE_SUM)
            size.half_relation_count += _HALF_RELATIONS_PER_CORRELATED_SUB_QUERY
            self.correlated_sub_query_count += 1
        return msgspec.structs.replace(size, expanded_characters_by_column={})

    def _add_size_without_children(self, node: exp.Expr, role: "_NodeCostRole", size: PlanSize) -> None:
        characters = _CHARACTERS_PER_NODE
        if role is _NodeCostRole.NAME_OR_LITERAL:
            characters += len(node.this)
        size.cost_points += characters * _COST_POINTS_PER_CHARACTER
        size.printed_characters += characters
        if role is _NodeCostRole.COLUMN and isinstance(node, exp.Column) and node.table:
            size.outer_relation_names |= {node.table}
            size.expanded_characters += self.expanded_characters_by_relation_and_column.get(
                node.table, _NO_EXPANDED_CHARACTERS
            ).get(node.name, characters)
            return
        size.expanded_characters += characters
        if role is _NodeCostRole.WINDOW:
            size.cost_points += _COST_POINTS_PER_WINDOW
        elif role is _NodeCostRole.DISTINCT and not isinstance(node.parent, exp.Select):
            size.half_relation_count += _HALF_RELATIONS_PER_DISTINCT

    def _measure_table(self, node: exp.Expr) -> PlanSize:
        size = PlanSize(
            _COST_POINTS_PER_RELATION,
            _CHARACTERS_PER_NODE + len(node.name),
            half_relation_count=_HALF_RELATIONS_PER_RELATION,
            relation_count=1,
        )
        cte_size = self.cte_sizes.get(node.name)
        if cte_size is not None:
            size = msgspec.structs.replace(
                cte_size, printed_characters=size.printed_characters, outer_relation_names=frozenset()
            )
        for pivot in node.args.get("pivots") or ():
            size.add(self.measure(pivot))
        return size

    def _measure_query(self, node: exp.Expr) -> PlanSize:
        size = PlanSize(_COST_POINTS_PER_RELATION, _CHARACTERS_PER_NODE)
        outer = self.expanded_characters_by_relation_and_column
        with_ = node.args.get("with_")
        for cte in with_.expressions if with_ is not None else ():
            size.add(self._measure_cte(cte))
        if isinstance(node, exp.Select):
            self._add_select(node, size)
        else:
            for part in _children_except(node, ("with_",)):
                side_size = self.measure(part)
                size.add(side_size)
                size.expanded_characters_by_column = _add_column_sizes_by_position(
                    size.expanded_characters_by_column, side_size.expanded_characters_by_column
                )
        self.expanded_characters_by_relation_and_column = outer
        if isinstance(node, exp.SetOperation) or any(node.args.get(key) for key in _JOIN_ORDER_BARRIER_CLAUSES):
            size.half_relation_count = _HALF_RELATIONS_PER_RELATION
        if self.too_large_query is None and size.total_cost_points > MAX_PLANNING_COST_POINTS:
            self.too_large_query = node
        return size

    def _add_select(self, select: exp.Select, size: PlanSize) -> None:
        """Add the size of a SELECT to `size`.

        FROM and joins are measured first, because other clauses refer to the sizes of their columns.
        """
        charge_nodes(len(self.expanded_characters_by_relation_and_column))
        self.expanded_characters_by_relation_and_column = dict(self.expanded_characters_by_relation_and_column)
        columns: dict[str, int] = {}
        names: set[str] = set()
        cte_points = 0
        is_lateral = False
        for source, condition in _joined_sources(select):
            source_size = self.measure(source)
            is_lateral |= not names.isdisjoint(source_size.outer_relation_names)
            cte_points += source_size.cost_points if source.name in self.cte_sizes else 0
            source_size.half_relation_count = max(source_size.half_relation_count, _HALF_RELATIONS_PER_RELATION)
            size.add(source_size)
            names.add(source.alias_or_name)
            self.expanded_characters_by_relation_and_column[source.alias_or_name] = (
                source_size.expanded_characters_by_column
            )
            if condition is not None:
                self._add_node(condition, size)
        correlated = self.correlated_sub_query_count
        for part in _children_except(select, ("with_", "from_", "joins")):
            expanded_before = size.expanded_characters
            self._add_node(part, size)
            if part.arg_key == "expressions":
                columns[part.alias_or_name] = size.expanded_characters - expanded_before
            elif part.arg_key == "group":
                size.cost_points += _grouping_cost_points(part)
        size.expanded_characters_by_column = columns
        size.outer_relation_names -= names
        if is_lateral or self.correlated_sub_query_count > correlated:
            size.cost_points = min(
                size.cost_points + (_CTE_REPEATS_IN_CORRELATED_QUERY - 1) * cte_points, _MAX_SIZE_SUM
            )
        if size.half_relation_count > _HALF_RELATIONS_PER_RELATION:
            size.cost_points = min(
                size.cost_points
                + _COST_POINTS_PER_CUBED_RELATIONS * size.half_relation_count**3 // _HALF_RELATIONS_PER_RELATION**3,
                _MAX_SIZE_SUM,
            )

    def _measure_cte(self, cte: exp.Expr) -> PlanSize:
        """Return the size that the definition of a CTE adds; store the size that each reference adds in `cte_sizes`."""
        name = cte.alias
        self.cte_sizes[name] = PlanSize(
            _COST_POINTS_PER_RELATION, half_relation_count=_HALF_RELATIONS_PER_RELATION, relation_count=1
        )
        body_size = self.measure(cte.this)
        if cte.args.get("materialized") or self.reference_counts.get(name, 0) == 0:
            self.cte_sizes[name].expanded_characters_by_column = body_size.expanded_characters_by_column
            return msgspec.structs.replace(body_size, half_relation_count=0, expanded_characters_by_column={})
        self.cte_sizes[name] = body_size
        return PlanSize(body_size.printed_characters * _COST_POINTS_PER_CHARACTER, body_size.printed_characters)

    def _add_fragment(self, node: exp.Expr, size: PlanSize) -> None:
        measured = measure_fragment(node)
        characters, keywords, placeholders = (
            measured.character_count,
            measured.keyword_counts,
            measured.planned_count_by_placeholder,
        )
        size.cost_points += (
            characters * _COST_POINTS_PER_CHARACTER
            + keywords["FROM"] * _COST_POINTS_PER_RELATION
            + keywords["OVER"] * _COST_POINTS_PER_WINDOW
        )
        size.printed_characters += characters
        size.expanded_characters += characters
        size.half_relation_count += (
            max(keywords["FROM"] - keywords["UNION"], 0) * _HALF_RELATIONS_PER_RELATION
            + keywords["DISTINCT"] * _HALF_RELATIONS_PER_DISTINCT
        )
        size.relation_count += keywords["FROM"]
        if keywords["SELECT"] and not keywords["FROM"]:
            # In a fragment, a SELECT without FROM makes the array that is the right operand of IN. It counts as a
            # sub-query.
            size.half_relation_count += _HALF_RELATIONS_PER_RELATION + 2 * _HALF_RELATIONS_PER_CORRELATED_SUB_QUERY
            self.correlated_sub_query_count += 1
        for index, part in enumerate(fragment_parts(node)):
            if placeholders[index] == 1:
                self._add_node(part, size)
            else:
                size.add(self.measure(part), placeholders[index])


class _NodeCostRole(Enum):
    """The group of nodes to which a node belongs in the estimate: nodes of one group are measured in the same way."""

    TABLE = auto()
    QUERY = auto()
    CALL = auto()
    COLUMN = auto()
    NAME_OR_LITERAL = auto()
    WINDOW = auto()
    DISTINCT = auto()
    REPEATING = auto()
    OTHER = auto()


_COST_ROLE_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], _NodeCostRole]] = {
    exp.Table: _NodeCostRole.TABLE,
    exp.Select: _NodeCostRole.QUERY,
    exp.Union: _NodeCostRole.QUERY,
    exp.Except: _NodeCostRole.QUERY,
    exp.Intersect: _NodeCostRole.QUERY,
    exp.Anonymous: _NodeCostRole.CALL,
    exp.Column: _NodeCostRole.COLUMN,
    exp.Identifier: _NodeCostRole.NAME_OR_LITERAL,
    exp.Literal: _NodeCostRole.NAME_OR_LITERAL,
    exp.Var: _NodeCostRole.NAME_OR_LITERAL,
    exp.Window: _NodeCostRole.WINDOW,
    exp.Distinct: _NodeCostRole.DISTINCT,
    exp.Nullif: _NodeCostRole.REPEATING,
    exp.Between: _NodeCostRole.REPEATING,
    exp.In: _NodeCostRole.REPEATING,
    exp.Pivot: _NodeCostRole.REPEATING,
}


def _add_column_sizes_by_position(left: Mapping[str, int], right: Mapping[str, int]) -> Mapping[str, int]:
    """Return the sizes of a set operation's columns, by the column names of its left side.

    The size of each column is the sum of its sizes on both sides, because planners push filters into both sides.
    """
    if not left or not right:
        return left or right
    return {name: left[name] + points for name, points in zip(left, right.values(), strict=False)}


def _times_planned_by_engine(node: exp.Expr, part: exp.Expr) -> int:
    """Return how often engines plan `part`, a child of `node`, although it occurs once in the tree."""
    if part.arg_key == "this":
        if isinstance(node, exp.Nullif):
            return 2
        if isinstance(node, exp.Between) or (
            isinstance(node, exp.In) and 1 < len(node.expressions) <= _MAX_EXPANDED_IN_VALUES
        ):
            return 3
    if isinstance(node, exp.Pivot) and part.arg_key == "expressions" and not node.args.get("unpivot"):
        return max(sum(len(field.expressions) for field in node.args.get("fields") or ()), 1)
    return 1


def _is_scalar_sub_query(query: exp.Expr) -> bool:
    parent = query.parent
    while isinstance(parent, exp.Subquery):
        parent = parent.parent
    return parent is not None and not isinstance(parent, (exp.From, exp.Join, exp.CTE, exp.SetOperation, exp.Table))


def _children_except(node: exp.Expr, without: Collection[str]) -> Iterator[exp.Expr]:
    for key, value in list(node.args.items()):
        for part in value if isinstance(value, list) else (value,):
            if isinstance(part, exp.Expr) and key not in without:
                yield part


def _joined_sources(select: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr | None]]:
    """Yield the relations of a FROM with their join conditions, including those in parenthesised joins."""
    from_ = select.args.get("from_")
    pending = [(join.this, join.args.get("on")) for join in reversed(select.args.get("joins") or ())]
    pending += [(from_.this, None)] if from_ is not None else []
    while pending:
        source, condition = pending.pop()
        pending += [(join.this, join.args.get("on")) for join in reversed(source.args.get("joins") or ())]
        if isinstance(source, exp.Subquery) and not source.alias and isinstance(source.this, (exp.Table, exp.Subquery)):
            pending.append((source.this, condition))
        else:
            yield source, condition


def _grouping_cost_points(group: exp.Expr) -> int:
    keys = sum(1 for _ in group.find_all(exp.Column, exp.Literal))
    sets = 1
    for part in group.iter_expressions():
        sets = min(sets * _grouping_set_count(part), _MAX_SIZE_SUM)
    return min(_COST_POINTS_PER_GROUPING_SET * sets * sets * keys, _MAX_SIZE_SUM) if sets > 1 else 0


def _grouping_set_count(part: exp.Expr) -> int:
    """Return the number of grouping sets in a part of GROUP BY."""
    count = len(part.expressions)
    if isinstance(part, exp.Rollup):
        return count + 1
    if isinstance(part, exp.Cube):
        return int(2 ** min(count, 40))
    if isinstance(part, exp.GroupingSets):
        return sum(map(_grouping_set_count, part.expressions))
    return 1
