"""EXISTS over the elements of a row's own arrays, as array functions: ClickHouse's sub-queries cannot express it."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Datatype
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet
from cordwood.sql.typing import datatype_of, typed_as

# The internal operation of an array, the name of an element, and the condition.
EXISTS_IN: Final = "$exists_in"

_CLAUSES: Final = ("group", "having", "qualify", "limit", "offset", "distinct", "with_", "kind")


def _exists(node: exp.Expr) -> exp.Expr:
    select = node.this
    unnests = _chain(select)
    if not unnests:
        return node
    where = select.args.get("where")
    condition: exp.Expr = where.this if where is not None else exp.Boolean(this=True)
    for depth, unnest in reversed(list(enumerate(unnests))):
        condition = _exists_over(unnest, condition, f"_x{depth}")
    return condition


def _chain(select: exp.Expr) -> list[exp.Expr]:
    """Return the nested UNNESTs of a query that reads nothing else; else an empty list."""
    if not isinstance(select, exp.Select) or any(map(select.args.get, _CLAUSES)):
        return []
    joins = select.args.get("joins") or []
    from_ = select.args.get("from_")
    items = [part.this for part in (from_, *joins) if part is not None]
    is_chain = all(map(_is_unnest_without_offset, items)) and not any(map(_has_condition, joins))
    return items if is_chain else []


def _is_unnest_without_offset(item: exp.Expr) -> bool:
    return isinstance(item, exp.Unnest) and not item.args.get("offset")


def _has_condition(join: exp.Expr) -> bool:
    return str(join.args.get("kind")) != "CROSS" or join.args.get("on") is not None


def _exists_over(unnest: exp.Expr, condition: exp.Expr, name: str) -> exp.Expr:
    alias = unnest.args["alias"]
    element = _element(unnest.expressions[0])
    container = exp.Paren(this=condition)
    _rename(container, alias.name, alias.columns[0].name if alias.columns else alias.name, name, element)
    return exp.Anonymous(this=EXISTS_IN, expressions=[unnest.expressions[0], exp.Literal.string(name), container.this])


def _rename(condition: exp.Expr, relation: str, column_name: str, name: str, element: Datatype | None) -> None:
    """Replace references to the element and to a struct's fields in the condition by the lambda's variable."""
    positions: Mapping[str, int] = {
        label: index for index, (label, _) in enumerate(element.fields if element else (), 1)
    }
    for column in list(condition.find_all(exp.Column)):
        if column.table != relation:
            continue
        reference = name if column.name == column_name else f"tupleElement({name}, {positions.get(column.name, 1)})"
        column.replace(typed_as(fragment(reference), datatype_of(column)))


def _element(array: exp.Expr) -> Datatype | None:
    datatype = datatype_of(array)
    return datatype.element if datatype else None


def _exists_in(node: exp.Expr) -> exp.Expr:
    array, name, condition = node.expressions
    return fragment(f"arrayExists({constant_text(name)} -> ifNull({{1}}, false), {{0}})", array, condition)


RULES = RuleSet(before_children={exp.Exists: _exists}, by_name={EXISTS_IN.upper(): _exists_in})
