"""JSON functions: paths, scalars and subdocuments, conversions of JSON values, constructors, values as JSON text."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import WORDS, attempt, fail, is_simple, json_document, once, read_as
from cordwood.engines.duckdb.rules.time_text import TIME_TEXT
from cordwood.model.datatype import Kind
from cordwood.sql.datatypes import datatype_of, kind_of
from cordwood.sql.lowering import RuleSet, fragment, placeholders, text_part, unsupported
from cordwood.sql.nodes import constant, constant_text
from cordwood.sql.rules.functions import JSON, Checked, rules_from_templates
from cordwood.sql.rules.json_functions import (
    INVALID_JSON,
    JsonText,
    Steps,
    are_key_and_value_arrays,
    canonical_document,
    have_constant_keys,
    option_value,
    pairs_of,
    print_times,
    refuse_exact_mode,
    rounds_wide,
    steps_of,
)

_FLOAT_TEXT: Final = (
    "CASE WHEN isnan(@a) THEN '\"NaN\"' WHEN isinf(@a) THEN CASE WHEN @a > 0 THEN '\"Infinity\"' ELSE '\"-Infinity\"' END"
    " WHEN @a = 0 THEN '0' WHEN CAST(printf('%.15g', @a) AS DOUBLE) = @a THEN printf('%.15g', @a) ELSE printf('%.17g', @a) END"
)
_EXACT: Final = r"regexp_replace(@a::VARCHAR, '\.?0+$', '')"
_SCALARS: Final = {
    Kind.STRING: "to_json(@a)::VARCHAR",
    Kind.INT64: "@a::VARCHAR",
    Kind.FLOAT64: _FLOAT_TEXT,
    Kind.BOOL: "@a::VARCHAR",
    Kind.BYTES: "'\"' || to_base64(@a) || '\"'",
    Kind.DATE: "'\"' || @a::VARCHAR || '\"'",
    Kind.JSON: "@a::VARCHAR",
    Kind.VARIANT: "@a::JSON::VARCHAR",
    Kind.NUMERIC: _EXACT,
    Kind.BIGNUMERIC: _EXACT,
}

# DuckDB indents by four spaces, BigQuery by two.
_PRETTY: Final = (
    "array_to_string(list_transform(string_split(json_pretty({0}::JSON), chr(10)),"
    " lambda _l: repeat(' ', (len(_l) - len(ltrim(_l, ' '))) // 2) || ltrim(_l, ' ')), chr(10))"
)


def indent(json_value: exp.Expr) -> exp.Expr:
    """Return JSON text that is indented, one element per line."""
    return fragment(_PRETTY, json_value)


def _print_json(node: exp.Expr, json_text: exp.Expr) -> exp.Expr:
    options = node.args.get("options")
    if options is not None and option_value(options) is True:
        return indent(json_text)
    if options is not None and option_value(options) is None:
        unsupported(node, "TO_JSON_STRING with a pretty_print that is not a literal")
    return json_text


JSON_TEXT: Final = JsonText(
    words=WORDS,
    times=TIME_TEXT,
    scalars=_SCALARS,
    texts={
        Kind.INT64: "CASE WHEN abs(@a::HUGEINT) > 9007199254740992 THEN '\"' || @a::VARCHAR || '\"' ELSE @a::VARCHAR END",
        **dict.fromkeys(
            (Kind.NUMERIC, Kind.BIGNUMERIC),
            f"CASE WHEN abs(@a) > 9007199254740992 OR @a <> trunc(@a) THEN '\"' || {_EXACT} || '\"' ELSE {_EXACT} END",
        ),
    },
    untyped="to_json({0})::VARCHAR",
    otherwise="to_json(@a::VARCHAR)::VARCHAR",
    as_json=lambda text: fragment("{0}::JSON", text),
    print_json=_print_json,
)
JSON_TEXT_RULES = JSON_TEXT.rules()


def path_text(steps: Steps) -> str:
    """Return a path in DuckDB's syntax with all keys quoted; empty keys and `*` need a JSON pointer."""
    if "" in steps or "*" in steps:
        return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else _key(step) for step in steps)


def _key(name: str) -> str:
    return '."' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


# SQL for the text @a, completed if only the closing braces of one or two objects are missing; NULL if it is not JSON.
_COMPLETED: Final = (
    "CASE WHEN json_valid(@a) THEN @a WHEN @a LIKE '{%' THEN"
    " CASE WHEN json_valid(@a || '}') THEN @a || '}' WHEN json_valid(@a || '}}') THEN @a || '}}' END END"
)


def _readable(node: exp.Expr, path: exp.Expr) -> exp.Expr:
    """Return the document that a path is applied to; a text may lack its closing braces."""
    if kind_of(node.this) in (Kind.JSON, Kind.VARIANT) or constant_text(path) == "$":
        return json_document(node.this)
    return once(f"({_COMPLETED})::JSON", node.this)


def _path_or_none(node: exp.Expr) -> exp.Expr | None:
    if isinstance(node.expression, exp.Null):
        return None
    return exp.Literal.string(path_text(steps_of(node.expression, node)))


def _query(node: exp.Expr) -> exp.Expr:
    """Lower JSON_QUERY and JSON_EXTRACT: the part as JSON; from a text document, as text, and a JSON null as NULL."""
    path = _path_or_none(node)
    if path is None:
        return exp.Null()
    part = attempt(node, "json_extract(@a, @b)", _readable(node, path), path)
    if kind_of(node.this) is Kind.JSON:
        return part
    return fragment("nullif({0}::VARCHAR, 'null')", part)


_CONTAINERS: Final = "('OBJECT', 'ARRAY')"


def _value(node: exp.Expr) -> exp.Expr:
    """Lower JSON_VALUE and JSON_EXTRACT_SCALAR: a scalar's text; NULL for objects and arrays."""
    path = _path_or_none(node)
    if path is None:
        return exp.Null()
    body = f"CASE WHEN json_type(@a, @b) NOT IN {_CONTAINERS} THEN json_extract_string(@a, @b) END"
    if kind_of(node.this) is Kind.STRING and is_simple(node.this):
        return once(body.replace("@a", _COMPLETED), node.this, path)
    return once(body, _readable(node, path), path)


def _list(node: exp.Expr) -> exp.Expr:
    """Lower JSON_QUERY_ARRAY: the elements as JSON, or as texts if the document is text."""
    path = _path_or_none(node)
    if path is None:
        return exp.Null()
    document = json_document(node.this)
    items = "json_extract(json_extract(@a, @b), '$[*]')"
    if kind_of(node.this) is not Kind.JSON:
        items = f"list_transform({items}, lambda _e: _e::VARCHAR)"
    return once(f"CASE WHEN json_type(@a, @b) = 'ARRAY' THEN {items} END", document, path)


def _value_list(node: exp.Expr) -> exp.Expr:
    """Lower JSON_VALUE_ARRAY: the elements' texts; NULL if one of them is not a scalar."""
    path = _path_or_none(node)
    if path is None:
        return exp.Null()
    items = "json_extract(json_extract(@a, @b), '$[*]')"
    scalars = f"len(list_filter({items}, lambda _e: json_type(_e) IN {_CONTAINERS})) = 0"
    texts = f"list_transform({items}, lambda _e: json_extract_string(_e, '$'))"
    body = f"CASE WHEN json_type(@a, @b) = 'ARRAY' AND {scalars} THEN {texts} END"
    return once(body, json_document(node.this), path)


def _parse(node: exp.Expr) -> exp.Expr:
    """Lower PARSE_JSON; a literal is parsed at compile time, because DuckDB's parser is less strict."""
    literal_text, rounds = constant_text(node.this), rounds_wide(node, default_mode="exact")
    if literal_text is None:
        return attempt(node, "json(@a)", read_as(node.this, Kind.STRING))
    json_text = canonical_document(literal_text, rounds=rounds)
    return (
        fragment("json({0})", exp.Literal.string(json_text))
        if json_text is not None
        else fragment(f"{fail(node, INVALID_JSON)}::JSON")
    )


_TEXT: Final = "json_extract_string(@a, '$')"


# DuckDB's cast accepts `1_000` as a number.
_TEXT_FLOAT: Final = f"try_cast(CASE WHEN NOT contains({_TEXT}, '_') THEN {_TEXT} END AS DOUBLE)"
_LAX_BOOL: Final = (
    "CASE json_type(@a) WHEN 'BOOLEAN' THEN CAST(@a AS BOOLEAN) WHEN 'VARCHAR' THEN CASE lower(" + _TEXT + ")"
    " WHEN 'true' THEN true WHEN 'false' THEN false END WHEN 'BIGINT' THEN CAST(@a AS DOUBLE) <> 0"
    " WHEN 'UBIGINT' THEN CAST(@a AS DOUBLE) <> 0 WHEN 'DOUBLE' THEN CAST(@a AS DOUBLE) <> 0 END"
)
_LAX_INT: Final = (
    "CASE json_type(@a) WHEN 'BOOLEAN' THEN CAST(CAST(@a AS BOOLEAN) AS BIGINT)"
    " WHEN 'BIGINT' THEN try_cast(" + _TEXT + " AS BIGINT) WHEN 'UBIGINT' THEN try_cast(" + _TEXT + " AS BIGINT)"
    " WHEN 'DOUBLE' THEN try_cast(round(CAST(@a AS DOUBLE)) AS BIGINT)"
    " WHEN 'VARCHAR' THEN coalesce(CASE WHEN regexp_full_match("
    + _TEXT
    + r", '[+-]?\d+') THEN try_cast("
    + _TEXT
    + " AS BIGINT) END, try_cast(round("
    + _TEXT_FLOAT
    + ") AS BIGINT)) END"
)
_LAX_FLOAT: Final = (
    "CASE json_type(@a) WHEN 'BIGINT' THEN CAST(@a AS DOUBLE) WHEN 'UBIGINT' THEN CAST(@a AS DOUBLE)"
    " WHEN 'DOUBLE' THEN CAST(@a AS DOUBLE) WHEN 'VARCHAR' THEN " + _TEXT_FLOAT + " END"
)
_LAX_STRING: Final = (
    "CASE json_type(@a) WHEN 'OBJECT' THEN NULL WHEN 'ARRAY' THEN NULL WHEN 'NULL' THEN NULL WHEN 'DOUBLE' THEN CASE WHEN"
    " CAST(printf('%.15g', @a::DOUBLE) AS DOUBLE) = @a::DOUBLE THEN printf('%.15g', @a::DOUBLE)"
    " ELSE printf('%.17g', @a::DOUBLE) END ELSE " + _TEXT + " END"
)


def _array(node: exp.Expr) -> exp.Expr:
    items = [JSON_TEXT.document(item) for item in node.expressions]
    return fragment(f"json_array({placeholders(len(items))})", *items)


def _object(node: exp.Expr) -> exp.Expr:
    """Lower JSON_OBJECT; if a key occurs twice, the object has its first value."""
    pairs = pairs_of(node)
    if not pairs:
        return fragment("'{}'::JSON")
    if are_key_and_value_arrays(pairs):
        return _object_of(node, pairs[0][0], _texts(pairs[0][1]))
    if have_constant_keys(pairs):
        parts = [part for key, value in pairs for part in (key, JSON_TEXT.document(value))]
        return fragment(f"json_object({placeholders(len(parts))})", *parts)
    texts = [JSON_TEXT.text(value, datatype_of(value), JSON_TEXT.scalars) for _, value in pairs]
    return _object_of(node, _list_of([key for key, _ in pairs]), _list_of(texts))


def _list_of(items: list[exp.Expr]) -> exp.Expr:
    return fragment(f"[{placeholders(len(items))}]", *items)


def _texts(values: exp.Expr) -> exp.Expr:
    datatype = datatype_of(values)
    json_value = JSON_TEXT.text(fragment("_e"), datatype.element if datatype else None, JSON_TEXT.scalars)
    return fragment("list_transform({0}, lambda _e: {1})", values, json_value)


def _object_of(node: exp.Expr, keys: exp.Expr, texts: exp.Expr) -> exp.Expr:
    """Return an object from an array of keys and an array of values as JSON texts."""
    is_invalid = "@a IS NULL OR @b IS NULL OR len(@a) <> len(@b) OR len(@a) <> list_count(@a)"
    failure = fail(node, "JSON_OBJECT needs as many values as keys, and keys that are not NULL")
    first_occurrences = "list_filter(range(1, len(@a) + 1), lambda _i: list_position(@a, @a[_i]) = _i)"
    pairs = f"array_to_string(list_transform({first_occurrences}, lambda _i: to_json(@a[_i])::VARCHAR || ':' || @b[_i]), ',')"
    return once(f"CASE WHEN {is_invalid} THEN {failure} ELSE ('{{' || {pairs} || '}}')::JSON END", keys, texts)


_CREATES: Final = "create_if_missing"


def _set(node: exp.Expr) -> exp.Expr:
    """Apply the pairs of JSON_SET in order, each to the result of the previous one."""
    pairs = [part for part in node.expressions if not isinstance(part, exp.Kwarg)]
    options = {part.name.lower(): constant(part.expression) for part in node.expressions if isinstance(part, exp.Kwarg)}
    creates = options.pop(_CREATES, True)
    if options or not isinstance(creates, bool) or len(pairs) % 2:
        unsupported(node, "JSON_SET with these arguments")
    document: exp.Expr = node.this
    for path, value in zip(pairs[::2], pairs[1::2], strict=True):
        document = _set_value(document, steps_of(path, node), value, node, creates=creates)
    return document


def _set_value(document: exp.Expr, steps: Steps, value: exp.Expr, node: exp.Expr, *, creates: bool) -> exp.Expr:
    """Set one value and create missing parents; fail where DuckDB's json_set would not create them.

    DuckDB does not replace a JSON null above the value, and does not add missing array elements before it.
    """
    # The last placeholder has the whole path, the others its prefixes.
    paths = [text_part(path_text(steps[:depth])) for depth in range(len(steps) + 1)]
    path_hole = f"{{{len(steps)}}}"
    if not creates:
        return once(f"json_replace(@a, {path_hole}, @b)", document, JSON_TEXT.document(value), texts=paths)
    is_unsupported = " OR ".join(_not_created(steps)) or "false"
    failure = fail(node, "JSON_SET below a JSON null, or beyond the end of an array, is not supported")
    body = f"CASE WHEN {is_unsupported} THEN {failure} ELSE json_set(@a, {path_hole}, @b) END"
    return once(body, document, JSON_TEXT.document(value), texts=paths)


def _not_created(steps: Steps) -> list[str]:
    """Return the conditions under which DuckDB would leave the document unchanged and BigQuery would not."""
    parents = [f"{{{depth}}}" for depth in range(len(steps))]
    nulls = [f"json_type(@a, {path}) = 'NULL'" for path in parents]
    beyond = [
        f"(coalesce(json_type(@a, {path}), 'ARRAY') = 'ARRAY' AND coalesce(json_array_length(@a, {path}), 0) < {step})"
        for path, step in zip(parents, steps, strict=True)
        if isinstance(step, int) and step
    ]
    return [*nulls, *(f"(@a IS NOT NULL AND {condition})" for condition in beyond)]


def _remove(node: exp.Expr) -> exp.Expr:
    """Apply the paths of JSON_REMOVE in order, each to the result of the previous one."""
    document: exp.Expr = node.this
    for path in node.expressions:
        steps = steps_of(path, node)
        if not steps:
            unsupported(node, "JSON_REMOVE of the whole")
        document = once("json_remove(@a, @b)", document, text_part(path_text(steps)))
    return document


def _strip_nulls(node: exp.Expr) -> exp.Expr:
    """Lower JSON_STRIP_NULLS; DuckDB removes nulls from objects only."""
    in_arrays, empty = (node.args.get(key) for key in ("include_arrays", "remove_empty"))
    if (
        node.expression
        or _option_value(in_arrays) is not False
        or (empty is not None and _option_value(empty) is not False)
    ):
        unsupported(node, "JSON_STRIP_NULLS other than of a whole document with include_arrays => FALSE")
    return once("json_strip_nulls(@a)", node.this)


def _option_value(option: exp.Expr | None) -> object:
    return None if option is None else option_value(option)


_NUMBERS: Final = "('BIGINT', 'UBIGINT', 'DOUBLE', 'HUGEINT', 'UHUGEINT')"
_KINDS: Final = (
    "CASE json_type(@a) WHEN 'OBJECT' THEN 'object' WHEN 'ARRAY' THEN 'array' WHEN 'VARCHAR' THEN 'string'"
    " WHEN 'BOOLEAN' THEN 'boolean' WHEN 'NULL' THEN 'null' ELSE 'number' END"
)
_FLOAT: Final = "CAST(@a AS DOUBLE)"
# This uses `try_cast`, because the condition must not fail for values that are not numbers.
_HAS_FRACTION: Final = "try_cast(@a AS DOUBLE) <> trunc(try_cast(@a AS DOUBLE))"
_INTEGER: Final = (
    f"CASE WHEN json_type(@a) IN ('BIGINT', 'UBIGINT') THEN CAST(@a AS BIGINT) ELSE CAST({_FLOAT} AS BIGINT) END"
)
_TABLE: Final = rules_from_templates(
    WORDS,
    JSON,
    {
        exp.JSONType: f"CASE WHEN @a IS NULL THEN NULL ELSE {_KINDS} END",
        exp.JSONBool: Checked("json_type(@a) <> 'BOOLEAN'", "CAST(@a AS BOOLEAN)"),
        exp.Int64: Checked(f"json_type(@a) NOT IN {_NUMBERS} OR {_HAS_FRACTION}", _INTEGER),
        exp.Float64: Checked(f"json_type(@a) NOT IN {_NUMBERS}", _FLOAT),
        exp.String: Checked("json_type(@a) <> 'VARCHAR'", _TEXT),
        exp.LaxBool: _LAX_BOOL,
        exp.LaxInt64: _LAX_INT,
        exp.LaxFloat64: _LAX_FLOAT,
        exp.LaxString: _LAX_STRING,
        "LAX_STRING": _LAX_STRING,
    },
)

RULES = RuleSet(
    nodes={
        **_TABLE.nodes,
        exp.Float64: refuse_exact_mode(_TABLE.nodes[exp.Float64]),
        exp.String: print_times(TIME_TEXT, _TABLE.nodes[exp.String]),
        exp.JSONExtract: _query,
        exp.JSONExtractScalar: _value,
        exp.JSONExtractArray: _list,
        exp.JSONValueArray: _value_list,
        exp.ParseJSON: _parse,
        exp.JSONArray: _array,
        exp.JSONObject: _object,
        exp.JSONSet: _set,
        exp.JSONRemove: _remove,
        exp.JSONStripNulls: _strip_nulls,
    },
    by_name=_TABLE.by_name,
)
