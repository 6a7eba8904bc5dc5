"""FORMAT(): each specifier of a literal format becomes the text of its argument."""

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.engines.duckdb.rules.json_text import json_text
from cordwood.engines.duckdb.rules.reading import read_as
from cordwood.engines.duckdb.rules.words import fail, once
from cordwood.model.datatype import EXACT, MOMENTS, Datatype, Kind
from cordwood.sql.bigquery.formats import WIDEST, Specifier, pieces
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment, literal_text
from cordwood.sql.lowering import Meaning, is_safe, unsupported
from cordwood.sql.typing import datatype_of, kind_of, typed_as
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
    told = _literal(value, datatype_of(value), depth=0) if letter == "T" else _plain(node, value)
    return fragment("coalesce({0}, 'NULL')", told)


def _plain(node: exp.Expr, value: exp.Expr) -> exp.Expr:
    """%t: as CAST writes it; arrays and structs in brackets."""
    datatype = datatype_of(value)
    if datatype is not None and datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(value, datatype, 0, typed=False)
    return _pointed(cast_to(node, value, STRING), datatype) if datatype != STRING else value


def _pointed(told: exp.Expr, datatype: Datatype | None) -> exp.Expr:
    """A whole FLOAT64 shows that it is none of the whole numbers."""
    if datatype is None or datatype.kind is not Kind.FLOAT64:
        return told
    return once("CASE WHEN regexp_full_match(@a, '-?[0-9]+') THEN @a || '.0' ELSE @a END", told)


_BYTES: Final = (
    "CASE WHEN @a IS NULL THEN NULL ELSE 'b\"' || coalesce(array_to_string(list_transform(regexp_extract_all(hex(@a), '..'), lambda _h: CASE"
    " WHEN _h BETWEEN '20' AND '7E' AND _h NOT IN ('22', '5C') THEN chr(CAST('0x' || _h AS INT))"
    " ELSE '\\x' || lower(_h) END), ''), '') || '\"' END"
)
_LITERALS: Final = {
    Kind.BYTES: _BYTES,
    Kind.STRING: "to_json(@a)::VARCHAR",
    Kind.JSON: "'JSON ''' || @a::VARCHAR || ''''",
}
# What has no literal of its own is cast to be one.
_FLOAT: Final = "CASE WHEN @a IN ('nan', 'inf', '-inf') THEN 'CAST(\"' || @a || '\" AS FLOAT64)' ELSE @a END"
_NAMED: Final = {
    Kind.INTERVAL: "'INTERVAL \"' || {0} || '\" YEAR TO SECOND'",
    **{kind: f"'{kind} \"' || {{0}} || '\"'" for kind in MOMENTS},
    **{kind: f"'{kind} ''' || {{0}} || ''''" for kind in EXACT},
}


def _literal(value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    """%T: as a literal of the same type."""
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


def _nested(value: exp.Expr, datatype: Datatype, depth: int, *, typed: bool) -> exp.Expr:
    name = f"_f{depth}"
    if datatype.kind is Kind.ARRAY:
        item = typed_as(fragment(name), datatype.element)
        inner = _nested_item(item, datatype.element, depth + 1, typed=typed)
        listed = fragment(f"list_transform({{0}}, lambda {name}: coalesce({{1}}, 'NULL'))", value, inner)
        return once("CASE WHEN @a IS NOT NULL THEN '[' || coalesce(array_to_string(@a, ', '), '') || ']' END", listed)
    parts: list[exp.Expr] = []
    for at, (_, field) in enumerate(datatype.fields):
        item = typed_as(fragment(f"struct_extract_at({name}, {at + 1})"), field)
        parts.append(_nested_item(item, field, depth + 1, typed=typed))
    body = " || ', ' || ".join(f"coalesce({{{at + 1}}}, 'NULL')" for at in range(len(parts)))
    opened = "'STRUCT(' || " if typed and len(parts) == 1 else "'(' || "
    template = (
        f"list_transform([{{0}}], lambda {name}: CASE WHEN {name} IS NULL THEN NULL ELSE {opened}{body} || ')' END)[1]"
    )
    return fragment(template, value, *parts)


def _nested_item(item: exp.Expr, datatype: Datatype | None, depth: int, *, typed: bool) -> exp.Expr:
    if datatype is not None and datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(item, datatype, depth, typed=typed)
    return _literal(item, datatype, depth) if typed else _pointed(cast_to(item, item, STRING), datatype)


MEANING = Meaning(nodes={exp.Format: _format})
