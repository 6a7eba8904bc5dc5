"""Rules for composite values: STRUCT and ARRAY constructors, fields and subscripts, and ARRAY functions.

STRUCT values are named tuples, in which a field without a name is named by its position. An offset out of bounds is an
error, except in a SAFE_ subscript.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    COMMON_SQL,
    IS_NULL_METADATA_KEY,
    MAY_BE_NULL_METADATA_KEY,
    convert_implicitly,
    fail_if_sql,
    fill_template,
    type_name_node,
    typed_null,
)
from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.relations import can_collect_to_array, collect_to_array, typed_tuple
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.datatypes import INT64, STRING, array_of, datatype_of, field_type, kind_of, set_datatype, struct_of
from cordwood.sql.lowering import (
    RAISED_ERROR_PREFIX,
    RuleSet,
    fragment_node,
    mark_null_on_error,
    placeholders_text,
    quoted_literal_sql,
    raise_unsupported,
    returns_null_on_error,
    string_literal_node,
)
from cordwood.sql.nodes import constant_int, constant_text, is_null, is_parenthesised_list, struct_field_values
from cordwood.sql.rules.functions import ARRAY_FUNCTIONS, CheckedTemplate, max_generated_elements, rules_from_templates
from cordwood.sql.rules.numbers import has_ascending_constant_numbers

# The meta key of a query in ARRAY(…) that has aggregates. An outer query collects its rows to an array, because
# aggregates cannot be nested.
_HAS_AGGREGATES_METADATA_KEY: Final = "aggregates"
# The meta key of a query in ARRAY(…) that reads only one array. Its LIMIT is applied to the array of its rows, because
# ClickHouse does not support LIMIT in a query that refers to the outer row. This does not cost more memory, because all
# elements of an array are in memory anyway.
_READS_ARRAY_METADATA_KEY: Final = "reads_array"


def _translate_struct(node: exp.Expr) -> exp.Expr:
    datatype = datatype_of(node) or Datatype(Kind.STRUCT)
    return _pack_struct(datatype, struct_field_values(node))


def _pack_struct(datatype: Datatype, values: list[exp.Expr]) -> exp.Expr:
    """Return the values as a tuple that is cast to `datatype`; omit the cast if a field's type is not known."""
    types = [field for _, field in datatype.fields] or [None] * len(values)
    values = [typed_null(field) if is_null(value) else value for value, field in zip(values, types, strict=False)]
    return typed_tuple(datatype, values)


def _translate_tuple(node: exp.Expr) -> exp.Expr:
    if is_parenthesised_list(node):
        return node
    return _pack_struct(datatype_of(node) or Datatype(Kind.STRUCT), node.expressions)


def _translate_array(node: exp.Expr) -> exp.Expr:
    items = node.expressions
    if len(items) == 1 and isinstance(items[0], exp.Query):
        return _array_of_query(items[0])
    datatype = datatype_of(node)
    element = datatype.element if datatype else None
    is_known = element is not None or (isinstance(node.parent, exp.Unnest) and all(map(is_null, items)))
    name = type_name_node(datatype or Datatype(Kind.ARRAY)) if is_known else None
    if name is None:
        return fragment_node(f"[{placeholders_text(len(items))}]", *items)
    elements = [_convert_to_element_type(item, element) for item in items]
    return fragment_node(f"CAST([{placeholders_text(len(items))}], {{{len(items)}}})", *elements, name)


def _convert_to_element_type(item: exp.Expr, element: Datatype | None) -> exp.Expr:
    return item if element is None else convert_implicitly(item, element.kind)


def _array_of_query(query: exp.Expr) -> exp.Expr:
    """Translate ARRAY(SELECT …).

    If possible, the query itself collects its rows to an array, because then it may refer to the outer row. Otherwise,
    an outer query collects them.
    """
    if can_collect_to_array(query, of_array=bool(query.meta_get(_READS_ARRAY_METADATA_KEY))) and not query.meta_get(
        _HAS_AGGREGATES_METADATA_KEY
    ):
        return fragment_node("({0})", collect_to_array(query))
    # The rows are collected as tuples, because groupArray skips NULLs unless they are inside tuples.
    return fragment_node("arrayMap(_t -> _t.1, (SELECT groupArray(tuple(COLUMNS('.*'))) FROM ({0})))", query)


def _set_metadata_of_array_items(node: exp.Expr) -> exp.Expr:
    """Record properties of an array's items before the items are lowered, because lowering hides these properties."""
    datatype = datatype_of(node)
    for item in node.expressions:
        if isinstance(item, exp.Query):
            item.meta[_HAS_AGGREGATES_METADATA_KEY] = any(item.find_all(exp.AggFunc, exp.Window))
            from_ = item.args.get("from_")
            item.meta[_READS_ARRAY_METADATA_KEY] = (
                from_ is not None and isinstance(from_.this, exp.Unnest) and not item.args.get("joins")
            )
        elif isinstance(item, (exp.Struct, exp.Tuple)) and datatype is not None:
            _set_types_of_null_fields(item, datatype.element)
    return node


def _set_types_of_null_fields(item: exp.Expr, element: Datatype | None) -> None:
    """Give each NULL field of a struct in an array the type that the field has in the array's other elements.

    This is needed because ClickHouse requires a type for the array.
    """
    item_type, values = (
        datatype_of(item),
        struct_field_values(item) if isinstance(item, exp.Struct) else item.expressions,
    )
    if item_type is None or element is None or not len(item_type.fields) == len(element.fields) == len(values):
        return
    triples = zip(item_type.fields, element.fields, values, strict=True)
    set_datatype(
        item,
        struct_of(
            (name, element_field if is_null(value) else field) for (name, field), (_, element_field), value in triples
        ),
    )


def _translate_field_access(node: exp.Expr) -> exp.Expr:
    """Translate access to a field of a STRUCT, to a key of a JSON value, or to a field of every element of an array."""
    if not isinstance(node.expression, exp.Identifier):
        return node
    if kind_of(node.this) is Kind.ARRAY:
        return _field_of_elements(node)
    name = node.expression.name
    if kind_of(node.this) is Kind.JSON:
        return fragment_node("nullIf(JSONExtractRaw({0}, {1}), '')", node.this, string_literal_node(name))
    return fragment_node("tupleElement({0}, {1})", node.this, _field_position(datatype_of(node.this), name))


def _field_of_elements(node: exp.Expr) -> exp.Expr:
    """Return an array with the field of every element; if the fields are arrays themselves, concatenate them."""
    base = datatype_of(node.this)
    element = base.element if base else None
    name = node.expression.name
    fields = fragment_node("arrayMap(_e -> tupleElement(_e, {1}), {0})", node.this, _field_position(element, name))
    field = field_type(element, name)
    return fragment_node("arrayFlatten({0})", fields) if field is not None and field.kind is Kind.ARRAY else fields


def _field_position(datatype: Datatype | None, name: str) -> exp.Expr:
    """Return a field's position, which is used instead of its name because BigQuery's field names are case-insensitive.

    Return the name if the fields of the type are not known.
    """
    names = [label.lower() for label, _ in datatype.fields] if datatype else []
    return exp.Literal.number(names.index(name.lower()) + 1) if name.lower() in names else string_literal_node(name)


def _translate_subscript(node: exp.Expr) -> exp.Expr:
    base, index = node.this, node.expressions[0]
    kind = kind_of(base)
    if kind in (Kind.JSON, Kind.VARIANT):
        return _json_subscript(base, index, counts_from_one=int(node.args.get("offset") or 0) == 1)
    if kind is Kind.STRUCT:
        return _struct_subscript(node, base, index)
    offset = 1 - int(node.args.get("offset") or 0)
    is_safe_access = bool(node.args.get("safe")) or bool(base.meta_get(MAY_BE_NULL_METADATA_KEY))
    return _element_at(mark_null_on_error(node) if is_safe_access else node, base, index, offset)


def _element_at(node: exp.Expr, base: exp.Expr, index: exp.Expr, offset: int) -> exp.Expr:
    """Return the element at an index; `offset` is added to the index, because ClickHouse's indexes count from one.

    An index out of bounds is checked for in SQL, because ClickHouse would count a negative index from the end.
    """
    constant_index = constant_int(index)
    position_sql = str(constant_index + offset) if constant_index is not None else f"@b + {offset}" if offset else "@b"
    is_out_of_bounds = f"({position_sql} < 1 OR {position_sql} > toInt64(length(@a)))"
    body = fail_if_sql(node, is_out_of_bounds, "Array index is out of bounds", f"@a[{position_sql}]")
    return fill_template(body, base) if constant_index is not None else fill_template(body, base, index)


def _json_subscript(base: exp.Expr, index: exp.Expr, *, counts_from_one: bool) -> exp.Expr:
    key, position = constant_text(index), constant_int(index)
    if key is not None:
        return fragment_node("nullIf(JSONExtractRaw({0}, {1}), '')", base, string_literal_node(key))
    if position is not None:
        step = position if counts_from_one else position + 1
        index = fragment_node("NULL") if step < 1 else exp.Literal.number(step)
        return fill_template("if(JSONType(@a) = 'Array', nullIf(JSONExtractRaw(@a, @b), ''), NULL)", base, index)
    if kind_of(index) is Kind.INT64:
        return fill_template("if(@b >= 0, nullIf(JSONExtractRaw(@a, assumeNotNull(@b) + 1), ''), NULL)", base, index)
    return fill_template("if(isNull(@b), NULL, nullIf(JSONExtractRaw(@a, assumeNotNull(@b)), ''))", base, index)


def _struct_subscript(node: exp.Expr, base: exp.Expr, index: exp.Expr) -> exp.Expr:
    position = constant_int(index)
    if position is None:
        raise_unsupported(node, "A subscript of a STRUCT that is not a whole number")
    return fragment_node(f"tupleElement({{0}}, {position + 1 - int(node.args.get('offset') or 0)})", base)


def _translate_array_length(node: exp.Expr) -> exp.Expr:
    if kind_of(node.this) is Kind.VARIANT:
        return fragment_node("if(JSONType({0}) = 'Array', toInt64(JSONLength({0})), NULL)", node.this)
    if node.this.unnest().meta_get(IS_NULL_METADATA_KEY):
        return typed_null(INT64)
    return fragment_node("toInt64(length({0}))", node.this)


def _translate_array_concat(node: exp.Expr) -> exp.Expr:
    parts = [_cast_to_common_type(node, part) for part in (node.this, *node.expressions)]
    return fragment_node(f"arrayConcat({placeholders_text(len(parts))})", *parts)


def _cast_to_common_type(node: exp.Expr, part: exp.Expr) -> exp.Expr:
    """Cast an array argument to the result's type.

    This is needed because ClickHouse has no common type for arrays of integers and arrays of fractions.
    """
    array_type, part_type = datatype_of(node), datatype_of(part)
    name = type_name_node(array_type)
    if (
        name is None
        or not (part_type and part_type.element and array_type and array_type.element)
        or part_type.element.kind is array_type.element.kind
    ):
        return part
    return fragment_node("CAST({0}, {1})", part, name)


def _translate_array_to_string(node: exp.Expr) -> exp.Expr:
    value, separator, null = node.this, node.expression, node.args.get("null")
    datatype = datatype_of(value)
    element = datatype.element if datatype else None
    if element and element.kind not in (Kind.STRING, Kind.BYTES):
        item = set_datatype(fragment_node("_e"), element)
        value = fragment_node("arrayMap(_e -> {1}, {0})", value, cast_to(item, item, STRING))
    if null is not None:
        value = fill_template("arrayMap(_e -> ifNull(_e, @b), @a)", value, null)
    present = "arrayMap(_e -> assumeNotNull(_e), arrayFilter(_e -> isNotNull(_e), @a))"
    if constant_text(separator) is not None:
        return fill_template(f"arrayStringConcat({present}, @b)", value, separator)
    joined_text = f"arrayFold((_x, _y) -> concat(_x, @b, _y), arraySlice({present}, 2), {present}[1])"
    return fill_template(f"if(isNull(@b), NULL, {joined_text.replace('@b', 'assumeNotNull(@b)')})", value, separator)


def _translate_generate_array(node: exp.Expr) -> exp.Expr:
    datatype = datatype_of(node) or array_of(INT64)
    kind = datatype.element.kind if datatype.element else Kind.INT64
    parts = [node.args["start"], node.args["end"], node.args.get("step") or fragment_node("toInt64(1)")]
    parts = [convert_implicitly(part, kind) for part in parts]
    last = (
        "toInt64(floor((@b - @a) / @c + 1e-9))"
        if kind is not Kind.INT64
        else "intDiv(toInt128(@b) - @a, if(@c = 0, 1, @c))"
    )
    count = f"ifNull(if({_SERIES_IS_EMPTY_SQL}, 0, {last} + 1), 0)"
    element_limit = max_generated_elements(*parts)
    is_too_large = f"{count} > {element_limit}"
    if not returns_null_on_error(node):
        is_too_large = f"throwIf({is_too_large}, {quoted_literal_sql(RAISED_ERROR_PREFIX + f'GENERATE_ARRAY of more than {element_limit} elements')})"
    count = f"toUInt64(if({is_too_large}, 0, {count}))"
    items = f"arrayMap(_i -> CAST(@a + _i * @c, {quoted_literal_sql(_SERIES_TYPE_NAME_BY_KIND.get(kind, 'Nullable(Int64)'))}), range({count}))"
    body = f"if(isNull(@a) OR isNull(@b) OR isNull(@c) OR @c = 0, @d, {items})"
    if not returns_null_on_error(node):
        check = (
            f"throwIf(ifNull(@c = 0, false), {quoted_literal_sql(RAISED_ERROR_PREFIX + 'Sequence step cannot be 0.')})"
        )
        body = f"if({check} = 1, @d, {body})"
    return fill_template(body, *parts, typed_null(datatype))


_SERIES_IS_EMPTY_SQL = "@c > 0 AND @a > @b OR @c < 0 AND @a < @b"
_SERIES_TYPE_NAME_BY_KIND = {
    Kind.INT64: "Nullable(Int64)",
    Kind.FLOAT64: "Nullable(Float64)",
    Kind.NUMERIC: "Nullable(Decimal(38, 9))",
    Kind.BIGNUMERIC: "Nullable(Decimal(76, 38))",
}


def _translate_range_bucket(node: exp.Expr) -> exp.Expr:
    """Translate RANGE_BUCKET, which is the number of boundaries that are less than or equal to the value."""
    is_missing = "isNull(@a)" + (" OR isNaN(@a)" if kind_of(node.this) is Kind.FLOAT64 else "")
    count = f"if({is_missing}, NULL, toInt64(arrayCount(_e -> ifNull(_e <= @a, false), @b)))"
    if has_ascending_constant_numbers(node.expression):
        return fill_template(count, node.this, node.expression)
    is_invalid = f"(NOT ({is_missing}) AND (arrayExists(_e -> isNull(_e), @b) OR arraySort(@b) != @b))"
    message = "RANGE_BUCKET needs boundaries in ascending order that are not NULL"
    return fill_template(fail_if_sql(node, is_invalid, message, count), node.this, node.expression)


_ARRAY_LENGTH_SQL: Final = "toInt64(length(@a))"
_SLICE_START_SQL: Final = f"greatest(if(@b < 0, {_ARRAY_LENGTH_SQL} + @b, @b), 0) + 1"
_SLICE_END_SQL: Final = f"if(@c < 0, {_ARRAY_LENGTH_SQL} + @c, @c) + 1"
_TEMPLATE_RULES: Final = rules_from_templates(
    COMMON_SQL,
    ARRAY_FUNCTIONS,
    {
        exp.ArrayReverse: "arrayReverse({0})",
        exp.ArrayFirst: CheckedTemplate("empty(@a)", "@a[1]"),
        exp.ArrayLast: CheckedTemplate("empty(@a)", "@a[-1]"),
        exp.ArraySlice: (
            f"if(isNull(@b) OR isNull(@c) OR {_SLICE_END_SQL} < 1, arraySlice(@a, 1, 0),"
            f" arraySlice(@a, assumeNotNull({_SLICE_START_SQL}), assumeNotNull(greatest({_SLICE_END_SQL} - ({_SLICE_START_SQL}) + 1, 0))))"
        ),
        "ARRAY_IS_DISTINCT": "(length(arrayDistinct(arrayMap(_e -> tuple(_e), {0}))) = length({0}))",
    },
)

RULES = RuleSet(
    by_node_class={
        exp.Struct: _translate_struct,
        exp.Tuple: _translate_tuple,
        exp.Array: _translate_array,
        exp.Dot: _translate_field_access,
        exp.Bracket: _translate_subscript,
        exp.ArraySize: _translate_array_length,
        **_TEMPLATE_RULES.by_node_class,
        exp.ArrayConcat: _translate_array_concat,
        exp.ArrayToString: _translate_array_to_string,
        exp.GenerateSeries: _translate_generate_array,
        exp.RangeBucket: _translate_range_bucket,
    },
    by_node_class_before_children={
        exp.Array: _set_metadata_of_array_items,
    },
    by_function_name=_TEMPLATE_RULES.by_function_name,
)
