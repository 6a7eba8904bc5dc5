"""CSV bodies: a header line, then one event for each record. Records that do not fit the header are quarantined."""

import re
from typing import Final

from cordwood.errors import BadBody, TooLarge
from cordwood.ingest.csv_rows import (
    ColumnTypes,
    CsvColumns,
    CsvOptions,
    detected_delimiter,
    parse_delimiter,
    read_records,
    row_text,
    text_lines,
)
from cordwood.ingest.formats.json import with_something
from cordwood.ingest.items import add_fields, check_lines, too_many
from cordwood.ingest.parsed_body import Body, ParsedBody

TAB_SEPARATED: Final = "text/tab-separated-values"
# Each event repeats the names of its fields. Together they may be this much longer than the body, or this long.
_MOST_REPEATED: Final = 8
_MOST_NAMES: Final = 2**20
# The bound on the cells of a body: this many for each item that it may hold.
_CELLS_OF_AN_ITEM: Final = 64

_PARAMETER: Final = re.compile(r';\s*([\w-]+)\s*=\s*(?:"([^"]*)"|([^;\s"]*))')


def read_csv(body: Body) -> ParsedBody:
    """Decode a CSV body. `delimiter` and `types` are parameters of its Content-Type."""
    return read_csv_as(_options(body), body)


def read_csv_as(options: CsvOptions, body: Body) -> ParsedBody:
    text = body.text
    check_lines(text, body.most_items)
    delimiter = options.delimiter or detected_delimiter(text)
    if text.count(delimiter) > body.most_items * _CELLS_OF_AN_ITEM:
        raise too_many(body.most_items)
    records = read_records(text_lines(text, body.item_bytes), delimiter, body.item_bytes)
    header = next(records, None)
    if header is None:
        raise BadBody("The CSV has no header line.")
    columns = CsvColumns(header, options.types)
    parsed = ParsedBody.of(body)
    names_left = max(_MOST_NAMES, _MOST_REPEATED * len(body.data))
    for count, record in enumerate(records):
        if count == body.most_items:
            raise too_many(body.most_items)
        fault = columns.fault(record)
        if fault is None:
            fields = columns.fields(record.cells)
            names_left -= sum(map(len, fields))
            if names_left < 0:
                raise TooLarge(
                    "The names of the columns are too long for so many records.", hint="Send fewer records at once."
                )
            add_fields(fields, record.line - 1, parsed)
        else:
            parsed.refuse(record.line - 1, fault, row_text(record, delimiter))
    return with_something(parsed)


def _options(body: Body) -> CsvOptions:
    found = {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(body.content_type)}
    if found.get("header") == "absent":
        raise BadBody(
            "CSV without a header line cannot be read.", hint="Send the names of the columns in a first line."
        )
    try:
        delimiter = parse_delimiter(found["delimiter"]) if "delimiter" in found else None
        types = ColumnTypes.parse(found.get("types", "text"))
    except ValueError as problem:
        raise BadBody(f"A parameter of the Content-Type cannot be read: {problem}.") from problem
    return CsvOptions(delimiter or ("\t" if body.media == TAB_SEPARATED else None), types)
