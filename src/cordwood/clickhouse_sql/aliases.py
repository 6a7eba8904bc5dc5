"""ClickHouse's resolution of aliases: an alias is visible in its whole SELECT, and hides a column of that name."""

from collections.abc import Callable, Mapping, Sequence

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import call_of
from cordwood.clickhouse_sql.column_names import column_name
from cordwood.clickhouse_sql.hidden_columns import mark_hidden_column
from cordwood.clickhouse_sql.scope import ROWS_ALIAS
from cordwood.errors import QueryRefused, QueryUnsupported
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.diagnostics import span_of
from cordwood.sql.nodes import replace_node


class NamedColumn(msgspec.Struct, frozen=True):
    """A column of a SELECT's result, with its name and its expression."""

    name: str
    node: exp.Expr


class SortKey(msgspec.Struct, frozen=True):
    node: exp.Expr
    is_descending: bool
    nulls_first: bool


class ExpandedSelect(msgspec.Struct, frozen=True):
    """A SELECT in which aliases have been replaced by their expressions, so that its clauses refer only to columns."""

    columns: tuple[NamedColumn, ...]
    where_conjuncts: tuple[exp.Expr, ...]
    group_keys: tuple[exp.Expr, ...]
    having_condition: exp.Expr | None
    sort_keys: tuple[SortKey, ...]
    row_limit: int | None
    row_offset: int
    is_distinct: bool
    is_grouped: bool


def expand_aliases(
    select: exp.Expr, text: str, values: Mapping[str, exp.Expr], qualified_column: Callable[[str], str | None]
) -> ExpandedSelect:
    """Replace all aliases in a SELECT by their expressions. The SELECT is mutated.

    `values` are the expressions that WITH defines, by name. An alias of the SELECT hides a value with the same name.
    `qualified_column` returns the name, with its table, of the column that an alias hides; None if it hides none.
    """
    names = [column_name(item, text) for item in select.expressions]
    _refuse_reserved_column_name(select, names, text)
    expander = _AliasExpander({**values, **_collect_aliases(select, text)}, text, qualified_column)
    items = tuple(
        NamedColumn(name, expander.expand(_strip_alias(item), item.alias or None))
        for name, item in zip(names, select.expressions, strict=True)
    )
    where = select.args.get("where")
    having = select.args.get("having")
    group = select.args.get("group")
    order = select.args.get("order")
    return ExpandedSelect(
        columns=items,
        where_conjuncts=tuple(_split_conjuncts(expander.expand(where.this))) if where is not None else (),
        group_keys=_group_keys(group, items, expander, text) if group is not None else (),
        having_condition=expander.expand(having.this) if having is not None else None,
        sort_keys=tuple(
            _read_sort_key(ordered, items, expander, text) for ordered in (order.expressions if order else ())
        ),
        row_limit=_read_row_count(select.args.get("limit"), text),
        row_offset=_read_row_count(select.args.get("offset"), text) or 0,
        is_distinct=select.args.get("distinct") is not None,
        is_grouped=group is not None,
    )


def _group_keys(
    group: exp.Expr, items: tuple[NamedColumn, ...], expander: "_AliasExpander", text: str
) -> tuple[exp.Expr, ...]:
    """Return the keys of GROUP BY; for GROUP BY ALL, return the columns of the result that contain no aggregate."""
    if group.args.get("all"):
        nodes = (item.node for item in items if not has_aggregate(item.node))
        return tuple(node for node in nodes if not isinstance(node, exp.Literal))
    return tuple(_column_of_ordinal(key, items, text) or expander.expand(key) for key in group.expressions)


def _strip_alias(item: exp.Expr) -> exp.Expr:
    node: exp.Expr = item.this if isinstance(item, exp.Alias) else item
    return node


def _refuse_reserved_column_name(select: exp.Expr, names: Sequence[str], text: str) -> None:
    for item, name in zip(select.expressions, names, strict=True):
        if name.lower() == ROWS_ALIAS:
            raise QueryRefused(
                f'A column cannot be called "{ROWS_ALIAS}".', hint="Give it another alias.", span=span_of(item, text)
            )


def _collect_aliases(select: exp.Expr, text: str) -> dict[str, exp.Expr]:
    """Return the expressions of all aliases in the SELECT, including aliases inside its expressions, by alias."""
    aliases: dict[str, exp.Expr] = {}
    clauses = [select.args.get(key) for key in ("where", "group", "having", "order")]
    for part in [*select.expressions, *(clause for clause in clauses if clause is not None)]:
        for node in part.walk(prune=lambda node: isinstance(node, exp.Query)):
            if not isinstance(node, exp.Alias):
                continue
            name = str(node.alias)
            earlier = aliases.get(name)
            if earlier is not None and earlier != node.this:
                span = span_of(node, text)
                raise QueryRefused(f'Two expressions have the alias "{name}".', hint="Rename one of them.", span=span)
            aliases[name] = node.this
    return aliases


class _AliasExpander(msgspec.Struct):
    expression_by_alias: Mapping[str, exp.Expr]
    query_text: str
    qualified_column: Callable[[str], str | None]
    expanded_aliases: dict[str, exp.Expr] = {}

    def expand(self, node: exp.Expr, alias: str | None = None) -> exp.Expr:
        """Return a copy of the expression in which aliases are replaced by their expressions.

        `alias` is the alias of `node` itself, if it has one. Inside `node`, the name `alias` refers to a column, so it
        is not replaced.
        """
        return self._expand_descendants(copy_tree(node), (alias,) if alias else ())

    def _expand_descendants(self, root: exp.Expr, enclosing_aliases: tuple[str, ...]) -> exp.Expr:
        holder = exp.Paren(this=root)
        for node in list(holder.find_all(exp.Alias)):
            inner = node.this
            node.replace(inner)
        for column in list(holder.find_all(exp.Column)):
            charge_nodes()
            if column.table:
                _set_rows_alias(column)
            else:
                replace_node(column, self._expand_column_reference(column, enclosing_aliases))
        expanded: exp.Expr = holder.this
        expanded.pop()
        return expanded

    def _expand_column_reference(self, column: exp.Expr, enclosing_aliases: tuple[str, ...]) -> exp.Expr:
        name = column.name
        if name not in self.expression_by_alias or name == (enclosing_aliases[-1] if enclosing_aliases else None):
            _set_rows_alias(column)
            return column
        hidden_column = self.qualified_column(name)
        if name in enclosing_aliases:
            raise QueryRefused(
                f'The alias "{name}" is defined by itself.',
                hint=None if hidden_column is None else f"Write {hidden_column[:60]} where the column is meant.",
                span=span_of(column, self.query_text),
            )
        if name not in self.expanded_aliases:
            expanded = self._expand_descendants(copy_tree(self.expression_by_alias[name]), (*enclosing_aliases, name))
            if not enclosing_aliases:
                self.expanded_aliases[name] = copy_tree(expanded)
        else:
            expanded = copy_tree(self.expanded_aliases[name])
        if hidden_column is not None:
            mark_hidden_column(expanded, name, hidden_column)
        return _parenthesize_if_operation(expanded)


def _set_rows_alias(column: exp.Expr) -> None:
    """Make all references to a column equal: `id`, `"id"` and `logs.id`. Their positions are kept."""
    if column.args.get("table") is None:
        column.set("table", exp.to_identifier(ROWS_ALIAS))
    column.args["table"].set("this", ROWS_ALIAS)
    for identifier in (column.args["table"], column.this):
        identifier.set("quoted", value=True)


def _parenthesize_if_operation(node: exp.Expr) -> exp.Expr:
    is_operation = isinstance(node, (exp.Binary, exp.Unary, exp.Between, exp.In)) and not isinstance(node, exp.Paren)
    return exp.Paren(this=node) if is_operation else node


def _split_conjuncts(node: exp.Expr) -> list[exp.Expr]:
    pending, conjuncts = [node], []
    while pending:
        current = pending.pop()
        while isinstance(current, exp.Paren):
            current = current.this
        if isinstance(current, exp.And):
            pending += [current.expression, current.this]
        else:
            conjuncts.append(current)
    return conjuncts


def _column_of_ordinal(node: exp.Expr, items: tuple[NamedColumn, ...], text: str) -> exp.Expr | None:
    """Return the expression of the result column with the number `node`; return None if `node` is not a number."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    ordinal = int(node.this) if str(node.this).isdigit() else 0
    if not 1 <= ordinal <= len(items):
        raise QueryRefused(f"There is no column {str(node.this)[:20]}.", span=span_of(node, text))
    return copy_tree(items[ordinal - 1].node)


def _read_sort_key(ordered: exp.Expr, items: tuple[NamedColumn, ...], expander: _AliasExpander, text: str) -> SortKey:
    node = _column_of_ordinal(ordered.this, items, text) or expander.expand(ordered.this)
    return SortKey(node, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))


def _read_row_count(clause: exp.Expr | None, text: str) -> int | None:
    if clause is None:
        return None
    number = clause.expression
    if not isinstance(number, exp.Literal) or number.is_string or not str(number.this).isdigit():
        raise QueryUnsupported(
            "A LIMIT or an OFFSET that is not a whole number is not supported.", span=span_of(clause, text)
        )
    return int(number.this)


def canonical_text(node: exp.Expr) -> str:
    """Return a text for the expression; equal expressions have the same text."""
    inner = node.unnest()
    charge_nodes(sum(1 for _ in inner.walk()))
    return inner.sql("clickhouse", comments=False)


def has_aggregate(node: exp.Expr) -> bool:
    return any((call := call_of(part)) is not None and call.is_aggregate for part in node.walk())
