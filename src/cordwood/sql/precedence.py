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


def bind_bits(tree: exp.Expr) -> None:
    """Parenthesise chains of bitwise operators with different precedence."""
    for node in list(tree.find_all(*_LEVELS)):
        chain = _chain(node)
        if len({_level(operator) for operator in chain}) > 1:
            node.replace(_bound(chain))


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


def _bound(chain: list[exp.Expr]) -> exp.Expr:
    values: list[exp.Expr] = [copied(chain[0].this)]
    waiting: list[exp.Expr] = []
    for operator in chain:
        while waiting and _level(waiting[-1]) >= _level(operator):
            _join(values, waiting.pop())
        waiting.append(operator)
        values.append(copied(operator.expression))
    while waiting:
        _join(values, waiting.pop())
    return values[0]


def _join(values: list[exp.Expr], operator: exp.Expr) -> None:
    right, left = values.pop(), values.pop()
    made = type(operator)(this=_apart(left), expression=_apart(right))
    made.meta.update(operator.meta)
    values.append(made)


def _apart(value: exp.Expr) -> exp.Expr:
    return exp.Paren(this=value) if type(value) in _LEVELS else value
