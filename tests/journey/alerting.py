"""A service in this process with a manual clock, and a receiver of webhooks whose answers a test sets."""

import asyncio
import json
import threading
import time
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import msgspec

from cordwood.alerts.service import AlertComponents
from cordwood.app.compose import Observability, ServiceComponents, build_components
from cordwood.app.configuration import create_fixed_key, web_options
from cordwood.app.in_process import InProcessApp
from cordwood.folder import DataFolder
from cordwood.settings.settings import AlertSettings, ServeSettings, Settings
from cordwood.web.routes import create_application
from cordwood.web.services import Lifecycle

SECOND_US = 1_000_000
START_US = 1_700_000_000 * SECOND_US


class WebhookReceiver:
    """An HTTP server for webhooks that answers each request with `status` after `delay` seconds."""

    def __init__(self, port: int = 0) -> None:
        self.received: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.status, self.delay, self.headers = 200, 0.0, dict[str, str]()
        self.under_way = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                receiver.under_way += 1
                time.sleep(receiver.delay)
                receiver.under_way -= 1
                if receiver.status == 200:
                    receiver.received.append(body)
                    receiver.ids.append(str(self.headers["webhook-id"]))
                self.send_response(receiver.status)
                for name, value in receiver.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def target(self) -> str:
        return f"webhook+http://127.0.0.1:{self.port}/hook"

    @property
    def accepted_changes(self) -> list[tuple[str, str, dict[str, str]]]:
        """Return the alert, the state and the labels of each change that the receiver accepted."""
        return [
            (body["data"]["alert"], change["state"], change["labels"])
            for body in self.received
            for change in body["data"]["changes"]
        ]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class ManualClockService:
    """A service with alerts and a real engine. Only `advance` changes its clock."""

    def __init__(self, folder: Path, targets: str, **settings: Any) -> None:
        self.folder = folder
        self.now_us = START_US
        self._settings = Settings(
            serve=ServeSettings(data_dir=str(folder / "data"), endpoints=str(folder / "queries")),
            alerts=AlertSettings(targets=targets, refuse_addresses="private", send_rate=1_000.0, **settings),
        )
        self._runner = asyncio.Runner()
        self._components = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._runner.close()

    def _open(self) -> ServiceComponents:
        folder, observability = DataFolder(self.folder / "data"), Observability.from_settings(self._settings)
        folder.create()
        keys = (create_fixed_key("private", "key", "local"),)
        components = build_components(self._settings, folder, observability.observer, keys, lambda: self.now_us)
        lifecycle = Lifecycle()
        lifecycle.set_ready(components.services)
        routes = create_application(
            lifecycle, observability.observer, web_options(self._settings), observability.metrics
        )
        self._app = InProcessApp(routes, self._runner, "key")
        return components

    def http(self, method: str, path: str, body: object = None) -> Any:
        """Send a request with a private key; return the JSON of the answer."""
        data = b"" if body is None else msgspec.json.encode(body)
        status, _, answer = self._app.send(method, path, data, {"content-type": "application/json"})
        assert status < 300, answer
        return msgspec.json.decode(answer) if answer else None

    def close(self) -> None:
        self._runner.run(self._components.services.query_service.close())
        self._components.close()

    def restart(self) -> None:
        self.close()
        self._components = self._open()

    def reload(self) -> None:
        self._components.reload_definitions()

    @property
    def parts(self) -> AlertComponents:
        return self._components.services.alert_service.open_store()

    def metrics(self) -> str:
        return self._app.send("GET", "/metrics", b"", {})[2].decode()

    def send(self, stream: str, events: Sequence[Mapping[str, object]]) -> None:
        assert self.http("POST", f"/api/logs?source_name={stream}", events)["accepted"] == len(events)

    def advance(self, seconds: float = 0.0, step: float = 1.0) -> None:
        """Advance the clock in steps. At each step, evaluate the alerts that are due and send the notifications that
        are due.
        """
        end_us = self.now_us + round(seconds * SECOND_US)
        while True:
            self._runner.run(self._work())
            if self.now_us >= end_us:
                return
            self.now_us = min(end_us, self.now_us + round(step * SECOND_US))

    async def _work(self) -> None:
        parts = self.parts
        await asyncio.gather(*parts.evaluator.start_due_evaluations())
        while tasks := await parts.sender.start_due_sends():
            await asyncio.gather(*tasks)

    def states(self) -> dict[str, list[str]]:
        """Return for each alert the phases of its groups."""
        return {
            alert.name: sorted(
                str(instance.phase) for instance in self.parts.store.group_states(str(alert.id)).values()
            )
            for alert in self._components.services.catalog.alerts()
        }

    def error(self, name: str) -> str | None:
        alert = next(alert for alert in self._components.services.catalog.alerts() if alert.name == name)
        return self.parts.evaluator.health_of(alert).error

    def history(self) -> list[str]:
        return [item.kind for item in reversed(self.parts.store.history(None, 1_000))]
