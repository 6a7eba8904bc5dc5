"""Read a file and yield its events as JSON. When the same file is read again, its events get the same ids.

A file or standard input is read in chunks and decompressed. The progress is the share of the file's bytes that was
read, before decompression.
"""

import gzip
import hashlib
import io
import os
import stat
import sys
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from cordwood.engines.duckdb.parquet_import import (
    DAMAGED_FILE_HINT,
    UnreadableRow,
    count_parquet_rows,
    is_event_export,
    read_parquet_events,
    read_stored_events,
)
from cordwood.errors import BadBody
from cordwood.ingest.formats.csv import (
    DEFAULT_CSV_OPTIONS,
    CsvColumns,
    CsvOptions,
    detect_delimiter,
    read_records,
    refused_record_text,
)
from cordwood.ingest.formats.journald import JournalDecoder, JournalEntry
from cordwood.ingest.formats.syslog import NOT_SYSLOG_REASON, read_syslog_line
from cordwood.ingest.formats.syslog_frames import has_octet_counts, read_counted_messages
from cordwood.ingest.formats.text_lines import LINE_DECODERS, LineDecoder, encode_event
from cordwood.ingest.items import JsonItemReader, RawFields, rename_case_variants
from cordwood.ingest.parsed_body import ParsedBody
from cordwood.ingest.sniff import (
    MAX_SAMPLE_BYTES,
    UTF_16_BYTE_ORDER_MARKS,
    FileSample,
    FormatConfidence,
    PossibleFormat,
    detect_possible_formats,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_STANDARD_INPUT_PATH = Path("-")

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_FILE_BUFFER_BYTES = 64 * 1024


class _CountingFile(io.RawIOBase):
    """A file that counts the bytes that are read from it."""

    def __init__(self, inner: io.BufferedReader) -> None:
        self._wrapped_file = inner
        self.bytes_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # narrower than any writable buffer
        data = self._wrapped_file.read1(len(buffer))
        buffer[: len(data)] = data
        self.bytes_read += len(data)
        return len(data)


class _ReadableFile(Protocol):
    """The interface of a file whose content, decompressed if necessary, is read in pieces."""

    def read1(self, size: int, /) -> bytes: ...


class _FileWithReplayedSample(io.RawIOBase):
    """A file whose beginning was already read as a sample. Reading returns the sample, then the remaining bytes."""

    def __init__(self, sample: bytes, remaining: _ReadableFile) -> None:
        self._sample = io.BytesIO(sample)
        self._file_after_sample = remaining

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # narrower than any writable buffer
        data = self._sample.read(len(buffer)) or self._file_after_sample.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class InputFile:
    """A file that is being read.

    `compression_format` is the file's compression (`gzip`, `zstd` or None), and `sample` is its beginning after
    decompression.
    """

    def __init__(self, name: str, raw: io.BufferedReader, sample_bytes: int) -> None:
        self.name = name
        self._size_bytes = _size_of(raw)
        self._counting_file = _CountingFile(raw)
        stored = io.BufferedReader(self._counting_file, _FILE_BUFFER_BYTES)
        with self.convert_read_errors():
            magic = stored.peek(4)[:4]
            self.compression_format = "gzip" if magic.startswith(_GZIP) else "zstd" if magic == _ZSTD else None
            self._decompressed_content = _decompressed_file(stored, self.compression_format)
            self.sample = _read_beginning(self._decompressed_content, sample_bytes)
        self.content_reader = io.BufferedReader(
            _FileWithReplayedSample(self.sample, self._decompressed_content), _FILE_BUFFER_BYTES
        )

    @property
    def bytes_read(self) -> int:
        return self._counting_file.bytes_read

    @property
    def read_fraction(self) -> float | None:
        """The share of the file's bytes that was read, or None if the file's size is unknown."""
        return min(1.0, self.bytes_read / self._size_bytes) if self._size_bytes else None

    @contextmanager
    def convert_read_errors(self) -> Iterator[None]:
        """Convert an error of reading or decompressing that is raised inside the `with` block to BadBody."""
        try:
            yield
        except (OSError, EOFError, zlib.error, zstd.ZstdError) as problem:
            raise unreadable_file_fault(self.name, problem) from problem

    def lines(self, max_bytes: int) -> Iterator[bytes]:
        """Yield the lines with their line ends. A line longer than `max_bytes` is cut after `max_bytes` + 1 bytes."""
        with self.convert_read_errors():
            while line := self.content_reader.readline(max_bytes + 1):
                yield line
                if len(line) > max_bytes and not line.endswith(b"\n"):
                    self._skip_line()

    def _skip_line(self) -> None:
        while (remaining := self.content_reader.readline(_FILE_BUFFER_BYTES)) and not remaining.endswith(b"\n"):
            pass


def unreadable_file_fault(name: str, problem: Exception) -> BadBody:
    cause = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    is_damaged = not (isinstance(problem, OSError) and problem.errno)
    return BadBody(f"{name} cannot be read: {cause.rstrip('.')}.", hint=DAMAGED_FILE_HINT if is_damaged else None)


@contextmanager
def open_input_file(file: Path, sample_bytes: int) -> Iterator[InputFile]:
    """Open a file, or standard input if `file` is `-`, and read the first `sample_bytes` of its content."""
    if file == _STANDARD_INPUT_PATH:
        if not isinstance(sys.stdin, io.TextIOWrapper) or not isinstance(sys.stdin.buffer, io.BufferedReader):
            raise BadBody("Standard input is closed.")
        yield InputFile("standard input", sys.stdin.buffer, sample_bytes)
        return
    try:
        raw = file.open("rb")
    except OSError as problem:
        raise unreadable_file_fault(str(file), problem) from problem
    with raw:
        yield InputFile(str(file), raw, sample_bytes)


def _size_of(raw: io.BufferedReader) -> int | None:
    try:
        status = os.fstat(raw.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _decompressed_file(stored: "io.BufferedReader[_CountingFile]", coding: str | None) -> _ReadableFile:
    """Return a file with the decompressed content. A gzip file may have several members, a zstd file several frames."""
    if coding == "gzip":
        return gzip.GzipFile(fileobj=stored, mode="rb")
    if coding == "zstd":
        return zstd.ZstdFile(stored, "rb")
    return stored


def _read_beginning(content: _ReadableFile, size: int) -> bytes:
    chunks, missing = [], size
    while missing and (chunk := content.read1(missing)):
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)


IMPORT_FORMATS: Final = ("ndjson", "json", "csv", "parquet", "journald", *LINE_DECODERS)
# The unit in which positions in a file are counted, by format. In all other formats, lines are counted.
_POSITION_UNITS: Final = {"parquet": "row", "journald": "entry"}
# The maximum size of an item (an event as the file has it). It equals the service's default limit for the body of a
# request.
MAX_FILE_RECORD_BYTES: Final = 16 * 2**20
# The maximum size of an event that is sent. It is smaller than the limit for a body, because the body also has line
# ends.
_MAX_SENT_EVENT_BYTES: Final = MAX_FILE_RECORD_BYTES - 1024
# The maximum length of a CSV record in characters. It is a quarter of the maximum in bytes, because a character takes
# up to four bytes.
_MAX_CSV_RECORD_CHARACTERS: Final = MAX_FILE_RECORD_BYTES // 4
# If an item is too long or cannot be an event, at most this many characters of it are sent. The service puts them into
# the quarantine.
_MAX_REFUSED_RECORD_CHARACTERS: Final = 2**20
_TOO_LONG_EVENT_EXCERPT_BYTES: Final = 4096
_READ_CHUNK_BYTES: Final = 64 * 1024
_PARQUET_MAGIC: Final = b"PAR1"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LINE_END_TRANSLATION: Final = str.maketrans("\r\n", "  ")
_COMPRESSION_SUFFIXES: Final = {".gz", ".zst", ".zstd"}
_FORMATS_BY_SUFFIX: Final = {".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv", ".tsv": "csv"}
_ADVICE_BY_FORMAT: Final = {
    "otlp": "Send it to /v1/logs, /v1/traces or /v1/metrics.",
    "loki": "Send it to /loki/api/v1/push.",
    "elasticsearch": "Send it to /INDEX/_bulk.",
}


class ReadOptions(msgspec.Struct, frozen=True):
    """The options for reading a file. If `format` is None, the format is detected."""

    format: str | None = None
    csv_options: CsvOptions = DEFAULT_CSV_OPTIONS


class FileRecord(msgspec.Struct, frozen=True, gc=False):
    """An event as JSON, with its position in the file: the number of its line, row or entry, counted from 1.

    If `refusal_reason` is set, the item cannot be an event. Then `json_bytes` is the item's text as a JSON string,
    which the service puts into the quarantine.
    """

    position: int
    json_bytes: bytes
    refusal_reason: str | None = None


class EventFile:
    """The events of a file, with the progress of reading it."""

    def __init__(self, file: Path, source: InputFile, reading: ReadOptions) -> None:
        self._file_path = file
        self._input_file = source
        self._read_options = reading
        self.format_name = reading.format or _detect_format(file, source)
        self._has_octet_counts = self.format_name == "syslog" and has_octet_counts(
            source.sample, is_whole=len(source.sample) < MAX_SAMPLE_BYTES
        )
        self.position_unit = "message" if self._has_octet_counts else _POSITION_UNITS.get(self.format_name, "line")
        self._rows, self._rows_read = 0, 0
        if self.format_name == "parquet" and (file == _STANDARD_INPUT_PATH or source.read_fraction is None):
            raise BadBody(f"{source.name} cannot be read as Parquet.", hint="Parquet is read from uncompressed files.")

    @property
    def read_fraction(self) -> float | None:
        """The share of the file that was read, from 0 to 1, or None if the file's size is unknown."""
        return min(1.0, self._rows_read / self._rows) if self._rows else self._input_file.read_fraction

    @property
    def bytes_read(self) -> int:
        return self._input_file.bytes_read

    @property
    def is_cordwood_export(self) -> bool:
        """Whether `cordwood export` wrote the file."""
        return self.format_name == "parquet" and is_event_export(self._file_path)

    def rows_of_cordwood_export(self) -> Iterator[FileRecord]:
        """Yield the rows of a file that `cordwood export` wrote, as they were stored."""
        return self._parquet_row_records(read_stored_events(self._file_path))

    def events(self) -> Iterator[FileRecord]:
        """Yield the events, each with an id; raise BadBody if a part of the file cannot be read.

        An event that is too long is yielded as an item with a fault.
        """
        for record in self._csv_records() if self.format_name == "csv" else add_missing_ids(self._non_csv_records()):
            if len(record.json_bytes) > _MAX_SENT_EVENT_BYTES:
                beginning = record.json_bytes[:_TOO_LONG_EVENT_EXCERPT_BYTES].decode("utf-8", "replace")
                yield _refused_record(
                    record.position, beginning, f"The event is longer than {MAX_FILE_RECORD_BYTES // 2**20} MiB."
                )
            else:
                yield record

    def _non_csv_records(self) -> Iterator[FileRecord]:
        if self.format_name == "parquet":
            return self._parquet_row_records(read_parquet_events(self._file_path))
        if self.format_name == "json":
            return self._json_records()
        if self.format_name == "journald":
            return self._journal_entry_records()
        if self._has_octet_counts:
            return self._counted_syslog_records()
        return (
            self._decoded_line_records(LINE_DECODERS[self.format_name])
            if self.format_name in LINE_DECODERS
            else self._line_records()
        )

    def _parquet_row_records(self, rows: Iterator[bytes | UnreadableRow]) -> Iterator[FileRecord]:
        self._rows = max(1, count_parquet_rows(self._file_path))
        for row in rows:
            self._rows_read += 1
            yield (
                _refused_record(self._rows_read, row.text, row.reason)
                if isinstance(row, UnreadableRow)
                else FileRecord(self._rows_read, row)
            )

    def _line_records(self, stripped: bytes | None = None) -> Iterator[FileRecord]:
        """Yield the lines that are not blank.

        The bytes in `stripped` are removed from the end of each line. If `stripped` is None, white space is removed
        from both ends.
        """
        for number, line in enumerate(self._input_file.lines(MAX_FILE_RECORD_BYTES), 1):
            if len(line) > MAX_FILE_RECORD_BYTES:
                fault = f"The line is longer than {MAX_FILE_RECORD_BYTES // 2**20} MiB."
                yield _refused_record(number, line[:_TOO_LONG_EVENT_EXCERPT_BYTES].decode("utf-8", "replace"), fault)
                continue
            text = line if number > 1 else line.removeprefix(_BYTE_ORDER_MARK)
            if not text.isspace():
                yield FileRecord(number, text.strip() if stripped is None else text.rstrip(stripped))

    def _decoded_line_records(self, decode: LineDecoder) -> Iterator[FileRecord]:
        for record in self._line_records(b"\r\n"):
            if record.refusal_reason is not None:
                yield record
                continue
            text = record.json_bytes.decode("utf-8", "replace")
            event = decode(text)
            if event is None:
                yield _refused_record(record.position, text, f"The line is not in the format {self.format_name}.")
            else:
                yield FileRecord(record.position, encode_event(event))

    def _counted_syslog_records(self) -> Iterator[FileRecord]:
        with self._input_file.convert_read_errors():
            messages = read_counted_messages(self._input_file.content_reader.read1, MAX_FILE_RECORD_BYTES)
            for number, message in enumerate(messages, 1):
                event = None if message.is_truncated else read_syslog_line(message.text)
                if event is not None:
                    yield FileRecord(number, encode_event(event))
                else:
                    fault = "The message is too long or cut off." if message.is_truncated else NOT_SYSLOG_REASON
                    yield _refused_record(number, message.text, fault)

    def _json_records(self) -> Iterator[FileRecord]:
        with self._input_file.convert_read_errors(), self._prefix_errors_with_file_name():
            for item in JsonItemReader(self._input_file.content_reader.read1, MAX_FILE_RECORD_BYTES).read_items():
                # An event is sent as one line. Line ends occur only between tokens, so spaces can replace them.
                yield FileRecord(item.line_number, item.text.translate(_LINE_END_TRANSLATION).encode())

    def _journal_entry_records(self) -> Iterator[FileRecord]:
        decoder, count = JournalDecoder(MAX_FILE_RECORD_BYTES), 0
        with self._input_file.convert_read_errors():
            while True:
                chunk = self._input_file.content_reader.read1(_READ_CHUNK_BYTES)
                for entry in decoder.feed(chunk) if chunk else decoder.finish():
                    count += 1
                    yield _journal_entry_record(entry, count)
                if not chunk:
                    return

    def _csv_records(self) -> Iterator[FileRecord]:
        delimiter = self._read_options.csv_options.delimiter or self._csv_delimiter()
        lines = (line.decode("utf-8", "replace") for line in self._input_file.lines(MAX_FILE_RECORD_BYTES))
        with self._prefix_errors_with_file_name():
            records = read_records(_without_byte_order_mark(lines), delimiter, _MAX_CSV_RECORD_CHARACTERS)
            header = next(records, None)
            if header is None:
                return
            columns = CsvColumns(header, self._read_options.csv_options.column_types)
            for number, record in enumerate(records):
                fault = columns.find_record_fault(record)
                if fault is None:
                    fields = columns.row_fields(record.cells)
                    if not _has_id(fields):
                        fields["id"] = msgspec.Raw(b'"%s"' % _derived_id(number, "\0".join(record.cells).encode()))
                    yield FileRecord(record.line_number, _encode_json(fields))
                else:
                    yield _refused_record(record.line_number, refused_record_text(record, delimiter), fault)

    def _csv_delimiter(self) -> str:
        if _suffix_without_compression(self._file_path) == ".tsv":
            return "\t"
        return detect_delimiter(_file_sample(self._input_file).text)

    @contextmanager
    def _prefix_errors_with_file_name(self) -> Iterator[None]:
        """Prefix the message of a BadBody that is raised inside the `with` block with the file's name."""
        try:
            yield
        except BadBody as problem:
            if problem.message.startswith(self._input_file.name):
                raise
            raise BadBody(f"{self._input_file.name}: {problem.message}", hint=problem.hint) from problem


@contextmanager
def open_event_file(file: Path, reading: ReadOptions) -> Iterator[EventFile]:
    """Open a file of events, or standard input if `file` is `-`; raise BadBody if its format is not recognised."""
    with open_input_file(file, MAX_SAMPLE_BYTES) as source:
        yield EventFile(file, source, reading)


def _detect_format(file: Path, source: InputFile) -> str:
    ending = _suffix_without_compression(file)
    if source.sample.startswith(_PARQUET_MAGIC) and source.compression_format is None:
        return "parquet"
    if not source.sample and ending == ".parquet":
        raise BadBody(f"{file} is empty, so it is not a Parquet file.", hint=DAMAGED_FILE_HINT)
    if source.sample.startswith(UTF_16_BYTE_ORDER_MARKS):
        raise BadBody(f"{source.name} is UTF-16.", hint="Convert it: iconv -f utf-16 -t utf-8.")
    if ending in _FORMATS_BY_SUFFIX or not source.sample.strip():
        return _FORMATS_BY_SUFFIX.get(ending, "ndjson")
    return _detect_format_by_content(source, ending)


def _detect_format_by_content(source: InputFile, ending: str) -> str:
    finding = next(iter(detect_possible_formats(_file_sample(source))), None)
    if finding is not None and _is_certain_format(finding):
        return finding.name
    if ending == ".json" and (finding is None or finding.name not in _ADVICE_BY_FORMAT):
        # The name promises JSON, so read the file as JSON: the resulting error says in which line it is not JSON.
        return "json"
    raise BadBody(f"{source.name} is not in a format that can be imported.", hint=_import_hint(finding))


def _is_certain_format(finding: PossibleFormat) -> bool:
    """Return whether a detected format is certain enough that the user need not confirm it with the option `--as`."""
    if finding.name == "csv":
        return finding.confidence >= FormatConfidence.LIKELY
    return finding.name in IMPORT_FORMATS and finding.name not in LINE_DECODERS


def _import_hint(finding: PossibleFormat | None) -> str:
    if finding is None or finding.name == "binary":
        return "`cordwood sniff` tells the formats that it may have."
    if finding.name in IMPORT_FORMATS:
        return f"It may be {finding.display_name}: say so with --as {finding.name}."
    return _ADVICE_BY_FORMAT[finding.name]


def import_advice(found: PossibleFormat, file: str) -> str | None:
    """Return advice on how to store a file of this format: the command to import it, or the route to send it to.

    Return None if events in this format cannot be stored.
    """
    if found.name in IMPORT_FORMATS:
        named = "" if _is_certain_format(found) else f" --as {found.name}"
        return f"Import it with: cordwood import {file}{named} --stream NAME"
    return _ADVICE_BY_FORMAT.get(found.name)


def _file_sample(source: InputFile) -> FileSample:
    return FileSample(source.sample, is_whole_file=len(source.sample) < MAX_SAMPLE_BYTES)


def _suffix_without_compression(file: Path) -> str:
    """Return the suffix of a file name without the suffix of a compression: `.csv` for `a.csv` and `a.csv.gz`."""
    return Path(file.stem).suffix.lower() if file.suffix.lower() in _COMPRESSION_SUFFIXES else file.suffix.lower()


def _without_byte_order_mark(lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix("\ufeff")


def _journal_entry_record(entry: JournalEntry, line_number: int) -> FileRecord:
    parsed = ParsedBody(item_indexes=[])
    entry.add_to_body(parsed, line_number)
    for item in parsed.refused_items:
        return _refused_record(line_number, item.text, item.reason)
    return FileRecord(line_number, encode_event(parsed.events[0]))


def _refused_record(line_number: int, text: str, fault: str) -> FileRecord:
    return FileRecord(line_number, _encode_json(text[:_MAX_REFUSED_RECORD_CHARACTERS]), fault)


def count_events(file: Path) -> int:
    """Return the number of events in a Parquet file; raise BadBody if the file is truncated or not Parquet."""
    return count_parquet_rows(file)


class _EventId(msgspec.Struct):
    """An event of which only the id is decoded."""

    id: msgspec.Raw | None = None


_encode_json = msgspec.json.Encoder().encode
_NULL: Final = msgspec.Raw(b"null")
_decode_fields = msgspec.json.Decoder(RawFields).decode
_decode_event_id = msgspec.json.Decoder(_EventId).decode


def add_missing_ids(records: Iterator[FileRecord]) -> Iterator[FileRecord]:
    for number, record in enumerate(records):
        yield (
            record
            if record.refusal_reason is not None
            else FileRecord(record.position, add_missing_id(number, record.json_bytes))
        )


def add_missing_id(number: int, event: bytes) -> bytes:
    """Return the event. If it has no id, add an id that is derived from its text and its index `number` in the file.

    If the same file is sent again, its events get the same ids, so that the service recognises them as duplicates.
    """
    try:
        has_id = _decode_event_id(event).id is not None or _has_id(_decode_fields(event))
    except (msgspec.DecodeError, RecursionError):
        # Send an invalid item unchanged, so that the service reports its error.
        return event
    if has_id:
        return event
    start = event.index(b"{") + 1
    separator = b"" if event[start:].lstrip().startswith(b"}") else b","
    return event[:start] + b'"id":"%s"' % _derived_id(number, event) + separator + event[start:]


def _has_id(fields: RawFields) -> bool:
    """Return whether the service will find an id in the event. Its name may differ in case."""
    return bytes(rename_case_variants(fields).get("id", _NULL)) != bytes(_NULL)


def _derived_id(number: int, text: bytes) -> bytes:
    digest = hashlib.blake2b(b"%d:" % number + text, digest_size=16).digest()
    return str(uuid.UUID(bytes=digest)).encode()
