"""ClickHouse's types in the dialect, and BigQuery expressions with such types."""

from typing import Final, Union

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.template import fill


class Type(msgspec.Struct, frozen=True):
    """A type of the dialect. `scale` is a DateTime64's number of decimals of a second; 0 is a DateTime."""

    name: str
    nullable: bool = False
    element: Union["Type", None] = None
    scale: int = 0

    def __str__(self) -> str:
        inner = f"Array({self.element})" if self.name == "Array" else self.name
        return f"Nullable({inner})" if self.nullable and self.name not in ("Array", "Map", "Nothing") else inner

    def or_null(self) -> "Type":
        return msgspec.structs.replace(self, nullable=True)

    def never_null(self) -> "Type":
        return msgspec.structs.replace(self, nullable=False)


STRING: Final = Type("String")
INT: Final = Type("Int64")
FLOAT: Final = Type("Float64")
# The type of comparisons: the numbers 0 and 1. Its expression is a BOOL.
FLAG: Final = Type("UInt8")
BOOL: Final = Type("Bool")
DATE: Final = Type("Date")
DATETIME: Final = Type("DateTime")
DATETIME64: Final = Type("DateTime", scale=6)
NOTHING: Final = Type("Nothing", nullable=True)
MAP: Final = Type("Map")
INTERVAL: Final = Type("Interval")

CONDITIONS: Final = ("UInt8", "Bool")
NUMBERS: Final = ("Int64", "Float64", "UInt8", "Bool")
MOMENTS: Final = ("DateTime", "Date")

# The value of a constant expression; Unknown for others.
Constant = str | int | float | bool | None


class Unknown(msgspec.Struct, frozen=True):
    """The value of an expression that is not constant."""


UNKNOWN: Final = Unknown()


class Value(msgspec.Struct):
    """An expression with its type.

    With a `default`, NULL in `node` stands for the default: a missing key is an empty text. A Map has `parts`, pairs of
    a constant key and a value. If they are None, it is a JSON object, or the attributes if `node` is NULL.
    """

    node: exp.Expr
    type: Type
    constant: Constant | Unknown = UNKNOWN
    default: str | int | float | None = None
    parts: "tuple[tuple[str, Value], ...] | None" = None
    unit: str = ""

    @property
    def is_constant(self) -> bool:
        return not isinstance(self.constant, Unknown)

    def plain(self) -> exp.Expr:
        """Return the expression, with its default instead of NULL."""
        if self.default is None:
            return self.node
        return fill("coalesce(@value, @default)", value=self.node, default=literal_node(self.default))

    def as_plain(self) -> "Value":
        """Return the same value with an expression that is NULL only if its type is nullable."""
        return self if self.default is None else msgspec.structs.replace(self, node=self.plain(), default=None)


def array_of(element: Type) -> Type:
    return Type("Array", element=element)


def literal_node(value: str | float) -> exp.Expr:
    """Return the literal of a text or a number."""
    if isinstance(value, str):
        return exp.Literal.string(value)
    made: exp.Expr = exp.Literal.number(repr(abs(value)))
    return exp.Neg(this=made) if value < 0 else made


def text_value(text: str) -> Value:
    return Value(exp.Literal.string(text), STRING, constant=text)


def flag_value(*, is_true: bool) -> Value:
    return Value(exp.Boolean(this=is_true), FLAG, constant=int(is_true))


def common(one: Type, other: Type) -> Type | None:
    """Return the common type of both; None if ClickHouse has none."""
    nullable = one.nullable or other.nullable
    for left, right in ((one, other), (other, one)):
        if left.name == "Nothing":
            return right.or_null()
    if one.name == other.name == "Array":
        return _common_array(one, other)
    if one.name == other.name:
        return msgspec.structs.replace(one, nullable=nullable, scale=max(one.scale, other.scale))
    if one.name in NUMBERS and other.name in NUMBERS:
        name = "Float64" if "Float64" in (one.name, other.name) else "Int64"
        return Type(name, nullable=nullable)
    if one.name in MOMENTS and other.name in MOMENTS:
        return Type("DateTime", nullable=nullable, scale=max(one.scale, other.scale))
    return None


def _common_array(one: Type, other: Type) -> Type | None:
    if one.element is None or other.element is None:
        return one if other.element is None else other
    element = common(one.element, other.element)
    return array_of(element) if element is not None else None
