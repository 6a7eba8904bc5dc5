"""What an engine's expression does, as a typed value on its node: passes recognise operations by it, never by text.

sqlglot's compiled classes cannot be subclassed, so an operation is a frozen struct among the arguments of a node. It is
compared, hashed and copied with the node; the operands of a fragment's operation are its parts, in their order.
"""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
from sqlglot import exp

DOES: Final = "does"


class Operation(msgspec.Struct, frozen=True):
    """The base of all operations."""


class PathRead(Operation, frozen=True):
    """The value at a path below an event's value, the first operand. `has_parts`: objects or arrays may lie there."""

    steps: tuple[str, ...]
    has_parts: bool


class AsText(Operation, frozen=True):
    """An event's value as text; what the value holds is not looked at otherwise."""


class AsEventValue(Operation, frozen=True):
    """A text as an event's value."""


class RecordTest(Operation, frozen=True):
    """Whether an event's value is an object."""


class RegexMatch(Operation, frozen=True):
    """Whether a text, the first operand, matches a regular expression, the second."""


class TextPosition(Operation, frozen=True):
    """Where a text, the second operand, begins in another, counted from 1; 0 where it is not there."""


class Interval(Operation, frozen=True):
    """A number of units of time."""

    unit: str


class Recast(Operation, frozen=True):
    """The same value as another type, which costs so little that it may be written more than once."""


class RedactionCall(Operation, frozen=True):
    """A call of one of the engine's functions of redaction."""

    function: str


class RedactText(RedactionCall, frozen=True):
    """The text, the only operand, redacted; `optimistic` is the function that fails instead where there is a find."""

    optimistic: str


Kind = TypeVar("Kind", bound=Operation)


def operation_of(node: object, kind: type[Kind]) -> Kind | None:
    """Return the node's operation if it is of this kind."""
    found = node.args.get(DOES) if isinstance(node, exp.Anonymous) else None
    return found if isinstance(found, kind) else None


def doing(node: exp.Expr, operation: Operation) -> exp.Expr:
    """Say of an expression that was made from parts what it does."""
    node.set(DOES, operation)
    return node


def does(node: object, kind: type[Operation]) -> bool:
    return operation_of(node, kind) is not None


def found_operations(tree: exp.Expr, kind: type[Kind]) -> Iterator[tuple[exp.Expr, Kind]]:
    """Yield the nodes of a tree that do this, with their operations."""
    for node in tree.find_all(exp.Anonymous):
        operation = operation_of(node, kind)
        if operation is not None:
            yield node, operation
