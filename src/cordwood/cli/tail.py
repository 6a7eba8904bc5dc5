"""Print each row of a query as soon as its event is stored, until Ctrl-C.

Without an endpoint, the rows are those of logs.all. When the connection breaks, the command connects again and prints
all rows since the last one. On a terminal, rows are coloured by their level.

examples:
  cordwood tail -p project=default
  cordwood tail 'f:postgres_logs error' -p project=default
  cordwood tail logs.all 'f:edge_logs m.response.status_code:>=500' -p project=default --since 10m
  cordwood tail -p project=default --sql 'select id, event_message from auth_logs' --format json | jq .id
  cordwood tail -p project=default --url https://logs.example.com --key "$KEY"
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from cordwood.cli.arguments import (
    add_config_option,
    add_data_dir_option,
    add_parameters_argument,
    load_settings_with_flags,
)
from cordwood.cli.client import (
    RemoteService,
    add_service_options,
    find_service_on_data_folder,
    read_response,
    remote_service_from_arguments,
)
from cordwood.cli.terminal import print_message, print_output, printable_text
from cordwood.errors import RefusedByService, ServiceUnreachable
from cordwood.model.timestamps import format_timestamp
from cordwood.settings.quantities import parse_duration

_DEFAULT_ENDPOINT: Final = "logs.all"
_RETRIED_STATUSES: Final = (429, 502, 503, 504)
_MAX_RECONNECT_PAUSE_SECONDS: Final = 10.0
# If the service ends the stream with an error whose code begins with one of these texts, connecting again is useless.
_PERMANENT_ERROR_CODE_PREFIXES: Final = ("request.", "query.", "limit.", "bug.")
# If no rows arrive, the service sends a heartbeat after 15 seconds. The timeout must be longer.
_READ_TIMEOUT_SECONDS: Final = 60.0


class ServerSentEvent(msgspec.Struct, frozen=True):
    """A message of the event stream: its type, such as `gap` or `end`, and its data."""

    event_name: str
    data: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "endpoint", nargs="?", metavar="ENDPOINT", help="name or UUID of the endpoint (default: logs.all)"
    )
    parser.add_argument("lql", nargs="?", metavar="LQL", help="a query of your own over the endpoint's sub-queries")
    add_parameters_argument(parser)
    parser.add_argument("--sql", help="a query of your own in SQL instead of LQL")
    parser.add_argument("--since", type=_check_duration, metavar="10m", help="begin with the rows since this long ago")
    parser.add_argument("--redact", action="store_true", help="redact personal data")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to print rows (default: text)")
    add_service_options(parser)
    add_data_dir_option(parser)
    add_config_option(parser)


def run(arguments: argparse.Namespace) -> int:
    endpoint, lql = _endpoint_and_lql(arguments)
    if lql is not None and arguments.sql is not None:
        raise RefusedByService("A query in LQL and --sql were given together.", hint="Give one of them.")
    texts = {"lql": lql, "sql": arguments.sql}
    values = {**dict(arguments.parameter), **{name: text for name, text in texts.items() if text is not None}}
    since = f"?since={quote(arguments.since)}" if arguments.since else ""
    path = f"/api/endpoints/tail/{quote(endpoint, safe='')}"
    followed = _ReconnectingFollower(_service_to_follow(arguments), path, since, values, is_redacted=arguments.redact)
    is_terminal = sys.stdout.isatty()
    is_coloured = is_terminal and not os.environ.get("NO_COLOR")
    as_json, as_text = partial(_json_line, is_terminal=is_terminal), partial(_text_line, is_coloured=is_coloured)
    show = as_json if arguments.format == "json" else as_text
    for message in followed.messages():
        if message.event_name == "gap":
            print_message(f"{json.loads(message.data)['lost']:,} rows were left out: they were read too slowly here.")
        elif message.event_name == "message":
            print_output(show(json.loads(message.data)))
    return 0


def _endpoint_and_lql(arguments: argparse.Namespace) -> tuple[str, str | None]:
    """Return the name of the endpoint and the query in LQL, which may be missing.

    If there is only one argument, and it cannot be the name of an endpoint, it is the query.
    """
    endpoint, lql = arguments.endpoint, arguments.lql
    if endpoint is not None and lql is None and re.search(r"[\s:]", endpoint):
        return _DEFAULT_ENDPOINT, endpoint
    return endpoint or _DEFAULT_ENDPOINT, lql


def _service_to_follow(arguments: argparse.Namespace) -> RemoteService:
    settings = None if remote_service_from_arguments(arguments) else load_settings_with_flags(arguments).settings
    found = remote_service_from_arguments(arguments) or (
        find_service_on_data_folder(settings, arguments.key) if settings else None
    )
    if found is None:
        folder = Path(settings.serve.data_dir) if settings else ""
        raise ServiceUnreachable(
            f"No service runs on {folder}.", hint="Start one with `cordwood serve`, or name it: --url."
        )
    return msgspec.structs.replace(found, timeout_seconds=_READ_TIMEOUT_SECONDS)


def _check_duration(text: str) -> str:
    try:
        parse_duration(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem
    return text


class _ReconnectingFollower:
    """The client side of a followed query. It connects again when its connection ends."""

    def __init__(
        self, service: RemoteService, path: str, since: str, values: Mapping[str, str], *, is_redacted: bool
    ) -> None:
        self._remote_service = service
        self._request_path = path
        self._since_query_string = since
        self._request_body = json.dumps(values).encode()
        self._request_headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if is_redacted:
            self._request_headers["LF-ENDPOINT-REDACT-PII"] = "true"
        self._last_event_id = ""
        self._reconnect_pause_seconds = 0.0

    def messages(self) -> Iterator[ServerSentEvent]:
        """Yield the messages of the event stream. When a connection ends, pause and connect again.

        The pause grows with each failed attempt.
        """
        while True:
            try:
                yield from self._messages_of_one_connection()
                reason = "The connection has ended"
            except ServiceUnreachable as fault:
                if not self._last_event_id:
                    raise
                reason = fault.message.rstrip(".")
            self._reconnect_pause_seconds = min(
                _MAX_RECONNECT_PAUSE_SECONDS, max(0.5, 2 * self._reconnect_pause_seconds)
            )
            print_message(f"{reason}; connecting again in {self._reconnect_pause_seconds:g} s.")
            time.sleep(self._reconnect_pause_seconds)

    def _messages_of_one_connection(self) -> Iterator[ServerSentEvent]:
        resumes = {"Last-Event-ID": self._last_event_id} if self._last_event_id else {}
        path = self._request_path if self._last_event_id else self._request_path + self._since_query_string
        service, headers = self._remote_service, {**self._request_headers, **resumes}
        with (
            service.open_response("POST", path, self._request_body, headers) as answer,
            service.convert_connection_errors(),
        ):
            if answer.status in _RETRIED_STATUSES and self._last_event_id:
                return
            if answer.status != 200:
                read_response(answer).raise_for_error()
            fields: dict[str, str] = {}
            while line := answer.readline():
                name, _, value = line.decode().rstrip("\r\n").partition(": ")
                if name:
                    fields[name] = value
                    continue
                self._last_event_id = fields.get("id", self._last_event_id)
                if "data" in fields:
                    self._reconnect_pause_seconds = 0.0
                    yield _read_message(fields)
                fields = {}


def _read_message(fields: Mapping[str, str]) -> ServerSentEvent:
    message = ServerSentEvent(fields.get("event", "message"), fields["data"])
    if message.event_name == "end":
        status = json.loads(message.data)
        if str(status.get("status")).startswith(_PERMANENT_ERROR_CODE_PREFIXES):
            raise RefusedByService(str(status.get("message")), hint=status.get("hint"))
    return message


# The rest of this module formats rows as lines.

_LEVEL_FIELD_NAMES: Final = ("level", "severity", "severity_text", "error_severity", "log_level")
_STATUS_FIELD_NAMES: Final = ("status_code", "status")
_LEVEL_WORD_REGEX: Final = re.compile(
    r"\b(panic|fatal|critical|crit|emerg|alert|error|err|warning|warn|notice|info|debug|trace)\b", re.IGNORECASE
)
_ERROR_LEVELS: Final = frozenset({"panic", "fatal", "critical", "crit", "emerg", "emergency", "alert", "error", "err"})
_WARNING_LEVELS: Final = frozenset({"warning", "warn"})
_DEBUG_LEVELS: Final = frozenset({"debug", "trace"})
_MAX_FIELD_SEARCH_DEPTH: Final = 4
_RED, _YELLOW, _DIM, _RESET = "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"


def _json_line(row: Mapping[str, object], *, is_terminal: bool) -> str:
    # Some characters that JSON permits control a terminal. Therefore all characters outside ASCII are escaped on a
    # terminal.
    return json.dumps(row, ensure_ascii=is_terminal, separators=(",", ":"))


def _text_line(row: Mapping[str, object], *, is_coloured: bool) -> str:
    time_text = _time_text(row.get("timestamp"))
    message = row.get("event_message")
    others = {
        name: value for name, value in row.items() if name not in ("id", "timestamp", "event_message", "metadata")
    }
    parts = [
        time_text,
        "" if message is None else str(message),
        *(f"{name}={_value_text(one)}" for name, one in others.items()),
    ]
    line = printable_text("  ".join(part for part in parts if part) or json.dumps(row))
    colour = _colour_of_level(level_of(row)) if is_coloured else ""
    return f"{colour}{line}{_RESET}" if colour else line


def _time_text(value: object) -> str:
    return format_timestamp(value)[:23] + "Z" if isinstance(value, int) else str(value or "")


def _value_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def level_of(row: Mapping[str, object]) -> str:
    """Return the level of a row in lower case, or an empty text if the row has none.

    The level comes from a field such as `severity`, from an HTTP status, or from a word at the beginning of the
    message.
    """
    found = _find_field(row, _LEVEL_FIELD_NAMES, _MAX_FIELD_SEARCH_DEPTH)
    if isinstance(found, str):
        return found.lower()
    status = _find_field(row, _STATUS_FIELD_NAMES, _MAX_FIELD_SEARCH_DEPTH)
    if isinstance(status, int) and 400 <= status < 600:
        return "error" if status >= 500 else "warning"
    word = _LEVEL_WORD_REGEX.search(str(row.get("event_message") or "")[:80])
    return word[0].lower() if word else ""


def _find_field(value: object, names: tuple[str, ...], depth: int) -> object:
    """Return the value of the first field with one of the names, or None.

    Nested objects are searched down to the given depth; of a list, only the first element is searched.
    """
    if isinstance(value, list):
        value = value[0] if value else None
    if not isinstance(value, Mapping) or not depth:
        return None
    own = next((value[name] for name in names if isinstance(value.get(name), str | int)), None)
    if own is not None:
        return own
    return next((found for one in value.values() if (found := _find_field(one, names, depth - 1)) is not None), None)


def _colour_of_level(level: str) -> str:
    if level in _ERROR_LEVELS:
        return _RED
    if level in _WARNING_LEVELS:
        return _YELLOW
    return _DIM if level in _DEBUG_LEVELS else ""
