"""What an expression does, as a typed value on its node: passes recognise operations by it, never by names or text.

sqlglot's compiled classes cannot be subclassed, so an operation is a frozen struct among the arguments of a node. It is
compared, hashed and copied with the node. In a resolved tree, the operands are the node's expressions; when a rule has
lowered it to a fragment that does the same, they are the fragment's parts, in the same order.
"""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec
from sqlglot import exp

from cordwood.model.redaction import RedactMode

# The argument of a node that has its operation.
DOES: Final = "does"
# What nodes are called that are nothing but an operation; no text can spell the name past `admit`.
OPERATION: Final = "$operation"


class Operation(msgspec.Struct, frozen=True):
    """The base of all operations."""


class PathRead(Operation, frozen=True):
    """The value at a path below an event's value, the first operand; missing is NULL. There is at least one step."""

    steps: tuple[str, ...]


class RecordElements(Operation, frozen=True):
    """An event's value as BigQuery's repeated record: an object is an array of itself, an array its elements.

    NULL, missing and scalars are the empty array. `only_arrays` where nothing but arrays has been seen there.
    """

    only_arrays: bool


class AsText(Operation, frozen=True):
    """An event's value as text; what the value holds is not looked at otherwise."""


class AsEventValue(Operation, frozen=True):
    """A text as an event's value."""


class RecordTest(Operation, frozen=True):
    """Whether an event's value is an object, never NULL.

    `only_objects` where nothing but objects has been seen there, so that whether it is NULL says all.
    """

    only_objects: bool = False


class Redacted(Operation, frozen=True):
    """The operand with what is personal in it redacted."""

    mode: RedactMode


class RedactedText(Redacted, frozen=True):
    """A text, redacted."""


class RedactedEventText(Redacted, frozen=True):
    """An event's value that is read as text, redacted, as an event's value again."""


class RedactedEvent(Redacted, frozen=True):
    """An event's value, redacted."""


class RedactedSecret(Redacted, frozen=True):
    """An event's value in a field whose name says that it is secret. `may_be_record`: objects or arrays were seen there."""

    may_be_record: bool


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


def operation(what: Operation, *operands: exp.Expr) -> exp.Expr:
    """Return the node of a resolved tree that does this."""
    return exp.Anonymous(this=OPERATION, expressions=list(operands), **{DOES: what})


def is_operation(node: exp.Expr) -> bool:
    """Return whether the node is an operation that no rule has lowered yet."""
    return isinstance(node, exp.Anonymous) and node.this == OPERATION


def operation_of(node: object, kind: type[Kind]) -> Kind | None:
    """Return the node's operation if it is of this kind."""
    found = node.args.get(DOES) if isinstance(node, exp.Anonymous) else None
    return found if isinstance(found, kind) else None


def doing(node: exp.Expr, what: Operation) -> exp.Expr:
    """Say of an expression that was made from parts what it does."""
    node.set(DOES, what)
    return node


def does(node: object, kind: type[Operation]) -> bool:
    return operation_of(node, kind) is not None


def found_operations(tree: exp.Expr, kind: type[Kind]) -> Iterator[tuple[exp.Expr, Kind]]:
    """Yield the nodes of a tree that do this, with their operations."""
    for node in tree.find_all(exp.Anonymous):
        found = operation_of(node, kind)
        if found is not None:
            yield node, found
