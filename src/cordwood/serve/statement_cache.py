"""The cache of compiled statements, by endpoint revision, sandbox query, and the shapes on which a statement depends."""

import threading
from collections.abc import Callable, Mapping, Sequence

import msgspec

from cordwood.bounded_cache import BoundedCache, bytes_of
from cordwood.dialects import compile_logql_query, compile_lql_query, compile_saved, compile_sql, read_endpoint
from cordwood.logql.compile import check_logql_patterns
from cordwood.lql.compile import RegexCheck, check_patterns
from cordwood.model.endpoint import Endpoint
from cordwood.model.redaction import RedactMode
from cordwood.model.shape import Shape
from cordwood.serve.query_request import Language, SandboxText
from cordwood.sql.paging import FIRST_PAGE, Page
from cordwood.sql.program import Program
from cordwood.sql.record_shapes import lookups_still_hold
from cordwood.sql.redaction.patterns import Redaction
from cordwood.sql.stages import Statement, Target

StatementKey = tuple[str, SandboxText | None, RedactMode | None, Page]

_COMPILERS = {
    Language.SQL: compile_sql,
    Language.LQL: compile_lql_query,
    Language.LOGQL: compile_logql_query,
}
# Regular expressions in these languages are validated here, because the engine's errors for them have no position.
_PATTERN_CHECKS = {Language.LQL: check_patterns, Language.LOGQL: check_logql_patterns}


# The byte budget of statements with their texts; the parsed trees of endpoints have a second budget of this size.
MAX_BYTES = 16 * 2**20
# The estimated bytes of a tree node. A tree is held twice: as parsed, and prepared for sandbox queries.
_NODE_BYTES = 1_000

# The maximum number of variants of a statement, compiled for different shapes, and of shape versions for each variant.
MAX_VARIANTS = 16
MAX_VERSIONS = 1_000
_VERSION_BYTES = 320

Shapes = Mapping[str, Shape]
Versions = tuple[tuple[int, int], ...]


class _CachedStatement(msgspec.Struct, frozen=True):
    """A compiled statement. `valid_versions` are the versions of shapes for which it is known to be valid."""

    statement: Statement
    valid_versions: set[Versions]
    size: int


class StatementCache:
    """The cache of statements. Thread-safe; two threads may compile the same query at the same time.

    A statement is valid for every caller whose shapes agree on the names and kinds on which it depends. So keys that
    are pinned to different projects share statements, and new paths that a statement does not read leave it valid.
    """

    def __init__(
        self,
        target: Target,
        shapes: Callable[[], Shapes],
        is_regex: RegexCheck | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._target = target
        self._shapes = shapes
        self._is_regex = is_regex
        self._lock = threading.Lock()
        self._programs: BoundedCache[str, Program] = BoundedCache(max_bytes, _program_bytes)
        self._statements: BoundedCache[StatementKey, tuple[_CachedStatement, ...]] = BoundedCache(
            max_bytes, _statement_bytes
        )

    def find(
        self,
        endpoint: Endpoint,
        sandbox: SandboxText | None,
        redaction: Redaction | None = None,
        shapes: Shapes | None = None,
        page: Page = FIRST_PAGE,
    ) -> Statement | None:
        """Return the statement, or None if it was compiled neither for these shapes nor for equivalent ones.

        `shapes` are the shapes that the caller may see, or None for all shapes.
        """
        key = statement_key(endpoint, sandbox, redaction, page)
        variants = self._statements.get(key)
        if variants is None:
            return None
        shapes = self._shapes() if shapes is None else shapes
        versions = _versions(variants[0].statement, shapes)
        for cached in variants:
            if versions in cached.valid_versions:
                return cached.statement
        valid = _find_valid(variants, redaction.visible_shapes(shapes) if redaction else shapes)
        if valid is None:
            return None
        self._note_version(key, valid, versions)
        return valid.statement

    def compile(
        self,
        endpoint: Endpoint,
        sandbox: SandboxText | None,
        redaction: Redaction | None = None,
        shapes: Shapes | None = None,
        page: Page = FIRST_PAGE,
    ) -> Statement:
        shapes = self._shapes() if shapes is None else shapes
        program = msgspec.structs.replace(self.program(endpoint), page=page)
        if sandbox is None:
            statement = compile_saved(program, self._target, shapes, redaction)
        else:
            check = _PATTERN_CHECKS.get(sandbox.language)
            if check is not None and self._is_regex is not None:
                check(sandbox.text, self._is_regex)
            statement = _COMPILERS[sandbox.language](program, sandbox.text, self._target, shapes, redaction)
        cached = _CachedStatement(statement, {_versions(statement, shapes)}, bytes_of(statement))
        if not page.is_read_once:
            self._store(statement_key(endpoint, sandbox, redaction, page), cached)
        return statement

    def _store(self, key: StatementKey, cached: _CachedStatement) -> None:
        with self._lock:
            others = [
                variant
                for variant in self._statements.get(key) or ()
                if variant.statement.shape_lookups != cached.statement.shape_lookups
            ]
            self._statements.put(key, (cached, *others[: MAX_VARIANTS - 1]))

    def _note_version(self, key: StatementKey, cached: _CachedStatement, versions: Versions) -> None:
        with self._lock:
            if len(cached.valid_versions) >= MAX_VERSIONS:
                cached.valid_versions.clear()
            cached.valid_versions.add(versions)
        self._statements.recount(key)

    def program(self, endpoint: Endpoint) -> Program:
        program = self._programs.get(endpoint.revision)
        if program is None:
            program = read_endpoint(endpoint)
            self._programs.put(endpoint.revision, program)
        return program


def statement_key(
    endpoint: Endpoint, sandbox: SandboxText | None, redaction: Redaction | None, page: Page
) -> StatementKey:
    """Return the inputs of a compilation other than the shapes of the streams."""
    return endpoint.revision, sandbox, redaction.mode if redaction else None, page


def _program_bytes(revision: str, program: Program) -> int:
    return bytes_of((revision, program.endpoint)) + _NODE_BYTES * sum(1 for _ in program.tree.walk())


def _statement_bytes(key: StatementKey, variants: Sequence[_CachedStatement]) -> int:
    return bytes_of(key) + sum(cached.size + _VERSION_BYTES * len(cached.valid_versions) for cached in variants)


def _find_valid(variants: Sequence[_CachedStatement], shapes: Shapes) -> _CachedStatement | None:
    return next((cached for cached in variants if lookups_still_hold(cached.statement.shape_lookups, shapes)), None)


def _versions(statement: Statement, shapes: Shapes) -> Versions:
    return tuple(_version(shapes[stream]) if stream in shapes else (0, -1) for stream in statement.streams)


def _version(shape: Shape) -> tuple[int, int]:
    return shape.version, -1 if shape.whole is None else shape.whole.version
