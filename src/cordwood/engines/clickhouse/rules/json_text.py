"""TO_JSON and TO_JSON_STRING: each type as BigQuery prints it, derived from its data type."""

import json
from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import cast, once
from cordwood.engines.clickhouse.rules.time_text import SUBSECOND, format_time
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.bigquery.json_functions import option_value, stringifies_wide
from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment, holes, text_part
from cordwood.sql.lowering import RuleSet, unsupported
from cordwood.sql.typing import datatype_of, typed_as

SHORTEST_FLOAT: Final = (
    "replaceRegexpOne(replaceRegexpOne(toString(@a), 'e(\\\\d)', 'e+\\\\1'), 'e([+-])(\\\\d)$', 'e\\\\10\\\\2')"
)
_FLOAT: Final = (
    f"multiIf(isNaN(@a), '\"NaN\"', isInfinite(@a), if(@a > 0, '\"Infinity\"', '\"-Infinity\"'), @a = 0, '0',"
    f" abs(@a) >= 1e15, {SHORTEST_FLOAT}, {SHORTEST_FLOAT})"
)
DOCUMENT: Final = {
    Kind.STRING: "toJSONString(@a)",
    Kind.INT64: "toString(@a)",
    Kind.FLOAT64: _FLOAT,
    Kind.BOOL: "if(@a, 'true', 'false')",
    Kind.BYTES: "concat('\"', base64Encode(@a), '\"')",
    Kind.DATE: "concat('\"', toString(@a), '\"')",
    Kind.JSON: "@a",
    Kind.VARIANT: "@a",
    Kind.NUMERIC: "toString(@a)",
    Kind.BIGNUMERIC: "toString(@a)",
}

# For TO_JSON_STRING, which prints a number that JavaScript cannot represent as a text; in a document it stays a number.
_QUOTED: Final = "if({0}, concat('\"', toString(@a), '\"'), toString(@a))"
_TEXTS: Final = {
    **DOCUMENT,
    Kind.INT64: _QUOTED.format("abs(toInt128(@a)) > 9007199254740992"),
    Kind.NUMERIC: _QUOTED.format("abs(@a) > 9007199254740992 OR @a != trunc(@a)"),
    Kind.BIGNUMERIC: _QUOTED.format("abs(@a) > 9007199254740992 OR @a != trunc(@a)"),
}
_TIMES: Final = {Kind.TIMESTAMP: "%FT%T", Kind.DATETIME: "%FT%T", Kind.TIME: "%T"}


def json_text(node: exp.Expr, datatype: Datatype | None, scalars: Mapping[Kind, str] = _TEXTS) -> exp.Expr:
    """Return the JSON text of a value; never NULL: a missing value is `null`."""
    if isinstance(node, exp.Null):
        return fragment("'null'")
    return _text_or_null(node, datatype, scalars, depth=0)


def _text_or_null(node: exp.Expr, datatype: Datatype | None, scalars: Mapping[Kind, str], depth: int) -> exp.Expr:
    return fragment("ifNull({0}, 'null')", _json_text_of(node, datatype, scalars, depth))


def _json_text_of(node: exp.Expr, datatype: Datatype | None, scalars: Mapping[Kind, str], depth: int) -> exp.Expr:
    if datatype is None:
        return fragment("toJSONString({0})", node)
    if datatype.kind is Kind.ARRAY:
        return _array(node, datatype, scalars, depth)
    if datatype.kind is Kind.STRUCT:
        return _object(node, datatype, scalars, depth)
    if datatype.kind is Kind.INTERVAL:
        unsupported(node, "An INTERVAL as JSON")
    if datatype.kind in _TIMES:
        typed = node if datatype_of(node) else typed_as(node, datatype)
        formatted = format_time(typed, datatype.kind, _TIMES[datatype.kind], None)
        end = "Z" if datatype.kind is Kind.TIMESTAMP else ""
        return fragment(
            f"concat('\"', {{0}}, {{1}}, '{end}\"')", formatted, once(SUBSECOND, cast(copied(node), Kind.DATETIME))
        )
    return once(scalars.get(datatype.kind, "toJSONString(toString(@a))"), node)


def _array(node: exp.Expr, datatype: Datatype, scalars: Mapping[Kind, str], depth: int) -> exp.Expr:
    name = f"_j{depth}"
    inner = _text_or_null(fragment(name), datatype.element, scalars, depth + 1)
    template = f"concat('[', arrayStringConcat(arrayMap({name} -> assumeNotNull({{1}}), {{0}}), ','), ']')"
    return fragment(template, node, inner)


def _object(node: exp.Expr, datatype: Datatype, scalars: Mapping[Kind, str], depth: int) -> exp.Expr:
    """Print a struct field by field under the author's names, which may be empty or duplicate."""
    name = f"_s{depth}"
    parts: list[exp.Expr] = []
    members: list[str] = []
    for index, (label, field) in enumerate(datatype.fields):
        key = ("," if index else "{") + json.dumps(label, ensure_ascii=False) + ":"
        parts.append(text_part(key))
        parts.append(_text_or_null(fragment(f"tupleElement({name}, {index + 1})"), field, scalars, depth + 1))
        members.append(holes(2, first=2 * index + 1))
    if not members:
        return fragment("'{}'")
    body = f"concat({', '.join(members)}, '}}')"
    template = f"arrayMap({name} -> if(isNull({name}), NULL, {body}), [{{0}}])[1]"
    return fragment(template, node, *parts)


def _to_json(node: exp.Expr) -> exp.Expr:
    if node.args.get("to_json"):
        return json_text(node.this, datatype_of(node.this), _TEXTS if stringifies_wide(node) else DOCUMENT)
    result = json_text(node.this, datatype_of(node.this))
    options = node.args.get("options")
    datatype = datatype_of(node.this)
    is_one_line = datatype is not None and datatype.kind not in _INDENTED_KINDS
    if options is not None and option_value(options) is not False and not is_one_line:
        unsupported(node, "TO_JSON_STRING with pretty_print")
    return result


# The types whose JSON has several lines when it is indented.
_INDENTED_KINDS: Final = (Kind.ARRAY, Kind.STRUCT, Kind.JSON, Kind.VARIANT)

RULES = RuleSet(nodes={exp.JSONFormat: _to_json})
