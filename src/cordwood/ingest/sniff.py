"""Detect the format of a file from its beginning, and decode its first events without storing them."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Final

import msgspec

from cordwood.errors import BadBody
from cordwood.ingest.formats import Form, read_body
from cordwood.ingest.formats.csv import (
    DELIMITERS,
    DETECTED,
    CsvOptions,
    delimiter_score,
    read_csv_as,
    read_records,
    text_lines,
)
from cordwood.ingest.formats.elastic import read_bulk
from cordwood.ingest.formats.journald import read_journal
from cordwood.ingest.formats.loki import read_json as read_push
from cordwood.ingest.formats.text_lines import LINE_DECODERS
from cordwood.ingest.items import JsonDocuments
from cordwood.ingest.parsed_body import Body, LabelledBody, ParsedBody

# The decompressed bytes from which the format of a file is detected.
SAMPLE_BYTES: Final = 64 * 1024
UTF_16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_MAX_LINES: Final = 200
_MAX_LINE_LENGTH: Final = 64 * 1024


class Confidence(IntEnum):
    POSSIBLE = 1
    LIKELY = 2
    CERTAIN = 3


# Formats in which the position of an item is its line number.
LINE_FORMATS: Final = frozenset({"ndjson", "csv", "syslog", "lines", "logfmt", "combined"})


class Finding(msgspec.Struct, frozen=True):
    """A possible format of a file, and the reason. `name` is its name in `cordwood import --as`, if it has one."""

    name: str
    title: str
    confidence: Confidence
    reason: str


class Sample(msgspec.Struct, frozen=True, dict=True):
    """The beginning of a file; `is_whole` is true if it is the whole file."""

    data: bytes
    is_whole: bool

    @cached_property
    def text(self) -> str:
        """The text without a last line that is incomplete."""
        data = self.data if self.is_whole else self.data[: self.data.rfind(b"\n") + 1] or self.data
        return data.decode("utf-8-sig", "replace")

    @cached_property
    def lines(self) -> Sequence[str]:
        """The first lines that are not blank, without their line ends."""
        lines = (line.rstrip("\r\n") for line in text_lines(self.text, _MAX_LINE_LENGTH))
        return [line for line, _ in zip((line for line in lines if line.strip()), range(_MAX_LINES), strict=False)]

    @cached_property
    def objects(self) -> Sequence[dict[str, msgspec.Raw] | None]:
        """The lines as JSON objects; None for a line that is not one."""
        return [_object(line) for line in self.lines]


_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _object(text: str) -> dict[str, msgspec.Raw] | None:
    try:
        return _fields.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def possible_formats(sample: Sample) -> list[Finding]:
    """Return the possible formats of the file, the most likely one first."""
    found = [finding for detect in _DETECTORS for finding in [detect(sample)] if finding is not None]
    return sorted(found, key=lambda finding: -finding.confidence)


def _confidence_of_share(matches: int, lines: int) -> Confidence | None:
    """Return the confidence from the share of lines that have a format."""
    if not matches or matches * 2 < lines:
        return None
    return Confidence.CERTAIN if matches == lines else Confidence.LIKELY


def _match_lines(matches: int, lines: int) -> str:
    return f"{matches} of the first {lines} lines have the format." if lines > 1 else "The line has the format."


def _parquet(sample: Sample) -> Finding | None:
    if not sample.data.startswith(b"PAR1"):
        return None
    return Finding("parquet", "Parquet", Confidence.CERTAIN, "The file begins with PAR1.")


def _binary(sample: Sample) -> Finding | None:
    if b"\0" not in sample.data or sample.data.startswith((b"PAR1", b"__CURSOR=")):
        return None
    if sample.data.startswith(UTF_16_MARKS):
        reason = "The file begins with the mark of UTF-16. Convert it: iconv -f utf-16 -t utf-8."
        return Finding("binary", "UTF-16 text", Confidence.CERTAIN, reason)
    return Finding("binary", "binary data", Confidence.CERTAIN, "The file has zero bytes, so it is not a text.")


_JOURNAL_FIELD: Final = re.compile(r"(__CURSOR|__REALTIME_TIMESTAMP|__MONOTONIC_TIMESTAMP|_BOOT_ID)=\S")


def _journald(sample: Sample) -> Finding | None:
    found = _JOURNAL_FIELD.match(sample.text)
    if found is None:
        return None
    return Finding("journald", "journald export", Confidence.CERTAIN, f"The file begins with the field {found[1]}.")


_OTLP: Final = re.compile(r'\s*\{\s*"(resource_?(?:Logs|Spans|Metrics|logs|spans|metrics))"\s*:\s*\[')
_LOKI: Final = re.compile(r'\s*\{\s*"streams"\s*:\s*\[\s*\{\s*"(?:stream|values|labels|entries)"')


def _otlp(sample: Sample) -> Finding | None:
    found = _OTLP.match(sample.text)
    if found is None:
        return None
    return Finding("otlp", "OTLP in JSON", Confidence.CERTAIN, f"The document begins with {found[1]}.")


def _loki(sample: Sample) -> Finding | None:
    if _LOKI.match(sample.text) is None:
        return None
    return Finding("loki", "Loki push in JSON", Confidence.CERTAIN, "The document has streams with labels or values.")


_BULK_ACTIONS: Final = {"index", "create", "update", "delete"}


def _elasticsearch(sample: Sample) -> Finding | None:
    first = sample.objects[0] if sample.objects else None
    if first is None or len(first) != 1 or not first.keys() <= _BULK_ACTIONS:
        return None
    action, about = next(iter(first.items()))
    if not bytes(about).startswith(b"{") or len(sample.objects) < 2:
        return None
    reason = f"The first line is the action {action}, and a document follows it."
    return Finding("elasticsearch", "Elasticsearch bulk", Confidence.CERTAIN, reason)


def _ndjson(sample: Sample) -> Finding | None:
    matches, lines = sum(one is not None for one in sample.objects), len(sample.lines)
    confidence = _confidence_of_share(matches, lines)
    if confidence is None or (lines == 1 and sample.is_whole):
        return None
    return Finding("ndjson", "NDJSON", confidence, f"{matches} of the first {lines} lines are JSON objects.")


class _EndOfSampleError(Exception):
    """Raised at the end of a sample that is shorter than its file."""


def _json(sample: Sample) -> Finding | None:
    start = sample.text.lstrip()[:1]
    if start not in {"[", "{"}:
        return None
    title = "a JSON array" if start == "[" else "a JSON object"
    count, broken = _json_beginning(sample)
    if broken is not None:
        return Finding("json", title, Confidence.LIKELY, broken) if count else None
    if not sample.is_whole and not count:
        return Finding("json", title, Confidence.POSSIBLE, "Its first item is longer than the part that was read.")
    if start == "{" and count > 1 and None not in sample.objects:
        # Objects on separate lines are NDJSON.
        return None
    reason = "It is JSON." if count == 1 else f"The first {count} items are JSON."
    return Finding("json", title, Confidence.CERTAIN, reason)


def _json_beginning(sample: Sample) -> tuple[int, str | None]:
    """Return the number of items and None, or the number of objects before an error and its reason."""
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


def _json_items(sample: Sample) -> Iterator[str]:
    """Yield the items of the documents; raise _EndOfSampleError at the end of an incomplete sample."""
    waiting = [sample.data]

    def read(_: int) -> bytes:
        if not waiting and not sample.is_whole:
            raise _EndOfSampleError
        return waiting.pop() if waiting else b""

    for item in JsonDocuments(read, len(sample.data) + 1).items():
        yield item.text


_OCTET_COUNT: Final = re.compile(r"\A\d{1,7} (?=<\d)")


def _syslog(sample: Sample) -> Finding | None:
    lines = [_OCTET_COUNT.sub("", line) for line in sample.lines]
    matches = [line for line in lines if LINE_DECODERS["syslog"](line) is not None]
    confidence = _confidence_of_share(len(matches), len(lines))
    if confidence is None:
        return None
    is_new = re.match(r"<\d+>\d", matches[0]) is not None
    title = "syslog, RFC 5424" if is_new else "syslog, RFC 3164"
    return Finding("syslog", title, confidence, _match_lines(len(matches), len(lines)))


def _line_detector(name: str, title: str) -> Callable[[Sample], Finding | None]:
    def detect(sample: Sample) -> Finding | None:
        matches = sum(LINE_DECODERS[name](line) is not None for line in sample.lines)
        confidence = _confidence_of_share(matches, len(sample.lines))
        return (
            None if confidence is None else Finding(name, title, confidence, _match_lines(matches, len(sample.lines)))
        )

    return detect


_COLUMN_NAME: Final = re.compile(r"[A-Za-z_@][\w@./() -]{0,60}")
_KNOWN_COLUMNS: Final = {"id", "timestamp", "event_message", "message", "project", "metadata", "time", "date", "level"}
_DELIMITER_NAMES: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def _csv(sample: Sample) -> Finding | None:
    scores = {delimiter: delimiter_score(sample.text, delimiter) for delimiter in DELIMITERS}
    delimiter = max(scores, key=lambda one: scores[one])
    share, columns = scores[delimiter]
    if columns < 2 or share < 0.5 or len(sample.lines) < 2:
        return None
    header = next(read_records(text_lines(sample.text, len(sample.text)), delimiter, len(sample.text)))
    between = f"{columns} columns between {_DELIMITER_NAMES[delimiter]}"
    if not all(_COLUMN_NAME.fullmatch(name.strip()) for name in header.cells):
        reason = f"It has {between}, but its first line does not look like names of columns."
        return Finding("csv", "CSV", Confidence.POSSIBLE, reason)
    is_usual = share == 1 and any(name.strip().lower() in _KNOWN_COLUMNS for name in header.cells)
    confidence = Confidence.CERTAIN if is_usual else Confidence.LIKELY if share > 0.9 else Confidence.POSSIBLE
    return Finding("csv", "CSV", confidence, f"It has {between}: {', '.join(header.cells[:8])}.")


def _lines(sample: Sample) -> Finding | None:
    if not sample.lines or b"\0" in sample.data:
        return None
    return Finding("lines", "plain lines", Confidence.POSSIBLE, "Any text can be read as lines.")


# In order of precedence for equal confidence.
_DETECTORS: Final = (
    _parquet,
    _journald,
    _binary,
    _otlp,
    _loki,
    _elasticsearch,
    _ndjson,
    _json,
    _syslog,
    _line_detector("combined", "an access log of Apache or nginx"),
    _line_detector("logfmt", "logfmt"),
    _csv,
    _lines,
)


def first_events(name: str, sample: Sample, options: CsvOptions = DETECTED) -> ParsedBody | None:
    """Decode a sample. Return None if its format is not decoded or no item is complete; raise BadBody on an error."""
    if name == "csv":
        return read_csv_as(options, Body(sample.text.encode()))
    if name == "ndjson":
        return read_body(Form.EVENTS, Body(sample.text.encode(), "application/x-ndjson"))
    if name == "syslog":
        return read_body(Form.SYSLOG, Body(sample.text.encode(), "application/syslog"))
    if name in {"json", "otlp", "loki"}:
        return _decoded_document(name, sample)
    if name == "elasticsearch":
        return _decoded_bulk(sample)
    if name == "journald":
        # The last entry of a sample is incomplete.
        data = sample.data if sample.is_whole else sample.data[: sample.data.rfind(b"\n\n") + 2]
        return read_journal(Body(data))
    return _decoded_lines(name, sample) if name in LINE_DECODERS else None


def _decoded_bulk(sample: Sample) -> ParsedBody:
    text = sample.text
    try:
        bulk = read_bulk("", Body(text.encode()))
    except BadBody:
        if sample.is_whole:
            raise
        # The sample may end between an action and its document.
        bulk = read_bulk("", Body(text[: text.rstrip().rfind("\n") + 1].encode()))
    return _merge_parts(bulk)


def _merge_parts(labelled: LabelledBody) -> ParsedBody:
    """Return the events for all streams in their order."""
    merged = ParsedBody(indexes=[])
    parts = labelled.parts.values()
    found = [(part.index_of(at), event, part.extras.get(at)) for part in parts for at, event in enumerate(part.events)]
    for index, event, extras in sorted(found, key=lambda one: one[0]):
        merged.add(event, index, extras)
    merged.refused = [item for part in parts for item in part.refused]
    return merged


def _decoded_lines(name: str, sample: Sample) -> ParsedBody:
    parsed = ParsedBody(indexes=[])
    for index, line in enumerate(sample.lines):
        event = LINE_DECODERS[name](line)
        if event is None:
            parsed.refuse(index, f"The line is not in the format {name}.", line)
        else:
            parsed.add(event, index)
    return parsed


def _decoded_document(name: str, sample: Sample) -> ParsedBody | None:
    items: list[str] = []
    try:
        for item in _json_items(sample):
            items.append(item)
            if len(items) == _MAX_LINES:
                break
    except _EndOfSampleError:
        pass
    if name == "json":
        return read_body(Form.EVENTS, Body(f"[{','.join(items)}]".encode(), "application/json")) if items else None
    if not items:
        return None
    if name == "loki":
        return _merge_parts(read_push(Body(items[0].encode())))
    kind = next(iter(json.loads(items[0])))
    form = {"S": Form.OTLP_TRACES, "M": Form.OTLP_METRICS}.get(kind[8:].lstrip("_")[:1].upper(), Form.OTLP)
    return read_body(form, Body(items[0].encode(), "application/json"))
