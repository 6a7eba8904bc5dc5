"""A record of endpoints that compiled before, so that a start compiles only new ones.

An endpoint is found by a digest of everything on which its check depends: its text and those of the endpoints that it
reads, the streams that it may name, the engine's dialect, and the code of the compiler. The digests are in a file of
the data folder, which may be deleted at any time.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

import cordwood
from cordwood.folder import write_durably
from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream
from cordwood.sql.included import possible_names

Check = Callable[[Endpoint, Sequence[Stream]], object]

_FILE: Final = "checked.json"
_DIGEST_LENGTH: Final = 32
# The size for the maximum number of endpoints, several times over. A longer file is not read.
_MAX_FILE_BYTES: Final = 4 * 2**20


class PassedChecks:
    """Checks endpoints that have not passed before. `write` records those that are in force."""

    def __init__(self, folder: Path, target: str, check: Check, code: str | None = None) -> None:
        self._file = folder / _FILE
        self._check = check
        self._code = f"{target} {code or compiler_version()}"
        self._known = _read(self._file)
        self._passed: set[str] = set()

    def check(self, endpoint: Endpoint, streams: Sequence[Stream]) -> None:
        """Compile the endpoint unless it compiled before; raise BadEndpointFile with the position of an error."""
        digest = self._digest(endpoint, streams)
        if digest not in self._known:
            self._check(endpoint, streams)
        self._passed.add(digest)

    def write(self) -> None:
        """Record the endpoints that passed. A failure is ignored, because it only makes the next start slower."""
        if self._passed == self._known:
            return
        with suppress(OSError):
            write_durably(self._file, json.dumps(sorted(self._passed)).encode())
            self._known = set(self._passed)

    def _digest(self, endpoint: Endpoint, streams: Sequence[Stream]) -> str:
        names = sorted(possible_names(endpoint, [stream.name for stream in streams]))
        depends_on = (self._code, endpoint.name, endpoint.revision, names)
        return sha256(json.dumps(depends_on).encode()).hexdigest()[:_DIGEST_LENGTH]


def compiler_version() -> str:
    """Return a digest that changes with the compiler: its files, and the versions of the parser and of Python."""
    digest = sha256()
    root = Path(cordwood.__file__).parent
    for entry in sorted(_code_files(root)):
        digest.update(repr(entry).encode())
    return f"{digest.hexdigest()} {version('sqlglot')} {sys.version}"


def _code_files(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Yield path, size and time of each source file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _code_files(Path(entry.path))
            elif entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns


def _read(file: Path) -> set[str]:
    with suppress(OSError, msgspec.MsgspecError):
        if file.stat().st_size <= _MAX_FILE_BYTES:
            return set(msgspec.json.decode(file.read_bytes(), type=list[str]))
    return set()
