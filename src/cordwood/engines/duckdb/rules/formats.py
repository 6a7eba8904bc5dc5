"""DuckDB's SQL for FORMAT()."""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import fail, once
from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.engines.duckdb.rules.json_text import JSON_TEXT, indent
from cordwood.engines.duckdb.rules.words import WORDS
from cordwood.model.datatype import Kind
from cordwood.sql.fragment import fragment, holes, text_part
from cordwood.sql.rules.formats import MAX_WIDTH, TEXT_LETTERS, Field, Formats, Specifier

# Pairs of hexadecimal digits. Digits after an unprintable byte would extend its escape, so they are escaped with it.
_PAIRS: Final = "regexp_extract_all(hex(@a), '(?:0[0-8BCEF]|1.|7F|[89A-F].)(?:3[0-9]|4[1-6]|6[1-6])*|..')"
_CONTROL: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"


def _printf(node: exp.Expr, spec: str, value: exp.Expr, counts: Sequence[exp.Expr | None]) -> exp.Expr:
    parts = [text_part(spec), *(_count(node, count) for count in counts if count is not None), value]
    return fragment(f"printf({holes(len(parts))})", *parts)


def _count(node: exp.Expr, count: exp.Expr) -> exp.Expr:
    too_wide = fail(node, "So wide a field in FORMAT is too large")
    return once(f"(CASE WHEN @a > {MAX_WIDTH} THEN {too_wide} ELSE @a END)::INT", count)


def _escape_bytes(*quotes: str) -> str:
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


# The number of digits after the point of exact numbers.
_DECIMALS: Final[Mapping[Kind, int]] = {Kind.NUMERIC: 9, Kind.BIGNUMERIC: 18}
_QUOTES: Final[Sequence[str]] = ('"', "'", "`")
_LITERALS: Final[Mapping[Kind, str]] = {
    Kind.BYTES: (
        "CASE WHEN regexp_matches(hex(@a), '^(..)*22') AND NOT regexp_matches(hex(@a), '^(..)*27')"
        f" THEN 'b''' || {_escape_bytes()} || '''' ELSE 'b\"' || {_escape_bytes(_QUOTES[0])} || '\"' END"
    ),
    Kind.STRING: _quote("@a"),
    Kind.JSON: f"'JSON ' || {_quote('@a::VARCHAR')}",
}


class _FormatSql:
    decimals, quotes, literals = _DECIMALS, _QUOTES, _LITERALS

    def joined(self, parts: Sequence[exp.Expr]) -> exp.Expr:
        return fragment(" || ".join(f"{{{index}}}" for index in range(len(parts))), *parts)

    def printf(self, node: exp.Expr, field: Field, letter: str, value: exp.Expr) -> exp.Expr:
        return _printf(node, field.spec.text(letter), value, field.counts)

    def pad(self, node: exp.Expr, field: Field, value: exp.Expr) -> exp.Expr:
        if field.spec.padding is None:
            return value
        max_length = field.precision if field.spec.letter in TEXT_LETTERS else None
        return _printf(node, field.spec.padding, value, (field.width, max_length))

    def precision(self, node: exp.Expr, count: exp.Expr) -> exp.Expr:
        return once("CASE WHEN @a < 0 THEN 1 ELSE @a END", _count(node, count))

    def digits(self, spec: Specifier, letter: str) -> str:
        min_digits = "@b" if spec.precision == "*" else str(int(spec.precision or 1))
        flag = "#" if spec.is_alternate and letter == "o" else ""
        digits = f"ltrim(printf('%{flag}0*{letter}', {min_digits} + (@a < 0)::INT, @a), '-')"
        if min_digits in ("@b", "0"):
            digits = f"CASE WHEN @a = 0 AND {min_digits} = 0 THEN '' ELSE {digits} END"
        return digits

    def zeros(self, width: int, sign: str, digits: str) -> str:
        return f"repeat('0', {width} - length({sign}) - length({digits}))"

    def lacks_flags(self, spec: Specifier) -> bool:
        return spec.is_grouped or (spec.is_alternate and spec.letter not in "fF")

    def fraction_digits(self, spec: Specifier) -> str:
        """Correct the decimal point of printf's `#` flag: DuckDB omits it before an exponent and adds a zero at the end."""
        digits = "printf({0}, abs(@a))"
        if not spec.is_alternate or spec.letter in "fF":
            return digits
        digits = f"regexp_replace({digits}, '^(.)([eE])', '\\1.\\2')"
        if spec.letter in "eE":
            return digits
        decimals = int(spec.precision or 6)
        return f"regexp_replace({digits}, '^([0-9]{{{decimals},{decimals}}})\\.0$', '\\1.')"

    def exact_digits(self, decimals: int, *, with_point: bool) -> str:
        digits = f"ltrim(round(@a, {decimals})::VARCHAR, '-')"
        return f"({digits} || '.')" if with_point and not decimals else digits

    def without_leading(self, text: str, mark: str) -> str:
        return f"ltrim({text}, '{mark}')"

    def indented(self, node: exp.Expr, json_value: exp.Expr) -> exp.Expr:
        return indent(json_value)

    def escape_bytes(self, *quotes: str) -> str:
        return _escape_bytes(*quotes)

    def once_if_present(self, template: str, value: exp.Expr) -> exp.Expr:
        return once(f"CASE WHEN @a IS NOT NULL THEN {template} END", value)


RULES = Formats(WORDS, _FormatSql(), cast_to, JSON_TEXT).rules()
