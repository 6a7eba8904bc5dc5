"""Parse CSV with a header line in bounded memory, and make events of its rows.

A row becomes the same event as a JSON object whose keys are the names of the columns. All cells are texts, unless the
sender states types for the columns. Records that do not fit the header are quarantined.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cordwood.errors import BadBody, BodyTooLarge
from cordwood.ingest.formats.json import require_events
from cordwood.ingest.items import RawFields, add_event_from_fields, check_line_count, too_many_items_fault
from cordwood.ingest.parsed_body import Body, ParsedBody

CANDIDATE_DELIMITERS: Final = (",", ";", "\t", "|")
MAX_COLUMNS: Final = 5000
# The delimiter is detected from at most this many characters and records at the beginning of the text.
_DELIMITER_SAMPLE_CHARACTERS: Final = 64 * 1024
_DELIMITER_SAMPLE_RECORDS: Final = 50

# Raise the csv module's limit on the length of a field, which is 128 KiB by default. `read_records` limits whole
# records instead.
csv.field_size_limit(2**31 - 1)

TAB_SEPARATED_MEDIA_TYPE: Final = "text/tab-separated-values"
# The metadata of each event repeats the names of the columns. In all events of a body together, these names may be at
# most `_MAX_COLUMN_NAMES_BODY_RATIO` times as long as the body, or `_MIN_COLUMN_NAMES_LIMIT_BYTES` bytes if that is
# more.
_MAX_COLUMN_NAMES_BODY_RATIO: Final = 8
_MIN_COLUMN_NAMES_LIMIT_BYTES: Final = 2**20
# A body may have this many cells for each item that it may have.
_MAX_CELLS_PER_ITEM: Final = 64
_MEDIA_TYPE_PARAMETER_PATTERN: Final = re.compile(r';\s*([\w-]+)\s*=\s*(?:"([^"]*)"|([^;\s"]*))')


class CsvRecord(msgspec.Struct, frozen=True):
    """A record, with the number of its first line, counted from 1.

    If the record could not be parsed, `fault` is the reason, and `refused_text` is the text of the record.
    """

    line_number: int
    cells: Sequence[str]
    fault: str | None = None
    refused_text: str = ""


class _RecordTooLongError(Exception):
    """Raised by `_LineRecorder` when the current record becomes too long."""


class _LineRecorder:
    """An iterator that gives the CSV parser its lines, and keeps the lines of the current record."""

    def __init__(self, lines: Iterable[str], max_characters: int) -> None:
        self._lines = iter(lines)
        self._max_record_characters = max_characters
        self._record_characters = 0
        self.record_lines: list[str] = []
        self.line_count = 0
        self.is_exhausted = False

    def __iter__(self) -> "_LineRecorder":
        return self

    def __next__(self) -> str:
        try:
            line = next(self._lines)
        except StopIteration:
            self.is_exhausted = True
            raise
        self.line_count += 1
        self.record_lines.append(line)
        self._record_characters += len(line)
        if self._record_characters > self._max_record_characters:
            raise _RecordTooLongError
        return line

    def begin_record(self) -> None:
        self.record_lines, self._record_characters = [], 0


def read_records(lines: Iterable[str], delimiter: str, max_characters: int) -> Iterator[CsvRecord]:
    """Yield the records that are not empty.

    A line of more than `max_characters` becomes a record with a fault. If a record of several lines has more
    characters, raise BadBody: probably a quoted field is not closed, so the start of the next record is unknown. If a
    quoted field is still open at the end of the lines, the last record has a fault.
    """
    source = _LineRecorder(lines, max_characters)
    parser = csv.reader(source, delimiter=delimiter, strict=True)
    while True:
        source.begin_record()
        first = source.line_count + 1
        try:
            cells = next(parser)
        except StopIteration:
            return
        except _RecordTooLongError:
            if len(source.record_lines) > 1:
                raise _unclosed_field_fault(first, max_characters) from None
            yield _faulty_record(source, first, f"The line is longer than {max_characters:,} characters.")
        except csv.Error as problem:
            yield _faulty_record(source, first, _csv_error_reason(problem, is_cut=source.is_exhausted))
            if source.is_exhausted:
                return
        else:
            if cells:
                yield CsvRecord(first, cells)


def _faulty_record(source: _LineRecorder, first: int, reason: str) -> CsvRecord:
    return CsvRecord(first, (), reason, "".join(source.record_lines).rstrip("\r\n"))


def _unclosed_field_fault(line: int, max_characters: int) -> BadBody:
    return BadBody(
        f"Line {line}: the record is longer than {max_characters:,} characters.",
        hint="A quoted field of it may not be closed.",
    )


def _csv_error_reason(problem: csv.Error, *, is_cut: bool) -> str:
    if is_cut:
        return "The record has a quoted field that is not closed."
    return f"The record is not CSV: {problem}."


def text_lines(text: str, max_characters: int) -> Iterator[str]:
    """Yield the lines of a text with their line ends, each cut after `max_characters` + 1 characters."""
    at = 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        yield text[at : min(end, at + max_characters + 1)]
        at = end


def detect_delimiter(sample: str) -> str:
    """Return the delimiter with which the largest share of records has as many fields as the header.

    Return a comma if no delimiter divides the header into several fields.
    """
    scores = {delimiter: delimiter_score(sample, delimiter) for delimiter in CANDIDATE_DELIMITERS}
    return max(scores, key=lambda delimiter: scores[delimiter])


def delimiter_score(sample: str, delimiter: str) -> tuple[float, int]:
    """Return the share of records that have as many fields as the first one, and the number of these fields.

    Both are zero if the first record has fewer than two fields.
    """
    lengths: list[int] = []
    beginning = sample[:_DELIMITER_SAMPLE_CHARACTERS]
    whole_lines = beginning[: beginning.rfind("\n") + 1] or beginning
    for record in read_records(
        text_lines(whole_lines, _DELIMITER_SAMPLE_CHARACTERS), delimiter, _DELIMITER_SAMPLE_CHARACTERS
    ):
        if record.fault is None:
            lengths.append(len(record.cells))
        if len(lengths) == _DELIMITER_SAMPLE_RECORDS:
            break
    if not lengths or lengths[0] < 2:
        return 0.0, 0
    return lengths.count(lengths[0]) / len(lengths), lengths[0]


_encode = msgspec.json.Encoder().encode
_raw_json_decoder = msgspec.json.Decoder(msgspec.Raw)
_NUMBER_PATTERN: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_JSON_BY_BOOL_LITERAL: Final = {"true": msgspec.Raw(b"true"), "false": msgspec.Raw(b"false")}

ConvertCell = Callable[[str], msgspec.Raw]


def _convert_to_text(cell: str) -> msgspec.Raw:
    return msgspec.Raw(_encode(cell))


def _convert_number(cell: str) -> msgspec.Raw:
    plain = cell.strip()
    return msgspec.Raw(plain.encode()) if _NUMBER_PATTERN.fullmatch(plain) else _convert_to_text(cell)


def _convert_bool(cell: str) -> msgspec.Raw:
    return _JSON_BY_BOOL_LITERAL.get(cell.strip().lower()) or _convert_to_text(cell)


def _convert_by_content(cell: str) -> msgspec.Raw:
    return _JSON_BY_BOOL_LITERAL.get(cell.strip().lower()) or _convert_number(cell)


def _convert_json(cell: str) -> msgspec.Raw:
    try:
        return msgspec.Raw(bytes(_raw_json_decoder.decode(cell.strip())))
    except (msgspec.DecodeError, RecursionError):
        return _convert_to_text(cell)


def _convert_metadata(cell: str) -> msgspec.Raw:
    """Convert a cell of `metadata`: JSON objects and arrays are decoded, anything else is text."""
    return _convert_json(cell) if cell.lstrip()[:1] in {"{", "["} else _convert_to_text(cell)


_CONVERTERS_BY_TYPE: Final[Mapping[str, ConvertCell]] = {
    "text": _convert_to_text,
    "number": _convert_number,
    "bool": _convert_bool,
    "json": _convert_json,
    "auto": _convert_by_content,
}


class ColumnTypes(msgspec.Struct, frozen=True):
    """The types of columns. `default_type` applies to all columns that are not in `type_by_column`.

    A cell that is not a value of its column's type becomes text.
    """

    default_type: str = "text"
    type_by_column: Mapping[str, str] = msgspec.field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> "ColumnTypes":
        """Parse a type for all columns, such as `auto`, or types by column, such as `status=number,ok=bool`.

        Raise ValueError for other texts.
        """
        if text in _CONVERTERS_BY_TYPE:
            return cls(text)
        by_name = {}
        for part in text.split(","):
            name, _, kind = (piece.strip() for piece in part.rpartition("="))
            if not name or kind not in _CONVERTERS_BY_TYPE:
                raise ValueError(f"{part!r} is not a column with its type: {', '.join(_CONVERTERS_BY_TYPE)}")
            by_name[name] = kind
        return cls("text", by_name)

    def cell_converter(self, column: str) -> ConvertCell:
        if column.lower() == "metadata":
            return _convert_metadata
        return _CONVERTERS_BY_TYPE[self.type_by_column.get(column, self.default_type)]


ALL_COLUMNS_TEXT: Final = ColumnTypes()


class CsvOptions(msgspec.Struct, frozen=True):
    """The options for reading CSV. If `delimiter` is None, the delimiter is detected."""

    delimiter: str | None = None
    column_types: ColumnTypes = ALL_COLUMNS_TEXT


DEFAULT_CSV_OPTIONS: Final = CsvOptions()


def parse_delimiter(text: str) -> str:
    """Parse a delimiter: a single character, or the word `tab`; raise ValueError for other texts."""
    found = {"tab": "\t", r"\t": "\t"}.get(text, text)
    if len(found) != 1 or found in '"\r\n':
        raise ValueError(f"{text!r} is not a single character; write tab for a tab")
    return found


class CsvColumns:
    """The columns of a header line, with the converters of their cells."""

    def __init__(self, header: CsvRecord, types: ColumnTypes = ALL_COLUMNS_TEXT) -> None:
        if header.fault is not None:
            raise BadBody(f"The header of the CSV cannot be read. {header.fault}")
        if len(header.cells) > MAX_COLUMNS:
            raise BadBody(f"The header of the CSV has more than {MAX_COLUMNS} columns.")
        names = [name.strip() or f"column_{number}" for number, name in enumerate(header.cells, 1)]
        repeated, count = Counter(names).most_common(1)[0]
        if count > 1:
            raise BadBody(
                f"The header of the CSV has the column {repeated!r} {count} times.", hint="Rename the others."
            )
        self.names = names
        self._cell_converters = [types.cell_converter(name) for name in names]

    def find_record_fault(self, record: CsvRecord) -> str | None:
        """Return the reason why a record cannot become an event, or None if it can become one."""
        if record.fault is None and len(record.cells) != len(self.names):
            return f"The record has {len(record.cells)} fields, but the header has {len(self.names)}."
        return record.fault

    def row_fields(self, cells: Sequence[str]) -> RawFields:
        """Return the fields of a row. If a cell is empty, the row has no such field."""
        return {
            name: convert(cell)
            for name, convert, cell in zip(self.names, self._cell_converters, cells, strict=True)
            if cell
        }


def refused_record_text(record: CsvRecord, delimiter: str) -> str:
    """Return the text of a refused record; if the record was parsed, its cells are joined again."""
    return record.refused_text or delimiter.join(record.cells)


def read_csv(body: Body) -> ParsedBody:
    """Decode a CSV body with the options `delimiter` and `types`, which are parameters of its Content-Type."""
    return read_csv_with_options(_read_options(body), body)


def read_csv_with_options(options: CsvOptions, body: Body) -> ParsedBody:
    text = body.text
    check_line_count(text, body.max_items)
    delimiter = options.delimiter or detect_delimiter(text)
    if text.count(delimiter) > body.max_items * _MAX_CELLS_PER_ITEM:
        raise too_many_items_fault(body.max_items)
    records = read_records(text_lines(text, body.max_item_bytes), delimiter, body.max_item_bytes)
    header = next(records, None)
    if header is None:
        raise BadBody("The CSV has no header line.")
    columns = CsvColumns(header, options.column_types)
    parsed = ParsedBody.create_empty_for_body(body)
    names_left = max(_MIN_COLUMN_NAMES_LIMIT_BYTES, _MAX_COLUMN_NAMES_BODY_RATIO * len(body.data))
    for count, record in enumerate(records):
        if count == body.max_items:
            raise too_many_items_fault(body.max_items)
        fault = columns.find_record_fault(record)
        if fault is None:
            fields = columns.row_fields(record.cells)
            names_left -= sum(map(len, fields))
            if names_left < 0:
                raise BodyTooLarge(
                    "The names of the columns are too long for so many records.", hint="Send fewer records at once."
                )
            add_event_from_fields(fields, record.line_number - 1, parsed)
        else:
            parsed.refuse_item(record.line_number - 1, fault, refused_record_text(record, delimiter))
    return require_events(parsed)


def _read_options(body: Body) -> CsvOptions:
    found = {
        name.lower(): quoted or plain
        for name, quoted, plain in _MEDIA_TYPE_PARAMETER_PATTERN.findall(body.content_type)
    }
    if found.get("header") == "absent":
        raise BadBody(
            "CSV without a header line cannot be read.", hint="Send the names of the columns in a first line."
        )
    try:
        delimiter = parse_delimiter(found["delimiter"]) if "delimiter" in found else None
        types = ColumnTypes.parse(found.get("types", "text"))
    except ValueError as problem:
        raise BadBody(f"A parameter of the Content-Type cannot be read: {problem}.") from problem
    return CsvOptions(delimiter or ("\t" if body.media_type == TAB_SEPARATED_MEDIA_TYPE else None), types)
