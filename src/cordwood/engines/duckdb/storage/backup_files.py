"""Read the files of a backup through open descriptors, up to a fixed length, even if a file grows or is unlinked."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from cordwood.engines.engine import BackupFile
from cordwood.errors import EngineFailed

_READ_CHUNK_BYTES = 1024 * 1024


class OpenFile(msgspec.Struct, frozen=True):
    """An open file of a backup, of which the first `backup_size_bytes` bytes belong to the backup.

    If `is_owned_elsewhere`, another object owns the descriptor and closes it.
    """

    name: str
    descriptor: int
    backup_size_bytes: int
    is_owned_elsewhere: bool = False

    def read_chunks(self) -> Iterator[bytes]:
        offset = 0
        while offset < self.backup_size_bytes:
            chunk = os.pread(self.descriptor, min(_READ_CHUNK_BYTES, self.backup_size_bytes - offset), offset)
            if not chunk:
                raise EngineFailed(f"The file {self.name} is shorter than it was.")
            yield chunk
            offset += len(chunk)


@contextmanager
def as_backup_files(open_files: Sequence[OpenFile]) -> Iterator[list[BackupFile]]:
    """Yield the files for reading during the `with` block; then close all descriptors but those owned elsewhere."""
    try:
        yield [BackupFile(file.name, file.backup_size_bytes, file.read_chunks) for file in open_files]
    finally:
        for file in open_files:
            if not file.is_owned_elsewhere:
                os.close(file.descriptor)
