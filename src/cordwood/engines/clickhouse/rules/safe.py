"""SAFE.f(…): NULL where f would fail; an argument that fails still fails."""

from sqlglot import exp

from cordwood.sql.lowering import RuleSet, mark_safe
from cordwood.sql.typing import inherit


def _mark(node: exp.Expr) -> exp.Expr:
    mark_safe(node.this)
    return node


def _safe(node: exp.Expr) -> exp.Expr:
    """Remove the node: each rule handles its own failures, because ClickHouse has no general TRY."""
    inner: exp.Expr = node.this
    return inherit(inner, node)


RULES = RuleSet(before_children={exp.SafeFunc: _mark}, nodes={exp.SafeFunc: _safe})
