"""FORMAT(): each specifier of a literal format becomes the text of its argument."""

from collections.abc import Iterator, Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import cast, fail_if, once
from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.coercions import read_as
from cordwood.engines.clickhouse.rules.format_values import literal_of, readable
from cordwood.engines.clickhouse.rules.json_text import json_text
from cordwood.errors import QueryValue
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.formats import (
    FRACTION_LETTERS,
    HEX_LETTERS,
    INTEGER_LETTERS,
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
from cordwood.sql.typing import datatype_of, kind_of
from cordwood.sql.typing.datatypes import STRING


def _format(node: exp.Expr) -> exp.Expr:
    format_text = constant_text(node.this)
    if isinstance(node.this, exp.Null):
        return exp.Null()
    if format_text is None:
        unsupported(node, "FORMAT with a format that is no literal")
    parts = list(_format_parts(node, format_text))
    if not parts:
        return fragment("''")
    return fragment(f"concat({holes(len(parts))}, '')", *parts)


def _format_parts(node: exp.Expr, format_text: str) -> Iterator[exp.Expr]:
    for part in parse_format(node, format_text):
        if part is None:
            yield _invalid_format(node, "The format of FORMAT is not valid: a percent sign is written %%.")
        elif isinstance(part, str):
            yield text_part(part)
        else:
            yield _format_field(node, part)


_NULL_TEXT: Final = "CAST(NULL, 'Nullable(String)')"


def _invalid_format(node: exp.Expr, message: str) -> exp.Expr:
    if is_safe(node):
        return fragment(_NULL_TEXT)
    raise QueryValue(message, span=span_in_text(node))


def _format_field(node: exp.Expr, field: Field) -> exp.Expr:
    letter = field.spec.letter
    if field.spec.is_too_wide:
        return fragment(_NULL_TEXT) if is_safe(node) else unsupported(node, "So wide a field in FORMAT")
    if letter in INTEGER_LETTERS:
        return _integer(node, field)
    if letter in FRACTION_LETTERS:
        return _exact(node, field, field.exact) if field.exact else _fraction(node, field)
    if letter in TEXT_LETTERS:
        return _pad(field, _as_text(node, letter, field.value))
    return _invalid_format(node, f"FORMAT has no specifier %{letter}.")


def _printf(node: exp.Expr, field: Field, letter: str, value: exp.Expr) -> exp.Expr:
    """Format by ClickHouse's printf, which has no `*`: padding to such a width is applied afterwards."""
    if field.precision is not None:
        unsupported(node, "A precision in FORMAT that is no literal")
    if field.width is not None and field.spec.is_zero_padded:
        unsupported(node, _ZEROS)
    format_text = text_part(field.spec.text(letter).replace("*", ""))
    return _pad_to_argument(field, fragment("printf({1}, {0})", value, format_text))


_ZEROS: Final = "A field in FORMAT that zeros fill, whose width is no literal,"


def _integer(node: exp.Expr, field: Field) -> exp.Expr:
    spec, value = field.spec, fragment("toInt64({0})", read_as(field.value, Kind.INT64))
    letter = spec.letter if spec.letter in HEX_LETTERS else "d"
    if letter != "d":
        value = once(fail_if(node, "@a < 0", f"%{letter} of a negative number", "@a"), value)
    if spec.precision is None and not spec.is_grouped:
        return _printf(node, field, letter, value)
    return _compose_number(node, field, _digits(spec, letter), value, *([field.precision] if field.precision else []))


def _digits(spec: Specifier, letter: str) -> str:
    """Return the digits of the integer @a, as many as the precision demands, grouped if the specifier says so."""
    digits = "toString(abs(@a))" if letter == "d" else f"printf('%{letter}', @a)"
    if spec.is_alternate and letter == "o":
        digits = "printf('%#o', @a)"
    if spec.precision == "*":
        padded = f"leftPad({digits}, toUInt64(greatest(@b, toInt64(length({digits})))), '0')"
        digits = f"multiIf(isNull(@b), NULL, @a = 0 AND @b = 0, '', {padded})"
    elif spec.precision is not None:
        padded = f"leftPad({digits}, greatest({int(spec.precision)}, length({digits})), '0')"
        digits = f"if(@a = 0, '', {padded})" if spec.precision == "0" else padded
    if not spec.is_grouped:
        return digits
    size, mark = _GROUPS[letter]
    grouped = f"reverse(replaceRegexpAll(reverse({digits}), '({'.' * size})', '\\\\1{mark}'))"
    return f"replaceRegexpOne({grouped}, '^{mark}', '')"


_GROUPS: Final = {"d": (3, ","), "o": (4, ","), "x": (4, ":"), "X": (4, ":")}


def _compose_number(
    node: exp.Expr, field: Field, digits: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()
) -> exp.Expr:
    """Return sign or prefix, zeros and digits of the number @a, padded with blanks to the width."""
    spec = field.spec
    sign = f"if(@a < 0, '-', '{spec.plus}')"
    if spec.letter in HEX_LETTERS:
        sign = f"if(@a = 0, '', '0{spec.letter}')" if spec.is_alternate and spec.letter != "o" else "''"
    if not spec.is_zero_padded:
        return _pad(field, once(f"concat({sign}, {digits})", *parts, texts=texts))
    if spec.width == "*":
        unsupported(node, _ZEROS)
    zeros = f"repeat('0', greatest({int(spec.width or 0)} - toInt64(length({sign})) - toInt64(length({digits})), 0))"
    return once(f"concat({sign}, {zeros}, {digits})", *parts, texts=texts)


def _fraction(node: exp.Expr, field: Field) -> exp.Expr:
    spec, value = field.spec, fragment("toFloat64({0})", read_as(field.value, Kind.FLOAT64))
    if spec.is_grouped:
        if field.precision is not None:
            unsupported(node, "A precision in FORMAT that is no literal")
        return _compose_number(
            node, field, _group_digits("printf({0}, abs(@a))"), value, texts=[text_part(spec.number_only)]
        )
    padded = _printf(node, field, spec.letter, value)
    if not spec.is_zero_padded:
        return padded
    without_zeros = fragment("printf({1}, {0})", copied(value), text_part(spec.without_zero_padding.text(spec.letter)))
    return fragment("if(isFinite({0}), {1}, {2})", copied(value), padded, without_zeros)


def _exact(node: exp.Expr, field: Field, kind: Kind) -> exp.Expr:
    """Format a NUMERIC with all its digits, rounded half away from zero."""
    spec = field.spec
    if field.precision is not None:
        unsupported(node, f"A precision of {kind} in FORMAT that is no literal")
    decimals = int(spec.precision or 6)
    kept_decimals = min(decimals, _DECIMALS[kind])
    digits = f"replaceOne(toDecimalString(@a, {kept_decimals}), '-', '')"
    if decimals > kept_decimals:
        digits = f"concat({digits}, repeat('0', {decimals - kept_decimals}))"
    if not decimals and not spec.is_alternate:
        digits = f"replaceOne({digits}, '.', '')"
    value = cast(field.value, kind)
    return _compose_number(node, field, _group_digits(digits) if spec.is_grouped else digits, value)


# The number of digits that ClickHouse keeps after the point.
_DECIMALS: Final = {Kind.NUMERIC: 9, Kind.BIGNUMERIC: 38}


def _group_digits(digits: str) -> str:
    """Insert commas into the digits before the point or the exponent."""
    leading_digits = f"reverse(replaceRegexpAll(reverse(extract({digits}, '^[0-9]+')), '(...)', '\\\\1,'))"
    return f"concat(replaceRegexpOne({leading_digits}, '^,', ''), replaceRegexpOne({digits}, '^[0-9]+', ''))"


def _pad(field: Field, value: exp.Expr) -> exp.Expr:
    """Pad a text to the width in characters; ClickHouse's printf counts bytes."""
    spec = field.spec
    if spec.letter in TEXT_LETTERS and field.precision is not None:
        value = once("if(@b < 0, @a, substringUTF8(@a, 1, @b))", value, field.precision)
    elif spec.letter in TEXT_LETTERS and spec.precision is not None:
        value = fragment(f"substringUTF8({{0}}, 1, {int(spec.precision)})", value)
    if spec.width is None or field.width is not None:
        return _pad_to_argument(field, value)
    return once(f"{'right' if spec.is_left else 'left'}PadUTF8(@a, greatest({int(spec.width)}, lengthUTF8(@a)))", value)


def _pad_to_argument(field: Field, value: exp.Expr) -> exp.Expr:
    if field.width is None:
        return value
    is_left = "true" if field.spec.is_left else "@b < 0"
    width = "greatest(toUInt64(abs(@b)), lengthUTF8(@a))"
    return once(
        f"multiIf(isNull(@b), NULL, {is_left}, rightPadUTF8(@a, {width}), leftPadUTF8(@a, {width}))", value, field.width
    )


def _as_text(node: exp.Expr, letter: str, value: exp.Expr) -> exp.Expr:
    if letter == "s":
        return cast_to(node, value, STRING) if kind_of(value) is not Kind.STRING else value
    if letter == "P":
        unsupported(node, "%P")
    if letter == "p":
        json_value = json_text(value, datatype_of(value))
        return fragment("if(isNull({0}), NULL, {1})", copied(value), json_value)
    text = literal_of(value) if letter == "T" else readable(value)
    return fragment("ifNull({0}, 'NULL')", text)


RULES = RuleSet(nodes={exp.Format: _format}, before_children={exp.Format: unwrap_cast_null})
