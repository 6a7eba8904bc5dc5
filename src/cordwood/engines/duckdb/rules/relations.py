"""UNNEST and set operations in FROM: elements with their offset, struct elements with their fields as columns."""

from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning
from cordwood.sql.typing import datatype_of


def _unnest(node: exp.Expr) -> exp.Expr:
    if isinstance(node.parent, (exp.In, exp.Any, exp.All)):
        return node
    array = node.expressions[0]
    datatype = datatype_of(array)
    element = datatype.element if datatype and datatype.kind is Kind.ARRAY else None
    alias = node.args.get("alias")
    names = [column.name for column in alias.columns] if alias else []
    relation = alias.name if alias and alias.name else (names[0] if names else "")
    offset = node.args.get("offset")
    columns = _columns(element, names[0] if names else relation)
    source = _elements(array, offset, columns)
    return _aliased(source, relation)


def _columns(element: Datatype | None, name: str) -> str:
    """What stands in the SELECT: `_e` is the element, `_n` its place."""
    whole = f'_e AS "{name or "_element"}"'
    if element is None or element.kind is not Kind.STRUCT:
        return whole
    return "unnest(_e)"


def _elements(array: exp.Expr, offset: object, columns: str) -> exp.Expr:
    if not isinstance(offset, exp.Identifier):
        return fragment(f"(SELECT {columns} FROM (SELECT unnest({{0}}) AS _e))", array)
    return fragment(
        f"(SELECT {columns}, _n - 1 AS {{1}} FROM unnest({{0}}) WITH ORDINALITY AS _u(_e, _n))", array, offset
    )


def _aliased(source: exp.Expr, relation: str) -> exp.Expr:
    if not relation:
        return source
    return exp.Alias(this=source, alias=exp.to_identifier(relation, quoted=True))


MEANING = Meaning(nodes={exp.Unnest: _unnest})
