"""Compiled statements, kept by endpoint revision, sandbox text and the shapes of the streams they read."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping

import msgspec

from cordwood.lql.compile import compile_lql
from cordwood.lql.patterns import IsRegex, check_patterns
from cordwood.model.endpoint import Endpoint
from cordwood.model.redaction import RedactMode
from cordwood.model.shape import Shape
from cordwood.serve.ask import Language, SandboxText
from cordwood.sql.compile import Program, compile_sandbox, compile_saved, read_endpoint
from cordwood.sql.redaction.redaction import Redaction
from cordwood.sql.stages import Statement
from cordwood.sql.target import Target

StatementKey = tuple[str, SandboxText | None, RedactMode | None]

_COMPILERS = {Language.SQL: compile_sandbox, Language.LQL: compile_lql}


# What statements and their texts may hold together; the least recently used go first.
MOST_CHARACTERS = 16 * 2**20
MOST_PROGRAMS = 1000


class _Kept(msgspec.Struct, frozen=True):
    statement: Statement
    versions: tuple[tuple[str, int], ...]
    characters: int


class Prepared:
    """Safe from several threads: at worst two compile the same text at once."""

    def __init__(
        self,
        target: Target,
        shapes: Callable[[], Mapping[str, Shape]],
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
        self._statements: OrderedDict[StatementKey, _Kept] = OrderedDict()

    def find(
        self, endpoint: Endpoint, sandbox: SandboxText | None, redaction: Redaction | None = None
    ) -> Statement | None:
        """The statement, unless it was never compiled or its streams have changed shape since."""
        key = statement_key(endpoint, sandbox, redaction)
        with self._lock:
            kept = self._statements.get(key)
            if kept is None:
                return None
            self._statements.move_to_end(key)
        if kept.versions != _versions(kept.statement, self._shapes()):
            return None
        return kept.statement

    def compile(self, endpoint: Endpoint, sandbox: SandboxText | None, redaction: Redaction | None = None) -> Statement:
        shapes = self._shapes()
        program = self.program(endpoint)
        if sandbox is None:
            statement = compile_saved(program, self._target, shapes, redaction)
        else:
            if sandbox.language is Language.LQL and self._is_regex is not None:
                check_patterns(sandbox.text, self._is_regex)
            statement = _COMPILERS[sandbox.language](program, sandbox.text, self._target, shapes, redaction)
        characters = len(statement.sql) + (len(sandbox.text) if sandbox else 0)
        key = statement_key(endpoint, sandbox, redaction)
        self._keep(key, _Kept(statement, _versions(statement, shapes), characters))
        return statement

    def _keep(self, key: StatementKey, kept: _Kept) -> None:
        with self._lock:
            before = self._statements.pop(key, None)
            self._statements[key] = kept
            self._characters += kept.characters - (before.characters if before else 0)
            while self._characters > self._most_characters:
                self._characters -= self._statements.popitem(last=False)[1].characters

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


def _versions(statement: Statement, shapes: Mapping[str, Shape]) -> tuple[tuple[str, int], ...]:
    return tuple((stream, shapes[stream].version if stream in shapes else 0) for stream in statement.streams)
