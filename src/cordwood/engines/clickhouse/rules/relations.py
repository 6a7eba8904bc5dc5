"""Rules for relations: UNNEST and joins in FROM, sub-queries, result columns, arrays of queries, and set operations.

ClickHouse does not accept a parenthesis right after WITH. A query with such a parenthesis is rewritten, so that it
begins with SELECT. If EXISTS reads only arrays of the outer row, it becomes array functions, because ClickHouse's
sub-queries cannot express it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.aggregates import collect_array
from cordwood.engines.clickhouse.rules.building_blocks import (
    EVENT_NUMBER_RULES,
    convert_implicitly,
    type_name_node,
    typed_null,
)
from cordwood.engines.clickhouse.rules.events import group_by_attached_texts
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import BOOL, common_stored_type, datatype_of, kind_of, set_datatype
from cordwood.sql.grouping import grouping_keys, resolve_group_ordinal
from cordwood.sql.lowering import RuleSet, fragment_node, identifier_node, placeholders_text, raise_unsupported
from cordwood.sql.nodes import (
    constant_int,
    constant_text,
    is_null,
    joined_relations,
    may_be_number,
    replace_node,
    split_and_conditions,
)
from cordwood.sql.rules.aggregates import AggregateArgument


def _translate_unnest(node: exp.Expr) -> exp.Expr:
    if isinstance(node.parent, (exp.In, exp.Any, exp.All, exp.Join)):
        return node
    return _unnest_to_relation(node)


def _unnest_to_relation(node: exp.Expr) -> exp.Expr:
    relation, name = _relation_and_column_names(node)
    offset = node.args.get("offset")
    array = node.expressions[0]
    element = _array_element_type(array)
    column = exp.to_identifier(name or "_element", quoted=True)
    if isinstance(offset, exp.Identifier):
        pair = "(arrayJoin(arrayZip({0}, arrayEnumerate({0}))) AS _z)"
        fields, labels = _field_columns_template(element, "{1}", first=3)
        source = f"(SELECT {pair}.1 AS {{1}}, toInt64(_z.2) - 1 AS {{2}}{fields})"
        lowered = fragment_node(source, array, column, identifier_node(offset.name), *labels)
    else:
        fields, labels = _field_columns_template(element, "{1}", first=2)
        lowered = fragment_node(f"(SELECT arrayJoin({{0}}) AS {{1}}{fields})", array, column, *labels)
    return exp.Alias(this=lowered, alias=exp.to_identifier(relation, quoted=True)) if relation else lowered


def _field_columns_template(element: Datatype | None, name: str, first: int) -> tuple[str, list[exp.Expr]]:
    """Return template text that selects the fields of the struct `name` as columns, and the names of these columns.

    The names fill the template's placeholders from `first` on.
    """
    fields = element.fields if element is not None and element.kind is Kind.STRUCT else ()
    labels = [(index, label) for index, (label, _) in enumerate(fields, 1) if label]
    columns_sql = (
        f", tupleElement({name}, {index}) AS {{{placeholder}}}" for placeholder, (index, _) in enumerate(labels, first)
    )
    return "".join(columns_sql), [identifier_node(label) for _, label in labels]


def _relation_and_column_names(node: exp.Expr) -> tuple[str, str]:
    """Return the name of an UNNEST's relation and the name of the relation's column."""
    alias = node.args.get("alias")
    names = [column.name for column in alias.columns] if alias else []
    relation = alias.name if alias and alias.name else (names[0] if names else "")
    return relation, names[0] if names else relation


def _array_element_type(array: exp.Expr) -> Datatype | None:
    datatype = datatype_of(array)
    return datatype.element if datatype and datatype.kind is Kind.ARRAY else None


def _translate_join(node: exp.Expr) -> exp.Expr:
    """Translate a join with UNNEST: to an ARRAY JOIN if the array depends on the row, otherwise to a normal join."""
    unnest = node.this
    if not isinstance(unnest, exp.Unnest):
        return node
    if not _reads_outer_row(unnest.expressions[0]):
        node.set("this", _unnest_to_relation(unnest))
        return node
    return _make_array_join(node, unnest)


# The name of the internal operation that stands for a join condition which always holds. Its arguments are a column of
# the left side and a column of the right side.
_ALWAYS_TRUE_JOIN_FUNCTION: Final = "$any_key"


def _add_join_key(node: exp.Expr) -> exp.Expr:
    """Add an equality that always holds to an outer join whose condition has no equality between the two sides.

    This is needed because ClickHouse requires an equality as the join key.
    """
    condition = node.args.get("on")
    if condition is None or not node.args.get("side"):
        return node
    relations = {relation.alias_or_name for relation in joined_relations(node.this)}
    if any(_is_join_key(part, relations) for part in split_and_conditions(exp.Where(this=copy_tree(condition)))):
        return node
    columns = list(condition.find_all(exp.Column))
    sides = [
        next((column for column in columns if (column.table in relations) is is_own), None) for is_own in (False, True)
    ]
    if None not in sides:
        key = exp.Anonymous(
            this=_ALWAYS_TRUE_JOIN_FUNCTION, expressions=[copy_tree(column) for column in sides if column is not None]
        )
        node.set("on", exp.And(this=set_datatype(key, BOOL), expression=exp.Paren(this=copy_tree(condition))))
    return node


def _is_join_key(part: exp.Expr, relations: set[str]) -> bool:
    """Return whether the condition is an equality between a value of one side and a value of the other side."""
    if not isinstance(part, exp.EQ):
        return False
    sides = [{column.table in relations for column in side.find_all(exp.Column)} for side in (part.left, part.right)]
    return sides in ([{True}, {False}], [{False}, {True}])


def _translate_always_true_join(node: exp.Expr) -> exp.Expr:
    return fragment_node("(ignore({0}) = ignore({1}))", *node.expressions)


def _reads_outer_row(array: exp.Expr) -> bool:
    return any(True for _ in array.find_all(exp.Column))


def _make_array_join(node: exp.Expr, unnest: exp.Expr) -> exp.Expr:
    """Return an ARRAY JOIN with the elements of the array for which the join's condition holds.

    The names of its columns begin with the relation's name.
    """
    relation, name = _relation_and_column_names(unnest)
    offset = unnest.args.get("offset")
    position_name = offset.name if isinstance(offset, exp.Identifier) else ""
    array, positions = _filtered_elements(unnest.expressions[0], node.args.get("on"), (relation, name, position_name))
    columns = [_array_join_column(array, relation, name)]
    if position_name:
        columns.append(_array_join_column(positions, relation, position_name))
    columns += _field_columns(unnest.expressions[0], array, relation, name)
    side = "LEFT" if str(node.args.get("side") or "").upper() == "LEFT" else None
    return exp.Join(this=columns[0], expressions=columns[1:], kind="ARRAY", side=side)


_ELEMENT_POSITIONS_SQL: Final = "arrayMap(_i -> CAST(toInt64(_i) - 1, 'Nullable(Int64)'), arrayEnumerate({0}))"


def _filtered_elements(
    array: exp.Expr, condition: exp.Expr | None, names: tuple[str, str, str]
) -> tuple[exp.Expr, exp.Expr]:
    """Return the array of the elements for which the join's condition holds, and the array of their positions."""
    positions = fragment_node(_ELEMENT_POSITIONS_SQL, copy_tree(array))
    if condition is None or isinstance(condition, exp.Boolean):
        return array, positions
    filter_condition = _condition_for_element(condition, *names)
    return (
        fragment_node("arrayFilter((_e, _o) -> {2}, {0}, {1})", array, positions, filter_condition),
        fragment_node(
            "arrayFilter((_o, _e) -> {2}, {0}, {1})",
            copy_tree(positions),
            copy_tree(array),
            copy_tree(filter_condition),
        ),
    )


def _field_columns(unnested: exp.Expr, array: exp.Expr, relation: str, name: str) -> list[exp.Expr]:
    """Return the fields of the unnested structs as columns of the relation."""
    element = _array_element_type(unnested)
    columns = []
    for index, (label, _) in enumerate(element.fields if element else (), 1):
        if label and label != name:
            fields = fragment_node(f"arrayMap(_e -> tupleElement(_e, {index}), {{0}})", copy_tree(array))
            columns.append(_array_join_column(fields, relation, label))
    return columns


def _condition_for_element(condition: exp.Expr, relation: str, name: str, offset: str) -> exp.Expr:
    """Return the join's condition for a single element of the array: `_e` is the element, and `_o` its position."""
    result = copy_tree(condition)
    for column in list(result.find_all(exp.Column)):
        if column.table == relation and column.name in (name, offset):
            column.replace(fragment_node("_e" if column.name == name else "_o"))
    return result


def _array_join_column(array: exp.Expr, relation: str, name: str) -> exp.Expr:
    return exp.Alias(this=array, alias=exp.to_identifier(f"{relation}.{name}", quoted=True))


def _translate_alias(node: exp.Expr) -> exp.Expr:
    """Cast a column of a SELECT to its BigQuery type if ClickHouse's type would differ, or if it is an untyped NULL."""
    datatype = datatype_of(node) or datatype_of(node.this)
    if datatype is not None and isinstance(node.parent, exp.Select):
        node.set("this", _typed_column(node.this, datatype, converts=bool(node.meta_get("becomes"))))
        EVENT_NUMBER_RULES.translate_result_column(node)
    return node


def _typed_column(value: exp.Expr, datatype: Datatype, *, converts: bool) -> exp.Expr:
    if is_null(value):
        return typed_null(datatype)
    if converts:
        return _convert_column(value, datatype)
    if datatype.kind is Kind.BOOL and not isinstance(value, exp.Column):
        return fragment_node("CAST({0}, 'Nullable(Bool)')", value)
    return value


def _convert_column(value: exp.Expr, datatype: Datatype) -> exp.Expr:
    if datatype.kind in (Kind.STRUCT, Kind.ARRAY, Kind.NUMERIC, Kind.BIGNUMERIC, Kind.FLOAT64):
        name = type_name_node(datatype)
        return fragment_node("CAST({0}, {1})", value, name) if name else value
    return convert_implicitly(value, datatype.kind)


def _translate_select(node: exp.Expr) -> exp.Expr:
    """Translate a SELECT; in SELECT AS STRUCT, each row becomes a single value."""
    kind = str(node.args.get("kind") or "").upper()
    _normalize_negative_zeros(node)
    _make_column_names_unique(node.expressions)
    group_by_attached_texts(node)
    if kind == "STRUCT":
        return _select_as_struct(node)
    if kind == "VALUE":
        node.set("kind", None)
    return node


def _normalize_negative_zeros(select: exp.Expr) -> None:
    """Convert -0.0 to 0.0 in values by which rows are grouped, because BigQuery puts both into one group."""
    for value in _grouping_values(select):
        if kind_of(value) is Kind.FLOAT64:
            replace_node(value, set_datatype(fragment_node("({0} + 0.)", copy_tree(value)), datatype_of(value)))


def _grouping_values(select: exp.Expr) -> list[exp.Expr]:
    """Return the selected values that can be replaced in order to change how rows are grouped.

    With DISTINCT, these are all selected values. With GROUP BY, these are the selected columns that it names by number,
    such as `GROUP BY 1`, except columns that also occur elsewhere in the query.
    """
    if select.args.get("distinct"):
        return [item.unalias() for item in select.expressions]
    group = select.args.get("group")
    if group is None:
        return []
    values = [resolve_group_ordinal(select, key) for key in grouping_keys(group) if constant_int(key) is not None]
    names = Counter((column.table, column.name) for column in select.find_all(exp.Column))
    return [value for value in values if isinstance(value, exp.Column) and names[value.table, value.name] == 1]


def _make_column_names_unique(items: list[exp.Expr]) -> None:
    """Make duplicate column names unique, because in ClickHouse a name refers to only one value.

    The column names of an answer are not affected, because they are assigned by position.
    """
    used_names: set[str] = set()
    for index, item in enumerate(items):
        if not isinstance(item, exp.Alias):
            continue
        if item.alias in used_names:
            item.set("alias", exp.to_identifier(f"{item.alias}${index + 1}", quoted=True))
        used_names.add(item.alias)


def _select_as_struct(node: exp.Expr) -> exp.Expr:
    items = [item.this if isinstance(item, exp.Alias) else item for item in node.expressions]
    fields = tuple((item.alias_or_name, datatype_of(item)) for item in node.expressions)
    datatype = Datatype(Kind.STRUCT, fields=fields)
    row = typed_tuple(datatype, items)
    node.set("expressions", [exp.Alias(this=set_datatype(row, datatype), alias=exp.to_identifier("_row", quoted=True))])
    node.set("kind", None)
    return node


def typed_tuple(datatype: Datatype, items: list[exp.Expr]) -> exp.Expr:
    """Return the items as a tuple that is cast to the type; omit the cast if the type is not completely known."""
    name, template = type_name_node(datatype), f"tuple({placeholders_text(len(items))})"
    return (
        fragment_node(f"CAST({template}, {{{len(items)}}})", *items, name) if name else fragment_node(template, *items)
    )


def _is_plain_single_column_select(query: exp.Expr, *, of_array: bool) -> bool:
    """Return whether the query selects one column without aggregates, grouping or DISTINCT.

    LIMIT, and ORDER BY with the column's number, are allowed only if the query reads nothing but one array
    (`of_array`).
    """
    clauses = ("group", "having", "qualify", "offset", "distinct", "with_", "kind")
    if len(query.expressions) != 1 or any(query.args.get(key) for key in clauses):
        return False
    order = query.args.get("order")
    has_position = order is not None and any(isinstance(key.this, exp.Literal) for key in order.expressions)
    if not of_array and (has_position or query.args.get("limit")):
        return False
    return not any(query.expressions[0].find_all(exp.AggFunc, exp.Window))


def collect_to_array(query: exp.Expr) -> exp.Expr:
    """Return the query with its one column aggregated to an array."""
    value = query.expressions[0]
    order, limit = query.args.get("order"), query.args.get("limit")
    value = value.this if isinstance(value, exp.Alias) else value
    for key in order.expressions if order is not None else ():
        if isinstance(key.this, exp.Literal):
            key.set("this", copy_tree(value))
    argument = AggregateArgument(value, order=order, limit=None if limit is None else limit.expression)
    query.set("order", None)
    query.set("limit", None)
    query.set(
        "expressions",
        [exp.Alias(this=collect_array(argument, skip_nulls=False), alias=exp.to_identifier("_all", quoted=True))],
    )
    return query


def can_collect_to_array(query: exp.Expr, *, of_array: bool = False) -> bool:
    return isinstance(query, exp.Select) and _is_plain_single_column_select(query, of_array=of_array)


def _translate_set_operation(node: exp.Expr) -> exp.Expr:
    """Give each column the common type of its values in both branches of the set operation.

    Otherwise, if the types differ, ClickHouse would make a column of its type Variant.
    """
    sides = [_projections_of_first_select(node.this), _projections_of_first_select(node.expression)]
    if len(sides[0]) == len(sides[1]):
        for items in zip(*sides, strict=True):
            target_type = common_stored_type(datatype_of(item) for item in items)
            for item in filter(lambda item: isinstance(item, exp.Alias), items):
                _set_column_type(item, target_type)
    return node


def _set_column_type(item: exp.Expr, datatype: Datatype | None) -> None:
    if datatype is not None and datatype_of(item) != datatype:
        set_datatype(item, datatype).meta["becomes"] = datatype


def _projections_of_first_select(query: exp.Expr) -> list[exp.Expr]:
    while isinstance(query, (exp.Subquery, exp.SetOperation)):
        query = query.this
    return query.expressions if isinstance(query, exp.Select) else []


def _refuse_recursive_distinct(node: exp.Expr) -> exp.Expr:
    """Refuse a recursive UNION DISTINCT, because ClickHouse supports only UNION ALL in recursive CTEs."""
    for cte in node.expressions if node.args.get("recursive") else ():
        body = cte.this.unnest()
        reads = any(table.name.lower() == cte.alias.lower() for table in body.find_all(exp.Table))
        if reads and isinstance(body, exp.Union) and body.args.get("distinct"):
            raise_unsupported(node, "A recursive UNION DISTINCT on ClickHouse")
    return node


def _remove_materialized(node: exp.Expr) -> exp.Expr:
    """Remove MATERIALIZED from a CTE. ClickHouse does not support it, and evaluates a CTE at each reference."""
    node.set("materialized", None)
    return node


def _rewrite_unsupported_select_parts(node: exp.Expr) -> exp.Expr:
    """Rewrite parts of a SELECT that ClickHouse does not support.

    These are shadowed relations, correlated counts, parenthesized joins, and sort keys that are events' values. A
    parenthesized join becomes a sub-query whose column names contain the names of the joined relations.
    """
    _rename_shadowed_relations(node)
    _mark_correlated_count(node)
    for parenthesized in list(_parenthesized_joins(node)):
        _rewrite_parenthesized_join(node, parenthesized)
    order = node.args.get("order")
    if order is not None:
        order.set(
            "expressions", [key for order_key in order.expressions for key in _replacement_sort_keys(node, order_key)]
        )
    return node


def _parenthesized_joins(select: exp.Expr) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    items = [from_.this] if from_ is not None else []
    for item in (*items, *(join.this for join in select.args.get("joins") or [])):
        if (
            isinstance(item, exp.Subquery)
            and not item.alias
            and isinstance(item.this, (exp.Table, exp.Subquery, exp.Unnest))
        ):
            yield item


def _rewrite_parenthesized_join(select: exp.Expr, parenthesized: exp.Expr) -> None:
    inner = parenthesized.this
    relations = {relation.alias_or_name for relation in joined_relations(parenthesized)}
    joins = inner.args.get("joins") or []
    inner.set("joins", None)
    inner_columns = {id(column) for part in (inner, *joins) for column in part.find_all(exp.Column)}
    outer_columns = [column for column in select.find_all(exp.Column) if id(column) not in inner_columns]
    items = _columns_of_relations(relations, outer_columns) or [
        exp.Alias(this=exp.Literal.number(1), alias=_quoted_identifier("_one"))
    ]
    query = exp.Select(expressions=items, from_=exp.From(this=inner), joins=joins)
    parenthesized.replace(
        exp.Subquery(
            this=query, alias=exp.TableAlias(this=_quoted_identifier(suffix_with_relation_names("_joined", relations)))
        )
    )


def _columns_of_relations(relations: set[str], columns: list[exp.Column]) -> list[exp.Expr]:
    """Return the columns that are read from the relations, each with an alias that contains its relation's name."""
    column_by_name = {(column.table, column.name): column for column in columns if column.table in relations}
    return [
        exp.Alias(this=copy_tree(column), alias=_quoted_identifier(f"{table}.{name}"))
        for (table, name), column in column_by_name.items()
    ]


def _quoted_identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def suffix_with_relation_names(name: str, used_names: set[str]) -> str:
    """Return `name` followed by `used_names`, which are the names of the joined relations.

    Thus each parenthesized join gets a different name.
    """
    return f"{name}_{'_'.join(sorted(used_names))}"


def _replace_event_sort_keys(order: exp.Expr) -> exp.Expr:
    """Replace the sort keys of a window or an aggregate that are events' values. SELECTs have their own rule."""
    if not isinstance(order.parent, exp.Query):
        keys = [key for order_key in order.expressions for key in _replacement_sort_keys(None, order_key)]
        order.set("expressions", keys)
    return order


def _replacement_sort_keys(select: exp.Expr | None, key: exp.Expr) -> list[exp.Expr]:
    """Return the sort keys that replace a sort key: usually the key itself.

    A key that is an event's value is replaced by two keys: the value as a number, and then the value as a text. If the
    key is a number, it refers to a column of `select`.
    """
    value = key.this
    position = constant_int(value)
    if select is not None and position is not None and 0 < position <= len(select.expressions):
        item = select.expressions[position - 1]
        value = item.this if isinstance(item, exp.Alias) else item
    if kind_of(value) is not Kind.VARIANT or value.find(exp.Subquery) or not may_be_number(value):
        return [key]
    sort_keys = [copy_tree(key), copy_tree(key)]
    for sort_key, kind in zip(sort_keys, (Kind.FLOAT64, Kind.STRING), strict=True):
        conversion = exp.Anonymous(
            this=EVENT_VALUE_CAST_FUNCTION, expressions=[copy_tree(value), exp.Literal.string(kind)]
        )
        sort_key.set("this", conversion)
    return sort_keys


# The name of the internal operation that converts an event's value to a type. Its second argument is the name of the
# type.
EVENT_VALUE_CAST_FUNCTION: Final = "$event_as"


def _translate_event_value_cast(node: exp.Expr) -> exp.Expr:
    value, kind = node.expressions
    return convert_implicitly(value, Kind(constant_text(kind) or Kind.STRING))


RULES = RuleSet(
    by_function_name={
        EVENT_VALUE_CAST_FUNCTION.upper(): _translate_event_value_cast,
        _ALWAYS_TRUE_JOIN_FUNCTION.upper(): _translate_always_true_join,
    },
    by_node_class={
        exp.CTE: _remove_materialized,
        exp.Unnest: _translate_unnest,
        exp.Join: _translate_join,
        exp.Alias: _translate_alias,
        exp.Select: _translate_select,
    },
    by_node_class_before_children={
        **dict.fromkeys((exp.Union, exp.Except, exp.Intersect), _translate_set_operation),
        exp.Select: _rewrite_unsupported_select_parts,
        exp.Order: _replace_event_sort_keys,
        exp.Join: _add_join_key,
        exp.With: _refuse_recursive_distinct,
    },
)


_LEADING_QUERY_ALIAS: Final = "_first"
# The clauses that may follow a parenthesized query; they apply to the result in the parentheses.
_TRAILING_CLAUSES: Final = ("order", "limit", "offset")


def rewrite_leading_parentheses(tree: exp.Expr) -> exp.Expr:
    """Replace each parenthesized query right after a WITH by a SELECT that reads it in FROM.

    Return the root of the tree, which may be a new node.
    """
    queries = [with_.parent for with_ in tree.find_all(exp.With)]
    for query in queries:
        first = _leading_query(query)
        if isinstance(first, exp.Subquery):
            relation = _select_from_parenthesized(first)
            first.replace(relation)
            tree = relation if first is tree else tree
    return tree


def _leading_query(query: exp.Expr | None) -> exp.Expr | None:
    while isinstance(query, exp.SetOperation):
        query = query.this
    return query


def _select_from_parenthesized(parenthesized: exp.Expr) -> exp.Select:
    """Return a SELECT over the parenthesized query.

    The SELECT gets the clauses that were before and after the parentheses.
    """
    inner = exp.Subquery(
        this=parenthesized.this, alias=exp.TableAlias(this=exp.to_identifier(_LEADING_QUERY_ALIAS, quoted=True))
    )
    relation = exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))
    for key in ("with_", *_TRAILING_CLAUSES):
        relation.set(key, parenthesized.args.get(key))
    return relation


# The parent nodes of a sub-query that use its rows. Any other parent uses the sub-query as a single value.
_NON_SCALAR_SUBQUERY_PARENTS: Final = (
    exp.In,
    exp.Exists,
    exp.Any,
    exp.All,
    exp.Array,
    exp.SetOperation,
    exp.Subquery,
    exp.From,
    exp.Join,
)
_CORRELATED_COUNT_METADATA_KEY: Final = "counts_none"
_ROW_CHANGING_CLAUSES: Final = ("group", "having", "qualify", "limit", "offset")


def _rename_shadowed_relations(select: exp.Expr) -> None:
    """Rename each relation of a SELECT that has the name of a table which an inner query reads.

    Otherwise, in the inner query, ClickHouse would resolve `t.a` to the inner table t, even if that table has an alias.
    """
    inner_names = {
        table.name
        for table in select.find_all(exp.Table)
        if table.alias_or_name != table.name and table.parent_select is not select
    }
    for relation in list(_from_and_join_relations(select)) if inner_names else []:
        name = relation.alias_or_name
        if name in inner_names and isinstance(relation, (exp.Table, exp.Subquery)):
            _rename_relation(select, name, f"{name}$")
            relation.set("alias", exp.TableAlias(this=exp.to_identifier(f"{name}$", quoted=True)))


def _from_and_join_relations(select: exp.Expr) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    yield from (join.this for join in select.args.get("joins") or [])


def _rename_relation(select: exp.Expr, name: str, new_name: str) -> None:
    def is_shadowed(node: exp.Expr) -> bool:
        is_inner = isinstance(node, exp.Select) and node is not select
        return is_inner and any(relation.alias_or_name == name for relation in _from_and_join_relations(node))

    for node in list(select.walk(prune=is_shadowed)):
        if isinstance(node, exp.Column) and node.table == name and not is_shadowed(node):
            node.set("table", exp.to_identifier(new_name, quoted=True))


def _mark_correlated_count(select: exp.Expr) -> None:
    """Mark a correlated sub-query that selects COUNT, so that NULL is replaced by 0.

    If there are no rows, ClickHouse returns NULL for such a sub-query.
    """
    items = select.expressions
    is_count = len(items) == 1 and isinstance(items[0].unalias(), (exp.Count, exp.CountIf))
    if is_count and isinstance(select.parent, exp.Subquery) and not any(map(select.args.get, _ROW_CHANGING_CLAUSES)):
        inner_relations = {
            relation.alias_or_name
            for inner in select.find_all(exp.Select)
            for relation in _from_and_join_relations(inner)
        }
        select.meta[_CORRELATED_COUNT_METADATA_KEY] = any(
            column.table not in inner_relations for column in select.find_all(exp.Column)
        )


def _translate_subquery(node: exp.Expr) -> exp.Expr:
    if any(node.args.get(key) for key in ("order", "limit", "offset")):
        return _select_from_parenthesized(node)
    if node.this.meta_get(_CORRELATED_COUNT_METADATA_KEY) and not isinstance(node.parent, _NON_SCALAR_SUBQUERY_PARENTS):
        return fragment_node("ifNull({0}, 0)", exp.Subquery(this=node.this))
    return node


# The name of the internal operation that tests whether a condition holds for any element of an array. Its arguments are
# the array, the variable for an element, and the condition.
EXISTS_IN_ARRAY_FUNCTION: Final = "$exists_in"

_CLAUSES_BESIDES_WHERE: Final = ("group", "having", "qualify", "limit", "offset", "distinct", "with_", "kind")


def _translate_exists(node: exp.Expr) -> exp.Expr:
    select = node.this
    unnests = _unnests_if_only_sources(select)
    if not unnests:
        return node
    where = select.args.get("where")
    condition: exp.Expr = where.this if where is not None else exp.Boolean(this=True)
    for depth, unnest in reversed(list(enumerate(unnests))):
        condition = _make_exists_in_array_call(unnest, condition, f"_x{depth}")
    return condition


def _unnests_if_only_sources(select: exp.Expr) -> list[exp.Expr]:
    """Return the UNNESTs that a query reads, if it reads nothing else; otherwise, return an empty list."""
    if not isinstance(select, exp.Select) or any(map(select.args.get, _CLAUSES_BESIDES_WHERE)):
        return []
    joins = select.args.get("joins") or []
    from_ = select.args.get("from_")
    items = [part.this for part in (from_, *joins) if part is not None]
    is_chain = all(map(_is_unnest_without_offset, items)) and not any(map(_has_join_condition, joins))
    return items if is_chain else []


def _is_unnest_without_offset(item: exp.Expr) -> bool:
    return isinstance(item, exp.Unnest) and not item.args.get("offset")


def _has_join_condition(join: exp.Expr) -> bool:
    return str(join.args.get("kind")) != "CROSS" or join.args.get("on") is not None


def _make_exists_in_array_call(unnest: exp.Expr, condition: exp.Expr, name: str) -> exp.Expr:
    alias = unnest.args["alias"]
    element = _element_type(unnest.expressions[0])
    container = exp.Paren(this=condition)
    _replace_element_references(
        container, alias.name, alias.columns[0].name if alias.columns else alias.name, name, element
    )
    return exp.Anonymous(
        this=EXISTS_IN_ARRAY_FUNCTION, expressions=[unnest.expressions[0], exp.Literal.string(name), container.this]
    )


def _replace_element_references(
    condition: exp.Expr, relation: str, column_name: str, name: str, element: Datatype | None
) -> None:
    """Replace each reference to the array's element, or to a field of it, by the lambda's variable `name`."""
    positions: Mapping[str, int] = {
        label: index for index, (label, _) in enumerate(element.fields if element else (), 1)
    }
    for column in list(condition.find_all(exp.Column)):
        if column.table != relation:
            continue
        reference = name if column.name == column_name else f"tupleElement({name}, {positions.get(column.name, 1)})"
        column.replace(set_datatype(fragment_node(reference), datatype_of(column)))


def _element_type(array: exp.Expr) -> Datatype | None:
    datatype = datatype_of(array)
    return datatype.element if datatype else None


def _translate_exists_in_array(node: exp.Expr) -> exp.Expr:
    array, name, condition = node.expressions
    return fragment_node(f"arrayExists({constant_text(name)} -> ifNull({{1}}, false), {{0}})", array, condition)


SUBQUERY_RULES = RuleSet(
    by_node_class={
        exp.Subquery: _translate_subquery,
    },
    by_node_class_before_children={
        exp.Exists: _translate_exists,
    },
    by_function_name={
        EXISTS_IN_ARRAY_FUNCTION.upper(): _translate_exists_in_array,
    },
)
