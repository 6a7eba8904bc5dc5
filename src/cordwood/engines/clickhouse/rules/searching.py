"""CONTAINS_SUBSTR: search for a text in values of any type and in their parts."""

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import once
from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.strings import as_text
from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.bigquery.strings import strip_lower_calls
from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet, unsupported
from cordwood.sql.typing import datatype_of, typed_as
from cordwood.sql.typing.datatypes import STRING


def _contains(node: exp.Expr) -> exp.Expr:
    value = as_text(node.this)
    return _contains_test(value, datatype_of(value), fragment("lowerUTF8({0})", as_text(node.expression)), depth=0)


def _contains_test(value: exp.Expr, datatype: Datatype | None, text: exp.Expr, depth: int) -> exp.Expr:
    """Return the test whether a part of the value contains the text; NULL if none does and one of them is NULL."""
    name = f"_p{depth}"
    if datatype is None or datatype == STRING:
        return fragment("(position(lowerUTF8({0}), {1}) > 0)", value, text)
    if datatype.kind is Kind.STRUCT:
        fields = [
            _contains_test(
                typed_as(fragment(f"tupleElement({{0}}, {index + 1})", copied(value)), field), field, text, depth
            )
            for index, (_, field) in enumerate(datatype.fields)
        ]
        return fragment("(" + " OR ".join(f"{{{index}}}" for index in range(len(fields))) + ")", *fields)
    if datatype.kind is Kind.ARRAY:
        inner = _contains_test(typed_as(fragment(name), datatype.element), datatype.element, text, depth + 1)
        return _any(fragment(f"arrayMap({name} -> {{1}}, {{0}})", value, inner))
    if datatype.kind is Kind.JSON:
        unsupported(value, "CONTAINS_SUBSTR of JSON")
    return _contains_test(cast_to(value, value, STRING), STRING, text, depth)


def _any(tests: exp.Expr) -> exp.Expr:
    return once("if(has(@a, true), true, if(arrayExists(_x -> isNull(_x), @a), NULL, false))", tests)


RULES = RuleSet(before_children={exp.Contains: strip_lower_calls}, nodes={exp.Contains: _contains})
