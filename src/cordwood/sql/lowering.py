"""Lowering of a tree to engine SQL: each node once, children first, by a table of rules."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn, TypeVar

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported, Span
from cordwood.sql.budget import spend
from cordwood.sql.nodes import swap
from cordwood.sql.operations import OPERATION_KEY, Operation, is_operation
from cordwood.sql.typing import inherit

Rule = Callable[[exp.Expr], exp.Expr]
Key = TypeVar("Key", str, type[exp.Expr], type[Operation])

# The prefix of errors that a lowered query raises itself, to distinguish them from the engine's own.
RAISED: Final = "cordwood: "

# The metadata key of nodes whose error becomes NULL, as in SAFE.F(…).
_SAFE: Final = "safe"


class Meaning(msgspec.Struct, frozen=True):
    """A set of lowering rules: by class (`nodes`), or by name for functions without a class (`named`).

    `operations` has rules for nodes with an operation; rules in `first` are applied before a node's children are
    lowered.
    """

    nodes: Mapping[type[exp.Expr], Rule] = msgspec.field(default_factory=dict)
    named: Mapping[str, Rule] = msgspec.field(default_factory=dict)
    operations: Mapping[type[Operation], Rule] = msgspec.field(default_factory=dict)
    first: Mapping[type[exp.Expr], Rule] = msgspec.field(default_factory=dict)


class Rules(msgspec.Struct, frozen=True):
    """All rules of a target, looked up by the class of the node."""

    nodes: Mapping[type[exp.Expr], Rule]
    named: Mapping[str, Rule]
    operations: Mapping[type[Operation], Rule]
    first: Mapping[type[exp.Expr], Rule]

    def lower(self, node: exp.Expr) -> exp.Expr:
        spend()
        before = self.first.get(type(node))
        if before is not None:
            node = _seen_from(node, _replaced(node, before))
        for part in list(node.iter_expressions()):
            lowered = self.lower(part)
            if lowered is not part:
                swap(part, lowered)
        rule = self._rule(node)
        return _replaced(node, rule) if rule else node

    def _rule(self, node: exp.Expr) -> Rule | None:
        if is_operation(node):
            return self.operations[type(node.args[OPERATION_KEY])]
        if isinstance(node, exp.Anonymous):
            return self.named.get(str(node.this).upper())
        return self.nodes.get(type(node))


def _seen_from(node: exp.Expr, made: exp.Expr) -> exp.Expr:
    """Set the parent of a replacement made before its children are lowered, because rules for them look at it."""
    if made is not node:
        made.parent, made.arg_key, made.index = node.parent, node.arg_key, node.index
    return made


def _replaced(node: exp.Expr, rule: Rule) -> exp.Expr:
    return inherit(rule(node), node)


def joined(meanings: Iterable[Meaning]) -> Rules:
    """Merge all meanings into one table; two rules for the same node are a programming error."""
    found = list(meanings)
    return Rules(
        nodes=_united(meaning.nodes for meaning in found),
        named=_united(meaning.named for meaning in found),
        operations=_united(meaning.operations for meaning in found),
        first=_united(meaning.first for meaning in found),
    )


def _united(tables: Iterable[Mapping[Key, Rule]]) -> dict[Key, Rule]:
    united: dict[Key, Rule] = {}
    for table in tables:
        twice = united.keys() & table.keys()
        if twice:
            raise ValueError(f"two meanings of {twice}")
        united.update(table)
    return united


def unsupported(node: exp.Expr, what: str) -> NoReturn:
    raise QueryUnsupported(f"{what} is not supported", span=place_of(node))


def place_of(node: exp.Expr) -> Span | None:
    """Return the position of the node or of its nearest part that has one, in the author's text."""
    for candidate in (node, *node.find_all(exp.Expr)):
        line, column = candidate.meta_get("line"), candidate.meta_get("col")
        if line is not None and column is not None:
            return Span(line, column - (candidate.meta_get("end", column) - candidate.meta_get("start", column)))
    return None


def name_of(node: exp.Expr) -> str:
    """Return the function's name as in BigQuery."""
    written = node.meta_get("bigquery_name")
    # For other functions, `name` is that of their first argument.
    known = node.sql_name() if isinstance(node, exp.Func) and not isinstance(node, exp.Anonymous) else node.name
    return str(written or known).upper()


def mark_safe(node: exp.Expr) -> exp.Expr:
    node.meta[_SAFE] = True
    return node


def is_safe(node: exp.Expr) -> bool:
    return bool(node.meta_get(_SAFE))
