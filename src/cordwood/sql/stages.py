"""What each stage of the compiler hands to the next: a skipped guard is a type error."""

from collections.abc import Hashable, Mapping
from functools import cached_property
from hashlib import sha256

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Datatype
from cordwood.model.parameter import Parameter
from cordwood.model.redaction import RedactMode
from cordwood.model.shape import Path
from cordwood.sql.plan import Plan, Reads

# What was asked of the shapes, and what they said.
Facts = Mapping[tuple[str, tuple[Hashable, ...]], object]


class Parsed(msgspec.Struct, frozen=True):
    """A tree of one text, with its places; nothing is known of it but that it parses."""

    tree: exp.Expr
    text: str


class Admitted(msgspec.Struct, frozen=True):
    """One read-only query of permitted nodes and functions whose tables all stand in scope."""

    tree: exp.Expr
    text: str
    sub_queries: tuple[str, ...] = ()


class Resolved(msgspec.Struct, frozen=True):
    """Every name is a column, a path of an event, or a typed slot; every expression has a type.

    With `redaction`, nothing reads a text of an event as it is but the answer: its columns `hidden` are still raw,
    and the engine must redact them on the way out. It takes for granted that `textless`, paths of streams, hold no
    text: whoever answers must see to it that they still did at the moment of the answer.
    """

    tree: exp.Expr
    text: str
    sub_queries: tuple[str, ...] = ()
    unseen_paths: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    redaction: RedactMode | None = None
    hidden: tuple[int, ...] = ()
    textless: tuple[tuple[str, Path], ...] = ()
    facts: Facts = msgspec.field(default_factory=dict)


class Alternative(msgspec.Struct, frozen=True):
    """A lowered tree that becomes a variant of the plan."""

    tree: exp.Expr
    reads: Reads = Reads.ALL
    is_optimistic: bool = False


class Lowered(msgspec.Struct, frozen=True):
    """BigQuery's meaning in the target's own words: printing it is all that is left.

    `tree` reads all events and redacts; `others` are the same query for states of the store in which less will do.
    """

    tree: exp.Expr
    resolved: Resolved
    others: tuple[Alternative, ...] = ()


class Slot(msgspec.Struct, frozen=True):
    """A place for a value that is bound, never printed: a parameter, or the moment of the call.

    Declared parameters that the statement does not read are checked like the others, and not bound.
    """

    name: str
    parameter: Parameter | None
    is_read: bool = True


class Statement(msgspec.Struct, frozen=True, dict=True):
    """An engine's plan of a query, ready to be bound.

    `column_types` are BigQuery's: an engine whose own types say less (text for BYTES and JSON) renders by them.
    `notices` are for the receipt: what the reader of the answer should know of it. `most_rows` is how many rows there can
    be, where the SQL says so itself: a variant that reads recent events alone answers like the rest where it finds as
    many. `facts` is all that the shapes of streams were asked: shapes that say the same make the same statement.
    """

    plan: Plan
    slots: tuple[Slot, ...]
    sub_queries: tuple[str, ...]
    streams: tuple[str, ...]
    unseen_paths: tuple[str, ...] = ()
    column_names: tuple[str, ...] = ()
    column_types: tuple[Datatype | None, ...] = ()
    notices: tuple[str, ...] = ()
    redaction: RedactMode | None = None
    hidden: tuple[int, ...] = ()
    textless: tuple[tuple[str, Path], ...] = ()
    most_rows: int | None = None
    facts: Facts = msgspec.field(default_factory=dict)

    @property
    def sql(self) -> str:
        """Return the SQL of the variant that always answers, with all of its conditions."""
        return self.plan.sql

    @cached_property
    def digest(self) -> bytes:
        """Equal only for equal statements: a digest of every field, those that are yet to be added too.

        The facts are left out: what they said is in the other fields.
        """
        said = msgspec.structs.replace(self, facts={})
        return sha256(msgspec.msgpack.encode(said, order="deterministic")).digest()


class Question(msgspec.Struct, frozen=True):
    """A statement with its values: the only thing an engine answers. Made by `bind` alone."""

    statement: Statement
    values: Mapping[str, object] = msgspec.field(default_factory=dict)
