"""The endpoint and stream files that the service writes itself, in its data folder."""

from pathlib import Path

import msgspec

from cordwood.errors import OutOfDisk
from cordwood.folder import write_durably

STREAMS = "streams.toml"


class ManagedFiles:
    """The files below one folder; each is replaced durably and as a whole, or stays as it was."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def streams_file(self) -> Path:
        return self.folder / STREAMS

    def streams_text(self) -> str:
        """Return the text of the streams file, empty where there is none."""
        try:
            return self.streams_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def write(self, file: Path, text: str) -> None:
        """Replace a file; OutOfDisk where it cannot be written."""
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
    """Write a TOML string by JSON's escapes, which TOML shares, and escape DEL in addition."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
