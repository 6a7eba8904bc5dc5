"""FORMAT(): each specifier of a literal format becomes the text of its argument.

%t prints a value as CAST does, and %T as a literal of BigQuery.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import cast, fail_if, once
from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.coercions import read_as
from cordwood.engines.clickhouse.rules.json_text import json_text
from cordwood.errors import QueryValue
from cordwood.model.datatype import EXACT, MOMENTS, Datatype, Kind
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
    text = _literal_text(value) if letter == "T" else _readable_text(value)
    return fragment("ifNull({0}, 'NULL')", text)


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
        return _once_if_present(_escape_bytes(*_QUOTES), value)
    return _with_fraction(cast_to(value, value, STRING), datatype) if datatype != STRING else value


def _literal(value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    if datatype is None or isinstance(value, exp.Null):
        return fragment("toString({0})", value)
    if datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(value, datatype, depth, typed=True)
    if datatype.kind in _LITERALS:
        return _once_if_present(_LITERALS[datatype.kind], value)
    text = _with_fraction(cast_to(value, value, STRING), datatype)
    if datatype.kind is Kind.FLOAT64:
        return once(_FLOAT, text)
    return fragment(_TYPED_LITERALS[datatype.kind], text) if datatype.kind in _TYPED_LITERALS else text


def _once_if_present(template: str, value: exp.Expr) -> exp.Expr:
    """Apply a template to a value that is not NULL, because ClickHouse has no arrays that may be NULL."""
    return once(f"if(isNull(@a), NULL, {template.replace('@a', 'assumeNotNull(@a)')})", value)


def _with_fraction(text: exp.Expr, datatype: Datatype | None) -> exp.Expr:
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


RULES = RuleSet(
    nodes={
        exp.Format: _format,
    },
    before_children={
        exp.Format: unwrap_cast_null,
    },
)
