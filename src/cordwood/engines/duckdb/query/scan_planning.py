"""Plan the scans of streams: the SQL of a scan, the tables to read, and late materialization of wide columns.

DuckDB finds the first few rows of one table fast (top-N). It begins with the row groups that can contain these rows,
and materializes only the events of these rows. DuckDB does not do this for a union of tables. So a query for the first
few rows runs on the stored table and on the memtable separately. The answer is the first few rows of both results.

With late materialization, a copy of the query that selects only row ids runs first, and the query itself then reads
only the events with these ids. The query applies its ORDER BY and LIMIT again, and also its filters if an event can
make several rows. So its rows are the same as without late materialization. This is done if the query passes on wide
columns unchanged, because the copy does not read these columns.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property

import msgspec
from sqlglot import exp

from cordwood.engines.duckdb.rules.events import value_at_path_node
from cordwood.engines.duckdb.storage.tables import EVENT_COLUMNS, quote_identifier
from cordwood.model.event import format_path
from cordwood.sql.budget import check_cpu_time, copy_tree
from cordwood.sql.datatypes import inherit_metadata
from cordwood.sql.grouping import resolve_group_ordinal
from cordwood.sql.lowering import fragment_node, identifier_node, join_fragments, merge_fragments, string_literal_node
from cordwood.sql.nodes import non_recursive_cte


class ReadMode(StrEnum):
    """What a scan reads at a path: the value itself, the value as text, or only whether it is an object."""

    VALUE = "value"
    TEXT = "text"
    IS_OBJECT = "record"


class EventTable(StrEnum):
    """The tables of a stream; each member is a template of the table's name, with the stream's name as `{0}`."""

    FLUSHED = "store.main.{0}"
    MEMTABLE = "memory.memtable.{0}"
    RECENT = "memory.recent.{0}"
    ARRIVED = "memory.arrived.{0}"


class ScannedPath(msgspec.Struct, frozen=True):
    """A path below a stored column; a scan provides the value at the path as a separate column.

    `is_wide` is true if the value may be an object or array. Such a value is expensive to read, because DuckDB has to
    assemble it.
    """

    stored_column: str
    steps: tuple[str, ...]
    mode: ReadMode
    is_wide: bool = False

    @property
    def generated_column_name(self) -> str:
        """The name of the path's column; it has the positions of capitals, because DuckDB ignores case in names."""
        path = "".join(f".{quote_identifier(step)}" for step in self.steps)
        capitals = ",".join(str(index) for index, letter in enumerate(path) if letter.isupper())
        return f"{self.stored_column}{path} {self.mode.value}{capitals and ' ' + capitals}"

    def prefixed_with(self, column: str, steps: tuple[str, ...]) -> "ScannedPath":
        return ScannedPath(column, (*steps, *self.steps), self.mode, self.is_wide)

    def to_sql(self, other_reads: Sequence["ScannedPath"] = ()) -> exp.Expr:
        """Return the SQL of the path's column.

        If this read tests for an object, and `other_reads` has a text inside the object, the SQL reads that text first.
        If the text is not NULL, the value at the path is an object, and nothing else has to be read.
        """
        text_read = next((read for read in other_reads if read.reads_text_inside_record(self)), None)
        if text_read is None:
            return merge_fragments("{0} AS {1}", self.value_sql(), identifier_node(self.generated_column_name))
        return merge_fragments(
            "{0} IS NOT NULL OR {1} AS {2}",
            text_read.value_sql(),
            self.value_sql(),
            identifier_node(self.generated_column_name),
        )

    def reads_text_inside_record(self, record: "ScannedPath") -> bool:
        depth = len(record.steps)
        is_below = (
            self.stored_column == record.stored_column
            and len(self.steps) > depth
            and self.steps[:depth] == record.steps
        )
        return is_below and self.mode is ReadMode.TEXT and record.mode is ReadMode.IS_OBJECT

    def value_sql(self) -> exp.Expr:
        if self.mode is ReadMode.IS_OBJECT:
            steps = self.steps if self.stored_column == "extras" else (self.stored_column, *self.steps)
            return fragment_node('contains("object_paths", {0})', string_literal_node(format_path(steps)))
        path = value_at_path_node(identifier_node(self.stored_column), self.steps)
        return merge_fragments("{0}::VARCHAR", path) if self.mode is ReadMode.TEXT else path


class ScanSource(msgspec.Struct, frozen=True):
    """A scan of a stream, with the paths that it reads as additional columns, and its filters.

    The SQL fragments in `filters` apply to all events, and those in `flushed_filters` only to flushed events.
    """

    table: exp.Table
    scanned_paths: tuple[ScannedPath, ...]
    filters: tuple[exp.Expr, ...] = ()
    flushed_filters: tuple[exp.Expr, ...] = ()

    @property
    def wide_column_names(self) -> frozenset[str]:
        """The names of the additional columns that are expensive to read."""
        return frozenset(read.generated_column_name for read in self.scanned_paths if read.is_wide)

    def select_events(self, table: EventTable, *extra_columns: exp.Expr, reads_all: bool = False) -> exp.Expr:
        """Return a SELECT over one of the stream's tables.

        `reads_all` is true if the query reads all events, not only a few. Then a test whether a value is an object
        first reads a text inside the object: see `ScannedPath.to_sql`. In a query for a few events, such a test reads
        only the column `object_paths`, because DuckDB would otherwise begin the query with an arbitrary row group.
        """
        used = self._used_columns()
        reads = [read for read in self.scanned_paths if read.generated_column_name in used]
        other_reads = reads if reads_all else []
        return self._build_select(
            table,
            [
                *map(identifier_node, _stored_columns(used)),
                *(read.to_sql(other_reads) for read in reads),
                *extra_columns,
            ],
        )

    def select_few_events(
        self, table: EventTable, row_filter: exp.Expr, as_json: frozenset[str] = frozenset()
    ) -> exp.Expr:
        """Return a SELECT over the few events that pass `row_filter`.

        The columns in `as_json` are converted to JSON. Expensive columns are read only for the events that pass the
        filter, not for all events that the scan visits.
        """
        used = self._used_columns()
        reads = [read for read in self.scanned_paths if read.generated_column_name in used]
        wide_reads = [read for read in reads if read.is_wide]
        wide_columns = frozenset(read.stored_column for read in wide_reads)
        columns = [
            _column_sql(name, as_json=name in as_json - wide_columns) for name in _stored_columns(used | wide_columns)
        ]
        events = self._build_select(
            table, [*columns, *(read.to_sql() for read in reads if read not in wide_reads)], row_filter
        )
        return (
            merge_fragments(
                "SELECT *, {0} FROM ({1})", join_fragments(", ", [read.to_sql() for read in wide_reads]), events
            )
            if wide_reads
            else events
        )

    def _build_select(self, event_table: EventTable, columns: Sequence[exp.Expr], *row_filters: exp.Expr) -> exp.Expr:
        flushed_filters = self.flushed_filters if event_table is EventTable.FLUSHED else ()
        conditions = (*self.filters, *flushed_filters, *row_filters)
        selected = join_fragments(", ", columns) if columns else fragment_node("NULL")
        select = "SELECT {0} FROM {1} WHERE {2}" if conditions else "SELECT {0} FROM {1}"
        table = fragment_node(event_table, identifier_node(self.table.name, is_verbatim=True))
        return merge_fragments(select, selected, table, join_fragments(" AND ", conditions))

    def _used_columns(self) -> frozenset[str]:
        """Return the names of the stream's columns that the SELECT around the scan uses.

        The scan provides only these columns, because each further column takes planning time.
        """
        select, name = self.table.find_ancestor(exp.Select), self.table.alias_or_name
        columns = list(select.find_all(exp.Column)) if select else []
        return frozenset(column.name for column in columns if column.table in (name, ""))

    def replace_table_by_union_of(self, *selects: exp.Expr) -> None:
        """Replace the reference to the stream's table by the union of `selects`."""
        alias = exp.TableAlias(this=identifier_node(self.table.alias_or_name))
        # If the table is in parentheses, its joins are attached to the table's node, so they are moved to the new node.
        joins = self.table.args.get("joins")
        self.table.replace(exp.Subquery(this=join_fragments(" UNION ALL ", selects), alias=alias, joins=joins))

    def find_in_copy(self, copy: exp.Expr) -> "ScanSource":
        """Return this scan in a copy of its tree; the tree must not have other scans of the stream."""
        (table,) = find_stream_tables(copy, frozenset([self.table.name]))
        return msgspec.structs.replace(self, table=table)


def _column_sql(column: str, *, as_json: bool) -> exp.Expr:
    return fragment_node("{0}::JSON AS {0}", identifier_node(column)) if as_json else identifier_node(column)


def _stored_columns(used: frozenset[str]) -> list[str]:
    return [column for column in EVENT_COLUMNS if column in used]


def find_stream_tables(tree: exp.Expr, streams: frozenset[str]) -> list[exp.Table]:
    """Return the references to streams in the tree, in the order in which the tree is walked."""
    return [table for table in tree.find_all(exp.Table) if table.name in streams and non_recursive_cte(table) is None]


class ChainedSelect(msgspec.Struct, frozen=True):
    """A SELECT on the way from the scan to the answer, with its alias for the relation that it reads."""

    select: exp.Select
    relation_alias: str


def find_select_chain(tree: exp.Expr, table: exp.Table) -> list[ChainedSelect]:
    """Return the chain of SELECTs from the scan to the answer, each of which is read only by the next SELECT.

    If there is no such chain, return an empty list.
    """
    steps: list[ChainedSelect] = []
    uses = RelationUses(tree)
    relation: exp.Expr | None = table
    while relation is not None:
        select = find_reading_select(relation)
        if select is None:
            return []
        steps.append(ChainedSelect(select, relation.alias_or_name))
        if select is tree:
            return steps
        relation = uses.find_single_use(select)
    return []


def is_single_chain(tree: exp.Expr, steps: Sequence[ChainedSelect]) -> bool:
    """Return whether the tree consists only of the SELECTs in `steps`, without joins."""
    return bool(steps) and tree.find(exp.Join) is None and len(list(tree.find_all(exp.Select))) == len(steps)


def aggregates_before_limit(steps: Sequence[ChainedSelect]) -> bool:
    """Return whether events are grouped before any LIMIT, so that the query reads all events that pass its filters."""
    for step in steps:
        if step.select.args.get("group"):
            return True
        if step.select.args.get("limit") or step.select.args.get("offset"):
            return False
    return False


def find_reading_select(relation: exp.Expr) -> exp.Select | None:
    """Return the SELECT that reads the relation.

    Return None for a pivot, and if the SELECT has a join that is neither an inner join nor a cross join.
    """
    if relation.args.get("pivots"):
        return None
    clause = relation.parent
    select = clause.parent if clause is not None else None
    if not isinstance(clause, exp.From | exp.Join) or not isinstance(select, exp.Select):
        return None
    return None if any(map(_is_outer_or_filtering_join, select.args.get("joins") or ())) else select


def _is_outer_or_filtering_join(join: exp.Join) -> bool:
    return bool(join.side or join.method or join.kind in ("SEMI", "ANTI"))


class RelationUses:
    """Finds where a syntax tree reads each of its sub-queries; walks the tree once, on first use."""

    def __init__(self, tree: exp.Expr) -> None:
        self._tree = tree

    @cached_property
    def _table_references_by_name(self) -> Mapping[str, Sequence[exp.Table]]:
        tables: dict[str, list[exp.Table]] = {}
        for table in self._tree.find_all(exp.Table):
            tables.setdefault(table.name, []).append(table)
        return tables

    def find_single_use(self, select: exp.Select) -> exp.Expr | None:
        """Return the relation that reads the sub-query `select`; None if several relations read it, or none.

        The relation is the sub-query in FROM, or the reference to its CTE.
        """
        check_cpu_time()
        container = select.parent
        if isinstance(container, exp.Subquery):
            return container
        if not isinstance(container, exp.CTE):
            return None
        uses = [
            table
            for table in self._table_references_by_name.get(container.alias, ())
            if non_recursive_cte(table) is container
        ]
        return uses[0] if len(uses) == 1 else None


# The alias of the union of the first rows of each table. The SELECTs inside the union cannot refer to this alias.
_FIRST_ROWS_UNION_ALIAS = "first of each"


def plan_scans(tree: exp.Expr, sources: Sequence[ScanSource], *, at_rest: bool = False) -> exp.Expr:
    """In `tree`, replace each stream by a scan of its stored table and a scan of its memtable.

    If `at_rest` is true, the memtable is not scanned.
    """
    if len(sources) == 1 and isinstance(tree, exp.Select) and _selects_first_rows(tree, sources[0]):
        return (
            _apply_late_materialization(tree, sources[0], EventTable.FLUSHED, is_alone=True)
            if at_rest
            else _merge_first_rows(tree, sources[0])
        )
    for source in sources:
        reads_all = aggregates_before_limit(find_select_chain(tree, source.table))
        tables = (EventTable.FLUSHED, EventTable.MEMTABLE)[: 1 if at_rest else 2]
        source.replace_table_by_union_of(*[source.select_events(table, reads_all=reads_all) for table in tables])
    return tree


def plan_arrived_scan(tree: exp.Expr, sources: Sequence[ScanSource]) -> exp.Expr:
    """Replace each stream by a scan of its table of arrived events; mutates `tree`."""
    for source in sources:
        source.replace_table_by_union_of(source.select_events(EventTable.ARRIVED))
    return tree


def plan_recent_scan(tree: exp.Expr, sources: Sequence[ScanSource]) -> exp.Expr | None:
    """Return a copy of the tree that reads only the recent table, or None if the query may need other events."""
    if len(sources) != 1 or not isinstance(tree, exp.Select) or not _selects_newest_events(tree, sources[0]):
        return None
    recent_tree = copy_tree(tree)
    source = sources[0].find_in_copy(recent_tree)
    source.replace_table_by_union_of(source.select_events(EventTable.RECENT))
    return recent_tree


def _merge_first_rows(tree: exp.Select, source: ScanSource) -> exp.Select:
    merged = exp.Select(expressions=[_select_union_column(index, item) for index, item in enumerate(tree.expressions)])
    merged.set("order", _order_by_positions(tree))
    for name in ("limit", "offset"):
        merged.set(name, tree.args.get(name) and copy_tree(tree.args[name]))
    tree.set("limit", exp.Limit(expression=exp.Literal.number(_requested_row_count(tree))))
    tree.set("offset", None)
    memtable_tree = copy_tree(tree)
    union = exp.Union(
        this=_apply_late_materialization(tree, source, EventTable.FLUSHED),
        expression=_apply_late_materialization(memtable_tree, source.find_in_copy(memtable_tree), EventTable.MEMTABLE),
        distinct=False,
    )
    names = [_quoted_identifier(f"c{index}") for index, _ in enumerate(tree.expressions)]
    alias = exp.TableAlias(this=_quoted_identifier(_FIRST_ROWS_UNION_ALIAS), columns=names)
    return merged.from_(exp.Subquery(this=union, alias=alias), copy=False)


def _order_by_positions(tree: exp.Select) -> exp.Order:
    """Return the ORDER BY that sorts the union of the first rows of each table.

    It refers to columns of the union. So sort keys that the query does not select become additional columns.
    """
    keys = []
    for key in tree.args["order"].expressions:
        keys.append(copy_tree(key))
        keys[-1].set("this", _first_rows_union_column(_find_or_append_column(tree, key.this)))
    return exp.Order(expressions=keys)


def _find_or_append_column(tree: exp.Select, value: exp.Expr) -> int:
    if isinstance(value, exp.Literal) and value.is_int:
        return int(value.this) - 1
    tree.append("expressions", exp.alias_(copy_tree(value), f"key {len(tree.expressions)}", quoted=True))
    return len(tree.expressions) - 1


def _select_union_column(index: int, item: exp.Expr) -> exp.Expr:
    column = _first_rows_union_column(index)
    inherit_metadata(column, item)
    alias = exp.alias_(column, item.alias, quoted=True)
    inherit_metadata(alias, item)
    return alias


def _first_rows_union_column(index: int) -> exp.Column:
    return exp.column(f"c{index}", _FIRST_ROWS_UNION_ALIAS, quoted=True)


def _quoted_identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


# Late materialization is not used for more rows than this, because nearly every row group probably contains a row then.
_MAX_LATE_MATERIALIZED_ROWS = 2000

# A query with more joins than this does not run on each table separately, because it would take too long to plan it
# for each table. The time to plan nested unnests grows with the cube of their number.
_MAX_JOINS_PER_TABLE_PLAN = 16

# The maximum number of rows that a query may request from the recent table: about one page of the explorer.
_MAX_RECENT_TABLE_QUERY_ROWS = 500

# The names that late materialization gives to its column of row ids and to its CTE. A query that uses one of these
# names itself is not rewritten.
_ROW_ID_COLUMN = "place of the event"
_ROW_IDS_CTE = "newest events"

_WIDE_COLUMNS = frozenset(name for name, kind in EVENT_COLUMNS.items() if kind == "VARIANT")
# The column of messages. They are more expensive to read than short columns, but cheap compared with wide columns. So
# late materialization treats this column separately.
_MESSAGE_COLUMN = "event_message"

# Nodes by which a row of the answer may depend on several events, or may differ between two runs of the query.
_CROSS_ROW_NODES = (
    exp.Window,
    exp.Group,
    exp.Having,
    exp.Distinct,
    exp.Qualify,
    exp.SetOperation,
    exp.Pivot,
    exp.TableSample,
    exp.Limit,
    exp.Offset,
    exp.Fetch,
    exp.Rand,
    exp.Uuid,
)


def _selects_first_rows(tree: exp.Select, source: ScanSource) -> bool:
    """Return whether the query selects the first few rows of an order, where each row comes from a single event."""
    if (
        tree.args.get("order") is None
        or not 0 < _requested_row_count(tree) <= _MAX_LATE_MATERIALIZED_ROWS
        or _depends_on_other_rows(tree)
    ):
        return False
    if len(list(tree.find_all(exp.Join))) > _MAX_JOINS_PER_TABLE_PLAN:
        return False
    if any(identifier.name.lower() in (_ROW_ID_COLUMN, _ROW_IDS_CTE) for identifier in tree.find_all(exp.Identifier)):
        return False
    return _passes_through_any_column(
        find_select_chain(tree, source.table), frozenset(EVENT_COLUMNS) | source.wide_column_names
    )


def _selects_newest_events(tree: exp.Select, source: ScanSource) -> bool:
    """Return whether the query selects the newest events up to a limit, with all VARIANT columns unchanged."""
    if (
        source.scanned_paths
        or source.flushed_filters
        or not _selects_first_rows(tree, source)
        or _requested_row_count(tree) > _MAX_RECENT_TABLE_QUERY_ROWS
    ):
        return False
    key = tree.args["order"].expressions[0]
    column = resolve_group_ordinal(tree, key.this)
    is_by_time = isinstance(column, exp.Column) and column.name == "timestamp" and key.args.get("desc")
    return bool(is_by_time) and _passed_through_columns(tree, source) == _WIDE_COLUMNS


def _apply_late_materialization(
    tree: exp.Select, source: ScanSource, table: EventTable, *, is_alone: bool = False
) -> exp.Select:
    """Rewrite the query to read only `table`, with late materialization if that saves time.

    `is_alone` is true if the query's rows are the whole answer, and false if they are merged with rows of another
    table.
    """
    if not _late_materialization_saves_time(tree, source, table):
        source.replace_table_by_union_of(source.select_events(table))
        return tree
    row_ids = _select_row_ids(tree, source, table)
    source = _remove_applied_filters(tree, source)
    row_filter = fragment_node(
        f"rowid IN (SELECT {quote_identifier(_ROW_ID_COLUMN)} FROM {quote_identifier(_ROW_IDS_CTE)})"  # noqa: S608 - our own names
    )
    source.replace_table_by_union_of(
        source.select_few_events(table, row_filter, _passed_through_columns(tree, source) if is_alone else frozenset())
    )
    _prepend_row_ids_cte(tree, row_ids)
    return tree


def _passed_through_columns(tree: exp.Select, source: ScanSource) -> frozenset[str]:
    """Return the wide columns that the query selects unchanged and uses for nothing else.

    The caller reads these columns as JSON texts, because a sort copies texts one time less than other values.
    """
    steps = find_select_chain(tree, source.table)
    if len(steps) > 1 or not is_single_chain(tree, steps):
        return frozenset()
    used_columns = {column.name for column in tree.find_all(exp.Column) if not _is_selected_directly(column, tree)}
    return _WIDE_COLUMNS - used_columns


def _is_selected_directly(column: exp.Column, tree: exp.Select) -> bool:
    return isinstance(column.parent, exp.Alias) and column.parent.parent is tree


def _remove_applied_filters(tree: exp.Select, source: ScanSource) -> ScanSource:
    """If each event makes at most one row, remove the filters in `tree`, and return `source` without its filters.

    The filters are not needed any more, because row ids are selected only from events that passed them.
    """
    steps = find_select_chain(tree, source.table)
    if not is_single_chain(tree, steps):
        return source
    for step in steps:
        step.select.set("where", None)
    return msgspec.structs.replace(source, filters=(), flushed_filters=())


def _late_materialization_saves_time(tree: exp.Select, source: ScanSource, table: EventTable) -> bool:
    steps = find_select_chain(tree, source.table)
    if is_single_chain(tree, steps) and table is not EventTable.FLUSHED:
        return False
    if _passes_through_any_column(steps, _WIDE_COLUMNS | source.wide_column_names) or _computes_from_wide_column(
        tree, steps
    ):
        return True
    return _passes_through_any_column(steps, frozenset([_MESSAGE_COLUMN])) and not _filters_by_message_or_project(
        tree, source
    )


def _computes_from_wide_column(tree: exp.Select, steps: list[ChainedSelect]) -> bool:
    """Return whether the query selects a value that it computes from a whole wide column.

    With late materialization, such a value is computed only for the few rows of the answer.
    """
    if not is_single_chain(tree, steps):
        return False
    columns = (column for item in tree.expressions for column in item.find_all(exp.Column))
    return any(column.name in _WIDE_COLUMNS and column.table == steps[-1].relation_alias for column in columns)


def _filters_by_message_or_project(tree: exp.Select, source: ScanSource) -> bool:
    """Return whether the query filters by message, or by a single project, whose events are stored together."""
    filters = list(tree.find_all(exp.Where))
    filters_messages = any(column.name == _MESSAGE_COLUMN for where in filters for column in where.find_all(exp.Column))
    compared = {
        column.name
        for where in filters
        for equality in where.find_all(exp.EQ)
        for column in equality.find_all(exp.Column)
    }
    return bool(source.filters) or filters_messages or "project" in compared


def _requested_row_count(tree: exp.Select) -> int:
    """Return the sum of LIMIT and OFFSET, or 0 if there is no LIMIT or one of the two is not a literal integer."""
    counts = [tree.args[key].expression for key in ("limit", "offset") if tree.args.get(key) is not None]
    if tree.args.get("limit") is None or not all(isinstance(count, exp.Literal) and count.is_int for count in counts):
        return 0
    return sum(int(count.this) for count in counts)


def _select_row_ids(tree: exp.Select, source: ScanSource, table: EventTable) -> exp.Select:
    """Return the query that selects the row ids of the events from which the first few rows are made."""
    row_id_query = copy_tree(tree)
    source_copy = source.find_in_copy(row_id_query)
    row_id_query.set("limit", exp.Limit(expression=exp.Literal.number(_requested_row_count(tree))))
    row_id_query.set("offset", None)
    steps = find_select_chain(row_id_query, source_copy.table)
    order = _order_by_values(row_id_query) if len(steps) == 1 else None
    if order is not None:
        row_id_query.set("order", order)
        row_id_query.set("expressions", [])
    for step in steps:
        step.select.append(
            "expressions",
            exp.alias_(exp.column(_ROW_ID_COLUMN, step.relation_alias, quoted=True), _ROW_ID_COLUMN, quoted=True),
        )
    source_copy.replace_table_by_union_of(
        source_copy.select_events(table, fragment_node(f"rowid AS {quote_identifier(_ROW_ID_COLUMN)}"))
    )
    if order is not None:
        return row_id_query
    return exp.select(exp.column(_ROW_ID_COLUMN, "found", quoted=True)).from_(row_id_query.subquery("found"))


def _order_by_values(tree: exp.Select) -> exp.Order | None:
    """Return the ORDER BY with expressions instead of aliases.

    Return None if a sort key contains no columns, or a column without a relation's name.
    """
    keys = []
    for key in tree.args["order"].expressions:
        value = resolve_group_ordinal(tree, key.this)
        columns = list(value.find_all(exp.Column))
        if not columns or not all(column.table for column in columns):
            return None
        keys.append(copy_tree(key))
        keys[-1].set("this", copy_tree(value))
    return exp.Order(expressions=keys)


def _prepend_row_ids_cte(tree: exp.Select, row_ids: exp.Query) -> None:
    alias = exp.TableAlias(this=exp.to_identifier(_ROW_IDS_CTE, quoted=True))
    newest = exp.CTE(this=row_ids, alias=alias, materialized=True)
    with_ = tree.args.get("with_")
    tree.set("with_", exp.With(expressions=[newest, *(with_.expressions if with_ else ())]))


def _depends_on_other_rows(tree: exp.Select) -> bool:
    outer_limits = (tree.args.get("limit"), tree.args.get("offset"))
    return any(
        all(node is not outer_limit for outer_limit in outer_limits) for node in tree.find_all(*_CROSS_ROW_NODES)
    )


def _passes_through_any_column(steps: list[ChainedSelect], names: frozenset[str]) -> bool:
    """Return whether at least one of the columns `names` is passed on unchanged by every SELECT in `steps`."""
    if not steps:
        return False
    for step in steps:
        names = frozenset(
            item.alias for item in step.select.expressions if _is_column_of(item.unalias(), step.relation_alias, names)
        )
    return bool(names)


def _is_column_of(value: exp.Expr, alias: str, names: frozenset[str]) -> bool:
    return isinstance(value, exp.Column) and value.table == alias and value.name in names
