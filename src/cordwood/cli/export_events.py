"""Export the stored events of a stream to a file, all of them or those of a time range.

A Parquet file has the columns id, timestamp, event_message, project, metadata and extras (JSON text), ingested_at and
timestamp_inferred. DuckDB, pyarrow and ClickHouse can read it, and `cordwood import` restores every row with its time
of receipt. NDJSON and JSON have the events as they can be sent again; CSV and Arrow have the columns of Parquet. The
format is the one in --format; without it, that of the file's ending; and with another ending, Parquet. The file appears
when it is complete.

examples:
  cordwood export day.parquet --stream postgres.logs --from 2026-01-01 --to 2026-01-02
  cordwood export all.parquet --stream my.stream --data-dir ./cordwood-data
  cordwood export all.parquet --stream my.stream --url https://logs.example.com --key "$PRIVATE_KEY"
  cordwood export -o day.ndjson --stream postgres.logs --from 2026-01-01 --force
  cordwood export - --format ndjson --stream postgres.logs | gzip > all.ndjson.gz
"""

import argparse
import sys
from pathlib import Path
from urllib.parse import quote, urlencode

from cordwood.app.event_files import count_events
from cordwood.cli.client import add_service_and_folder_options, open_service_client
from cordwood.cli.output_file import add_output_options, format_by_suffix, is_standard_output, open_output
from cordwood.cli.terminal import ByteProgress, print_message, print_output
from cordwood.errors import RefusedByService

_EXPORT_FORMATS = ("parquet", "ndjson", "json", "csv", "arrow")
_BINARY_FORMATS = ("parquet", "arrow")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="the file to write; - for standard output")
    add_output_options(parser)
    parser.add_argument(
        "--format", choices=_EXPORT_FORMATS, help="the format (default: by the file's ending, or parquet)"
    )
    parser.add_argument("--stream", required=True, metavar="NAME", help="name or UUID of the stream")
    parser.add_argument("--from", dest="since", metavar="TIME", help="only events from this time on")
    parser.add_argument("--to", dest="until", metavar="TIME", help="only events before this time")
    add_service_and_folder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    file = _output_file(arguments)
    format_name = arguments.format or format_by_suffix(file, _EXPORT_FORMATS) or "parquet"
    if format_name in _BINARY_FORMATS and is_standard_output(file) and sys.stdout.isatty():
        raise RefusedByService(f"A terminal cannot show {format_name}.", hint="Name a file, or choose --format ndjson.")
    progress, count = ByteProgress(), EventCounter(format_name)
    with (
        open_output(file, force=arguments.force, check=count.count_parquet_rows) as write,
        open_service_client(arguments) as service,
    ):

        def write_chunk(chunk: bytes) -> None:
            write(chunk)
            count.add_chunk(chunk)
            progress.add(len(chunk))

        service.download(_export_path(arguments, format_name), write_chunk).raise_for_error()
    progress.end_progress_line()
    print_line = print_message if is_standard_output(file) else print_output
    print_line(f"{count.describe_count()}{progress.progress_line()}")
    return 0


class EventCounter:
    """Counts the exported events: lines of NDJSON as they arrive, or the rows of a Parquet file once it is complete.

    Events in other formats are not counted. Counting the rows of a Parquet file also verifies the file.
    """

    def __init__(self, format_name: str) -> None:
        self._format_name = format_name
        self._event_count: int | None = 0 if format_name == "ndjson" else None

    def add_chunk(self, chunk: bytes) -> None:
        if self._format_name == "ndjson":
            self._event_count = (self._event_count or 0) + chunk.count(b"\n")

    def count_parquet_rows(self, draft: Path) -> None:
        if self._format_name == "parquet":
            self._event_count = count_events(draft)

    def describe_count(self) -> str:
        return "" if self._event_count is None else f"{self._event_count:,} events, "


def _output_file(arguments: argparse.Namespace) -> Path:
    named = [file for file in (arguments.file, arguments.output) if file is not None]
    if len(named) != 1:
        raise RefusedByService("Name one file to write.", hint="FILE and -o FILE mean the same.")
    file: Path = named[0]
    return file


def _export_path(arguments: argparse.Namespace, format_name: str) -> str:
    parameters = {
        "from": arguments.since,
        "to": arguments.until,
        "format": format_name if format_name != "parquet" else None,
    }
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"/api/streams/{quote(arguments.stream, safe='')}/events?{query}"
