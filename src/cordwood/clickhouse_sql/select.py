"""Translation of ClickHouse queries to the syntax trees of equivalent BigQuery queries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.aliases import ExpandedSelect, canonical_text, expand_aliases, has_aggregate
from cordwood.clickhouse_sql.calls import FunctionCall
from cordwood.clickhouse_sql.column_names import column_name
from cordwood.clickhouse_sql.comparisons import as_number
from cordwood.clickhouse_sql.functions import TRANSLATOR_BY_FUNCTION
from cordwood.clickhouse_sql.functions.aggregates import translate_aggregate
from cordwood.clickhouse_sql.functions.maps_and_arrays import JSON_EXTRACTOR_BY_TYPE
from cordwood.clickhouse_sql.scope import (
    ARRAY_ELEMENT_REFERENCE_KIND,
    LOG_ATTRIBUTES_COLUMN,
    LOGS_TABLE_NAME,
    ArrayJoinedRows,
    DerivedTableBranch,
    FilteredBranch,
    RowScope,
    RowSource,
    RowValueReference,
    UnionRows,
    column_node,
    column_reference,
)
from cordwood.clickhouse_sql.translate import ExpressionTranslator, FilterCondition, convert_to_type, map_as_json
from cordwood.clickhouse_sql.values import (
    NOT_CONSTANT,
    NUMBER_TYPE_NAMES,
    STRING,
    ClickHouseType,
    TypedValue,
    common_type,
    fill_template,
)
from cordwood.errors import QueryRefused, QueryUnsupported, UnknownNameInQuery
from cordwood.model.definitions import Parameter
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.diagnostics import span_of
from cordwood.sql.nodes import internal_call, internal_function_name


class _NamedQuery(msgspec.Struct, frozen=True):
    """A query or value that WITH defines, with the definitions before it, to which it can refer.

    `is_scalar_expression` is set for a value, as in `WITH 5 AS five`.
    """

    query_or_expression: exp.Expr
    visible_queries: "_NamedQueries"
    is_scalar_expression: bool = False


_SUB_QUERY_HINT: Final = "Write it in FROM, as in SELECT … FROM (SELECT …), or send two queries."
# The LIMIT that is added to a query with OFFSET alone, because BigQuery allows OFFSET only after LIMIT.
_LIMIT_FOR_OFFSET_ALONE: Final = 2**62
_NamedQueries = Mapping[str, _NamedQuery]


class TranslatedQuery(msgspec.Struct, frozen=True):
    """A translated query: its tree, and its columns with their types."""

    tree: exp.Expr
    columns: tuple[tuple[str, TypedValue], ...]


class QueryTranslator(msgspec.Struct):
    """The translator of a whole query.

    `make_log_branches` is called for each SELECT that reads the table `logs`. It returns the queries whose union is
    this table. An answer of at most `max_rows` rows fits on one page.
    """

    query_text: str
    make_log_branches: Callable[[], Sequence[RowSource]]
    endpoint_parameters: Mapping[str, Parameter]
    max_rows: int

    def translate_to_answer(self, node: exp.Expr) -> exp.Expr:
        """Return the tree of the whole query, whose columns have the form of the answer's JSON."""
        translated = self.translate(node, is_outermost=True)
        for select in _selects_of_union(translated.tree):
            for item, (_, value) in zip(select.expressions, translated.columns, strict=True):
                item.set("this", _to_json_answer_node(msgspec.structs.replace(value, node=item.this.pop())))
        return translated.tree

    def translate(self, node: exp.Expr, names: _NamedQueries | None = None, *, is_outermost: bool) -> TranslatedQuery:
        charge_nodes()
        names = self._read_with_clause(node, names or {})
        if isinstance(node, exp.Subquery):
            return self.translate(node.this, names, is_outermost=is_outermost)
        if isinstance(node, exp.Union):
            return self._translate_union(node, names, is_outermost=is_outermost)
        if not isinstance(node, exp.Select):
            raise self._refused_error(node, "Only a SELECT can be sent.")
        return _SelectTranslator(self, names, is_outermost).translate(node)

    def _read_with_clause(self, node: exp.Expr, outer_queries: _NamedQueries) -> _NamedQueries:
        with_ = node.args.get("with_")
        named_queries = dict(outer_queries)
        for cte in with_.expressions if with_ is not None else ():
            is_value = bool(cte.args.get("scalar"))
            if is_value is isinstance(cte.this, exp.Query):
                raise self._refused_error(cte, "A query cannot stand in an expression.", _SUB_QUERY_HINT)
            named_queries = {**named_queries, cte.alias: _NamedQuery(cte.this, named_queries, is_value)}
        return named_queries

    def _translate_union(self, node: exp.Union, names: _NamedQueries, *, is_outermost: bool) -> TranslatedQuery:
        """Translate a UNION ALL; walk its branches without recursion, because a long chain of them is a deep tree."""
        parts: list[exp.Expr] = []
        left: exp.Expr = node
        while isinstance(left, exp.Union):
            if left.args.get("distinct") is not False:
                raise self._refused_error(left, "UNION is refused.", "Write UNION ALL.")
            parts.append(left.expression)
            left = left.this
        parts.append(left)
        translated = [self.translate(part, names, is_outermost=is_outermost) for part in reversed(parts)]
        columns = self._unify_union_columns(node, translated)
        tree = _parenthesize_if_ordered_or_limited(translated[0].tree)
        for branch in translated[1:]:
            tree = exp.Union(this=tree, expression=_parenthesize_if_ordered_or_limited(branch.tree), distinct=False)
        return TranslatedQuery(tree, columns)

    def _unify_union_columns(
        self, node: exp.Expr, translated: Sequence[TranslatedQuery]
    ) -> tuple[tuple[str, TypedValue], ...]:
        """Convert the columns of all branches to common types; return the columns of the union."""
        for branch in translated[1:]:
            if len(branch.columns) != len(translated[0].columns):
                message = (
                    f"The branches of UNION ALL have {len(translated[0].columns)} and {len(branch.columns)} columns."
                )
                raise self._refused_error(node, message, "Select as many in each.")
        return tuple(
            (name, self._unify_union_column(node, translated, index))
            for index, (name, _) in enumerate(translated[0].columns)
        )

    def _unify_union_column(self, node: exp.Expr, translated: Sequence[TranslatedQuery], index: int) -> TypedValue:
        name, first = translated[0].columns[index]
        values = [branch.columns[index][1] for branch in translated]
        type_ = first.type
        for value in values[1:]:
            common = _common_column_type(type_, value.type)
            if common is None:
                message = f'The column "{name[:40]}" is {type_.with_article} in one branch and {value.type.with_article} in another.'
                raise self._refused_error(node, message, "Convert one of them, as in toString(…).")
            type_ = common
        converter = self.expression_translator(DerivedTableBranch(_one_row_query(), {}))
        for branch, value in zip(translated, values, strict=True):
            for select in _selects_of_union(branch.tree) if value.type.name != type_.name else ():
                item = select.expressions[index]
                selected = TypedValue(item.this.pop(), value.type)
                item.set("this", convert_to_type(converter, node, selected, type_))
        if any(_type_of_map_values(value) != _type_of_map_values(first) for value in values):
            message = f'The values of the map "{name[:40]}" have different types in the branches.'
            raise self._refused_error(node, message, "Convert them, as in toString(…).")
        is_constant = all(value.type == first.type and value.constant_value == first.constant_value for value in values)
        return msgspec.structs.replace(
            first, type=type_, constant_value=first.constant_value if is_constant else NOT_CONSTANT
        )

    def expression_translator(self, row: RowScope) -> ExpressionTranslator:
        return ExpressionTranslator(self.query_text, row, TRANSLATOR_BY_FUNCTION, self.endpoint_parameters)

    def branches_of_from_clause(
        self, select: exp.Expr, names: _NamedQueries
    ) -> tuple[Sequence[RowSource], tuple[str, ...]]:
        """Return the branches that the SELECT's FROM reads, and the table names that may stand before its columns."""
        from_ = select.args.get("from_")
        if from_ is None:
            return [DerivedTableBranch(_one_row_query(), {})], ()
        source = from_.this
        if isinstance(source, exp.Subquery):
            return [self._derived_table_branch(source.this, names)], (source.alias,) if source.alias else ()
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            raise self._refused_error(source, "Table functions are refused.", "Read FROM logs.")
        qualifiers = (source.alias or source.name, source.name)
        if source.name in names and not names[source.name].is_scalar_expression:
            named = names[source.name]
            return [self._derived_table_branch(copy_tree(named.query_or_expression), named.visible_queries)], qualifiers
        if source.name != LOGS_TABLE_NAME:
            raise QueryRefused(
                f'"{source.name[:60]}" cannot be read here.',
                hint="There is one table: logs. Write WHERE source = 'edge_logs' for the events of one source.",
                span=span_of(source, self.query_text),
            )
        return self.make_log_branches(), qualifiers

    def _derived_table_branch(self, node: exp.Expr, names: _NamedQueries) -> RowSource:
        translated = self.translate(node, names, is_outermost=False)
        columns: dict[str, TypedValue] = {}
        for name, value in translated.columns:
            if name in columns:
                raise self._refused_error(node, f'Two columns are called "{name[:60]}".', "Give one of them an alias.")
            columns[name] = msgspec.structs.replace(
                value,
                node=column_node(name),
                default_for_null=None,
                map_entries=self._entries_of_map_column(node, name, value),
            )
        return DerivedTableBranch(translated.tree, columns)

    def _entries_of_map_column(
        self, node: exp.Expr, name: str, value: TypedValue
    ) -> tuple[tuple[str, TypedValue], ...] | None:
        """Return the entries of a map that is a derived table's column, which contains the map as JSON.

        Return None for a map of texts, because any key of it can be read as a text.
        """
        type_ = _type_of_map_values(value)
        if type_ is None or value.map_entries is None:
            return None
        extractor = JSON_EXTRACTOR_BY_TYPE.get(type_.name)
        if extractor is None or type_.is_nullable:
            message = f'A query cannot read the map "{name[:40]}", whose values are of the type {type_}.'
            raise self._refused_error(node, message, "Select its values as columns of their own.")
        function, _, default = extractor
        return tuple(
            (
                key,
                TypedValue(
                    internal_call(function, column_node(name), exp.Literal.string(key)), type_, default_for_null=default
                ),
            )
            for key, _ in value.map_entries
        )

    def _refused_error(self, node: exp.Expr, message: str, hint: str | None = None) -> QueryRefused:
        return QueryRefused(message, hint=hint, span=span_of(node, self.query_text))


def _selects_of_union(tree: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the SELECTs of a union, or the SELECT itself; walk without recursion, because a union may be long."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Union):
            pending += [node.expression, node.this]
        elif isinstance(node, exp.Subquery):
            pending.append(node.this)
        else:
            yield node


def _common_column_type(first: ClickHouseType, second: ClickHouseType) -> ClickHouseType | None:
    """Return the type of a column of a union whose branches have two types; None if they are not supported together.

    A Bool and a number are not supported, because ClickHouse then makes a Bool of the number. An array and NULL are
    not, because not all engines have a NULL in place of an array.
    """
    names = {first.name, second.name}
    if len(names) > 1 and (("Bool" in names and names <= set(NUMBER_TYPE_NAMES)) or names == {"Array", "Nothing"}):
        return None
    return common_type(first, second)


def _type_of_map_values(value: TypedValue) -> ClickHouseType | None:
    """Return the type of the values of a map; return None for texts, and for a value that is not a map."""
    if not value.map_entries or value.map_entries[0][1].type == STRING:
        return None
    return value.map_entries[0][1].type


def _parenthesize_if_ordered_or_limited(tree: exp.Expr) -> exp.Expr:
    has_modifiers = any(tree.args.get(key) for key in ("order", "limit", "offset"))
    return exp.Subquery(this=tree) if has_modifiers else tree


def _one_row_query() -> exp.Expr:
    return exp.Select(expressions=[exp.Alias(this=exp.Literal.number(1), alias=exp.to_identifier("c0", quoted=True))])


class _GroupTranslator(ExpressionTranslator, kw_only=True):
    """The translator of expressions over groups, in which only keys of GROUP BY and aggregates can be read.

    `row_translator` translates the arguments of aggregates, which are evaluated for each row.
    """

    row_translator: ExpressionTranslator
    group_keys: Mapping[str, RowValueReference]

    def translate_expression(self, node: exp.Expr) -> TypedValue:
        key = self._group_key_value(node)
        if key is not None:
            return key
        try:
            return super().translate_expression(node)
        except QueryUnsupported as fault:
            if fault.span is not None:
                raise
            raise QueryUnsupported(fault.message, hint=fault.hint, span=self.span(node)) from fault

    def translate_filter_condition(self, node: exp.Expr) -> FilterCondition:
        key = self._group_key_value(node)
        if key is None:
            return super().translate_filter_condition(node)
        return FilterCondition(ExpressionTranslator.condition_value(self, node).node_with_default_for_null())

    def _group_key_value(self, node: exp.Expr) -> TypedValue | None:
        if not self.group_keys or isinstance(node.unnest(), exp.Literal):
            return None
        item = self.group_keys.get(canonical_text(node))
        return None if item is None else self.row_translator.row_scope.resolve_reference(item)

    def translate_call(self, call: FunctionCall) -> TypedValue:
        return translate_aggregate(self.row_translator, call) if call.is_aggregate else super().translate_call(call)


class _GroupedRowScope:
    """The row scope of a grouped query. It refuses each column, because only keys and aggregates can be read."""

    has_attributes = True

    def __init__(self, text: str) -> None:
        self._query_text = text

    def resolve_reference(self, item: RowValueReference) -> TypedValue | None:
        subject = f"log_attributes['{item.name}']" if item.reference_kind == "attribute" else item.name
        raise QueryUnsupported(
            f"{subject[:80]} is neither aggregated nor in GROUP BY.",
            hint="Add it to GROUP BY, or write any(…) around it.",
        )


class _SelectTranslator(msgspec.Struct):
    """The translator of one SELECT."""

    query_translator: QueryTranslator
    visible_queries: _NamedQueries
    is_outermost: bool
    expression_by_name: dict[str, exp.Expr] = {}

    def translate(self, select: exp.Expr) -> TranslatedQuery:
        branches, tables = self.query_translator.branches_of_from_clause(select, self.visible_queries)
        self._check_qualifiers(select, tables)
        values = {
            name: named_query.query_or_expression
            for name, named_query in self.visible_queries.items()
            if named_query.is_scalar_expression
        }
        qualified_column = _qualified_column_finder(branches, tables)
        expanded = expand_aliases(select, self.query_translator.query_text, values, qualified_column)
        filtered_branches, array_conditions = self._prune_branches(branches, expanded)
        arrays = self._collect_array_join_arrays(expanded)
        if arrays:
            joined_rows = self._make_array_joined_rows(filtered_branches, arrays)
            condition = self._translate_conjunction(joined_rows, array_conditions)
            filtered_branches = [
                FilteredBranch(joined_rows, None if condition.constant_value is True else condition.node)
            ]
        if self._needs_aggregation(expanded):
            return self._translate_aggregated(expanded, filtered_branches)
        return self._translate_unaggregated(expanded, filtered_branches)

    def _check_qualifiers(self, select: exp.Expr, tables: Sequence[str]) -> None:
        for node in select.walk(prune=lambda node: isinstance(node, exp.Query) and node is not select):
            if isinstance(node, exp.Column) and node.table and node.table not in tables:
                hint = "Write log_attributes['a.b'] for a field of the event."
                span = span_of(node, self.query_translator.query_text)
                raise UnknownNameInQuery(f'There is no table "{node.table[:60]}" here.', hint=hint, span=span)

    def _expression_translator(self, row: RowScope) -> ExpressionTranslator:
        return self.query_translator.expression_translator(row)

    def _translate_named_expression(self, row: RowScope, name: str) -> TypedValue:
        return self._expression_translator(row).value_with_default_for_null(self.expression_by_name[name])

    def _translate_conjunction(self, row: RowScope, conjuncts: Sequence[exp.Expr]) -> FilterCondition:
        tree = conjuncts[0] if conjuncts else exp.Boolean(this=True)
        for part in conjuncts[1:]:
            tree = exp.And(this=tree, expression=part)
        return self._expression_translator(row).translate_filter_condition(tree)

    def _prune_branches(
        self, branches: Sequence[RowSource], expanded: ExpandedSelect
    ) -> tuple[list[FilteredBranch], list[exp.Expr]]:
        """Return the branches that WHERE does not exclude, with their filters, and the conditions on array elements.

        At least one branch is returned. The caller must apply the conditions on array elements after it has joined the
        arrays.
        """
        array_conditions = [part for part in expanded.where_conjuncts if _has_array_join(part)]
        row_conditions = [part for part in expanded.where_conjuncts if not _has_array_join(part)]
        conditions = [(branch, self._translate_conjunction(branch, row_conditions)) for branch in branches]
        remaining = [pair for pair in conditions if pair[1].constant_value is not False] or conditions[:1]
        filtered = [
            FilteredBranch(branch, None if where.constant_value is True else where.node) for branch, where in remaining
        ]
        return filtered, array_conditions

    def _collect_array_join_arrays(self, expanded: ExpandedSelect) -> list[exp.Expr]:
        """Return the distinct arrays of arrayJoin calls, and store the array's number on the node of each call."""
        arrays: dict[str, exp.Expr] = {}
        for part in _all_expressions(expanded):
            for node in part.walk():
                if not _is_array_join(node):
                    continue
                if _has_array_join(node.this):
                    raise QueryUnsupported(
                        "arrayJoin within arrayJoin is not supported.",
                        span=span_of(node, self.query_translator.query_text),
                    )
                name = canonical_text(node.this)
                arrays.setdefault(name, node.this)
                node.meta[ARRAY_ELEMENT_REFERENCE_KIND] = list(arrays).index(name)
        return list(arrays.values())

    def _make_array_joined_rows(
        self, filtered: Sequence[FilteredBranch], arrays: Sequence[exp.Expr]
    ) -> ArrayJoinedRows:
        union = UnionRows(filtered, self._translate_named_expression)
        inner = self._expression_translator(union)
        return ArrayJoinedRows(union, [inner.array_value(array) for array in arrays])

    def _needs_aggregation(self, expanded: ExpandedSelect) -> bool:
        if expanded.is_grouped or expanded.is_distinct or expanded.having_condition is not None:
            return True
        return any(map(has_aggregate, _all_expressions(expanded)))

    def _translate_unaggregated(self, expanded: ExpandedSelect, filtered: list[FilteredBranch]) -> TranslatedQuery:
        """Translate a query without aggregation; limit the rows of several branches before their union."""
        if len(filtered) == 1:
            return self._translate_single_branch(
                expanded, self._expression_translator(filtered[0].row_source), filtered[0]
            )
        branch_limit = self._branch_row_limit(expanded)
        union = UnionRows(filtered, self._translate_named_expression, branch_row_limit=branch_limit)
        if branch_limit is not None:
            for branch in filtered:
                branch.order_by = self._order_by_clause(expanded, self._expression_translator(branch.row_source))
        return self._translate_single_branch(expanded, self._expression_translator(union), FilteredBranch(union))

    def _branch_row_limit(self, expanded: ExpandedSelect) -> int | None:
        """Return how many rows each branch must return to its union; return None if it must return all rows.

        If the answer may have several pages, all rows are needed. Pages depend on a fixed order of the rows, and rows
        with equal sort keys get a fixed order only after the union.
        """
        if expanded.row_limit is None or (self.is_outermost and expanded.row_limit > self.query_translator.max_rows):
            return None
        return expanded.row_limit + expanded.row_offset

    def _translate_single_branch(
        self, expanded: ExpandedSelect, translator: ExpressionTranslator, filtered: FilteredBranch
    ) -> TranslatedQuery:
        columns = [(item.name, self._output_value(translator, item.node)) for item in expanded.columns]
        order = self._order_by_clause(expanded, translator)
        return self._make_select(expanded, columns, filtered, order)

    def _translate_aggregated(self, expanded: ExpandedSelect, filtered: list[FilteredBranch]) -> TranslatedQuery:
        union = UnionRows(filtered, self._translate_named_expression)
        rows = self._expression_translator(union)
        key_nodes = (
            [item.node for item in expanded.columns]
            if self._groups_by_all_columns(expanded)
            else list(expanded.group_keys)
        )
        keys: dict[str, RowValueReference] = {}
        for key in key_nodes:
            if has_aggregate(key):
                raise QueryRefused("An aggregate cannot be a key.", span=span_of(key, self.query_translator.query_text))
            name = canonical_text(key)
            self.expression_by_name[name] = key
            keys[name] = RowValueReference("expression", name)
        grouping = [self._group_key(union, row_item) for row_item in keys.values()]
        text = self.query_translator.query_text
        groups = _GroupTranslator(
            text,
            _GroupedRowScope(text),
            TRANSLATOR_BY_FUNCTION,
            self.query_translator.endpoint_parameters,
            row_translator=rows,
            group_keys=keys,
        )
        columns = [(item.name, self._output_value(groups, item.node)) for item in expanded.columns]
        order = self._order_by_clause(expanded, groups)
        having_condition = (
            groups.translate_filter_condition(expanded.having_condition)
            if expanded.having_condition is not None
            else None
        )
        group = exp.Group(expressions=grouping) if grouping else None
        translated = self._make_select(
            expanded, columns, FilteredBranch(union), order, group=group, having=having_condition
        )
        if group is None and any(map(has_aggregate, _all_expressions(expanded))):
            _keep_single_group(translated.tree)
        return translated

    def _groups_by_all_columns(self, expanded: ExpandedSelect) -> bool:
        """Return whether DISTINCT groups the SELECT by all its columns; refuse DISTINCT together with aggregates."""
        if not expanded.is_distinct:
            return False
        if expanded.is_grouped or any(has_aggregate(item.node) for item in expanded.columns):
            raise QueryUnsupported("DISTINCT beside aggregates is not supported.")
        return True

    def _group_key(self, union: UnionRows, item: RowValueReference) -> exp.Expr:
        value = union.resolve_reference(item)
        if value is None or value.type.name in ("Map", "Interval"):
            key, text = self.expression_by_name[item.name], self.query_translator.query_text
            name = column_name(key, text)[:60]
            raise QueryUnsupported(f"Rows cannot be grouped by {name}.", span=span_of(key, text))
        return value.node

    def _order_by_clause(self, expanded: ExpandedSelect, translator: ExpressionTranslator) -> exp.Expr | None:
        orders: list[exp.Expr] = []
        for ordering in expanded.sort_keys:
            value = translator.value_with_default_for_null(ordering.node)
            if value.is_constant:
                continue
            if value.type.name in ("Map", "Interval"):
                raise translator.refused_error(ordering.node, f"Rows cannot be ordered by {value.type.with_article}.")
            nulls_first = ordering.nulls_first if value.type.is_nullable else not ordering.is_descending
            node = value.node
            if value.type.name == "Float64":
                node, nulls_first = internal_call("not_nan", node), False if not value.type.is_nullable else nulls_first
            orders.append(exp.Ordered(this=node, desc=ordering.is_descending, nulls_first=nulls_first))
        return exp.Order(expressions=orders) if orders else None

    def _output_value(self, translator: ExpressionTranslator, node: exp.Expr) -> TypedValue:
        value = translator.translate_expression(node)
        if self.is_outermost and isinstance(node.unnest(), exp.Column) and node.unnest().name == "event_message":
            # Do not put the default in place of NULL here, so that the message stays a plain column. Plain columns are
            # redacted only after the answer's rows are chosen.
            return msgspec.structs.replace(value, default_for_null=None)
        value = value.with_default_for_null()
        if value.type.name == "Map":
            return map_as_json(translator, node, value)
        if value.type.name == "Nothing":
            return msgspec.structs.replace(value, node=exp.Null())
        if value.type.name == "Interval":
            raise translator.refused_error(node, "An interval cannot be selected.")
        return value

    def _make_select(
        self,
        expanded: ExpandedSelect,
        columns: list[tuple[str, TypedValue]],
        filtered: FilteredBranch,
        order: exp.Expr | None,
        *,
        group: exp.Expr | None = None,
        having: FilterCondition | None = None,
    ) -> TranslatedQuery:
        items = [exp.Alias(this=value.node, alias=exp.to_identifier(name, quoted=True)) for name, value in columns]
        select = exp.Select(expressions=items, from_=exp.From(this=filtered.row_source.build_relation()))
        if filtered.where_condition is not None:
            select.set("where", exp.Where(this=filtered.where_condition))
        if group is not None:
            select.set("group", group)
        if having is not None and having.constant_value is not True:
            select.set("having", exp.Having(this=having.node))
        if order is not None:
            select.set("order", order)
        limit = _LIMIT_FOR_OFFSET_ALONE if expanded.row_limit is None and expanded.row_offset else expanded.row_limit
        if limit is not None:
            select.set("limit", exp.Limit(expression=exp.Literal.number(limit)))
        if expanded.row_offset:
            select.set("offset", exp.Offset(expression=exp.Literal.number(expanded.row_offset)))
        return TranslatedQuery(select, tuple(columns))


def _keep_single_group(select: exp.Expr) -> None:
    """Make a SELECT without GROUP BY return one row, even if no aggregate is left in it.

    The translation leaves out aggregates that do not change a value, as in `count() IS NULL`. Without any aggregate,
    the SELECT would return one row for each row that it reads.
    """
    clauses = [*select.expressions, *(select.args[key] for key in ("having", "order") if select.args.get(key))]
    charge_nodes(1)
    if any(_is_aggregate_node(node) for clause in clauses for node in clause.walk()):
        return
    condition = fill_template("count(*) >= 0")
    having = select.args.get("having")
    if having is not None:
        condition = exp.And(this=exp.Paren(this=having.this), expression=condition)
    select.set("having", exp.Having(this=condition))


_INTERNAL_AGGREGATE_NAMES: Final = frozenset(map(internal_function_name, ("quantile", "quantile_tdigest")))


def _is_aggregate_node(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Anonymous) and node.this in _INTERNAL_AGGREGATE_NAMES)


def _qualified_column_finder(branches: Sequence[RowSource], tables: Sequence[str]) -> Callable[[str], str | None]:
    """Return a function that returns a column's name with its table; None if there is no such column or no table name.

    Aliases do not hide columns with the name of the table before them.
    """

    def qualified_column(name: str) -> str | None:
        is_column = any(
            branch.resolve_reference(column_reference(name)) is not None
            or (branch.has_attributes and name == LOG_ATTRIBUTES_COLUMN)
            for branch in branches[:1]
        )
        return f"{tables[0]}.{name}" if is_column and tables else None

    return qualified_column


def _to_json_answer_node(value: TypedValue) -> exp.Expr:
    """Return the value in the form of the answer's JSON.

    Times are texts with microseconds, conditions are 0 and 1, and floats that are not finite are NULL.
    """
    if value.type.name == "Nothing":
        return fill_template("cast(null as string)")
    if isinstance(value.node, exp.Null):
        return value.node
    match value.type.name:
        case "DateTime":
            return internal_call("iso_time", value.node)
        case "UInt8":
            return as_number(value).node
        case "Float64" if not value.is_constant:
            return internal_call("finite", value.node)
    return value.node


def _all_expressions(expanded: ExpandedSelect) -> Iterator[exp.Expr]:
    yield from (item.node for item in expanded.columns)
    yield from expanded.where_conjuncts
    yield from expanded.group_keys
    if expanded.having_condition is not None:
        yield expanded.having_condition
    yield from (ordering.node for ordering in expanded.sort_keys)


def _is_array_join(node: exp.Expr) -> bool:
    return isinstance(node, exp.Explode)


def _has_array_join(node: exp.Expr) -> bool:
    return any(map(_is_array_join, node.walk()))
