"""Join conditions: USING as ON with merged columns, and conditions moved to WHERE."""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.resolve.expressions import Context, resolve_expression
from cordwood.sql.resolve.names import ambiguous_name, unknown_name
from cordwood.sql.resolve.resolution import Resolution
from cordwood.sql.scope import Field, MergedColumn, Scope


def is_always_true(on: exp.Expr | None) -> bool:
    return on is None or (isinstance(on, exp.Boolean) and bool(on.this))


def add_join_filter(filters: list[exp.Expr], join: exp.Expr, context: Context) -> None:
    """Turn the condition of an inner join into a filter, after its right side was removed."""
    on = join.args.get("on")
    if on is None or is_always_true(on):
        return
    holder = exp.Paren(this=copied(on))
    resolve_expression(holder.this, context)
    filters.append(holder)


def using_to_on(resolution: Resolution, join: exp.Expr, scope: Scope, sides: tuple[int, int]) -> None:
    """Turn USING into ON.

    The join's left side are the relations from the first of `sides` to the second, its right side those after.
    """
    using: list[exp.Expr] = join.args["using"]
    left, right = _slice_scope(scope, *sides), _slice_scope(scope, sides[1], len(scope.relations))
    pairs = [_find_pair(resolution, name, left, right) for name in using]
    join.set("on", exp.and_(*(exp.EQ(this=a.column.expression(), expression=b.column.expression()) for a, b in pairs)))
    join.set("using", None)
    merged_columns = [
        _merge_columns(left_column, right_column, join.args.get("side") or "", sides[0])
        for left_column, right_column in pairs
    ]
    parts = [part for pair in pairs for part in pair]
    scope.merged = [*merged_columns, *(merged for merged in scope.merged if merged not in parts)]


def _slice_scope(scope: Scope, first: int, end: int) -> Scope:
    return Scope(
        relations=scope.relations[first:end],
        merged=[merged for merged in scope.merged if first <= merged.relation_index < end],
    )


def _find_pair(resolution: Resolution, name: exp.Expr, left: Scope, right: Scope) -> tuple[MergedColumn, MergedColumn]:
    identifier = name if isinstance(name, exp.Identifier) else name.this
    return _find_column(resolution, identifier, left), _find_column(resolution, identifier, right)


def _find_column(resolution: Resolution, name: exp.Identifier, scope: Scope) -> MergedColumn:
    found = scope.columns(name.name)
    if not found:
        raise unknown_name(resolution, [name], scope)
    if len(found) > 1:
        raise ambiguous_name(resolution, name, found)
    relation, column = found[0]
    return scope.merged_in(relation, name.name) or MergedColumn(column, frozenset([relation.name.lower()]), 0)


_RIGHT: Final = "RIGHT"
_FULL: Final = "FULL"


def _merge_columns(left: MergedColumn, right: MergedColumn, side: str, first_relation: int) -> MergedColumn:
    column = right.column if side == _RIGHT else left.column
    if side == _FULL:
        merged_value = exp.Coalesce(this=left.column.expression(), expressions=[right.column.expression()])
        column = Field(left.column.name, merged_value, left.column.lineage)
    return MergedColumn(column, left.owners | right.owners, first_relation)
