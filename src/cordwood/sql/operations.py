"""Typed operations on nodes: passes recognise an expression by its operation, not by a name or a text.

sqlglot's compiled classes cannot be subclassed, so an operation is a frozen struct among the arguments of a node. It is
compared, hashed and copied with the node. In a resolved tree, the operands are the node's expressions; after lowering
they are the parts of the fragment that replaces it, in the same order.
"""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
from sqlglot import exp

from cordwood.model.redaction import RedactMode

# The key of the argument that holds a node's operation.
OPERATION_KEY: Final = "does"
# The name of nodes that consist of an operation only; admitted queries cannot contain this name.
OPERATION: Final = "$operation"


class Operation(msgspec.Struct, frozen=True):
    """An operation for which the parser has no node class; `operation_node` makes a node of it."""


class PathRead(Operation, frozen=True):
    """The value at a path below an event's value, the first operand; NULL if missing. There is at least one step."""

    steps: tuple[str, ...]


class RecordElements(Operation, frozen=True):
    """An event's value as a repeated record of BigQuery: an object is an array of itself, an array its elements.

    NULL, missing and scalar values become the empty array. `only_arrays` is set if only arrays have been seen at that
    path.
    """

    only_arrays: bool


class AsText(Operation, frozen=True):
    """An event's value as text; the expression needs nothing else of the value."""


class AsEventValue(Operation, frozen=True):
    """A text converted to an event's value."""


class RecordTest(Operation, frozen=True):
    """A test of whether an event's value is an object; never NULL.

    With `only_objects`, only objects have been seen at that path, so a test for NULL suffices.
    """

    only_objects: bool = False


class Redacted(Operation, frozen=True):
    """The operand with personal data redacted; base class of the operations below."""

    mode: RedactMode


class RedactedText(Redacted, frozen=True):
    """The redacted text of a text operand."""


class RedactedEventText(Redacted, frozen=True):
    """The redacted text of an event's value, as an event's value again."""


class RedactedEvent(Redacted, frozen=True):
    """An event's value with all texts in it redacted."""


class RedactedSecret(Redacted, frozen=True):
    """A redacted event's value whose key names a secret. `may_be_record`: objects or arrays were seen at that path."""

    may_be_record: bool


class RegexMatch(Operation, frozen=True):
    """A test of whether a text, the first operand, matches a regular expression, the second."""


class TextPosition(Operation, frozen=True):
    """The position of a text, the second operand, in the first one, counted from 1; 0 if it is not found."""


class Interval(Operation, frozen=True):
    """An interval of a number of units of time; the operand is the number."""

    unit: str


class Recast(Operation, frozen=True):
    """The same value as another type; cheap enough to be repeated in the SQL."""


class RedactionCall(Operation, frozen=True):
    """A call of one of the engine's redaction functions."""

    function: str


class RedactText(RedactionCall, frozen=True):
    """The redacted text of the only operand.

    `optimistic` names the function that fails instead of redacting a match.
    """

    optimistic: str


Kind = TypeVar("Kind", bound=Operation)


def operation_node(operation: Operation, *operands: exp.Expr) -> exp.Expr:
    """Return a node of a resolved tree for an operation."""
    return exp.Anonymous(this=OPERATION, expressions=list(operands), **{OPERATION_KEY: operation})


def is_operation(node: exp.Expr) -> bool:
    """Return whether the node is an operation that no rule has lowered yet."""
    return isinstance(node, exp.Anonymous) and node.this == OPERATION


def operation_of(node: object, kind: type[Kind]) -> Kind | None:
    """Return the node's operation if it is of this class; None otherwise."""
    found = node.args.get(OPERATION_KEY) if isinstance(node, exp.Anonymous) else None
    return found if isinstance(found, kind) else None


def with_operation(node: exp.Expr, operation: Operation) -> exp.Expr:
    """Set the operation of an expression that was made from parts."""
    node.set(OPERATION_KEY, operation)
    return node


def has_operation(node: object, kind: type[Operation]) -> bool:
    return operation_of(node, kind) is not None


def find_operations(tree: exp.Expr, kind: type[Kind]) -> Iterator[tuple[exp.Expr, Kind]]:
    """Yield the nodes of a tree with an operation of this class, and their operations."""
    for node in tree.find_all(exp.Anonymous):
        found = operation_of(node, kind)
        if found is not None:
            yield node, found
