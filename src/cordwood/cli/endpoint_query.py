"""A query of an endpoint as commands send it: one answer or all pages, its rows, and what is told of it."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from cordwood.cli.client import Answer, Counterpart, Posted, end_progress, show_progress
from cordwood.cli.query_progress import progress_shown
from cordwood.cli.terminal import note

JSON: Final = "application/json"


class EndpointQuery(msgspec.Struct, frozen=True):
    """A query: the endpoint, its parameters, and the text of an own query in `language`, sql or lql."""

    endpoint: str
    parameters: Mapping[str, str]
    language: str = ""
    source: str = ""
    accept: str = JSON
    redacts: bool = False

    @property
    def path(self) -> str:
        return f"/api/endpoints/query/{quote(self.endpoint, safe='')}"

    def posted(self, **more: str) -> Posted:
        own = {self.language: self.source} if self.language else {}
        headers = {"Content-Type": JSON, "Accept": self.accept}
        if self.redacts:
            headers["LF-ENDPOINT-REDACT-PII"] = "true"
        return Posted(json.dumps({**self.parameters, **own, **more}).encode(), headers)

    def answer(self, service: Counterpart, **more: str) -> Answer:
        """Return an answer; raise Refused with the place in the own query."""
        posted = self.posted(**more)
        with progress_shown(service) as headers:
            answer = service.send("POST", self.path, posted.body, {**posted.headers, **headers})
        return answer.checked(self.source)

    def pages(self, service: Counterpart) -> Iterator[Answer]:
        """Yield all pages as of one answer, with their progress on the terminal."""
        # An empty cursor asks for the first page.
        cursor: str | None = ""
        rows = 0
        while cursor is not None:
            answer = self.answer(service, cursor=cursor)
            yield answer
            rows += int(answer.headers.get("cordwood-rows", "0"))
            cursor = answer.headers.get("cordwood-next")
            show_progress(f"{rows:,} rows")
        end_progress()

    def rows(self, service: Counterpart, *, is_whole: bool = False) -> tuple[Answer, list[dict[str, Any]]]:
        """Return the last page, and the rows of the answer or of all its pages."""
        answers = list(self.pages(service)) if is_whole else [self.answer(service)]
        return answers[-1], [row for answer in answers for row in answer.json()["result"]]


def tell_notices(headers: Mapping[str, str]) -> None:
    """Print notices about truncation and ignored parameters."""
    if "cordwood-truncated" in headers:
        note(f"The rows were truncated at {headers['cordwood-truncated']}; --all fetches all.")
    if "cordwood-notice" in headers:
        note(headers["cordwood-notice"])


def footer(answer: Answer, rows: int, seconds: float) -> str:
    """Return the line below a table: how many rows, how long it took, and whether it was cached."""
    cached = ", cached" if "hit" in answer.headers.get("cache-status", "") else ""
    return f"{rows:,} {'row' if rows == 1 else 'rows'}, {seconds * 1000:,.0f} ms{cached}"
