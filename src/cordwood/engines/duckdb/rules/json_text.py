"""TO_JSON and TO_JSON_STRING: each type as BigQuery prints it, derived from its data type."""

import json
from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import once
from cordwood.engines.duckdb.rules.time_text import time_text
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.bigquery.json_functions import option_value, stringifies_wide
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet, unsupported
from cordwood.sql.typing import datatype_of

_FLOAT: Final = (
    "CASE WHEN isnan({0}) THEN '\"NaN\"' WHEN isinf({0}) THEN CASE WHEN {0} > 0 THEN '\"Infinity\"' ELSE '\"-Infinity\"' END"
    " WHEN {0} = 0 THEN '0' WHEN CAST(printf('%.15g', {0}) AS DOUBLE) = {0} THEN printf('%.15g', {0}) ELSE printf('%.17g', {0}) END"
)
_EXACT: Final = r"regexp_replace({0}::VARCHAR, '\.?0+$', '')"

DOCUMENT: Final = {
    Kind.STRING: "to_json({0})::VARCHAR",
    Kind.INT64: "{0}::VARCHAR",
    Kind.FLOAT64: _FLOAT,
    Kind.BOOL: "{0}::VARCHAR",
    Kind.BYTES: "'\"' || to_base64({0}) || '\"'",
    Kind.DATE: "'\"' || {0}::VARCHAR || '\"'",
    Kind.JSON: "{0}::VARCHAR",
    Kind.VARIANT: "{0}::JSON::VARCHAR",
    Kind.NUMERIC: _EXACT,
    Kind.BIGNUMERIC: _EXACT,
}

# For TO_JSON_STRING, which prints a number that JavaScript cannot represent as a text; in a document it stays a number.
_TEXTS: Final = {
    **DOCUMENT,
    Kind.INT64: "CASE WHEN abs({0}::HUGEINT) > 9007199254740992 THEN '\"' || {0}::VARCHAR || '\"' ELSE {0}::VARCHAR END",
    **dict.fromkeys(
        (Kind.NUMERIC, Kind.BIGNUMERIC),
        f"CASE WHEN abs({{0}}) > 9007199254740992 OR {{0}} <> trunc({{0}}) THEN '\"' || {_EXACT} || '\"' ELSE {_EXACT} END",
    ),
}

# DuckDB indents by four spaces, BigQuery by two.
_PRETTY: Final = (
    "array_to_string(list_transform(string_split(json_pretty({0}::JSON), chr(10)),"
    " lambda _l: repeat(' ', (len(_l) - len(ltrim(_l, ' '))) // 2) || ltrim(_l, ' ')), chr(10))"
)


def json_text(node: exp.Expr, datatype: Datatype | None, scalars: Mapping[Kind, str] = _TEXTS) -> exp.Expr:
    """Return the JSON text of a value; never NULL: a missing value is `null`."""
    if isinstance(node, exp.Null):
        return fragment("'null'")
    return _text_or_null(node, datatype, scalars, depth=0)


def _text_or_null(node: exp.Expr, datatype: Datatype | None, scalars: Mapping[Kind, str], depth: int) -> exp.Expr:
    return fragment("coalesce({0}, 'null')", _json_text_of(node, datatype, scalars, depth))


def _json_text_of(node: exp.Expr, datatype: Datatype | None, scalars: Mapping[Kind, str], depth: int) -> exp.Expr:
    if datatype is None:
        return fragment("to_json({0})::VARCHAR", node)
    if datatype.kind is Kind.ARRAY:
        return _array(node, datatype, scalars, depth)
    if datatype.kind is Kind.STRUCT:
        return _object(node, datatype, scalars, depth)
    if datatype.kind is Kind.INTERVAL:
        unsupported(node, "An INTERVAL as JSON")
    if datatype.kind in (Kind.TIMESTAMP, Kind.DATETIME, Kind.TIME):
        return fragment("'\"' || {0} || '\"'", time_text(node, datatype.kind))
    template = scalars.get(datatype.kind, "to_json({0}::VARCHAR)::VARCHAR")
    return once(template.replace("{0}", "@a"), node)


def _array(node: exp.Expr, datatype: Datatype, scalars: Mapping[Kind, str], depth: int) -> exp.Expr:
    name = f"_j{depth}"
    inner = _text_or_null(fragment(name), datatype.element, scalars, depth + 1)
    elements = fragment(f"list_transform({{0}}, lambda {name}: {{1}})", node, inner)
    return once("CASE WHEN @a IS NOT NULL THEN '[' || coalesce(array_to_string(@a, ','), '') || ']' END", elements)


def _object(node: exp.Expr, datatype: Datatype, scalars: Mapping[Kind, str], depth: int) -> exp.Expr:
    """Print a struct field by field under the author's names, which may be empty or duplicate."""
    name = f"_s{depth}"
    parts: list[exp.Expr] = []
    members: list[str] = []
    for index, (label, field) in enumerate(datatype.fields):
        parts.append(_text_or_null(fragment(f"struct_extract_at({name}, {index + 1})"), field, scalars, depth + 1))
        parts.append(exp.Literal.string(json.dumps(label, ensure_ascii=False) + ":"))
        members.append(f"{{{len(parts)}}} || {{{len(parts) - 1}}}")
    body = " || ',' || ".join(members)
    object_sql = f"'{{' || {body} || '}}'" if members else "'{}'"
    template = f"list_transform([{{0}}], lambda {name}: CASE WHEN {name} IS NULL THEN NULL ELSE {object_sql} END)[1]"
    return fragment(template, node, *parts)


def as_json(value: exp.Expr, scalars: Mapping[Kind, str] = DOCUMENT) -> exp.Expr:
    """Return a value as JSON; large numbers stay numbers."""
    datatype = datatype_of(value)
    if scalars is DOCUMENT and datatype is not None and datatype.kind is Kind.INT64:
        return fragment("coalesce(to_json({0}), 'null'::JSON)", value)
    return fragment("{0}::JSON", json_text(value, datatype, scalars))


def indent(json_value: exp.Expr) -> exp.Expr:
    """Return JSON text that is indented, one element per line."""
    return fragment(_PRETTY, json_value)


def _to_json(node: exp.Expr) -> exp.Expr:
    if node.args.get("to_json"):
        return as_json(node.this, _TEXTS if stringifies_wide(node) else DOCUMENT)
    json_value = json_text(node.this, datatype_of(node.this))
    options = node.args.get("options")
    if options is not None and option_value(options) is True:
        return indent(json_value)
    if options is not None and option_value(options) is None:
        unsupported(node, "TO_JSON_STRING with a pretty_print that is no literal")
    return json_value


RULES = RuleSet(nodes={exp.JSONFormat: _to_json})
