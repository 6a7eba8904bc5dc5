"""Listeners on real sockets in the test process, with an application and a DuckDB engine."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from cordwood.app.compose import ServiceComponents, build_components
from cordwood.app.configuration import create_fixed_key, web_options
from cordwood.app.in_process import _asgi_scope, _run_request
from cordwood.folder import DataFolder
from cordwood.listeners.listeners import Listeners, bind_listeners
from cordwood.observe.metrics import Metrics
from cordwood.observe.observation import Observer
from cordwood.settings.settings import (
    IngestSettings,
    KeySettings,
    LimitSettings,
    ListenSettings,
    ServeSettings,
    Settings,
)
from cordwood.web.asgi import Application
from cordwood.web.routes import create_application
from cordwood.web.services import Lifecycle

PRIVATE, PUBLIC = "listener-private", "listener-public"


class NoteList:
    """A sink that keeps all observations."""

    def __init__(self) -> None:
        self.all: list[object] = []

    def record(self, observation: object) -> None:
        self.all.append(observation)

    @property
    def messages(self) -> list[str]:
        return [str(getattr(observation, "message", getattr(observation, "trace", ""))) for observation in self.all]


class ListenerSite:
    """An open data folder with its HTTP application, which stores the events of the listeners that a test opens."""

    def __init__(self, components: ServiceComponents, app: Application, notes: NoteList, metrics: Metrics) -> None:
        self.components = components
        self.app = app
        self.notes = notes
        self.metrics = metrics
        self.observer = Observer((notes, metrics))

    async def query(self, sql: str) -> list[dict[str, Any]]:
        body = json.dumps({"sql": sql}).encode()
        scope = _asgi_scope("POST", "/api/query", {"x-api-key": PRIVATE, "content-type": "application/json"})
        status, _, answer = await _run_request(self.app, scope, body, None)
        assert status == 200, answer
        rows: list[dict[str, Any]] = json.loads(answer)["result"]
        return rows

    async def messages(self, stream: str) -> list[str]:
        rows = await self.query(f"select event_message as m from `{stream}` order by timestamp, m")
        return [row["m"] for row in rows]

    def event_count(self, outcome: str) -> int:
        """Return the number of events with this outcome, summed over all listeners."""
        return self.metrics._listener_outcomes.sums_by_label(1).get(outcome, 0)


def settings_of(listen: ListenSettings, folder: Path = Path(), **ingest: Any) -> Settings:
    return Settings(
        serve=ServeSettings(data_dir=str(folder)),
        keys=KeySettings(private=PRIVATE, public=PUBLIC),
        limits=LimitSettings(memory=512 * 2**20),
        ingest=IngestSettings(**ingest),
        listen=listen,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListenerSite]:
    folder = DataFolder(tmp_path_factory.mktemp("listeners") / "data")
    notes, metrics, lifecycle = NoteList(), Metrics("0"), Lifecycle()
    observer = Observer((notes, metrics))
    settings = settings_of(ListenSettings(), folder.path, event_size=100_000)
    with folder.take_ownership():
        components = build_components(settings, folder, observer, (create_fixed_key("private", "local-key", "local"),))
        lifecycle.set_ready(components.services)
        yield ListenerSite(
            components, create_application(lifecycle, observer, web_options(settings), metrics), notes, metrics
        )
        asyncio.run(components.services.query_service.close())
        components.close()


Conversation = Callable[[Listeners], Awaitable[None]]


@pytest.fixture
def with_listeners(site: ListenerSite) -> Callable[..., None]:
    """Return a function that runs a conversation with listeners. It opens them before, and stops them afterwards."""

    def run(listen: ListenSettings, handle: Conversation, **ingest: Any) -> None:
        async def opened() -> None:
            listeners = bind_listeners(settings_of(listen, event_size=100_000, **ingest))
            await listeners.start(site.components.services, site.observer)
            try:
                await handle(listeners)
            finally:
                await listeners.stop(20)

        site.notes.all.clear()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(opened(), 60))

    return run


def port_of(listeners: Listeners, position: int = 0) -> int:
    return listeners._bound_listeners[position].address.port


async def connect(listeners: Listeners, position: int = 0) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port_of(listeners, position))


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """Return the data that arrives until the listener closes the connection.

    If the listener resets the connection because of unread data, return nothing.
    """
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def close_writer(writer: asyncio.StreamWriter) -> None:
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        return


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    """Wait until the condition is true."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.01)


def send_datagrams(port: int, *messages: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for message in messages:
            sender.sendto(message, ("127.0.0.1", port))
