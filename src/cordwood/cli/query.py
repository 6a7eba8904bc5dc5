"""Run an endpoint and print its rows: on a running service, or on a data folder without one.

examples:
  cordwood query usage.api-counts -p interval=daily -p project=default
  cordwood query logs.all -p project=default --format ndjson | head
  cordwood query logs.all -p project=default --sql 'select count(*) as n from auth_logs'
  cordwood query logs.all -p project=default --sql @slow.sql --format csv
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
from cordwood.cli.client import Answer
from cordwood.cli.service_target import add_target, target
from cordwood.cli.terminal import note, table

_ACCEPT = {
    "table": "application/json",
    "json": "application/json",
    "csv": "text/csv",
    "ndjson": "application/x-ndjson",
}


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
    parser.add_argument("--format", choices=tuple(_ACCEPT), default="table", help="how to print (default: table)")
    add_target(parser)


def run(arguments: argparse.Namespace) -> int:
    headers = {"Content-Type": "application/json", "Accept": _ACCEPT[arguments.format]}
    if arguments.redact:
        headers["LF-ENDPOINT-REDACT-PII"] = "true"
    path = f"/api/endpoints/query/{quote(arguments.endpoint, safe='')}"
    with target(arguments) as service:
        answer = service.send("POST", path, json.dumps(_body(arguments)).encode(), headers).checked()
    _print(answer, arguments.format)
    _tell(answer.headers)
    return 0


def _body(arguments: argparse.Namespace) -> dict[str, str]:
    texts = {"sql": arguments.sql, "lql": arguments.lql}
    return {**dict(arguments.parameter), **{name: text for name, text in texts.items() if text is not None}}


def _print(answer: Answer, how: str) -> None:
    if how == "table":
        sys.stdout.write(table(answer.json()["result"]) + "\n")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(answer.body if answer.body.endswith(b"\n") else answer.body + b"\n")
    sys.stdout.flush()


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
