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


class Seek(msgspec.Struct, frozen=True):
    """Of a stream, only events that have all these pieces of texts matter where `mark` stands in the SQL.

    And those that have the values of the parameters `texts`, and match those of the parameters `patterns`.
    """

    mark: str
    stream: str
    pieces: tuple[str, ...]
    texts: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()


class Guard(msgspec.Struct, frozen=True):
    """A condition in a text, from `start` to `end`, that is true where the parameter is absent.

    That is asked up to `middle`; behind the OR that follows stands what is asked where it is there.
    """

    parameter: str
    start: int
    middle: int
    end: int


class Lowered(msgspec.Struct, frozen=True):
    """BigQuery's meaning in the target's own words: printing it is all that is left.

    An engine that keeps its newest events elsewhere may read less when there are none: then `at_rest` is the tree.
    `trusting` are the same trees for an engine that first tries whether there is anything to redact at all. `newest`
    reads only the newest events, which an engine may keep a second time: the answer, where it finds all the rows wanted.
    """

    tree: exp.Expr
    resolved: Resolved
    at_rest: exp.Expr | None = None
    trusting: exp.Expr | None = None
    trusting_at_rest: exp.Expr | None = None
    newest: exp.Expr | None = None
    seeks: tuple[Seek, ...] = ()


class Slot(msgspec.Struct, frozen=True):
    """A place for a value that is bound, never printed: a parameter, or the moment of the call.

    Declared parameters that the statement does not read are checked like the others, and not bound.
    """

    name: str
    parameter: Parameter | None
    is_read: bool = True


class Statement(msgspec.Struct, frozen=True, dict=True):
    """An engine's SQL, ready to be bound. `spans` tells where a marked expression stood in the author's text.

    `column_types` are BigQuery's: an engine whose own types say less (text for BYTES and JSON) renders by them.
    `notices` are for the receipt: what the reader of the answer should know of it. `at_rest` is the same SQL for an
    engine that holds no newest events apart, where it has one. `trusting` fails where a text may have to be redacted,
    and answers like the rest where none has. `most_rows` is how many rows there can be, where the SQL says so itself;
    `newest` answers like the rest where it finds as many. `guards` are those of each of these texts that has any.
    `facts` is all that the shapes of streams were asked: shapes that say the same make the same statement.
    """

    sql: str
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
    at_rest: str | None = None
    trusting: str | None = None
    trusting_at_rest: str | None = None
    newest: str | None = None
    seeks: tuple[Seek, ...] = ()
    guards: Mapping[str, tuple[Guard, ...]] = msgspec.field(default_factory=dict)
    most_rows: int | None = None
    facts: Facts = msgspec.field(default_factory=dict)

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
