"""Join conditions: USING as ON with merged columns, and conditions moved to WHERE."""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.resolve.expressions import Place, resolve_expression
from cordwood.sql.resolve.names import ambiguous, unknown
from cordwood.sql.resolve.work import Work
from cordwood.sql.scope import Field, Merged, Scope


def add_condition(select: exp.Expr, condition: exp.Expr) -> None:
    """Add a condition to WHERE."""
    where = select.args.get("where")
    whole = condition if where is None else exp.and_(where.this, condition, copy=False)
    select.set("where", exp.Where(this=whole))


def is_plain_truth(on: exp.Expr | None) -> bool:
    return on is None or (isinstance(on, exp.Boolean) and bool(on.this))


def keep_row(drops: list[exp.Expr], join: exp.Expr, place: Place) -> None:
    """Turn the condition of an inner join into a filter, after its right side was removed."""
    on = join.args.get("on")
    if on is None or is_plain_truth(on):
        return
    holder = exp.Paren(this=copied(on))
    resolve_expression(holder.this, place)
    drops.append(holder)


def using_to_on(work: Work, join: exp.Expr, scope: Scope, sides: tuple[int, int]) -> None:
    """Turn USING into ON.

    The join's left side are the relations from the first of `sides` to the second, its right side those after.
    """
    using: list[exp.Expr] = join.args["using"]
    left, right = _part(scope, *sides), _part(scope, sides[1], len(scope.relations))
    pairs = [_pair(work, name, left, right) for name in using]
    join.set("on", exp.and_(*(exp.EQ(this=a.column.expression(), expression=b.column.expression()) for a, b in pairs)))
    join.set("using", None)
    made = [_merged(one, other, join.args.get("side") or "", sides[0]) for one, other in pairs]
    parts = [part for pair in pairs for part in pair]
    scope.merged = [*made, *(one for one in scope.merged if one not in parts)]


def _part(scope: Scope, first: int, end: int) -> Scope:
    return Scope(relations=scope.relations[first:end], merged=[one for one in scope.merged if first <= one.at < end])


def _pair(work: Work, name: exp.Expr, left: Scope, right: Scope) -> tuple[Merged, Merged]:
    identifier = name if isinstance(name, exp.Identifier) else name.this
    return _side(work, identifier, left), _side(work, identifier, right)


def _side(work: Work, name: exp.Identifier, scope: Scope) -> Merged:
    found = scope.columns(name.name)
    if not found:
        raise unknown(work, [name], scope)
    if len(found) > 1:
        raise ambiguous(work, name, found)
    relation, column = found[0]
    return scope.merged_in(relation, name.name) or Merged(column, frozenset([relation.name.lower()]), 0)


_KEEPS_RIGHT: Final = "RIGHT"
_KEEPS_BOTH: Final = "FULL"


def _merged(left: Merged, right: Merged, side: str, at: int) -> Merged:
    column = right.column if side == _KEEPS_RIGHT else left.column
    if side == _KEEPS_BOTH:
        both = exp.Coalesce(this=left.column.expression(), expressions=[right.column.expression()])
        column = Field(left.column.name, both, left.column.nature)
    return Merged(column, left.owners | right.owners, at)
