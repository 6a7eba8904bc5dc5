"""JSON functions over JSON text: paths, scalars and subdocuments, conversions of JSON values, and constructors."""

from itertools import count
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import fail_if, null_of, once
from cordwood.engines.clickhouse.rules.coercions import read_as
from cordwood.engines.clickhouse.rules.json_text import JSON_TEXT, SHORTEST_FLOAT
from cordwood.engines.clickhouse.rules.time_text import TIME_TEXT
from cordwood.model.datatype import MOMENTS, Kind
from cordwood.sql.bigquery.json_functions import (
    INVALID_JSON,
    Steps,
    canonical_document,
    have_constant_keys,
    is_pair_of_arrays,
    pairs_of,
    rounds_wide,
    steps_of,
)
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment, holes, text_part
from cordwood.sql.lowering import Rule, RuleSet, unsupported
from cordwood.sql.typing import datatype_of, kind_of


def arguments(steps: Steps, first: int = 0) -> tuple[str, list[exp.Expr]]:
    """Return the path as arguments of ClickHouse's functions, with keys as holes; array positions count from one."""
    keys = [step for step in steps if isinstance(step, str)]
    hole_index = count(first)
    template = "".join(f", {{{next(hole_index)}}}" if isinstance(step, str) else f", {step + 1}" for step in steps)
    return template, list(map(text_part, keys))


def _document(value: exp.Expr) -> exp.Expr:
    """Return a value as a JSON document; a text that is not JSON is NULL."""
    if kind_of(value) in (Kind.JSON, Kind.VARIANT):
        return value
    return once("if(isValidJSON(@a), @a, NULL)", value)


# A truncated text is completed, if the closing braces of one or two objects are missing.
_COMPLETED: Final = (
    "multiIf(isValidJSON(@a), @a, NOT startsWith(@a, '{'), NULL, isValidJSON(concat(@a, '}')), concat(@a, '}'),"
    " isValidJSON(concat(@a, '}}')), concat(@a, '}}'), NULL)"
)


def _readable(value: exp.Expr, path: str) -> exp.Expr:
    """Return the document that a path is applied to; a text may lack its closing braces."""
    if kind_of(value) in (Kind.JSON, Kind.VARIANT) or not path:
        return _document(value)
    return once(_COMPLETED, value)


def _path(node: exp.Expr) -> tuple[str, list[exp.Expr]] | None:
    return None if isinstance(node.expression, exp.Null) else arguments(steps_of(node.expression, node))


def _query(node: exp.Expr) -> exp.Expr:
    """Lower JSON_QUERY and JSON_EXTRACT: the part as JSON, or as text if the document is text; a JSON null is NULL."""
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
    return once(f"if(ifNull(JSONType(@a{path}), '') = 'Array', {items}, [])", _document(node.this), texts=keys)


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
    return once(body, _document(node.this), texts=keys)


def _parse(node: exp.Expr) -> exp.Expr:
    """Lower PARSE_JSON; a literal is parsed at compile time, because ClickHouse's parser is less strict."""
    literal_text, rounds = constant_text(node.this), rounds_wide(node, default_mode="exact")
    if literal_text is None:
        return once(
            fail_if(node, "NOT isValidJSON(@a)", INVALID_JSON, "JSONExtractRaw(@a)"), read_as(node.this, Kind.STRING)
        )
    json_text = canonical_document(literal_text, rounds=rounds)
    return text_part(json_text) if json_text is not None else fragment(fail_if(node, "true", INVALID_JSON, "''"))


def _argument(node: exp.Expr) -> exp.Expr:
    value: exp.Expr = node.this if isinstance(node.this, exp.Expr) else node.expressions[0]
    return value


def _kind(node: exp.Expr) -> exp.Expr:
    body = "transform(JSONType(@a), ['Object', 'Array', 'String', 'Bool', 'Null'], ['object', 'array', 'string', 'boolean', 'null'], 'number')"
    return once(f"if(isNull(@a), NULL, {body})", _document(_argument(node)))


_NUMBERS: Final = "('Int64', 'UInt64', 'Double')"


def _require_type(kinds: str, conversion: str, name: str) -> Rule:
    """Return the rule of INT64(json) and similar functions: the JSON value must have that type."""

    def rule(node: exp.Expr) -> exp.Expr:
        is_invalid = f"(isNotNull(@a) AND JSONType(@a) NOT IN {kinds})"
        message = f"The provided JSON input is not {name}"
        return once(
            fail_if(node, is_invalid, message, f"if(isNull(@a), NULL, {conversion})"), _document(_argument(node))
        )

    return rule


def _float(node: exp.Expr) -> exp.Expr:
    if not rounds_wide(node, default_mode="round"):
        unsupported(node, "FLOAT64 with wide_number_mode => 'exact'")
    return _require_type(_NUMBERS, _FLOAT, "a number")(node)


def _integer(node: exp.Expr) -> exp.Expr:
    number = "JSONExtract(@a, 'Nullable(Float64)')"
    integer = f"if(JSONType(@a) IN ('Int64', 'UInt64'), JSONExtract(@a, 'Nullable(Int64)'), accurateCastOrNull({number}, 'Int64'))"
    is_invalid = (
        f"(isNotNull(@a) AND (JSONType(@a) NOT IN {_NUMBERS} OR {number} != trunc({number}) OR isNull({integer})))"
    )
    return once(
        fail_if(
            node,
            is_invalid,
            "The provided JSON input is not an integer, or beyond INT64",
            f"if(isNull(@a), NULL, {integer})",
        ),
        _document(_argument(node)),
    )


def _string(node: exp.Expr) -> exp.Expr:
    """Lower STRING(json), and STRING(timestamp), which prints the time."""
    value = _argument(node)
    if kind_of(value) in MOMENTS:
        zone = node.args.get("zone") or (node.expressions[1] if len(node.expressions) > 1 else None)
        return TIME_TEXT.cast_text(value, zone)
    return _require_type("('String')", "JSONExtract(@a, 'Nullable(String)')", "a string")(node)


_TEXT: Final = "JSONExtract(@a, 'Nullable(String)')"
_FLOAT: Final = "JSONExtract(@a, 'Nullable(Float64)')"
_NEAREST: Final = "accurateCastOrNull(sign({0}) * floor(abs({0}) + 0.5), 'Int64')"
_TEXT_FLOAT: Final = f"toFloat64OrNull({_TEXT})"


def _convert_leniently(body: str) -> Rule:
    """Return the rule of a LAX_ function: convert what is convertible; NULL for the rest."""
    return lambda node: once(f"if(isNull(@a), NULL, {body})", _document(_argument(node)))


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
    f"if(JSONType(@a) = 'Double', {SHORTEST_FLOAT.replace('@a', f'assumeNotNull({_FLOAT})')}, {scalar_text('@a', '')})"
)


def _array(node: exp.Expr) -> exp.Expr:
    items = [JSON_TEXT.text(item, datatype_of(item), JSON_TEXT.scalars) for item in node.expressions]
    if not items:
        return fragment("'[]'")
    elements = ", ',', ".join(f"{{{index}}}" for index in range(len(items)))
    return fragment(f"concat('[', {elements}, ']')", *items)


def _object(node: exp.Expr) -> exp.Expr:
    """Lower JSON_OBJECT; of a key that occurs twice the first value counts."""
    pairs = pairs_of(node)
    if not pairs:
        return fragment("'{}'")
    if is_pair_of_arrays(pairs):
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
    return fragment(f"[{holes(len(items))}]", *items)


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
    message = "JSON_OBJECT wants as many values as keys, and no key that is NULL"
    return once(fail_if(node, is_invalid, message, result), keys, texts)


def _unsupported(name: str) -> Rule:
    return lambda node: unsupported(node, name)


RULES = RuleSet(
    nodes={
        exp.JSONSet: _unsupported("JSON_SET"),
        exp.JSONRemove: _unsupported("JSON_REMOVE"),
        exp.JSONStripNulls: _unsupported("JSON_STRIP_NULLS"),
        exp.JSONExtract: _query,
        exp.JSONExtractScalar: _value,
        exp.JSONExtractArray: _list,
        exp.JSONValueArray: _value_list,
        exp.ParseJSON: _parse,
        exp.JSONType: _kind,
        exp.JSONBool: _require_type("('Bool')", "JSONExtract(@a, 'Nullable(Bool)')", "a boolean"),
        exp.Float64: _float,
        exp.Int64: _integer,
        exp.String: _string,
        exp.LaxBool: _convert_leniently(_LAX_BOOL),
        exp.LaxInt64: _convert_leniently(_LAX_INT),
        exp.LaxFloat64: _convert_leniently(_LAX_FLOAT),
        exp.LaxString: _convert_leniently(_LAX_STRING),
        exp.JSONArray: _array,
        exp.JSONObject: _object,
    },
    by_name={"LAX_STRING": _convert_leniently(_LAX_STRING)},
)
