"""Files of events, line by line in JSON, with ids that are the same however often a file is read."""

import gzip
import hashlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from cordwood.engines.duckdb.parquet import read_parquet
from cordwood.errors import BadBody

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"


class _Envelope(msgspec.Struct):
    """All that is looked at: whether an event has an id."""

    id: msgspec.Raw | None = None


def events_in(file: Path) -> Iterator[bytes]:
    """The events of a Parquet or NDJSON file, the latter packed with gzip or not."""
    try:
        with file.open("rb") as start:
            magic = start.read(4)
    except OSError as problem:
        raise BadBody(f"{file} cannot be read: {problem.strerror}.") from problem
    if magic == _PARQUET:
        return with_ids(read_parquet(file))
    return with_ids(_lines(file, is_packed=magic.startswith(_GZIP)))


def with_ids(events: Iterator[bytes]) -> Iterator[bytes]:
    """Events that have no id get one from their place and text: sent again, they are known again."""
    decode = msgspec.json.Decoder(_Envelope).decode
    for number, event in enumerate(events):
        try:
            lacks_id = decode(event).id is None
        except msgspec.DecodeError:
            # Broken lines go as they are: whoever takes events says what is wrong with them.
            lacks_id = False
        yield _identified(number, event) if lacks_id else event


def _identified(number: int, event: bytes) -> bytes:
    digest = hashlib.blake2b(b"%d:" % number + event, digest_size=16).digest()
    start = event.index(b"{") + 1
    separator = b"" if event[start:].lstrip().startswith(b"}") else b","
    return event[:start] + b'"id":"%s"' % str(uuid.UUID(bytes=digest)).encode() + separator + event[start:]


def _lines(file: Path, *, is_packed: bool) -> Iterator[bytes]:
    try:
        with _opened(file, is_packed=is_packed) as lines:
            yield from (line.strip() for line in lines if not line.isspace())
    except (OSError, EOFError) as problem:
        raise BadBody(f"{file} cannot be read: {problem}.") from problem


def _opened(file: Path, *, is_packed: bool) -> IO[bytes]:
    return gzip.open(file) if is_packed else file.open("rb")  # type: ignore[return-value]  # a GzipFile reads like a file
