"""A query of an endpoint as commands send it: one answer or all pages, its rows, its progress, and its notices."""

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote
from uuid import uuid4

import msgspec

from cordwood.cli.client import Answer, PostRequest, Remote, ServiceClient, end_progress, show_progress
from cordwood.cli.terminal import note
from cordwood.errors import Fault

JSON: Final = "application/json"

# After how many seconds the progress line appears, and how often it changes.
_FIRST_SECONDS, _PAUSE_SECONDS = 1.0, 0.5
# The timeout of requests for the progress, so that they do not delay the end of the command.
_TIMEOUT_SECONDS = 2.0


class EndpointQuery(msgspec.Struct, frozen=True):
    """A query: the endpoint, its parameters, and the text of a caller's own query in `language`, sql or lql."""

    endpoint: str
    parameters: Mapping[str, str]
    language: str = ""
    source: str = ""
    accept: str = JSON
    redacts: bool = False

    @property
    def path(self) -> str:
        return f"/api/endpoints/query/{quote(self.endpoint, safe='')}"

    def posted(self, **more: str) -> PostRequest:
        own = {self.language: self.source} if self.language else {}
        headers = {"Content-Type": JSON, "Accept": self.accept}
        if self.redacts:
            headers["LF-ENDPOINT-REDACT-PII"] = "true"
        return PostRequest(json.dumps({**self.parameters, **own, **more}).encode(), headers)

    def answer(self, service: ServiceClient, **more: str) -> Answer:
        """Return an answer; raise Refused with the position in the caller's own query."""
        posted = self.posted(**more)
        with _with_progress(service) as headers:
            answer = service.send("POST", self.path, posted.body, {**posted.headers, **headers})
        return answer.checked(self.source)

    def pages(self, service: ServiceClient) -> Iterator[Answer]:
        """Yield the pages of one answer, and show their progress on the terminal."""
        # An empty cursor requests the first page.
        cursor: str | None = ""
        rows = 0
        while cursor is not None:
            answer = self.answer(service, cursor=cursor)
            yield answer
            rows += int(answer.headers.get("cordwood-rows", "0"))
            cursor = answer.headers.get("cordwood-next")
            show_progress(f"{rows:,} rows")
        end_progress()

    def rows(self, service: ServiceClient, *, is_whole: bool = False) -> tuple[Answer, list[dict[str, Any]]]:
        """Return the last page, and the rows of the answer, or of all its pages if `is_whole`."""
        answers = list(self.pages(service)) if is_whole else [self.answer(service)]
        return answers[-1], [row for answer in answers for row in answer.json()["result"]]


def print_notices(headers: Mapping[str, str]) -> None:
    """Print the notices about truncation and ignored parameters."""
    if "cordwood-truncated" in headers:
        note(f"The rows were truncated at {headers['cordwood-truncated']}; --all fetches all.")
    if "cordwood-notice" in headers:
        note(headers["cordwood-notice"])


def footer(answer: Answer, rows: int, seconds: float) -> str:
    """Return the line below a table: the number of rows, the duration, and whether the answer was cached."""
    cached = ", cached" if "hit" in answer.headers.get("cache-status", "") else ""
    return f"{rows:,} {'row' if rows == 1 else 'rows'}, {seconds * 1000:,.0f} ms{cached}"


class _Query(msgspec.Struct):
    id: str | None
    seconds: float
    rows_read: int | None
    rows_total: int | None
    part: float | None

    def line(self) -> str:
        if self.rows_read is not None:
            of_total = "" if self.rows_total is None else f" of {self.rows_total:,}"
            return f"{self.seconds:.1f} s, {self.rows_read:,}{of_total} rows read"
        done = "" if self.part is None else f", {int(self.part * 100)} % done"
        return f"{self.seconds:.1f} s{done}"


class _QueryList(msgspec.Struct):
    queries: list[_Query]


@contextmanager
def _with_progress(service: ServiceClient) -> Iterator[Mapping[str, str]]:
    """Yield the headers of a request. Its progress is shown during the block if a service runs it, on a terminal."""
    if not isinstance(service, Remote) or not sys.stderr.isatty():
        yield {}
        return
    request_id, has_ended = f"cordwood-query-{uuid4().hex}", threading.Event()
    polled = msgspec.structs.replace(service, timeout_seconds=_TIMEOUT_SECONDS)
    thread = threading.Thread(target=_show, args=(polled, request_id, has_ended), daemon=True)
    thread.start()
    try:
        yield {"X-Request-Id": request_id}
    finally:
        has_ended.set()
        thread.join()


def _show(service: Remote, request_id: str, has_ended: threading.Event) -> None:
    pause, is_shown = _FIRST_SECONDS, False
    while not has_ended.wait(pause):
        pause = _PAUSE_SECONDS
        try:
            listed = msgspec.json.decode(service.send("GET", "/api/queries").checked().body, type=_QueryList)
        except (Fault, msgspec.MsgspecError):
            # The request is refused, by an older service for example. The answer itself is still awaited.
            break
        for query in listed.queries:
            if query.id == request_id and not has_ended.is_set():
                show_progress(query.line())
                is_shown = True
    if is_shown:
        show_progress("")
