"""Building blocks that the rules share: spelling names, failing, converting between types, evaluating a part once."""

import re
from collections.abc import Sequence
from string import ascii_lowercase
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.fragment import HOLE, fragment, has_calls, is_fragment, name_part, parts_of, quoted_constant
from cordwood.sql.lowering import RAISED, is_evaluated_anyway, is_safe
from cordwood.sql.nodes import AsText, Recast, field_name, has_operation

NAMES: Final = {
    Kind.STRING: "VARCHAR",
    Kind.BYTES: "BLOB",
    Kind.INT64: "BIGINT",
    Kind.FLOAT64: "DOUBLE",
    Kind.NUMERIC: "DECIMAL(38, 9)",
    Kind.BIGNUMERIC: "DECIMAL(38, 18)",
    Kind.BOOL: "BOOLEAN",
    Kind.TIMESTAMP: "TIMESTAMPTZ",
    Kind.DATETIME: "TIMESTAMP",
    Kind.DATE: "DATE",
    Kind.TIME: "TIME",
    Kind.INTERVAL: "INTERVAL",
    Kind.JSON: "JSON",
    Kind.VARIANT: "VARIANT",
}

# DuckDB has no empty names and none with a NUL character: these are encoded with this private-use character. So are names
# like the variables of the rules' lambdas, for which DuckDB would take the columns of a relation of that name.
_ESCAPE = "\ue0ff"
_ESCAPES = {_ESCAPE: f"{_ESCAPE}s", "\0": f"{_ESCAPE}0"}
_UNESCAPES = {f"{_ESCAPE}s": _ESCAPE, f"{_ESCAPE}0": "\0"}
_ESCAPED = re.compile(f"{_ESCAPE}(?:[s0ev]|d[0-9]+_)")
_VARIABLE: Final = re.compile("_[a-z][0-9]*", re.IGNORECASE)


def is_name(name: str) -> bool:
    """Return whether a name is written unchanged."""
    return name != "" and "\0" not in name and _ESCAPE not in name and not _VARIABLE.fullmatch(name)


def engine_name(name: str) -> str:
    """Return DuckDB's spelling of a name; different names stay different."""
    if is_name(name):
        return name
    if _VARIABLE.fullmatch(name):
        return f"{_ESCAPE}v{name}"
    return "".join(_ESCAPES.get(letter, letter) for letter in name) or f"{_ESCAPE}e"


def author_name(name: str) -> str:
    """Decode a name that `engine_name` has encoded."""
    return _ESCAPED.sub(lambda match: _UNESCAPES.get(match[0], ""), name) if _ESCAPE in name else name


def disambiguate_case(name: str, index: int) -> str:
    """Return a different spelling for a name that differs from a used one only by case: DuckDB ignores case."""
    return f"{engine_name(name)}{_ESCAPE}d{index}_"


def text(value: str) -> exp.Expr:
    return exp.Literal.string(value)


def fail(node: exp.Expr, message: str) -> str:
    """Return template text that raises a value error, or NULL inside SAFE; the message must be a constant."""
    return fail_with(node, quoted_constant(RAISED + message))


def fail_with(node: exp.Expr, message: str) -> str:
    """Return the same for a message given as template text: the hole of a text that begins with `RAISED`."""
    may_fail = not is_safe(node) and not is_evaluated_anyway(node) and not _is_window_key(node)
    return f"error({message})" if may_fail else "NULL"


def _is_window_key(node: exp.Expr) -> bool:
    """Return whether the node is in PARTITION BY or ORDER BY of a window, where DuckDB accepts no calls of error."""
    while node.parent is not None and not isinstance(node, exp.CTE):
        if isinstance(node.parent, exp.Window) and node.arg_key != "this":
            return True
        node = node.parent
    return False


def is_simple(node: exp.Expr) -> bool:
    """Return whether evaluating the node twice costs nothing."""
    if is_fragment(node):
        return (has_operation(node, Recast) or not has_calls(node)) and all(map(is_simple, parts_of(node)))
    return isinstance(node, (exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Parameter, exp.Boolean)) or (
        isinstance(node, (exp.Cast, exp.Neg, exp.Paren, exp.Dot)) and is_simple(node.this)
    )


def type_part(datatype: Datatype | None) -> exp.Expr | None:
    """Return DuckDB's name of a type as a part; None if it is not completely known."""
    if datatype is None:
        return None
    if datatype.kind is Kind.ARRAY:
        element = type_part(datatype.element)
        return fragment("{0}[]", element) if element else None
    if datatype.kind is Kind.STRUCT:
        return _struct_type(datatype)
    return fragment(NAMES[datatype.kind])


def _struct_type(datatype: Datatype) -> exp.Expr | None:
    types = [type_part(field) for _, field in datatype.fields]
    parts = [
        part
        for index, field_type in enumerate(types)
        if field_type is not None
        for part in (field_part(datatype, index), field_type)
    ]
    if not parts or len(parts) < 2 * len(types):
        return None
    return fragment(
        f"STRUCT({', '.join(f'{{{2 * index}}} {{{2 * index + 1}}}' for index in range(len(types)))})", *parts
    )


def field_part(datatype: Datatype, index: int) -> exp.Expr:
    """Return DuckDB's name of a field as a part."""
    name, earlier_names = datatype.fields[index][0], [label for label, _ in datatype.fields[:index]]
    if name and name not in earlier_names and name.lower() in map(str.lower, earlier_names):
        return name_part(disambiguate_case(name, index), is_verbatim=True)
    return name_part(field_name(datatype, index))


_FIRST_AND_LAST: Final = {
    Kind.DATE: ("DATE '0001-01-01'", "DATE '9999-12-31'"),
    Kind.DATETIME: ("TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'"),
    Kind.TIMESTAMP: ("TIMESTAMPTZ '0001-01-01 00:00:00+00'", "TIMESTAMPTZ '9999-12-31 23:59:59.999999+00'"),
}


def in_calendar(node: exp.Expr, moment: str, kind: Kind) -> str:
    """Return the template of a time that fails before the year 1 and after 9999, which DuckDB's calendar exceeds."""
    if kind not in _FIRST_AND_LAST:
        return moment
    first, last = _FIRST_AND_LAST[kind]
    failure = fail(node, f"{kind} out of range: it would be before 0001-01-01 or after 9999-12-31")
    return f"CASE WHEN {moment} < {first} OR {moment} > {last} THEN {failure} ELSE {moment} END"


# In bytes: far more than any event has, and fast to produce.
MAX_REPLACED_BYTES: Final = 64 * 1024 * 1024


def bounded_replacement(node: exp.Expr) -> str:
    """Return the replacement @c for matches in @a, or fail if the result could be too large: DuckDB has no limit."""
    too_large = fail(node, "Output of replacing is too large")
    return f"CASE WHEN strlen(@a)::HUGEINT * strlen(@c) > {MAX_REPLACED_BYTES} THEN {too_large} ELSE @c END"


def once(template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Fill a template that refers to its parts as `@a`, `@b`…, such that expensive parts are evaluated only once.

    `texts` are constants, inserted as `{0}`, `{1}`…
    """
    evaluated_first = _evaluated_first(template, parts)
    template = HOLE.sub(lambda hole: f"{{{int(hole[1]) + len(parts)}}}", template)
    template = _PART.sub(lambda match: _part_reference(ascii_lowercase.index(match[1]), evaluated_first), template)
    if evaluated_first:
        fields = ", ".join(f"{ascii_lowercase[index]} := {{{index}}}" for index in evaluated_first)
        template = f"list_transform([struct_pack({fields})], lambda _v: {template})[1]"
    return fragment(template, *parts, *texts)


_PART: Final = re.compile("@([a-z])")


def _part_reference(index: int, evaluated_first: Sequence[int]) -> str:
    return f"_v.{ascii_lowercase[index]}" if index in evaluated_first else f"{{{index}}}"


def _evaluated_first(template: str, parts: Sequence[exp.Expr]) -> list[int]:
    """Return the parts to evaluate before the template; all expensive ones if DuckDB's TRY must not cover them."""
    evaluated_first = [index for index, part in enumerate(parts) if not _can_inline(template, index, part)]
    if evaluated_first and "try(" in template:
        return [index for index, part in enumerate(parts) if not is_simple(part)]
    return evaluated_first


def _can_inline(template: str, index: int, part: exp.Expr) -> bool:
    """Return whether the part may be inserted in place: it is cheap, or is used once and outside of TRY."""
    if is_simple(part):
        return True
    return template.count("@" + ascii_lowercase[index]) < 2 and "try(" not in template


def attempt(node: exp.Expr, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Fill a template of `@a`, `@b`… that may fail; inside SAFE a failure is NULL."""
    return once(f"try({template})" if is_safe(node) else template, *parts, texts=texts)


def variant_text(value: exp.Expr) -> exp.Expr:
    """Return an event's value as text, which DuckDB reads from shredded columns without reassembling the value."""
    return fragment("{0}::VARCHAR", value, operation=AsText())


def utc_wall_clock(node: exp.Expr) -> exp.Expr:
    """Return a TIMESTAMP as its UTC wall clock, with which DuckDB calculates ten times as fast."""
    return fragment("make_timestamp(epoch_us({0}))", node, operation=Recast())


def timestamp_of(node: exp.Expr) -> exp.Expr:
    """Return the TIMESTAMP of a UTC wall clock."""
    return fragment("make_timestamptz(epoch_us({0}))", node, operation=Recast())
