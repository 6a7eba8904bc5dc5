"""String functions: constant folding, the arguments of CONTAINS_SUBSTR and TRANSLATE, and NET functions."""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.errors import QueryValue
from cordwood.sql.constants import constant_text, is_null
from cordwood.sql.datatypes import inherit
from cordwood.sql.lowering import Rule, is_safe, span_in_text, unsupported

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


def strip_lower_calls(node: exp.Expr) -> exp.Expr:
    """Remove the LOWER calls that sqlglot puts around both arguments; refuse a NULL to search for."""
    if node.args.get("json_scope") is not None:
        unsupported(node, "CONTAINS_SUBSTR with a json_scope")
    for name in ("this", "expression"):
        part = node.args[name]
        node.set(name, part.this if isinstance(part, exp.Lower) else part)
    if is_null(node.expression):
        raise QueryValue("The value that CONTAINS_SUBSTR looks for must not be NULL.", span=span_in_text(node))
    return node


DUPLICATE: Final = "Duplicate character in TRANSLATE source characters"


def source_and_target(node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    source, target = node.args.get("from_") or node.args.get("from"), node.args.get("to")
    if source is None or target is None:
        unsupported(node, "TRANSLATE with these arguments")
    return source, target


def has_duplicate_characters(node: exp.Expr, source: exp.Expr) -> bool:
    """Return whether a constant source has a character twice; raise QueryValue unless the call is SAFE."""
    characters = constant_text(source) or ""
    has_duplicate = len(set(characters)) < len(characters)
    if has_duplicate and not is_safe(node):
        raise QueryValue(DUPLICATE, span=span_in_text(node))
    return has_duplicate


_NET_NAMES: Final[dict[type[exp.Expr], str]] = {exp.Host: "HOST", exp.RegDomain: "REG_DOMAIN"}


def as_net_call(node: exp.Expr) -> exp.Expr:
    """Return NET.X(…) as an anonymous call of `NET.X`, whatever class sqlglot parses it into."""
    inner = node.this
    if isinstance(inner, exp.Anonymous):
        return inherit(exp.Anonymous(this=f"NET.{str(inner.this).upper()}", expressions=inner.expressions), node)
    name = _NET_NAMES.get(type(inner))
    if name is None:
        unsupported(node, "This NET function")
    return inherit(exp.Anonymous(this=f"NET.{name}", expressions=[inner.this]), inner)


def refuse_public_suffix(node: exp.Expr) -> exp.Expr:
    """Refuse a function that needs the list of public suffixes, which changes every week."""
    return unsupported(node, f"{node.this}, which needs the list of public suffixes,")
