"""FORMAT(): each specifier of a literal format becomes the text of its argument."""

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.engines.duckdb.rules.json_text import json_text
from cordwood.engines.duckdb.rules.reading import read_as
from cordwood.engines.duckdb.rules.spelling import literal_of, readable
from cordwood.engines.duckdb.rules.words import fail, once
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.formats import WIDEST, Specifier, pieces
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment, literal_text
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
        return exp.Literal.string("")
    return fragment(" || ".join(f"{{{at}}}" for at in range(len(parts))), *parts)


def _pieces(node: exp.Expr, shape: str, arguments: Iterator[exp.Expr]) -> Iterator[exp.Expr]:
    for piece in pieces(shape):
        if piece is None:
            yield _wrong(node, "The format string is not valid")
        elif isinstance(piece, str):
            yield exp.Literal.string(piece)
        else:
            yield _one(node, piece, arguments)


def _wrong(node: exp.Expr, what: str) -> exp.Expr:
    if is_safe(node):
        return fragment("NULL::VARCHAR")
    return unsupported(node, what)


def _count(node: exp.Expr, star: exp.Expr) -> exp.Expr:
    wide = fail(node, "So wide a field in FORMAT is too large")
    return once(f"(CASE WHEN @a > {WIDEST} THEN {wide} ELSE @a END)::INT", star)


def _one(node: exp.Expr, spec: Specifier, arguments: Iterator[exp.Expr]) -> exp.Expr:
    stars = [_next(node, arguments) for _ in range(spec.stars)]
    value = _next(node, arguments)
    if spec.is_too_wide:
        return _wrong(node, "So wide a field in FORMAT")
    counts = [_count(node, star) for star in stars]
    if spec.letter in "di":
        return _whole(node, spec, value, counts)
    if spec.letter in "uoxX":
        return _unsigned(spec, value, counts)
    if spec.letter in "fFeEgG":
        return _fraction(spec, value, counts)
    if spec.letter in "stTpP":
        return _padded(spec, _as_text(node, spec.letter, value), counts)
    return _wrong(node, f"The specifier %{spec.letter}")


def _next(node: exp.Expr, arguments: Iterator[exp.Expr]) -> exp.Expr:
    argument = next(arguments, None)
    return argument if argument is not None else unsupported(node, "FORMAT with too few arguments")


def _printf(spec: str, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    holes = "".join(f", {{{at}}}" for at in range(len(counts) + 1))
    return fragment(f"printf({literal_text(spec)}{holes})", *counts, value)


def _whole(node: exp.Expr, spec: Specifier, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    if kind_of(value) in (Kind.NUMERIC, Kind.FLOAT64):
        unsupported(node, f"%{spec.letter} of {kind_of(value)}")
    value = fragment("{0}::BIGINT", read_as(value, Kind.INT64))
    if "'" in spec.flags:
        return _grouped(spec, value, "abs(@a)::VARCHAR")
    if spec.precision == "*" or (spec.precision or "0").startswith("-"):
        return _with_precision_star(spec, value, counts)
    if spec.precision is not None:
        digits = f"CASE WHEN @a < 0 THEN '-' ELSE '' END || lpad(abs(@a)::VARCHAR, greatest({spec.precision}, length(abs(@a)::VARCHAR))::INT, '0')"
        return _padded(spec, once(digits, value), counts)
    return _printf(spec.text("d"), value, counts)


def _with_precision_star(spec: Specifier, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    """A precision below zero is none."""
    digits = "CASE WHEN @a < 0 THEN '-' ELSE '' END || lpad(abs(@a)::VARCHAR, greatest(@b, length(abs(@a)::VARCHAR))::INT, '0')"
    return _padded(spec, once(digits, value, counts[-1]), counts[:-1])


def _unsigned(spec: Specifier, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    value = fragment("{0}::BIGINT", read_as(value, Kind.INT64))
    shape = literal_text(spec.text("d" if spec.letter == "u" else spec.letter))
    bare = literal_text(spec.bare)
    if counts or spec.width is None:
        return once(f"CASE WHEN @a < 0 THEN '-' || printf({bare}, -@a) ELSE printf({bare}, @a) END", value)
    return once(f"CASE WHEN @a < 0 THEN '-' || printf({bare}, -@a) ELSE printf({shape}, @a) END", value)


def _fraction(spec: Specifier, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    value = fragment("{0}::DOUBLE", read_as(value, Kind.FLOAT64))
    if "'" in spec.flags:
        return _grouped(spec, value, f"printf('{spec.fraction}', abs(@a))")
    plain = _printf(spec.text(spec.letter), value, counts)
    if "0" not in spec.flags:
        return plain
    return fragment(
        "CASE WHEN isfinite({0}) THEN {1} ELSE {2} END",
        value,
        plain,
        _printf(spec.unfilled, value.copy(), [count.copy() for count in counts]),
    )


# Commas from the right into the digits before the point or the exponent.
_THREES: Final = (
    "ltrim(reverse(regexp_replace(reverse(regexp_extract(@t, '^[0-9]+')), '(...)', '\\1,', 'g')), ',')"
    " || regexp_replace(@t, '^[0-9]+', '')"
)


def _grouped(spec: Specifier, value: exp.Expr, body: str) -> exp.Expr:
    sign = f"CASE WHEN @a < 0 THEN '-' ELSE '{spec.plus}' END"
    digits = "(" + _THREES.replace("@t", f"({body})") + ")"
    if spec.zeros is not None:
        filled = f"lpad({digits}, greatest({spec.zeros} - length({sign}), length({digits}))::INT, '0')"
        return once(f"{sign} || {filled}", value)
    return _padded(spec, once(f"{sign} || {digits}", value), [])


def _padded(spec: Specifier, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    return value if spec.padding is None else _printf(spec.padding, value, counts)


def _as_text(node: exp.Expr, letter: str, value: exp.Expr) -> exp.Expr:
    if letter == "s":
        return cast_to(node, value, STRING) if kind_of(value) is not Kind.STRING else value
    if letter in "pP":
        written = json_text(value, datatype_of(value))
        return written if letter == "p" else fragment("json_pretty({0}::JSON)", written)
    told = literal_of(value) if letter == "T" else readable(value)
    return fragment("coalesce({0}, 'NULL')", told)


MEANING = Meaning(nodes={exp.Format: _format})
