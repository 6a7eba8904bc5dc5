"""SAFE.f(…): NULL where f would fail; an argument that fails still fails."""

from sqlglot import exp

from cordwood.sql.fragment import fragment, is_fragment
from cordwood.sql.lowering import RuleSet, mark_safe
from cordwood.sql.template_analysis import is_volatile
from cordwood.sql.typing import inherit


def _mark(node: exp.Expr) -> exp.Expr:
    mark_safe(node.this)
    return node


def _safe(node: exp.Expr) -> exp.Expr:
    inner: exp.Expr = node.this
    return inherit(fragment("try({0})", inner), node) if _accepts_try(inner) else inner


def _accepts_try(node: exp.Expr) -> bool:
    for part in node.walk():
        if isinstance(part, (exp.Query, exp.AggFunc, exp.Window)):
            return False
        if is_fragment(part) and is_volatile(part):
            return False
    return True


RULES = RuleSet(before_children={exp.SafeFunc: _mark}, nodes={exp.SafeFunc: _safe})
