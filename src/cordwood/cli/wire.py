"""How client commands speak with a service: the standard library's HTTP client, a key, and faults as they come back."""

import argparse
import http.client
import json
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordwood.cli.sources import loaded_settings
from cordwood.errors import ServiceFault
from cordwood.folder import DataFolder
from cordwood.settings.load import client_defaults


class Unreachable(ServiceFault):
    """Nobody answers there."""

    code = "service.unreachable"


class Refused(ServiceFault):
    """The service answered with a refusal; the message is its own."""

    code = "service.refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of the service."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as problem:
            raise Refused(f"The answer (status {self.status}) is not JSON.") from problem

    def checked(self) -> "Answer":
        """Itself when it is a success, else its refusal as a fault."""
        if self.status < 400:
            return self
        raise Refused(_refusal(self))


@dataclass(frozen=True, slots=True)
class Service:
    """An address and a key."""

    url: str
    key: str | None

    def get(self, path: str, *, timeout_seconds: float = 60.0, headers: Mapping[str, str] | None = None) -> Answer:
        return self.send("GET", path, headers=headers, timeout_seconds=timeout_seconds)

    def send(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_seconds: float = 60.0,
    ) -> Answer:
        connection = _connection(self.url, timeout_seconds)
        sent = {**({"X-API-KEY": self.key} if self.key else {}), **(headers or {})}
        try:
            connection.request(method, _base(self.url) + path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        except (OSError, http.client.HTTPException) as problem:
            raise Unreachable(f"No service answers at {self.url}: {problem}.") from problem
        finally:
            connection.close()


def add_service(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="address of the service (default: CORDWOOD_URL, else the one on the data folder)")
    parser.add_argument("--key", help="key to present (default: CORDWOOD_KEY, else the local service's own)")


def local_or_named(arguments: argparse.Namespace) -> Service:
    """The service that is meant: named by flag or environment, else the owner of the data folder, else the usual place."""
    url, key = client_defaults()
    given = vars(arguments)
    url, key = given.get("url") or url, given.get("key") or key
    if url:
        return Service(url.rstrip("/"), key)
    settings = loaded_settings(arguments).settings
    owner = DataFolder(Path(settings.serve.data_dir)).owner()
    if owner is not None and owner.url:
        return Service(owner.url, key or owner.key)
    return Service(f"http://{settings.web.host}:{settings.web.port}", key or settings.keys.private or None)


def _connection(url: str, timeout_seconds: float) -> http.client.HTTPConnection:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unreachable(f"{url!r} is no address; write it like http://127.0.0.1:4000.")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, parts.port, timeout=timeout_seconds)


def _base(url: str) -> str:
    return urllib.parse.urlsplit(url).path.rstrip("/")


def _refusal(answer: Answer) -> str:
    try:
        body = json.loads(answer.body)
    except ValueError:
        body = {}
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        place = f"line {error['line']}, column {error['column']}: " if error.get("line") else ""
        hint = f" {error['hint']}" if error.get("hint") else ""
        return f"{place}{error.get('message')}{hint}"
    return str(error or f"status {answer.status}")
