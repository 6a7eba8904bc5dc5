"""FORMAT() in ClickHouse's words."""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import once
from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.json_text import JSON_TEXT
from cordwood.engines.clickhouse.rules.words import WORDS
from cordwood.model.datatype import Kind
from cordwood.sql.fragment import fragment, holes, text_part
from cordwood.sql.lowering import unsupported
from cordwood.sql.rules.formats import FILLED_BY_ZEROS, TEXT_LETTERS, Field, Formats, Specifier

# Pairs of hexadecimal digits. Digits after an unprintable byte would extend its escape, so they are escaped with it.
_PAIRS: Final = "extractAll(hex(@a), '(?:0[0-8BCEF]|1.|7F|[89A-F].)(?:3[0-9]|4[1-6]|6[1-6])*|..')"
_CONTROL: Final = r"[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]"


def _pad_to_argument(field: Field, value: exp.Expr) -> exp.Expr:
    if field.width is None:
        return value
    is_left = "true" if field.spec.is_left else "@b < 0"
    width = "greatest(toUInt64(abs(@b)), lengthUTF8(@a))"
    return once(
        f"multiIf(isNull(@b), NULL, {is_left}, rightPadUTF8(@a, {width}), leftPadUTF8(@a, {width}))", value, field.width
    )


def _escape_bytes(*quotes: str) -> str:
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


# The number of digits after the point of exact numbers.
_DECIMALS: Final[Mapping[Kind, int]] = {Kind.NUMERIC: 9, Kind.BIGNUMERIC: 38}
_QUOTES: Final[Sequence[str]] = ('"', "''", "`")
_LITERALS: Final[Mapping[Kind, str]] = {
    Kind.BYTES: _either(
        "@a", f"concat('b''', {_escape_bytes()}, '''')", f"""concat('b"', {_escape_bytes(_QUOTES[0])}, '"')"""
    ),
    Kind.STRING: _quote("@a"),
    Kind.JSON: f"concat('JSON ', {_quote('@a')})",
}


class _FormatSql:
    decimals, quotes, literals = _DECIMALS, _QUOTES, _LITERALS

    def joined(self, parts: Sequence[exp.Expr]) -> exp.Expr:
        return fragment(f"concat({holes(len(parts))}, '')", *parts)

    def printf(self, node: exp.Expr, field: Field, letter: str, value: exp.Expr) -> exp.Expr:
        """Format by ClickHouse's printf, which has no `*`: padding to such a width is applied afterwards."""
        if field.precision is not None:
            unsupported(node, "A precision in FORMAT that is no literal")
        if field.width is not None and field.spec.is_zero_padded:
            unsupported(node, FILLED_BY_ZEROS)
        format_text = text_part(field.spec.text(letter).replace("*", ""))
        return _pad_to_argument(field, fragment("printf({1}, {0})", value, format_text))

    def pad(self, node: exp.Expr, field: Field, value: exp.Expr) -> exp.Expr:
        """Pad a text to the width in characters; ClickHouse's printf counts bytes."""
        spec = field.spec
        if spec.letter in TEXT_LETTERS and field.precision is not None:
            value = once("if(@b < 0, @a, substringUTF8(@a, 1, @b))", value, field.precision)
        elif spec.letter in TEXT_LETTERS and spec.precision is not None:
            value = fragment(f"substringUTF8({{0}}, 1, {int(spec.precision)})", value)
        if spec.width is None or field.width is not None:
            return _pad_to_argument(field, value)
        side = "right" if spec.is_left else "left"
        return once(f"{side}PadUTF8(@a, greatest({int(spec.width)}, lengthUTF8(@a)))", value)

    def precision(self, node: exp.Expr, count: exp.Expr) -> exp.Expr:
        return count

    def digits(self, spec: Specifier, letter: str) -> str:
        digits = "toString(abs(@a))" if letter == "d" else f"printf('%{letter}', @a)"
        if spec.is_alternate and letter == "o":
            digits = "printf('%#o', @a)"
        if spec.precision == "*":
            padded = f"leftPad({digits}, toUInt64(greatest(@b, toInt64(length({digits})))), '0')"
            return f"multiIf(isNull(@b), NULL, @a = 0 AND @b = 0, '', {padded})"
        if spec.precision is not None:
            padded = f"leftPad({digits}, greatest({int(spec.precision)}, length({digits})), '0')"
            return f"if(@a = 0, '', {padded})" if spec.precision == "0" else padded
        return digits

    def zeros(self, width: int, sign: str, digits: str) -> str:
        return f"repeat('0', greatest({width} - toInt64(length({sign})) - toInt64(length({digits})), 0))"

    def lacks_flags(self, spec: Specifier) -> bool:
        return spec.is_grouped

    def fraction_digits(self, spec: Specifier) -> str:
        return "printf({0}, abs(@a))"

    def exact_digits(self, decimals: int, *, with_point: bool) -> str:
        digits = f"replaceOne(toDecimalString(@a, {decimals}), '-', '')"
        return digits if decimals or with_point else f"replaceOne({digits}, '.', '')"

    def without_leading(self, text: str, mark: str) -> str:
        return f"replaceRegexpOne({text}, '^{mark}', '')"

    def indented(self, node: exp.Expr, json_value: exp.Expr) -> exp.Expr:
        return unsupported(node, "%P")

    def escape_bytes(self, *quotes: str) -> str:
        return _escape_bytes(*quotes)

    def once_if_present(self, template: str, value: exp.Expr) -> exp.Expr:
        """Apply the template below a test for NULL, because ClickHouse has no arrays that may be NULL."""
        return once(f"if(isNull(@a), NULL, {template.replace('@a', 'assumeNotNull(@a)')})", value)


RULES = Formats(WORDS, _FormatSql(), cast_to, JSON_TEXT).rules()
