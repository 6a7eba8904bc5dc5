"""Push reads of event paths down to ClickHouse's subcolumns, and remove record tests that another condition implies.

ClickHouse stores each path of a JSON column as a subcolumn, and can read one subcolumn without the others. This works
only in the SELECT that reads the table. Therefore, if a query reads a path from a column of a sub-query, the sub-query
gets another column with the path's value. This is repeated for each nested sub-query, down to the stream's table. A
path is read in this way only if all its values in the stream's shape are texts, numbers or booleans. All other paths
are read from the stored JSON text.

An UNNEST of a record `r` has become a test of whether the event has the record, which reads the column `object_paths`.
The test is unnecessary next to a condition such as `r.status >= 500`, which holds only if a path below `r` has a value.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.engines.clickhouse.rules.events import SubcolumnForm, event_from_subcolumn, subcolumn_read
from cordwood.engines.clickhouse.tables import JSON_COLUMN_BY_TEXT_COLUMN
from cordwood.model.event import ValueKind
from cordwood.sql.nodes import (
    PATH_KINDS_METADATA_KEY,
    IsObjectTest,
    has_operation,
    is_event_path,
    is_object_test_node,
    is_same_or_nested_value,
    path_root_and_steps,
    path_steps,
    referenced_cte,
    replace_node,
)

_ONLY_TEXT_KINDS: Final = frozenset({ValueKind.TEXT})
_NUMBER_OR_BOOL_KINDS: Final = frozenset({ValueKind.NUMBER, ValueKind.BOOL})
# Matches keys that need no escaping in a subcolumn's name. A path with any other key is read from the JSON text.
_UNESCAPED_KEY_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]+")
_MAX_SUB_QUERY_DEPTH: Final = 50
# The key in the `meta` of a column that was added to a sub-query to provide the value at a path.
_GENERATED_COLUMN_METADATA_KEY: Final = "provided"


class _ColumnPath(msgspec.Struct, frozen=True):
    """A path below a column that the query reads, and the form in which it reads the value."""

    column: str
    steps: tuple[str, ...]
    subcolumn_form: SubcolumnForm

    @property
    def generated_column_name(self) -> str:
        """Return the name of the column that is added to sub-queries for this path.

        If the author's sub-query already has a column of that name, the path is not pushed down.
        """
        return " ".join(
            (self.column, *self.steps, *(["is record"] if self.subcolumn_form is SubcolumnForm.IS_OBJECT else []))
        )


def push_down_paths(tree: exp.Expr, streams: frozenset[str]) -> None:
    """Replace reads of paths in the resolved and typed tree by reads of the streams' subcolumns, where these exist."""
    if any(select.is_star for select in tree.find_all(exp.Select)):
        return
    for node in list(tree.find_all(exp.Anonymous)):
        is_test = has_operation(node, IsObjectTest)
        column_and_path = _column_and_path_of(node.expressions[0] if is_test else node)
        mode = SubcolumnForm.IS_OBJECT if is_test else _subcolumn_form_of(node)
        if column_and_path is not None and mode is not None:
            _replace_by_subcolumn_read(
                node, column_and_path[0], _ColumnPath(column_and_path[0].name, column_and_path[1], mode), streams
            )


def _subcolumn_form_of(node: exp.Expr) -> SubcolumnForm | None:
    kinds = node.meta_get(PATH_KINDS_METADATA_KEY) if is_event_path(node) else None
    if not kinds:
        return None
    if kinds == _ONLY_TEXT_KINDS:
        return SubcolumnForm.TEXT
    if kinds <= _NUMBER_OR_BOOL_KINDS:
        return SubcolumnForm.NUMBER_OR_BOOL_TEXT
    return SubcolumnForm.JSON if kinds <= _ONLY_TEXT_KINDS | _NUMBER_OR_BOOL_KINDS else None


def _replace_by_subcolumn_read(node: exp.Expr, column: exp.Column, read: _ColumnPath, streams: frozenset[str]) -> None:
    select = node.find_ancestor(exp.Select)
    expression = (
        _read_path_from_relation(select, column.table, read, streams, 0) if isinstance(select, exp.Select) else None
    )
    if expression is not None:
        node.replace(event_from_subcolumn(expression, read.subcolumn_form, node))


def _read_path_from_relation(
    select: exp.Select, alias: str, read: _ColumnPath, streams: frozenset[str], depth: int
) -> exp.Expr | None:
    """Return an expression that reads the path from the relation `alias`; None if the path cannot be pushed down."""
    relation = _find_relation_by_alias(select, alias)
    if relation is None or depth > _MAX_SUB_QUERY_DEPTH or not all(map(_UNESCAPED_KEY_PATTERN.fullmatch, read.steps)):
        return None
    query = _sub_query_of(relation)
    if query is None:
        return _read_subcolumn(select, relation, read) if relation.name in streams else None
    if not _add_path_column(query, read, streams, depth):
        return None
    return exp.column(read.generated_column_name, alias, quoted=True)


def _sub_query_of(relation: exp.Table | exp.Subquery) -> exp.Expr | None:
    """Return the relation's sub-query; None for a table."""
    container = referenced_cte(relation) if isinstance(relation, exp.Table) else relation
    query: exp.Expr | None = container.this if container is not None else None
    return query


def _read_subcolumn(select: exp.Select, table: exp.Expr, read: _ColumnPath) -> exp.Expr | None:
    """Return an expression that reads the path's subcolumn from the stream's table.

    Return None in an outer join, because a missing value could not be told from a missing row.
    """
    if read.column not in JSON_COLUMN_BY_TEXT_COLUMN or any(join.side for join in select.args.get("joins") or ()):
        return None
    return subcolumn_read(table.alias_or_name, read.column, read.steps, read.subcolumn_form)


def _add_path_column(query: exp.Expr, read: _ColumnPath, streams: frozenset[str], depth: int) -> bool:
    """Add a column for the path to the sub-query, unless it has one; return whether the column exists now."""
    if not isinstance(query, exp.Select) or any(query.args.get(key) for key in ("distinct", "group", "kind")):
        return False
    existing = _projection_named(query, read.generated_column_name)
    if existing is not None:
        return bool(existing.meta_get(_GENERATED_COLUMN_METADATA_KEY))
    column_and_path = _column_and_path_of(_projection_named(query, read.column))
    if column_and_path is None:
        return False
    column, steps = column_and_path
    inner_read = _ColumnPath(column.name, (*steps, *read.steps), read.subcolumn_form)
    expression = _read_path_from_relation(query, column.table, inner_read, streams, depth + 1)
    if expression is not None:
        _append_generated_column(query, expression, read.generated_column_name)
    return expression is not None


def _projection_named(query: exp.Select, name: str) -> exp.Expr | None:
    return next((item for item in query.expressions if item.alias == name), None)


def _append_generated_column(query: exp.Select, expression: exp.Expr, name: str) -> None:
    provided = exp.alias_(expression, name, quoted=True)
    provided.meta[_GENERATED_COLUMN_METADATA_KEY] = True
    query.append("expressions", provided)


def _column_and_path_of(node: exp.Expr | None) -> tuple[exp.Column, tuple[str, ...]] | None:
    """Return the qualified column and the path that the node reads below it; None if the node is not such a read."""
    root, steps = path_root_and_steps(node.unalias()) if node is not None else (None, ())
    return (root, steps) if isinstance(root, exp.Column) and root.table else None


def _find_relation_by_alias(select: exp.Select, alias: str) -> exp.Table | exp.Subquery | None:
    """Return the relation with the alias in the SELECT's FROM and joins; None if there is no such relation."""
    for relation in _from_and_join_relations(select):
        if isinstance(relation, exp.Table | exp.Subquery) and relation.alias_or_name == alias:
            return relation
    return None


def _from_and_join_relations(select: exp.Select) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    yield from (join.this for join in select.args.get("joins") or ())


# Conditions that are NULL if any operand is NULL. WHERE does not select a row for which its condition is NULL.
_NULL_REJECTING_CONDITIONS: Final = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.RegexpLike)
# Conditions that cannot hold if their first operand is NULL.
_FIRST_OPERAND_NULL_REJECTING_CONDITIONS: Final = (exp.In, exp.Between)
_CAST_OR_PAREN_NODES: Final = (exp.Cast, exp.TryCast, exp.Paren)


def drop_implied_object_tests(tree: exp.Expr) -> None:
    for where in list(tree.find_all(exp.Where)):
        conditions = list(_split_conjuncts(where.this))
        present_paths = [path for condition in conditions for path in _paths_implied_not_null(condition)]
        for condition in conditions:
            if is_object_test_node(condition) and any(
                _is_path_within(path, condition.expressions[0]) for path in present_paths
            ):
                _remove_conjunct(condition)


def _split_conjuncts(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the conditions that are combined by AND, also those inside nested ANDs and parentheses."""
    pending = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, exp.And):
            pending += [one.expression, one.this]
        elif isinstance(one, exp.Paren):
            pending.append(one.this)
        else:
            yield one


def _paths_implied_not_null(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the paths that have a value in every row for which the condition holds."""
    operands = (condition.this, condition.expression) if isinstance(condition, _NULL_REJECTING_CONDITIONS) else ()
    for operand in (condition.this,) if isinstance(condition, _FIRST_OPERAND_NULL_REJECTING_CONDITIONS) else operands:
        value = operand
        while isinstance(value, _CAST_OR_PAREN_NODES):
            value = value.this
        if is_event_path(value):
            yield value


def _is_path_within(path: exp.Expr, record: exp.Expr) -> bool:
    return is_same_or_nested_value(path, record) and len(path_steps(path)) > len(path_steps(record))


def _remove_conjunct(condition: exp.Expr) -> None:
    """Remove a condition from the AND of which it is an operand."""
    node = condition
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    conjunction = node.parent
    if isinstance(conjunction, exp.And):
        replace_node(conjunction, conjunction.expression if node is conjunction.this else conjunction.this)
