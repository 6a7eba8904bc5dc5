"""Nodes of syntax trees: operations, values of events, and constants, with functions to make and read them.

sqlglot's compiled classes cannot be subclassed, so an operation is a frozen struct among the arguments of a node. It is
compared, hashed and copied with the node. In a resolved tree, the operands are the node's expressions; after lowering
they are the parts of the fragment that replaces it, in the same order.

A resolved tree has the following form, which `resolve` guarantees to `target.lower`.

Columns
    Every `exp.Column` has exactly `this` and `table`, both quoted, both in the spelling of their
    definition; `table` is the alias (or name) of a relation in the nearest FROM that has this relation.
    In a correlated sub-query, this may be the FROM of an enclosing query. Only columns named by a set
    operation's ORDER BY have no `table`.
    A column is a physical column of a stream (its `type` is set), a column of a sub-query, CTE or
    derived table, or the element or the offset of an UNNEST. `exp.Dot` remains only for the fields of
    true STRUCT values, never for a path into an event.

Events (nodes with an operation; made and read by the functions below)
    `event_path_node(value, steps)`: a `PathRead` below an expression with a value of an event. Its type is
    VARIANT: the expression that uses the path determines the type as which the value is read. Its
    `meta[PATH_KINDS_METADATA_KEY]` are the kinds of value that stored events have at the path; None if they are unknown.
    `event_elements_node(value, only_arrays=…)`: `EventValueElements`, ARRAY<VARIANT>.
    `object_test_node(value)`: an `IsObjectTest`, BOOL.
    `RedactedText`, `RedactedEvent`, `RedactedSecret`, `RedactedEventText`: see sql/redaction/redaction_pass.py.

Relations (FROM and JOIN)
    `exp.Table` of a stream: one identifier, `StreamTable.table`; always with an alias; its
    `meta["stream"]` is the stream's name. `exp.Table` of a CTE: the CTE's own spelling, with an alias.
    An `exp.CTE` that only filters and is read more than once has `materialized` False: the engine runs it
    again for each reference.
    `exp.Subquery`: a derived table, which has an alias, or a parenthesised join, which has none.
    `exp.Unnest`: one expression (an array, or `EventValueElements`); its alias has `this` (the relation)
    and one column (the element); `offset`, if present, is the identifier of the offset's column.
    Commas have become CROSS joins and USING has become ON. An UNNEST of an object is removed: reads of its
    element have become paths, and `IsObjectTest` in WHERE, or in the ON of its join, filters the rows that
    the UNNEST would drop.

Selects
    Every projection is an `exp.Alias`, except that SELECT AS VALUE (`kind` is `VALUE`) has one expression
    without an alias. Stars are expanded; PIVOT and UNPIVOT are queries; unnamed columns are `f0_`, `f1_`.
    GROUP BY and ORDER BY items that name a select alias or a column by ordinal are ordinals (integer
    literals). Inside larger expressions, aliases are replaced by the expressions that they name.

Slots
    `exp.Parameter(this=Var(name))` with its `type` set. The time of the call is the slot `NOW_SLOT_NAME`, a
    TIMESTAMP. `CURRENT_DATE(zone)` becomes DATE(slot, zone), and related functions are replaced likewise.
    In stand-alone SQL, these functions stay as written.

Positions
    Identifiers and function nodes keep sqlglot's `meta` `start` and `end` (offsets in the author's
    text); a node made by a pass copies the `meta` of the node that it replaces.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Datatype
from cordwood.model.event import ValueKind
from cordwood.model.redaction import RedactMode

# The key of the argument that holds a node's operation.
OPERATION_ARGUMENT_KEY: Final = "does"
# The name of nodes that consist of an operation only; admitted queries cannot contain this name.
OPERATION_NODE_NAME: Final = "$operation"


class Operation(msgspec.Struct, frozen=True):
    """An operation for which sqlglot's parser has no node class. `operation_node` makes a node from it."""


class PathRead(Operation, frozen=True):
    """The value at a path below an event's value, which is the first operand; NULL if there is no value at the path.

    The path has at least one step.
    """

    steps: tuple[str, ...]


class EventValueElements(Operation, frozen=True):
    """An event's value as a repeated record of BigQuery, which is an array.

    An object becomes an array with the object as its only element. An array is unchanged. NULL, missing and scalar
    values become the empty array. `were_only_arrays_seen` is set if only arrays have been seen at the value's path.
    """

    were_only_arrays_seen: bool


class EventAsText(Operation, frozen=True):
    """An event's value as text.

    The expression uses the value only as text, so the scan of a table can provide the text instead of the value.
    """


class TextAsEventValue(Operation, frozen=True):
    """A text converted to an event's value."""


class IsObjectTest(Operation, frozen=True):
    """The condition that an event's value is an object. It is never NULL.

    `were_only_objects_seen` is set if only objects have been seen at the value's path, so that testing for NULL is
    enough.
    """

    were_only_objects_seen: bool = False


class RedactedValue(Operation, frozen=True):
    """Base class of operations that return their operand with personal data redacted."""

    mode: RedactMode


class RedactedText(RedactedValue, frozen=True):
    """The redacted text of a text operand."""


class RedactedEventText(RedactedValue, frozen=True):
    """The redacted text of an event's value, converted back to an event's value."""


class RedactedEvent(RedactedValue, frozen=True):
    """An event's value with all texts in it redacted."""


class RedactedSecret(RedactedValue, frozen=True):
    """An event's value, redacted because its key names a secret.

    `may_be_object_or_array` is set if objects or arrays have been seen at the value's path.
    """

    may_be_object_or_array: bool


class RegexMatch(Operation, frozen=True):
    """A test of whether a text, the first operand, matches a regular expression, the second."""


class TextPosition(Operation, frozen=True):
    """The position, counted from 1, of the second operand in the first operand, both texts; 0 if it is not found."""


class Interval(Operation, frozen=True):
    """An interval of a number of units of time; the operand is the number."""

    unit: str


class RepeatableCast(Operation, frozen=True):
    """A cast of the operand to another type, which is cheap enough to be repeated in the SQL."""


class RedactionCall(Operation, frozen=True):
    """A call of one of the redaction functions that cordwood defines in the engine."""

    function_name: str


class TextRedactionCall(RedactionCall, frozen=True):
    """The redacted text of the only operand.

    In a variant of the statement that does not redact, the engine's function `optimistic_function_name` is called
    instead. It raises an error for a text that may need redaction.
    """

    optimistic_function_name: str


OperationType = TypeVar("OperationType", bound=Operation)


def operation_node(operation: Operation, *operands: exp.Expr) -> exp.Expr:
    """Return a node of a resolved tree for an operation."""
    return exp.Anonymous(this=OPERATION_NODE_NAME, expressions=list(operands), **{OPERATION_ARGUMENT_KEY: operation})


def is_operation(node: exp.Expr) -> bool:
    """Return whether the node is an operation that no rule has lowered yet."""
    return isinstance(node, exp.Anonymous) and node.this == OPERATION_NODE_NAME


def operation_if_of_class(node: object, kind: type[OperationType]) -> OperationType | None:
    """Return the node's operation if it is of this class; None otherwise."""
    found = node.args.get(OPERATION_ARGUMENT_KEY) if isinstance(node, exp.Anonymous) else None
    return found if isinstance(found, kind) else None


def attach_operation(node: exp.Expr, operation: Operation) -> exp.Expr:
    """Set the operation of a node, such as a fragment, and return the node."""
    node.set(OPERATION_ARGUMENT_KEY, operation)
    return node


def has_operation(node: object, kind: type[Operation]) -> bool:
    return operation_if_of_class(node, kind) is not None


def find_operations(tree: exp.Expr, kind: type[OperationType]) -> Iterator[tuple[exp.Expr, OperationType]]:
    """Yield the nodes of a tree with an operation of this class, and their operations."""
    for node in tree.find_all(exp.Anonymous):
        found = operation_if_of_class(node, kind)
        if found is not None:
            yield node, found


# The name of the slot for the time of the call.
NOW_SLOT_NAME: Final = "now"

# Comparison operators, which have the same spelling in BigQuery and in the engines.
COMPARISON_OPERATORS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}

# The metadata key of a SELECT that was put between a query and a relation in its FROM, and outputs only the columns of
# the relation that the query reads.
RELATION_WRAPPER_METADATA_KEY: Final = "wraps relation"

# The metadata key for the kinds of value (number, text, object …) that have been seen at a node's path.
PATH_KINDS_METADATA_KEY: Final = "kinds"

_KINDS_THAT_MAY_BE_NUMBERS: Final = frozenset({ValueKind.NUMBER, ValueKind.UNSURE_KINDS})


def may_be_number(value: exp.Expr) -> bool:
    """Return whether a VARIANT may be a number; this is true if the kinds of values at its path are unknown."""
    kinds = value.meta_get(PATH_KINDS_METADATA_KEY)
    return not kinds or bool(kinds & _KINDS_THAT_MAY_BE_NUMBERS)


_RELATION_CLASSES: Final = (exp.Table, exp.Subquery, exp.Unnest)


def replace_node(node: exp.Expr, replacement: exp.Expr) -> None:
    """Replace a node in constant time, whereas sqlglot's `Expr.replace` visits all siblings in a list of arguments."""
    parent, key, index = node.parent, node.arg_key, node.index
    siblings = parent.args.get(key) if parent is not None and key is not None else None
    if index is None or not isinstance(siblings, list) or siblings[index] is not node:
        node.replace(replacement)
        return
    siblings[index] = replacement
    replacement.parent, replacement.arg_key, replacement.index = parent, key, index
    node.parent, node.arg_key, node.index = None, None, None
    while parent is not None and parent._hash is not None:  # noqa: SLF001 - a changed node's hash is computed again
        parent._hash = None  # noqa: SLF001
        parent = parent.parent


def set_type(node: exp.Expr, type_: exp.DType) -> exp.Expr:
    node.type = exp.DataType(this=type_)
    return node


def event_path_node(value: exp.Expr, steps: tuple[str, ...]) -> exp.Expr:
    """Return a read of the path `steps` below an event's value.

    If `value` is itself a read of a path, the two paths are joined into one.
    """
    root, outer_steps = path_root_and_steps(value)
    return set_type(operation_node(PathRead(outer_steps + steps), root), exp.DType.VARIANT)


def event_elements_node(value: exp.Expr, *, only_arrays: bool) -> exp.Expr:
    return set_type(operation_node(EventValueElements(only_arrays), value), exp.DType.ARRAY)


def object_test_node(value: exp.Expr, *, only_objects: bool = False) -> exp.Expr:
    return set_type(operation_node(IsObjectTest(only_objects), value), exp.DType.BOOLEAN)


def is_object_test_node(node: exp.Expr | None) -> bool:
    return has_operation(node, IsObjectTest)


def is_event_path(node: exp.Expr) -> bool:
    return has_operation(node, PathRead)


def path_root(node: exp.Expr) -> exp.Expr:
    value: exp.Expr = node.expressions[0]
    return value


def path_steps(node: exp.Expr) -> tuple[str, ...]:
    read = operation_if_of_class(node, PathRead)
    return () if read is None else read.steps


def path_root_and_steps(value: exp.Expr) -> tuple[exp.Expr, tuple[str, ...]]:
    """Return the event's value at the root of a path, and the path's steps; for a value without a path, no steps."""
    return (path_root(value), path_steps(value)) if is_event_path(value) else (value, ())


def is_same_or_nested_value(value: exp.Expr, outer: exp.Expr) -> bool:
    """Return whether `value` is the same event value as `outer`, or a value at a path below `outer`."""
    (root, steps), (outer_root, outer_steps) = path_root_and_steps(value), path_root_and_steps(outer)
    return root == outer_root and steps[: len(outer_steps)] == outer_steps


def joined_relations(relation: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the relations of a parenthesised join, including nested ones; yield any other relation itself."""
    inner = relation.this
    if not isinstance(relation, exp.Subquery) or relation.alias or not isinstance(inner, _RELATION_CLASSES):
        yield relation
        return
    for joined in (inner, *(join.this for join in inner.args.get("joins") or ())):
        yield from joined_relations(joined)


def relations_of(select: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the relations of FROM and its joins, including those of parenthesised joins."""
    from_ = select.args.get("from_")
    for clause in ([from_] if from_ is not None else []) + (select.args.get("joins") or []):
        yield from joined_relations(clause.this)


def outermost_select(tree: exp.Expr) -> exp.Expr:
    """Return the SELECT whose columns are the columns of the answer."""
    while not isinstance(tree, exp.Select):
        tree = tree.this
    return tree


def non_recursive_cte(table: exp.Expr) -> exp.CTE | None:
    """Return the CTE that the table refers to; None if the CTE may be recursive."""
    cte = referenced_cte(table)
    return None if cte is None or cte.parent is None or cte.parent.args.get("recursive") else cte


def referenced_cte(table: exp.Expr) -> exp.CTE | None:
    """Return the CTE, recursive or not, that the table refers to; None for a stream, even one named like a CTE."""
    node: exp.Expr | None = table.parent if table.meta_get("stream") is None else None
    while node is not None:
        with_ = node.args.get("with_")
        for cte in with_.expressions if isinstance(with_, exp.With) else ():
            if isinstance(cte, exp.CTE) and cte.alias == table.name:
                return cte
        node = node.parent
    return None


def typed_column(name: str, relation: str, type_: exp.DType) -> exp.Column:
    """Return a reference to a column of the relation with this alias, in the form that `resolve` gives columns."""
    column = exp.column(name, relation, quoted=True)
    set_type(column, type_)
    return column


def parameter_node(name: str, type_: exp.DType) -> exp.Expr:
    """Return a placeholder for a value that is bound at the call."""
    return set_type(exp.Parameter(this=exp.Var(this=name)), type_)


def digest_call(text: exp.Expr) -> exp.Expr:
    """Return an MD5 call on a text: its digests can be compared and sorted without revealing the texts."""
    return set_type(exp.MD5(this=text), exp.DType.TEXT)


def add_condition(select: exp.Expr, condition: exp.Expr) -> None:
    """Add a condition to the WHERE of a SELECT, joined to an existing condition by AND."""
    where = select.args.get("where")
    combined = condition if where is None else exp.and_(where.this, condition, copy=False)
    select.set("where", exp.Where(this=combined))


def split_and_conditions(where: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the conditions of a WHERE clause that are joined by AND."""
    pending = [] if where is None else [where.this]
    while pending:
        node = pending.pop().unnest()
        if isinstance(node, exp.And):
            pending += [node.left, node.right]
        else:
            yield node


# The metadata key of a name that refers to a whole object: the object of an event's top-level keys that are not
# columns.
WHOLE_EXTRAS_METADATA_KEY: Final = "whole_extras"

_INTERNAL_FUNCTION_PREFIX: Final = "$"


def internal_function_name(name: str) -> str:
    """Return the name of an internal function in trees. A query cannot call it, because `admit` refuses such names."""
    return _INTERNAL_FUNCTION_PREFIX + name


def internal_call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """Return a call of an internal function."""
    return exp.Anonymous(this=internal_function_name(name), expressions=list(arguments))


_LIST_PARENT_CLASSES: Final = (exp.Any, exp.All, exp.GroupingSets, exp.Cube, exp.Rollup, exp.Pivot, exp.Group)


def is_parenthesised_list(node: exp.Expr) -> bool:
    """Return whether values in parentheses are a list, as after ANY or ALL, in a pivot or a grouping; else a struct."""
    return isinstance(node.parent, _LIST_PARENT_CLASSES)


def struct_field_values(node: exp.Expr) -> list[exp.Expr]:
    """Return the values of STRUCT(…) without their names."""
    return [
        item.expression if isinstance(item, exp.PropertyEQ) else item.this if isinstance(item, exp.Alias) else item
        for item in node.expressions
    ]


def struct_field_name(datatype: Datatype, index: int) -> str:
    """Return the name of the struct's field at this position.

    A field without a name, or with the same name as an earlier field, is named by its position.
    """
    names = [name.lower() for name, _ in datatype.fields]
    name = datatype.fields[index][0]
    if name and name.lower() not in names[:index]:
        return name
    positional_name = f"_field_{index + 1}"
    while positional_name in names:
        positional_name += "_"
    return positional_name


# The metadata key under which a lowered literal keeps its value.
CONSTANT_VALUE_METADATA_KEY: Final = "constant"


def constant_python_value(node: exp.Expr | None) -> str | int | float | bool | None:
    """Return the value of a literal; None for any other node."""
    if isinstance(node, exp.Paren):
        return constant_python_value(node.this)
    if isinstance(node, exp.Neg):
        inner = constant_python_value(node.this)
        return -inner if isinstance(inner, (int, float)) else None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    return _literal_value(node) if node is not None else None


def is_int32_constant(node: exp.Expr | None) -> bool:
    """Return whether the node is a constant integer so small that adding a few of them cannot overflow INT64."""
    value = constant_python_value(node)
    return isinstance(value, int) and abs(value) < 2**31


def _literal_value(node: exp.Expr) -> str | int | float | None:
    stored: str | int | float | None = node.meta_get(CONSTANT_VALUE_METADATA_KEY)
    if isinstance(node, exp.RawString):
        return str(node.this)
    if stored is not None or not isinstance(node, exp.Literal):
        return stored
    if node.is_string:
        return str(node.this)
    return _integer_value(str(node.this)) if is_integer_literal(node) else float(node.this)


def _integer_value(digits: str) -> int:
    return int(digits, 16) if digits.lower().startswith("0x") else parse_digits(digits)


# The maximum number of digits that `parse_digits` converts. Integers of all engines have fewer digits, and Python's
# int() accepts more.
_MAX_PARSED_DIGITS: Final = 100


def parse_digits(digits: str) -> int:
    """Return the value of decimal digits.

    For more than a hundred digits, return 10^100. Like the value itself, this is out of range for every integer type.
    """
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MAX_PARSED_DIGITS else 10**_MAX_PARSED_DIGITS


def is_integer_literal(node: exp.Expr) -> bool:
    digits = str(node.this).lower()
    return digits.isdecimal() or digits.startswith("0x")


def constant_text(node: exp.Expr | None) -> str | None:
    value = constant_python_value(node)
    return value if isinstance(value, str) else None


def constant_int(node: exp.Expr | None) -> int | None:
    value = constant_python_value(node)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_null(node: exp.Expr | None) -> bool:
    return isinstance(node, exp.Null)


def constant_bytes(node: exp.Expr | None) -> bytes | None:
    """Return the value of a bytes literal, or the UTF-8 encoding of a text literal."""
    if isinstance(node, exp.ByteString):
        # sqlglot stores bytes as text with one character for each byte and with escapes decoded.
        return str(node.this).encode("latin-1")
    text = constant_text(node)
    return text.encode() if text is not None else None
