"""Sub-queries: ambiguous table names, counts that are zero without rows, clauses behind a parenthesis, and EXISTS.

ClickHouse accepts no parenthesis after WITH, so such a query is made to begin with SELECT. EXISTS over the elements of a
row's own arrays becomes array functions, because ClickHouse's sub-queries cannot express it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Datatype
from cordwood.sql.constants import constant_text
from cordwood.sql.datatypes import datatype_of, typed_as
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet

_RELATION_NAME: Final = "_first"
# The clauses behind a parenthesized query, which apply to the whole query.
_TRAILING_CLAUSES: Final = ("order", "limit", "offset")


def begin_with_select(tree: exp.Expr) -> exp.Expr:
    """Return the lowered tree with the leading parenthesis after each WITH read as a relation."""
    queries = [with_.parent for with_ in tree.find_all(exp.With)]
    for query in queries:
        first = _leading_query(query)
        if isinstance(first, exp.Subquery):
            relation = _as_relation(first)
            first.replace(relation)
            tree = relation if first is tree else tree
    return tree


def _leading_query(query: exp.Expr | None) -> exp.Expr | None:
    while isinstance(query, exp.SetOperation):
        query = query.this
    return query


def _as_relation(parenthesized: exp.Expr) -> exp.Select:
    """Return a SELECT over the parenthesized query, with the clauses that were behind the parenthesis."""
    inner = exp.Subquery(
        this=parenthesized.this, alias=exp.TableAlias(this=exp.to_identifier(_RELATION_NAME, quoted=True))
    )
    relation = exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))
    for key in ("with_", *_TRAILING_CLAUSES):
        relation.set(key, parenthesized.args.get(key))
    return relation


# The parents of a query that use its rows and not its value.
_ROW_PARENTS: Final = (
    exp.In,
    exp.Exists,
    exp.Any,
    exp.All,
    exp.Array,
    exp.SetOperation,
    exp.Subquery,
    exp.From,
    exp.Join,
)
_COUNTS_ZERO: Final = "counts_none"
_CHANGES_ROWS: Final = ("group", "having", "qualify", "limit", "offset")


def rename_shadowed(select: exp.Expr) -> None:
    """Rename relations that an inner query shadows: ClickHouse resolves `t.a` to an inner table t of any alias."""
    inner_names = {
        table.name
        for table in select.find_all(exp.Table)
        if table.alias_or_name != table.name and table.parent_select is not select
    }
    for relation in list(_relations(select)) if inner_names else []:
        name = relation.alias_or_name
        if name in inner_names and isinstance(relation, (exp.Table, exp.Subquery)):
            _rename(select, name, f"{name}$")
            relation.set("alias", exp.TableAlias(this=exp.to_identifier(f"{name}$", quoted=True)))


def _relations(select: exp.Expr) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    yield from (join.this for join in select.args.get("joins") or [])


def _rename(select: exp.Expr, name: str, new_name: str) -> None:
    def is_shadowed(node: exp.Expr) -> bool:
        is_inner = isinstance(node, exp.Select) and node is not select
        return is_inner and any(relation.alias_or_name == name for relation in _relations(node))

    for node in list(select.walk(prune=is_shadowed)):
        if isinstance(node, exp.Column) and node.table == name and not is_shadowed(node):
            node.set("table", exp.to_identifier(new_name, quoted=True))


def mark_count(select: exp.Expr) -> None:
    """Mark a correlated COUNT, which ClickHouse returns as NULL if it finds nothing."""
    items = select.expressions
    is_count = len(items) == 1 and isinstance(items[0].unalias(), (exp.Count, exp.CountIf))
    if is_count and isinstance(select.parent, exp.Subquery) and not any(map(select.args.get, _CHANGES_ROWS)):
        inner_relations = {
            relation.alias_or_name for inner in select.find_all(exp.Select) for relation in _relations(inner)
        }
        select.meta[_COUNTS_ZERO] = any(column.table not in inner_relations for column in select.find_all(exp.Column))


def _subquery(node: exp.Expr) -> exp.Expr:
    if any(node.args.get(key) for key in ("order", "limit", "offset")):
        return _as_relation(node)
    if node.this.meta_get(_COUNTS_ZERO) and not isinstance(node.parent, _ROW_PARENTS):
        return fragment("ifNull({0}, 0)", exp.Subquery(this=node.this))
    return node


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
    _rename_element(container, alias.name, alias.columns[0].name if alias.columns else alias.name, name, element)
    return exp.Anonymous(this=EXISTS_IN, expressions=[unnest.expressions[0], exp.Literal.string(name), container.this])


def _rename_element(condition: exp.Expr, relation: str, column_name: str, name: str, element: Datatype | None) -> None:
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


RULES = RuleSet(
    nodes={
        exp.Subquery: _subquery,
    },
    before_children={
        exp.Exists: _exists,
    },
    by_name={
        EXISTS_IN.upper(): _exists_in,
    },
)
