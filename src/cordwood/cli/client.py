"""Clients for the service that a command uses: one at a URL, the owner of the data folder, or one in this process."""

import argparse
import http.client
import importlib
import json
import math
import re
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from cordwood.cli.arguments import (
    add_config_option,
    add_data_dir_option,
    add_definition_files_options,
    load_settings_with_flags,
)
from cordwood.cli.tables import source_excerpt
from cordwood.cli.terminal import print_message, print_output
from cordwood.errors import BadSetting, RefusedByService, ServiceUnreachable
from cordwood.folder import DataFolder
from cordwood.settings.load import client_default_url_and_key
from cordwood.settings.settings import Settings

_DOWNLOAD_CHUNK_BYTES = 256 * 1024

_MAX_SHOWN_QUARANTINE_REASONS = 10
# The characters that Python's HTTP client cannot send in a header: control characters, and those outside Latin-1.
_UNSENDABLE_KEY_CHARACTER_REGEX = re.compile(r"[\x00-\x1f\x7f]|[^\x00-\xff]")
NDJSON_MEDIA_TYPE = "application/x-ndjson"


class ServiceResponse(msgspec.Struct, frozen=True):
    """A complete response of the service, with its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as problem:
            raise RefusedByService(f"The answer (status {self.status}) is not JSON.") from problem

    def raise_for_error(self, source: str = "") -> "ServiceResponse":
        """Return this response, or raise RefusedByService if it reports an error.

        The exception has the message of the error and its position in the query. If `source` is the text of the query,
        the exception also shows this position in the text.
        """
        if self.status < 400:
            return self
        raise RefusedByService(_error_text(self, source))


class PostRequest(msgspec.Struct, frozen=True):
    """The body and the headers of a POST request."""

    body: bytes
    headers: Mapping[str, str]


class PathRequest(msgspec.Struct, frozen=True):
    """A request for a path below the URL of a service."""

    method: str
    path: str
    body: bytes
    headers: Mapping[str, str]


class ServiceClient(Protocol):
    """The interface of a service to which commands send requests, over HTTP or inside this process."""

    def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> ServiceResponse: ...

    def download(
        self, path: str, on_chunk: Callable[[bytes], object], posted: PostRequest | None = None
    ) -> ServiceResponse:
        """Send a GET, or the POST in `posted`, and pass the chunks of a successful response's body to `on_chunk`.

        The returned response has a body only if it reports an error.
        """


class RemoteService(msgspec.Struct, frozen=True):
    """A service at a URL, with the key that each request to it presents."""

    url: str
    key: str | None
    timeout_seconds: float = 120.0

    def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> ServiceResponse:
        with self.open_response(method, path, body, headers or {}) as answer, self.convert_connection_errors():
            return read_response(answer)

    def download(
        self, path: str, on_chunk: Callable[[bytes], object], posted: PostRequest | None = None
    ) -> ServiceResponse:
        method, body, headers = ("POST", posted.body, posted.headers) if posted else ("GET", b"", {})
        with self.open_response(method, path, body, headers) as answer:
            if answer.status >= 400:
                with self.convert_connection_errors():
                    return read_response(answer)
            for chunk in self._read_chunks(answer):
                on_chunk(chunk)
            return _make_service_response(answer, b"")

    @contextmanager
    def open_response(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        """Send a request, and yield its response before the body is read.

        Raise ServiceUnreachable if the connection fails. The `with` block must convert the errors of reading the body
        itself, because it may also raise an OSError that has nothing to do with the connection, such as a full disk.
        """
        connection = new_connection(self.url, self.timeout_seconds)
        try:
            with self.convert_connection_errors():
                self.send_request(connection, PathRequest(method, path, body, headers))
                answer = connection.getresponse()
            yield answer
        finally:
            connection.close()

    def send_request(self, connection: http.client.HTTPConnection, request: PathRequest) -> None:
        """Send a request with the key; raise ServiceUnreachable if the URL is invalid, and BadSetting if the key is."""
        path, headers = _base_path(self.url) + request.path, {**_key_header(self.key), **request.headers}
        try:
            connection.request(request.method, path, request.body or None, headers)
        except (http.client.InvalidURL, UnicodeError) as problem:
            # The host or the path has a character that addresses cannot have, or a part of the host is empty.
            raise _invalid_address_fault(self.url) from problem

    @contextmanager
    def convert_connection_errors(self) -> Iterator[None]:
        """Raise ServiceUnreachable for an error of the connection in the `with` block."""
        try:
            yield
        except (OSError, http.client.HTTPException) as problem:
            raise ServiceUnreachable(f"No service answers at {self.url}: {problem}.") from problem

    def _read_chunks(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        while True:
            with self.convert_connection_errors():
                chunk = answer.read(_DOWNLOAD_CHUNK_BYTES)
                if not chunk and answer.length:
                    raise http.client.IncompleteRead(b"", answer.length)
            if not chunk:
                return
            yield chunk


class InProcessService(msgspec.Struct, frozen=True):
    """A service inside this process, on a data folder that no other service owns."""

    in_process_app: Any

    def send(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> ServiceResponse:
        return ServiceResponse(*self.in_process_app.send(method, path, body, headers or {}))

    def download(
        self, path: str, on_chunk: Callable[[bytes], object], posted: PostRequest | None = None
    ) -> ServiceResponse:
        method, body, headers = ("POST", posted.body, posted.headers) if posted else ("GET", b"", {})
        return ServiceResponse(*self.in_process_app.send(method, path, body, headers, on_chunk))


def _make_service_response(answer: http.client.HTTPResponse, body: bytes) -> ServiceResponse:
    return ServiceResponse(answer.status, {name.lower(): value for name, value in answer.getheaders()}, body)


def read_response(answer: http.client.HTTPResponse) -> ServiceResponse:
    """Read an HTTP response with its whole body."""
    return _make_service_response(answer, answer.read())


def add_service_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="address of the service (default: CORDWOOD_URL, else the one on the data folder)")
    parser.add_argument("--key", help="key to present (default: CORDWOOD_KEY, else the local service's own)")


def remote_service_from_arguments(arguments: argparse.Namespace) -> RemoteService | None:
    """Return the service whose URL is given by --url or by the environment, or None if neither gives a URL."""
    url, key = client_default_url_and_key()
    url = getattr(arguments, "url", None) or url
    return RemoteService(url.rstrip("/"), getattr(arguments, "key", None) or key) if url else None


def find_service_on_data_folder(settings: Settings, key: str | None = None) -> RemoteService | None:
    """Return the running service that owns the data folder, or None if there is no such service.

    Requests to it present `key` or, without it, the key in the environment or, without either, the service's own key.
    """
    owner = DataFolder(Path(settings.serve.data_dir)).find_owner()
    return (
        RemoteService(owner.url, key or client_default_url_and_key()[1] or owner.key)
        if owner is not None and owner.url
        else None
    )


def add_service_and_folder_options(parser: argparse.ArgumentParser) -> None:
    add_service_options(parser)
    add_data_dir_option(parser)
    add_definition_files_options(parser)
    add_config_option(parser)


@contextmanager
def open_service_client(arguments: argparse.Namespace, *, may_open_folder: bool = False) -> Iterator[ServiceClient]:
    """Yield a client for the service that the arguments name.

    If no service is running, open the data folder in this process. A data folder that does not exist is created only if
    `may_open_folder` is true and --data-dir names it; otherwise a misspelled name is an error.
    """
    remote = remote_service_from_arguments(arguments)
    if remote is not None:
        yield remote
        return
    settings = load_settings_with_flags(arguments).settings
    owner = find_service_on_data_folder(settings, arguments.key)
    if owner is not None:
        yield owner
        return
    folder = DataFolder(Path(settings.serve.data_dir))
    is_there = folder.has_been_used() if arguments.data_dir is None else may_open_folder or folder.path.is_dir()
    if not is_there:
        raise ServiceUnreachable(
            f"No service runs on {folder.path}, and the data folder does not exist.",
            hint="Start one with `cordwood serve`, or name it: --url, or --data-dir.",
        )
    with _open_in_process(settings) as opened:
        yield opened


@contextmanager
def _open_in_process(settings: Settings) -> Iterator[ServiceClient]:
    """Open the data folder in this process.

    The module is imported here and not at the top of the file, because the import takes half a second.
    """
    with importlib.import_module("cordwood.app.in_process").open_in_process_app(settings) as app:
        yield InProcessService(app)


def new_connection(url: str, timeout_seconds: float) -> http.client.HTTPConnection:
    """Return a connection to the service, which is not open yet; raise ServiceUnreachable if the URL is invalid."""
    try:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _invalid_address_fault(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.hostname, parts.port, timeout=timeout_seconds)
    except (ValueError, http.client.InvalidURL) as problem:
        raise _invalid_address_fault(url) from problem


def _invalid_address_fault(url: str) -> ServiceUnreachable:
    return ServiceUnreachable(f"{url!r} is not an address; write it like http://127.0.0.1:4000.")


def _base_path(url: str) -> str:
    return urllib.parse.urlsplit(url).path.rstrip("/")


def _key_header(key: str | None) -> Mapping[str, str]:
    """Return the header that presents a key; raise BadSetting if the key has a character that no header can have.

    The message does not contain the key, because messages end up in logs.
    """
    if not key:
        return {}
    if _UNSENDABLE_KEY_CHARACTER_REGEX.search(key):
        raise BadSetting(
            "The key in --key or CORDWOOD_KEY has a character that keys cannot have, such as a line break.",
            hint="Copy it again, without what surrounds it.",
        )
    return {"X-API-KEY": key}


def _error_text(answer: ServiceResponse, source: str) -> str:
    try:
        body = json.loads(answer.body)
    except ValueError:
        body = {}
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        place = f"line {error['line']}, column {error['column']}: " if error.get("line") else ""
        hint = f" {error['hint']}" if error.get("hint") else ""
        shown = source_excerpt(source, error["line"], error["column"]) if source and place else ""
        return f"{place}{error.get('message')}{hint}" + (f"\n{shown}" if shown else "")
    return str(error or f"status {answer.status}")


class RetryPolicy(msgspec.Struct, frozen=True):
    """When a failed request is sent again.

    A request is sent at most `max_attempts` times. It is sent again if the response has one of `retried_statuses`,
    after a pause of at most `max_pause_seconds`.
    """

    max_attempts: int
    retried_statuses: tuple[int, ...] = (429, 503)
    max_pause_seconds: float = math.inf


def send_events(
    service: ServiceClient, path: str, body: bytes, retries: RetryPolicy, media: str = NDJSON_MEDIA_TYPE
) -> ServiceResponse:
    """Send a batch of events, and retry if necessary; return the last response."""
    for _ in range(retries.max_attempts):
        answer = service.send("POST", path, body, {"Content-Type": media})
        if answer.status not in retries.retried_statuses:
            return answer
        time.sleep(min(retries.max_pause_seconds, float(answer.headers.get("retry-after", "1"))))
    return answer


class IngestTotals(msgspec.Struct):
    """The sums of the counts in the responses to all batches, and the reasons why events were quarantined."""

    counts_by_outcome: dict[str, int] = msgspec.field(
        default_factory=lambda: {"accepted": 0, "duplicates": 0, "quarantined": 0, "late": 0}
    )
    quarantine_reasons: list[str] = msgspec.field(default_factory=list)

    def add_batch_result(self, result: Mapping[str, Any], named: Callable[[Mapping[str, Any]], str]) -> None:
        """Add the counts and reasons of the response to a batch.

        `named` is called with each reason, and returns a text that names the event to which the reason belongs.
        """
        self.counts_by_outcome = {
            name: count + int(result.get(name, 0)) for name, count in self.counts_by_outcome.items()
        }
        self.quarantine_reasons += [f"{named(reason)}: {reason['reason']}" for reason in result.get("reasons", [])]

    def print_summary(self, line: str) -> int:
        """Print `line` and the first reasons why events were quarantined; return the exit code.

        The exit code is 1 if events were quarantined, and otherwise 0.
        """
        for reason in self.quarantine_reasons[:_MAX_SHOWN_QUARANTINE_REASONS]:
            print_message(f"Quarantined: {reason}")
        print_output(line)
        return 1 if self.counts_by_outcome["quarantined"] else 0


def show_progress(line: str) -> None:
    """Print a progress line in place of the previous one. Without a terminal, do nothing."""
    if sys.stderr.isatty():
        print(f"\r{line}\x1b[K", end="", file=sys.stderr, flush=True)


def end_progress() -> None:
    if sys.stderr.isatty():
        print_message("")
