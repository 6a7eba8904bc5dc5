"""TO_JSON and TO_JSON_STRING in ClickHouse's words."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.time_text import TIME_TEXT
from cordwood.engines.clickhouse.rules.words import WORDS
from cordwood.model.datatype import Kind
from cordwood.sql.datatypes import datatype_of
from cordwood.sql.lowering import unsupported
from cordwood.sql.rules.json_functions import JsonText, option_value

SHORTEST_FLOAT: Final = (
    "replaceRegexpOne(replaceRegexpOne(toString(@a), 'e(\\\\d)', 'e+\\\\1'), 'e([+-])(\\\\d)$', 'e\\\\10\\\\2')"
)
_FLOAT: Final = (
    f"multiIf(isNaN(@a), '\"NaN\"', isInfinite(@a), if(@a > 0, '\"Infinity\"', '\"-Infinity\"'), @a = 0, '0',"
    f" abs(@a) >= 1e15, {SHORTEST_FLOAT}, {SHORTEST_FLOAT})"
)
_SCALARS: Final = {
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
RULES = JSON_TEXT.rules()
