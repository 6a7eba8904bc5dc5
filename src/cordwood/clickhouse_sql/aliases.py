"""ClickHouse's name resolution: an alias is visible in its whole SELECT, and shadows a column of its name."""

from collections.abc import Mapping

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import call_of
from cordwood.clickhouse_sql.scope import LOGS
from cordwood.errors import QueryRefused, QueryUnsupported
from cordwood.sql.budget import copied, spend
from cordwood.sql.nodes import swap
from cordwood.sql.positions import span_of


class Item(msgspec.Struct, frozen=True):
    """A named column of a SELECT."""

    name: str
    node: exp.Expr


class Ordering(msgspec.Struct, frozen=True):
    node: exp.Expr
    is_descending: bool
    nulls_first: bool


class Spelled(msgspec.Struct, frozen=True):
    """A SELECT whose aliases are expanded, so that its clauses only name columns."""

    items: tuple[Item, ...]
    where: tuple[exp.Expr, ...]
    keys: tuple[exp.Expr, ...]
    having: exp.Expr | None
    orders: tuple[Ordering, ...]
    limit: int | None
    offset: int
    is_distinct: bool
    is_grouped: bool


def spell_out(select: exp.Expr, text: str, values: Mapping[str, exp.Expr] = {}) -> Spelled:
    """Expand all aliases of a SELECT, which is mutated.

    `values` are named in WITH; the SELECT's own aliases shadow them.
    """
    names = [_name_of(item) for item in select.expressions]
    expander = _Expander({**values, **_taken_aliases(select, text)}, text)
    items = tuple(
        Item(name, expander.expanded(_bare(item), item.alias or None))
        for name, item in zip(names, select.expressions, strict=True)
    )
    where = select.args.get("where")
    having = select.args.get("having")
    group = select.args.get("group")
    order = select.args.get("order")
    return Spelled(
        items=items,
        where=tuple(_conjuncts(expander.expanded(where.this))) if where is not None else (),
        keys=_keys(group, items, expander, text) if group is not None else (),
        having=expander.expanded(having.this) if having is not None else None,
        orders=tuple(_ordering(one, items, expander, text) for one in (order.expressions if order else ())),
        limit=_count(select.args.get("limit"), text),
        offset=_count(select.args.get("offset"), text) or 0,
        is_distinct=select.args.get("distinct") is not None,
        is_grouped=group is not None,
    )


def _keys(group: exp.Expr, items: tuple[Item, ...], expander: "_Expander", text: str) -> tuple[exp.Expr, ...]:
    """Return the keys of GROUP BY; for GROUP BY ALL, every column without an aggregate."""
    if group.args.get("all"):
        nodes = (item.node for item in items if not has_aggregate(item.node))
        return tuple(node for node in nodes if not isinstance(node, exp.Literal))
    return tuple(_by_place(key, items, text) or expander.expanded(key) for key in group.expressions)


def _bare(item: exp.Expr) -> exp.Expr:
    node: exp.Expr = item.this if isinstance(item, exp.Alias) else item
    return node


def _name_of(item: exp.Expr) -> str:
    """Return the alias, the name of the column, or the text of the expression."""
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column):
        return str(item.name)
    return item.sql("clickhouse")[:200]


def _taken_aliases(select: exp.Expr, text: str) -> dict[str, exp.Expr]:
    """Return every alias of the SELECT, including those inside its expressions."""
    found: dict[str, exp.Expr] = {}
    clauses = [select.args.get(key) for key in ("where", "group", "having", "order")]
    for part in [*select.expressions, *(clause for clause in clauses if clause is not None)]:
        for node in part.walk(prune=lambda node: isinstance(node, exp.Query)):
            if not isinstance(node, exp.Alias):
                continue
            name = str(node.alias)
            known = found.get(name)
            if known is not None and known != node.this:
                span = span_of(node, text)
                raise QueryRefused(f'Two expressions have the alias "{name}".', hint="Rename one of them.", span=span)
            found[name] = node.this
    return found


class _Expander(msgspec.Struct):
    aliases: Mapping[str, exp.Expr]
    text: str
    known: dict[str, exp.Expr] = {}

    def expanded(self, node: exp.Expr, own: str | None = None) -> exp.Expr:
        """Return a copy with aliases expanded; in the alias `own`, its name refers to the column."""
        return self._expand(copied(node), (own,) if own else ())

    def _expand(self, root: exp.Expr, within: tuple[str, ...]) -> exp.Expr:
        holder = exp.Paren(this=root)
        for node in list(holder.find_all(exp.Alias)):
            inner = node.this
            node.replace(inner)
        columns = [node for node in holder.find_all(exp.Column) if not node.table]
        for column in columns:
            spend()
            swap(column, self._meaning(column, within))
        made: exp.Expr = holder.this
        made.pop()
        return made

    def _meaning(self, column: exp.Expr, within: tuple[str, ...]) -> exp.Expr:
        name = column.name
        if name not in self.aliases or name == (within[-1] if within else None):
            column.set("table", exp.to_identifier(LOGS))
            return column
        if name in within:
            raise QueryRefused(
                f'The alias "{name}" is defined by itself.',
                hint=f"Write logs.{name} where the column is meant.",
                span=span_of(column, self.text),
            )
        if name not in self.known:
            made = self._expand(copied(self.aliases[name]), (*within, name))
            if within:
                return _in_brackets(made)
            self.known[name] = made
        return _in_brackets(copied(self.known[name]))


def _in_brackets(node: exp.Expr) -> exp.Expr:
    is_operation = isinstance(node, (exp.Binary, exp.Unary, exp.Between, exp.In)) and not isinstance(node, exp.Paren)
    return exp.Paren(this=node) if is_operation else node


def _conjuncts(node: exp.Expr) -> list[exp.Expr]:
    waiting, found = [node], []
    while waiting:
        one = waiting.pop()
        while isinstance(one, exp.Paren):
            one = one.this
        if isinstance(one, exp.And):
            waiting += [one.expression, one.this]
        else:
            found.append(one)
    return found


def _by_place(node: exp.Expr, items: tuple[Item, ...], text: str) -> exp.Expr | None:
    """Return the column for an ordinal; None for any other key."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    place = int(node.this) if str(node.this).isdigit() else 0
    if not 1 <= place <= len(items):
        raise QueryRefused(f"There is no column {str(node.this)[:20]}.", span=span_of(node, text))
    return copied(items[place - 1].node)


def _ordering(ordered: exp.Expr, items: tuple[Item, ...], expander: _Expander, text: str) -> Ordering:
    node = _by_place(ordered.this, items, text) or expander.expanded(ordered.this)
    return Ordering(node, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))


def _count(clause: exp.Expr | None, text: str) -> int | None:
    if clause is None:
        return None
    number = clause.expression
    if not isinstance(number, exp.Literal) or number.is_string or not str(number.this).isdigit():
        raise QueryUnsupported(
            "A LIMIT or an OFFSET that is not a whole number is not supported.", span=span_of(clause, text)
        )
    return int(number.this)


def canonical(node: exp.Expr) -> str:
    """Return a canonical text of the expression."""
    inner = node.unnest()
    spend(sum(1 for _ in inner.walk()))
    return inner.sql("clickhouse", comments=False)


def has_aggregate(node: exp.Expr) -> bool:
    return any((call := call_of(part)) is not None and call.is_aggregate for part in node.walk())
