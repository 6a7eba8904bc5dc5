"""Fixtures that run the service in the tests' process, as shippers use it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cordwood.app.in_process import InProcessApp, open_in_process_app
from cordwood.settings.settings import (
    DuckDBSettings,
    IngestSettings,
    LimitSettings,
    ServeSettings,
    Settings,
    WebSettings,
)

STREAMS = """
[[stream]]
name = "app"
[[stream]]
name = "edge"
[[stream]]
name = "slow"
rate = "1/h"
"""


@dataclass
class ShipperResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class ShipperSite:
    """A service with the streams app, edge and slow. Labels `nginx*` are mapped to edge, and labels `slow*` to slow."""

    inside: InProcessApp

    def send(
        self, method: str, path: str, body: bytes | str = b"", *, key: str | None = None, **headers: str
    ) -> ShipperResponse:
        """Send a request, with the private key if `key` is None, or without a key if `key` is empty."""
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            header_fields["x-api-key"] = key
        content = body.encode() if isinstance(body, str) else body
        return ShipperResponse(*self.inside.send(method, path, content, header_fields))

    def create_key(self, **terms: object) -> str:
        response = self.send("POST", "/api/access-tokens", json.dumps(terms), content_type="application/json")
        assert response.status in (200, 201), response.body
        return str(response.json()["token"])

    def events(self, stream: str, message: str = "") -> list[dict[str, Any]]:
        """Return the newest events of a stream whose message begins with `message`, oldest first."""
        response = self.send("GET", f"/api/sources/{stream}/recent?limit=100")
        assert response.status == 200, response.body
        return [event for event in response.json() if str(event["event_message"]).startswith(message)]

    def messages(self, stream: str, message: str = "") -> list[str]:
        return [event["event_message"] for event in self.events(stream, message)]

    def quarantined(self) -> list[dict[str, Any]]:
        """Return the quarantined items, newest first."""
        body: list[dict[str, Any]] = self.send("GET", "/api/quarantine").json()
        return body


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShipperSite]:
    """Yield one service for all tests of a module. The tests identify their events by message."""
    tmp_path: Path = tmp_path_factory.mktemp("shippers")
    (tmp_path / "streams.toml").write_text(STREAMS)
    settings = Settings(
        serve=ServeSettings(data_dir=str(tmp_path / "data"), streams=str(tmp_path / "streams.toml")),
        web=WebSettings(log_level="error"),
        limits=LimitSettings(memory=500 * 10**6),
        duckdb=DuckDBSettings(threads=1),
        ingest=IngestSettings(stream_map="nginx*=edge,slow*=slow,gone=nowhere"),
    )
    with open_in_process_app(settings) as inside:
        yield ShipperSite(inside)
