"""NET functions as anonymous calls, whatever classes sqlglot parses them into."""

from typing import Final

from sqlglot import exp

from cordwood.sql.lowering import unsupported
from cordwood.sql.typing import inherit

_NAMES: Final[dict[type[exp.Expr], str]] = {exp.Host: "HOST", exp.RegDomain: "REG_DOMAIN"}


def as_net_call(node: exp.Expr) -> exp.Expr:
    """Return NET.X(…) as a call of `NET.X`."""
    inner = node.this
    if isinstance(inner, exp.Anonymous):
        return inherit(exp.Anonymous(this=f"NET.{str(inner.this).upper()}", expressions=inner.expressions), node)
    name = _NAMES.get(type(inner))
    if name is None:
        unsupported(node, "This NET function")
    return inherit(exp.Anonymous(this=f"NET.{name}", expressions=[inner.this]), inner)


def refuse_public_suffix(node: exp.Expr) -> exp.Expr:
    """Refuse a function that needs the list of public suffixes, which changes every week."""
    return unsupported(node, f"{node.this}, which needs the list of public suffixes,")
