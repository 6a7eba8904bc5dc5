"""Pass columns to DuckDB without a copy, through Arrow's C stream interface, but without the Arrow library.

https://arrow.apache.org/docs/format/CDataInterface.html defines the structures and the rules of ownership. All buffers
belong to `ArrowColumnStream`. So a release callback does not free memory; it only clears the pointer `release` of the
structure, as the interface requires.
"""

import ctypes
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p, py_object
from functools import partial
from itertools import accumulate
from typing import Any

import msgspec

# Arrow's flag for a column that may contain nulls.
_NULLABLE_FLAG = 2
# The number of texts that are encoded at once. If a whole column were encoded at once, it would be in memory twice.
_TEXTS_ENCODED_AT_ONCE = 1024


class _ArrowSchema(Structure):
    """Arrow's structure `ArrowSchema`: the name and type of a column.

    `_fields_` is set below the class, because it refers to the class itself.
    """


class _ArrowArray(Structure):
    """Arrow's structure `ArrowArray`: the buffers of one column, or the arrays of all columns."""


class _ArrowStream(Structure):
    """Arrow's structure `ArrowArrayStream`: the callbacks through which the reader gets the schema and the arrays."""


_ReleaseSchema = CFUNCTYPE(None, POINTER(_ArrowSchema))
_ReleaseArray = CFUNCTYPE(None, POINTER(_ArrowArray))
_ReleaseStream = CFUNCTYPE(None, POINTER(_ArrowStream))
_GetSchema = CFUNCTYPE(c_int, POINTER(_ArrowStream), POINTER(_ArrowSchema))
_GetNext = CFUNCTYPE(c_int, POINTER(_ArrowStream), POINTER(_ArrowArray))
_GetLastError = CFUNCTYPE(c_char_p, POINTER(_ArrowStream))

_ArrowSchema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_char_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(_ArrowSchema))),
    ("dictionary", c_void_p),
    ("release", _ReleaseSchema),
    ("private_data", c_void_p),
]
_ArrowArray._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(_ArrowArray))),
    ("dictionary", c_void_p),
    ("release", _ReleaseArray),
    ("private_data", c_void_p),
]
_ArrowStream._fields_ = [
    ("get_schema", _GetSchema),
    ("get_next", _GetNext),
    ("get_last_error", _GetLastError),
    ("release", _ReleaseStream),
    ("private_data", c_void_p),
]


def _on_schema_release(schema: Any) -> None:
    schema.contents.release = _ReleaseSchema()


def _on_array_release(arrow_array: Any) -> None:
    arrow_array.contents.release = _ReleaseArray()


def _mark_stream_end(arrow_array: Any) -> None:
    arrow_array.release = _ReleaseArray()


def _on_stream_release(stream: Any) -> None:
    stream.contents.release = _ReleaseStream()


def _no_error(_: Any) -> None:
    return None


# These callbacks are attributes of the module, so that they are never freed: DuckDB may call them after the statement
# has ended.
_release_schema = _ReleaseSchema(_on_schema_release)
_release_array = _ReleaseArray(_on_array_release)
_release_stream = _ReleaseStream(_on_stream_release)
_get_last_error = _GetLastError(_no_error)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = py_object
_new_capsule.argtypes = [c_void_p, c_char_p, c_void_p]


class ArrowColumn(msgspec.Struct, frozen=True):
    """A column: its type as Arrow's format string, the number of nulls, and its buffers in Arrow's order.

    The first buffer is the validity bitmap, or None if the column has no nulls.
    """

    format_string: bytes
    null_count: int
    buffers: tuple["bytes | array[int] | None", ...]


def text_column(values: Sequence[str | None]) -> ArrowColumn:
    """Return a column of texts; surrogates, which UTF-8 cannot encode, become question marks."""
    null_count = values.count(None)
    present: list[str] = [value or "" for value in values] if null_count else list(values)  # type: ignore[arg-type]
    data, sizes = array("b"), array("i", [0])
    for first in range(0, len(present), _TEXTS_ENCODED_AT_ONCE):
        batch = present[first : first + _TEXTS_ENCODED_AT_ONCE]
        joined = "".join(batch)
        encoded = joined.encode("utf-8", "replace")
        is_ascii = len(encoded) == len(joined)
        sizes.extend(map(len, batch) if is_ascii else (len(text.encode("utf-8", "replace")) for text in batch))
        data.frombytes(encoded)
    return ArrowColumn(
        b"u", null_count, (_validity_bitmap(values) if null_count else None, array("i", accumulate(sizes)), data)
    )


def time_column(values: Sequence[int]) -> ArrowColumn:
    """Return a column of times, which are given in microseconds since 1970 in UTC."""
    return ArrowColumn(b"tsu:UTC", 0, (None, array("q", values)))


def number_column(values: Sequence[int]) -> ArrowColumn:
    return ArrowColumn(b"l", 0, (None, array("q", values)))


def boolean_column(values: Sequence[bool]) -> ArrowColumn:
    return ArrowColumn(b"b", 0, (None, _pack_bits("1" if value else "0" for value in reversed(values))))


def _validity_bitmap(values: Sequence[object]) -> bytes:
    return _pack_bits("0" if value is None else "1" for value in reversed(values))


def _pack_bits(digits: Any) -> bytes:
    """Pack binary digits into bytes; the last digit becomes the lowest bit of the first byte."""
    text = "".join(digits)
    return int(text or "0", 2).to_bytes(len(text) // 8 + 1, "little")


class ArrowColumnStream:
    """One batch of rows, which DuckDB reads as an Arrow stream; it must outlive the statements that read it."""

    def __init__(self, columns: Mapping[str, ArrowColumn], length: int) -> None:
        self._columns = columns
        self._row_count = length
        # The objects whose addresses are passed to DuckDB; they must not be freed before `close`.
        self._kept_alive_objects: list[object] = []

    def close(self) -> None:
        """Release all buffers.

        This method is needed, because callbacks and columns refer to each other, so that reference counting alone does
        not free them.
        """
        self._kept_alive_objects.clear()
        self._columns = {}

    def __arrow_c_schema__(self) -> object:
        schema = _ArrowSchema()
        self._fill_schema(schema)
        return self._make_capsule(schema, b"arrow_schema")

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        stream = _ArrowStream(
            get_schema=_GetSchema(self._get_schema),
            get_next=_GetNext(partial(self._get_next, iter([self._fill_batch_array]))),
            get_last_error=_get_last_error,
            release=_release_stream,
        )
        return self._make_capsule(stream, b"arrow_array_stream")

    def _make_capsule(self, structure: Structure, name: bytes) -> object:
        self._kept_alive_objects += (structure, name)
        return _new_capsule(ctypes.addressof(structure), name, None)

    def _get_schema(self, _: Any, out: Any) -> int:
        self._fill_schema(out.contents)
        return 0

    def _get_next(self, fill_callbacks: Iterator[Callable[[Any], None]], _: Any, out: Any) -> int:
        """Write the batch to `out` on the first call, and the mark of the stream's end on later calls.

        In Arrow's interface, the mark of the end is an array without a release callback.
        """
        next(fill_callbacks, _mark_stream_end)(out.contents)
        return 0

    def _fill_schema(self, schema: Any) -> None:
        fields = [
            _ArrowSchema(format=column.format_string, name=name.encode(), flags=_NULLABLE_FLAG, release=_release_schema)
            for name, column in self._columns.items()
        ]
        self._set_children(schema, fields)
        schema.format, schema.name = b"+s", b""
        schema.release = _release_schema

    def _fill_batch_array(self, batch: Any) -> None:
        children = [self._column_array(column) for column in self._columns.values()]
        self._set_children(batch, children)
        self._set_buffers(batch, (None,))
        batch.length = self._row_count
        batch.null_count = batch.offset = 0
        batch.release = _release_array

    def _column_array(self, column: ArrowColumn) -> _ArrowArray:
        arrow_array = _ArrowArray(length=self._row_count, null_count=column.null_count, release=_release_array)
        self._set_buffers(arrow_array, column.buffers)
        return arrow_array

    def _set_children(self, parent: Any, children: Sequence[Structure]) -> None:
        pointers = (POINTER(type(parent)) * len(children))(*map(ctypes.pointer, children))
        self._kept_alive_objects += (pointers, children)
        parent.n_children, parent.children = len(children), pointers

    def _set_buffers(self, arrow_array: Any, buffers: Sequence["bytes | array[int] | None"]) -> None:
        addresses = (c_void_p * len(buffers))(*map(_address_of, buffers))
        self._kept_alive_objects.append(addresses)
        arrow_array.n_buffers, arrow_array.buffers = len(buffers), addresses


def _address_of(buffer: "bytes | array[int] | None") -> int | None:
    if buffer is None:
        return None
    if isinstance(buffer, bytes):
        return ctypes.cast(c_char_p(buffer), c_void_p).value
    return buffer.buffer_info()[0]
