"""Run an endpoint, on a running service or on a data folder without one, and print its rows or write them to a file.

An answer has at most the endpoint's max_rows rows; --all also fetches the further pages. With -o and without
--format, the ending of the file's name chooses the format: .csv, .ndjson, .json, .arrow, .parquet. Times are ISO 8601 in
tables and in CSV, and microseconds since 1970 in JSON. On a terminal, a table is fitted to its width (or printed as
--vertical does), coloured unless NO_COLOR is set, and shown by the program in PAGER if it is longer than the screen.

examples:
  cordwood query usage.api-counts -p interval=daily -p project=default
  cordwood query logs.all -p project=default --format ndjson | head
  cordwood query logs.all -p project=default --sql 'select count(*) as n from auth_logs'
  cordwood query logs.all -p project=default --sql @slow.sql --format csv
  cordwood query logs.all -p project=default -o rows.parquet
  cordwood query logs.all -p project=default --sql 'select id from edge_logs' --all -o ids.csv
  cordwood query logs.all -p project=default --lql 's:event_message f:auth_logs error'
  cordwood query logs.all -p project=default --url https://logs.example.com --key "$KEY"
"""

import argparse
import re
import sys
import time
from pathlib import Path

import msgspec

from cordwood.cli.arguments import add_parameters
from cordwood.cli.client import Answer, ServiceClient, add_target, target
from cordwood.cli.endpoint_query import EndpointQuery, footer, print_notices
from cordwood.cli.output_file import Write, add_output, format_of, is_standard_output, output
from cordwood.cli.tables import TableStyle, table, terminal_style
from cordwood.cli.terminal import note, page
from cordwood.errors import Refused

_ACCEPT = {
    "table": "application/json",
    "json": "application/json",
    "csv": "text/csv",
    "ndjson": "application/x-ndjson",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
_BINARY = ("arrow", "parquet")
# Column names may contain line breaks in quotes.
_HEADER_LINE = re.compile(rb'(?:"[^"]*"|[^"\n])*\n?')


class _Page(msgspec.Struct):
    result: list[msgspec.Raw]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("endpoint", metavar="NAME", help="name or UUID of the endpoint")
    add_parameters(parser)
    own = parser.add_mutually_exclusive_group()
    own.add_argument("--sql", type=_text, help="a sandbox query over the endpoint's sub-queries; @FILE reads it")
    own.add_argument("--lql", type=_text, help="the same in LQL")
    parser.add_argument("--redact", action="store_true", help="redact personal data")
    parser.add_argument(
        "--format", choices=tuple(_ACCEPT), help="how to write (default: by the file's ending, or table)"
    )
    parser.add_argument(
        "--all", action="store_true", help="fetch all pages of the answer; as table, json, csv or ndjson"
    )
    parser.add_argument(
        "--vertical", action="store_true", help="print each row as lines, one for each column, with its whole value"
    )
    add_output(parser)
    add_target(parser)


def run(arguments: argparse.Namespace) -> int:
    file: Path | None = arguments.output
    format_name = arguments.format or format_of(file, _ACCEPT) or "table"
    _check(arguments, format_name)
    query = _query(arguments, format_name)
    if format_name == "table" and is_standard_output(file):
        with target(arguments) as service:
            _show(service, query, arguments)
        return 0
    with output(file, force=arguments.force) as write, target(arguments) as service:
        answer = _write(service, query, format_name, write, arguments)
    print_notices(answer.headers)
    return 0


def _check(arguments: argparse.Namespace, format_name: str) -> None:
    """Raise Refused for options that contradict each other."""
    if format_name in _BINARY and is_standard_output(arguments.output) and sys.stdout.isatty():
        raise Refused(f"A terminal cannot show {format_name}.", hint="Write it to a file: -o FILE.")
    if arguments.all and format_name in _BINARY:
        raise Refused(f"Several pages cannot be joined as {format_name}.", hint="Use --format csv, ndjson or json.")
    if arguments.vertical and format_name != "table":
        raise Refused("--vertical is a form of tables.", hint="Leave out --format, or --vertical.")


def _query(arguments: argparse.Namespace, format_name: str) -> EndpointQuery:
    language, source = ("sql", arguments.sql) if arguments.sql is not None else ("lql", arguments.lql)
    return EndpointQuery(
        arguments.endpoint,
        dict(arguments.parameter),
        "" if source is None else language,
        source or "",
        _ACCEPT[format_name],
        redacts=arguments.redact,
    )


def _show(service: ServiceClient, query: EndpointQuery, arguments: argparse.Namespace) -> None:
    """Print a table on standard output; on a terminal fitted to its width, through the pager, and with a footer."""
    began_at = time.monotonic()
    answer, rows = query.rows(service, is_whole=arguments.all)
    below = footer(answer, len(rows), time.monotonic() - began_at)
    page(table(rows, terminal_style(is_vertical=arguments.vertical)))
    print_notices(answer.headers)
    if sys.stdout.isatty():
        note(below)


def _write(
    service: ServiceClient, query: EndpointQuery, format_name: str, write: Write, arguments: argparse.Namespace
) -> Answer:
    if format_name == "table":
        answer, rows = query.rows(service, is_whole=arguments.all)
        write(table(rows, TableStyle(is_vertical=arguments.vertical)).encode() + b"\n")
        return answer
    if arguments.all:
        return _write_pages(service, query, format_name, write)
    answer = service.save(query.path, write, query.posted()).checked(query.source)
    if format_name == "json":
        write(b"\n")
    return answer


def _write_pages(service: ServiceClient, query: EndpointQuery, format_name: str, write: Write) -> Answer:
    """Write the rows of all pages as they arrive; return the last page."""
    has_rows, is_first = False, True
    for answer in query.pages(service):
        part = _rows_of_page(answer.body, format_name, is_first=is_first)
        write(b"," + part if format_name == "json" and part and has_rows else part)
        has_rows, is_first = has_rows or int(answer.headers.get("cordwood-rows", "0")) > 0, False
    if format_name == "json":
        write(b"]}\n")
    return answer


def _rows_of_page(body: bytes, format_name: str, *, is_first: bool) -> bytes:
    """Return the bytes that a page adds to the pages before it."""
    if format_name == "json":
        rows = msgspec.json.decode(body, type=_Page).result
        return (b'{"result":[' if is_first else b"") + b",".join(map(bytes, rows))
    if format_name == "csv" and not is_first:
        return _HEADER_LINE.sub(b"", body, count=1)
    return body


def _text(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise argparse.ArgumentTypeError(f"{text[1:]} cannot be read: {problem}") from problem
