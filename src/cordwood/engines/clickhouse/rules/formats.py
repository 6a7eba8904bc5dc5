"""FORMAT(): each specifier of a literal format becomes the text of its argument."""

from collections.abc import Iterator, Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.json_text import json_text
from cordwood.engines.clickhouse.rules.reading import read_as
from cordwood.engines.clickhouse.rules.spelling import literal_of, readable
from cordwood.engines.clickhouse.rules.words import cast, guarded, once
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
    shape = constant_text(node.this)
    if isinstance(node.this, exp.Null):
        return exp.Null()
    if shape is None:
        unsupported(node, "FORMAT with a format that is no literal")
    parts = list(_pieces(node, shape))
    if not parts:
        return fragment("''")
    return fragment(f"concat({holes(len(parts))}, '')", *parts)


def _pieces(node: exp.Expr, shape: str) -> Iterator[exp.Expr]:
    for piece in parse_format(node, shape):
        if piece is None:
            yield _wrong(node, "The format of FORMAT is not valid: a percent sign is written %%.")
        elif isinstance(piece, str):
            yield text_part(piece)
        else:
            yield _one(node, piece)


_NOTHING: Final = "CAST(NULL, 'Nullable(String)')"


def _wrong(node: exp.Expr, message: str) -> exp.Expr:
    if is_safe(node):
        return fragment(_NOTHING)
    raise QueryValue(message, span=span_in_text(node))


def _one(node: exp.Expr, field: Field) -> exp.Expr:
    letter = field.spec.letter
    if field.spec.is_too_wide:
        return fragment(_NOTHING) if is_safe(node) else unsupported(node, "So wide a field in FORMAT")
    if letter in INTEGER_LETTERS:
        return _whole(node, field)
    if letter in FRACTION_LETTERS:
        return _exact(node, field, field.exact) if field.exact else _fraction(node, field)
    if letter in TEXT_LETTERS:
        return _padded(field, _as_text(node, letter, field.value))
    return _wrong(node, f"FORMAT has no specifier %{letter}.")


def _printf(node: exp.Expr, field: Field, letter: str, value: exp.Expr) -> exp.Expr:
    """Format by ClickHouse's printf, which has no `*`: padding to such a width is applied afterwards."""
    if field.precision is not None:
        unsupported(node, "A precision in FORMAT that is no literal")
    if field.width is not None and field.spec.is_zero_padded:
        unsupported(node, _ZEROS)
    shape = text_part(field.spec.text(letter).replace("*", ""))
    return _filled_by_star(field, fragment("printf({1}, {0})", value, shape))


_ZEROS: Final = "A field in FORMAT that zeros fill, whose width is no literal,"


def _whole(node: exp.Expr, field: Field) -> exp.Expr:
    spec, value = field.spec, fragment("toInt64({0})", read_as(field.value, Kind.INT64))
    letter = spec.letter if spec.letter in HEX_LETTERS else "d"
    if letter != "d":
        value = once(guarded(node, "@a < 0", f"%{letter} of a negative number", "@a"), value)
    if spec.precision is None and not spec.is_grouped:
        return _printf(node, field, letter, value)
    return _by_hand(node, field, _digits(spec, letter), value, *([field.precision] if field.precision else []))


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


def _by_hand(node: exp.Expr, field: Field, digits: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Return sign or prefix, zeros and digits of the number @a, padded with blanks to the width."""
    spec = field.spec
    sign = f"if(@a < 0, '-', '{spec.plus}')"
    if spec.letter in HEX_LETTERS:
        sign = f"if(@a = 0, '', '0{spec.letter}')" if spec.is_alternate and spec.letter != "o" else "''"
    if not spec.is_zero_padded:
        return _padded(field, once(f"concat({sign}, {digits})", *parts, texts=texts))
    if spec.width == "*":
        unsupported(node, _ZEROS)
    zeros = f"repeat('0', greatest({int(spec.width or 0)} - toInt64(length({sign})) - toInt64(length({digits})), 0))"
    return once(f"concat({sign}, {zeros}, {digits})", *parts, texts=texts)


def _fraction(node: exp.Expr, field: Field) -> exp.Expr:
    spec, value = field.spec, fragment("toFloat64({0})", read_as(field.value, Kind.FLOAT64))
    if spec.is_grouped:
        if field.precision is not None:
            unsupported(node, "A precision in FORMAT that is no literal")
        return _by_hand(node, field, _grouped("printf({0}, abs(@a))"), value, texts=[text_part(spec.number_only)])
    plain = _printf(node, field, spec.letter, value)
    if not spec.is_zero_padded:
        return plain
    unfilled = fragment("printf({1}, {0})", copied(value), text_part(spec.without_zero_padding.text(spec.letter)))
    return fragment("if(isFinite({0}), {1}, {2})", copied(value), plain, unfilled)


def _exact(node: exp.Expr, field: Field, kind: Kind) -> exp.Expr:
    """Format a NUMERIC with all its digits, rounded half away from zero."""
    spec = field.spec
    if field.precision is not None:
        unsupported(node, f"A precision of {kind} in FORMAT that is no literal")
    places = int(spec.precision or 6)
    kept = min(places, _PLACES[kind])
    digits = f"replaceOne(toDecimalString(@a, {kept}), '-', '')"
    if places > kept:
        digits = f"concat({digits}, repeat('0', {places - kept}))"
    if not places and not spec.is_alternate:
        digits = f"replaceOne({digits}, '.', '')"
    value = cast(field.value, kind)
    return _by_hand(node, field, _grouped(digits) if spec.is_grouped else digits, value)


# The number of digits that ClickHouse keeps after the point.
_PLACES: Final = {Kind.NUMERIC: 9, Kind.BIGNUMERIC: 38}


def _grouped(digits: str) -> str:
    """Insert commas into the digits before the point or the exponent."""
    first = f"reverse(replaceRegexpAll(reverse(extract({digits}, '^[0-9]+')), '(...)', '\\\\1,'))"
    return f"concat(replaceRegexpOne({first}, '^,', ''), replaceRegexpOne({digits}, '^[0-9]+', ''))"


def _padded(field: Field, value: exp.Expr) -> exp.Expr:
    """Pad a text to the width in characters; ClickHouse's printf counts bytes."""
    spec = field.spec
    if spec.letter in TEXT_LETTERS and field.precision is not None:
        value = once("if(@b < 0, @a, substringUTF8(@a, 1, @b))", value, field.precision)
    elif spec.letter in TEXT_LETTERS and spec.precision is not None:
        value = fragment(f"substringUTF8({{0}}, 1, {int(spec.precision)})", value)
    if spec.width is None or field.width is not None:
        return _filled_by_star(field, value)
    return once(f"{'right' if spec.is_left else 'left'}PadUTF8(@a, greatest({int(spec.width)}, lengthUTF8(@a)))", value)


def _filled_by_star(field: Field, value: exp.Expr) -> exp.Expr:
    if field.width is None:
        return value
    left = "true" if field.spec.is_left else "@b < 0"
    wide = "greatest(toUInt64(abs(@b)), lengthUTF8(@a))"
    return once(
        f"multiIf(isNull(@b), NULL, {left}, rightPadUTF8(@a, {wide}), leftPadUTF8(@a, {wide}))", value, field.width
    )


def _as_text(node: exp.Expr, letter: str, value: exp.Expr) -> exp.Expr:
    if letter == "s":
        return cast_to(node, value, STRING) if kind_of(value) is not Kind.STRING else value
    if letter == "P":
        unsupported(node, "%P")
    if letter == "p":
        written = json_text(value, datatype_of(value))
        return fragment("if(isNull({0}), NULL, {1})", copied(value), written)
    told = literal_of(value) if letter == "T" else readable(value)
    return fragment("ifNull({0}, 'NULL')", told)


MEANING = RuleSet(nodes={exp.Format: _format}, before_children={exp.Format: unwrap_cast_null})
