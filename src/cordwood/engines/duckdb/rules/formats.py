"""FORMAT(): each specifier of a literal format becomes the text of its argument.

%t prints a value as CAST does, and %T as a literal of BigQuery.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import NAMES, fail, once
from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.engines.duckdb.rules.coercions import read_as
from cordwood.engines.duckdb.rules.json_text import indent, json_text
from cordwood.errors import QueryValue
from cordwood.model.datatype import EXACT, MOMENTS, Datatype, Kind
from cordwood.sql.bigquery.formats import (
    FRACTION_LETTERS,
    HEX_LETTERS,
    INTEGER_LETTERS,
    MAX_WIDTH,
    TEXT_LETTERS,
    Field,
    Specifier,
    parse_format,
    unwrap_cast_null,
)
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment, holes, text_part
from cordwood.sql.lowering import RuleSet, is_safe, span_in_text, unsupported
from cordwood.sql.typing import datatype_of, kind_of, typed_as
from cordwood.sql.typing.datatypes import STRING


def _format(node: exp.Expr) -> exp.Expr:
    format_text = constant_text(node.this)
    if isinstance(node.this, exp.Null):
        return exp.Null()
    if format_text is None:
        unsupported(node, "FORMAT with a format that is no literal")
    parts = list(_format_parts(node, format_text))
    if not parts:
        return exp.Literal.string("")
    return fragment(" || ".join(f"{{{index}}}" for index in range(len(parts))), *parts)


def _format_parts(node: exp.Expr, format_text: str) -> Iterator[exp.Expr]:
    for part in parse_format(node, format_text):
        if part is None:
            yield _invalid_format(node, "The format of FORMAT is not valid: a percent sign is written %%.")
        elif isinstance(part, str):
            yield exp.Literal.string(part)
        else:
            yield _format_field(node, part)


def _invalid_format(node: exp.Expr, message: str) -> exp.Expr:
    if is_safe(node):
        return fragment("NULL::VARCHAR")
    raise QueryValue(message, span=span_in_text(node))


def _format_field(node: exp.Expr, field: Field) -> exp.Expr:
    letter = field.spec.letter
    if field.spec.is_too_wide:
        return fragment("NULL::VARCHAR") if is_safe(node) else unsupported(node, "So wide a field in FORMAT")
    if letter in INTEGER_LETTERS:
        return _integer(node, field)
    if letter in FRACTION_LETTERS:
        return _exact(node, field, field.exact) if field.exact else _fraction(node, field)
    if letter in TEXT_LETTERS:
        return _pad(node, field, _as_text(node, letter, field.value))
    return _invalid_format(node, f"FORMAT has no specifier %{letter}.")


def _printf(node: exp.Expr, spec: str, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    parts = [text_part(spec), *(_count(node, count) for count in counts), value]
    return fragment(f"printf({holes(len(parts))})", *parts)


def _count(node: exp.Expr, count: exp.Expr) -> exp.Expr:
    too_wide = fail(node, "So wide a field in FORMAT is too large")
    return once(f"(CASE WHEN @a > {MAX_WIDTH} THEN {too_wide} ELSE @a END)::INT", count)


def _integer(node: exp.Expr, field: Field) -> exp.Expr:
    spec, value = field.spec, fragment("{0}::BIGINT", read_as(field.value, Kind.INT64))
    letter = spec.letter if spec.letter in HEX_LETTERS else "d"
    if letter != "d":
        value = once(f"CASE WHEN @a < 0 THEN {fail(node, f'%{letter} of a negative number')} ELSE @a END", value)
    if spec.precision is None and not spec.is_grouped:
        return _printf(node, spec.text(letter), value, field.counts)
    parts = [value]
    if field.precision is not None:
        parts.append(once("CASE WHEN @a < 0 THEN 1 ELSE @a END", _count(node, field.precision)))
    return _compose_number(node, field, _digits(spec, letter), *parts)


def _digits(spec: Specifier, letter: str) -> str:
    """Return the digits of the integer @a, as many as the precision demands, grouped if the specifier says so."""
    min_digits = "@b" if spec.precision == "*" else str(int(spec.precision or 1))
    flag = "#" if spec.is_alternate and letter == "o" else ""
    digits = f"ltrim(printf('%{flag}0*{letter}', {min_digits} + (@a < 0)::INT, @a), '-')"
    if min_digits in ("@b", "0"):
        digits = f"CASE WHEN @a = 0 AND {min_digits} = 0 THEN '' ELSE {digits} END"
    if not spec.is_grouped:
        return digits
    size, flag = _GROUPS[letter]
    return f"ltrim(reverse(regexp_replace(reverse({digits}), '({'.' * size})', '\\1{flag}', 'g')), '{flag}')"


_GROUPS: Final = {"d": (3, ","), "o": (4, ","), "x": (4, ":"), "X": (4, ":")}


def _compose_number(
    node: exp.Expr, field: Field, digits: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()
) -> exp.Expr:
    """Return sign or prefix, zeros and digits of the number @a, padded with blanks to the width."""
    spec = field.spec
    sign = f"CASE WHEN @a < 0 THEN '-' ELSE '{spec.plus}' END"
    if spec.letter in HEX_LETTERS:
        sign = (
            f"CASE WHEN @a = 0 THEN '' ELSE '0{spec.letter}' END" if spec.is_alternate and spec.letter != "o" else "''"
        )
    if not spec.is_zero_padded:
        return _pad(node, field, once(f"{sign} || ({digits})", *parts, texts=texts))
    if spec.width == "*":
        unsupported(node, "A field in FORMAT that zeros fill, whose width is no literal,")
    zeros = f"repeat('0', {int(spec.width or 0)} - length({sign}) - length({digits}))"
    return once(f"{sign} || {zeros} || ({digits})", *parts, texts=texts)


def _fraction(node: exp.Expr, field: Field) -> exp.Expr:
    spec, value = field.spec, fragment("{0}::DOUBLE", read_as(field.value, Kind.FLOAT64))
    if spec.is_grouped or (spec.is_alternate and spec.letter not in "fF"):
        if field.precision is not None:
            unsupported(node, "A precision in FORMAT that is no literal, beside such flags,")
        digits = _with_point(spec, "printf({0}, abs(@a))")
        digits = _group_digits(digits) if spec.is_grouped else digits
        return _compose_number(node, field, digits, value, texts=[text_part(spec.number_only)])
    padded = _printf(node, spec.text(spec.letter), value, field.counts)
    if not spec.is_zero_padded:
        return padded
    counts = [copied(count) for count in field.counts]
    without_zeros = _printf(node, spec.without_zero_padding.text(spec.letter), copied(value), counts)
    return fragment("CASE WHEN isfinite({0}) THEN {1} ELSE {2} END", copied(value), padded, without_zeros)


def _with_point(spec: Specifier, number_sql: str) -> str:
    """Correct the decimal point of printf's `#` flag: DuckDB omits it before an exponent and adds a zero at the end."""
    if not spec.is_alternate or spec.letter in "fF":
        return number_sql
    number_sql = f"regexp_replace({number_sql}, '^(.)([eE])', '\\1.\\2')"
    if spec.letter in "eE":
        return number_sql
    decimals = int(spec.precision or 6)
    return f"regexp_replace({number_sql}, '^([0-9]{{{decimals},{decimals}}})\\.0$', '\\1.')"


# The number of digits that DuckDB keeps after the point.
_DECIMALS: Final = {Kind.NUMERIC: 9, Kind.BIGNUMERIC: 18}


def _exact(node: exp.Expr, field: Field, kind: Kind) -> exp.Expr:
    """Format a NUMERIC with all its digits, rounded half away from zero."""
    spec = field.spec
    if field.precision is not None:
        unsupported(node, f"A precision of {kind} in FORMAT that is no literal")
    decimals = int(spec.precision or 6)
    kept_decimals = min(decimals, _DECIMALS[kind])
    digits = f"ltrim(round(@a, {kept_decimals})::VARCHAR, '-')"
    if decimals > kept_decimals:
        digits = f"({digits} || repeat('0', {decimals - kept_decimals}))"
    if spec.is_alternate and not decimals:
        digits = f"({digits} || '.')"
    value = fragment(f"{{0}}::{NAMES[kind]}", field.value)
    return _compose_number(node, field, _group_digits(digits) if spec.is_grouped else digits, value)


def _group_digits(digits: str) -> str:
    """Insert commas into the digits before the point or the exponent."""
    leading_digits = f"regexp_extract({digits}, '^[0-9]+')"
    remaining = f"regexp_replace({digits}, '^[0-9]+', '')"
    return f"ltrim(reverse(regexp_replace(reverse({leading_digits}), '(...)', '\\1,', 'g')), ',') || {remaining}"


def _pad(node: exp.Expr, field: Field, value: exp.Expr) -> exp.Expr:
    if field.spec.padding is None:
        return value
    max_length = field.precision if field.spec.letter in TEXT_LETTERS else None
    return _printf(node, field.spec.padding, value, [count for count in (field.width, max_length) if count is not None])


def _as_text(node: exp.Expr, letter: str, value: exp.Expr) -> exp.Expr:
    if letter == "s":
        return cast_to(node, value, STRING) if kind_of(value) is not Kind.STRING else value
    if letter in "pP":
        json_value = json_text(value, datatype_of(value))
        text = json_value if letter == "p" else indent(json_value)
        return fragment("CASE WHEN {0} IS NOT NULL THEN {1} END", copied(value), text)
    text = _literal_text(value) if letter == "T" else _readable_text(value)
    return fragment("coalesce({0}, 'NULL')", text)


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


def _readable_text(value: exp.Expr) -> exp.Expr:
    """Return a value as CAST prints it, with arrays and structs in brackets."""
    return _readable(value, datatype_of(value), depth=0)


def _literal_text(value: exp.Expr) -> exp.Expr:
    """Return a value as a literal of the same type."""
    return _literal(value, datatype_of(value), depth=0)


def _readable(value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    if datatype is not None and datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(value, datatype, depth, typed=False)
    if datatype is not None and datatype.kind is Kind.BYTES:
        return once(f"CASE WHEN @a IS NOT NULL THEN {_escape_bytes(*_QUOTES)} END", value)
    return _with_fraction(cast_to(value, value, STRING), datatype) if datatype != STRING else value


def _literal(value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    if datatype is None or isinstance(value, exp.Null):
        return fragment("CAST({0} AS VARCHAR)", value)
    if datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(value, datatype, depth, typed=True)
    if datatype.kind in _LITERALS:
        return once(_LITERALS[datatype.kind], value)
    text = _with_fraction(cast_to(value, value, STRING), datatype)
    if datatype.kind is Kind.FLOAT64:
        return once(_FLOAT, text)
    return fragment(_TYPED_LITERALS[datatype.kind], text) if datatype.kind in _TYPED_LITERALS else text


def _with_fraction(text: exp.Expr, datatype: Datatype | None) -> exp.Expr:
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


RULES = RuleSet(
    nodes={
        exp.Format: _format,
    },
    before_children={
        exp.Format: unwrap_cast_null,
    },
)
