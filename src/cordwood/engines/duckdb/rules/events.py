"""Events' values: paths into a VARIANT, repeated records as arrays, and the slots of parameters."""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.aggregates import EVENT_NUMBER, event_number
from cordwood.engines.duckdb.rules.building_blocks import NAMES, variant_text
from cordwood.engines.duckdb.sql_values import is_name
from cordwood.model.datatype import Kind
from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment, name_part, text_part
from cordwood.sql.lowering import RuleSet
from cordwood.sql.nodes import KINDS, path_steps, path_value
from cordwood.sql.operations import Operation, PathRead, RecordElements, RecordTest, operation_of
from cordwood.sql.typing import kind_of, typed_as
from cordwood.sql.typing.datatypes import STRING, VARIANT


def _path(node: exp.Expr) -> exp.Expr:
    """Lower a path read; reading it directly as text is what DuckDB's shredded columns make fast."""
    steps = path_steps(node)
    path = path_part(path_value(node), steps, PathRead(steps))
    path.meta[KINDS] = node.meta_get(KINDS)
    return variant_text(path) if kind_of(node) is Kind.STRING else path


def path_part(value: exp.Expr, steps: Sequence[str], does: Operation | None = None) -> exp.Expr:
    """Return the value at a path below a VARIANT; keys that DuckDB does not accept as names are in brackets."""
    template = "{0}" + "".join(
        f".{{{index}}}" if is_name(step) else f"[{{{index}}}]" for index, step in enumerate(steps, 1)
    )
    keys = [name_part(step) if is_name(step) else text_part(step) for step in steps]
    return fragment(template, value, *keys, operation=does)


def _convert_answered(node: exp.Expr) -> exp.Expr:
    """Convert a column that only the answer reads: a path with texts only is read as text.

    Grouping and sorting texts is seven times as fast as grouping and sorting VARIANTs.
    """
    value = node.this
    if value.meta_get("only_text") and kind_of(value) is Kind.VARIANT and _is_outermost(node):
        node.set("this", typed_as(variant_text(copied(value)), STRING))
        typed_as(node, STRING)
    if value.meta_get(EVENT_NUMBER) and _is_outermost(node):
        node.set("this", typed_as(fragment(event_number("{0}"), copied(value)), VARIANT))
        typed_as(node, VARIANT)
    return node


def _is_outermost(node: exp.Expr) -> bool:
    """Return whether this is a column of the final SELECT list."""
    select = node.parent
    return isinstance(select, exp.Select) and select.parent is None


_KIND: Final = "left(variant_typeof({0}), 5)"


def _elements(node: exp.Expr) -> exp.Expr:
    """Return the records in a value: an object as an array of one, an array's elements, else an empty array."""
    elements = operation_of(node, RecordElements)
    if elements is not None and elements.only_arrays:
        return fragment("coalesce(CAST({0} AS VARIANT[]), [])", node.expressions[0])
    arrays = f"CASE {_KIND} WHEN 'ARRAY' THEN CAST({{0}} AS VARIANT[]) WHEN 'OBJEC' THEN [{{0}}] ELSE [] END"
    return fragment(arrays, node.expressions[0])


def _is_record(node: exp.Expr) -> exp.Expr:
    """Test for an object; the NULL test comes first, because it does not read the value."""
    return fragment(f"({{0}} IS NOT NULL AND {_KIND} = 'OBJEC')", node.expressions[0], operation=RecordTest())


def _slot(node: exp.Expr) -> exp.Expr:
    kind = kind_of(node)
    if kind is None or kind is Kind.STRING or _is_null_test(node):
        return node
    # A copy, because a node cannot be part of its own replacement.
    return fragment(f"CAST({{0}} AS {NAMES[kind]})", copied(node))


def _is_null_test(node: exp.Expr) -> bool:
    """Return whether the parameter is only tested for NULL: that needs no cast, and each cast costs planning time."""
    return isinstance(node.parent, exp.Is) and isinstance(node.parent.expression, exp.Null)


RULES = RuleSet(
    nodes={exp.Parameter: _slot, exp.Alias: _convert_answered},
    operations={PathRead: _path, RecordElements: _elements, RecordTest: _is_record},
)
