"""Conditions of joins: USING as ON with merged columns, and conditions that became filters."""

from typing import Final

from sqlglot import exp

from cordwood.sql.resolve.expressions import Place, resolve_expression
from cordwood.sql.resolve.names import unknown
from cordwood.sql.resolve.work import Work
from cordwood.sql.scope import Field, Relation, Scope


def add_condition(select: exp.Expr, condition: exp.Expr) -> None:
    """One more condition in WHERE."""
    where = select.args.get("where")
    whole = condition if where is None else exp.and_(where.this, condition, copy=False)
    select.set("where", exp.Where(this=whole))


def is_plain_truth(on: exp.Expr | None) -> bool:
    return on is None or (isinstance(on, exp.Boolean) and bool(on.this))


def keep_row(drops: list[exp.Expr], join: exp.Expr, place: Place) -> None:
    """The condition of an inner join whose right side is gone decides which rows stay."""
    on = join.args.get("on")
    if on is None or is_plain_truth(on):
        return
    holder = exp.Paren(this=on.copy())
    resolve_expression(holder.this, place)
    drops.append(holder)


def using_to_on(work: Work, join: exp.Expr, scope: Scope, before: int) -> None:
    """`before` relations stood there when this join was read: they are its left side."""
    using: list[exp.Expr] = join.args["using"]
    left = Scope(relations=scope.relations[:before], merged=scope.merged)
    right = Scope(relations=scope.relations[before:])
    merged = {name.name.lower(): _pair(work, name, left, right) for name in using}
    join.set("on", exp.and_(*(exp.EQ(this=a.expression(), expression=b.expression()) for a, b in merged.values())))
    join.set("using", None)
    for lower, (one, other) in merged.items():
        scope.merged[lower] = _merged(one, other, join.args.get("side") or "")


def _pair(work: Work, name: exp.Expr, left: Scope, right: Scope) -> tuple[Field, Field]:
    identifier = name if isinstance(name, exp.Identifier) else name.this
    return _side(work, identifier, left), _side(work, identifier, right)


def _side(work: Work, name: exp.Identifier, scope: Scope) -> Field:
    merged = scope.merged.get(name.name.lower())
    if merged is not None:
        return merged
    found = scope.columns(name.name)
    if not found:
        found = [(relation, column) for relation in scope.relations for column in _open(relation, name)]
    if not found:
        raise unknown(work, [name], scope)
    return found[0][1]


def _open(relation: Relation, name: exp.Identifier) -> list[Field]:
    if not relation.is_open:
        return []
    column = exp.Column(this=name.copy(), table=exp.to_identifier(relation.name, quoted=True))
    return [Field(name.name, column)]


_KEEPS_RIGHT: Final = "RIGHT"
_KEEPS_BOTH: Final = "FULL"


def _merged(left: Field, right: Field, side: str) -> Field:
    if side == _KEEPS_RIGHT:
        return right
    if side == _KEEPS_BOTH:
        both = exp.Coalesce(this=left.expression(), expressions=[right.expression()])
        return Field(left.name, both, left.nature)
    return left
