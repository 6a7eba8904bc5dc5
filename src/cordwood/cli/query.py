"""Run an endpoint on a running service, or on a data folder that no service uses, and print or save its rows.

An answer has at most the endpoint's max_rows rows; --all also fetches the further pages. With -o and without --format,
the ending of the file's name chooses the format: .csv, .ndjson, .json, .arrow, .parquet. Times are ISO 8601 in tables
and in CSV, and microseconds since 1970 in JSON. On a terminal, a table is fitted to its width (or printed as --vertical
does), coloured unless NO_COLOR is set, and shown by the program in PAGER if it is longer than the screen.

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
import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import msgspec

from cordwood.cli.arguments import add_parameters_argument
from cordwood.cli.client import (
    PostRequest,
    RemoteService,
    ServiceClient,
    ServiceResponse,
    add_service_and_folder_options,
    end_progress,
    open_service_client,
    show_progress,
)
from cordwood.cli.output_file import WriteBytes, add_output_options, format_by_suffix, is_standard_output, open_output
from cordwood.cli.tables import TableStyle, format_table, terminal_style
from cordwood.cli.terminal import print_message, print_paged
from cordwood.errors import Fault, RefusedByService

JSON_MEDIA_TYPE: Final = "application/json"

# The seconds until the progress line first appears, and the seconds between its updates.
_FIRST_SECONDS, _PAUSE_SECONDS = 1.0, 0.5
# The timeout of the requests that ask for the progress of the query. It is short, because the command waits for the
# last of these requests before it ends.
_PROGRESS_TIMEOUT_SECONDS = 2.0


class EndpointQuery(msgspec.Struct, frozen=True):
    """A query of an endpoint, with its parameters.

    If the caller wrote the query, `query_text` is its text and `query_language` is sql or lql. For the endpoint's saved
    query, both are empty.
    """

    endpoint: str
    parameters: Mapping[str, str]
    query_language: str = ""
    query_text: str = ""
    accept_header: str = JSON_MEDIA_TYPE
    is_redacted: bool = False

    @property
    def path(self) -> str:
        return f"/api/endpoints/query/{quote(self.endpoint, safe='')}"

    def create_post_request(self, **more: str) -> PostRequest:
        own = {self.query_language: self.query_text} if self.query_language else {}
        headers = {"Content-Type": JSON_MEDIA_TYPE, "Accept": self.accept_header}
        if self.is_redacted:
            headers["LF-ENDPOINT-REDACT-PII"] = "true"
        return PostRequest(json.dumps({**self.parameters, **own, **more}).encode(), headers)

    def send(self, service: ServiceClient, **more: str) -> ServiceResponse:
        """Send the query and return the answer; raise RefusedByService if the answer is an error.

        If the caller wrote the query, the exception shows the position of the error in its text.
        """
        posted = self.create_post_request(**more)
        with _show_progress_during(service) as headers:
            answer = service.send("POST", self.path, posted.body, {**posted.headers, **headers})
        return answer.raise_for_error(self.query_text)

    def fetch_pages(self, service: ServiceClient) -> Iterator[ServiceResponse]:
        """Yield all pages of the answer. On a terminal, show the number of rows received so far."""
        # An empty cursor requests the first page.
        cursor: str | None = ""
        rows = 0
        while cursor is not None:
            answer = self.send(service, cursor=cursor)
            yield answer
            rows += int(answer.headers.get("cordwood-rows", "0"))
            cursor = answer.headers.get("cordwood-next")
            show_progress(f"{rows:,} rows")
        end_progress()

    def fetch_rows(
        self, service: ServiceClient, *, is_whole: bool = False
    ) -> tuple[ServiceResponse, list[dict[str, Any]]]:
        """Return an answer and its rows.

        If `is_whole` is true, fetch all pages of the answer; return the last page, and the rows of all pages.
        """
        answers = list(self.fetch_pages(service)) if is_whole else [self.send(service)]
        return answers[-1], [row for answer in answers for row in answer.json()["result"]]


def print_notices(headers: Mapping[str, str]) -> None:
    """Print a notice if rows were cut off, and the notices of the service."""
    if "cordwood-truncated" in headers:
        print_message(f"The rows were truncated at {headers['cordwood-truncated']}; --all fetches all.")
    if "cordwood-notice" in headers:
        print_message(headers["cordwood-notice"])


def table_footer(answer: ServiceResponse, rows: int, seconds: float) -> str:
    """Return the line below a table: the number of rows, the duration, and whether the answer came from the cache."""
    cached = ", cached" if "hit" in answer.headers.get("cache-status", "") else ""
    return f"{rows:,} {'row' if rows == 1 else 'rows'}, {seconds * 1000:,.0f} ms{cached}"


class _QueryProgress(msgspec.Struct):
    id: str | None
    seconds: float
    rows_read: int | None
    rows_total: int | None
    part: float | None

    def progress_line(self) -> str:
        if self.rows_read is not None:
            of_total = "" if self.rows_total is None else f" of {self.rows_total:,}"
            return f"{self.seconds:.1f} s, {self.rows_read:,}{of_total} rows read"
        done = "" if self.part is None else f", {int(self.part * 100)} % done"
        return f"{self.seconds:.1f} s{done}"


class _QueryList(msgspec.Struct):
    queries: list[_QueryProgress]


@contextmanager
def _show_progress_during(service: ServiceClient) -> Iterator[Mapping[str, str]]:
    """Yield the headers for a request, and show the progress of the request during the `with` block.

    The progress is shown only if standard error is a terminal and the service runs in another process.
    """
    if not isinstance(service, RemoteService) or not sys.stderr.isatty():
        yield {}
        return
    request_id, has_ended = f"cordwood-query-{uuid4().hex}", threading.Event()
    polled = msgspec.structs.replace(service, timeout_seconds=_PROGRESS_TIMEOUT_SECONDS)
    thread = threading.Thread(target=_show_until_ended, args=(polled, request_id, has_ended), daemon=True)
    thread.start()
    try:
        yield {"X-Request-Id": request_id}
    finally:
        has_ended.set()
        thread.join()


def _show_until_ended(service: RemoteService, request_id: str, has_ended: threading.Event) -> None:
    pause, is_shown = _FIRST_SECONDS, False
    while not has_ended.wait(pause):
        pause = _PAUSE_SECONDS
        try:
            listed = msgspec.json.decode(service.send("GET", "/api/queries").raise_for_error().body, type=_QueryList)
        except (Fault, msgspec.MsgspecError):
            # The service refuses to list its queries, for example because its version is older. Do without a progress
            # line; the query itself continues.
            break
        for query in listed.queries:
            if query.id == request_id and not has_ended.is_set():
                show_progress(query.progress_line())
                is_shown = True
    if is_shown:
        show_progress("")


_ACCEPT_BY_FORMAT = {
    "table": "application/json",
    "json": "application/json",
    "csv": "text/csv",
    "ndjson": "application/x-ndjson",
    "arrow": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
_BINARY_FORMATS = ("arrow", "parquet")
# Matches the header line of a CSV file. Quoted column names in it may contain line breaks.
_CSV_HEADER_REGEX = re.compile(rb'(?:"[^"]*"|[^"\n])*\n?')


class _AnswerPage(msgspec.Struct):
    result: list[msgspec.Raw]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("endpoint", metavar="NAME", help="name or UUID of the endpoint")
    add_parameters_argument(parser)
    own = parser.add_mutually_exclusive_group()
    own.add_argument(
        "--sql", type=_text_or_file_content, help="a sandbox query over the endpoint's sub-queries; @FILE reads it"
    )
    own.add_argument("--lql", type=_text_or_file_content, help="the same in LQL")
    parser.add_argument("--redact", action="store_true", help="redact personal data")
    parser.add_argument(
        "--format", choices=tuple(_ACCEPT_BY_FORMAT), help="how to write (default: by the file's ending, or table)"
    )
    parser.add_argument(
        "--all", action="store_true", help="fetch all pages of the answer; as table, json, csv or ndjson"
    )
    parser.add_argument(
        "--vertical", action="store_true", help="print each row as lines, one for each column, with its whole value"
    )
    add_output_options(parser)
    add_service_and_folder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    file: Path | None = arguments.output
    format_name = arguments.format or format_by_suffix(file, _ACCEPT_BY_FORMAT) or "table"
    _check_options(arguments, format_name)
    query = _parse_endpoint_query(arguments, format_name)
    if format_name == "table" and is_standard_output(file):
        with open_service_client(arguments) as service:
            _print_table(service, query, arguments)
        return 0
    with open_output(file, force=arguments.force) as write, open_service_client(arguments) as service:
        answer = _write_answer(service, query, format_name, write, arguments)
    print_notices(answer.headers)
    return 0


def _check_options(arguments: argparse.Namespace, format_name: str) -> None:
    """Raise RefusedByService if options of the command contradict each other."""
    if format_name in _BINARY_FORMATS and is_standard_output(arguments.output) and sys.stdout.isatty():
        raise RefusedByService(f"A terminal cannot show {format_name}.", hint="Write it to a file: -o FILE.")
    if arguments.all and format_name in _BINARY_FORMATS:
        raise RefusedByService(
            f"Several pages cannot be joined as {format_name}.", hint="Use --format csv, ndjson or json."
        )
    if arguments.vertical and format_name != "table":
        raise RefusedByService("--vertical is a form of tables.", hint="Leave out --format, or --vertical.")


def _parse_endpoint_query(arguments: argparse.Namespace, format_name: str) -> EndpointQuery:
    language, source = ("sql", arguments.sql) if arguments.sql is not None else ("lql", arguments.lql)
    return EndpointQuery(
        arguments.endpoint,
        dict(arguments.parameter),
        "" if source is None else language,
        source or "",
        _ACCEPT_BY_FORMAT[format_name],
        is_redacted=arguments.redact,
    )


def _print_table(service: ServiceClient, query: EndpointQuery, arguments: argparse.Namespace) -> None:
    """Print the answer as a table on standard output.

    On a terminal, fit the table to the width of the terminal, use a pager for a long table, and print a footer.
    """
    began_at = time.monotonic()
    answer, rows = query.fetch_rows(service, is_whole=arguments.all)
    below = table_footer(answer, len(rows), time.monotonic() - began_at)
    print_paged(format_table(rows, terminal_style(is_vertical=arguments.vertical)))
    print_notices(answer.headers)
    if sys.stdout.isatty():
        print_message(below)


def _write_answer(
    service: ServiceClient, query: EndpointQuery, format_name: str, write: WriteBytes, arguments: argparse.Namespace
) -> ServiceResponse:
    if format_name == "table":
        answer, rows = query.fetch_rows(service, is_whole=arguments.all)
        write(format_table(rows, TableStyle(is_vertical=arguments.vertical)).encode() + b"\n")
        return answer
    if arguments.all:
        return _write_pages(service, query, format_name, write)
    answer = service.download(query.path, write, query.create_post_request()).raise_for_error(query.query_text)
    if format_name == "json":
        write(b"\n")
    return answer


def _write_pages(service: ServiceClient, query: EndpointQuery, format_name: str, write: WriteBytes) -> ServiceResponse:
    """Write the rows of all pages as they arrive; return the last page."""
    has_rows, is_first = False, True
    for answer in query.fetch_pages(service):
        part = _rows_of_page(answer.body, format_name, is_first=is_first)
        write(b"," + part if format_name == "json" and part and has_rows else part)
        has_rows, is_first = has_rows or int(answer.headers.get("cordwood-rows", "0")) > 0, False
    if format_name == "json":
        write(b"]}\n")
    return answer


def _rows_of_page(body: bytes, format_name: str, *, is_first: bool) -> bytes:
    """Return the output for one page of an answer, in the format `format_name`.

    Only the output for the first page has the header line of CSV, or the beginning of the JSON object.
    """
    if format_name == "json":
        rows = msgspec.json.decode(body, type=_AnswerPage).result
        return (b'{"result":[' if is_first else b"") + b",".join(map(bytes, rows))
    if format_name == "csv" and not is_first:
        return _CSV_HEADER_REGEX.sub(b"", body, count=1)
    return body


def _text_or_file_content(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise argparse.ArgumentTypeError(f"{text[1:]} cannot be read: {problem}") from problem
