"""Sort and group keys: normalize ordinals, and remove or move the ORDER BY of sub-queries.

Engines differ in which constants are ordinals: DuckDB takes `-(-1)`, ClickHouse `true` and `-1`. After `resolve`, a
constant key is either the plain decimal number of a column or in a form that no engine takes for an ordinal. The ORDER
BY of a sub-query costs a sort but guarantees nothing, so it is removed; a query that passes on the rows of a sub-query
inherits its ORDER BY.
"""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied

# An expression without any of these nodes is constant.
_ROW_DEPENDENT: Final = (exp.Column, exp.AggFunc, exp.Window, exp.Query)


def written_ordinal(item: exp.Expr) -> exp.Expr | None:
    """Return the ordinal that the author wrote, also in parentheses, with leading zeros or in hexadecimal."""
    item = item.unnest()
    if isinstance(item, exp.Literal) and item.is_int:
        return exp.Literal.number(int(item.this))
    if isinstance(item, exp.HexString) and item.args.get("is_integer"):
        return exp.Literal.number(int(item.this, 16))
    return None


def is_ordinal(item: exp.Expr) -> bool:
    """Return whether a resolved key is an ordinal."""
    return isinstance(item, exp.Literal) and item.is_int


def is_constant(item: exp.Expr) -> bool:
    """Return whether the key is the same for all rows, and therefore does not sort."""
    return item.find(*_ROW_DEPENDENT) is None


def as_group_key(key: exp.Expr) -> exp.Expr:
    """Return the group key; a constant key is rewritten so that no engine takes it for an ordinal."""
    return exp.Case(ifs=[exp.If(this=exp.true(), true=copied(key))]) if is_constant(key) else key


def set_order(owner: exp.Expr, keys: list[exp.Expr]) -> None:
    """Set the keys of ORDER BY; remove the clause if there are none."""
    order = owner.args["order"]
    order.set("expressions", keys)
    owner.set("order", order if keys else None)


def remove_inner_orders(tree: exp.Expr) -> None:
    """Drop ORDER BY from sub-queries; a query without ORDER BY that passes on a sub-query's rows inherits it."""
    table_queries = [query for query in tree.find_all(exp.Select, exp.SetOperation) if _is_table_query(query, tree)]
    orders = {id(query): query.args["order"] for query in table_queries if query.args.get("order") is not None}
    if not orders:
        return
    if isinstance(tree, exp.Select) and _passes_rows_on(tree):
        _inherit_order(tree)
    for query in table_queries:
        if id(query) in orders:
            query.set("order", None)


def _is_table_query(query: exp.Expr, tree: exp.Expr) -> bool:
    """Return whether the query is used as a table, without a limit on its rows."""
    if query is tree or query.args.get("limit") is not None or query.args.get("offset") is not None:
        return False
    parent = query.parent
    while isinstance(parent, exp.Subquery) and isinstance(parent.parent, exp.Subquery):
        parent = parent.parent
    if isinstance(parent, exp.Subquery):
        return isinstance(parent.parent, (exp.From, exp.Join)) and not parent.args.get("limit")
    return isinstance(parent, exp.CTE)


def _passes_rows_on(select: exp.Expr) -> bool:
    if any(select.args.get(key) for key in ("order", "group", "distinct", "having", "kind")):
        return False
    return not any(item.find(exp.AggFunc) for item in select.expressions)


def _inherit_order(select: exp.Expr) -> None:
    from_ = select.args.get("from_")
    source = from_.this if from_ is not None else None
    query = _query_of(source, select)
    order = query.args.get("order") if query is not None else None
    if order is None or query is None or source is None:
        return
    items = [_outer_sort_key(ordered, query, source.alias) for ordered in order.expressions]
    if all(items):
        select.set("order", exp.Order(expressions=items))


def _query_of(source: exp.Expr | None, select: exp.Expr) -> exp.Expr | None:
    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select):
        return source.this
    with_ = select.args.get("with_")
    if isinstance(source, exp.Table) and with_ is not None:
        return next((cte.this for cte in with_.expressions if cte.alias == source.name), None)
    return None


def _outer_sort_key(ordered: exp.Expr, query: exp.Expr, alias: str) -> exp.Expr | None:
    """Return the sort key in terms of the sub-query's output columns; None if no output column is the key."""
    ordinal = ordered.this
    if not (isinstance(query, exp.Select) and isinstance(ordinal, exp.Literal) and ordinal.is_int):
        return None
    name = query.expressions[int(ordinal.this) - 1].alias_or_name
    sort_key = copied(ordered)
    column = exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))
    sort_key.set("this", column)
    return sort_key
