"""Run an endpoint and print its rows, or write them to a file: on a running service, or on a data folder without one.

With -o and without --format, the ending of the file's name chooses the format: .csv, .ndjson, .json, .arrow, .parquet. Times
are ISO 8601 in tables and in CSV, and microseconds since 1970 in JSON.

examples:
  cordwood query usage.api-counts -p interval=daily -p project=default
  cordwood query logs.all -p project=default --format ndjson | head
  cordwood query logs.all -p project=default --sql 'select count(*) as n from auth_logs'
  cordwood query logs.all -p project=default --sql @slow.sql --format csv
  cordwood query logs.all -p project=default -o rows.parquet
  cordwood query logs.all -p project=default --lql 's:event_message f:auth_logs error'
  cordwood query logs.all -p project=default --url https://logs.example.com --key "$KEY"
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from cordwood.cli.arguments import name_value
from cordwood.cli.client import Answer, Counterpart, Posted
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("endpoint", metavar="NAME", help="name or UUID of the endpoint")
    parser.add_argument(
        "-p",
        "--parameter",
        type=name_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter; repeatable",
    )
    own = parser.add_mutually_exclusive_group()
    own.add_argument("--sql", type=_text, help="a sandbox query over the endpoint's sub-queries; @FILE reads it")
    own.add_argument("--lql", type=_text, help="the same in LQL")
    parser.add_argument("--redact", action="store_true", help="redact personal data")
    parser.add_argument(
        "--format", choices=tuple(_ACCEPT), help="how to write (default: by the file's ending, or table)"
    )
    add_output(parser)
    add_target(parser)


def run(arguments: argparse.Namespace) -> int:
    file: Path | None = arguments.output
    how = arguments.format or format_of(file, _ACCEPT) or "table"
    if how in _BINARY and is_standard_output(file) and sys.stdout.isatty():
        raise Refused(f"A terminal cannot show {how}.", hint="Write it to a file: -o FILE.")
    headers = {"Content-Type": "application/json", "Accept": _ACCEPT[how]}
    if arguments.redact:
        headers["LF-ENDPOINT-REDACT-PII"] = "true"
    path = f"/api/endpoints/query/{quote(arguments.endpoint, safe='')}"
    posted = Posted(json.dumps(_body(arguments)).encode(), headers)
    with output(file, force=arguments.force) as write, target(arguments) as service:
        answer = _written(service, path, posted, how, write)
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


def _body(arguments: argparse.Namespace) -> dict[str, str]:
    texts = {"sql": arguments.sql, "lql": arguments.lql}
    return {**dict(arguments.parameter), **{name: text for name, text in texts.items() if text is not None}}


def _tell(headers: Mapping[str, str]) -> None:
    """Print notices about truncation and ignored parameters."""
    if "cordwood-truncated" in headers:
        note(f"The rows were truncated at {headers['cordwood-truncated']}.")
    if "cordwood-notice" in headers:
        note(headers["cordwood-notice"])


def _text(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise argparse.ArgumentTypeError(f"{text[1:]} cannot be read: {problem}") from problem
