"""Values as text for FORMAT: %t as CAST prints them, and %T as BigQuery's literals."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.words import once
from cordwood.model.datatype import EXACT, MOMENTS, Datatype, Kind
from cordwood.sql.fragment import fragment
from cordwood.sql.typing import datatype_of, typed_as
from cordwood.sql.typing.datatypes import STRING

_MARKS: Final = ('"', "''", "`")
# Pairs of hexadecimal digits. Digits after an unprintable byte would extend its escape, so they are escaped with it.
_PAIRS: Final = "extractAll(hex(@a), '(?:0[0-8BCEF]|1.|7F|[89A-F].)(?:3[0-9]|4[1-6]|6[1-6])*|..')"
_CONTROL: Final = r"[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]"


def _bytes(*marks: str) -> str:
    """Return SQL that escapes bytes: `marks` and backslashes get a backslash in front."""
    marked = ", ".join(f"hex('{mark}')" for mark in (r"\\", *marks))
    said = (
        r"multiIf(_h = '09', '\\t', _h = '0A', '\\n', _h = '0D', '\\r',"
        rf" _h IN ({marked}), concat('\\', unhex(_h)), length(_h) = 2 AND _h BETWEEN '20' AND '7E', unhex(_h),"
        r" replaceRegexpAll(lower(_h), '(..)', '\\\\x\\1'))"
    )
    return f"arrayStringConcat(arrayMap(_h -> {said}, {_PAIRS}))"


def _letters(text: str) -> str:
    """Return SQL that escapes a text, except for its quotes."""
    said = text
    for letter, code in ((r"\\", 92), ("n", 10), ("r", 13), ("t", 9)):
        said = rf"replaceAll({said}, char({code}), '\\{letter}')"
    each = rf"_c -> if(match(_c, '{_CONTROL}'), concat('\\x', lower(hex(_c))), _c)"
    one_by_one = f"arrayStringConcat(arrayMap({each}, extractAll({said}, '(?s).')))"
    return f"if(match({text}, '{_CONTROL}'), {one_by_one}, {said})"


def _quoted(text: str) -> str:
    """Return the text in double quotes, or in single quotes if it contains only double ones."""
    said = _letters(text)
    return _either(text, f"concat('''', {said}, '''')", rf"""concat('"', replaceAll({said}, '"', '\\"'), '"')""")


def _either(text: str, single: str, double: str) -> str:
    return f"""if(position({text}, '"') > 0 AND position({text}, '''') = 0, {single}, {double})"""


_LITERALS: Final = {
    Kind.BYTES: _either("@a", f"concat('b''', {_bytes()}, '''')", f"""concat('b"', {_bytes(_MARKS[0])}, '"')"""),
    Kind.STRING: _quoted("@a"),
    Kind.JSON: f"concat('JSON ', {_quoted('@a')})",
}
# Values without a literal form are printed as casts.
_FLOAT: Final = "if(@a IN ('nan', 'inf', '-inf'), concat('CAST(\"', @a, '\" AS FLOAT64)'), @a)"
_NAMED: Final = {
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
        return _of_some(_bytes(*_MARKS), value)
    return _pointed(cast_to(value, value, STRING), datatype) if datatype != STRING else value


def _literal(value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    if datatype is None or isinstance(value, exp.Null):
        return fragment("toString({0})", value)
    if datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(value, datatype, depth, typed=True)
    if datatype.kind in _LITERALS:
        return _of_some(_LITERALS[datatype.kind], value)
    told = _pointed(cast_to(value, value, STRING), datatype)
    if datatype.kind is Kind.FLOAT64:
        return once(_FLOAT, told)
    return fragment(_NAMED[datatype.kind], told) if datatype.kind in _NAMED else told


def _of_some(template: str, value: exp.Expr) -> exp.Expr:
    """Apply a template to a value that is not NULL, because ClickHouse has no arrays that may be NULL."""
    return once(f"if(isNull(@a), NULL, {template.replace('@a', 'assumeNotNull(@a)')})", value)


def _pointed(told: exp.Expr, datatype: Datatype | None) -> exp.Expr:
    """Append `.0` to an integral FLOAT64, to distinguish it from an INT64."""
    if datatype is None or datatype.kind is not Kind.FLOAT64:
        return told
    return once("if(match(@a, '^-?[0-9]+$'), concat(@a, '.0'), @a)", told)


def _nested(value: exp.Expr, datatype: Datatype, depth: int, *, typed: bool) -> exp.Expr:
    name = f"_f{depth}"
    said = _literal if typed else _readable
    if datatype.kind is Kind.ARRAY:
        inner = said(typed_as(fragment(name), datatype.element), datatype.element, depth + 1)
        listed = f"arrayStringConcat(arrayMap({name} -> ifNull({{1}}, 'NULL'), {{0}}), ', ')"
        return fragment(f"concat('[', {listed}, ']')", value, inner)
    parts: list[exp.Expr] = []
    for index, (_, field) in enumerate(datatype.fields):
        parts.append(said(typed_as(fragment(f"tupleElement({name}, {index + 1})"), field), field, depth + 1))
    body = ", ', ', ".join(f"ifNull({{{index + 1}}}, 'NULL')" for index in range(len(parts)))
    opened = "'STRUCT('" if typed and len(parts) == 1 else "'('"
    template = f"arrayMap({name} -> if(isNull({name}), NULL, concat({opened}, {body}, ')')), [{{0}}])[1]"
    return fragment(template, value, *parts)
