"""Events' values: paths into JSON text, repeated records as arrays."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.json_values import arguments
from cordwood.model.datatype import Kind
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning
from cordwood.sql.nodes import EVENT_ARRAY_ELEMENTS, EVENT_ELEMENTS, EVENT_PATH, IS_RECORD, ONLY_OBJECTS, path_value
from cordwood.sql.typing import kind_of


def _path(node: exp.Expr) -> exp.Expr:
    """A JSON null is as good as missing."""
    path, keys = arguments([constant_text(step) or "" for step in node.expressions[1:]], first=1)
    if kind_of(node) is Kind.STRING:
        return fragment(f"JSONExtract({{0}}{path}, 'Nullable(String)')", path_value(node), *keys)
    return fragment(f"nullIf(nullIf(JSONExtractRaw({{0}}{path}), ''), 'null')", path_value(node), *keys)


_ITEMS: Final = "arrayMap(_e -> CAST(_e, 'Nullable(String)'), JSONExtractArrayRaw(ifNull({0}, '')))"


def _elements(node: exp.Expr) -> exp.Expr:
    """An object repeats itself, an array its elements, anything else nothing."""
    return fragment(f"if(ifNull(JSONType({{0}}), 'Null') = 'Object', [{{0}}], {_ITEMS})", node.expressions[0])


def _array_elements(node: exp.Expr) -> exp.Expr:
    return fragment(_ITEMS, node.expressions[0])


def _is_record(node: exp.Expr) -> exp.Expr:
    if node.meta_get(ONLY_OBJECTS):
        return fragment("isNotNull({0})", node.expressions[0])
    return fragment("(ifNull(JSONType({0}), 'Null') = 'Object')", node.expressions[0])


MEANING = Meaning(
    named={
        EVENT_PATH.upper(): _path,
        EVENT_ELEMENTS.upper(): _elements,
        EVENT_ARRAY_ELEMENTS.upper(): _array_elements,
        IS_RECORD.upper(): _is_record,
    },
)
