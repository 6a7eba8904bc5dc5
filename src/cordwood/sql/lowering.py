"""Lowering of a tree to engine SQL: each node once, children first, by a table of rules."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn, TypeVar

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported, Span
from cordwood.sql.budget import spend
from cordwood.sql.datatypes import inherit
from cordwood.sql.nodes import OPERATION_KEY, Operation, is_operation, swap

Rule = Callable[[exp.Expr], exp.Expr]
RuleKey = TypeVar("RuleKey", str, type[exp.Expr], type[Operation])

# The prefix of errors that a lowered query raises itself, to distinguish them from the engine's own errors.
RAISED: Final = "cordwood: "

# The metadata key of nodes whose error becomes NULL, as in SAFE.F(…).
_SAFE_KEY: Final = "safe"


class RuleSet(msgspec.Struct, frozen=True):
    """A set of lowering rules: by node class (`nodes`), or by name for functions without a class (`by_name`).

    `operations` has rules for nodes with an operation; rules in `before_children` are applied before a node's children
    are lowered.
    """

    nodes: Mapping[type[exp.Expr], Rule] = msgspec.field(default_factory=dict)
    by_name: Mapping[str, Rule] = msgspec.field(default_factory=dict)
    operations: Mapping[type[Operation], Rule] = msgspec.field(default_factory=dict)
    before_children: Mapping[type[exp.Expr], Rule] = msgspec.field(default_factory=dict)


class Rules(msgspec.Struct, frozen=True):
    """All lowering rules of a target, looked up by the class of the node."""

    nodes: Mapping[type[exp.Expr], Rule]
    by_name: Mapping[str, Rule]
    operations: Mapping[type[Operation], Rule]
    before_children: Mapping[type[exp.Expr], Rule]

    def lower(self, node: exp.Expr) -> exp.Expr:
        spend()
        early_rule = self.before_children.get(type(node))
        if early_rule is not None:
            node = _attach_to_parent(node, _apply_rule(node, early_rule))
        for part in list(node.iter_expressions()):
            lowered = self.lower(part)
            if lowered is not part:
                swap(part, lowered)
        rule = self._find_rule(node)
        return _apply_rule(node, rule) if rule else node

    def _find_rule(self, node: exp.Expr) -> Rule | None:
        if is_operation(node):
            return self.operations[type(node.args[OPERATION_KEY])]
        if isinstance(node, exp.Anonymous):
            return self.by_name.get(str(node.this).upper())
        return self.nodes.get(type(node))


def _attach_to_parent(node: exp.Expr, replacement: exp.Expr) -> exp.Expr:
    """Set the parent of a replacement before its children are lowered, because their rules look at the parent."""
    if replacement is not node:
        replacement.parent, replacement.arg_key, replacement.index = node.parent, node.arg_key, node.index
    return replacement


def _apply_rule(node: exp.Expr, rule: Rule) -> exp.Expr:
    return inherit(rule(node), node)


def merge_rule_sets(rule_sets: Iterable[RuleSet]) -> Rules:
    """Merge all rule sets into one table; two rules for the same node are a programming error."""
    sets = list(rule_sets)
    return Rules(
        nodes=_merge_tables(rule_set.nodes for rule_set in sets),
        by_name=_merge_tables(rule_set.by_name for rule_set in sets),
        operations=_merge_tables(rule_set.operations for rule_set in sets),
        before_children=_merge_tables(rule_set.before_children for rule_set in sets),
    )


def _merge_tables(tables: Iterable[Mapping[RuleKey, Rule]]) -> dict[RuleKey, Rule]:
    merged: dict[RuleKey, Rule] = {}
    for table in tables:
        duplicates = merged.keys() & table.keys()
        if duplicates:
            raise ValueError(f"two rules for {duplicates}")
        merged.update(table)
    return merged


def unsupported(node: exp.Expr, subject: str) -> NoReturn:
    raise QueryUnsupported(f"{subject} is not supported", span=span_in_text(node))


def span_in_text(node: exp.Expr) -> Span | None:
    """Return the position of the node, or of the first part with a position, in the author's text."""
    for candidate in (node, *node.find_all(exp.Expr)):
        line, column = candidate.meta_get("line"), candidate.meta_get("col")
        if line is not None and column is not None:
            return Span(line, column - (candidate.meta_get("end", column) - candidate.meta_get("start", column)))
    return None


def function_name(node: exp.Expr) -> str:
    """Return the function's name as in BigQuery."""
    written_name = node.meta_get("bigquery_name")
    # Other nodes have no `name` of their own: theirs is that of their first argument.
    default_name = node.sql_name() if isinstance(node, exp.Func) and not isinstance(node, exp.Anonymous) else node.name
    return str(written_name or default_name).upper()


def mark_safe(node: exp.Expr) -> exp.Expr:
    node.meta[_SAFE_KEY] = True
    return node


def is_safe(node: exp.Expr) -> bool:
    return bool(node.meta_get(_SAFE_KEY))


def is_evaluated_anyway(node: exp.Expr) -> bool:
    """Return whether the node is in a query or aggregate below a branch, which engines evaluate in any case.

    It must not fail, because the branch may not be chosen.
    """
    in_query = False
    while node.parent is not None and not isinstance(node.parent, exp.CTE):
        if in_query and isinstance(node.parent, (exp.If, exp.Case, exp.Coalesce)):
            return True
        node = node.parent
        in_query = in_query or isinstance(node, (exp.Query, exp.AggFunc))
    return False
