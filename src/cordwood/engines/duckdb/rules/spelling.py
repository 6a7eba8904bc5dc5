"""Values as text for FORMAT: %t as CAST prints them, and %T as BigQuery's literals."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.engines.duckdb.rules.words import once
from cordwood.model.datatype import EXACT, MOMENTS, Datatype, Kind
from cordwood.sql.fragment import fragment
from cordwood.sql.typing import datatype_of, typed_as
from cordwood.sql.typing.datatypes import STRING

# Pairs of hexadecimal digits. Digits after an unprintable byte would extend its escape, so they are escaped with it.
_PAIRS: Final = "regexp_extract_all(hex(@a), '(?:0[0-8BCEF]|1.|7F|[89A-F].)(?:3[0-9]|4[1-6]|6[1-6])*|..')"
_MARKS: Final = ('"', "'", "`")
_CONTROL: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"


def _bytes(*marks: str) -> str:
    """Return SQL that escapes bytes: `marks` and backslashes get a backslash in front."""
    marked = ", ".join(f"'{ord(mark):X}'" for mark in ("\\", *marks))
    said = (
        r"CASE WHEN _h = '09' THEN '\t' WHEN _h = '0A' THEN '\n' WHEN _h = '0D' THEN '\r'"
        rf" WHEN _h IN ({marked}) THEN '\' || chr(('0x' || _h)::INT)"
        " WHEN length(_h) = 2 AND _h BETWEEN '20' AND '7E' THEN chr(('0x' || _h)::INT)"
        r" ELSE regexp_replace(lower(_h), '(..)', '\\x\1', 'g') END"
    )
    return f"coalesce(array_to_string(list_transform({_PAIRS}, lambda _h: {said}), ''), '')"


def _letters(text: str) -> str:
    """Return SQL that escapes a text, except for its quotes."""
    said = text
    for letter, code in (("\\", 92), ("n", 10), ("r", 13), ("t", 9)):
        said = f"replace({said}, chr({code}), '\\{letter}')"
    each = rf"lambda _c: CASE WHEN regexp_matches(_c, '{_CONTROL}') THEN '\x' || lower(hex(_c)) ELSE _c END"
    one_by_one = f"array_to_string(list_transform(string_split({said}, ''), {each}), '')"
    return f"CASE WHEN regexp_matches({text}, '{_CONTROL}') THEN {one_by_one} ELSE {said} END"


def _quoted(text: str) -> str:
    """Return the text in double quotes, or in single quotes if it contains only double ones."""
    said = _letters(text)
    return (
        f"CASE WHEN contains({text}, '\"') AND NOT contains({text}, '''') THEN '''' || ({said}) || ''''"
        rf""" ELSE '"' || replace(({said}), '"', '\"') || '"' END"""
    )


_LITERALS: Final = {
    Kind.BYTES: (
        "CASE WHEN @a IS NULL THEN NULL WHEN regexp_matches(hex(@a), '^(..)*22') AND NOT regexp_matches(hex(@a), '^(..)*27')"
        f" THEN 'b''' || {_bytes()} || '''' ELSE 'b\"' || {_bytes(_MARKS[0])} || '\"' END"
    ),
    Kind.STRING: _quoted("@a"),
    Kind.JSON: f"'JSON ' || {_quoted('@a::VARCHAR')}",
}
# Values without a literal form are printed as casts.
_FLOAT: Final = "CASE WHEN @a IN ('nan', 'inf', '-inf') THEN 'CAST(\"' || @a || '\" AS FLOAT64)' ELSE @a END"
_NAMED: Final = {
    Kind.INTERVAL: "'INTERVAL \"' || {0} || '\" YEAR TO SECOND'",
    **{kind: f"'{kind} \"' || {{0}} || '\"'" for kind in (*MOMENTS, *EXACT)},
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
        return once(f"CASE WHEN @a IS NOT NULL THEN {_bytes(*_MARKS)} END", value)
    return _pointed(cast_to(value, value, STRING), datatype) if datatype != STRING else value


def _literal(value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    if datatype is None or isinstance(value, exp.Null):
        return fragment("CAST({0} AS VARCHAR)", value)
    if datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(value, datatype, depth, typed=True)
    if datatype.kind in _LITERALS:
        return once(_LITERALS[datatype.kind], value)
    told = _pointed(cast_to(value, value, STRING), datatype)
    if datatype.kind is Kind.FLOAT64:
        return once(_FLOAT, told)
    return fragment(_NAMED[datatype.kind], told) if datatype.kind in _NAMED else told


def _pointed(told: exp.Expr, datatype: Datatype | None) -> exp.Expr:
    """Append `.0` to an integral FLOAT64, to distinguish it from an INT64."""
    if datatype is None or datatype.kind is not Kind.FLOAT64:
        return told
    return once("CASE WHEN regexp_full_match(@a, '-?[0-9]+') THEN @a || '.0' ELSE @a END", told)


def _nested(value: exp.Expr, datatype: Datatype, depth: int, *, typed: bool) -> exp.Expr:
    name = f"_f{depth}"
    said = _literal if typed else _readable
    if datatype.kind is Kind.ARRAY:
        inner = said(typed_as(fragment(name), datatype.element), datatype.element, depth + 1)
        listed = fragment(f"list_transform({{0}}, lambda {name}: coalesce({{1}}, 'NULL'))", value, inner)
        return once("CASE WHEN @a IS NOT NULL THEN '[' || coalesce(array_to_string(@a, ', '), '') || ']' END", listed)
    parts: list[exp.Expr] = []
    for at, (_, field) in enumerate(datatype.fields):
        parts.append(said(typed_as(fragment(f"struct_extract_at({name}, {at + 1})"), field), field, depth + 1))
    body = " || ', ' || ".join(f"coalesce({{{at + 1}}}, 'NULL')" for at in range(len(parts)))
    opened = "'STRUCT(' || " if typed and len(parts) == 1 else "'(' || "
    template = (
        f"list_transform([{{0}}], lambda {name}: CASE WHEN {name} IS NULL THEN NULL ELSE {opened}{body} || ')' END)[1]"
    )
    return fragment(template, value, *parts)
