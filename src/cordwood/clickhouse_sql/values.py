"""Typed values: the types of ClickHouse's dialect, BigQuery expressions with such types, and SQL templates."""

from typing import Final, Union

import msgspec
from sqlglot import exp

from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.nodes import replace_node
from cordwood.sql.query_templates import parse_template


class ClickHouseType(msgspec.Struct, frozen=True):
    """A type of ClickHouse's dialect. `fractional_second_digits` is for a DateTime64; it is 0 for a DateTime."""

    name: str
    is_nullable: bool = False
    element_type: Union["ClickHouseType", None] = None
    fractional_second_digits: int = 0

    def __str__(self) -> str:
        inner = f"Array({self.element_type})" if self.name == "Array" else self.name
        return f"Nullable({inner})" if self.is_nullable and self.name not in ("Array", "Map", "Nothing") else inner

    @property
    def with_article(self) -> str:
        """The type with its article, as in "an Int64"."""
        name = str(self)
        return f"an {name}" if name.startswith(("A", "I")) else f"a {name}"

    @property
    def with_capital_article(self) -> str:
        """The type with its article for the beginning of a sentence, as in "An Int64"."""
        return f"A{self.with_article[1:]}"

    def as_nullable(self) -> "ClickHouseType":
        return msgspec.structs.replace(self, is_nullable=True)

    def as_not_null(self) -> "ClickHouseType":
        return msgspec.structs.replace(self, is_nullable=False)


STRING: Final = ClickHouseType("String")
INT: Final = ClickHouseType("Int64")
FLOAT: Final = ClickHouseType("Float64")
# The type of a comparison's result. ClickHouse's result is the number 0 or 1, but the translated expression is a BOOL.
FLAG: Final = ClickHouseType("UInt8")
BOOL: Final = ClickHouseType("Bool")
DATE: Final = ClickHouseType("Date")
DATETIME: Final = ClickHouseType("DateTime")
DATETIME64: Final = ClickHouseType("DateTime", fractional_second_digits=6)
NOTHING: Final = ClickHouseType("Nothing", is_nullable=True)
MAP: Final = ClickHouseType("Map")
INTERVAL: Final = ClickHouseType("Interval")

CONDITION_TYPE_NAMES: Final = ("UInt8", "Bool")
NUMBER_TYPE_NAMES: Final = ("Int64", "Float64", "UInt8", "Bool")
TIME_TYPE_NAMES: Final = ("DateTime", "Date")

# The types that the value of a constant expression can have. An expression that is not constant has `NotConstant`
# instead.
ConstantValue = str | int | float | bool | None


class NotConstant(msgspec.Struct, frozen=True):
    """Marks an expression that is not constant."""


NOT_CONSTANT: Final = NotConstant()


class TypedValue(msgspec.Struct):
    """A BigQuery expression, and its type in ClickHouse's dialect.

    If `default_for_null` is set, NULL in `node` stands for the default. For example, the text of a missing key is NULL,
    and stands for an empty text.

    If a Map has constant keys, `map_entries` has its pairs of a key and a value. If `map_entries` is None, the Map is
    the JSON object in `node`. If `node` is NULL as well, the Map has all attributes of the event.
    """

    node: exp.Expr
    type: ClickHouseType
    constant_value: ConstantValue | NotConstant = NOT_CONSTANT
    default_for_null: str | int | float | None = None
    map_entries: "tuple[tuple[str, TypedValue], ...] | None" = None
    interval_unit: str = ""

    @property
    def is_constant(self) -> bool:
        return not isinstance(self.constant_value, NotConstant)

    def node_with_default_for_null(self) -> exp.Expr:
        """Return `node` with `default_for_null` in place of NULL; return `node` unchanged if there is no default."""
        if self.default_for_null is None:
            return self.node
        return fill_template("coalesce(@value, @default)", value=self.node, default=literal_node(self.default_for_null))

    def with_default_for_null(self) -> "TypedValue":
        """Return the value with SQL in `node` that replaces NULL by the default, and with None as `default_for_null`.

        The new `node` is NULL only if the type is nullable.
        """
        return (
            self
            if self.default_for_null is None
            else msgspec.structs.replace(self, node=self.node_with_default_for_null(), default_for_null=None)
        )


def array_type_of(element: ClickHouseType) -> ClickHouseType:
    return ClickHouseType("Array", element_type=element)


def literal_node(value: str | float) -> exp.Expr:
    """Return the literal of a text or a number."""
    if isinstance(value, str):
        return exp.Literal.string(value)
    literal: exp.Expr = exp.Literal.number(repr(abs(value)))
    return exp.Neg(this=literal) if value < 0 else literal


def text_value(text: str) -> TypedValue:
    return TypedValue(exp.Literal.string(text), STRING, constant_value=text)


def flag_value(*, is_true: bool) -> TypedValue:
    return TypedValue(exp.Boolean(this=is_true), FLAG, constant_value=int(is_true))


def common_type(first: ClickHouseType, second: ClickHouseType) -> ClickHouseType | None:
    """Return the common type of two types; None if ClickHouse has no common type for them."""
    nullable = first.is_nullable or second.is_nullable
    for candidate, counterpart in ((first, second), (second, first)):
        if candidate.name == "Nothing":
            return counterpart.as_nullable()
    if first.name == second.name == "Array":
        return _common_array_type(first, second)
    if first.name == second.name:
        return msgspec.structs.replace(
            first,
            is_nullable=nullable,
            fractional_second_digits=max(first.fractional_second_digits, second.fractional_second_digits),
        )
    if first.name in NUMBER_TYPE_NAMES and second.name in NUMBER_TYPE_NAMES:
        name = "Float64" if "Float64" in (first.name, second.name) else "Int64"
        return ClickHouseType(name, is_nullable=nullable)
    if first.name in TIME_TYPE_NAMES and second.name in TIME_TYPE_NAMES:
        return ClickHouseType(
            "DateTime",
            is_nullable=nullable,
            fractional_second_digits=max(first.fractional_second_digits, second.fractional_second_digits),
        )
    return None


def _common_array_type(first: ClickHouseType, second: ClickHouseType) -> ClickHouseType | None:
    if first.element_type is None or second.element_type is None:
        return first if second.element_type is None else second
    element = common_type(first.element_type, second.element_type)
    return array_type_of(element) if element is not None else None


def fill_template(template: str, offset: int | None = None, /, **parts: exp.Expr) -> exp.Expr:
    """Fill a template of BigQuery SQL: return its tree, in which each `@name` is replaced by the part `name`.

    A part that has no parent node is inserted itself at its first use. For every other use, a part is copied. All nodes
    of the template get the position `offset` in the text of the query.
    """
    tree = copy_tree(parse_template(template))
    charge_nodes(1)
    for node in tree.walk():
        node.meta.pop("start", None)
        if offset is not None:
            node.meta["start"] = node.meta["end"] = offset
    placeholders = [node for node in tree.find_all(exp.Parameter) if node.name in parts]
    used_parts: set[str] = set()
    for placeholder in placeholders:
        part = parts[placeholder.name]
        replacement = copy_tree(part) if placeholder.name in used_parts or part.parent is not None else part
        used_parts.add(placeholder.name)
        if placeholder is tree:
            return replacement
        replace_node(
            placeholder,
            parenthesize_if_operation(replacement) if isinstance(placeholder.parent, _OPERATOR_NODES) else replacement,
        )
    return tree


_OPERATOR_NODES = (exp.Binary, exp.Unary, exp.Between, exp.In)


def parenthesize_if_operation(node: exp.Expr) -> exp.Expr:
    """Return the node for use as an operand: an operation is put in parentheses, because printers do not add them."""
    is_operation = isinstance(node, _OPERATOR_NODES) and not isinstance(node, (exp.Paren, exp.Dot, exp.Func))
    return exp.Paren(this=node) if is_operation or isinstance(node, exp.Connector) else node
