"""Run an endpoint and print its rows, or write them to a file: on a running service, or on a data folder without one.

An answer has at most the endpoint's max_rows rows; --all fetches the pages after it as well. With -o and without --format, the ending of the file's name chooses the format: .csv, .ndjson, .json, .arrow, .parquet. Times
are ISO 8601 in tables and in CSV, and microseconds since 1970 in JSON.

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
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import quote

import msgspec

from cordwood.cli.arguments import add_parameters
from cordwood.cli.client import Answer, Counterpart, Posted, end_progress, show_progress
from cordwood.cli.output_file import Write, add_output, format_of, is_standard_output, output
from cordwood.cli.service_target import add_target, target
from cordwood.cli.terminal import note, table
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
# Names of columns may have line breaks, in quotes.
_HEADER_LINE = re.compile(rb'(?:"[^"]*"|[^"\n])*\n?')

Send = Callable[[bytes, Mapping[str, str]], Answer]


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
    add_output(parser)
    add_target(parser)


def run(arguments: argparse.Namespace) -> int:
    file: Path | None = arguments.output
    how = arguments.format or format_of(file, _ACCEPT) or "table"
    if how in _BINARY and is_standard_output(file) and sys.stdout.isatty():
        raise Refused(f"A terminal cannot show {how}.", hint="Write it to a file: -o FILE.")
    if arguments.all and how in _BINARY:
        raise Refused(f"Several pages cannot be joined as {how}.", hint="Use --format csv, ndjson or json.")
    headers = {"Content-Type": "application/json", "Accept": _ACCEPT[how]}
    if arguments.redact:
        headers["LF-ENDPOINT-REDACT-PII"] = "true"
    path = f"/api/endpoints/query/{quote(arguments.endpoint, safe='')}"
    with output(file, force=arguments.force) as write, target(arguments) as service:
        if arguments.all:
            answer = _write_pages(partial(service.send, "POST", path), _body(arguments), headers, how, write)
        else:
            answer = _written(service, path, Posted(_encoded(_body(arguments)), headers), how, write)
    _tell(answer.headers)
    return 0


def _written(service: Counterpart, path: str, posted: Posted, how: str, write: Write) -> Answer:
    if how == "table":
        answer = service.send("POST", path, posted.body, posted.headers).checked()
        write(table(answer.json()["result"]).encode() + b"\n")
        return answer
    answer = service.save(path, write, posted).checked()
    if how == "json":
        write(b"\n")
    return answer


def _write_pages(send: Send, body: Mapping[str, str], headers: Mapping[str, str], how: str, write: Write) -> Answer:
    """Write the rows of all pages as of one answer; return the last page."""
    rows = 0
    parts: list[bytes] = []
    # An empty cursor asks for the first page.
    cursor: str | None = ""
    is_first = True
    while cursor is not None:
        answer = send(_encoded({**body, "cursor": cursor}), headers).checked()
        part = _rows_of_page(answer.body, how, is_first=is_first)
        if how == "table":
            parts.append(part)
        else:
            write(b"," + part if how == "json" and part and rows else part)
        rows += int(answer.headers.get("cordwood-rows", "0"))
        cursor, is_first = answer.headers.get("cordwood-next"), False
        show_progress(f"{rows:,} rows")
    end_progress()
    if how == "json":
        write(b"]}\n")
    if how == "table":
        write(table([row for part in parts for row in json.loads(part)["result"]]).encode() + b"\n")
    return answer


def _rows_of_page(body: bytes, how: str, *, is_first: bool) -> bytes:
    """Return what a page adds to the pages before."""
    if how == "json":
        rows = msgspec.json.decode(body, type=_Page).result
        return (b'{"result":[' if is_first else b"") + b",".join(map(bytes, rows))
    if how == "csv" and not is_first:
        return _HEADER_LINE.sub(b"", body, count=1)
    return body


def _encoded(body: Mapping[str, str]) -> bytes:
    return json.dumps(body).encode()


def _body(arguments: argparse.Namespace) -> dict[str, str]:
    texts = {"sql": arguments.sql, "lql": arguments.lql}
    return {**dict(arguments.parameter), **{name: text for name, text in texts.items() if text is not None}}


def _tell(headers: Mapping[str, str]) -> None:
    """Print notices about truncation and ignored parameters."""
    if "cordwood-truncated" in headers:
        note(f"The rows were truncated at {headers['cordwood-truncated']}; --all fetches all.")
    if "cordwood-notice" in headers:
        note(headers["cordwood-notice"])


def _text(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise argparse.ArgumentTypeError(f"{text[1:]} cannot be read: {problem}") from problem
