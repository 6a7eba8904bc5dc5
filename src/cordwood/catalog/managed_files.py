"""The endpoint and streams files that the service writes in its data folder, and their earlier versions."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from cordwood.catalog.catalog import Version
from cordwood.catalog.stream_file import tables_of
from cordwood.catalog.toml_document import assignments
from cordwood.errors import OutOfDisk
from cordwood.folder import sync_folder, write_durably

STREAMS: Final = "streams.toml"
ENDPOINTS: Final = "endpoints"
HISTORY: Final = "history"
# How many histories of deleted definitions are kept of each kind, the latest ones.
MAX_DELETED_HISTORIES: Final = 100
_MAX_VERSIONS: Final = 50
_MAX_HISTORY_BYTES: Final = 256 * 1024

_FILE_HEADER: Final = "# Streams that were made over HTTP, and for events that were sent to them. Each change over HTTP writes the file anew.\n"


class ManagedFiles:
    """The files of managed definitions in one folder. Each is replaced durably and atomically.

    Endpoint files are named by UUID, because names of endpoints may contain characters that file names cannot.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def streams_file(self) -> Path:
        return self.folder / STREAMS

    def endpoint_files(self) -> Iterator[tuple[str, Path]]:
        """Yield the path and the file of each endpoint."""
        return ((str(file), file) for file in sorted((self.folder / ENDPOINTS).glob("*.sql")))

    def endpoint_file(self, endpoint_id: UUID) -> Path:
        return self.folder / ENDPOINTS / f"{endpoint_id}.sql"

    def streams_text(self) -> str:
        """Return the text of the streams file, which is empty if it does not exist."""
        return read_text(self.streams_file) or ""

    def stream_tables(self) -> list[Mapping[str, object]]:
        """Return the unvalidated tables of the streams file."""
        return tables_of(str(self.streams_file), self.streams_text())

    def write_streams(self, tables: Iterable[Mapping[str, object]]) -> None:
        self.write(self.streams_file, streams_toml(tables))

    def versions(self, kind: str, definition_id: UUID) -> tuple[Version, ...]:
        """Return the stored versions of a definition, oldest first; none if their file is missing or corrupt."""
        text = read_text(self._history_file(kind, definition_id))
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(text or "[]", type=tuple[Version, ...])
        return ()

    def write_versions(self, kind: str, definition_id: UUID, versions: Sequence[Version]) -> None:
        text = msgspec.json.encode(_limit_versions(versions)).decode()
        self.write(self._history_file(kind, definition_id), text)

    def drop_old_histories(self, kind: str, current: Iterable[UUID]) -> None:
        """Remove the histories of deleted definitions except the latest `MAX_DELETED_HISTORIES`."""
        names = {self._history_file(kind, definition_id).name for definition_id in current}
        files = [file for file in (self.folder / HISTORY).glob(f"{kind}-*.json") if file.name not in names]
        for file in sorted(files, key=lambda definition_id: definition_id.stat().st_mtime, reverse=True)[
            MAX_DELETED_HISTORIES:
        ]:
            file.unlink(missing_ok=True)

    def write(self, file: Path, text: str) -> None:
        """Replace a file; raise OutOfDisk if it cannot be written."""
        with _writing(file):
            if not file.parent.exists():
                file.parent.mkdir(mode=0o700, exist_ok=True)
                sync_folder(file.parent.parent)
            write_durably(file, text.encode())

    def remove(self, file: Path) -> None:
        """Remove a file durably; raise OutOfDisk if it cannot be removed."""
        with _writing(file):
            file.unlink(missing_ok=True)
            sync_folder(file.parent)

    def _history_file(self, kind: str, definition_id: UUID) -> Path:
        return self.folder / HISTORY / f"{kind}-{definition_id}.json"


@contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise OutOfDisk(
            f"The file {file.name} in the data folder cannot be written: {problem.strerror}.",
            hint="Make room on the disk of the data folder, or make it writable again.",
            retry_after=30,
        ) from problem


def streams_toml(tables: Iterable[Mapping[str, object]]) -> str:
    """Write tables as the text of a streams file."""
    return _FILE_HEADER + "".join(
        "\n[[stream]]\n" + "".join(f"{line}\n" for line in assignments(table)) for table in tables
    )


def read_text(file: Path) -> str | None:
    """Read a file; return None if it does not exist."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return file.read_text(encoding="utf-8")
    return None


def with_manual_edit(versions: Sequence[Version], current: str | None) -> tuple[Version, ...]:
    """Append the current text if it differs from the last version, which means that the file was edited by hand."""
    last = versions[-1].text if versions else None
    return tuple(versions) if last == current else append_version(versions, current, "")


def append_version(versions: Sequence[Version], text: str | None, key: str) -> tuple[Version, ...]:
    number = versions[-1].number + 1 if versions else 1
    return (*versions, Version(number, time.time(), key, text))


def _limit_versions(versions: Sequence[Version]) -> tuple[Version, ...]:
    """Drop the oldest versions beyond the limits of number and size, but never the last two."""
    recent: list[Version] = []
    size = 0
    for version in reversed(versions[-_MAX_VERSIONS:]):
        size += len((version.text or "").encode())
        if size > _MAX_HISTORY_BYTES and len(recent) > 1:
            break
        recent.append(version)
    return tuple(reversed(recent))
