"""Rules for JSON functions: reading values at paths, converting JSON values, building JSON, and printing JSON text."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    COMMON_SQL,
    as_json_document,
    convert_implicitly,
    failure_sql,
    fill_fallible_template,
    fill_template,
    is_cheap_to_repeat,
)
from cordwood.engines.duckdb.rules.time_text import TIME_PRINTER
from cordwood.model.datatype import Kind
from cordwood.sql.budget import charge_nodes
from cordwood.sql.datatypes import datatype_of, kind_of
from cordwood.sql.lowering import RuleSet, fragment_node, placeholders_text, raise_unsupported, string_literal_node
from cordwood.sql.nodes import constant_python_value, constant_text
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

_FLOAT_JSON_TEXT_SQL: Final = (
    "CASE WHEN isnan(@a) THEN '\"NaN\"' WHEN isinf(@a) THEN CASE WHEN @a > 0 THEN '\"Infinity\"' ELSE '\"-Infinity\"' END"
    " WHEN @a = 0 THEN '0' WHEN CAST(printf('%.15g', @a) AS DOUBLE) = @a THEN printf('%.15g', @a) ELSE printf('%.17g', @a) END"
)
_EXACT_NUMBER_JSON_TEXT_SQL: Final = r"regexp_replace(@a::VARCHAR, '\.?0+$', '')"
_JSON_SQL_BY_SCALAR_KIND: Final = {
    Kind.STRING: "to_json(@a)::VARCHAR",
    Kind.INT64: "@a::VARCHAR",
    Kind.FLOAT64: _FLOAT_JSON_TEXT_SQL,
    Kind.BOOL: "@a::VARCHAR",
    Kind.BYTES: "'\"' || to_base64(@a) || '\"'",
    Kind.DATE: "'\"' || @a::VARCHAR || '\"'",
    Kind.JSON: "@a::VARCHAR",
    Kind.VARIANT: "@a::JSON::VARCHAR",
    Kind.NUMERIC: _EXACT_NUMBER_JSON_TEXT_SQL,
    Kind.BIGNUMERIC: _EXACT_NUMBER_JSON_TEXT_SQL,
}

# SQL for indented JSON. DuckDB indents by four spaces, and BigQuery by two, so the SQL halves the indentation.
_PRETTY_JSON_SQL: Final = (
    "array_to_string(list_transform(string_split(json_pretty({0}::JSON), chr(10)),"
    " lambda _l: repeat(' ', (len(_l) - len(ltrim(_l, ' '))) // 2) || ltrim(_l, ' ')), chr(10))"
)


def indented_json(json_value: exp.Expr) -> exp.Expr:
    """Return SQL for indented JSON text, with one element per line."""
    return fragment_node(_PRETTY_JSON_SQL, json_value)


def _apply_pretty_print(node: exp.Expr, json_text: exp.Expr) -> exp.Expr:
    options = node.args.get("options")
    if options is not None and option_value(options) is True:
        return indented_json(json_text)
    if options is not None and option_value(options) is None:
        raise_unsupported(node, "TO_JSON_STRING with a pretty_print that is not a literal")
    return json_text


JSON_PRINTER: Final = JsonPrinter(
    common_sql=COMMON_SQL,
    time_printer=TIME_PRINTER,
    scalar_templates=_JSON_SQL_BY_SCALAR_KIND,
    quoted_number_templates={
        Kind.INT64: "CASE WHEN abs(@a::HUGEINT) > 9007199254740992 THEN '\"' || @a::VARCHAR || '\"' ELSE @a::VARCHAR END",
        **dict.fromkeys(
            (Kind.NUMERIC, Kind.BIGNUMERIC),
            f"CASE WHEN abs(@a) > 9007199254740992 OR @a <> trunc(@a) THEN '\"' || {_EXACT_NUMBER_JSON_TEXT_SQL} || '\"' ELSE {_EXACT_NUMBER_JSON_TEXT_SQL} END",
        ),
    },
    untyped_template="to_json({0})::VARCHAR",
    default_template="to_json(@a::VARCHAR)::VARCHAR",
    parse_json=lambda text: fragment_node("{0}::JSON", text),
    apply_pretty_print=_apply_pretty_print,
)
JSON_PRINTER_RULES = JSON_PRINTER.rules()


def json_path_text(steps: JsonPathSteps) -> str:
    """Return a path in DuckDB's syntax with all keys quoted; a path with an empty key or `*` becomes a JSON pointer."""
    charge_nodes(len(steps))
    if "" in steps or "*" in steps:
        return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else _quoted_path_key(step) for step in steps)


def _quoted_path_key(name: str) -> str:
    return '."' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


# SQL for the JSON text `@a`. If only the closing braces of one or two objects are missing, they are added. Other texts
# that are not JSON give NULL.
_JSON_WITH_CLOSING_BRACES_SQL: Final = (
    "CASE WHEN json_valid(@a) THEN @a WHEN @a LIKE '{%' THEN"
    " CASE WHEN json_valid(@a || '}') THEN @a || '}' WHEN json_valid(@a || '}}') THEN @a || '}}' END END"
)


def _json_document_with_closing_braces(node: exp.Expr, path: exp.Expr) -> exp.Expr:
    """Return the document of `node` as JSON; add missing closing braces to a text, unless the path is `$`."""
    if kind_of(node.this) in (Kind.JSON, Kind.VARIANT) or constant_text(path) == "$":
        return as_json_document(node.this)
    return fill_template(f"({_JSON_WITH_CLOSING_BRACES_SQL})::JSON", node.this)


def _json_path_or_none(node: exp.Expr) -> exp.Expr | None:
    if isinstance(node.expression, exp.Null):
        return None
    return exp.Literal.string(json_path_text(json_path_steps(node.expression, node)))


def _translate_json_query(node: exp.Expr) -> exp.Expr:
    """Translate JSON_QUERY and JSON_EXTRACT, which return the JSON at a path.

    If the document is given as a text, the result is also a text, or NULL for a JSON null.
    """
    path = _json_path_or_none(node)
    if path is None:
        return exp.Null()
    part = fill_fallible_template(node, "json_extract(@a, @b)", _json_document_with_closing_braces(node, path), path)
    if kind_of(node.this) is Kind.JSON:
        return part
    return fragment_node("nullif({0}::VARCHAR, 'null')", part)


_CONTAINER_TYPES_SQL: Final = "('OBJECT', 'ARRAY')"


def _translate_json_value(node: exp.Expr) -> exp.Expr:
    """Translate JSON_VALUE and JSON_EXTRACT_SCALAR, which return a scalar as text, and NULL for objects and arrays."""
    path = _json_path_or_none(node)
    if path is None:
        return exp.Null()
    body = f"CASE WHEN json_type(@a, @b) NOT IN {_CONTAINER_TYPES_SQL} THEN json_extract_string(@a, @b) END"
    if kind_of(node.this) is Kind.STRING and is_cheap_to_repeat(node.this):
        return fill_template(body.replace("@a", _JSON_WITH_CLOSING_BRACES_SQL), node.this, path)
    return fill_template(body, _json_document_with_closing_braces(node, path), path)


def _translate_json_query_array(node: exp.Expr) -> exp.Expr:
    """Translate JSON_QUERY_ARRAY, which returns the elements as JSON, or as texts if the document is a text."""
    path = _json_path_or_none(node)
    if path is None:
        return exp.Null()
    document = as_json_document(node.this)
    items = "json_extract(json_extract(@a, @b), '$[*]')"
    if kind_of(node.this) is not Kind.JSON:
        items = f"list_transform({items}, lambda _e: _e::VARCHAR)"
    return fill_template(f"CASE WHEN json_type(@a, @b) = 'ARRAY' THEN {items} END", document, path)


def _translate_json_value_array(node: exp.Expr) -> exp.Expr:
    """Translate JSON_VALUE_ARRAY, which returns the elements as texts, or NULL if an element is not a scalar."""
    path = _json_path_or_none(node)
    if path is None:
        return exp.Null()
    items = "json_extract(json_extract(@a, @b), '$[*]')"
    scalars = f"len(list_filter({items}, lambda _e: json_type(_e) IN {_CONTAINER_TYPES_SQL})) = 0"
    texts = f"list_transform({items}, lambda _e: json_extract_string(_e, '$'))"
    body = f"CASE WHEN json_type(@a, @b) = 'ARRAY' AND {scalars} THEN {texts} END"
    return fill_template(body, as_json_document(node.this), path)


def _translate_parse_json(node: exp.Expr) -> exp.Expr:
    """Translate PARSE_JSON; a literal is parsed at compile time, because DuckDB's parser is less strict."""
    literal_text, rounds = constant_text(node.this), rounds_wide_numbers(node, default_mode="exact")
    if literal_text is None:
        return fill_fallible_template(node, "json(@a)", convert_implicitly(node.this, Kind.STRING))
    json_text = canonical_json_text(literal_text, rounds=rounds)
    return (
        fragment_node("json({0})", exp.Literal.string(json_text))
        if json_text is not None
        else fragment_node(f"{failure_sql(node, INVALID_JSON_MESSAGE)}::JSON")
    )


_JSON_STRING_SQL: Final = "json_extract_string(@a, '$')"


# SQL that parses a text as a float. Texts with `_` give NULL, because DuckDB's cast would accept `1_000` as a number.
_FLOAT_FROM_TEXT_SQL: Final = (
    f"try_cast(CASE WHEN NOT contains({_JSON_STRING_SQL}, '_') THEN {_JSON_STRING_SQL} END AS DOUBLE)"
)
_LAX_BOOL_SQL: Final = (
    "CASE json_type(@a) WHEN 'BOOLEAN' THEN CAST(@a AS BOOLEAN) WHEN 'VARCHAR' THEN CASE lower("
    + _JSON_STRING_SQL
    + ")"
    " WHEN 'true' THEN true WHEN 'false' THEN false END WHEN 'BIGINT' THEN CAST(@a AS DOUBLE) <> 0"
    " WHEN 'UBIGINT' THEN CAST(@a AS DOUBLE) <> 0 WHEN 'DOUBLE' THEN CAST(@a AS DOUBLE) <> 0 END"
)
_LAX_INT_SQL: Final = (
    "CASE json_type(@a) WHEN 'BOOLEAN' THEN CAST(CAST(@a AS BOOLEAN) AS BIGINT)"
    " WHEN 'BIGINT' THEN try_cast("
    + _JSON_STRING_SQL
    + " AS BIGINT) WHEN 'UBIGINT' THEN try_cast("
    + _JSON_STRING_SQL
    + " AS BIGINT)"
    " WHEN 'DOUBLE' THEN try_cast(round(CAST(@a AS DOUBLE)) AS BIGINT)"
    " WHEN 'VARCHAR' THEN coalesce(CASE WHEN regexp_full_match("
    + _JSON_STRING_SQL
    + r", '[+-]?\d+') THEN try_cast("
    + _JSON_STRING_SQL
    + " AS BIGINT) END, try_cast(round("
    + _FLOAT_FROM_TEXT_SQL
    + ") AS BIGINT)) END"
)
_LAX_FLOAT_SQL: Final = (
    "CASE json_type(@a) WHEN 'BIGINT' THEN CAST(@a AS DOUBLE) WHEN 'UBIGINT' THEN CAST(@a AS DOUBLE)"
    " WHEN 'DOUBLE' THEN CAST(@a AS DOUBLE) WHEN 'VARCHAR' THEN " + _FLOAT_FROM_TEXT_SQL + " END"
)
_LAX_STRING_SQL: Final = (
    "CASE json_type(@a) WHEN 'OBJECT' THEN NULL WHEN 'ARRAY' THEN NULL WHEN 'NULL' THEN NULL WHEN 'DOUBLE' THEN CASE WHEN"
    " CAST(printf('%.15g', @a::DOUBLE) AS DOUBLE) = @a::DOUBLE THEN printf('%.15g', @a::DOUBLE)"
    " ELSE printf('%.17g', @a::DOUBLE) END ELSE " + _JSON_STRING_SQL + " END"
)


def _translate_json_array(node: exp.Expr) -> exp.Expr:
    items = [JSON_PRINTER.convert_to_json(item) for item in node.expressions]
    return fragment_node(f"json_array({placeholders_text(len(items))})", *items)


def _translate_json_object(node: exp.Expr) -> exp.Expr:
    """Translate JSON_OBJECT; if a key occurs twice, the object has the first of its values."""
    pairs = json_object_pairs(node)
    if not pairs:
        return fragment_node("'{}'::JSON")
    if are_key_and_value_arrays(pairs):
        return _json_object_of_arrays(node, pairs[0][0], _json_texts_of_elements(pairs[0][1]))
    if have_constant_keys(pairs):
        parts = [part for key, value in pairs for part in (key, JSON_PRINTER.convert_to_json(value))]
        return fragment_node(f"json_object({placeholders_text(len(parts))})", *parts)
    texts = [JSON_PRINTER.print_value(value, datatype_of(value), JSON_PRINTER.scalar_templates) for _, value in pairs]
    return _json_object_of_arrays(node, _list_literal([key for key, _ in pairs]), _list_literal(texts))


def _list_literal(items: list[exp.Expr]) -> exp.Expr:
    return fragment_node(f"[{placeholders_text(len(items))}]", *items)


def _json_texts_of_elements(values: exp.Expr) -> exp.Expr:
    datatype = datatype_of(values)
    json_value = JSON_PRINTER.print_value(
        fragment_node("_e"), datatype.element if datatype else None, JSON_PRINTER.scalar_templates
    )
    return fragment_node("list_transform({0}, lambda _e: {1})", values, json_value)


def _json_object_of_arrays(node: exp.Expr, keys: exp.Expr, texts: exp.Expr) -> exp.Expr:
    """Return SQL for a JSON object from an array of keys and an array with the JSON texts of the values."""
    is_invalid = "@a IS NULL OR @b IS NULL OR len(@a) <> len(@b) OR len(@a) <> list_count(@a)"
    failure = failure_sql(node, "JSON_OBJECT needs as many values as keys, and keys that are not NULL")
    first_occurrences = "list_filter(range(1, len(@a) + 1), lambda _i: list_position(@a, @a[_i]) = _i)"
    pairs = f"array_to_string(list_transform({first_occurrences}, lambda _i: to_json(@a[_i])::VARCHAR || ':' || @b[_i]), ',')"
    return fill_template(f"CASE WHEN {is_invalid} THEN {failure} ELSE ('{{' || {pairs} || '}}')::JSON END", keys, texts)


_CREATE_IF_MISSING_OPTION: Final = "create_if_missing"


def _translate_json_set(node: exp.Expr) -> exp.Expr:
    """Translate JSON_SET by applying its pairs of path and value in order, each to the result of the previous pair."""
    pairs = [part for part in node.expressions if not isinstance(part, exp.Kwarg)]
    options = {
        part.name.lower(): constant_python_value(part.expression)
        for part in node.expressions
        if isinstance(part, exp.Kwarg)
    }
    creates = options.pop(_CREATE_IF_MISSING_OPTION, True)
    if options or not isinstance(creates, bool) or len(pairs) % 2:
        raise_unsupported(node, "JSON_SET with these arguments")
    document: exp.Expr = node.this
    for path, value in zip(pairs[::2], pairs[1::2], strict=True):
        document = _set_json_value(document, json_path_steps(path, node), value, node, creates=creates)
    return document


def _set_json_value(
    document: exp.Expr, steps: JsonPathSteps, value: exp.Expr, node: exp.Expr, *, creates: bool
) -> exp.Expr:
    """Return SQL that sets the value at a path of a document; with `creates`, the SQL also creates missing parents.

    The SQL fails in two cases in which BigQuery would create parents, but DuckDB's `json_set` would not: if a parent is
    a JSON null, or if the path has an array index that is greater than the length of the array.
    """
    # The SQL has a placeholder for each prefix of the path: `{0}` is filled with the empty path, and the last
    # placeholder with the whole path.
    paths = [string_literal_node(json_path_text(steps[:depth])) for depth in range(len(steps) + 1)]
    path_hole = f"{{{len(steps)}}}"
    if not creates:
        return fill_template(
            f"json_replace(@a, {path_hole}, @b)", document, JSON_PRINTER.convert_to_json(value), texts=paths
        )
    is_unsupported = " OR ".join(_unsupported_json_set_conditions(steps)) or "false"
    failure = failure_sql(node, "JSON_SET below a JSON null, or beyond the end of an array, is not supported")
    body = f"CASE WHEN {is_unsupported} THEN {failure} ELSE json_set(@a, {path_hole}, @b) END"
    return fill_template(body, document, JSON_PRINTER.convert_to_json(value), texts=paths)


def _unsupported_json_set_conditions(steps: JsonPathSteps) -> list[str]:
    """Return the conditions under which DuckDB's `json_set` leaves the document unchanged, but BigQuery does not."""
    parents = [f"{{{depth}}}" for depth in range(len(steps))]
    nulls = [f"json_type(@a, {path}) = 'NULL'" for path in parents]
    beyond = [
        f"(coalesce(json_type(@a, {path}), 'ARRAY') = 'ARRAY' AND coalesce(json_array_length(@a, {path}), 0) < {step})"
        for path, step in zip(parents, steps, strict=True)
        if isinstance(step, int) and step
    ]
    return [*nulls, *(f"(@a IS NOT NULL AND {condition})" for condition in beyond)]


def _translate_json_remove(node: exp.Expr) -> exp.Expr:
    """Translate JSON_REMOVE by applying its paths in order, each to the result of the previous path."""
    document: exp.Expr = node.this
    for path in node.expressions:
        steps = json_path_steps(path, node)
        if not steps:
            raise_unsupported(node, "JSON_REMOVE of the whole")
        document = fill_template("json_remove(@a, @b)", document, string_literal_node(json_path_text(steps)))
    return document


def _translate_json_strip_nulls(node: exp.Expr) -> exp.Expr:
    """Translate JSON_STRIP_NULLS without a path; refuse the options that also change arrays or remove empty values.

    DuckDB's `json_strip_nulls` removes nulls only from objects.
    """
    in_arrays, empty = (node.args.get(key) for key in ("include_arrays", "remove_empty"))
    if (
        node.expression
        or _option_value(in_arrays) is not False
        or (empty is not None and _option_value(empty) is not False)
    ):
        raise_unsupported(node, "JSON_STRIP_NULLS other than of a whole document with include_arrays => FALSE")
    return fill_template("json_strip_nulls(@a)", node.this)


def _option_value(option: exp.Expr | None) -> object:
    return None if option is None else option_value(option)


_JSON_NUMBER_TYPES_SQL: Final = "('BIGINT', 'UBIGINT', 'DOUBLE', 'HUGEINT', 'UHUGEINT')"
_JSON_TYPE_NAME_SQL: Final = (
    "CASE json_type(@a) WHEN 'OBJECT' THEN 'object' WHEN 'ARRAY' THEN 'array' WHEN 'VARCHAR' THEN 'string'"
    " WHEN 'BOOLEAN' THEN 'boolean' WHEN 'NULL' THEN 'null' ELSE 'number' END"
)
_JSON_TO_FLOAT_SQL: Final = "CAST(@a AS DOUBLE)"
# The condition that a JSON number has a fraction. It uses `try_cast`, so that it does not fail for other values.
_HAS_FRACTION_SQL: Final = "try_cast(@a AS DOUBLE) <> trunc(try_cast(@a AS DOUBLE))"
_JSON_TO_INTEGER_SQL: Final = f"CASE WHEN json_type(@a) IN ('BIGINT', 'UBIGINT') THEN CAST(@a AS BIGINT) ELSE CAST({_JSON_TO_FLOAT_SQL} AS BIGINT) END"
_TEMPLATE_RULES: Final = rules_from_templates(
    COMMON_SQL,
    JSON_FUNCTIONS,
    {
        exp.JSONType: f"CASE WHEN @a IS NULL THEN NULL ELSE {_JSON_TYPE_NAME_SQL} END",
        exp.JSONBool: CheckedTemplate("json_type(@a) <> 'BOOLEAN'", "CAST(@a AS BOOLEAN)"),
        exp.Int64: CheckedTemplate(
            f"json_type(@a) NOT IN {_JSON_NUMBER_TYPES_SQL} OR {_HAS_FRACTION_SQL}", _JSON_TO_INTEGER_SQL
        ),
        exp.Float64: CheckedTemplate(f"json_type(@a) NOT IN {_JSON_NUMBER_TYPES_SQL}", _JSON_TO_FLOAT_SQL),
        exp.String: CheckedTemplate("json_type(@a) <> 'VARCHAR'", _JSON_STRING_SQL),
        exp.LaxBool: _LAX_BOOL_SQL,
        exp.LaxInt64: _LAX_INT_SQL,
        exp.LaxFloat64: _LAX_FLOAT_SQL,
        exp.LaxString: _LAX_STRING_SQL,
        "LAX_STRING": _LAX_STRING_SQL,
    },
)

RULES = RuleSet(
    by_node_class={
        **_TEMPLATE_RULES.by_node_class,
        exp.Float64: with_wide_number_mode_check(_TEMPLATE_RULES.by_node_class[exp.Float64]),
        exp.String: string_function_rule(TIME_PRINTER, _TEMPLATE_RULES.by_node_class[exp.String]),
        exp.JSONExtract: _translate_json_query,
        exp.JSONExtractScalar: _translate_json_value,
        exp.JSONExtractArray: _translate_json_query_array,
        exp.JSONValueArray: _translate_json_value_array,
        exp.ParseJSON: _translate_parse_json,
        exp.JSONArray: _translate_json_array,
        exp.JSONObject: _translate_json_object,
        exp.JSONSet: _translate_json_set,
        exp.JSONRemove: _translate_json_remove,
        exp.JSONStripNulls: _translate_json_strip_nulls,
    },
    by_function_name=_TEMPLATE_RULES.by_function_name,
)
