"""Events' values: paths into JSON text, and repeated records as arrays."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.json_values import arguments
from cordwood.model.datatype import Kind
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet
from cordwood.sql.nodes import path_steps, path_value
from cordwood.sql.operations import PathRead, RecordElements, RecordTest, operation_of
from cordwood.sql.typing import kind_of


def _path(node: exp.Expr) -> exp.Expr:
    """Lower a path read; a JSON null counts as missing."""
    path, keys = arguments(list(path_steps(node)), first=1)
    if kind_of(node) is Kind.STRING:
        return fragment(f"JSONExtract({{0}}{path}, 'Nullable(String)')", path_value(node), *keys)
    return fragment(f"nullIf(nullIf(JSONExtractRaw({{0}}{path}), ''), 'null')", path_value(node), *keys)


_ITEMS: Final = "arrayMap(_e -> CAST(_e, 'Nullable(String)'), JSONExtractArrayRaw(ifNull({0}, '')))"


def _elements(node: exp.Expr) -> exp.Expr:
    """Return the records in a value: an object as an array of one, an array's elements, else an empty array."""
    elements = operation_of(node, RecordElements)
    if elements is not None and elements.only_arrays:
        return fragment(_ITEMS, node.expressions[0])
    return fragment(f"if(ifNull(JSONType({{0}}), 'Null') = 'Object', [{{0}}], {_ITEMS})", node.expressions[0])


def _is_record(node: exp.Expr) -> exp.Expr:
    test = operation_of(node, RecordTest)
    if test is not None and test.only_objects:
        return fragment("isNotNull({0})", node.expressions[0])
    return fragment("(ifNull(JSONType({0}), 'Null') = 'Object')", node.expressions[0])


RULES = RuleSet(operations={PathRead: _path, RecordElements: _elements, RecordTest: _is_record})
