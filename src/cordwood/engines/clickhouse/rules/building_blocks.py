"""Building blocks that the rules share: spelling names, failing, the names of types, evaluating a part once."""

import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.constants import CONSTANT
from cordwood.sql.fragment import HOLE, fragment, is_fragment, parts_of, quoted_constant, text_part
from cordwood.sql.lowering import RAISED, is_evaluated_anyway, is_safe
from cordwood.sql.nodes import field_name

# The meta key of an array that stands for NULL if it is empty: no position in it is out of bounds.
MAY_BE_NULL: Final = "may_be_null"

# The meta key of an array that is emitted for NULL, which ClickHouse's arrays do not have.
IS_NULL: Final = "is_null"

# A TIMESTAMP has a time zone in its type and a DATETIME has none, which distinguishes them in an answer.
NAMES: Final = {
    Kind.STRING: "String",
    Kind.BYTES: "String",
    Kind.INT64: "Int64",
    Kind.FLOAT64: "Float64",
    Kind.NUMERIC: "Decimal(38, 9)",
    Kind.BIGNUMERIC: "Decimal(76, 38)",
    Kind.BOOL: "Bool",
    Kind.TIMESTAMP: "DateTime64(6, 'UTC')",
    Kind.DATETIME: "DateTime64(6)",
    Kind.DATE: "Date32",
    Kind.TIME: "Time64(6)",
    Kind.INTERVAL: "Tuple(Int64, Int64, Int64)",
    Kind.JSON: "String",
    Kind.VARIANT: "String",
}

_NEVER_NULL: Final = (Kind.ARRAY, Kind.INTERVAL)


def type_part(datatype: Datatype | None, *, has_names: bool = True) -> exp.Expr | None:
    """Return ClickHouse's name of a nullable type as CAST takes it; None if it is not completely known."""
    type_text = _type_text(datatype, has_names=has_names)
    return text_part(type_text) if type_text else None


def _type_text(datatype: Datatype | None, *, has_names: bool) -> str | None:
    if datatype is None:
        return None
    if datatype.kind is Kind.ARRAY:
        element = _type_text(datatype.element, has_names=has_names) if datatype.element else "Nullable(Int64)"
        return f"Array({element})" if element else None
    if datatype.kind is Kind.STRUCT:
        return _struct_text(datatype, has_names=has_names)
    name = NAMES[datatype.kind]
    return name if datatype.kind in _NEVER_NULL else f"Nullable({name})"


def _struct_text(datatype: Datatype, *, has_names: bool) -> str | None:
    """Return the name of a struct's type as text, not as a template, because it may contain braces.

    Fields are read by position. The client parses types from their texts and supports only plain names: if a struct has
    any other, its fields get no names there.
    """
    parts = [_type_text(field, has_names=has_names) for _, field in datatype.fields]
    if not parts or any(part is None for part in parts):
        return None
    names = _simple_names(datatype) if has_names else None
    fields = [f"{quoted_name(name)} {part}" for name, part in zip(names, parts, strict=True)] if names else parts
    return f"Nullable(Tuple({', '.join(map(str, fields))}))"


def _simple_names(datatype: Datatype) -> list[str] | None:
    names = [field_name(datatype, index) for index in range(len(datatype.fields))]
    return names if all(_SIMPLE_NAME.fullmatch(name) and spelled(name) == name for name in names) else None


_SIMPLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


# A character of Unicode's private use.
_ESCAPE: Final = "\ue0ff"
# The names of subcolumns that ClickHouse derives from columns of some types.
_SUBCOLUMN_NAME: Final = re.compile(r"null|size[0-9]+")


def spelled(name: str) -> str:
    """Return ClickHouse's spelling of a name; different names stay different.

    ClickHouse has no empty names, and resolves some names to subcolumns: these get one sign in front, while a sign
    inside any other name is doubled.
    """
    if name == "" or _SUBCOLUMN_NAME.fullmatch(name):
        return _ESCAPE + name
    return name.replace(_ESCAPE, _ESCAPE * 2)


def quoted_name(name: str) -> str:
    """Quote a name for ClickHouse, in a statement and in the text of a type."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "\\0") + '"'


def cast(node: exp.Expr, kind: Kind) -> exp.Expr:
    """Return ClickHouse's own cast, which fails for values that do not fit and keeps NULL."""
    return fragment(f"CAST({{0}}, {quoted_constant(f'Nullable({NAMES[kind]})')})", node)


def null_of(datatype: Datatype | None) -> exp.Expr:
    name = type_part(datatype)
    if datatype is None or name is None:
        return exp.Null()
    if datatype.kind is not Kind.ARRAY:
        return fragment("CAST(NULL, {0})", name)
    null_array = fragment("CAST([], {0})", name)
    null_array.meta[IS_NULL] = True
    return null_array


def fail_if(node: exp.Expr, is_invalid: str, message: str, value: str) -> str:
    """Return template text of a value that fails if `is_invalid` is true; an unknown condition does not fail.

    The message must be a constant of cordwood. ClickHouse's `throwIf` also evaluates the values below a NULL.
    """
    return fail_if_with(node, is_invalid, quoted_constant(RAISED + message), value)


def fail_if_with(node: exp.Expr, is_invalid: str, message: str, value: str) -> str:
    """Return the same for a message given as template text: the hole of a text that begins with `RAISED`."""
    if is_safe(node) or is_evaluated_anyway(node):
        return f"if({is_invalid}, NULL, {value})"
    return f"if(throwIf(ifNull({is_invalid}, false), {message}) = 1, NULL, {value})"


def is_simple(node: exp.Expr) -> bool:
    """Return whether evaluating the node twice costs nothing."""
    if is_fragment(node):
        return node.meta_get(CONSTANT) is not None or all(isinstance(part, exp.Literal) for part in parts_of(node))
    return isinstance(node, (exp.Column, exp.Literal, exp.Null, exp.Parameter, exp.Boolean, exp.Dot)) or (
        isinstance(node, (exp.Cast, exp.Neg, exp.Paren)) and is_simple(node.this)
    )


def once(template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Fill a template that refers to its parts as `@a`, `@b`…, such that expensive parts are evaluated only once.

    `texts` are constants, inserted as `{0}`, `{1}`…
    """
    expensive = [index for index, part in enumerate(parts) if not _can_inline(template, index, part)]
    template = HOLE.sub(lambda hole: f"{{{int(hole[1]) + len(parts)}}}", template)
    template = _PART.sub(
        lambda match: f"_{match[1]}" if ord(match[1]) - 97 in expensive else f"{{{ord(match[1]) - 97}}}", template
    )
    if expensive:
        heads = ", ".join(f"_{chr(97 + index)}" for index in expensive)
        lists = ", ".join(f"[{{{index}}}]" for index in expensive)
        template = f"arrayMap(({heads}) -> {template}, {lists})[1]"
    return fragment(template, *parts, *texts)


_PART: Final = re.compile("@([a-z])")


def _can_inline(template: str, index: int, part: exp.Expr) -> bool:
    """Return whether the part may be inserted in place: it is cheap, or is used once."""
    return is_simple(part) or template.count("@" + chr(97 + index)) < 2


def utc_wall_clock(node: exp.Expr) -> exp.Expr:
    """Return a TIMESTAMP as its UTC wall clock."""
    return cast(node, Kind.DATETIME)


def timestamp_of(node: exp.Expr) -> exp.Expr:
    """Return the TIMESTAMP of a UTC wall clock."""
    return cast(node, Kind.TIMESTAMP)
