"""Name resolution in the clauses of a SELECT: which clauses see columns, and which see select aliases first."""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from cordwood.errors import AmbiguousName
from cordwood.sql.budget import copied
from cordwood.sql.resolve.constants import FOLDED
from cordwood.sql.resolve.expressions import Place, implicit_name, resolve_expression
from cordwood.sql.resolve.ordinals import as_value, is_constant, is_ordinal, set_order, written_ordinal
from cordwood.sql.resolve.stars import expand, is_star
from cordwood.sql.resolve.work import Output
from cordwood.sql.scope import nature_of

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


def resolve_projections(select: exp.Expr, place: Place) -> list[Output]:
    """Name every column as BigQuery does, and expand stars; return the columns."""
    kind = select.args.get("kind")
    items: list[exp.Expr] = []
    unnamed = 0
    for item in select.expressions:
        if is_star(item):
            items.extend(expand(item, place))
            continue
        name = implicit_name(item)
        if not name:
            name, unnamed = f"f{unnamed}_", unnamed + 1
        items.append(_aliased(item, name, place))
    if kind == "VALUE":
        items = [item.unalias() for item in items]
    select.set("expressions", items)
    return [_output(item) for item in items]


def _output(item: exp.Expr) -> Output:
    name = item.alias if isinstance(item, exp.Alias) else item.name
    return Output(name, nature_of(item))


def _aliased(item: exp.Expr, name: str, place: Place) -> exp.Expr:
    if not isinstance(item, exp.Alias):
        made = exp.Alias(this=item, alias=exp.to_identifier(name, quoted=True))
    else:
        made = item
        made.set("alias", exp.to_identifier(name, quoted=True))
    resolve_expression(made.this, place)
    return made


class Aliases:
    """The aliases of the select list, and their positions in it from 1."""

    def __init__(self, select: exp.Expr) -> None:
        self.items = [item for item in select.expressions if isinstance(item, exp.Alias)]
        self.by_name: dict[str, list[int]] = {}
        for index, item in enumerate(select.expressions, start=1):
            if isinstance(item, exp.Alias):
                self.by_name.setdefault(item.alias.lower(), []).append(index)
        self.expressions = select.expressions

    def meanings(self) -> Mapping[str, exp.Expr]:
        return {name: self.expressions[places[0] - 1].this for name, places in self.by_name.items()}

    def ordinal(self, item: exp.Expr, place: Place) -> exp.Expr | None:
        """Return the ordinal of a name that is a select alias; None for any other expression."""
        if not isinstance(item, exp.Column) or len(item.parts) != 1:
            return None
        places = self.by_name.get(item.name.lower())
        if places is None:
            return None
        first = self.expressions[places[0] - 1].this
        if any(self.expressions[other - 1].this != first for other in places[1:]):
            raise AmbiguousName(
                f'"{item.name}" is ambiguous: several columns of the SELECT have this name.', span=place.work.span(item)
            )
        return exp.Literal.number(places[0])

    def same(self, item: exp.Expr) -> exp.Expr | None:
        """Return the ordinal of a resolved expression that is also in the select list; None if it is not."""
        if isinstance(item, (exp.Literal, exp.Null, exp.Boolean)):
            return None
        for index, expression in enumerate(self.expressions, start=1):
            if isinstance(expression, exp.Alias) and expression.this == item:
                return exp.Literal.number(index)
        return None


def resolve_group(select: exp.Expr, place: Place, aliases: Aliases) -> None:
    group = select.args.get("group")
    if group is None:
        return
    keys = list(group.iter_expressions())
    # SELECT AS STRUCT outputs a single column, so ordinals do not apply.
    plain = not select.args.get("kind") and not any(isinstance(key, _SETS) for key in keys)
    for key in keys:
        for item in _leaves(key) if isinstance(key, _SETS) else [key]:
            _resolve_grouped(item, place, aliases, ordinals=plain)


def _leaves(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, (exp.Tuple, *_SETS)):
        return [leaf for child in node.expressions for leaf in _leaves(child)]
    if isinstance(node, exp.Paren):
        return _leaves(node.this)
    return [node]


def _resolve_grouped(item: exp.Expr, place: Place, aliases: Aliases, *, ordinals: bool) -> None:
    parent, key, index = item.parent, item.arg_key, item.index
    if parent is None or key is None:
        return
    ordinal = written_ordinal(item) or aliases.ordinal(item, place)
    if ordinal is not None:
        _child(parent, key, index).replace(ordinal if ordinals else _spelt_out(ordinal, aliases))
        return
    resolve_expression(item, place)
    resolved = _child(parent, key, index)
    same = aliases.same(resolved) if ordinals else None
    resolved.replace(same or as_value(resolved))


def _spelt_out(ordinal: exp.Expr, aliases: Aliases) -> exp.Expr:
    number = int(ordinal.this)
    if 1 <= number <= len(aliases.expressions):
        copy: exp.Expr = copied(aliases.expressions[number - 1].unalias())
        return copy
    return ordinal


def _child(parent: exp.Expr, key: str, index: int | None) -> exp.Expr:
    value = parent.args[key]
    child: exp.Expr = value if index is None else value[index]
    return child


def resolve_filters(select: exp.Expr, place: Place, aliases: Aliases) -> None:
    """Resolve HAVING and QUALIFY, which see select aliases first, and named windows, which see only columns."""
    after = Place(place.work, place.names, place.scope, aliases.meanings())
    for key in ("having", "qualify"):
        clause = select.args.get(key)
        if clause is not None:
            resolve_expression(clause.this, after)
    windows = select.args.get("windows") or []
    for window in windows:
        for part in (*(window.args.get("partition_by") or []), window.args.get("order")):
            if part is not None:
                resolve_expression(part, place)
    _spell_out_windows(windows)


def _spell_out_windows(windows: Sequence[exp.Expr]) -> None:
    """Expand windows that are based on a named one, because engines do not inherit frames."""
    known: dict[str, exp.Expr] = {}
    for window in windows:
        base = known.get(window.alias.lower())
        if base is not None:
            _take_over(window, copied(base))
        known[window.name.lower()] = window


def _take_over(window: exp.Expr, base: exp.Expr) -> None:
    for key in ("partition_by", "order", "spec"):
        if not window.args.get(key):
            window.set(key, base.args.get(key))
    window.set("alias", None)


def resolve_order(owner: exp.Expr, place: Place, aliases: Aliases) -> None:
    order = owner.args.get("order")
    if order is None:
        return
    after = Place(place.work, place.names, place.scope, aliases.meanings())
    # SELECT AS STRUCT outputs a single column, so ordinals do not apply.
    resolved = _resolve_key if not owner.args.get("kind") else _resolve_value_key
    set_order(owner, [ordered for ordered in order.expressions if resolved(ordered, place, after, aliases)])


def _resolve_key(ordered: exp.Expr, place: Place, after: Place, aliases: Aliases) -> bool:
    """Resolve a key of ORDER BY; return False for a constant, which does not sort."""
    ordinal = written_ordinal(ordered.this) or aliases.ordinal(ordered.this, place)
    if ordinal is None:
        resolve_expression(ordered.this, after)
        ordinal = aliases.same(ordered.this)
    if ordinal is not None:
        ordered.set("this", ordinal)
        return True
    return not (ordered.this.meta_get(FOLDED) or is_constant(ordered.this))


def _resolve_value_key(ordered: exp.Expr, place: Place, after: Place, aliases: Aliases) -> bool:
    """Resolve a key like `_resolve_key`, but as the value itself instead of its ordinal."""
    sorts = _resolve_key(ordered, place, after, aliases)
    if sorts and is_ordinal(ordered.this):
        ordered.set("this", _spelt_out(ordered.this, aliases))
    return sorts


def resolve_limits(owner: exp.Expr, place: Place) -> None:
    for key in ("limit", "offset"):
        clause = owner.args.get(key)
        if clause is not None and isinstance(clause.expression, exp.Expr):
            resolve_expression(clause.expression, place)


def order_of_set(owner: exp.Expr, outputs: Sequence[Output], place: Place) -> None:
    """Resolve the ORDER BY of a set operation, which refers to its output columns."""
    order = owner.args.get("order")
    if order is None:
        return
    known = {output.name.lower(): index for index, output in reversed(list(enumerate(outputs, start=1)))}
    set_order(owner, [ordered for ordered in order.expressions if _resolve_output(ordered, known, place)])


def _resolve_output(ordered: exp.Expr, known: Mapping[str, int], place: Place) -> bool:
    """Resolve a key of ORDER BY; return False for a constant, which does not sort."""
    item = ordered.this
    number = known.get(item.name.lower()) if isinstance(item, exp.Column) and len(item.parts) == 1 else None
    ordinal = written_ordinal(item) if number is None else exp.Literal.number(number)
    if ordinal is None:
        resolve_expression(item, place)
        return not is_constant(ordered.this)
    ordered.set("this", ordinal)
    return True
