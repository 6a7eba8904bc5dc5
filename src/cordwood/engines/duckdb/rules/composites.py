"""Rules for composite values: STRUCT and ARRAY constructors, fields and subscripts, and ARRAY functions.

Fields without a name are named by position. The elements of an array take the field names of its first element.
An array index out of bounds is an error, except in a SAFE_ subscript.
"""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    COMMON_SQL,
    convert_implicitly,
    encode_engine_name,
    failure_sql,
    fill_template,
    struct_field_name_node,
)
from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.engines.duckdb.rules.conditions import convert_struct_by_position
from cordwood.engines.duckdb.rules.json_functions import json_path_text
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.datatypes import INT64, STRING, datatype_of, field_type, kind_of, set_datatype
from cordwood.sql.lowering import RuleSet, fragment_node, raise_unsupported, string_literal_node
from cordwood.sql.nodes import constant_int, constant_text, is_parenthesised_list, struct_field_values
from cordwood.sql.rules.functions import (
    ARRAY_FUNCTIONS,
    MAX_GENERATED_ELEMENTS,
    CheckedTemplate,
    max_generated_elements,
    rules_from_templates,
)
from cordwood.sql.rules.numbers import has_ascending_constant_numbers


def _translate_struct(node: exp.Expr) -> exp.Expr:
    datatype = datatype_of(node) or Datatype(Kind.STRUCT)
    return _pack_struct(datatype, struct_field_values(node))


def _pack_struct(datatype: Datatype, values: list[exp.Expr]) -> exp.Expr:
    names = [struct_field_name_node(datatype, index) for index in range(len(values))]
    fields = ", ".join(f"{{{index + len(values)}}} := {{{index}}}" for index in range(len(values)))
    return fragment_node(f"struct_pack({fields})", *values, *names)


def _translate_tuple(node: exp.Expr) -> exp.Expr:
    if is_parenthesised_list(node):
        return node
    return _pack_struct(datatype_of(node) or Datatype(Kind.STRUCT), node.expressions)


def _translate_array(node: exp.Expr) -> exp.Expr:
    items = node.expressions
    if len(items) == 1 and isinstance(items[0], exp.Query):
        return fragment_node("ARRAY({0})", items[0])
    datatype = datatype_of(node)
    element = datatype.element if datatype else None
    if element is None:
        return exp.Array(expressions=items)
    return exp.Array(expressions=[_convert_to_element_type(item, element) for item in items])


def _convert_to_element_type(item: exp.Expr, element: Datatype) -> exp.Expr:
    if element.kind is Kind.STRUCT:
        return convert_struct_by_position(item, element)
    return convert_implicitly(item, element.kind)


def _translate_field_access(node: exp.Expr) -> exp.Expr:
    """Translate access to a field of a STRUCT, or to the value under a key of a JSON object."""
    if kind_of(node.this) is Kind.ARRAY:
        return _field_values_of_elements(node)
    if kind_of(node.this) is Kind.JSON and isinstance(node.expression, exp.Identifier):
        return fragment_node(
            "json_extract({0}, {1})", node.this, string_literal_node(json_path_text([node.expression.name]))
        )
    if isinstance(node.this, exp.Column) or not isinstance(node.expression, exp.Identifier):
        return node
    return fragment_node(
        "struct_extract({0}, {1})", node.this, string_literal_node(encode_engine_name(node.expression.name))
    )


def _field_values_of_elements(node: exp.Expr) -> exp.Expr:
    """Return an array with the value of a field from each element of an array, as in `UNNEST(orders.items)`.

    If the field's values are arrays themselves, they are concatenated to one array.
    """
    base = datatype_of(node.this)
    field = field_type(base.element if base else None, node.expression.name)
    if field is None:
        raise_unsupported(node, "A field of an array's elements")
    name = string_literal_node(encode_engine_name(node.expression.name))
    fields = fragment_node("list_transform({0}, lambda _e: struct_extract(_e, {1}))", node.this, name)
    return fragment_node("flatten({0})", fields) if field.kind is Kind.ARRAY else fields


def _translate_select_as_struct(node: exp.Expr) -> exp.Expr:
    """Translate SELECT AS STRUCT, whose columns become the fields of a struct: give the columns unique names."""
    if str(node.args.get("kind") or "").upper() == "STRUCT":
        fields = tuple((item.alias_or_name, datatype_of(item)) for item in node.expressions)
        for index, item in enumerate(node.expressions):
            if isinstance(item, exp.Alias):
                item.set("alias", struct_field_name_node(Datatype(Kind.STRUCT, fields=fields), index))
    return node


def _translate_subscript(node: exp.Expr) -> exp.Expr:
    base, index = node.this, node.expressions[0]
    kind = kind_of(base)
    if kind is Kind.JSON:
        return _json_subscript(base, index)
    if kind is Kind.VARIANT:
        base = fragment_node("CAST({0} AS VARIANT[])", base)
    if kind is Kind.STRUCT:
        return _struct_subscript(node, base, index)
    offset = 1 - int(node.args.get("offset") or 0)
    quantile = _single_quantile(node, offset)
    if quantile is not None:
        return quantile
    return _element_at(node, base, index, offset, safe=bool(node.args.get("safe")))


def _element_at(node: exp.Expr, base: exp.Expr, index: exp.Expr, offset: int, *, safe: bool) -> exp.Expr:
    """Return the element at an index; `offset` is added to the index, because DuckDB's indexes begin at one.

    Indexes below one are out of bounds. They are checked separately, because DuckDB counts them from the array's end.
    """
    constant_index = constant_int(index)
    failure = "NULL" if safe else failure_sql(node, "Array index is out of bounds")
    if constant_index is not None:
        position = constant_index + offset
        if safe:
            return fragment_node(f"{{0}}[{position}]", base) if position > 0 else fragment_node("NULL")
        if position < 1:
            return fill_template(f"CASE WHEN @a IS NOT NULL THEN {failure} END", base)
        return fill_template(f"CASE WHEN len(@a) < {position} THEN {failure} ELSE @a[{position}] END", base)
    position_sql = f"@b + {offset}" if offset else "@b"
    guard = f"{position_sql} < 1" if safe else f"@a IS NOT NULL AND ({position_sql} < 1 OR {position_sql} > len(@a))"
    return fill_template(f"CASE WHEN {guard} THEN {failure} ELSE @a[{position_sql}] END", base, index)


def _single_quantile(node: exp.Expr, offset: int) -> exp.Expr | None:
    """Translate `approx_quantiles(x, n)[offset(k)]` to SQL that computes only the quantile `k`, not all quantiles.

    Return None for any other subscript.
    """
    source, index = node.this, constant_int(node.expressions[0])
    quantile_count = source.meta_get("quantiles") if isinstance(source, exp.Expr) else None
    if quantile_count is None or index is None or offset != 1 or not 0 <= index <= quantile_count:
        return None
    value, suffix = source.expressions[1], source.meta["quantiles_filter"]
    return fragment_node(f"quantile_disc({{0}}, {index / quantile_count!r}){suffix}", value)


def _json_subscript(base: exp.Expr, index: exp.Expr) -> exp.Expr:
    """Return the JSON value at an index or key; a negative index gives NULL instead of counting from the end."""
    key, position = constant_text(index), constant_int(index)
    step = key if position is None or position < 0 else position
    if step is not None:
        return fragment_node("json_extract({0}, {1})", base, exp.Literal.string(json_path_text([step])))
    if kind_of(index) is Kind.INT64:
        return fill_template("json_extract(@a, CASE WHEN @b >= 0 THEN @b END)", base, index)
    pointer = "'/' || replace(replace(@b, '~', '~0'), '/', '~1')"
    return fill_template(f"CASE WHEN json_type(@a) = 'OBJECT' THEN json_extract(@a, {pointer}) END", base, index)


def _struct_subscript(node: exp.Expr, base: exp.Expr, index: exp.Expr) -> exp.Expr:
    position = constant_int(index)
    if position is None:
        raise_unsupported(node, "A subscript of a STRUCT that is not a whole number")
    return fragment_node(f"struct_extract_at({{0}}, {position + 1 - int(node.args.get('offset') or 0)})", base)


def _translate_array_length(node: exp.Expr) -> exp.Expr:
    if kind_of(node.this) is Kind.VARIANT:
        return fragment_node("len(try_cast({0} AS VARIANT[]))", node.this)
    return fragment_node("len({0})", node.this)


def _translate_array_concat(node: exp.Expr) -> exp.Expr:
    parts = [_cast_to_common_type(part, datatype_of(node)) for part in (node.this, *node.expressions)]
    return (
        fragment_node(" || ".join(f"{{{index}}}" for index in range(len(parts))), *parts)
        if len(parts) > 1
        else node.this
    )


def _cast_to_common_type(array: exp.Expr, to: Datatype | None) -> exp.Expr:
    """Convert an array of structs to `to`, the common type of the arrays that are concatenated.

    Fields are matched by position, whereas DuckDB would match them by name.
    """
    element, array_type = to.element if to else None, datatype_of(array)
    if (
        array_type is None
        or array_type == to
        or array_type.element is None
        or element is None
        or element.kind is not Kind.STRUCT
    ):
        return array
    item = set_datatype(fragment_node("_e"), array_type.element)
    return fragment_node("list_transform({0}, lambda _e: {1})", array, convert_struct_by_position(item, element))


def _translate_array_to_string(node: exp.Expr) -> exp.Expr:
    value, separator, null = node.this, node.expression, node.args.get("null")
    datatype = datatype_of(value)
    element = datatype.element if datatype else None
    if element is not None and element.kind is Kind.BYTES:
        raise_unsupported(node, "ARRAY_TO_STRING of BYTES")
    if element is not None and element.kind is not Kind.STRING:
        item = set_datatype(fragment_node("_e"), element)
        value = fragment_node("list_transform({0}, lambda _e: {1})", value, cast_to(item, item, STRING))
    if null is not None:
        value = fill_template("list_transform(@a, lambda _e: coalesce(_e, @b))", value, null)
    joined = "array_to_string(@a, @b)" if constant_text(separator) is not None else _JOIN_ELEMENTS_SQL
    body = f"CASE WHEN @a IS NULL OR @b IS NULL THEN NULL ELSE coalesce({joined}, '') END"
    return fill_template(body, value, separator)


# SQL that joins the elements with a delimiter that is not constant. DuckDB's `array_to_string` accepts only constant
# delimiters.
_JOIN_ELEMENTS_SQL: Final = (
    "CASE WHEN len(list_filter(@a, lambda _e: _e IS NOT NULL)) > 0"
    " THEN list_reduce(list_filter(@a, lambda _e: _e IS NOT NULL), lambda _x, _y: _x || @b || _y) END"
)


def _translate_generate_array(node: exp.Expr) -> exp.Expr:
    start, end, step = node.args["start"], node.args["end"], node.args.get("step") or exp.Literal.number(1)
    datatype = datatype_of(node)
    kind = (datatype.element if datatype else None) or INT64
    failure = failure_sql(node, "Sequence step cannot be 0.")
    guard = f"CASE WHEN @a IS NULL OR @b IS NULL OR @c IS NULL THEN NULL WHEN @c = 0 THEN {failure}"
    element_limit = max_generated_elements(start, end, step)
    too_large_failure = failure_sql(node, f"GENERATE_ARRAY of more than {element_limit} elements")
    # The check of the number of elements is inside the arguments of the series function, not in a CASE around the
    # function. DuckDB evaluates calls with constant arguments when it plans the query, even in branches that are not
    # taken.
    last = f"(CASE WHEN abs(@b::HUGEINT - @a) // nullif(abs(@c), 0) >= {element_limit} THEN {too_large_failure} ELSE @b END)"
    if kind == INT64:
        if _has_few_elements(start, end, step):
            return fill_template("generate_series(@a::BIGINT, @b::BIGINT, @c::BIGINT)", start, end, step)
        series = f"generate_series(@a::BIGINT, {last}::BIGINT, @c::BIGINT)"
        return fill_template(f"{guard} ELSE {series} END", start, end, step)
    count = f"CAST(CASE WHEN abs((@b - @a) / nullif(@c, 0)) >= {element_limit} THEN {too_large_failure} ELSE floor((@b - @a) / @c + 1e-9) END AS BIGINT)"
    items = f"list_transform(range(0, {count} + 1), lambda _i: @a + _i * @c)"
    body = f"{guard} WHEN (@c > 0 AND @a > @b) OR (@c < 0 AND @a < @b) THEN [] ELSE {items} END"
    return fill_template(body, *(convert_implicitly(part, kind.kind) for part in (start, end, step)))


def _has_few_elements(start: exp.Expr, end: exp.Expr, step: exp.Expr) -> bool:
    first, last, increment = (constant_int(part) for part in (start, end, step))
    return (
        first is not None
        and last is not None
        and bool(increment)
        and abs(last - first) // abs(increment or 1) < MAX_GENERATED_ELEMENTS
    )


def _translate_range_bucket(node: exp.Expr) -> exp.Expr:
    """Translate RANGE_BUCKET, which counts the boundaries that are less than or equal to the value."""
    is_missing = "@a IS NULL OR @b IS NULL" + (" OR isnan(@a)" if kind_of(node.this) is Kind.FLOAT64 else "")
    failure = failure_sql(node, "RANGE_BUCKET needs boundaries in ascending order that are not NULL")
    order_check = f" WHEN len(@b) <> list_count(@b) OR @b <> list_sort(@b) THEN {failure}"
    guard = "" if has_ascending_constant_numbers(node.expression) else order_check
    body = f"CASE WHEN {is_missing} THEN NULL{guard} ELSE len(list_filter(@b, lambda _e: _e <= @a)) END"
    return fill_template(body, node.this, node.expression)


_SLICE_START_SQL: Final = "greatest(CASE WHEN @b < 0 THEN len(@a) + @b ELSE @b END, 0) + 1"
_SLICE_END_SQL: Final = "CASE WHEN @c < 0 THEN len(@a) + @c ELSE @c END + 1"
_TEMPLATE_RULES: Final = rules_from_templates(
    COMMON_SQL,
    ARRAY_FUNCTIONS,
    {
        exp.ArrayReverse: "list_reverse({0})",
        exp.ArrayFirst: CheckedTemplate("len(@a) = 0", "@a[1]"),
        exp.ArrayLast: CheckedTemplate("len(@a) = 0", "@a[-1]"),
        exp.ArraySlice: (
            f"CASE WHEN @a IS NULL OR @b IS NULL OR @c IS NULL THEN NULL WHEN {_SLICE_END_SQL} < 1 OR {_SLICE_START_SQL} > {_SLICE_END_SQL} THEN @a[1:0]"
            f" ELSE @a[{_SLICE_START_SQL}:{_SLICE_END_SQL}] END"
        ),
        "ARRAY_IS_DISTINCT": (
            "len(@a) = len(list_distinct(@a))"
            " + CASE WHEN list_contains(list_transform(@a, lambda _e: _e IS NULL), true) THEN 1 ELSE 0 END"
        ),
    },
)

RULES = RuleSet(
    by_node_class={
        exp.Select: _translate_select_as_struct,
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
    by_function_name=_TEMPLATE_RULES.by_function_name,
)
