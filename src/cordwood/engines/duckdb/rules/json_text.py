"""DuckDB's SQL for TO_JSON and TO_JSON_STRING."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.time_text import TIME_TEXT
from cordwood.engines.duckdb.rules.words import WORDS
from cordwood.model.datatype import Kind
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import unsupported
from cordwood.sql.rules.json_functions import JsonText, option_value

_FLOAT: Final = (
    "CASE WHEN isnan(@a) THEN '\"NaN\"' WHEN isinf(@a) THEN CASE WHEN @a > 0 THEN '\"Infinity\"' ELSE '\"-Infinity\"' END"
    " WHEN @a = 0 THEN '0' WHEN CAST(printf('%.15g', @a) AS DOUBLE) = @a THEN printf('%.15g', @a) ELSE printf('%.17g', @a) END"
)
_EXACT: Final = r"regexp_replace(@a::VARCHAR, '\.?0+$', '')"
_SCALARS: Final = {
    Kind.STRING: "to_json(@a)::VARCHAR",
    Kind.INT64: "@a::VARCHAR",
    Kind.FLOAT64: _FLOAT,
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
        unsupported(node, "TO_JSON_STRING with a pretty_print that is no literal")
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
RULES = JSON_TEXT.rules()
