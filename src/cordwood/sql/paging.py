"""Pages of an answer: order its rows totally, and compute where the next page begins.

An answer that may be cut off is ordered totally, if that is cheap or if the caller asks for pages. If it is ordered by
the time of events, the next page begins after the time and id of the last row; these are the last two columns of the
statement, which are not sent to the caller. In any other order, the next page reads only events received up to the time
of the first page, and skips the rows of earlier pages.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.model.definitions import Parameter
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.nodes import (
    NOW_SLOT_NAME,
    RELATION_WRAPPER_METADATA_KEY,
    add_condition,
    digest_call,
    non_recursive_cte,
    outermost_select,
    parameter_node,
    relations_of,
    typed_column,
)
from cordwood.sql.query_templates import sort_key

_TIME_COLUMN: Final = "timestamp"
_ID_COLUMN: Final = "id"
_PROJECT_COLUMN: Final = "project"
_RECEIPT_TIME_COLUMN: Final = "ingested_at"
_ROW_POSITION_COLUMN_NAMES: Final = ("time of the row", "id of the row")
_PAGE_BOUNDARY_PARAMETER_NAMES: Final = ("time_of_last_row", "id_of_last_row")
# Page sizes are rounded up to a power of this number, or to the endpoint's maximum, so that few different statements
# are compiled.
PAGE_SIZE_ROUNDING_BASE: Final = 10
# The maximum nesting of queries in which the time and id of events are searched. An answer of deeper queries is paged
# by counting rows.
_MAX_SEARCHED_QUERY_DEPTH: Final = 30
# Clauses that make a row of a SELECT depend on several rows of its FROM.
_CLAUSES_COMBINING_ROWS: Final = ("group", "distinct", "having", "qualify", "kind")


class Page(msgspec.Struct, frozen=True):
    """The page that a statement answers: its size, and the number of rows before it.

    `rows` is None for the endpoint's maximum. Otherwise, it is the page size rounded up to a power of
    `PAGE_SIZE_ROUNDING_BASE`, because a statement for each possible size would fill the cache. If
    `begins_after_last_row` is set, the page begins at the time and id of the last row of the previous page, and
    `rows_sent_before` counts the rows with this time and id that were already sent. Otherwise, `rows_sent_before`
    counts all rows that were already sent. `remaining_rows` is the rest of the query's own LIMIT if it is less than a
    page. If `is_paging_requested` is set, the caller asked for pages, so the answer gets a total order whatever this
    costs. If `is_of_followed_query` is set, the page belongs to a followed query, and its rows are in the order of
    receipt.
    """

    page_size: int | None = None
    rows_sent_before: int = 0
    begins_after_last_row: bool = False
    remaining_rows: int | None = None
    is_paging_requested: bool = False
    is_of_followed_query: bool = False

    def min_page_size(self, max_rows: int) -> int:
        """Return a lower bound of the page sizes that use the same statement as this page."""
        return max_rows if self.page_size is None else self.page_size // PAGE_SIZE_ROUNDING_BASE

    @property
    def has_single_use_statement(self) -> bool:
        """Whether the statement is unlikely to be used again, because it contains the number of rows sent before."""
        return self.remaining_rows is not None or (self.rows_sent_before > 0 and not self.begins_after_last_row)


FIRST_PAGE: Final = Page()


class PagingMethod(msgspec.Struct, frozen=True):
    """What is needed to continue the answer of a statement with the next page.

    If `is_by_time` is set, the last columns of the statement are the time and id of each row, and `boundary_parameters`
    are the names of the parameters for the time and id of the last row of a page. If `has_array_elements` is set, rows
    with the same time and id have no order, so a page must not end between them. `limit` is the number in the query's
    own LIMIT, or the name of the parameter in it. `offset` is the name of the parameter in the query's OFFSET. OFFSET
    applies only to the first page; on later pages, `Page.rows_sent_before` includes the rows that OFFSET skips.
    """

    is_by_time: bool
    has_array_elements: bool
    limit: int | str | None
    offset: str | None
    boundary_parameters: tuple[str, str]


class _TimeOrder(msgspec.Struct, frozen=True):
    """An order of an answer by the time and then the id of events, with the columns of the SELECT that have them.

    `other_key_columns` are the ids of joined events, and the projects of events. If `has_array_elements` is set, an
    event yields a row for each element of its arrays.
    """

    time_column: exp.Column
    id_column: exp.Column
    is_descending: bool
    other_key_columns: tuple[exp.Column, ...] = ()
    has_array_elements: bool = False


def parameters_with_page_boundaries(parameters: Mapping[str, Parameter], page: Page) -> Mapping[str, Parameter]:
    """Return the parameters, plus those for the last time and id of the previous page if the page begins after them."""
    if not page.begins_after_last_row:
        return parameters
    time, id_ = _unused_boundary_parameter_names(parameters)
    return {**parameters, time: Parameter(time, Kind.TIMESTAMP, required=True), id_: Parameter(id_, required=True)}


def _unused_boundary_parameter_names(parameters: Mapping[str, Parameter]) -> tuple[str, str]:
    taken = {name.lower() for name in parameters}
    suffix = ""
    while any(name + suffix in taken for name in _PAGE_BOUNDARY_PARAMETER_NAMES):
        suffix += "_"
    return _PAGE_BOUNDARY_PARAMETER_NAMES[0] + suffix, _PAGE_BOUNDARY_PARAMETER_NAMES[1] + suffix


class PageQueryRewriter:
    """Rewriter of a query for one page: call `restrict_reads_to_page` before redaction, and `order_rows` after it.

    `is_paged_on_request` is set if the statement has no pages, but would have pages if the caller requested them.
    """

    def __init__(self, tree: exp.Expr, page: Page, max_rows: int, parameters: Mapping[str, Parameter]) -> None:
        self._tree = tree
        self._page = page
        self._max_page_rows = max_rows if page.page_size is None else min(page.page_size, max_rows)
        self._limit, self._offset = (_row_count_or_parameter(tree.args.get(name)) for name in ("limit", "offset"))
        self._is_first_page = not page.rows_sent_before and page.remaining_rows is None
        may_go_on = self._may_have_more_pages(parameters, page.min_page_size(max_rows))
        self._time_order, self._row_keys = _find_order_and_row_keys(tree) if may_go_on else (None, [])
        self.is_paged_on_request = may_go_on and self._is_order_costly and not page.is_paging_requested
        self._is_paged = may_go_on and not self.is_paged_on_request
        self._boundary_parameter_names = _unused_boundary_parameter_names(parameters)

    @property
    def _row_count_parameters(self) -> list[str]:
        """The parameters in the LIMIT or OFFSET of the query."""
        return [rows for rows in (self._limit, self._offset) if isinstance(rows, str)]

    @property
    def _is_order_costly(self) -> bool:
        """Whether a total order may cost far more than the query, or is needed for few of its calls.

        An order by all columns of the answer costs most. If LIMIT is a parameter, most calls need only one page.
        """
        return bool(self._row_count_parameters) or (self._time_order is None and not self._row_keys)

    def _may_have_more_pages(self, parameters: Mapping[str, Parameter], rows: int) -> bool:
        """Return whether the answer may have rows beyond one page.

        This is false if the query is of a form that cannot be paged. Otherwise, it is true of every page after the
        first; of the first page, it is false only if the query's own LIMIT is at most `rows`.
        """
        if not isinstance(self._tree, exp.Select | exp.SetOperation):
            return False
        if any(parameters[name].type is not Kind.INT64 for name in self._row_count_parameters):
            return False
        return not isinstance(self._limit, int) or self._limit > rows or not self._is_first_page

    @property
    def paging(self) -> PagingMethod | None:
        if not self._is_paged:
            return None
        order = self._time_order
        offset = self._offset if isinstance(self._offset, str) else None
        return PagingMethod(
            order is not None,
            order is not None and order.has_array_elements,
            self._limit,
            offset,
            self._boundary_parameter_names,
        )

    def restrict_reads_to_page(self) -> None:
        """Restrict the reads of events to the events that may be on the page.

        If the order needs all columns as sort keys, they are added here, before redaction, so that texts in them are
        redacted.
        """
        if not self._is_paged:
            return
        if self._time_order is None and self._page.rows_sent_before:
            for table in list(self._tree.find_all(exp.Table)):
                if table.meta_get("stream"):
                    _restrict_to_received_events(table)
        if self._time_order is None and not self._row_keys:
            self._append_sort_keys(self._column_sort_keys())

    def order_rows(self, *, hashes_ids: bool) -> None:
        """Order the rows totally and limit them to the page size plus one: the extra row shows that a page follows.

        `hashes_ids` is set if ids are redacted: then neither the order of the rows nor a cursor may reveal ids.
        """
        if not self._is_paged:
            limit_rows(self._tree, self._max_page_rows)
            return
        if self._time_order is not None:
            self._order_by_time(self._time_order, hashes_ids=hashes_ids)
        else:
            self._order_by_row_keys(hashes_ids=hashes_ids)
        left = self._limit if self._page.remaining_rows is None else self._page.remaining_rows
        if not self._is_first_page or not isinstance(left, str):
            rows = min(left, self._max_page_rows + 1) if isinstance(left, int) else self._max_page_rows + 1
            self._tree.set("limit", _row_count_clause(exp.Limit, rows))
        if not self._is_first_page or not isinstance(self._offset, str):
            skip = self._page.rows_sent_before + (self._offset if isinstance(self._offset, int) else 0)
            self._tree.set("offset", _row_count_clause(exp.Offset, skip) if skip else None)

    def _order_by_row_keys(self, *, hashes_ids: bool) -> None:
        _output_from_wrapped_relations(self._tree, self._row_keys)
        keys = (_id_sort_key(column, hashes_ids=hashes_ids) for column in self._row_keys)
        self._append_sort_keys([sort_key(key, is_descending=False) for key in keys])

    def _order_by_time(self, order: _TimeOrder, *, hashes_ids: bool) -> None:
        """Order by the query's keys or else by time, and then by ids; begin after the last row of the previous page."""
        _output_from_wrapped_relations(self._tree, [order.time_column, order.id_column, *order.other_key_columns])
        hidden = copy_tree(order.time_column), _id_sort_key(order.id_column, hashes_ids=hashes_ids)
        own = self._tree.args["order"].expressions if self._tree.args.get("order") else []
        ids = [hidden[1], *(_id_sort_key(column, hashes_ids=hashes_ids) for column in order.other_key_columns)]
        keys = own or [sort_key(hidden[0], order.is_descending)]
        self._tree.set(
            "order", exp.Order(expressions=[*keys, *(sort_key(value, is_descending=False) for value in ids)])
        )
        for value, name in zip(hidden, _ROW_POSITION_COLUMN_NAMES, strict=True):
            self._tree.append("expressions", exp.alias_(copy_tree(value), name, quoted=True))
        if not self._page.begins_after_last_row:
            return
        time, id_ = map(parameter_node, self._boundary_parameter_names, (exp.DType.TIMESTAMPTZ, exp.DType.TEXT))
        at_or_after, after = (exp.LTE, exp.LT) if order.is_descending else (exp.GTE, exp.GT)
        add_condition(self._tree, at_or_after(this=copy_tree(order.time_column), expression=copy_tree(time)))
        is_later_id = exp.GTE(this=copy_tree(hidden[1]), expression=id_)
        add_condition(
            self._tree, exp.or_(after(this=copy_tree(order.time_column), expression=time), is_later_id, copy=False)
        )

    def _append_sort_keys(self, keys: Sequence[exp.Expr]) -> None:
        order = self._tree.args.get("order")
        self._tree.set("order", exp.Order(expressions=[*(order.expressions if order else ()), *keys]))

    def _column_sort_keys(self) -> list[exp.Expr]:
        """Return the answer's columns as sort keys, except the columns by which the query already sorts.

        Columns with sub-queries are left out, because ClickHouse cannot order by correlated sub-queries.
        """
        order, select = self._tree.args.get("order"), outermost_select(self._tree)
        used = {key.this.name for key in (order.expressions if order else ()) if isinstance(key.this, exp.Literal)}
        indexes = (str(index) for index, item in enumerate(select.expressions, 1) if item.find(exp.Query) is None)
        return [sort_key(exp.Literal.number(index), is_descending=False) for index in indexes if index not in used]


def _find_order_and_row_keys(tree: exp.Expr) -> tuple[_TimeOrder | None, list[exp.Column]]:
    """Return the answer's order by time (None if it has another order), and the columns that identify a row."""
    if not isinstance(tree, exp.Select) or not _is_computed_row_by_row(tree):
        return None, []
    columns = _EventColumnFinder()
    return None if _has_offset(tree) else columns.find_time_order(tree), columns.find_row_key_columns(tree)


def _has_offset(tree: exp.Expr) -> bool:
    return tree.args.get("offset") is not None and literal_row_count(tree.args["offset"]) != 0


def literal_row_count(clause: exp.Expr | None) -> int | None:
    """Return the number in a LIMIT or OFFSET; None without such a clause, or if it is a parameter."""
    rows = None if clause is None else clause.expression
    return int(rows.this) if isinstance(rows, exp.Literal) and rows.is_int else None


def limit_rows(tree: exp.Expr, max_rows: int) -> None:
    """Limit the rows to one more than `max_rows`, so that a cut-off answer is noticed; keep a smaller LIMIT."""
    limit = max_rows + 1
    existing_limit = literal_row_count(tree.args.get("limit"))
    if tree.args.get("limit") is None or (existing_limit is not None and existing_limit > limit):
        tree.set("limit", _row_count_clause(exp.Limit, limit))


def _row_count_or_parameter(clause: exp.Expr | None) -> int | str | None:
    """Return the number in a LIMIT or OFFSET, or the name of the parameter in it."""
    rows = None if clause is None else clause.expression
    parameter = None if rows is None else rows.find(exp.Parameter)
    return literal_row_count(clause) if parameter is None else str(parameter.name)


def _row_count_clause(clause: type[exp.Limit] | type[exp.Offset], rows: int) -> exp.Expr:
    return clause(expression=exp.Literal.number(rows))


def _id_sort_key(column: exp.Column, *, hashes_ids: bool) -> exp.Expr:
    """Return an id or project as a sort key, hashed if it must not be revealed."""
    value = copy_tree(column)
    return digest_call(value) if hashes_ids else value


def _output_from_wrapped_relations(tree: exp.Expr, columns: Iterable[exp.Column]) -> None:
    """Add the columns to the SELECTs that redaction put around relations, which output only what the query read then."""
    wrapped = {
        relation.alias_or_name: relation.this
        for relation in relations_of(tree)
        if isinstance(relation, exp.Subquery) and relation.this.meta_get(RELATION_WRAPPER_METADATA_KEY)
    }
    for column in columns:
        select = wrapped.get(column.table)
        if select is not None and column.name not in (item.alias_or_name for item in select.expressions):
            select.append("expressions", exp.alias_(copy_tree(column), column.name, quoted=True))


def _is_computed_row_by_row(tree: exp.Expr) -> bool:
    """Return whether each row of the outermost SELECT is made from one row of its FROM."""
    if not isinstance(tree, exp.Select) or any(tree.args.get(key) for key in _CLAUSES_COMBINING_ROWS):
        return False
    parts = [*tree.expressions, *(tree.args["order"].expressions if tree.args.get("order") else ())]
    return not any(part.find(exp.AggFunc, exp.Window) for part in parts)


class _EventColumnFinder:
    """Finder of columns that come unchanged from events, through any number of nested queries. It caches the results.

    Without the cache, a chain of forty CTEs that each read the previous CTE twice would be searched along 2^40 paths.
    """

    def __init__(self) -> None:
        self._relations_by_select_id: dict[int, dict[str, exp.Expr]] = {}
        self._is_event_column_by_key: dict[tuple[int, str, str, str], bool] = {}
        self._preserves_rows_by_query_id: dict[int, bool] = {}
        self._query_depth = 0

    def find_time_order(self, tree: exp.Select) -> _TimeOrder | None:
        """Return the order by time if the query sorts by the time of events, or does not sort; None otherwise."""
        order = tree.args.get("order")
        if order is None:
            columns = (
                typed_column(_TIME_COLUMN, relation.alias_or_name, exp.DType.TIMESTAMPTZ)
                for relation in self.relations_by_name(tree).values()
            )
            column = next((column for column in columns if self.is_event_column(column, tree, _TIME_COLUMN)), None)
            return None if column is None else self._order_by_event_time(column, tree, is_descending=True)
        key, *others = order.expressions
        value = _selected_expression(tree, key.this)
        if isinstance(value, exp.Cast) and value.to.this in (exp.DType.DATETIME, exp.DType.TIMESTAMP):
            value = value.this
        if others or not isinstance(value, exp.Column) or not self.is_event_column(value, tree, _TIME_COLUMN):
            return None
        return self._order_by_event_time(value, tree, is_descending=bool(key.args.get("desc")))

    def _order_by_event_time(self, time: exp.Column, tree: exp.Select, *, is_descending: bool) -> _TimeOrder | None:
        """Return the order by this time column; None if the ids of events do not identify the rows."""
        relations = self.relations_by_name(tree).values()
        events = [relation for relation in relations if not isinstance(relation, exp.Unnest)]
        if not all(self._has_unique_event_ids(relation, tree) for relation in events):
            return None
        ids = [typed_column(_ID_COLUMN, relation.alias_or_name, exp.DType.TEXT) for relation in events]
        others = tuple(column for column in ids if column.table != time.table)
        own = next(column for column in ids if column.table == time.table)
        others += tuple(self._find_project_columns(events, tree))
        return _TimeOrder(time, own, is_descending, others, has_array_elements=len(events) < len(relations))

    def _find_project_columns(self, relations: Iterable[exp.Expr], select: exp.Select) -> list[exp.Column]:
        """Return the columns with the projects of events, which distinguish events of several projects with one id.

        A relation that does not pass on the project has no such column.
        """
        columns = (typed_column(_PROJECT_COLUMN, relation.alias_or_name, exp.DType.TEXT) for relation in relations)
        return [column for column in columns if self.is_event_column(column, select, _PROJECT_COLUMN)]

    def find_row_key_columns(self, tree: exp.Select) -> list[exp.Column]:
        """Return the ids and projects of the events from which a row is made; no columns if ids do not identify rows.

        Rows that are made from the elements of one array have the same id, so ids do not identify these rows.
        """
        relations = list(self.relations_by_name(tree).values())
        if not all(self._has_unique_event_ids(relation, tree) for relation in relations):
            return []
        ids = [typed_column(_ID_COLUMN, relation.alias_or_name, exp.DType.TEXT) for relation in relations]
        return ids + self._find_project_columns(relations, tree)

    def _has_unique_event_ids(self, relation: exp.Expr, select: exp.Select) -> bool:
        """Return whether each row of the relation has the id of its event, and no other row of its project has it."""
        if not self.is_event_column(
            typed_column(_ID_COLUMN, relation.alias_or_name, exp.DType.TEXT), select, _ID_COLUMN
        ):
            return False
        query = _query_of_relation(relation)
        return query is None or all(self._preserves_rows(branch) for branch in _union_branches(query))

    def _preserves_rows(self, query: exp.Select) -> bool:
        """Return whether each row of the query, and of all nested queries, is made from one row of one relation."""
        if id(query) not in self._preserves_rows_by_query_id:
            from_ = query.args.get("from_")
            inner = None if from_ is None or query.args.get("joins") else from_.this
            inner_query = None if inner is None else _query_of_relation(inner)
            is_one = inner is not None and _is_computed_row_by_row(query)
            self._preserves_rows_by_query_id[id(query)] = is_one and (
                inner_query is None or all(self._preserves_rows(branch) for branch in _union_branches(inner_query))
            )
        return self._preserves_rows_by_query_id[id(query)]

    def is_event_column(self, column: exp.Column, select: exp.Select, name: str) -> bool:
        """Return whether a column is the column `name` of a stream, passed on unchanged by all queries in between.

        For the time column, return False if an outer join may make it NULL: comparisons with NULL would remove rows.
        """
        key = id(select), column.table, column.name, name
        if key not in self._is_event_column_by_key:
            charge_nodes()
            self._query_depth += 1
            self._is_event_column_by_key[key] = (
                self._query_depth < _MAX_SEARCHED_QUERY_DEPTH and self._is_event_column_uncached(column, select, name)
            )
            self._query_depth -= 1
        return self._is_event_column_by_key[key]

    def _is_event_column_uncached(self, column: exp.Column, select: exp.Select, name: str) -> bool:
        relation = self.relations_by_name(select).get(column.table)
        if relation is None or (name == _TIME_COLUMN and _may_outer_join_fill_nulls(relation, select)):
            return False
        if isinstance(relation, exp.Table) and relation.meta_get("stream"):
            return bool(column.name == name)
        query = _query_of_relation(relation)
        return query is not None and self._preserves_column(query, column.name, name)

    def _preserves_column(self, query: exp.Expr, output: str, name: str) -> bool:
        branches = list(_union_branches(query))
        names = [item.alias_or_name for item in branches[0].expressions] if branches else []
        charge_nodes(len(branches) + len(names))
        if names.count(output) != 1:
            return False
        values = [branch.expressions[names.index(output)].unalias() for branch in branches]
        return all(
            isinstance(value, exp.Column) and self.is_event_column(value, branch, name)
            for value, branch in zip(values, branches, strict=True)
        )

    def relations_by_name(self, select: exp.Select) -> Mapping[str, exp.Expr]:
        """Return the relations of FROM by name; an empty mapping if a join is of a kind other than inner and outer."""
        relations = self._relations_by_select_id.get(id(select))
        if relations is None:
            joins = select.args.get("joins") or []
            is_known = not any(join.method or join.kind in ("SEMI", "ANTI") for join in joins)
            found = relations_of(select) if is_known else ()
            relations = self._relations_by_select_id[id(select)] = {one.alias_or_name: one for one in found}
            charge_nodes(len(relations))
        return relations


def _selected_expression(tree: exp.Select, value: exp.Expr) -> exp.Expr:
    """Return the expression that a sort key refers to; the key may be the number of a column."""
    if isinstance(value, exp.Literal) and value.is_int and int(value.this) <= len(tree.expressions):
        value = tree.expressions[int(value.this) - 1].unalias()
    return value


def _may_outer_join_fill_nulls(relation: exp.Expr, select: exp.Select) -> bool:
    """Return whether an outer join may yield rows in which the relation's columns are NULL."""
    joins = select.args.get("joins") or []
    charge_nodes(len(joins))
    if any(join.side in ("RIGHT", "FULL") for join in joins):
        return True
    clause = relation.parent
    if clause is None or clause.parent is not select:
        # The relation is part of a parenthesised join. The joins in the parentheses are not examined, so return True.
        return True
    return isinstance(clause, exp.Join) and bool(clause.side)


def _query_of_relation(relation: exp.Expr) -> exp.Expr | None:
    """Return the query of a relation; None for a stream, or for a CTE that may be recursive."""
    charge_nodes()
    container = non_recursive_cte(relation) if isinstance(relation, exp.Table) else relation
    return container.this if isinstance(container, exp.CTE | exp.Subquery) else None


def _union_branches(query: exp.Expr) -> Iterable[exp.Select]:
    """Return the SELECTs of a union; an empty list for any other set operation."""
    pending = [query]
    found = []
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Select):
            found.append(node)
        elif isinstance(node, exp.Union):
            pending += [node.expression, node.this]
        elif isinstance(node, exp.Subquery):
            pending.append(node.this)
        else:
            return []
    return found


def _restrict_to_received_events(table: exp.Table) -> None:
    """Restrict a read of a stream to the events received up to the time of the call.

    On the right side of a LEFT JOIN, the condition is added to ON. In other outer joins, no condition is added.
    """
    clause = table.parent
    select = clause.parent if clause is not None else None
    if not isinstance(select, exp.Select) or not isinstance(clause, exp.From | exp.Join):
        return
    now = parameter_node(NOW_SLOT_NAME, exp.DType.TIMESTAMPTZ)
    condition = exp.LTE(
        this=typed_column(_RECEIPT_TIME_COLUMN, table.alias_or_name, exp.DType.TIMESTAMPTZ), expression=now
    )
    if isinstance(clause, exp.Join) and clause.side == "LEFT" and clause.args.get("on") is not None:
        clause.set("on", exp.and_(clause.args["on"], condition, copy=False))
    elif not _may_outer_join_fill_nulls(table, select):
        add_condition(select, condition)
