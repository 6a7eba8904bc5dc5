"""Constant folding of string functions over literals, so that the result can be a format, a path or a pattern."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.sql.constants import constant_text
from cordwood.sql.lowering import Rule
from cordwood.sql.typing import inherit

# Longer results are computed by the engine.
_MAX_FOLDED_LENGTH: Final = 10_000
# Marks a call that cannot be folded, so that long chains of calls are traversed only once.
_NOT_CONSTANT: Final = "is_open"


def _fold_constant(node: exp.Expr) -> exp.Expr:
    text = _folded_text(node)
    return node if text is None else inherit(exp.Literal.string(text), node)


def _folded_text(node: exp.Expr) -> str | None:
    """Return the constant text of the expression; None if it is not constant."""
    if isinstance(node, exp.Paren):
        return _folded_text(node.this)
    if not isinstance(node, (exp.Concat, exp.DPipe, exp.Trim)):
        return constant_text(node)
    if node.meta_get(_NOT_CONSTANT) or (
        isinstance(node, exp.Trim) and any(map(node.args.get, ("expression", "position")))
    ):
        return None
    texts: list[str] = []
    for part in _arguments(node):
        text = _folded_text(part)
        if text is None or sum(map(len, texts)) + len(text) > _MAX_FOLDED_LENGTH:
            node.meta[_NOT_CONSTANT] = True
            return None
        texts.append(text)
    return texts[0].strip() if isinstance(node, exp.Trim) else "".join(texts)


def _arguments(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Concat):
        return list(node.expressions)
    return [node.this, node.expression] if isinstance(node, exp.DPipe) else [node.this]


# These rules are applied before the arguments are lowered.
FOLDED: Final[Mapping[type[exp.Expr], Rule]] = dict.fromkeys((exp.Concat, exp.DPipe, exp.Trim), _fold_constant)
