"""Read files up to a fixed length through descriptors, while they grow and after they are unlinked."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from cordwood.engines.engine import HeldFile
from cordwood.errors import EngineFailed

_PIECE_BYTES = 1024 * 1024


class Opened(msgspec.Struct, frozen=True):
    """An open file of a backup: its name, and how many of its bytes belong to the backup.

    A descriptor that is `lent` is closed by its owner.
    """

    name: str
    descriptor: int
    size: int
    lent: bool = False

    def pieces(self) -> Iterator[bytes]:
        at = 0
        while at < self.size:
            piece = os.pread(self.descriptor, min(_PIECE_BYTES, self.size - at), at)
            if not piece:
                raise EngineFailed(f"The file {self.name} is shorter than it was.")
            yield piece
            at += len(piece)


@contextmanager
def held_files(opened: Sequence[Opened]) -> Iterator[list[HeldFile]]:
    """Yield the files for reading while the block lasts; close their descriptors afterwards."""
    try:
        yield [HeldFile(file.name, file.size, file.pieces) for file in opened]
    finally:
        for file in opened:
            if not file.lent:
                os.close(file.descriptor)
