"""The second isolation check: run a statement only if the engine's own parser finds nothing but permitted reads in it.

The check is independent of the compiler: its input is only the statement's final text and the names of the streams that
the statement may read. Each engine decodes the tree of its parser to structs, and this module walks through the
structs. A statement is refused if its tree has a field that no struct declares.
"""

from collections.abc import Callable, Collection, Iterable
from functools import cache
from hashlib import blake2b
from threading import Lock
from types import NoneType, UnionType
from typing import Final, Literal, NoReturn, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import fields

from cordwood.errors import IsolationCheckFailed, QueryRefused, QueryUnsupported
from cordwood.observe.observation import IsolationBreachRefused, RecordObservation, ignore_observation

# The maximum number of accepted statements whose digests are kept, so that they need no second check; each digest takes
# about 100 bytes of memory.
_MAX_ACCEPTED_STATEMENT_DIGESTS: Final = 20_000
_STATEMENT_DIGEST_BYTES: Final = 16
# The first limit is the maximum number of different refused statements whose texts are logged, the second is the
# maximum length of a logged text. Refusals beyond the first limit are counted, but their texts are not logged.
_MAX_LOGGED_STATEMENTS: Final = 1000
_MAX_LOGGED_STATEMENT_CHARACTERS: Final = 100_000


class IsolationBreachError(Exception):
    """An error for a statement with a forbidden read or action. The message describes it for the operator's log."""


class IsolationCheck:
    """A check that remembers statements which passed, and logs and refuses all others.

    It is safe from several threads.
    """

    def __init__(self, engine: str, note: RecordObservation = ignore_observation) -> None:
        self._engine_name = engine
        self._record_observation = note
        self._lock = Lock()
        self._accepted_statement_digests: set[bytes] = set()
        self._logged_statement_digests: set[bytes] = set()

    def check_statement(self, text: str, streams: Collection[str], inspect: Callable[[], None]) -> None:
        """Call `inspect` to check a statement, unless the same text has passed for the same streams before.

        If `inspect` raises IsolationBreachError, log the statement and raise IsolationCheckFailed.
        """
        digest = _digest_of_checked_statement(text, streams)
        if digest in self._accepted_statement_digests:
            return
        try:
            inspect()
        except IsolationBreachError as breach:
            self._log_and_refuse(text, digest, str(breach))
        with self._lock:
            if len(self._accepted_statement_digests) >= _MAX_ACCEPTED_STATEMENT_DIGESTS:
                self._accepted_statement_digests.clear()
            self._accepted_statement_digests.add(digest)

    def _log_and_refuse(self, text: str, digest: bytes, breach: str) -> NoReturn:
        incident = f"isolation-{digest.hex()[:12]}"
        with self._lock:
            is_new = (
                digest not in self._logged_statement_digests
                and len(self._logged_statement_digests) < _MAX_LOGGED_STATEMENTS
            )
            if is_new:
                self._logged_statement_digests.add(digest)
        self._record_observation(
            IsolationBreachRefused(
                incident=incident,
                engine=self._engine_name,
                breach=breach if is_new else "",
                sql=text[:_MAX_LOGGED_STATEMENT_CHARACTERS] if is_new else "",
                level="error" if is_new else "debug",
            )
        )
        raise IsolationCheckFailed(
            "The query was refused before it ran: its compiled form failed the isolation check.",
            hint=f"Report the incident {incident}.",
        )


def _digest_of_checked_statement(text: str, streams: Collection[str]) -> bytes:
    key = "\0".join([*sorted(streams), "", text])
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_STATEMENT_DIGEST_BYTES).digest()


# The names of the CTEs that are visible at a node.
VisibleCtes = frozenset[str]
ScopedNodes = Iterable[tuple[msgspec.Struct, VisibleCtes]]
NodeVisitor = Callable[[msgspec.Struct, VisibleCtes], ScopedNodes]

ParseTree = TypeVar("ParseTree")

_SCALAR_TYPES: Final = (bool, float, int, str, NoneType, msgspec.Raw)


class UnlistedFunctionError(Exception):
    """An error for a function that is missing from the list of permitted functions of the engine."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.function_name = name


def refuse_unlisted_functions(inspect: Callable[[], None], is_known: Callable[[str], bool]) -> None:
    """Call `inspect`, and translate its UnlistedFunctionError.

    Raise IsolationBreachError if the engine has a function of this name, and QueryUnsupported if it has none.
    """
    try:
        inspect()
    except UnlistedFunctionError as unlisted:
        if is_known(unlisted.function_name):
            raise IsolationBreachError(f"the function {unlisted.function_name}") from unlisted
        raise QueryUnsupported("This query takes a form that is not supported.") from unlisted


def decode_parse_tree(decoder: msgspec.json.Decoder[ParseTree], serialized: bytes | str) -> ParseTree:
    """Decode the parser's output to structs; raise IsolationBreachError for an unknown node or field."""
    try:
        return decoder.decode(serialized)
    except msgspec.ValidationError as unknown:
        raise IsolationBreachError(f"an unknown node or field: {unknown}") from unknown
    except RecursionError as deep:
        raise QueryRefused("The query is nested too deeply.", hint="Split it into sub-queries in WITH.") from deep


def walk_tree(root: msgspec.Struct, visit: NodeVisitor) -> None:
    """Call `visit` for each node of a tree, with the CTEs that are visible at the node.

    `visit` returns the children of a node, each with the CTEs that are visible there. The walk is iterative, because a
    deep tree would exceed Python's limit on recursion.
    """
    pending: list[tuple[msgspec.Struct, VisibleCtes]] = [(root, frozenset())]
    while pending:
        pending += visit(*pending.pop())


def scoped_children(
    node: msgspec.Struct, scope: VisibleCtes, *excluded: str
) -> list[tuple[msgspec.Struct, VisibleCtes]]:
    """Return the child structs of a node, each with `scope`, which are the CTEs that are visible at the node.

    Children are the structs in the node's fields and in lists in these fields. The `excluded` fields are skipped.
    """
    nested: list[tuple[msgspec.Struct, VisibleCtes]] = []
    for name in _child_field_names(type(node)):
        value = getattr(node, name)
        if not value or name in excluded:
            continue
        if type(value) is list:
            nested.extend([(item, scope) for item in value])
        else:
            nested.append((value, scope))
    return nested


@cache
def _child_field_names(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the names of a struct's fields that hold structs or lists of structs."""
    return tuple(field.name for field in fields(kind) if not _is_scalar_type(field.type))


def _is_scalar_type(kind: object) -> bool:
    if get_origin(kind) in (list, Union, UnionType):
        return all(map(_is_scalar_type, get_args(kind)))
    return kind in _SCALAR_TYPES or get_origin(kind) is Literal
