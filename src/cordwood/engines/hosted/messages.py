"""The protocol between the serving process and the engine's process: kinds of frames, and encodings.

A frame about a request begins with the request's number. Values are pickled. This is safe because both ends are
processes of this program, and nothing else has access to the connection. Events are encoded as msgpack. If a caller
needs the rows of an answer and not their encoding, the engine's process sends the rows pickled, batch by batch.
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

from cordwood.engines.engine import BatchAppendResult, QueryRun, StreamStats
from cordwood.engines.local_run import OutdatedStatementError
from cordwood.errors import Fault, Span
from cordwood.model.datatype import Column, Row, Rows
from cordwood.model.event import ReceivedEventBatch, ValueKindsByPath

REQUEST_NUMBER_FORMAT = struct.Struct("<I")
_CREDIT_FORMAT = struct.Struct("<II")
_APPEND_HEAD_LENGTH_FORMAT = struct.Struct("<I")
# How many bytes of an answer may be sent before the reader has taken them, and the maximum size of a chunk in one
# frame.
FLOW_CONTROL_WINDOW_BYTES = 1024 * 1024
MAX_FRAME_CHUNK_BYTES = 256 * 1024


class FrameKind(IntEnum):
    """The kinds of frames: OPEN to ASK_PROGRESS go to the engine's process, OPENED to PROGRESS come from it."""

    OPEN = 1
    CALL_METHOD = 2
    APPEND = 3
    RUN_QUERY = 4
    SNAPSHOT = 5
    CANCEL = 6
    CREDIT = 7
    PING = 8
    ASK_PROGRESS = 9
    OPENED = 16
    DONE = 17
    FAILED = 18
    ANSWER_CHUNK = 19
    OBSERVATION = 20
    PONG = 21
    PROGRESS = 22


class StreamCounts(msgspec.Struct, frozen=True):
    """The numbers of a stream's events; `next_event_number` is the sequence number of the stream's next event.

    Of two such objects for a stream, the one with the higher `version` is newer. `newest_receipt_us` is the receive
    time of the newest event of all streams.
    """

    version: int
    stats: StreamStats
    next_event_number: int
    newest_receipt_us: int | None = None


class StreamState(msgspec.Struct, frozen=True):
    """The state of a stream that the serving process copies: its paths and kinds, and the numbers of its events.

    `project_bit_sets` has a bit set for each project. The bit at a position means that the project has the path and
    kind at the same position in `path_kind_pairs`.
    """

    kinds_by_path: ValueKindsByPath
    path_kind_pairs: Sequence[tuple[tuple[str, ...], str]]
    project_bit_sets: Mapping[str, int]
    counts: StreamCounts


class AppendReply(msgspec.Struct, frozen=True):
    """The result of an append: a result for each batch, and the new counts of the streams of these batches."""

    batch_results: list[BatchAppendResult]
    counts: Mapping[str, StreamCounts]


class SerializedFault(msgspec.Struct, frozen=True):
    """A fault in a form that can be sent to the other process. `cause_traceback` is for the log."""

    fault_class: type[Fault]
    message: str
    hint: str | None
    span: Span | None
    retry_after: float | None
    cause_traceback: str


class EngineProcessError(Exception):
    """An unexpected exception in the engine's process; its message is the traceback of that exception."""


def pack_object(value: object) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def unpack_object(payload: bytes | memoryview) -> object:
    return pickle.loads(payload)  # noqa: S301 - see above


def prefix_request_number(number: int, payload: bytes = b"") -> bytes:
    return REQUEST_NUMBER_FORMAT.pack(number) + payload


def split_request_number(payload: bytes) -> tuple[int, memoryview]:
    """Split the payload of a frame into the number of the request and the remaining bytes."""
    return REQUEST_NUMBER_FORMAT.unpack_from(payload)[0], memoryview(payload)[REQUEST_NUMBER_FORMAT.size :]


def pack_credit(number: int, consumed_bytes: int) -> bytes:
    return _CREDIT_FORMAT.pack(number, consumed_bytes)


def unpack_credit(payload: bytes) -> tuple[int, int]:
    number, consumed_bytes = _CREDIT_FORMAT.unpack(payload)
    return number, consumed_bytes


_encode_batches = msgspec.msgpack.Encoder().encode
_decode_batches = msgspec.msgpack.Decoder(list[ReceivedEventBatch]).decode


def pack_append_request(batches: Sequence[ReceivedEventBatch], acknowledged: Mapping[str, int] | None) -> bytes:
    """Return the payload of a request to append batches.

    If the request is sent again, `acknowledged` has the sequence number that follows each stream's last acknowledged
    event.
    """
    head = pack_object(acknowledged)
    return _APPEND_HEAD_LENGTH_FORMAT.pack(len(head)) + head + _encode_batches(list(batches))


def unpack_append_request(payload: memoryview) -> tuple[list[ReceivedEventBatch], Mapping[str, int] | None]:
    start = _APPEND_HEAD_LENGTH_FORMAT.size + _APPEND_HEAD_LENGTH_FORMAT.unpack_from(payload)[0]
    acknowledged = unpack_object(payload[_APPEND_HEAD_LENGTH_FORMAT.size : start])
    return _decode_batches(payload[start:]), acknowledged  # type: ignore[return-value] # as it was packed


def pack_exception(exception: BaseException) -> bytes:
    if isinstance(exception, Fault):
        trace = "".join(traceback.format_exception(exception.__cause__)) if exception.__cause__ else ""
        return pack_object(
            SerializedFault(
                type(exception), exception.message, exception.hint, exception.span, exception.retry_after, trace
            )
        )
    if isinstance(exception, OutdatedStatementError):
        return pack_object(None)
    return pack_object("".join(traceback.format_exception(exception)))


def unpack_exception(payload: memoryview) -> Exception:
    content = unpack_object(payload)
    if content is None:
        return OutdatedStatementError()
    if not isinstance(content, SerializedFault):
        return EngineProcessError(content)
    fault = content.fault_class.__new__(content.fault_class)
    # Bypass the constructors of fault classes, because the arguments of these constructors are already in the message.
    Fault.__init__(fault, content.message, hint=content.hint, span=content.span, retry_after=content.retry_after)
    if content.cause_traceback:
        fault.__cause__ = EngineProcessError(content.cause_traceback)
    return fault


def encode_rows(rows: Rows) -> Iterator[bytes]:
    """Yield the columns and then each batch of rows; each is pickled, and preceded by its length in bytes."""
    for value in chain([rows.columns], rows.batches):
        data = pack_object(value)
        yield REQUEST_NUMBER_FORMAT.pack(len(data)) + data


def decode_rows(run: QueryRun) -> Rows:
    values = _decoded_values(run.answer_chunks())
    rows = Rows(cast(tuple[Column, ...], next(values)), ())
    rows.batches = _decoded_batches(run, rows, values)
    return rows


def _decoded_batches(run: QueryRun, rows: Rows, values: Generator[object, None, None]) -> Iterator[list[Row]]:
    with closing(values):
        for batch in values:
            yield cast(list[Row], batch)
    stats = run.stats()
    rows.is_truncated, rows.engine_seconds = stats.is_truncated, stats.engine_seconds


def _decoded_values(chunks: Generator[bytes, None, None]) -> Generator[object, None, None]:
    buffer = bytearray()
    with closing(chunks):
        for chunk in chunks:
            buffer += chunk
            while len(buffer) >= REQUEST_NUMBER_FORMAT.size and len(buffer) >= (
                end := REQUEST_NUMBER_FORMAT.size + REQUEST_NUMBER_FORMAT.unpack_from(buffer)[0]
            ):
                yield unpack_object(bytes(buffer[REQUEST_NUMBER_FORMAT.size : end]))
                del buffer[:end]
