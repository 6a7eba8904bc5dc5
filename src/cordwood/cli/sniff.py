"""Print which format a file has, and what its first events would be, without storing them; - reads standard input.

The command recognises CSV, NDJSON, JSON arrays and objects, syslog, logfmt, access logs of Apache and nginx, OTLP in
JSON, Loki push, Elasticsearch bulk, journald export and Parquet, also compressed with gzip or zstd. It reads the first
MiB. It does not show ids that an import would add, and does not apply transforms and pins, which may change or refuse
events.

examples:
  cordwood sniff access.log.1.gz
  cordwood sniff orders.csv --types auto --format json
  journalctl -o export -n 20 | cordwood sniff -
"""

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from cordwood.app.event_files import IMPORT_FORMATS, InputFile, ReadOptions, import_advice, open_input_file
from cordwood.cli.tables import format_table
from cordwood.cli.terminal import print_message, print_output
from cordwood.errors import BadBody, BodyTooLarge, RefusedByService
from cordwood.ingest.build_events import build_events
from cordwood.ingest.formats.csv import ALL_COLUMNS_TEXT, ColumnTypes, CsvOptions, parse_delimiter
from cordwood.ingest.items import decode_json_value
from cordwood.ingest.parsed_body import ParsedBody
from cordwood.ingest.sniff import (
    LINE_NUMBERED_FORMATS,
    FileSample,
    PossibleFormat,
    decode_sample,
    detect_possible_formats,
)
from cordwood.model.event import Event
from cordwood.model.timestamps import format_timestamp, now_us

_MAX_SAMPLE_BYTES = 2**20
_MAX_LISTED_REFUSALS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the file to read; - for standard input")
    parser.add_argument("--events", type=int, default=5, metavar="N", help="how many events to show (default: 5)")
    add_read_options(parser)
    parser.add_argument("--format", choices=("table", "json"), default="table", help="how to print (default: table)")


class BodyPreview(msgspec.Struct, frozen=True):
    """A preview of a file: its first events as rows, and the items that would be quarantined, each with the reason.

    If nothing can be decoded, `decoding_problem` is the reason.
    """

    event_rows: Sequence[Mapping[str, object]] = ()
    quarantined_items: Sequence[tuple[str, str]] = ()
    decoding_problem: str | None = None


def run(arguments: argparse.Namespace) -> int:
    with open_input_file(arguments.file, _MAX_SAMPLE_BYTES) as file:
        sample = FileSample(file.sample, is_whole_file=len(file.sample) < _MAX_SAMPLE_BYTES)
    if not sample.data.strip():
        raise RefusedByService(f"{file.name} is empty.")
    findings = detect_possible_formats(sample)
    preview = _preview_sample(sample, findings, read_options_from_arguments(arguments), max(0, arguments.events))
    if arguments.format == "json":
        print_output(json.dumps(_json_report(file, findings, preview), indent=2, ensure_ascii=False))
        return 0
    for number, finding in enumerate(findings):
        packed = f", compressed with {file.compression_format}" if file.compression_format and not number else ""
        start = "  or" if number else file.name
        print_output(f"{start}: {finding.display_name}{packed} ({finding.confidence.name.lower()}). {finding.reason}")
    how = import_advice(findings[0], shlex.quote(str(arguments.file)))
    if how is not None:
        print_output(how)
    if preview.decoding_problem is not None:
        print_message(f"The first events cannot be shown: {preview.decoding_problem}")
    if preview.event_rows:
        print_output("\nThe first events would be:")
        print_output(format_table(preview.event_rows))
    for place, reason in preview.quarantined_items:
        print_message(f"{place.capitalize()} would be quarantined: {reason}")
    return 0


def _preview_sample(
    sample: FileSample, findings: Sequence[PossibleFormat], reading: ReadOptions, limit: int
) -> BodyPreview:
    name = reading.format or findings[0].name
    try:
        parsed = decode_sample(name, sample, reading.csv_options)
    except (BadBody, BodyTooLarge) as problem:
        return BodyPreview(decoding_problem=problem.one_line_text())
    if parsed is None:
        return BodyPreview(decoding_problem="This format is not decoded here, or its first item is too long.")
    unit = "line" if name in LINE_NUMBERED_FORMATS else "item"
    refused = parsed.refused_items[:_MAX_LISTED_REFUSALS]
    return BodyPreview(_event_rows(parsed)[:limit], [(f"{unit} {item.index + 1}", item.reason) for item in refused])


def _json_report(file: InputFile, findings: Sequence[PossibleFormat], preview: BodyPreview) -> Mapping[str, object]:
    return {
        "file": file.name,
        "compression": file.compression_format,
        "formats": [
            {
                "name": finding.name,
                "title": finding.display_name,
                "confidence": finding.confidence.name.lower(),
                "reason": finding.reason,
            }
            for finding in findings
        ],
        "events": preview.event_rows,
        "quarantined": [{"place": place, "reason": reason} for place, reason in preview.quarantined_items],
        "problem": preview.decoding_problem,
    }


def _event_rows(parsed: ParsedBody) -> list[dict[str, object]]:
    """Return the events as rows. A field that no event has is left out of the rows."""
    events = build_events(parsed, now_us())
    rows = [_event_row(posted.id, event) for posted, event in zip(parsed.events, events, strict=True)]
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    return [{name: row.get(name) for name in names} for row in rows]


def _event_row(event_id: str | int | None, event: Event) -> dict[str, object]:
    return {
        "id": event_id,
        "timestamp": "(time of receipt)" if event.timestamp_inferred else format_timestamp(event.timestamp_us),
        "event_message": event.event_message,
        "project": event.project,
        "metadata": None if event.metadata is None else _decode_value(event.metadata),
        **{name: _decode_value(raw) for name, raw in _decode_fields.decode(event.extras or "{}").items()},
    }


_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _decode_value(raw: str | msgspec.Raw) -> object:
    """Return the value of JSON text, or the text itself if it is nested too deeply to be decoded."""
    try:
        return decode_json_value(raw)
    except (msgspec.DecodeError, RecursionError):
        return raw if isinstance(raw, str) else bytes(raw).decode()


def add_read_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--as", dest="read_as", choices=IMPORT_FORMATS, help="the format of the file (default: recognised)"
    )
    parser.add_argument(
        "--types",
        type=_parse_column_types,
        default=ALL_COLUMNS_TEXT,
        metavar="TYPES",
        help="types of CSV's columns: auto, or COLUMN=TYPE,… (default: all are texts)",
    )
    parser.add_argument(
        "--delimiter", type=_parse_csv_delimiter, metavar="CHARACTER", help="delimiter of CSV (default: detected)"
    )


def read_options_from_arguments(arguments: argparse.Namespace) -> ReadOptions:
    return ReadOptions(arguments.read_as, CsvOptions(arguments.delimiter, arguments.types))


def _parse_column_types(text: str) -> ColumnTypes:
    try:
        return ColumnTypes.parse(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem


def _parse_csv_delimiter(text: str) -> str:
    try:
        return parse_delimiter(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem
