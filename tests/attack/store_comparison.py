"""A service whose answers can be compared with those of another service: times and request ids are removed."""

import json
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from cordwood.app.in_process import InProcessApp

StoreAnswer = tuple[int, Mapping[str, str], str]

# Headers whose values differ between two equal requests.
_VARYING_HEADERS: Final = frozenset(
    {
        *("x-request-id", "cordwood-request-id", "server-timing", "date", "etag", "content-length"),
        *("cordwood-compile-seconds", "cordwood-engine-seconds"),
    }
)


class Store:
    """A service and three keys for it: `private`, and `pinned` and `pinned_private`, which are pinned to a project."""

    def __init__(self, app: InProcessApp, engine: str, project: str = "a") -> None:
        self.app = app
        self.engine = engine
        self.private = self._key("private")
        self.pinned = self._key("query", {"project": project})
        self.pinned_private = self._key("private", {"project": project})

    def _key(self, scopes: str, pins: dict[str, str] | None = None) -> str:
        _, answer = self.send("/api/access-tokens", {"scopes": scopes, "pins": pins or {}})
        return str(json.loads(answer)["token"])

    def send(self, path: str, body: object) -> tuple[int, str]:
        return self.send_text(path, json.dumps(body))

    def send_text(self, path: str, body: str) -> tuple[int, str]:
        headers = {"content-type": "application/json"}
        status, _, answer = self.app.send("POST", path, body.encode(), headers)
        return status, answer.decode()

    def take(self, stream: str, events: object) -> None:
        status, answer = self.send(f"/api/logs?source_name={quote(stream)}", events)
        assert status == 200, answer

    def answer(self, path: str, key: str, **query: str) -> StoreAnswer:
        return self.answer_with({}, path, key, query)

    def answer_with(self, headers: Mapping[str, str], path: str, key: str, query: Mapping[str, str]) -> StoreAnswer:
        url = f"{path}?{urlencode(query)}" if query else path
        status, answered, body = self.app.send("GET", url, b"", {"x-api-key": key, **headers})
        compared_headers = {name: value for name, value in answered.items() if name not in _VARYING_HEADERS}
        if status < 400:
            return status, compared_headers, body.decode()
        try:
            parsed = json.loads(body)
        except ValueError:
            return status, compared_headers, body.decode()
        parsed.pop("instance", None)
        if isinstance(parsed.get("error"), dict):
            parsed["error"].pop("request_id", None)
        return status, compared_headers, json.dumps(parsed)

    def ask(self, key: str, **query: str) -> StoreAnswer:
        return self.answer("/api/endpoints/query/logs.all", key, **query)
