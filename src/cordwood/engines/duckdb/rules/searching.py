"""CONTAINS_SUBSTR: search for a text in values of any type and in their parts."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import once
from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.engines.duckdb.rules.strings import as_text
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.bigquery.strings import strip_lower_calls
from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet
from cordwood.sql.typing import datatype_of, typed_as
from cordwood.sql.typing.datatypes import STRING

# The scalars of a JSON value, without field names.
_SCALARS: Final = (
    "list_filter(list_concat([{0}], json_extract({0}, '$..*')), lambda _j: json_type(_j) NOT IN ('OBJECT', 'ARRAY'))"
)


def _contains(node: exp.Expr) -> exp.Expr:
    value = as_text(node.this)
    return _contains_test(value, datatype_of(value), fragment("lower({0})", as_text(node.expression)), depth=0)


def _contains_test(value: exp.Expr, datatype: Datatype | None, text: exp.Expr, depth: int) -> exp.Expr:
    """Return the test whether a part of the value contains the text; NULL if none does and one of them is NULL."""
    if datatype is None or datatype == STRING:
        return fragment("contains(lower({0}), {1})", value, text)
    if datatype.kind is Kind.STRUCT:
        return _in_fields(value, datatype, text, depth)
    if datatype.kind is Kind.ARRAY:
        name = f"_p{depth}"
        inner = _contains_test(typed_as(fragment(name), datatype.element), datatype.element, text, depth + 1)
        return _any(fragment(f"list_transform({{0}}, lambda {name}: {{1}})", value, inner))
    if datatype.kind is Kind.JSON:
        template = f"list_contains(list_transform({_SCALARS}, lambda _j: contains(lower(_j->>'$'), {{1}})), true)"
        return fragment(template, value, text)
    return _contains_test(cast_to(value, value, STRING), STRING, text, depth)


def _in_fields(value: exp.Expr, datatype: Datatype, text: exp.Expr, depth: int) -> exp.Expr:
    tests = [
        _contains_test(
            typed_as(fragment(f"struct_extract_at({{0}}, {index + 1})", copied(value)), field), field, text, depth
        )
        for index, (_, field) in enumerate(datatype.fields)
    ]
    return fragment(" OR ".join(f"({{{index}}})" for index in range(len(tests))), *tests)


def _any(tests: exp.Expr) -> exp.Expr:
    return once("CASE WHEN list_contains(@a, true) THEN true WHEN list_count(@a) = len(@a) THEN false END", tests)


RULES = RuleSet(before_children={exp.Contains: strip_lower_calls}, nodes={exp.Contains: _contains})
