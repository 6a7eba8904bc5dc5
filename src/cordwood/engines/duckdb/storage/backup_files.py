"""Files that are read while they grow, or after they are gone: through descriptors, up to a length."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from cordwood.engines.engine import HeldFile
from cordwood.errors import EngineFailed

_PIECE_BYTES = 1024 * 1024


class Opened(msgspec.Struct, frozen=True):
    """A file's name in a backup, and how much of it counts. A descriptor that is `lent` is its owner's to close."""

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
    """What can be read of the files while the block lasts."""
    try:
        yield [HeldFile(file.name, file.size, file.pieces) for file in opened]
    finally:
        for file in opened:
            if not file.lent:
                os.close(file.descriptor)
