"""Rules for JSON functions: paths, scalars, subdocuments, conversions, constructors, and values as JSON text."""

from itertools import count
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    COMMON_SQL,
    as_json_document,
    convert_implicitly,
    fail_if_sql,
    fill_template,
    typed_null,
)
from cordwood.engines.clickhouse.rules.time_text import TIME_PRINTER
from cordwood.model.datatype import Kind
from cordwood.sql.datatypes import datatype_of, kind_of
from cordwood.sql.lowering import RuleSet, fragment_node, placeholders_text, raise_unsupported, string_literal_node
from cordwood.sql.nodes import constant_text
from cordwood.sql.rules.functions import JSON_FUNCTIONS, CheckedTemplate, rules_from_templates
from cordwood.sql.rules.json_functions import (
    INVALID_JSON_MESSAGE,
    JsonPathSteps,
    JsonPrinter,
    are_key_and_value_arrays,
    canonical_json_text,
    have_constant_keys,
    json_object_pairs,
    json_path_steps,
    option_value,
    rounds_wide_numbers,
    string_function_rule,
    with_wide_number_mode_check,
)

_SHORTEST_FLOAT_TEXT_SQL: Final = (
    "replaceRegexpOne(replaceRegexpOne(toString(@a), 'e(\\\\d)', 'e+\\\\1'), 'e([+-])(\\\\d)$', 'e\\\\10\\\\2')"
)
_FLOAT_JSON_TEXT_SQL: Final = (
    f"multiIf(isNaN(@a), '\"NaN\"', isInfinite(@a), if(@a > 0, '\"Infinity\"', '\"-Infinity\"'), @a = 0, '0',"
    f" abs(@a) >= 1e15, {_SHORTEST_FLOAT_TEXT_SQL}, {_SHORTEST_FLOAT_TEXT_SQL})"
)
_JSON_SQL_BY_SCALAR_KIND: Final = {
    Kind.STRING: "toJSONString(@a)",
    Kind.INT64: "toString(@a)",
    Kind.FLOAT64: _FLOAT_JSON_TEXT_SQL,
    Kind.BOOL: "if(@a, 'true', 'false')",
    Kind.BYTES: "concat('\"', base64Encode(@a), '\"')",
    Kind.DATE: "concat('\"', toString(@a), '\"')",
    Kind.JSON: "@a",
    Kind.VARIANT: "@a",
    Kind.NUMERIC: "toString(@a)",
    Kind.BIGNUMERIC: "toString(@a)",
}
_QUOTED_IF_CONDITION_SQL: Final = "if({0}, concat('\"', toString(@a), '\"'), toString(@a))"
# Values of these kinds are printed in several lines by TO_JSON_STRING with pretty_print.
_MULTILINE_JSON_KINDS: Final = (Kind.ARRAY, Kind.STRUCT, Kind.JSON, Kind.VARIANT)


def _refuse_pretty_print(node: exp.Expr, json_text: exp.Expr) -> exp.Expr:
    datatype, options = datatype_of(node.this), node.args.get("options")
    is_one_line = datatype is not None and datatype.kind not in _MULTILINE_JSON_KINDS
    if options is not None and option_value(options) is not False and not is_one_line:
        raise_unsupported(node, "TO_JSON_STRING with pretty_print")
    return json_text


JSON_PRINTER: Final = JsonPrinter(
    common_sql=COMMON_SQL,
    time_printer=TIME_PRINTER,
    scalar_templates=_JSON_SQL_BY_SCALAR_KIND,
    quoted_number_templates={
        Kind.INT64: _QUOTED_IF_CONDITION_SQL.format("abs(toInt128(@a)) > 9007199254740992"),
        Kind.NUMERIC: _QUOTED_IF_CONDITION_SQL.format("abs(@a) > 9007199254740992 OR @a != trunc(@a)"),
        Kind.BIGNUMERIC: _QUOTED_IF_CONDITION_SQL.format("abs(@a) > 9007199254740992 OR @a != trunc(@a)"),
    },
    untyped_template="toJSONString({0})",
    default_template="toJSONString(toString(@a))",
    parse_json=lambda text: text,
    apply_pretty_print=_refuse_pretty_print,
)
JSON_PRINTER_RULES = JSON_PRINTER.rules()


def json_path_arguments(steps: JsonPathSteps, first: int = 0) -> tuple[str, list[exp.Expr]]:
    """Return a JSON path as arguments of ClickHouse's functions: template text, and the keys for its placeholders.

    The placeholders are numbered from `first` on. Array positions are increased by one, because ClickHouse counts from
    one.
    """
    keys = [step for step in steps if isinstance(step, str)]
    hole_index = count(first)
    template = "".join(f", {{{next(hole_index)}}}" if isinstance(step, str) else f", {step + 1}" for step in steps)
    return template, list(map(string_literal_node, keys))


# SQL for the text as a JSON document, or NULL if it is not one. If the text was truncated, so that only the closing
# braces of one or two objects are missing, the braces are appended.
_JSON_WITH_CLOSING_BRACES_SQL: Final = (
    "multiIf(isValidJSON(@a), @a, NOT startsWith(@a, '{'), NULL, isValidJSON(concat(@a, '}')), concat(@a, '}'),"
    " isValidJSON(concat(@a, '}}')), concat(@a, '}}'), NULL)"
)


def _json_document_with_closing_braces(value: exp.Expr, path: str) -> exp.Expr:
    """Return the JSON document to which `path` is applied; if the document is a text, append missing closing braces."""
    if kind_of(value) in (Kind.JSON, Kind.VARIANT) or not path:
        return as_json_document(value)
    return fill_template(_JSON_WITH_CLOSING_BRACES_SQL, value)


def _read_path_arguments(node: exp.Expr) -> tuple[str, list[exp.Expr]] | None:
    return (
        None if isinstance(node.expression, exp.Null) else json_path_arguments(json_path_steps(node.expression, node))
    )


def _translate_json_query(node: exp.Expr) -> exp.Expr:
    """Translate JSON_QUERY and JSON_EXTRACT; in a document that is a text, a JSON null gives NULL."""
    path_and_keys = _read_path_arguments(node)
    if path_and_keys is None:
        return exp.Null()
    path, keys = path_and_keys
    part = fill_template(
        f"nullIf(JSONExtractRaw(@a{path}), '')", _json_document_with_closing_braces(node.this, path), texts=keys
    )
    return part if kind_of(node.this) is Kind.JSON else fragment_node("nullIf({0}, 'null')", part)


_IS_JSON_SCALAR_SQL: Final = "JSONType({0}{1}) NOT IN ('Object', 'Array', 'Null')"


def scalar_text_sql(value: str, path: str) -> str:
    """Return template text for the text of a JSON scalar, which is NULL for objects, arrays and null."""
    return f"if({_IS_JSON_SCALAR_SQL.format(value, path)}, JSONExtract({value}{path}, 'Nullable(String)'), NULL)"


def _translate_json_value(node: exp.Expr) -> exp.Expr:
    """Translate JSON_VALUE and JSON_EXTRACT_SCALAR."""
    path_and_keys = _read_path_arguments(node)
    if path_and_keys is None:
        return exp.Null()
    path, keys = path_and_keys
    return fill_template(scalar_text_sql("@a", path), _json_document_with_closing_braces(node.this, path), texts=keys)


def _translate_json_query_array(node: exp.Expr) -> exp.Expr:
    """Translate JSON_QUERY_ARRAY, which returns the elements of an array as JSON."""
    path_and_keys = _read_path_arguments(node)
    if path_and_keys is None:
        return exp.Null()
    path, keys = path_and_keys
    items = f"arrayMap(_e -> CAST(_e, 'Nullable(String)'), JSONExtractArrayRaw(assumeNotNull(@a){path}))"
    return fill_template(
        f"if(ifNull(JSONType(@a{path}), '') = 'Array', {items}, [])", as_json_document(node.this), texts=keys
    )


def _translate_json_value_array(node: exp.Expr) -> exp.Expr:
    """Translate JSON_VALUE_ARRAY, which returns the texts of an array's elements.

    If an element is not a scalar, the result is an empty array.
    """
    path_and_keys = _read_path_arguments(node)
    if path_and_keys is None:
        return exp.Null()
    path, keys = path_and_keys
    raw = f"JSONExtractArrayRaw(assumeNotNull(@a){path})"
    scalars = f"NOT arrayExists(_e -> JSONType(_e) IN ('Object', 'Array'), {raw})"
    texts = f"arrayMap(_e -> {scalar_text_sql('_e', '')}, {raw})"
    if isinstance(node.this, exp.Null):
        return typed_null(datatype_of(node))
    body = f"if(ifNull(JSONType(@a{path}), '') = 'Array' AND {scalars}, {texts}, [])"
    return fill_template(body, as_json_document(node.this), texts=keys)


def _translate_parse_json(node: exp.Expr) -> exp.Expr:
    """Translate PARSE_JSON. A literal is parsed at compile time, because ClickHouse's parser is not strict enough."""
    literal_text, rounds = constant_text(node.this), rounds_wide_numbers(node, default_mode="exact")
    if literal_text is None:
        return fill_template(
            fail_if_sql(node, "NOT isValidJSON(@a)", INVALID_JSON_MESSAGE, "JSONExtractRaw(@a)"),
            convert_implicitly(node.this, Kind.STRING),
        )
    json_text = canonical_json_text(literal_text, rounds=rounds)
    return (
        string_literal_node(json_text)
        if json_text is not None
        else fragment_node(fail_if_sql(node, "true", INVALID_JSON_MESSAGE, "''"))
    )


_JSON_NUMBER_TYPES_SQL: Final = "('Int64', 'UInt64', 'Double')"


_EXTRACTED_TEXT_SQL: Final = "JSONExtract(@a, 'Nullable(String)')"
_EXTRACTED_FLOAT_SQL: Final = "JSONExtract(@a, 'Nullable(Float64)')"
_NEAREST_INTEGER_SQL: Final = "accurateCastOrNull(sign({0}) * floor(abs({0}) + 0.5), 'Int64')"
_FLOAT_FROM_TEXT_SQL: Final = f"toFloat64OrNull({_EXTRACTED_TEXT_SQL})"


_LAX_BOOL_SQL: Final = (
    f"multiIf(JSONType(@a) = 'Bool', JSONExtract(@a, 'Nullable(Bool)'), JSONType(@a) = 'String',"
    f" multiIf(lower({_EXTRACTED_TEXT_SQL}) = 'true', true, lower({_EXTRACTED_TEXT_SQL}) = 'false', false, NULL),"
    f" JSONType(@a) IN {_JSON_NUMBER_TYPES_SQL}, {_EXTRACTED_FLOAT_SQL} != 0, NULL)"
)
_LAX_INT_SQL: Final = (
    "multiIf(JSONType(@a) = 'Bool', toInt64(JSONExtract(@a, 'Nullable(Bool)')),"
    " JSONType(@a) IN ('Int64', 'UInt64'), JSONExtract(@a, 'Nullable(Int64)'),"
    f" JSONType(@a) = 'Double', {_NEAREST_INTEGER_SQL.format(_EXTRACTED_FLOAT_SQL)}, JSONType(@a) = 'String',"
    f" ifNull(toInt64OrNull({_EXTRACTED_TEXT_SQL}), {_NEAREST_INTEGER_SQL.format(_FLOAT_FROM_TEXT_SQL)}), NULL)"
)
_LAX_FLOAT_SQL: Final = (
    f"multiIf(JSONType(@a) IN {_JSON_NUMBER_TYPES_SQL}, {_EXTRACTED_FLOAT_SQL}, JSONType(@a) = 'String',"
    f" multiIf(match(lower({_EXTRACTED_TEXT_SQL}), '^[+-]?inf(inity)?$'), if(startsWith({_EXTRACTED_TEXT_SQL}, '-'), -inf, inf),"
    f" lower({_EXTRACTED_TEXT_SQL}) = 'nan', nan, {_FLOAT_FROM_TEXT_SQL}), NULL)"
)
_LAX_STRING_SQL: Final = f"if(JSONType(@a) = 'Double', {_SHORTEST_FLOAT_TEXT_SQL.replace('@a', f'assumeNotNull({_EXTRACTED_FLOAT_SQL})')}, {scalar_text_sql('@a', '')})"


def _translate_json_array(node: exp.Expr) -> exp.Expr:
    items = [
        JSON_PRINTER.print_value(item, datatype_of(item), JSON_PRINTER.scalar_templates) for item in node.expressions
    ]
    if not items:
        return fragment_node("'[]'")
    elements = ", ',', ".join(f"{{{index}}}" for index in range(len(items)))
    return fragment_node(f"concat('[', {elements}, ']')", *items)


def _translate_json_object(node: exp.Expr) -> exp.Expr:
    """Translate JSON_OBJECT; if a key occurs twice, its first value is used."""
    pairs = json_object_pairs(node)
    if not pairs:
        return fragment_node("'{}'")
    if are_key_and_value_arrays(pairs):
        return _json_object_of_arrays(node, pairs[0][0], _json_texts_of_elements(pairs[0][1]))
    keys = [key for key, _ in pairs]
    texts = [JSON_PRINTER.print_value(value, datatype_of(value), JSON_PRINTER.scalar_templates) for _, value in pairs]
    return (
        _json_object_of_pairs(keys, texts)
        if have_constant_keys(pairs)
        else _json_object_of_arrays(node, _array_literal(keys), _array_literal(texts))
    )


def _json_object_of_pairs(keys: list[exp.Expr], texts: list[exp.Expr]) -> exp.Expr:
    pairs = ", ',', ".join(f"toJSONString({{{index}}}), ':', {{{index + len(keys)}}}" for index in range(len(keys)))
    return fragment_node(f"concat('{{', {pairs}, '}}')", *keys, *texts)


def _array_literal(items: list[exp.Expr]) -> exp.Expr:
    return fragment_node(f"[{placeholders_text(len(items))}]", *items)


def _json_texts_of_elements(values: exp.Expr) -> exp.Expr:
    datatype = datatype_of(values)
    json_value = JSON_PRINTER.print_value(
        fragment_node("_e"), datatype.element if datatype else None, JSON_PRINTER.scalar_templates
    )
    return fragment_node("arrayMap(_e -> {1}, {0})", values, json_value)


def _json_object_of_arrays(node: exp.Expr, keys: exp.Expr, texts: exp.Expr) -> exp.Expr:
    """Return a JSON object made from an array of keys and an array of the values' JSON texts."""
    first_occurrences = "arrayFilter(_i -> indexOf(@a, @a[_i]) = _i, arrayEnumerate(@a))"
    pair = "concat(toJSONString(assumeNotNull(@a[_i])), ':', assumeNotNull(@b[_i]))"
    result = f"concat('{{', arrayStringConcat(arrayMap(_i -> {pair}, {first_occurrences}), ','), '}}')"
    is_invalid = "(length(@a) != length(@b) OR arrayExists(_k -> isNull(_k), @a))"
    message = "JSON_OBJECT needs as many values as keys, and keys that are not NULL"
    return fill_template(fail_if_sql(node, is_invalid, message, result), keys, texts)


_JSON_TYPE_NAME_SQL: Final = (
    "transform(JSONType(@a), ['Object', 'Array', 'String', 'Bool', 'Null'],"
    " ['object', 'array', 'string', 'boolean', 'null'], 'number')"
)
_EXTRACTED_INTEGER_SQL: Final = f"if(JSONType(@a) IN ('Int64', 'UInt64'), JSONExtract(@a, 'Nullable(Int64)'), accurateCastOrNull({_EXTRACTED_FLOAT_SQL}, 'Int64'))"
_IS_NOT_INTEGER_SQL: Final = f"JSONType(@a) NOT IN {_JSON_NUMBER_TYPES_SQL} OR {_EXTRACTED_FLOAT_SQL} != trunc({_EXTRACTED_FLOAT_SQL}) OR isNull({_EXTRACTED_INTEGER_SQL})"
_null_unless_present_sql: Final = "if(isNull(@a), NULL, {})".format


def _checked_conversion_template(is_invalid: str, conversion: str) -> CheckedTemplate:
    return CheckedTemplate(f"(isNotNull(@a) AND ({is_invalid}))", _null_unless_present_sql(conversion))


_TEMPLATE_RULES: Final = rules_from_templates(
    COMMON_SQL,
    JSON_FUNCTIONS,
    {
        exp.JSONType: _null_unless_present_sql(_JSON_TYPE_NAME_SQL),
        exp.JSONBool: _checked_conversion_template("JSONType(@a) NOT IN ('Bool')", "JSONExtract(@a, 'Nullable(Bool)')"),
        exp.Int64: _checked_conversion_template(_IS_NOT_INTEGER_SQL, _EXTRACTED_INTEGER_SQL),
        exp.Float64: _checked_conversion_template(
            f"JSONType(@a) NOT IN {_JSON_NUMBER_TYPES_SQL}", _EXTRACTED_FLOAT_SQL
        ),
        exp.String: _checked_conversion_template("JSONType(@a) NOT IN ('String')", _EXTRACTED_TEXT_SQL),
        exp.LaxBool: _null_unless_present_sql(_LAX_BOOL_SQL),
        exp.LaxInt64: _null_unless_present_sql(_LAX_INT_SQL),
        exp.LaxFloat64: _null_unless_present_sql(_LAX_FLOAT_SQL),
        exp.LaxString: _null_unless_present_sql(_LAX_STRING_SQL),
        "LAX_STRING": _null_unless_present_sql(_LAX_STRING_SQL),
    },
)

RULES = RuleSet(
    by_node_class={
        **_TEMPLATE_RULES.by_node_class,
        exp.Float64: with_wide_number_mode_check(_TEMPLATE_RULES.by_node_class[exp.Float64]),
        exp.String: string_function_rule(TIME_PRINTER, _TEMPLATE_RULES.by_node_class[exp.String]),
        exp.JSONSet: lambda node: raise_unsupported(node, "JSON_SET"),
        exp.JSONRemove: lambda node: raise_unsupported(node, "JSON_REMOVE"),
        exp.JSONStripNulls: lambda node: raise_unsupported(node, "JSON_STRIP_NULLS"),
        exp.JSONExtract: _translate_json_query,
        exp.JSONExtractScalar: _translate_json_value,
        exp.JSONExtractArray: _translate_json_query_array,
        exp.JSONValueArray: _translate_json_value_array,
        exp.ParseJSON: _translate_parse_json,
        exp.JSONArray: _translate_json_array,
        exp.JSONObject: _translate_json_object,
    },
    by_function_name=_TEMPLATE_RULES.by_function_name,
)
