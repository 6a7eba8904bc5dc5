"""The turns of phrase that the rules share: failing, ClickHouse's names of types, writing a part once."""

from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.bigquery.structs import field_name
from cordwood.sql.constants import CONSTANT
from cordwood.sql.fragment import fragment, is_fragment, literal_text
from cordwood.sql.lowering import RAISED, is_safe

# An array that stands for NULL where it is empty: no place in it is out of bounds.
MAY_BE_NONE: Final = "may_be_none"

# A TIMESTAMP has its zone in its type, a DATETIME has none: so they can be told apart in an answer.
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


def type_text(datatype: Datatype | None) -> str | None:
    """ClickHouse's name of a type whose values may be NULL; None when a part of it is not known."""
    if datatype is None:
        return None
    if datatype.kind is Kind.ARRAY:
        element = type_text(datatype.element) if datatype.element else "Nullable(Int64)"
        return f"Array({element})" if element else None
    if datatype.kind is Kind.STRUCT:
        return _struct_text(datatype)
    name = NAMES[datatype.kind]
    return name if datatype.kind in _NEVER_NULL else f"Nullable({name})"


def _struct_text(datatype: Datatype) -> str | None:
    parts = [type_text(field) if field else None for _, field in datatype.fields]
    if not parts or any(part is None for part in parts):
        return None
    named = ", ".join(f"`{_field_name(datatype, at)}` {part}" for at, part in enumerate(parts))
    return f"Nullable(Tuple({named}))"


def _field_name(datatype: Datatype, at: int) -> str:
    return field_name(datatype, at).replace("\\", "\\\\").replace("`", "\\`")


def cast(node: exp.Expr, kind: Kind) -> exp.Expr:
    """The engine's own cast, which fails for what does not fit and keeps NULL."""
    return fragment(f"CAST({{0}}, {quoted(f'Nullable({NAMES[kind]})')})", node)


def null_of(datatype: Datatype | None) -> exp.Expr:
    name = type_text(datatype)
    if name is None:
        return exp.Null()
    return (
        fragment(f"CAST([], {quoted(name)})") if name.startswith("Array") else fragment(f"CAST(NULL, {quoted(name)})")
    )


def quoted(value: str) -> str:
    """A text as a literal inside a template: no brace in it is a hole, no `@` a part."""
    return literal_text(value.replace("\\", "\\\\")).replace("\0", "\\0")


def fail(node: exp.Expr, message: str) -> str:
    """Template text that raises a value error when it is worked out, or is NULL where the author wrote SAFE."""
    return "NULL" if is_safe(node) else f"throwIf(true, {quoted(RAISED + message)})"


def guarded(node: exp.Expr, wrong: str, message: str, value: str) -> str:
    """Template text of a value that cannot be where something is wrong; where that is not known, nothing is.

    The engine's `throwIf` looks at what lies below a NULL, too.
    """
    if is_safe(node):
        return f"if({wrong}, NULL, {value})"
    return f"if(throwIf(ifNull({wrong}, false), {quoted(RAISED + message)}) = 1, NULL, {value})"


def is_simple(node: exp.Expr) -> bool:
    """Whether writing it twice costs nothing."""
    if is_fragment(node):
        return len(node.expressions) == 1 or node.meta_get(CONSTANT) is not None
    return isinstance(node, (exp.Column, exp.Literal, exp.Null, exp.Parameter, exp.Boolean, exp.Dot)) or (
        isinstance(node, (exp.Cast, exp.Neg, exp.Paren)) and is_simple(node.this)
    )


def once(template: str, *parts: exp.Expr) -> exp.Expr:
    """A template that says its parts more than once, as `@a`, `@b`…: those that cost are worked out once."""
    costly = [at for at, part in enumerate(parts) if not _goes_in_place(template, at, part)]
    names = {chr(97 + at): "{" + str(at) + "}" for at in range(len(parts))}
    if not costly:
        return fragment(_swap(template, names), *parts)
    names |= {chr(97 + at): f"_{chr(97 + at)}" for at in costly}
    heads = ", ".join(f"_{chr(97 + at)}" for at in costly)
    lists = ", ".join(f"[{{{at}}}]" for at in costly)
    return fragment(f"arrayMap(({heads}) -> {_swap(template, names)}, {lists})[1]", *parts)


def _goes_in_place(template: str, at: int, part: exp.Expr) -> bool:
    """Whether it may be written where it is said: it costs nothing, or is said once."""
    return is_simple(part) or template.count("@" + chr(97 + at)) < 2


def _swap(template: str, names: dict[str, str]) -> str:
    """Put other texts for `@a`, `@b`…"""
    for name, other in names.items():
        template = template.replace("@" + name, other)
    return template


def naive(node: exp.Expr) -> exp.Expr:
    """A TIMESTAMP as its UTC wall clock."""
    return cast(node, Kind.DATETIME)


def instant(node: exp.Expr) -> exp.Expr:
    """A UTC wall clock as the TIMESTAMP it is."""
    return cast(node, Kind.TIMESTAMP)
