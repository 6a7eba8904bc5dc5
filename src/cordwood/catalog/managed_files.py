"""The endpoint and streams files that the service writes in its data folder."""

from pathlib import Path

import msgspec

from cordwood.errors import OutOfDisk
from cordwood.folder import write_durably

STREAMS = "streams.toml"


class ManagedFiles:
    """The files below one folder. Each is replaced durably and atomically."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def streams_file(self) -> Path:
        return self.folder / STREAMS

    def streams_text(self) -> str:
        """Return the text of the streams file; empty if it does not exist."""
        try:
            return self.streams_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def write(self, file: Path, text: str) -> None:
        """Replace a file; raise OutOfDisk if it cannot be written."""
        try:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            write_durably(file, text.encode())
        except OSError as problem:
            raise OutOfDisk(
                f"The file {file.name} in the data folder cannot be written: {problem.strerror}.",
                hint="Make room on the disk of the data folder, or make it writable again.",
                retry_after=30,
            ) from problem


def toml_text(text: str) -> str:
    """Write a TOML string with JSON's escapes, which TOML shares; DEL is escaped in addition."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
