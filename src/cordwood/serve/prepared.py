"""Compiled statements, kept by endpoint revision, sandbox text and what they depend on in the shapes of their streams."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from cordwood.lql.compile import compile_lql
from cordwood.lql.patterns import IsRegex, check_patterns
from cordwood.model.endpoint import Endpoint
from cordwood.model.redaction import RedactMode
from cordwood.model.shape import Shape
from cordwood.serve.ask import Language, SandboxText
from cordwood.sql.compile import Program, compile_sandbox, compile_saved, read_endpoint
from cordwood.sql.records import still_hold
from cordwood.sql.redaction.redaction import Redaction
from cordwood.sql.stages import Statement
from cordwood.sql.target import Target

StatementKey = tuple[str, SandboxText | None, RedactMode | None]

_COMPILERS = {Language.SQL: compile_sandbox, Language.LQL: compile_lql}


# What statements and their texts may hold together; the least recently used go first.
MOST_CHARACTERS = 16 * 2**20
MOST_PROGRAMS = 1000


# Of one text, statements for so many kinds of shapes are kept, each for so many versions of them.
MOST_VARIANTS = 16
MOST_VERSIONS = 1_000
# What a fact takes of the room of characters.
_FACT_CHARACTERS = 100

Shapes = Mapping[str, Shape]
Versions = tuple[tuple[int, int], ...]


class _Kept(msgspec.Struct, frozen=True):
    """`holds_for` are versions of the streams' shapes of which it is known that all facts hold."""

    statement: Statement
    characters: int
    holds_for: set[Versions]


class Prepared:
    """Safe from several threads: at worst two compile the same text at once.

    A statement serves every caller whose shapes say of the names and kinds that it depends on what those said with
    which it was compiled: keys pinned to different projects share it, and what is learnt of other paths changes nothing.
    """

    def __init__(
        self,
        target: Target,
        shapes: Callable[[], Shapes],
        is_regex: IsRegex | None = None,
        most_characters: int = MOST_CHARACTERS,
    ) -> None:
        self._target = target
        self._shapes = shapes
        self._is_regex = is_regex
        self._most_characters = most_characters
        self._characters = 0
        self._lock = threading.Lock()
        self._programs: OrderedDict[str, Program] = OrderedDict()
        self._statements: OrderedDict[StatementKey, list[_Kept]] = OrderedDict()

    def find(
        self,
        endpoint: Endpoint,
        sandbox: SandboxText | None,
        redaction: Redaction | None = None,
        shapes: Shapes | None = None,
    ) -> Statement | None:
        """The statement, unless it was never compiled, or only with shapes that said otherwise.

        `shapes` are those that the caller may know, all where they are left out.
        """
        key = statement_key(endpoint, sandbox, redaction)
        with self._lock:
            variants = list(self._statements.get(key, ()))
            if not variants:
                return None
            self._statements.move_to_end(key)
        shapes = self._shapes() if shapes is None else shapes
        versions = _versions(variants[0].statement, shapes)
        for kept in variants:
            if versions in kept.holds_for:
                return kept.statement
        return _holding(variants, versions, redaction.shown(shapes) if redaction else shapes)

    def compile(
        self,
        endpoint: Endpoint,
        sandbox: SandboxText | None,
        redaction: Redaction | None = None,
        shapes: Shapes | None = None,
    ) -> Statement:
        shapes = self._shapes() if shapes is None else shapes
        program = self.program(endpoint)
        if sandbox is None:
            statement = compile_saved(program, self._target, shapes, redaction)
        else:
            if sandbox.language is Language.LQL and self._is_regex is not None:
                check_patterns(sandbox.text, self._is_regex)
            statement = _COMPILERS[sandbox.language](program, sandbox.text, self._target, shapes, redaction)
        characters = len(statement.sql) + (len(sandbox.text) if sandbox else 0)
        characters += _FACT_CHARACTERS * len(statement.facts)
        kept = _Kept(statement, characters, {_versions(statement, shapes)})
        self._keep(statement_key(endpoint, sandbox, redaction), kept)
        return statement

    def _keep(self, key: StatementKey, kept: _Kept) -> None:
        with self._lock:
            before = self._statements.pop(key, [])
            others = [one for one in before if one.statement.facts != kept.statement.facts]
            self._statements[key] = now = [kept, *others[: MOST_VARIANTS - 1]]
            self._characters += sum(one.characters for one in now) - sum(one.characters for one in before)
            while self._characters > self._most_characters:
                self._characters -= sum(one.characters for one in self._statements.popitem(last=False)[1])

    def program(self, endpoint: Endpoint) -> Program:
        program = self._programs.get(endpoint.revision)
        if program is None:
            program = self._programs[endpoint.revision] = read_endpoint(endpoint)
            while len(self._programs) > MOST_PROGRAMS:
                self._programs.popitem(last=False)
        return program


def statement_key(endpoint: Endpoint, sandbox: SandboxText | None, redaction: Redaction | None) -> StatementKey:
    """Return all that a statement is compiled from, but for the shapes of its streams."""
    return endpoint.revision, sandbox, redaction.mode if redaction else None


def _holding(variants: Sequence[_Kept], versions: Versions, shapes: Shapes) -> Statement | None:
    for kept in variants:
        if still_hold(kept.statement.facts, shapes):
            if len(kept.holds_for) >= MOST_VERSIONS:
                kept.holds_for.clear()
            kept.holds_for.add(versions)
            return kept.statement
    return None


def _versions(statement: Statement, shapes: Shapes) -> Versions:
    return tuple(_version(shapes[stream]) if stream in shapes else (0, -1) for stream in statement.streams)


def _version(shape: Shape) -> tuple[int, int]:
    return shape.version, -1 if shape.whole is None else shape.whole.version
