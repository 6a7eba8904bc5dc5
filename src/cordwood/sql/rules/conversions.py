"""Conversions that work the same way on every engine: literals, casts, and event values as operands of conditions."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import NUMBERS, TIME_KINDS, Datatype, Kind
from cordwood.sql.datatypes import STRING, VARIANT, kind_of, type_in_tree, typed_as
from cordwood.sql.lowering import RuleSet, data_part, fragment, mark_safe, text_part, unsupported
from cordwood.sql.nodes import CONSTANT_KEY, constant, constant_text, is_integer_literal
from cordwood.sql.rules.time_text import TimeText
from cordwood.sql.rules.times import without_leap_second
from cordwood.sql.rules.vocabulary import Conversion, Vocabulary


class Literals(msgspec.Struct, frozen=True):
    """The rules of literals.

    `integer` lowers an integer literal, given with its value, and `fraction` any other number. `data` lowers bytes,
    given as a part of a template and as the text of the literal.
    """

    integer: Callable[[exp.Expr, int], exp.Expr]
    fraction: Conversion
    data: Callable[[exp.Expr, str], exp.Expr]

    def _literal(self, node: exp.Expr) -> exp.Expr:
        value = constant(node)
        if node.is_string:
            lowered = text_part(str(node.this))
        else:
            lowered = self.integer(node, int(str(value))) if is_integer_literal(node) else self.fraction(node)
        if not isinstance(lowered, exp.Literal):
            lowered.meta[CONSTANT_KEY] = value
        return lowered

    def _bytes(self, node: exp.Expr) -> exp.Expr:
        """Lower a bytes literal, which the parser returns as text with its escapes decoded."""
        text = str(node.this)
        raw = text.encode("latin-1") if all(ord(char) < 256 for char in text) else text.encode()
        return self.data(data_part(raw), text)

    def _raw(self, node: exp.Expr) -> exp.Expr:
        return self._literal(exp.Literal.string(str(node.this)))

    def rules(self) -> RuleSet:
        return RuleSet(nodes={exp.Literal: self._literal, exp.ByteString: self._bytes, exp.RawString: self._raw})


def signed_parent(node: exp.Expr) -> exp.Expr | None:
    """Return the nearest ancestor of a literal that is neither its sign nor parentheses."""
    parent = node.parent
    while isinstance(parent, (exp.Paren, exp.Neg)):
        parent = parent.parent
    return parent


# A cast of a value, the second argument. The first is the node of the cast, which determines whether a failure is NULL.
Caster = Callable[[exp.Expr, exp.Expr], exp.Expr]
# By source and target type: a caster or a template. A template that refers to the value as `@a` may use the value
# several times, and may fail; a template with `{0}` uses it once.
Casters = Mapping[tuple[Kind, Kind], Caster | str]

# The types to which an event's value is cast via its text, so that an invalid value fails like an invalid text.
_TYPES_OF_EVENTS: Final = (
    *(Kind.INT64, Kind.FLOAT64, Kind.BOOL, Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE, Kind.NUMERIC),
)


class Casts(msgspec.Struct, frozen=True):
    """The rules of explicit casts for one engine.

    `casters` has the casts between two types that need more than `direct`, the engine's own cast. `to_composite` casts
    to an ARRAY or STRUCT, and `to_sized` to a type with parameters. `print_bytes` and `parse_bytes` have a template for
    each format of bytes.
    """

    words: Vocabulary
    times: TimeText
    casters: Casters
    direct: Callable[[exp.Expr, exp.Expr, Kind], exp.Expr]
    text_to_time: Callable[[exp.Expr, exp.Expr, Kind], exp.Expr]
    to_composite: Callable[[exp.Expr, exp.Expr, Datatype], exp.Expr]
    to_sized: Callable[[exp.Expr, Datatype], exp.Expr | None]
    print_bytes: Mapping[str, str]
    parse_bytes: Mapping[str, str]

    def _cast(self, node: exp.Expr) -> exp.Expr:
        to = type_in_tree(node.args["to"])
        if to is None:
            unsupported(node, f"The type {node.args['to'].sql('bigquery')}")
        if node.args.get("format"):
            return self._cast_with_format(node, to)
        node.set("this", without_leap_second(node.this, to.kind))
        sized = self.to_sized(node, to) if node.args["to"].expressions else None
        return self.cast_to(node, node.this, to) if sized is None else sized

    def _safe_cast(self, node: exp.Expr) -> exp.Expr:
        return self._cast(mark_safe(node))

    def cast_to(self, node: exp.Expr, value: exp.Expr, to: Datatype) -> exp.Expr:
        """Cast `value` to a type; `node` determines whether a failure is NULL."""
        source = kind_of(value)
        if isinstance(value, exp.Null):
            return self.words.null_of(to)
        if to.kind in (Kind.ARRAY, Kind.STRUCT):
            return self.to_composite(node, value, to)
        caster = self.casters.get((source, to.kind)) if source else None
        if isinstance(caster, str):
            return self.words.attempt(node, caster, value) if "@" in caster else fragment(caster, value)
        return self._cast_scalar(node, value, to) if caster is None else caster(node, value)

    def _cast_scalar(self, node: exp.Expr, value: exp.Expr, to: Datatype) -> exp.Expr:
        """Cast between types that have no caster."""
        source = kind_of(value)
        if source is Kind.STRING and to.kind in TIME_KINDS:
            return self.text_to_time(node, value, to.kind)
        if source in (Kind.TIMESTAMP, Kind.DATETIME, Kind.TIME) and to.kind is Kind.STRING:
            return self.times.cast_text(value, None)
        if source is Kind.VARIANT and to.kind in _TYPES_OF_EVENTS:
            return self.cast_to(node, self.words.read_as(value, Kind.STRING), to)
        return self.direct(node, value, to.kind)

    def _cast_with_format(self, node: exp.Expr, to: Datatype) -> exp.Expr:
        format_text, source = constant_text(node.args["format"]), kind_of(node.this)
        if format_text is None:
            unsupported(node, "CAST with a format that is not a literal")
        if to == STRING and source in TIME_KINDS:
            return self.times.cast_by_format(node, node.this, format_text)
        if to == STRING and source is Kind.BYTES:
            return _by_format(node, self.print_bytes, format_text.upper())
        if to.kind is Kind.BYTES and source is Kind.STRING:
            return _by_format(node, self.parse_bytes, format_text.upper())
        return unsupported(node, f"CAST to {to.kind} with a format")

    def rules(self) -> RuleSet:
        return RuleSet(nodes={exp.Cast: self._cast, exp.TryCast: self._safe_cast})


def _by_format(node: exp.Expr, templates: Mapping[str, str], format_text: str) -> exp.Expr:
    if format_text not in templates:
        unsupported(node, f"The format '{format_text}'")
    return fragment(templates[format_text], node.this)


class Conditions(msgspec.Struct, frozen=True):
    """The parts of the rules of conditions that are the same for all engines, apart from the SQL in `words`."""

    words: Vocabulary

    def boolean(self, condition: exp.Expr) -> exp.Expr:
        return self.words.read_as(condition, Kind.BOOL) if kind_of(condition) is Kind.VARIANT else condition

    def with_boolean_operands(self, node: exp.Expr) -> exp.Expr:
        for key in ("this", "expression"):
            part = node.args.get(key)
            if isinstance(part, exp.Expr):
                node.set(key, self.boolean(part))
        return node

    def in_events(self, node: exp.Expr, kind: Kind) -> exp.Expr:
        """Lower `x IN (query)` for a query whose column has events' values."""
        column = typed_as(fragment("_c"), VARIANT)
        value, item = self.words.read_as(node.this, kind), self.words.read_as(column, kind)
        return fragment("{0} IN (SELECT {1} FROM {2} AS _q(_c))", value, item, node.args["query"])


def number_kind(kind: Kind) -> Kind:
    """Return the type to which an event's value is converted for a comparison with a value of this type."""
    return Kind.FLOAT64 if kind in NUMBERS else kind


def mark_argument_safe(node: exp.Expr) -> exp.Expr:
    """Mark the function inside of SAFE before it is lowered."""
    mark_safe(node.this)
    return node
