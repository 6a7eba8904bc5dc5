"""Client of a cordwood service, with a method for each operation of its API.

The client needs only Python 3.10 or later. Save this file in the folder of your program:

    client = Client("http://localhost:4000", key)
    answer = client.query_logs_all(project="default")
    for row in answer.rows: ...

A client may be used by several threads at once, because each call opens its own connection. The client uses no proxy
and follows no redirect, so that the key is sent only to the given service.
"""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

JSON_MEDIA_TYPE = "application/json"
FORM_MEDIA_TYPE = "application/x-www-form-urlencoded"
# Responses with this HTTP status or a higher one are errors.
MIN_ERROR_STATUS = 300


class CordwoodError(Exception):
    """An error that the service reported.

    Programs should test the error's code, `code`, such as limit.rate. `hint` says what to do. `status` is the HTTP
    status; `line` and `column` are the position of the error in a query, if there is one.
    """

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(error.get("status", ""))
        self.message = str(error.get("message", f"The service answered {status}."))
        self.hint: str | None = error.get("hint")
        self.line: int | None = error.get("line")
        self.column: int | None = error.get("column")
        super().__init__(" ".join(filter(None, (self.code, self.message, self.hint))))


class NotReachedError(CordwoodError):
    """The service could not be reached, or its answer is incomplete. `status` is 0, `code` is client.not-reached."""

    def __init__(self, reason: str) -> None:
        super().__init__(0, {"status": "client.not-reached", "message": reason})


class Answer(NamedTuple):
    """The response to a successful request. The names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows in the answer to a query. The answer must be in JSON."""
        rows: list[dict[str, Any]] = json.loads(self.content)["result"]
        return rows

    @property
    def next_cursor(self) -> str | None:
        """The cursor for the next page of rows, or None if there is no next page."""
        return self.headers.get("cordwood-next")

    @property
    def truncated(self) -> str | None:
        """The name of the limit because of which rows are missing, or None if all rows are there."""
        return self.headers.get("cordwood-truncated")

    def json(self) -> Any:
        """Return the body, decoded from JSON."""
        return json.loads(self.content)


class _Call(NamedTuple):
    """What a request consists of. Query parameters, headers and members that are None are not sent."""

    method: str
    path: str
    query: Mapping[str, object] | None = None
    headers: Mapping[str, object] | None = None
    body: object = None
    content_type: str = ""
    keyed: bool = True


class Client:
    """Sends requests to the service at `url` with `key`.

    `timeout` is in seconds. `tls` is an SSL context to use instead of the default.
    """

    def __init__(self, url: str, key: str = "", *, timeout: float = 60.0, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            message = f"{url!r} is not the URL of a service, such as http://localhost:4000."
            raise ValueError(message)
        self._is_secure = parts.scheme == "https"
        self._host = parts.hostname
        self._port = parts.port
        self._prefix = parts.path.rstrip("/")
        self._key = key
        self._timeout = timeout
        self._tls = tls

    # The operations of the service.

    def _fetch_answer(self, call: _Call) -> Answer:
        with closing(self._new_connection()) as connection:
            try:
                response = self._send(connection, call)
                return Answer(response.status, _lower_case_headers(response), response.read())
            except (OSError, HTTPException) as failure:
                raise NotReachedError(str(failure) or type(failure).__name__) from failure

    def _iterate_events(self, call: _Call) -> Iterator[Any]:
        """Yield the data of each server-sent event, decoded from JSON, until the service ends the response."""
        with closing(self._new_connection()) as connection:
            try:
                yield from _read_events(self._send(connection, call))
            except (OSError, HTTPException) as failure:
                raise NotReachedError(str(failure) or type(failure).__name__) from failure

    def _new_connection(self) -> HTTPConnection:
        if self._is_secure:
            return HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        return HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _send(self, connection: HTTPConnection, call: _Call) -> HTTPResponse:
        query = urlencode(_texts_without_none(call.query or {}))
        target = self._prefix + call.path + (f"?{query}" if query else "")
        headers = _texts_without_none(call.headers or {})
        body = None if call.body is None else _encode_body(call.body, call.content_type)
        if body is not None:
            headers["Content-Type"] = call.content_type
        if call.keyed and self._key:
            headers["X-API-KEY"] = self._key
        connection.request(call.method, target, body, headers)
        response = connection.getresponse()
        if response.status >= MIN_ERROR_STATUS:
            raise _read_error(response)
        return response


def _read_events(response: HTTPResponse) -> Iterator[Any]:
    event = ""
    for line in response:
        name, _, value = line.decode().rstrip("\r\n").partition(": ")
        if name == "event":
            event = value
        elif name == "data" and not event:
            yield json.loads(value)
        elif name == "data" and event == "end":
            raise CordwoodError(response.status, json.loads(value))
        elif not name:
            event = ""


def _read_error(response: HTTPResponse) -> CordwoodError:
    try:
        error = json.loads(response.read())["error"]
    except (ValueError, KeyError, TypeError):
        error = {}
    return CordwoodError(response.status, error if isinstance(error, dict) else {})


def _lower_case_headers(response: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _texts_without_none(values: Mapping[str, object]) -> dict[str, str]:
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quote(value: object) -> str:
    """Percent-encode a value, so that it is a single segment of a URL path."""
    return quote(_text(value), safe="")


def _encode_body(body: object, content_type: str) -> bytes:
    """Encode a body according to its content type.

    Bytes are sent unchanged, and a text as UTF-8 unless the content type is JSON. Any other value is encoded as a form
    or as JSON.
    """
    if isinstance(body, bytes):
        return body
    if isinstance(body, str) and content_type != JSON_MEDIA_TYPE:
        return body.encode()
    if isinstance(body, Mapping) and content_type == FORM_MEDIA_TYPE:
        return urlencode(_texts_without_none(body)).encode()
    return json.dumps(body).encode()


def _without_none_values(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
