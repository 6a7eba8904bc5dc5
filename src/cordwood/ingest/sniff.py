"""Detect the format of a file from its beginning, and decode its first events without storing them."""

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import islice
from typing import Final

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.formats import BodyFormat, read_body
from cordwood.ingest.formats.csv import (
    CANDIDATE_DELIMITERS,
    DEFAULT_CSV_OPTIONS,
    CsvOptions,
    delimiter_score,
    read_csv_with_options,
    read_records,
    text_lines,
)
from cordwood.ingest.formats.elastic import read_bulk
from cordwood.ingest.formats.journald import read_journal
from cordwood.ingest.formats.loki import read_json_push as read_push
from cordwood.ingest.formats.syslog import read_syslog_line
from cordwood.ingest.formats.syslog_frames import has_octet_counts, read_counted_messages, remove_octet_count
from cordwood.ingest.formats.text_lines import LINE_DECODERS
from cordwood.ingest.items import JsonItemReader
from cordwood.ingest.parsed_body import Body, LabelledBody, ParsedBody

# The number of decompressed bytes from which the format of a file is detected.
MAX_SAMPLE_BYTES: Final = 64 * 1024
UTF_16_BYTE_ORDER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_MAX_SAMPLE_LINES: Final = 200
_MAX_SAMPLE_LINE_LENGTH: Final = 64 * 1024


class FormatConfidence(IntEnum):
    POSSIBLE = 1
    LIKELY = 2
    CERTAIN = 3


# Formats in which the position of an item is its line number.
LINE_NUMBERED_FORMATS: Final = frozenset({"ndjson", "csv", "syslog", "lines", "logfmt", "combined"})


class PossibleFormat(msgspec.Struct, frozen=True):
    """A possible format of a file, with the reason for assuming it.

    `name` is the name of the format in `cordwood import --as`, if that option supports the format.
    """

    name: str
    display_name: str
    confidence: FormatConfidence
    reason: str


class FileSample(msgspec.Struct, frozen=True, dict=True):
    """The beginning of a file; `is_whole_file` is true if the sample is the whole file."""

    data: bytes
    is_whole_file: bool

    @cached_property
    def text(self) -> str:
        """The sample as text. If the last line of a longer file is incomplete, it is left out."""
        data = self.data if self.is_whole_file else self.data[: self.data.rfind(b"\n") + 1] or self.data
        return data.decode("utf-8-sig", "replace")

    @cached_property
    def lines(self) -> Sequence[str]:
        """The first lines that are not blank, without their line ends."""
        lines = (line.rstrip("\r\n") for line in text_lines(self.text, _MAX_SAMPLE_LINE_LENGTH))
        return [
            line for line, _ in zip((line for line in lines if line.strip()), range(_MAX_SAMPLE_LINES), strict=False)
        ]

    @cached_property
    def counted_syslog_messages(self) -> Sequence[str]:
        """The first messages of a syslog file with octet counts; empty for all other files."""
        if not has_octet_counts(self.data, is_whole=self.is_whole_file):
            return []
        found = read_counted_messages(io.BytesIO(self.data).read1, len(self.data))
        return [message.text for message in islice(found, _MAX_SAMPLE_LINES) if not message.is_truncated]

    @cached_property
    def line_objects(self) -> Sequence[dict[str, msgspec.Raw] | None]:
        """The lines decoded as JSON objects, with None for each line that is not a JSON object."""
        return [_decode_object(line) for line in self.lines]


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _decode_object(text: str) -> dict[str, msgspec.Raw] | None:
    try:
        return _fields_decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def detect_possible_formats(sample: FileSample) -> list[PossibleFormat]:
    """Return the possible formats of the file, the most likely one first."""
    found = [finding for detect in _FORMAT_DETECTORS for finding in [detect(sample)] if finding is not None]
    return sorted(found, key=lambda finding: -finding.confidence)


def _confidence_from_match_share(matches: int, lines: int) -> FormatConfidence | None:
    """Return the confidence in a format if `matches` of `lines` lines have it; None if fewer than half have it."""
    if not matches or matches * 2 < lines:
        return None
    return FormatConfidence.CERTAIN if matches == lines else FormatConfidence.LIKELY


def _matching_lines_reason(matches: int, lines: int) -> str:
    return f"{matches} of the first {lines} lines have the format." if lines > 1 else "The line has the format."


def _detect_parquet(sample: FileSample) -> PossibleFormat | None:
    if not sample.data.startswith(b"PAR1"):
        return None
    return PossibleFormat("parquet", "Parquet", FormatConfidence.CERTAIN, "The file begins with PAR1.")


def _detect_binary(sample: FileSample) -> PossibleFormat | None:
    if b"\0" not in sample.data or sample.data.startswith((b"PAR1", b"__CURSOR=")):
        return None
    if sample.data.startswith(UTF_16_BYTE_ORDER_MARKS):
        reason = "The file begins with the mark of UTF-16. Convert it: iconv -f utf-16 -t utf-8."
        return PossibleFormat("binary", "UTF-16 text", FormatConfidence.CERTAIN, reason)
    return PossibleFormat(
        "binary", "binary data", FormatConfidence.CERTAIN, "The file has zero bytes, so it is not a text."
    )


_JOURNAL_FIELD_PATTERN: Final = re.compile(r"(__CURSOR|__REALTIME_TIMESTAMP|__MONOTONIC_TIMESTAMP|_BOOT_ID)=\S")


def _detect_journald(sample: FileSample) -> PossibleFormat | None:
    found = _JOURNAL_FIELD_PATTERN.match(sample.text)
    if found is None:
        return None
    return PossibleFormat(
        "journald", "journald export", FormatConfidence.CERTAIN, f"The file begins with the field {found[1]}."
    )


_OTLP_DOCUMENT_START_PATTERN: Final = re.compile(
    r'\s*\{\s*"(resource_?(?:Logs|Spans|Metrics|logs|spans|metrics))"\s*:\s*\['
)
_LOKI_PUSH_START_PATTERN: Final = re.compile(r'\s*\{\s*"streams"\s*:\s*\[\s*\{\s*"(?:stream|values|labels|entries)"')


def _detect_otlp(sample: FileSample) -> PossibleFormat | None:
    found = _OTLP_DOCUMENT_START_PATTERN.match(sample.text)
    if found is None:
        return None
    return PossibleFormat("otlp", "OTLP in JSON", FormatConfidence.CERTAIN, f"The document begins with {found[1]}.")


def _detect_loki(sample: FileSample) -> PossibleFormat | None:
    if _LOKI_PUSH_START_PATTERN.match(sample.text) is None:
        return None
    return PossibleFormat(
        "loki", "Loki push in JSON", FormatConfidence.CERTAIN, "The document has streams with labels or values."
    )


_BULK_ACTIONS: Final = {"index", "create", "update", "delete"}


def _detect_elasticsearch(sample: FileSample) -> PossibleFormat | None:
    first = sample.line_objects[0] if sample.line_objects else None
    if first is None or len(first) != 1 or not first.keys() <= _BULK_ACTIONS:
        return None
    action, about = next(iter(first.items()))
    if not bytes(about).startswith(b"{") or len(sample.line_objects) < 2:
        return None
    reason = f"The first line is the action {action}, and a document follows it."
    return PossibleFormat("elasticsearch", "Elasticsearch bulk", FormatConfidence.CERTAIN, reason)


def _detect_ndjson(sample: FileSample) -> PossibleFormat | None:
    matches, lines = sum(one is not None for one in sample.line_objects), len(sample.lines)
    confidence = _confidence_from_match_share(matches, lines)
    if confidence is None or (lines == 1 and sample.is_whole_file):
        return None
    return PossibleFormat("ndjson", "NDJSON", confidence, f"{matches} of the first {lines} lines are JSON objects.")


class _EndOfSampleError(Exception):
    """Raised at the end of a sample that is shorter than its file."""


def _detect_json(sample: FileSample) -> PossibleFormat | None:
    start = sample.text.lstrip()[:1]
    if start not in {"[", "{"}:
        return None
    title = "a JSON array" if start == "[" else "a JSON object"
    count, broken = _count_json_items(sample)
    if broken is not None:
        return PossibleFormat("json", title, FormatConfidence.LIKELY, broken) if count else None
    if not sample.is_whole_file and not count:
        return PossibleFormat(
            "json", title, FormatConfidence.POSSIBLE, "Its first item is longer than the part that was read."
        )
    if start == "{" and count > 1 and None not in sample.line_objects:
        # Objects on separate lines are NDJSON, which `_detect_ndjson` reports.
        return None
    reason = "It is JSON." if count == 1 else f"The first {count} items are JSON."
    return PossibleFormat("json", title, FormatConfidence.CERTAIN, reason)


def _count_json_items(sample: FileSample) -> tuple[int, str | None]:
    """Count the JSON items of a sample.

    Return the number of items and None. If the text contains an error, return the number of objects before the error,
    and a sentence that describes it.
    """
    count = objects = 0
    try:
        for item in _json_items(sample):
            count += 1
            objects += item.startswith("{")
    except BadBody as broken:
        return objects, f"Its first items are JSON, but then: {broken.message}"
    except _EndOfSampleError:
        pass
    return count, None


def _json_items(sample: FileSample) -> Iterator[str]:
    """Yield the JSON items of a sample; raise _EndOfSampleError where the sample ends before its file does."""
    waiting = [sample.data]

    def read(_: int) -> bytes:
        if not waiting and not sample.is_whole_file:
            raise _EndOfSampleError
        return waiting.pop() if waiting else b""

    for item in JsonItemReader(read, len(sample.data) + 1).read_items():
        yield item.text


def _detect_syslog(sample: FileSample) -> PossibleFormat | None:
    messages = sample.counted_syslog_messages or [remove_octet_count(line) for line in sample.lines]
    matches = [message for message in messages if read_syslog_line(message) is not None]
    confidence = _confidence_from_match_share(len(matches), len(messages))
    if confidence is None:
        return None
    is_new = re.match(r"<\d+>\d", matches[0]) is not None
    title = "syslog, RFC 5424" if is_new else "syslog, RFC 3164"
    reason = (
        f"{len(matches)} of the first {len(messages)} messages have the format. An octet count is before each of them."
        if sample.counted_syslog_messages
        else _matching_lines_reason(len(matches), len(messages))
    )
    return PossibleFormat("syslog", title, confidence, reason)


def _make_line_detector(name: str, title: str) -> Callable[[FileSample], PossibleFormat | None]:
    def detect(sample: FileSample) -> PossibleFormat | None:
        matches = sum(LINE_DECODERS[name](line) is not None for line in sample.lines)
        confidence = _confidence_from_match_share(matches, len(sample.lines))
        return (
            None
            if confidence is None
            else PossibleFormat(name, title, confidence, _matching_lines_reason(matches, len(sample.lines)))
        )

    return detect


_COLUMN_NAME_PATTERN: Final = re.compile(r"[A-Za-z_@][\w@./() -]{0,60}")
_TYPICAL_CSV_COLUMN_NAMES: Final = {
    "id",
    "timestamp",
    "event_message",
    "message",
    "project",
    "metadata",
    "time",
    "date",
    "level",
}
_DELIMITER_NAMES: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def _detect_csv(sample: FileSample) -> PossibleFormat | None:
    scores = {delimiter: delimiter_score(sample.text, delimiter) for delimiter in CANDIDATE_DELIMITERS}
    delimiter = max(scores, key=lambda one: scores[one])
    share, columns = scores[delimiter]
    if columns < 2 or share < 0.5 or len(sample.lines) < 2:
        return None
    header = next(read_records(text_lines(sample.text, len(sample.text)), delimiter, len(sample.text)))
    between = f"{columns} columns between {_DELIMITER_NAMES[delimiter]}"
    if not all(_COLUMN_NAME_PATTERN.fullmatch(name.strip()) for name in header.cells):
        reason = f"It has {between}, but its first line does not look like names of columns."
        return PossibleFormat("csv", "CSV", FormatConfidence.POSSIBLE, reason)
    is_usual = share == 1 and any(name.strip().lower() in _TYPICAL_CSV_COLUMN_NAMES for name in header.cells)
    confidence = (
        FormatConfidence.CERTAIN if is_usual else FormatConfidence.LIKELY if share > 0.9 else FormatConfidence.POSSIBLE
    )
    return PossibleFormat("csv", "CSV", confidence, f"It has {between}: {', '.join(header.cells[:8])}.")


def _detect_lines(sample: FileSample) -> PossibleFormat | None:
    if not sample.lines or b"\0" in sample.data:
        return None
    return PossibleFormat("lines", "plain lines", FormatConfidence.POSSIBLE, "Any text can be read as lines.")


# The detectors. If two formats have equal confidence, the format of the earlier detector comes first.
_FORMAT_DETECTORS: Final = (
    _detect_parquet,
    _detect_journald,
    _detect_binary,
    _detect_otlp,
    _detect_loki,
    _detect_elasticsearch,
    _detect_ndjson,
    _detect_json,
    _detect_syslog,
    _make_line_detector("combined", "an access log of Apache or nginx"),
    _make_line_detector("logfmt", "logfmt"),
    _detect_csv,
    _detect_lines,
)


def decode_sample(name: str, sample: FileSample, options: CsvOptions = DEFAULT_CSV_OPTIONS) -> ParsedBody | None:
    """Decode a sample in the format `name`; raise BadBody on an error.

    Return None if the service cannot decode this format, or if no item of the sample is complete.
    """
    if name == "csv":
        return read_csv_with_options(options, Body(sample.text.encode()))
    if name == "ndjson":
        return read_body(BodyFormat.EVENTS, Body(sample.text.encode(), "application/x-ndjson"))
    if name == "syslog" and sample.counted_syslog_messages:
        return _decode_lines(name, sample.counted_syslog_messages)
    if name == "syslog":
        return read_body(BodyFormat.SYSLOG, Body(sample.text.encode(), "application/syslog"))
    if name in {"json", "otlp", "loki"}:
        return _decode_json_document(name, sample)
    if name == "elasticsearch":
        return _decode_bulk(sample)
    if name == "journald":
        # Unless the sample is the whole file, its last entry is incomplete, so leave this entry out.
        data = sample.data if sample.is_whole_file else sample.data[: sample.data.rfind(b"\n\n") + 2]
        return read_journal(Body(data))
    return _decode_lines(name, sample.lines) if name in LINE_DECODERS else None


def _decode_bulk(sample: FileSample) -> ParsedBody:
    text = sample.text
    try:
        bulk = read_bulk("", Body(text.encode()))
    except BadBody:
        if sample.is_whole_file:
            raise
        # The sample may end between an action and its document, so try again without its last line.
        bulk = read_bulk("", Body(text[: text.rstrip().rfind("\n") + 1].encode()))
    return _merge_labelled_parts(bulk)


def _merge_labelled_parts(labelled: LabelledBody) -> ParsedBody:
    """Merge the parts of a labelled body into one body, with the events in their original order."""
    merged = ParsedBody(item_indexes=[])
    parts = labelled.parts_by_labels.values()
    found = [
        (part.item_index(at), event, part.extras_by_event_number.get(at))
        for part in parts
        for at, event in enumerate(part.events)
    ]
    for index, event, extras in sorted(found, key=lambda one: one[0]):
        merged.add_event(event, index, extras)
    merged.refused_items = [item for part in parts for item in part.refused_items]
    return merged


def _decode_lines(name: str, lines: Sequence[str]) -> ParsedBody:
    parsed = ParsedBody(item_indexes=[])
    for index, line in enumerate(lines):
        event = LINE_DECODERS[name](line)
        if event is None:
            parsed.refuse_item(index, f"The line is not in the format {name}.", line)
        else:
            parsed.add_event(event, index)
    return parsed


def _decode_json_document(name: str, sample: FileSample) -> ParsedBody | None:
    items: list[str] = []
    try:
        for item in _json_items(sample):
            items.append(item)
            if len(items) == _MAX_SAMPLE_LINES:
                break
    except _EndOfSampleError:
        pass
    if name == "json":
        return (
            read_body(BodyFormat.EVENTS, Body(f"[{','.join(items)}]".encode(), "application/json")) if items else None
        )
    if not items:
        return None
    if name == "loki":
        return _merge_labelled_parts(read_push(Body(items[0].encode())))
    kind = next(iter(json.loads(items[0])))
    form = {"S": BodyFormat.OTLP_TRACES, "M": BodyFormat.OTLP_METRICS}.get(
        kind[8:].lstrip("_")[:1].upper(), BodyFormat.OTLP
    )
    return read_body(form, Body(items[0].encode(), "application/json"))
