"""FORMAT(): each specifier of a literal format becomes the text of its argument."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.json_text import json_text
from cordwood.engines.clickhouse.rules.reading import read_as
from cordwood.engines.clickhouse.rules.words import once, quoted
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning, is_safe, unsupported
from cordwood.sql.typing import datatype_of, kind_of
from cordwood.sql.typing.datatypes import STRING

_SPECIFIER: Final = re.compile(r"%([-+ #0']*)(\d+|\*)?(?:\.(\d+|\*)?)?([a-zA-Z%])|%|([^%]+)")
_HAS_PRECISION: Final = re.compile(r"%[-+ #0']*(?:\d+|\*)?\.")
_WIDEST: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Spec:
    flags: str
    width: str | None
    precision: str | None
    letter: str

    def text(self, letter: str, *, precision: bool = True) -> str:
        """As the engine's printf has it."""
        cut = f".{self.precision}" if self.precision is not None and precision else ""
        return f"%{self.flags.replace(chr(39), '')}{self.width or ''}{cut}{letter}"


def _format(node: exp.Expr) -> exp.Expr:
    shape = constant_text(node.this)
    if isinstance(node.this, exp.Null):
        return exp.Null()
    if shape is None:
        unsupported(node, "FORMAT with a format that is no literal")
    pieces = list(_pieces(node, shape, iter(node.expressions)))
    if not pieces:
        return fragment("''")
    return fragment(f"concat({', '.join(f'{{{at}}}' for at in range(len(pieces)))}, '')", *pieces)


def _pieces(node: exp.Expr, shape: str, arguments: Iterator[exp.Expr]) -> Iterator[exp.Expr]:
    for match in _SPECIFIER.finditer(shape):
        if match[5] is not None:
            yield fragment(quoted(match[5]))
        elif match[4] == "%":
            yield fragment("'%'")
        elif match[4] is None:
            yield _wrong(node, "The format string is not valid")
        else:
            precision = match[3] if match[3] is not None else ("0" if _HAS_PRECISION.match(match[0]) else None)
            yield _one(node, _Spec(match[1], match[2], precision, match[4]), arguments)


def _wrong(node: exp.Expr, what: str) -> exp.Expr:
    if is_safe(node):
        return fragment("CAST(NULL, 'Nullable(String)')")
    return unsupported(node, what)


def _one(node: exp.Expr, spec: _Spec, arguments: Iterator[exp.Expr]) -> exp.Expr:
    wanted = [spec.width, spec.precision].count("*") + 1
    *counts, value = (
        next(arguments, None) or unsupported(node, "FORMAT with too few arguments") for _ in range(wanted)
    )
    if any(part and part.isdigit() and int(part) > _WIDEST for part in (spec.width, spec.precision)):
        return _wrong(node, "So wide a field in FORMAT")
    if spec.letter in "di":
        return _whole(node, spec, value, counts)
    return _other(node, spec, value, counts)


def _other(node: exp.Expr, spec: _Spec, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
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


def _whole(node: exp.Expr, spec: _Spec, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
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


def _with_precision_star(spec: _Spec, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    """A precision below zero is none."""
    digits = "concat(if(@a < 0, '-', ''), leftPad(toString(abs(@a)), toUInt64(greatest(@b, toInt64(length(toString(abs(@a)))))), '0'))"
    return _padded(spec, once(digits, value, counts[-1]), counts[:-1])


def _unsigned(spec: _Spec, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    value = fragment("toInt64({0})", read_as(value, Kind.INT64))
    shape = quoted(spec.text("d" if spec.letter == "u" else spec.letter))
    bare = quoted(_Spec(spec.flags.replace("-", "").replace("0", ""), None, None, spec.letter).text(spec.letter))
    if counts or spec.width is None:
        return once(f"if(@a < 0, concat('-', printf({bare}, -@a)), printf({bare}, @a))", value)
    return once(f"if(@a < 0, concat('-', printf({bare}, -@a)), printf({shape}, @a))", value)


def _fraction(spec: _Spec, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    value = fragment("toFloat64({0})", read_as(value, Kind.FLOAT64))
    if "'" in spec.flags:
        cut = f".{spec.precision}" if spec.precision is not None else ""
        return _grouped(spec, value, f"printf('%{cut}{spec.letter}', abs(@a))")
    flat = _Spec(spec.flags.replace("0", ""), spec.width, spec.precision, spec.letter)
    plain = _printf(spec.text(spec.letter), value, counts)
    if "0" not in spec.flags:
        return plain
    return fragment(
        "if(isFinite({0}), {1}, {2})",
        value,
        plain,
        _printf(flat.text(spec.letter), value.copy(), [count.copy() for count in counts]),
    )


# Commas from the right into the digits before the point or the exponent.
_THREES: Final = (
    "concat(replaceRegexpOne(reverse(replaceRegexpAll(reverse(extract(@t, '^[0-9]+')), '(...)', '\\\\1,')), '^,', ''),"
    " replaceRegexpOne(@t, '^[0-9]+', ''))"
)


def _grouped(spec: _Spec, value: exp.Expr, body: str) -> exp.Expr:
    positive = "'+'" if "+" in spec.flags else "' '" if " " in spec.flags else "''"
    sign = f"if(@a < 0, '-', {positive})"
    digits = "(" + _THREES.replace("@t", f"({body})") + ")"
    width = int(spec.width or 0) if (spec.width or "0").isdigit() else 0
    if "0" in spec.flags and "-" not in spec.flags:
        filled = (
            f"leftPad({digits}, toUInt64(greatest({width} - toInt64(length({sign})), toInt64(length({digits})))), '0')"
        )
        return once(f"concat({sign}, {filled})", value)
    return _padded(spec, once(f"concat({sign}, {digits})", value), [])


def _padded(spec: _Spec, value: exp.Expr, counts: list[exp.Expr]) -> exp.Expr:
    if spec.width is None and (spec.precision is None or spec.letter not in "stTpP"):
        return value
    flags = "-" if "-" in spec.flags else ""
    cut = f".{spec.precision}" if spec.precision is not None and spec.letter in "stTpP" else ""
    return _printf(f"%{flags}{spec.width or ''}{cut}s", value, counts)


def _as_text(node: exp.Expr, letter: str, value: exp.Expr) -> exp.Expr:
    if letter == "s":
        return cast_to(node, value, STRING) if kind_of(value) is not Kind.STRING else value
    if letter in "pP":
        written = json_text(value, datatype_of(value))
        return written if letter == "p" else unsupported(node, "%P")
    told = _literal(value, datatype_of(value), depth=0) if letter == "T" else _plain(node, value)
    return fragment("ifNull({0}, 'NULL')", told)


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
    return once("if(match(@a, '^-?[0-9]+$'), concat(@a, '.0'), @a)", told)


_BYTES: Final = (
    "concat('b\"', arrayStringConcat(arrayMap(_h -> if(match(_h, '^[ !#-[^-~\\\\]]$'), _h, concat('\\\\x', lower(hex(_h)))),"
    " arrayMap(_i -> substring(assumeNotNull({0}), _i, 1), range(1, length(assumeNotNull({0})) + 1)))), '\"')"
)
_NAMED: Final = {
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.DATETIME: "DATETIME",
    Kind.DATE: "DATE",
    Kind.TIME: "TIME",
    Kind.NUMERIC: "NUMERIC",
    Kind.BIGNUMERIC: "BIGNUMERIC",
}


_JSON: Final = "concat('JSON ''', {0}, '''')"
_LITERALS: Final = {
    Kind.BYTES: _BYTES,
    Kind.STRING: "toJSONString({0})",
    Kind.JSON: _JSON,
}


def _literal(value: exp.Expr, datatype: Datatype | None, depth: int) -> exp.Expr:
    """%T: as a literal of the same type."""
    if datatype is None or isinstance(value, exp.Null):
        return fragment("toString({0})", value)
    kind = datatype.kind
    if kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(value, datatype, depth, typed=True)
    if kind in _LITERALS:
        return fragment(_LITERALS[kind], value)
    return _named_literal(_pointed(cast_to(value, value, STRING), datatype), kind)


def _named_literal(told: exp.Expr, kind: Kind) -> exp.Expr:
    if kind in _NAMED:
        mark = "'" if kind in (Kind.NUMERIC, Kind.BIGNUMERIC) else '"'
        return fragment(f"concat({quoted(f'{_NAMED[kind]} {mark}')}, {{0}}, {quoted(mark)})", told)
    return told


def _nested(value: exp.Expr, datatype: Datatype, depth: int, *, typed: bool) -> exp.Expr:
    name = f"_f{depth}"
    if datatype.kind is Kind.ARRAY:
        item = _item(fragment(name), datatype.element)
        inner = _nested_item(item, datatype.element, depth + 1, typed=typed)
        listed = f"arrayStringConcat(arrayMap({name} -> ifNull({{1}}, 'NULL'), {{0}}), ', ')"
        return fragment(f"concat('[', {listed}, ']')", value, inner)
    parts: list[exp.Expr] = []
    for at, (_, field) in enumerate(datatype.fields):
        item = _item(fragment(f"tupleElement({name}, {at + 1})"), field)
        parts.append(_nested_item(item, field, depth + 1, typed=typed))
    body = ", ', ', ".join(f"ifNull({{{at + 1}}}, 'NULL')" for at in range(len(parts)))
    opened = "'STRUCT('" if typed and len(parts) == 1 else "'('"
    template = f"arrayMap({name} -> if(isNull({name}), NULL, concat({opened}, {body}, ')')), [{{0}}])[1]"
    return fragment(template, value, *parts)


def _item(node: exp.Expr, datatype: Datatype | None) -> exp.Expr:
    if datatype is not None:
        node.meta["datatype"] = datatype
    return node


def _nested_item(item: exp.Expr, datatype: Datatype | None, depth: int, *, typed: bool) -> exp.Expr:
    if datatype is not None and datatype.kind in (Kind.ARRAY, Kind.STRUCT):
        return _nested(item, datatype, depth, typed=typed)
    return _literal(item, datatype, depth) if typed else _pointed(cast_to(item, item, STRING), datatype)


MEANING = Meaning(nodes={exp.Format: _format})
