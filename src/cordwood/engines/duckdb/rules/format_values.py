"""Values as text for FORMAT: %t as CAST prints them, and %T as BigQuery's literals."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import once
from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.model.datatype import EXACT, MOMENTS, Datatype, Kind
from cordwood.sql.fragment import fragment
from cordwood.sql.typing import datatype_of, typed_as
from cordwood.sql.typing.datatypes import STRING

# Pairs of hexadecimal digits. Digits after an unprintable byte would extend its escape, so they are escaped with it.
_PAIRS: Final = "regexp_extract_all(hex(@a), '(?:0[0-8BCEF]|1.|7F|[89A-F].)(?:3[0-9]|4[1-6]|6[1-6])*|..')"
_QUOTES: Final = ('"', "'", "`")
_CONTROL: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"


def _escape_bytes(*quotes: str) -> str:
    """Return SQL that escapes bytes: `quotes` and backslashes get a backslash in front."""
    quote_codes = ", ".join(f"'{ord(quote):X}'" for quote in ("\\", *quotes))
    escaped = (
        r"CASE WHEN _h = '09' THEN '\t' WHEN _h = '0A' THEN '\n' WHEN _h = '0D' THEN '\r'"
        rf" WHEN _h IN ({quote_codes}) THEN '\' || chr(('0x' || _h)::INT)"
        " WHEN length(_h) = 2 AND _h BETWEEN '20' AND '7E' THEN chr(('0x' || _h)::INT)"
        r" ELSE regexp_replace(lower(_h), '(..)', '\\x\1', 'g') END"
    )
    return f"coalesce(array_to_string(list_transform({_PAIRS}, lambda _h: {escaped}), ''), '')"


def _escape_text(text: str) -> str:
    """Return SQL that escapes a text, except for its quotes."""
    escaped = text
    for letter, code in (("\\", 92), ("n", 10), ("r", 13), ("t", 9)):
        escaped = f"replace({escaped}, chr({code}), '\\{letter}')"
    escape_character = rf"lambda _c: CASE WHEN regexp_matches(_c, '{_CONTROL}') THEN '\x' || lower(hex(_c)) ELSE _c END"
    escaped_characters = f"array_to_string(list_transform(string_split({escaped}, ''), {escape_character}), '')"
    return f"CASE WHEN regexp_matches({text}, '{_CONTROL}') THEN {escaped_characters} ELSE {escaped} END"


def _quote(text: str) -> str:
    """Return the text in double quotes, or in single quotes if it contains only double ones."""
    escaped = _escape_text(text)
    return (
        f"CASE WHEN contains({text}, '\"') AND NOT contains({text}, '''') THEN '''' || ({escaped}) || ''''"
        rf""" ELSE '"' || replace(({escaped}), '"', '\"') || '"' END"""
    )


_LITERALS: Final = {
    Kind.BYTES: (
        "CASE WHEN @a IS NULL THEN NULL WHEN regexp_matches(hex(@a), '^(..)*22') AND NOT regexp_matches(hex(@a), '^(..)*27')"
        f" THEN 'b''' || {_escape_bytes()} || '''' ELSE 'b\"' || {_escape_bytes(_QUOTES[0])} || '\"' END"
    ),
    Kind.STRING: _quote("@a"),
    Kind.JSON: f"'JSON ' || {_quote('@a::VARCHAR')}",
}
# Values without a literal form are printed as casts.
_FLOAT: Final = "CASE WHEN @a IN ('nan', 'inf', '-inf') THEN 'CAST(\"' || @a || '\" AS FLOAT64)' ELSE @a END"
_TYPED_LITERALS: Final = {
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
        return once(f"CASE WHEN @a IS NOT NULL THEN {_escape_bytes(*_QUOTES)} END", value)
    return _with_point(cast_to(value, value, STRING), datatype) if datatype != STRING else value


def _literal(value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    if datatype is None or isinstance(value, exp.Null):
        return fragment("CAST({0} AS VARCHAR)", value)
    if datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(value, datatype, depth, typed=True)
    if datatype.kind in _LITERALS:
        return once(_LITERALS[datatype.kind], value)
    text = _with_point(cast_to(value, value, STRING), datatype)
    if datatype.kind is Kind.FLOAT64:
        return once(_FLOAT, text)
    return fragment(_TYPED_LITERALS[datatype.kind], text) if datatype.kind in _TYPED_LITERALS else text


def _with_point(text: exp.Expr, datatype: Datatype | None) -> exp.Expr:
    """Append `.0` to an integral FLOAT64, to distinguish it from an INT64."""
    if datatype is None or datatype.kind is not Kind.FLOAT64:
        return text
    return once("CASE WHEN regexp_full_match(@a, '-?[0-9]+') THEN @a || '.0' ELSE @a END", text)


def _nested(value: exp.Expr, datatype: Datatype, depth: int, *, typed: bool) -> exp.Expr:
    name = f"_f{depth}"
    render = _literal if typed else _readable
    if datatype.kind is Kind.ARRAY:
        inner = render(typed_as(fragment(name), datatype.element), datatype.element, depth + 1)
        elements = fragment(f"list_transform({{0}}, lambda {name}: coalesce({{1}}, 'NULL'))", value, inner)
        return once("CASE WHEN @a IS NOT NULL THEN '[' || coalesce(array_to_string(@a, ', '), '') || ']' END", elements)
    parts: list[exp.Expr] = []
    for index, (_, field) in enumerate(datatype.fields):
        parts.append(render(typed_as(fragment(f"struct_extract_at({name}, {index + 1})"), field), field, depth + 1))
    body = " || ', ' || ".join(f"coalesce({{{index + 1}}}, 'NULL')" for index in range(len(parts)))
    opening = "'STRUCT(' || " if typed and len(parts) == 1 else "'(' || "
    template = (
        f"list_transform([{{0}}], lambda {name}: CASE WHEN {name} IS NULL THEN NULL ELSE {opening}{body} || ')' END)[1]"
    )
    return fragment(template, value, *parts)
