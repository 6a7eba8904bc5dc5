"""The protocol between the serving process and the engine's process: kinds of frames, and encodings.

A frame about a request begins with the request's number. Values are pickled, which is safe because both ends are
processes of this program and no third party has access to the connection. Events are encoded as msgpack. If the caller
encodes the rows itself, they are sent pickled, batch by batch.
"""

import pickle
import struct
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from enum import IntEnum
from itertools import chain
from typing import cast

import msgspec

from cordwood.engines.engine import Appended, Run, StreamFacts
from cordwood.engines.run import OutdatedError
from cordwood.errors import Fault, Span
from cordwood.model.datatype import Column, Row, Rows
from cordwood.model.event import Batch, Kinds

REQUEST_NUMBER = struct.Struct("<I")
_CREDIT = struct.Struct("<II")
_LENGTH = struct.Struct("<I")
# The flow-control window of an answer, and the largest chunk in one frame.
WINDOW_BYTES = 1024 * 1024
CHUNK_BYTES = 256 * 1024


class FrameKind(IntEnum):
    """The kinds of frames: OPEN to ASK_PROGRESS go to the engine's process, OPENED to PROGRESS come from it."""

    OPEN = 1
    CALL = 2
    APPEND = 3
    RUN = 4
    SNAPSHOT = 5
    CANCEL = 6
    CREDIT = 7
    PING = 8
    ASK_PROGRESS = 9
    OPENED = 16
    DONE = 17
    FAILED = 18
    CHUNK = 19
    NOTE = 20
    PONG = 21
    PROGRESS = 22


class StreamCounts(msgspec.Struct, frozen=True):
    """The counts of a stream; `tail` is the sequence number of its next event.

    Counts with a higher `number` are newer. `newest_receipt_us` is the receive time of the newest event of all streams.
    """

    number: int
    facts: StreamFacts
    tail: int
    newest_receipt_us: int | None = None


class StreamState(msgspec.Struct, frozen=True):
    """The mirrored state of a stream; `sets` are the bit sets of its projects over `pairs`."""

    learnt: Kinds
    pairs: Sequence[tuple[tuple[str, ...], str]]
    sets: Mapping[str, int]
    counts: StreamCounts


class AppendResult(msgspec.Struct, frozen=True):
    """The result of an append, with the counts of its streams."""

    appended: list[Appended]
    counts: Mapping[str, StreamCounts]


class SerializedFault(msgspec.Struct, frozen=True):
    """A serialized fault; `trace` is the traceback of its cause for the log."""

    kind: type[Fault]
    message: str
    hint: str | None
    span: Span | None
    retry_after: float | None
    trace: str


class EngineProcessError(Exception):
    """An unexpected exception of the engine's process, with its traceback."""


def pack(value: object) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def unpack(payload: bytes | memoryview) -> object:
    return pickle.loads(payload)  # noqa: S301 - see above


def with_number(number: int, payload: bytes = b"") -> bytes:
    return REQUEST_NUMBER.pack(number) + payload


def split_number(payload: bytes) -> tuple[int, memoryview]:
    """Split a frame into the number of its request and the rest."""
    return REQUEST_NUMBER.unpack_from(payload)[0], memoryview(payload)[REQUEST_NUMBER.size :]


def pack_credit(number: int, consumed_bytes: int) -> bytes:
    return _CREDIT.pack(number, consumed_bytes)


def unpack_credit(payload: bytes) -> tuple[int, int]:
    number, consumed_bytes = _CREDIT.unpack(payload)
    return number, consumed_bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Batch]).decode


def pack_append(batches: Sequence[Batch], acknowledged: Mapping[str, int] | None) -> bytes:
    """Pack an append; for a repeated one, `acknowledged` tells where the acknowledged events of each stream end."""
    head = pack(acknowledged)
    return _LENGTH.pack(len(head)) + head + _encode(list(batches))


def unpack_append(payload: memoryview) -> tuple[list[Batch], Mapping[str, int] | None]:
    start = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
    acknowledged = unpack(payload[_LENGTH.size : start])
    return _decode(payload[start:]), acknowledged  # type: ignore[return-value] # as it was packed


def pack_exception(exception: BaseException) -> bytes:
    if isinstance(exception, Fault):
        trace = "".join(traceback.format_exception(exception.__cause__)) if exception.__cause__ else ""
        return pack(
            SerializedFault(
                type(exception), exception.message, exception.hint, exception.span, exception.retry_after, trace
            )
        )
    if isinstance(exception, OutdatedError):
        return pack(None)
    return pack("".join(traceback.format_exception(exception)))


def unpack_exception(payload: memoryview) -> Exception:
    content = unpack(payload)
    if content is None:
        return OutdatedError()
    if not isinstance(content, SerializedFault):
        return EngineProcessError(content)
    fault = content.kind.__new__(content.kind)
    # Bypass the constructors of fault classes: their arguments are already part of the message.
    Fault.__init__(fault, content.message, hint=content.hint, span=content.span, retry_after=content.retry_after)
    if content.trace:
        fault.__cause__ = EngineProcessError(content.trace)
    return fault


def encode_rows(rows: Rows) -> Iterator[bytes]:
    """Yield the columns, then each batch, each preceded by its length."""
    for value in chain([rows.columns], rows.batches):
        data = pack(value)
        yield REQUEST_NUMBER.pack(len(data)) + data


def decode_rows(run: Run) -> Rows:
    values = _decoded_values(run.chunks())
    rows = Rows(cast(tuple[Column, ...], next(values)), ())
    rows.batches = _decoded_batches(run, rows, values)
    return rows


def _decoded_batches(run: Run, rows: Rows, values: Generator[object, None, None]) -> Iterator[list[Row]]:
    with closing(values):
        for batch in values:
            yield cast(list[Row], batch)
    stats = run.stats()
    rows.truncated, rows.engine_seconds = stats.truncated, stats.engine_seconds


def _decoded_values(chunks: Generator[bytes, None, None]) -> Generator[object, None, None]:
    buffer = bytearray()
    with closing(chunks):
        for chunk in chunks:
            buffer += chunk
            while len(buffer) >= REQUEST_NUMBER.size and len(buffer) >= (
                end := REQUEST_NUMBER.size + REQUEST_NUMBER.unpack_from(buffer)[0]
            ):
                yield unpack(bytes(buffer[REQUEST_NUMBER.size : end]))
                del buffer[:end]
