"""Push reads of event paths down to the scans, through any number of sub-queries.

DuckDB reads a path from shredded columns only if the path is in the SELECT that scans the table. If the path is read
outside of a sub-query, DuckDB first assembles every event in it, which takes a hundred times as long. So each path that
is read from a column of a sub-query becomes a column of that sub-query, and so on down to the stream's tables.
"""

import msgspec
from sqlglot import exp

from cordwood.engines.duckdb.query.scan_planning import ReadMode, ScannedPath, ScanSource, find_stream_tables
from cordwood.engines.duckdb.storage.tables import EVENT_COLUMNS
from cordwood.model.event import ValueKind
from cordwood.sql.budget import check_cpu_time
from cordwood.sql.datatypes import inherit_metadata
from cordwood.sql.grouping import grouping_keys, resolve_group_ordinal
from cordwood.sql.lowering import fragment_parts
from cordwood.sql.nodes import (
    PATH_KINDS_METADATA_KEY,
    EventAsText,
    IsObjectTest,
    PathRead,
    find_operations,
    has_operation,
    joined_relations,
    non_recursive_cte,
    operation_if_of_class,
)

_COMPOSITE_VALUE_KINDS = frozenset({ValueKind.OBJECT, ValueKind.ARRAY})
# The key in the `meta` of a column that was generated to provide the value at a path.
_GENERATED_COLUMN_METADATA_KEY = "provided"

Relation = exp.Expr
_PathSteps = tuple[str, ...]
# A path and where it is read: the alias of a relation, the name of the relation's column, and the path below the
# column.
_PathReference = tuple[str, str, _PathSteps]


class _PushdownState(msgspec.Struct):
    """The state of the push-down in one tree.

    `scanned_paths_by_table` has the paths that are read from each stream's table, by the id of the table's node and by
    column name. `grouped_paths` has pairs of the id of a SELECT and a path by which it groups. `columns_by_select`
    caches the columns of each SELECT by the SELECT's id.
    """

    streams: frozenset[str]
    scanned_paths_by_table: dict[int, dict[str, ScannedPath]] = msgspec.field(default_factory=dict)
    grouped_paths: frozenset[tuple[int, _PathReference | None]] = frozenset()
    columns_by_select: dict[int, dict[str, exp.Expr]] = msgspec.field(default_factory=dict)

    def is_grouped_path_read(self, node: exp.Expr) -> bool:
        """Return whether `node` reads a path by which the SELECT around it groups.

        If so, every read of this path in the SELECT must be replaced by the same column.
        """
        return (id(node.find_ancestor(exp.Select)), _path_reference(node)) in self.grouped_paths

    def add_scanned_path(self, relation: Relation, read: ScannedPath, depth: int = 0) -> str | None:
        """Add a column for the path `read` to the relation; return the column's name, or None if it cannot be added."""
        if depth > 50:
            return None
        if isinstance(relation, exp.Subquery):
            return self._add_path_to_query(relation.this, read, depth)
        if not isinstance(relation, exp.Table):
            return None
        if relation.name in self.streams and non_recursive_cte(relation) is None:
            return self._add_path_to_stream_scan(relation, read)
        cte = non_recursive_cte(relation)
        return None if cte is None else self._add_path_to_query(cte.this, read, depth)

    def _add_path_to_stream_scan(self, table: exp.Table, read: ScannedPath) -> str | None:
        if EVENT_COLUMNS.get(read.stored_column) != "VARIANT":
            return None
        self.scanned_paths_by_table.setdefault(id(table), {}).setdefault(read.generated_column_name, read)
        return read.generated_column_name

    def _add_path_to_query(self, query: exp.Expr, read: ScannedPath, depth: int) -> str | None:
        if not isinstance(query, exp.Select) or not _may_add_column(query):
            return None
        projections = self._columns_of_select(query)
        existing = projections.get(read.generated_column_name.lower())
        if existing is not None:
            # Without this key, the column was not generated: the query's author has used the name for another column,
            # which does not hold the path.
            return read.generated_column_name if existing.meta_get(_GENERATED_COLUMN_METADATA_KEY) else None
        column_and_path = _column_and_path_of(projections.get(read.stored_column.lower()))
        if column_and_path is None:
            return None
        column, path = column_and_path
        name = self._add_path_to_relation(query, column.table, read.prefixed_with(column.name, path), depth)
        if name is not None:
            provided = _append_generated_column(
                query, exp.column(name, column.table, quoted=True), read.generated_column_name
            )
            projections.setdefault(read.generated_column_name.lower(), provided)
        return name and read.generated_column_name

    def _columns_of_select(self, query: exp.Select) -> dict[str, exp.Expr]:
        """Return the columns of a SELECT by name in lower case; if a name occurs more than once, use its first column.

        The result is cached, because a query may read thousands of paths.
        """
        if id(query) not in self.columns_by_select:
            self.columns_by_select[id(query)] = {item.alias.lower(): item for item in reversed(query.expressions)}
        return self.columns_by_select[id(query)]

    def _add_path_to_relation(self, query: exp.Select, alias: str, read: ScannedPath, depth: int) -> str | None:
        relation = _find_relation_by_alias(query, alias)
        return None if relation is None else self.add_scanned_path(relation, read, depth + 1)


def _append_generated_column(query: exp.Select, column: exp.Expr, name: str) -> exp.Expr:
    provided = exp.alias_(column, name, quoted=True)
    provided.meta[_GENERATED_COLUMN_METADATA_KEY] = True
    query.append("expressions", provided)
    return provided


def push_down_paths(tree: exp.Expr, streams: frozenset[str]) -> list[ScanSource]:
    """Replace the path reads in the tree by columns of its scans; return the scans with the paths they must read."""
    _replace_grouped_texts_by_values(tree)
    pushdown = _PushdownState(streams, grouped_paths=_grouped_paths(tree))
    record_tests, path_reads = ([node for node, _ in find_operations(tree, kind)] for kind in (IsObjectTest, PathRead))
    for node in record_tests:
        _replace_by_column(node, fragment_parts(node)[0], ReadMode.IS_OBJECT, pushdown)
    for node in path_reads:
        _push_down_path(node, pushdown)
    return [
        ScanSource(table, tuple(pushdown.scanned_paths_by_table.get(id(table), {}).values()))
        for table in find_stream_tables(tree, streams)
    ]


def _grouped_paths(tree: exp.Expr) -> frozenset[tuple[int, _PathReference | None]]:
    """Return pairs of a SELECT's id and a path by which it groups; GROUP BY may name the path's column by position."""
    groups = [(group.parent, group) for group in tree.find_all(exp.Group)]
    keys = [(select, key) for select, group in groups if isinstance(select, exp.Select) for key in grouping_keys(group)]
    return frozenset((id(select), _path_reference(resolve_group_ordinal(select, key))) for select, key in keys)


def _replace_grouped_texts_by_values(tree: exp.Expr) -> None:
    """If a SELECT groups by the text of a value and also reads the value itself, make it group by the value."""
    for group in tree.find_all(exp.Group):
        select = group.parent
        if isinstance(select, exp.Select):
            for key in grouping_keys(group):
                _replace_grouped_text_by_value(select, resolve_group_ordinal(select, key))


def _replace_grouped_text_by_value(select: exp.Select, text: exp.Expr) -> None:
    path = fragment_parts(text)[0] if has_operation(text, EventAsText) else None
    if path is None or _path_reference(path) is None:
        return
    for other in select.find_all(exp.Anonymous):
        if other is not path and _path_reference(other) == _path_reference(path) and not _is_read_as_text(other):
            text.replace(path)
            return


def _path_reference(node: exp.Expr) -> _PathReference | None:
    column_and_path = _column_and_path_of(node)
    return None if column_and_path is None else (column_and_path[0].table, column_and_path[0].name, column_and_path[1])


def _push_down_path(node: exp.Expr, pushdown: _PushdownState) -> None:
    parent = node.parent
    if parent is not None and _is_read_as_text(node) and not pushdown.is_grouped_path_read(node):
        _replace_by_column(parent, node, ReadMode.TEXT, pushdown)
    else:
        _replace_by_column(node, node, ReadMode.VALUE, pushdown)


def _replace_by_column(node: exp.Expr, value: exp.Expr, mode: ReadMode, pushdown: _PushdownState) -> None:
    """Replace `node` by a new column of the relation that `value` comes from, unless that relation cannot get one."""
    check_cpu_time()
    column_and_path = _column_and_path_of(value)
    select = node.find_ancestor(exp.Select)
    if column_and_path is None or select is None:
        return
    column, path = column_and_path
    relation = _find_relation_by_alias(select, column.table)
    kinds = value.meta_get(PATH_KINDS_METADATA_KEY) if has_operation(value, PathRead) else frozenset()
    is_wide = mode is ReadMode.VALUE and (kinds is None or bool(kinds & _COMPOSITE_VALUE_KINDS))
    name = (
        None if relation is None else pushdown.add_scanned_path(relation, ScannedPath(column.name, path, mode, is_wide))
    )
    if name is not None:
        node.replace(inherit_metadata(exp.column(name, column.table, quoted=True), node))


def _column_and_path_of(node: exp.Expr | None) -> tuple[exp.Column, _PathSteps] | None:
    """Return the column that a node reads and the path below the column; the path is empty for the column itself."""
    node = node.unalias() if node is not None else None
    if node is None:
        return None
    read = operation_if_of_class(node, PathRead)
    return _column_with_path(node, ()) if read is None else _column_with_path(fragment_parts(node)[0], read.steps)


def _column_with_path(value: exp.Expr, steps: _PathSteps) -> tuple[exp.Column, _PathSteps] | None:
    return (value, steps) if isinstance(value, exp.Column) and value.table else None


def _is_read_as_text(node: exp.Expr) -> bool:
    return has_operation(node.parent, EventAsText)


def _find_relation_by_alias(select: exp.Select, alias: str) -> Relation | None:
    """Return the relation with the alias `alias` in FROM, or None if it is neither a table nor a sub-query.

    Columns cannot be added to other relations, such as UNNEST.
    """
    from_ = select.args.get("from_")
    joined = [join.this for join in select.args.get("joins") or ()]
    for source in ([from_.this] if isinstance(from_, exp.From) else []) + joined:
        for relation in joined_relations(source):
            if isinstance(relation, exp.Table | exp.Subquery) and relation.alias_or_name == alias:
                return relation
    return None


def _may_add_column(query: exp.Select) -> bool:
    """Return whether the query returns the same rows if one more column is selected."""
    return not (query.args.get("distinct") or query.args.get("group") or query.args.get("kind"))
