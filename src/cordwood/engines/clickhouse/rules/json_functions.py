"""JSON functions: paths, scalars and subdocuments, conversions of JSON values, constructors, and values as JSON text."""

from itertools import count
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import WORDS, fail_if, json_document, null_of, once, read_as
from cordwood.engines.clickhouse.rules.time_text import TIME_TEXT
from cordwood.model.datatype import Kind
from cordwood.sql.datatypes import datatype_of, kind_of
from cordwood.sql.lowering import RuleSet, fragment, placeholders, text_part, unsupported
from cordwood.sql.nodes import constant_text
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

_SHORTEST_FLOAT: Final = (
    "replaceRegexpOne(replaceRegexpOne(toString(@a), 'e(\\\\d)', 'e+\\\\1'), 'e([+-])(\\\\d)$', 'e\\\\10\\\\2')"
)
_FLOAT_TEXT: Final = (
    f"multiIf(isNaN(@a), '\"NaN\"', isInfinite(@a), if(@a > 0, '\"Infinity\"', '\"-Infinity\"'), @a = 0, '0',"
    f" abs(@a) >= 1e15, {_SHORTEST_FLOAT}, {_SHORTEST_FLOAT})"
)
_SCALARS: Final = {
    Kind.STRING: "toJSONString(@a)",
    Kind.INT64: "toString(@a)",
    Kind.FLOAT64: _FLOAT_TEXT,
    Kind.BOOL: "if(@a, 'true', 'false')",
    Kind.BYTES: "concat('\"', base64Encode(@a), '\"')",
    Kind.DATE: "concat('\"', toString(@a), '\"')",
    Kind.JSON: "@a",
    Kind.VARIANT: "@a",
    Kind.NUMERIC: "toString(@a)",
    Kind.BIGNUMERIC: "toString(@a)",
}
_QUOTED: Final = "if({0}, concat('\"', toString(@a), '\"'), toString(@a))"
# The types whose JSON has several lines when it is indented.
_INDENTED_KINDS: Final = (Kind.ARRAY, Kind.STRUCT, Kind.JSON, Kind.VARIANT)


def _print_json(node: exp.Expr, json_text: exp.Expr) -> exp.Expr:
    datatype, options = datatype_of(node.this), node.args.get("options")
    is_one_line = datatype is not None and datatype.kind not in _INDENTED_KINDS
    if options is not None and option_value(options) is not False and not is_one_line:
        unsupported(node, "TO_JSON_STRING with pretty_print")
    return json_text


JSON_TEXT: Final = JsonText(
    words=WORDS,
    times=TIME_TEXT,
    scalars=_SCALARS,
    texts={
        Kind.INT64: _QUOTED.format("abs(toInt128(@a)) > 9007199254740992"),
        Kind.NUMERIC: _QUOTED.format("abs(@a) > 9007199254740992 OR @a != trunc(@a)"),
        Kind.BIGNUMERIC: _QUOTED.format("abs(@a) > 9007199254740992 OR @a != trunc(@a)"),
    },
    untyped="toJSONString({0})",
    otherwise="toJSONString(toString(@a))",
    as_json=lambda text: text,
    print_json=_print_json,
)
JSON_TEXT_RULES = JSON_TEXT.rules()


def arguments(steps: Steps, first: int = 0) -> tuple[str, list[exp.Expr]]:
    """Return the path as arguments of ClickHouse's functions, with keys as placeholders; array positions count from one."""
    keys = [step for step in steps if isinstance(step, str)]
    hole_index = count(first)
    template = "".join(f", {{{next(hole_index)}}}" if isinstance(step, str) else f", {step + 1}" for step in steps)
    return template, list(map(text_part, keys))


# A truncated text is completed, if the closing braces of one or two objects are missing.
_COMPLETED: Final = (
    "multiIf(isValidJSON(@a), @a, NOT startsWith(@a, '{'), NULL, isValidJSON(concat(@a, '}')), concat(@a, '}'),"
    " isValidJSON(concat(@a, '}}')), concat(@a, '}}'), NULL)"
)


def _readable(value: exp.Expr, path: str) -> exp.Expr:
    """Return the document that a path is applied to; a text may lack its closing braces."""
    if kind_of(value) in (Kind.JSON, Kind.VARIANT) or not path:
        return json_document(value)
    return once(_COMPLETED, value)


def _path(node: exp.Expr) -> tuple[str, list[exp.Expr]] | None:
    return None if isinstance(node.expression, exp.Null) else arguments(steps_of(node.expression, node))


def _query(node: exp.Expr) -> exp.Expr:
    """Lower JSON_QUERY and JSON_EXTRACT; if the document is a text, a JSON null is returned as NULL."""
    path_and_keys = _path(node)
    if path_and_keys is None:
        return exp.Null()
    path, keys = path_and_keys
    part = once(f"nullIf(JSONExtractRaw(@a{path}), '')", _readable(node.this, path), texts=keys)
    return part if kind_of(node.this) is Kind.JSON else fragment("nullIf({0}, 'null')", part)


_SCALAR: Final = "JSONType({0}{1}) NOT IN ('Object', 'Array', 'Null')"


def scalar_text(value: str, path: str) -> str:
    """Return template text for a scalar's text; NULL for objects, arrays and null."""
    return f"if({_SCALAR.format(value, path)}, JSONExtract({value}{path}, 'Nullable(String)'), NULL)"


def _value(node: exp.Expr) -> exp.Expr:
    """Lower JSON_VALUE and JSON_EXTRACT_SCALAR."""
    path_and_keys = _path(node)
    if path_and_keys is None:
        return exp.Null()
    path, keys = path_and_keys
    return once(scalar_text("@a", path), _readable(node.this, path), texts=keys)


def _list(node: exp.Expr) -> exp.Expr:
    """Lower JSON_QUERY_ARRAY: the elements as JSON."""
    path_and_keys = _path(node)
    if path_and_keys is None:
        return exp.Null()
    path, keys = path_and_keys
    items = f"arrayMap(_e -> CAST(_e, 'Nullable(String)'), JSONExtractArrayRaw(assumeNotNull(@a){path}))"
    return once(f"if(ifNull(JSONType(@a{path}), '') = 'Array', {items}, [])", json_document(node.this), texts=keys)


def _value_list(node: exp.Expr) -> exp.Expr:
    """Lower JSON_VALUE_ARRAY: the elements' texts; an empty array if one of them is not a scalar."""
    path_and_keys = _path(node)
    if path_and_keys is None:
        return exp.Null()
    path, keys = path_and_keys
    raw = f"JSONExtractArrayRaw(assumeNotNull(@a){path})"
    scalars = f"NOT arrayExists(_e -> JSONType(_e) IN ('Object', 'Array'), {raw})"
    texts = f"arrayMap(_e -> {scalar_text('_e', '')}, {raw})"
    if isinstance(node.this, exp.Null):
        return null_of(datatype_of(node))
    body = f"if(ifNull(JSONType(@a{path}), '') = 'Array' AND {scalars}, {texts}, [])"
    return once(body, json_document(node.this), texts=keys)


def _parse(node: exp.Expr) -> exp.Expr:
    """Lower PARSE_JSON; a literal is parsed at compile time, because ClickHouse's parser is less strict."""
    literal_text, rounds = constant_text(node.this), rounds_wide(node, default_mode="exact")
    if literal_text is None:
        return once(
            fail_if(node, "NOT isValidJSON(@a)", INVALID_JSON, "JSONExtractRaw(@a)"), read_as(node.this, Kind.STRING)
        )
    json_text = canonical_document(literal_text, rounds=rounds)
    return text_part(json_text) if json_text is not None else fragment(fail_if(node, "true", INVALID_JSON, "''"))


_NUMBERS: Final = "('Int64', 'UInt64', 'Double')"


_TEXT: Final = "JSONExtract(@a, 'Nullable(String)')"
_FLOAT: Final = "JSONExtract(@a, 'Nullable(Float64)')"
_NEAREST: Final = "accurateCastOrNull(sign({0}) * floor(abs({0}) + 0.5), 'Int64')"
_TEXT_FLOAT: Final = f"toFloat64OrNull({_TEXT})"


_LAX_BOOL: Final = (
    f"multiIf(JSONType(@a) = 'Bool', JSONExtract(@a, 'Nullable(Bool)'), JSONType(@a) = 'String',"
    f" multiIf(lower({_TEXT}) = 'true', true, lower({_TEXT}) = 'false', false, NULL),"
    f" JSONType(@a) IN {_NUMBERS}, {_FLOAT} != 0, NULL)"
)
_LAX_INT: Final = (
    "multiIf(JSONType(@a) = 'Bool', toInt64(JSONExtract(@a, 'Nullable(Bool)')),"
    " JSONType(@a) IN ('Int64', 'UInt64'), JSONExtract(@a, 'Nullable(Int64)'),"
    f" JSONType(@a) = 'Double', {_NEAREST.format(_FLOAT)}, JSONType(@a) = 'String',"
    f" ifNull(toInt64OrNull({_TEXT}), {_NEAREST.format(_TEXT_FLOAT)}), NULL)"
)
_LAX_FLOAT: Final = (
    f"multiIf(JSONType(@a) IN {_NUMBERS}, {_FLOAT}, JSONType(@a) = 'String',"
    f" multiIf(match(lower({_TEXT}), '^[+-]?inf(inity)?$'), if(startsWith({_TEXT}, '-'), -inf, inf),"
    f" lower({_TEXT}) = 'nan', nan, {_TEXT_FLOAT}), NULL)"
)
_LAX_STRING: Final = (
    f"if(JSONType(@a) = 'Double', {_SHORTEST_FLOAT.replace('@a', f'assumeNotNull({_FLOAT})')}, {scalar_text('@a', '')})"
)


def _array(node: exp.Expr) -> exp.Expr:
    items = [JSON_TEXT.text(item, datatype_of(item), JSON_TEXT.scalars) for item in node.expressions]
    if not items:
        return fragment("'[]'")
    elements = ", ',', ".join(f"{{{index}}}" for index in range(len(items)))
    return fragment(f"concat('[', {elements}, ']')", *items)


def _object(node: exp.Expr) -> exp.Expr:
    """Lower JSON_OBJECT; if a key occurs twice, its first value is used."""
    pairs = pairs_of(node)
    if not pairs:
        return fragment("'{}'")
    if are_key_and_value_arrays(pairs):
        return _object_of(node, pairs[0][0], _texts(pairs[0][1]))
    keys = [key for key, _ in pairs]
    texts = [JSON_TEXT.text(value, datatype_of(value), JSON_TEXT.scalars) for _, value in pairs]
    return (
        _object_of_pairs(keys, texts)
        if have_constant_keys(pairs)
        else _object_of(node, _array_of(keys), _array_of(texts))
    )


def _object_of_pairs(keys: list[exp.Expr], texts: list[exp.Expr]) -> exp.Expr:
    pairs = ", ',', ".join(f"toJSONString({{{index}}}), ':', {{{index + len(keys)}}}" for index in range(len(keys)))
    return fragment(f"concat('{{', {pairs}, '}}')", *keys, *texts)


def _array_of(items: list[exp.Expr]) -> exp.Expr:
    return fragment(f"[{placeholders(len(items))}]", *items)


def _texts(values: exp.Expr) -> exp.Expr:
    datatype = datatype_of(values)
    json_value = JSON_TEXT.text(fragment("_e"), datatype.element if datatype else None, JSON_TEXT.scalars)
    return fragment("arrayMap(_e -> {1}, {0})", values, json_value)


def _object_of(node: exp.Expr, keys: exp.Expr, texts: exp.Expr) -> exp.Expr:
    """Return an object from an array of keys and an array of values as JSON texts."""
    first_occurrences = "arrayFilter(_i -> indexOf(@a, @a[_i]) = _i, arrayEnumerate(@a))"
    pair = "concat(toJSONString(assumeNotNull(@a[_i])), ':', assumeNotNull(@b[_i]))"
    result = f"concat('{{', arrayStringConcat(arrayMap(_i -> {pair}, {first_occurrences}), ','), '}}')"
    is_invalid = "(length(@a) != length(@b) OR arrayExists(_k -> isNull(_k), @a))"
    message = "JSON_OBJECT needs as many values as keys, and keys that are not NULL"
    return once(fail_if(node, is_invalid, message, result), keys, texts)


_KINDS: Final = (
    "transform(JSONType(@a), ['Object', 'Array', 'String', 'Bool', 'Null'],"
    " ['object', 'array', 'string', 'boolean', 'null'], 'number')"
)
_INTEGER: Final = f"if(JSONType(@a) IN ('Int64', 'UInt64'), JSONExtract(@a, 'Nullable(Int64)'), accurateCastOrNull({_FLOAT}, 'Int64'))"
_IS_NO_INTEGER: Final = f"JSONType(@a) NOT IN {_NUMBERS} OR {_FLOAT} != trunc({_FLOAT}) OR isNull({_INTEGER})"
_IF_PRESENT: Final = "if(isNull(@a), NULL, {})".format


def _required(is_invalid: str, conversion: str) -> Checked:
    return Checked(f"(isNotNull(@a) AND ({is_invalid}))", _IF_PRESENT(conversion))


_TABLE: Final = rules_from_templates(
    WORDS,
    JSON,
    {
        exp.JSONType: _IF_PRESENT(_KINDS),
        exp.JSONBool: _required("JSONType(@a) NOT IN ('Bool')", "JSONExtract(@a, 'Nullable(Bool)')"),
        exp.Int64: _required(_IS_NO_INTEGER, _INTEGER),
        exp.Float64: _required(f"JSONType(@a) NOT IN {_NUMBERS}", _FLOAT),
        exp.String: _required("JSONType(@a) NOT IN ('String')", _TEXT),
        exp.LaxBool: _IF_PRESENT(_LAX_BOOL),
        exp.LaxInt64: _IF_PRESENT(_LAX_INT),
        exp.LaxFloat64: _IF_PRESENT(_LAX_FLOAT),
        exp.LaxString: _IF_PRESENT(_LAX_STRING),
        "LAX_STRING": _IF_PRESENT(_LAX_STRING),
    },
)

RULES = RuleSet(
    nodes={
        **_TABLE.nodes,
        exp.Float64: refuse_exact_mode(_TABLE.nodes[exp.Float64]),
        exp.String: print_times(TIME_TEXT, _TABLE.nodes[exp.String]),
        exp.JSONSet: lambda node: unsupported(node, "JSON_SET"),
        exp.JSONRemove: lambda node: unsupported(node, "JSON_REMOVE"),
        exp.JSONStripNulls: lambda node: unsupported(node, "JSON_STRIP_NULLS"),
        exp.JSONExtract: _query,
        exp.JSONExtractScalar: _value,
        exp.JSONExtractArray: _list,
        exp.JSONValueArray: _value_list,
        exp.ParseJSON: _parse,
        exp.JSONArray: _array,
        exp.JSONObject: _object,
    },
    by_name=_TABLE.by_name,
)
