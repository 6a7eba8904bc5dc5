"""Conversions that work the same way on every engine: literals, casts, and event values as operands of conditions."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import DATE_AND_TIME_KINDS, NUMBER_KINDS, Datatype, Kind
from cordwood.sql.datatypes import STRING, VARIANT, datatype_of_type_node, kind_of, set_datatype
from cordwood.sql.lowering import (
    RuleSet,
    bytes_literal_node,
    fragment_node,
    mark_null_on_error,
    raise_unsupported,
    string_literal_node,
)
from cordwood.sql.nodes import CONSTANT_VALUE_METADATA_KEY, constant_python_value, constant_text, is_integer_literal
from cordwood.sql.rules.time_text import TimePrinter
from cordwood.sql.rules.times import replace_leap_second
from cordwood.sql.rules.vocabulary import CommonSql, Conversion


class LiteralRules(msgspec.Struct, frozen=True):
    """The lowering rules of literals for one engine.

    `integer_literal` lowers an integer literal and gets the literal's value as well. `float_literal` lowers any other
    number. `bytes_literal` lowers a bytes literal; its arguments are a node with the bytes, and the literal's text.
    """

    integer_literal: Callable[[exp.Expr, int], exp.Expr]
    float_literal: Conversion
    bytes_literal: Callable[[exp.Expr, str], exp.Expr]

    def _translate_literal(self, node: exp.Expr) -> exp.Expr:
        value = constant_python_value(node)
        if node.is_string:
            lowered = string_literal_node(str(node.this))
        else:
            lowered = (
                self.integer_literal(node, int(str(value))) if is_integer_literal(node) else self.float_literal(node)
            )
        if not isinstance(lowered, exp.Literal):
            lowered.meta[CONSTANT_VALUE_METADATA_KEY] = value
        return lowered

    def _translate_bytes_literal(self, node: exp.Expr) -> exp.Expr:
        """Translate a bytes literal, which the parser returns as text with its escapes decoded."""
        text = str(node.this)
        raw = text.encode("latin-1") if all(ord(char) < 256 for char in text) else text.encode()
        return self.bytes_literal(bytes_literal_node(raw), text)

    def _translate_raw_string(self, node: exp.Expr) -> exp.Expr:
        return self._translate_literal(exp.Literal.string(str(node.this)))

    def rules(self) -> RuleSet:
        return RuleSet(
            by_node_class={
                exp.Literal: self._translate_literal,
                exp.ByteString: self._translate_bytes_literal,
                exp.RawString: self._translate_raw_string,
            }
        )


def parent_outside_sign_and_parentheses(node: exp.Expr) -> exp.Expr | None:
    """Return the nearest ancestor of a literal other than its sign and the parentheses around it."""
    parent = node.parent
    while isinstance(parent, (exp.Paren, exp.Neg)):
        parent = parent.parent
    return parent


# A function that casts its second argument. Its first argument is the node of the cast, which determines whether a
# failure yields NULL or an error.
Caster = Callable[[exp.Expr, exp.Expr], exp.Expr]
# For each pair of source and target type: a caster, or a template for the cast. A template that uses the value several
# times, or that may fail, refers to it as `@a`. Any other template refers to it as `{0}`.
CastersByKinds = Mapping[tuple[Kind, Kind], Caster | str]

# The types to which an event's value is cast in two steps, first to text, so that an invalid value causes the same
# error as an invalid text.
_KINDS_CAST_VIA_TEXT: Final = (
    *(Kind.INT64, Kind.FLOAT64, Kind.NUMERIC, Kind.BOOL, Kind.BYTES),
    *(Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE, Kind.TIME, Kind.INTERVAL),
)


class CastRules(msgspec.Struct, frozen=True):
    """The rules of explicit casts (CAST and SAFE_CAST) for one engine.

    `casters_by_kinds` has the casts for which `cast_directly`, the engine's own cast, is not enough.
    `cast_to_composite` casts to an ARRAY or STRUCT, and `cast_to_sized_type` casts to a type with parameters, such as
    STRING(10). `bytes_to_text_templates` and `text_to_bytes_templates` have a template for each format of bytes, such
    as HEX.
    """

    common_sql: CommonSql
    time_printer: TimePrinter
    casters_by_kinds: CastersByKinds
    cast_directly: Callable[[exp.Expr, exp.Expr, Kind], exp.Expr]
    text_to_time: Callable[[exp.Expr, exp.Expr, Kind], exp.Expr]
    cast_to_composite: Callable[[exp.Expr, exp.Expr, Datatype], exp.Expr]
    cast_to_sized_type: Callable[[exp.Expr, Datatype], exp.Expr | None]
    bytes_to_text_templates: Mapping[str, str]
    text_to_bytes_templates: Mapping[str, str]

    def _translate_cast(self, node: exp.Expr) -> exp.Expr:
        to = datatype_of_type_node(node.args["to"])
        if to is None:
            raise_unsupported(node, f"The type {node.args['to'].sql('bigquery')}")
        if node.args.get("format"):
            return self._cast_with_format(node, to)
        node.set("this", replace_leap_second(node.this, to.kind))
        sized = self.cast_to_sized_type(node, to) if node.args["to"].expressions else None
        return self.cast_to(node, node.this, to) if sized is None else sized

    def _translate_safe_cast(self, node: exp.Expr) -> exp.Expr:
        return self._translate_cast(mark_null_on_error(node))

    def cast_to(self, node: exp.Expr, value: exp.Expr, to: Datatype) -> exp.Expr:
        """Cast `value` to the type `to`; `node`, the node of the cast, determines whether a failure yields NULL."""
        source = kind_of(value)
        if isinstance(value, exp.Null):
            return self.common_sql.typed_null(to)
        if to.kind in (Kind.ARRAY, Kind.STRUCT):
            return self.cast_to_composite(node, value, to)
        caster = self.casters_by_kinds.get((source, to.kind)) if source else None
        if isinstance(caster, str):
            return (
                self.common_sql.fill_fallible_template(node, caster, value)
                if "@" in caster
                else fragment_node(caster, value)
            )
        return self._cast_scalar(node, value, to) if caster is None else caster(node, value)

    def _cast_scalar(self, node: exp.Expr, value: exp.Expr, to: Datatype) -> exp.Expr:
        """Cast between two scalar types for which `casters_by_kinds` has no entry."""
        source = kind_of(value)
        if source is Kind.STRING and to.kind in DATE_AND_TIME_KINDS:
            return self.text_to_time(node, value, to.kind)
        if source in (Kind.TIMESTAMP, Kind.DATETIME, Kind.TIME) and to.kind is Kind.STRING:
            return self.time_printer.print_as_cast(value, None)
        if source is Kind.VARIANT and to.kind in _KINDS_CAST_VIA_TEXT:
            return self.cast_to(node, self.common_sql.convert_implicitly(value, Kind.STRING), to)
        return self.cast_directly(node, value, to.kind)

    def _cast_with_format(self, node: exp.Expr, to: Datatype) -> exp.Expr:
        written_format, source, zone = node.args["format"], kind_of(node.this), None
        if isinstance(written_format, exp.AtTimeZone):
            if to != STRING or source is not Kind.TIMESTAMP:
                raise_unsupported(node, "CAST with AT TIME ZONE, except of a TIMESTAMP to STRING,")
            written_format, zone = written_format.this, written_format.args["zone"]
        format_text = constant_text(written_format)
        if format_text is None:
            raise_unsupported(node, "CAST with a format that is not a literal")
        if to == STRING and source in DATE_AND_TIME_KINDS:
            return self.time_printer.print_by_cast_format(node, node.this, format_text, zone)
        if to == STRING and source is Kind.BYTES:
            return _cast_by_bytes_format(node, self.bytes_to_text_templates, format_text.upper())
        if to.kind is Kind.BYTES and source is Kind.STRING:
            return _cast_by_bytes_format(node, self.text_to_bytes_templates, format_text.upper())
        return raise_unsupported(node, f"CAST to {to.kind} with a format")

    def rules(self) -> RuleSet:
        return RuleSet(by_node_class={exp.Cast: self._translate_cast, exp.TryCast: self._translate_safe_cast})


def _cast_by_bytes_format(node: exp.Expr, templates: Mapping[str, str], format_text: str) -> exp.Expr:
    if format_text not in templates:
        raise_unsupported(node, f"The format '{format_text}'")
    return fragment_node(templates[format_text], node.this)


class ConditionRules(msgspec.Struct, frozen=True):
    """The rules of conditions that all engines share; `common_sql` has the SQL in which the engines differ."""

    common_sql: CommonSql

    def to_boolean(self, condition: exp.Expr) -> exp.Expr:
        return (
            self.common_sql.convert_implicitly(condition, Kind.BOOL)
            if kind_of(condition) is Kind.VARIANT
            else condition
        )

    def convert_boolean_operands(self, node: exp.Expr) -> exp.Expr:
        for key in ("this", "expression"):
            part = node.args.get(key)
            if isinstance(part, exp.Expr):
                node.set(key, self.to_boolean(part))
        return node

    def translate_in_event_subquery(self, node: exp.Expr, kind: Kind) -> exp.Expr:
        """Translate `x IN (query)` for a query that returns values of events; both sides are converted to `kind`."""
        column = set_datatype(fragment_node("_c"), VARIANT)
        value, item = (
            self.common_sql.convert_implicitly(node.this, kind),
            self.common_sql.convert_implicitly(column, kind),
        )
        return fragment_node("{0} IN (SELECT {1} FROM {2} AS _q(_c))", value, item, node.args["query"])


def comparison_kind_with_event_value(kind: Kind) -> Kind:
    """Return the type to which an event's value is converted before it is compared with a value of the type `kind`."""
    return Kind.FLOAT64 if kind in NUMBER_KINDS else kind


def mark_argument_null_on_error(node: exp.Expr) -> exp.Expr:
    """Mark the function inside SAFE, before the function is lowered, so that its failure yields NULL."""
    mark_null_on_error(node.this)
    return node
