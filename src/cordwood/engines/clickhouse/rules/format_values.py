"""Values as text for FORMAT: %t as CAST prints them, and %T as BigQuery's literals."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import once
from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.model.datatype import EXACT, MOMENTS, Datatype, Kind
from cordwood.sql.fragment import fragment
from cordwood.sql.typing import datatype_of, typed_as
from cordwood.sql.typing.datatypes import STRING

_QUOTES: Final = ('"', "''", "`")
# Pairs of hexadecimal digits. Digits after an unprintable byte would extend its escape, so they are escaped with it.
_PAIRS: Final = "extractAll(hex(@a), '(?:0[0-8BCEF]|1.|7F|[89A-F].)(?:3[0-9]|4[1-6]|6[1-6])*|..')"
_CONTROL: Final = r"[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]"


def _escape_bytes(*quotes: str) -> str:
    """Return SQL that escapes bytes: `quotes` and backslashes get a backslash in front."""
    quote_codes = ", ".join(f"hex('{quote}')" for quote in (r"\\", *quotes))
    escaped = (
        r"multiIf(_h = '09', '\\t', _h = '0A', '\\n', _h = '0D', '\\r',"
        rf" _h IN ({quote_codes}), concat('\\', unhex(_h)), length(_h) = 2 AND _h BETWEEN '20' AND '7E', unhex(_h),"
        r" replaceRegexpAll(lower(_h), '(..)', '\\\\x\\1'))"
    )
    return f"arrayStringConcat(arrayMap(_h -> {escaped}, {_PAIRS}))"


def _escape_text(text: str) -> str:
    """Return SQL that escapes a text, except for its quotes."""
    escaped = text
    for escape_letter, code in ((r"\\", 92), ("n", 10), ("r", 13), ("t", 9)):
        escaped = rf"replaceAll({escaped}, char({code}), '\\{escape_letter}')"
    escape_character = rf"_c -> if(match(_c, '{_CONTROL}'), concat('\\x', lower(hex(_c))), _c)"
    escaped_characters = f"arrayStringConcat(arrayMap({escape_character}, extractAll({escaped}, '(?s).')))"
    return f"if(match({text}, '{_CONTROL}'), {escaped_characters}, {escaped})"


def _quote(text: str) -> str:
    """Return the text in double quotes, or in single quotes if it contains only double ones."""
    escaped = _escape_text(text)
    return _either(text, f"concat('''', {escaped}, '''')", rf"""concat('"', replaceAll({escaped}, '"', '\\"'), '"')""")


def _either(text: str, single: str, double: str) -> str:
    return f"""if(position({text}, '"') > 0 AND position({text}, '''') = 0, {single}, {double})"""


_LITERALS: Final = {
    Kind.BYTES: _either(
        "@a", f"concat('b''', {_escape_bytes()}, '''')", f"""concat('b"', {_escape_bytes(_QUOTES[0])}, '"')"""
    ),
    Kind.STRING: _quote("@a"),
    Kind.JSON: f"concat('JSON ', {_quote('@a')})",
}
# Values without a literal form are printed as casts.
_FLOAT: Final = "if(@a IN ('nan', 'inf', '-inf'), concat('CAST(\"', @a, '\" AS FLOAT64)'), @a)"
_TYPED_LITERALS: Final = {
    Kind.INTERVAL: "concat('INTERVAL \"', {0}, '\" YEAR TO SECOND')",
    **{kind: f"concat('{kind} \"', {{0}}, '\"')" for kind in (*MOMENTS, *EXACT)},
}


def readable(value: exp.Expr) -> exp.Expr:
    """Return a value as CAST prints it, with arrays and structs in brackets."""
    return _readable(value, datatype_of(value), depth=0)


def literal_of(value: exp.Expr) -> exp.Expr:
    """Return a value as a literal of the same type."""
    return _literal(value, datatype_of(value), depth=0)


def _readable(value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    if datatype is not None and datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(value, datatype, depth, typed=False)
    if datatype is not None and datatype.kind is Kind.BYTES:
        return _once_if_present(_escape_bytes(*_QUOTES), value)
    return _with_point(cast_to(value, value, STRING), datatype) if datatype != STRING else value


def _literal(value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    if datatype is None or isinstance(value, exp.Null):
        return fragment("toString({0})", value)
    if datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(value, datatype, depth, typed=True)
    if datatype.kind in _LITERALS:
        return _once_if_present(_LITERALS[datatype.kind], value)
    text = _with_point(cast_to(value, value, STRING), datatype)
    if datatype.kind is Kind.FLOAT64:
        return once(_FLOAT, text)
    return fragment(_TYPED_LITERALS[datatype.kind], text) if datatype.kind in _TYPED_LITERALS else text


def _once_if_present(template: str, value: exp.Expr) -> exp.Expr:
    """Apply a template to a value that is not NULL, because ClickHouse has no arrays that may be NULL."""
    return once(f"if(isNull(@a), NULL, {template.replace('@a', 'assumeNotNull(@a)')})", value)


def _with_point(text: exp.Expr, datatype: Datatype | None) -> exp.Expr:
    """Append `.0` to an integral FLOAT64, to distinguish it from an INT64."""
    if datatype is None or datatype.kind is not Kind.FLOAT64:
        return text
    return once("if(match(@a, '^-?[0-9]+$'), concat(@a, '.0'), @a)", text)


def _nested(value: exp.Expr, datatype: Datatype, depth: int, *, typed: bool) -> exp.Expr:
    name = f"_f{depth}"
    render = _literal if typed else _readable
    if datatype.kind is Kind.ARRAY:
        inner = render(typed_as(fragment(name), datatype.element), datatype.element, depth + 1)
        elements_text = f"arrayStringConcat(arrayMap({name} -> ifNull({{1}}, 'NULL'), {{0}}), ', ')"
        return fragment(f"concat('[', {elements_text}, ']')", value, inner)
    parts: list[exp.Expr] = []
    for index, (_, field) in enumerate(datatype.fields):
        parts.append(render(typed_as(fragment(f"tupleElement({name}, {index + 1})"), field), field, depth + 1))
    body = ", ', ', ".join(f"ifNull({{{index + 1}}}, 'NULL')" for index in range(len(parts)))
    opening = "'STRUCT('" if typed and len(parts) == 1 else "'('"
    template = f"arrayMap({name} -> if(isNull({name}), NULL, concat({opening}, {body}, ')')), [{{0}}])[1]"
    return fragment(template, value, *parts)
