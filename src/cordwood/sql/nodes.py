"""The words a Resolved tree has beyond sqlglot's own: what BigQuery's repeated records become.

What a Resolved tree looks like (the promise `resolve` makes to `target.lower`):

Columns
    Every `exp.Column` has exactly `this` and `table`, both quoted, both in the spelling of their
    definition; `table` is the alias (or name) of a relation in the nearest FROM that has it, or of an
    enclosing one when correlated. Only columns named by a set operation's ORDER BY have no `table`.
    A column is a physical column of a stream (its `type` is set), a column of a sub-query, CTE or
    derived table, or the element or the offset of an UNNEST. `exp.Dot` remains only for the fields of
    true STRUCT values, never for a path into an event.

Events (nodes with an operation of `operations`; make and read them with the functions below)
    `event_path(value, steps)`: a `PathRead` of a value that is an event's (`value`: any expression whose value is one). Type
    VARIANT: typed by use. Its `meta[KINDS]` are the kinds that have been seen there.
    `event_elements(value, only_arrays=…)`: `RecordElements`, ARRAY<VARIANT>.
    `is_record(value)`: a `RecordTest`, BOOL.
    `RedactedText`, `RedactedEvent`, `RedactedSecret`, `RedactedEventText`: see sql/redaction/flow.

Relations (FROM and JOIN)
    `exp.Table` of a stream: one identifier, `StreamTable.table`; always with an alias; its
    `meta["stream"]` is the stream's name. `exp.Table` of a CTE: the CTE's own spelling, with an alias.
    An `exp.CTE` with `materialized` False is a filter read more than once: run it anew for every reader.
    `exp.Subquery` with an alias, or around a parenthesised join without one.
    `exp.Unnest`: one expression (an array, or `EventElements`); its alias has `this` (the relation)
    and one column (the element); `offset`, when there, is the identifier of the offset's column.
    Commas have become CROSS joins; USING has become ON; unnests of objects are gone: their reads are
    paths, their "drop the row" is `IsRecord` in WHERE (or in the ON of the join they stood under).

Selects
    Every projection is an `exp.Alias` (but in `exp.Select` with `kind`, where `VALUE` has one bare
    expression); stars are expanded; PIVOT and UNPIVOT are queries; unnamed columns are already `f0_`, `f1_`. GROUP BY and ORDER BY items that name a select alias or a column
    by ordinal are ordinals (integer literals); inside larger expressions aliases are replaced by the
    expression they stand for.

Slots
    `exp.Parameter(this=Var(name))` with its `type` set. The moment of the call is the slot `NOW`, a
    TIMESTAMP, and `CURRENT_DATE(zone)` and its like are already DATE(slot, zone) and so on, except in
    stand-alone SQL, where they stay as written.

Places: identifiers and function nodes keep sqlglot's `meta` `start` and `end` (offsets in the author's
text); a node made by us copies the `meta` of what it replaces.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import exp

from cordwood.sql.operations import PathRead, RecordElements, RecordTest, does, operation, operation_of

# The slot that holds the moment of the call.
NOW: Final = "now"

# Comparisons as BigQuery and the engines write them.
COMPARISONS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "=",
    exp.NEQ: "!=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}

KINDS: Final = "kinds"

_RELATIONS: Final = (exp.Table, exp.Subquery, exp.Unnest)


def swap(node: exp.Expr, made: exp.Expr) -> None:
    """Put a node in another's place in constant time: `Expr.replace` visits all siblings in a list of arguments."""
    parent, key, index = node.parent, node.arg_key, node.index
    siblings = parent.args.get(key) if parent is not None and key is not None else None
    if index is None or not isinstance(siblings, list) or siblings[index] is not node:
        node.replace(made)
        return
    siblings[index] = made
    made.parent, made.arg_key, made.index = parent, key, index
    node.parent, node.arg_key, node.index = None, None, None
    while parent is not None and parent._hash is not None:  # noqa: SLF001 - a changed node's hash is worked out anew
        parent._hash = None  # noqa: SLF001
        parent = parent.parent


def typed(node: exp.Expr, type_: exp.DType) -> exp.Expr:
    node.type = exp.DataType(this=type_)
    return node


def event_path(value: exp.Expr, steps: tuple[str, ...]) -> exp.Expr:
    """A path into a path is one longer path."""
    root, before = root_and_steps(value)
    return typed(operation(PathRead(before + steps), root), exp.DType.VARIANT)


def event_elements(value: exp.Expr, *, only_arrays: bool) -> exp.Expr:
    return typed(operation(RecordElements(only_arrays), value), exp.DType.ARRAY)


def is_record(value: exp.Expr, *, only_objects: bool = False) -> exp.Expr:
    return typed(operation(RecordTest(only_objects), value), exp.DType.BOOLEAN)


def asks_for_record(node: exp.Expr | None) -> bool:
    return does(node, RecordTest)


def is_event_path(node: exp.Expr) -> bool:
    return does(node, PathRead)


def path_value(node: exp.Expr) -> exp.Expr:
    value: exp.Expr = node.expressions[0]
    return value


def path_steps(node: exp.Expr) -> tuple[str, ...]:
    read = operation_of(node, PathRead)
    return () if read is None else read.steps


def root_and_steps(value: exp.Expr) -> tuple[exp.Expr, tuple[str, ...]]:
    """What a path leads into, and its steps; any other value is where a path of no steps leads."""
    return (path_value(value), path_steps(value)) if is_event_path(value) else (value, ())


def is_within(value: exp.Expr, outer: exp.Expr) -> bool:
    """Whether an event's value is another of the same event, or read out of it."""
    (root, steps), (outer_root, outer_steps) = root_and_steps(value), root_and_steps(outer)
    return root == outer_root and steps[: len(outer_steps)] == outer_steps


def in_brackets(relation: exp.Expr) -> Iterator[exp.Expr]:
    """The relations that are joined in these brackets, and in brackets within; any other relation is itself."""
    inner = relation.this
    if not isinstance(relation, exp.Subquery) or relation.alias or not isinstance(inner, _RELATIONS):
        yield relation
        return
    for part in (inner, *(join.this for join in inner.args.get("joins") or ())):
        yield from in_brackets(part)


def conditions(where: exp.Expr | None) -> Iterator[exp.Expr]:
    """What every row must fulfil."""
    waiting = [] if where is None else [where.this]
    while waiting:
        node = waiting.pop().unnest()
        if isinstance(node, exp.And):
            waiting += [node.left, node.right]
        else:
            yield node


# In the meta of a name: that it means everything of a stream's events beside their columns.
WHOLE_EXTRAS: Final = "whole_extras"

_INTERNAL: Final = "$"


def internal_function(name: str) -> str:
    """The name of a function that BigQuery has no word for: no text can spell it past `admit`."""
    return _INTERNAL + name


def internal(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A call of such a function."""
    return exp.Anonymous(this=internal_function(name), expressions=list(arguments))
