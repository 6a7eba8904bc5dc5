"""A client of followed queries, which reads Server-Sent Events in a thread."""

import json
import socket
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.journey.conftest import PRIVATE, Service
from tests.waiting import until


@dataclass(frozen=True)
class Message:
    """One Server-Sent Event of an answer."""

    event: str
    data: Any


class Follower(threading.Thread):
    """A connection that follows a query. `last_id` is the event id from which it resumes."""

    def __init__(self, service: Service, last_id: str = "", key: str = PRIVATE, **parameters: str) -> None:
        super().__init__(daemon=True)
        self.messages: list[Message] = []
        self.last_id = last_id
        self.heartbeats = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.refusal: Any = None
        self._path = f"/api/endpoints/tail/logs.all?{urlencode({'project': 'p', **parameters})}"
        self._sent = {"X-API-KEY": key, **({"Last-Event-ID": last_id} if last_id else {})}
        address = urlsplit(service.url)
        self._connection = HTTPConnection(address.hostname or "", address.port, timeout=60)
        self._lock = threading.Lock()
        self._is_over = False

    def run(self) -> None:
        with suppress(HTTPException, OSError), closing(self._connection):
            self._connection.request("GET", self._path, headers=self._sent)
            with closing(self._connection.getresponse()) as answer:
                self._read(answer)

    def _read(self, answer: HTTPResponse) -> None:
        self.headers = {name.lower(): value for name, value in answer.getheaders()}
        if answer.status != 200:
            self.refusal = json.loads(answer.read())
        self.status = answer.status
        lines: dict[str, str] = {}
        while self.status == 200 and (line := answer.readline().decode().rstrip("\n")) is not None:
            if line.startswith(":"):
                self.heartbeats += 1
            elif line:
                field, _, value = line.partition(": ")
                lines[field] = value
            elif not lines:
                return
            else:
                with self._lock:
                    if self._is_over:
                        return
                    self._take(lines)
                lines = {}

    def _take(self, lines: dict[str, str]) -> None:
        self.last_id = lines.get("id", self.last_id)
        if "data" in lines:
            self.messages.append(Message(lines.get("event", "message"), json.loads(lines["data"])))

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [message.data for message in self.messages if message.event == "message"]

    @property
    def texts(self) -> list[str]:
        return [str(row["event_message"]) for row in self.rows]

    def start_and_wait(self) -> "Follower":
        """Start the thread, and wait until it has received the first event id."""
        self.start()
        until(lambda: bool(self.refusal or (self.status == 200 and self.last_id)))
        assert self.status == 200, self.refusal
        return self

    def start_and_read_refusal(self) -> tuple[int, str, str]:
        """Start the thread; return the status, the code and the message of the refusal."""
        self.start()
        until(lambda: self.refusal is not None)
        return self.status, self.refusal["error"]["status"], self.refusal["error"]["message"]

    def wait_for(self, rows: int, seconds: float = 30.0) -> "Follower":
        until(lambda: len(self.rows) >= rows, seconds)
        return self

    def disconnect(self) -> str:
        """Close the connection; return the id of the last event that was read."""
        with self._lock:
            self._is_over = True
        with suppress(OSError, AttributeError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        return self.last_id
