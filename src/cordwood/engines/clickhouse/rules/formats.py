"""FORMAT(): each specifier of a literal format becomes the text of its argument."""

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.json_text import json_text
from cordwood.engines.clickhouse.rules.reading import read_as
from cordwood.engines.clickhouse.rules.spelling import literal_of, readable
from cordwood.engines.clickhouse.rules.words import once, quoted
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.formats import Specifier, pieces
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning, is_safe, unsupported
from cordwood.sql.typing import datatype_of, kind_of
from cordwood.sql.typing.datatypes import STRING


def _format(node: exp.Expr) -> exp.Expr:
    shape = constant_text(node.this)
    if isinstance(node.this, exp.Null):
        return exp.Null()
    if shape is None:
        unsupported(node, "FORMAT with a format that is no literal")
    parts = list(_pieces(node, shape, iter(node.expressions)))
    if not parts:
        return fragment("''")
    return fragment(f"concat({', '.join(f'{{{at}}}' for at in range(len(parts)))}, '')", *parts)


def _pieces(node: exp.Expr, shape: str, arguments: Iterator[exp.Expr]) -> Iterator[exp.Expr]:
    for piece in pieces(shape):
        if piece is None:
            yield _wrong(node, "The format string is not valid")
        elif isinstance(piece, str):
            yield fragment(quoted(piece))
        else:
            yield _one(node, piece, arguments)


def _wrong(node: exp.Expr, what: str) -> exp.Expr:
    if is_safe(node):
        return fragment("CAST(NULL, 'Nullable(String)')")
    return unsupported(node, what)


def _one(node: exp.Expr, spec: Specifier, arguments: Iterator[exp.Expr]) -> exp.Expr:
    *counts, value = (
        next(arguments, None) or unsupported(node, "FORMAT with too few arguments") for _ in range(spec.stars + 1)
    )
    if spec.is_too_wide:
        return _wrong(node, "So wide a field in FORMAT")
    if spec.letter in "di":
        return _whole(node, spec, value, counts)
    return _other(node, spec, value, counts)


def _other(node: exp.Expr, spec: Specifier, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    if spec.letter in "uoxX":
        return _unsigned(spec, value, counts)
    if spec.letter in "fFeEgG":
        return _fraction(spec, value, counts)
    if spec.letter in "stTpP":
        return _padded(spec, _as_text(node, spec.letter, value), counts)
    return _wrong(node, f"The specifier %{spec.letter}")


def _printf(spec: str, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    """The engine's printf takes no star: what is to be padded by one is padded after."""
    if not counts:
        return fragment(f"printf({quoted(spec)}, {{0}})", value)
    written = fragment(f"printf({quoted(spec.replace('*', '', 1))}, {{0}})", value)
    if "*" in spec.replace("*", "", 1) or ".*" in spec:
        unsupported(value, "A precision in FORMAT that is no literal")
    sides = "if(@b < 0 OR {0}, rightPadUTF8(@a, toUInt64(abs(@b))), leftPadUTF8(@a, toUInt64(abs(@b))))"
    return once(sides.replace("{0}", "true" if "-" in spec else "false"), written, counts[0])


def _whole(node: exp.Expr, spec: Specifier, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    if kind_of(value) in (Kind.NUMERIC, Kind.FLOAT64):
        unsupported(node, f"%{spec.letter} of {kind_of(value)}")
    value = fragment("toInt64({0})", read_as(value, Kind.INT64))
    if "'" in spec.flags:
        return _grouped(spec, value, "toString(abs(@a))")
    if spec.precision == "*" or (spec.precision or "0").startswith("-"):
        return _with_precision_star(spec, value, counts)
    if spec.precision is not None:
        digits = f"concat(if(@a < 0, '-', ''), leftPad(toString(abs(@a)), greatest({spec.precision}, length(toString(abs(@a)))), '0'))"
        return _padded(spec, once(digits, value), counts)
    return _printf(spec.text("d"), value, counts)


def _with_precision_star(spec: Specifier, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    """A precision below zero is none."""
    digits = "concat(if(@a < 0, '-', ''), leftPad(toString(abs(@a)), toUInt64(greatest(@b, toInt64(length(toString(abs(@a)))))), '0'))"
    return _padded(spec, once(digits, value, counts[-1]), counts[:-1])


def _unsigned(spec: Specifier, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    value = fragment("toInt64({0})", read_as(value, Kind.INT64))
    shape = quoted(spec.text("d" if spec.letter == "u" else spec.letter))
    bare = quoted(spec.bare)
    if counts or spec.width is None:
        return once(f"if(@a < 0, concat('-', printf({bare}, -@a)), printf({bare}, @a))", value)
    return once(f"if(@a < 0, concat('-', printf({bare}, -@a)), printf({shape}, @a))", value)


def _fraction(spec: Specifier, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    value = fragment("toFloat64({0})", read_as(value, Kind.FLOAT64))
    if "'" in spec.flags:
        return _grouped(spec, value, f"printf('{spec.fraction}', abs(@a))")
    plain = _printf(spec.text(spec.letter), value, counts)
    if "0" not in spec.flags:
        return plain
    return fragment(
        "if(isFinite({0}), {1}, {2})",
        value,
        plain,
        _printf(spec.unfilled, value.copy(), [count.copy() for count in counts]),
    )


# Commas from the right into the digits before the point or the exponent.
_THREES: Final = (
    "concat(replaceRegexpOne(reverse(replaceRegexpAll(reverse(extract(@t, '^[0-9]+')), '(...)', '\\\\1,')), '^,', ''),"
    " replaceRegexpOne(@t, '^[0-9]+', ''))"
)


def _grouped(spec: Specifier, value: exp.Expr, body: str) -> exp.Expr:
    sign = f"if(@a < 0, '-', '{spec.plus}')"
    digits = "(" + _THREES.replace("@t", f"({body})") + ")"
    if spec.zeros is not None:
        filled = f"leftPad({digits}, toUInt64(greatest({spec.zeros} - toInt64(length({sign})), toInt64(length({digits})))), '0')"
        return once(f"concat({sign}, {filled})", value)
    return _padded(spec, once(f"concat({sign}, {digits})", value), [])


def _padded(spec: Specifier, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    return value if spec.padding is None else _printf(spec.padding, value, counts)


def _as_text(node: exp.Expr, letter: str, value: exp.Expr) -> exp.Expr:
    if letter == "s":
        return cast_to(node, value, STRING) if kind_of(value) is not Kind.STRING else value
    if letter in "pP":
        written = json_text(value, datatype_of(value))
        return written if letter == "p" else unsupported(node, "%P")
    told = literal_of(value) if letter == "T" else readable(value)
    return fragment("ifNull({0}, 'NULL')", told)


MEANING = Meaning(nodes={exp.Format: _format})
