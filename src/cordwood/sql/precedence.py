"""Precedence of bitwise operators: equal in sqlglot; in BigQuery shifts bind tightest, then &, then ^, then |."""

from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied

_LEVELS: Final[dict[type[exp.Expr], int]] = {
    exp.BitwiseOr: 1,
    exp.BitwiseXor: 2,
    exp.BitwiseAnd: 3,
    exp.BitwiseLeftShift: 4,
    exp.BitwiseRightShift: 4,
}


def parenthesise_bitwise(tree: exp.Expr) -> None:
    """Parenthesise chains of bitwise operators with different precedence."""
    for node in list(tree.find_all(*_LEVELS)):
        chain = _chain(node)
        if len({_level(operator) for operator in chain}) > 1:
            node.replace(_nest_by_precedence(chain))


def _level(operator: exp.Expr) -> int:
    return _LEVELS[type(operator)]


def _chain(node: exp.Expr) -> list[exp.Expr]:
    """Return the operators of the chain that ends with this one, from left to right; none if it is not the last."""
    if type(node.parent) in _LEVELS and node.arg_key == "this":
        return []
    chain = [node]
    while type(chain[-1].this) in _LEVELS:
        chain.append(chain[-1].this)
    return chain[::-1]


def _nest_by_precedence(chain: list[exp.Expr]) -> exp.Expr:
    values: list[exp.Expr] = [copied(chain[0].this)]
    pending: list[exp.Expr] = []
    for operator in chain:
        while pending and _level(pending[-1]) >= _level(operator):
            _combine_top(values, pending.pop())
        pending.append(operator)
        values.append(copied(operator.expression))
    while pending:
        _combine_top(values, pending.pop())
    return values[0]


def _combine_top(values: list[exp.Expr], operator: exp.Expr) -> None:
    right, left = values.pop(), values.pop()
    combined = type(operator)(this=_parenthesise(left), expression=_parenthesise(right))
    combined.meta.update(operator.meta)
    values.append(combined)


def _parenthesise(value: exp.Expr) -> exp.Expr:
    return exp.Paren(this=value) if type(value) in _LEVELS else value
