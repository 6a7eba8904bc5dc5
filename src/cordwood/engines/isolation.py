"""The second isolation check: refuse a statement unless the engine's own parser finds in it only permitted reads.

It is independent of the compiler: its input is the final text and the names of the streams that the statement reads.
"""

from collections.abc import Callable, Collection
from hashlib import blake2b
from threading import Lock
from typing import Final, NoReturn

from cordwood.errors import IsolationBroken
from cordwood.observe.observation import IsolationRefused
from cordwood.observe.observer import Note, note_nothing

# Capacity of the set of texts that passed, which holds a digest of each: some 100 bytes.
_MAX_PASSED: Final = 20_000
_DIGEST_BYTES: Final = 16
# How many different refused texts are logged, each up to this length. Every refusal is counted.
_MAX_LOGGED: Final = 1000
_MAX_LOGGED_CHARACTERS: Final = 100_000


class BreachError(Exception):
    """A forbidden read or action of a text, described for the operator's log."""


class Isolation:
    """A cache of texts that passed the check; it logs and refuses the others. Safe from several threads."""

    def __init__(self, engine: str, note: Note = note_nothing) -> None:
        self._engine = engine
        self._note = note
        self._lock = Lock()
        self._accepted_digests: set[bytes] = set()
        self._logged: set[bytes] = set()

    def check(self, text: str, streams: Collection[str], inspect: Callable[[], None]) -> None:
        """Run `inspect` once per text and streams; raise IsolationBroken if it raises BreachError."""
        digest = _digest(text, streams)
        if digest in self._accepted_digests:
            return
        try:
            inspect()
        except BreachError as breach:
            self._refuse(text, digest, str(breach))
        with self._lock:
            if len(self._accepted_digests) >= _MAX_PASSED:
                self._accepted_digests.clear()
            self._accepted_digests.add(digest)

    def _refuse(self, text: str, digest: bytes, breach: str) -> NoReturn:
        incident = f"isolation-{digest.hex()[:12]}"
        with self._lock:
            is_new = digest not in self._logged and len(self._logged) < _MAX_LOGGED
            if is_new:
                self._logged.add(digest)
        self._note(
            IsolationRefused(
                incident=incident,
                engine=self._engine,
                breach=breach if is_new else "",
                sql=text[:_MAX_LOGGED_CHARACTERS] if is_new else "",
                level="error" if is_new else "debug",
            )
        )
        raise IsolationBroken(
            "The query was refused before it ran: its compiled form failed the isolation check.",
            hint=f"Report the incident {incident}.",
        )


def _digest(text: str, streams: Collection[str]) -> bytes:
    key = "\0".join([*sorted(streams), "", text])
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()
