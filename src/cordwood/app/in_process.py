"""Run the service inside the process of a command, which sends requests to it without a socket."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import msgspec

from cordwood.app.compose import Observability, ServiceComponents, build_components
from cordwood.app.configuration import create_fixed_key, web_options
from cordwood.catalog.key_store import make_secret
from cordwood.folder import DataFolder
from cordwood.model.timestamps import now_us
from cordwood.settings.settings import Settings
from cordwood.web.asgi import Application, Message, Scope
from cordwood.web.routes import create_application
from cordwood.web.services import Lifecycle


class InProcessApp(msgspec.Struct, frozen=True):
    """The HTTP application, the runner of its event loop, and the private key that its requests carry."""

    app: Application
    runner: asyncio.Runner
    private_key_secret: str

    def send(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        on_body: Callable[[bytes], object] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request; return the response's status, headers and body.

        If `on_body` is given, it is called with each part of the body of a successful response; the returned body is
        then empty.
        """
        scope = _asgi_scope(method, path, {"x-api-key": self.private_key_secret, **headers})
        return self.runner.run(_run_request(self.app, scope, body, on_body))


@contextmanager
def open_in_process_app(settings: Settings, clock_us: Callable[[], int] = now_us) -> Iterator[InProcessApp]:
    """Take ownership of the data folder and open the service; raise DataFolderInUse if another process is the owner."""
    folder, key, observability = (
        DataFolder(Path(settings.serve.data_dir)),
        make_secret(),
        Observability.from_settings(_settings_with_quiet_log(settings)),
    )
    with folder.take_ownership(), asyncio.Runner() as runner:
        keys = (create_fixed_key("private", key, "local"),)
        components = build_components(settings, folder, observability.observer, keys, clock_us, evaluates_alerts=False)
        lifecycle = Lifecycle()
        try:
            lifecycle.set_ready(components.services)
            yield InProcessApp(
                create_application(lifecycle, observability.observer, web_options(settings), observability.metrics),
                runner,
                key,
            )
        finally:
            _close(components, runner)


def _settings_with_quiet_log(settings: Settings) -> Settings:
    """Return the settings with a log of warnings and errors only, because the command prints its own output."""
    return msgspec.structs.replace(settings, web=msgspec.structs.replace(settings.web, log_level="warning"))


def _close(components: ServiceComponents, runner: asyncio.Runner) -> None:
    runner.run(components.services.query_service.close())
    components.close()


def _asgi_scope(method: str, path: str, headers: Mapping[str, str]) -> Scope:
    raw_path, _, query = path.partition("?")
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": raw_path,
        "raw_path": quote(raw_path, safe="/%").encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": None,
    }


async def _run_request(
    app: Application, scope: Scope, body: bytes, on_body: Callable[[bytes], object] | None
) -> tuple[int, dict[str, str], bytes]:
    """Pass a request to the application and return its response.

    If `on_body` raises an error, the application is told that the client disconnected. Then the error is raised.
    """
    messages: list[Message] = []
    unread = [body]
    is_gone = asyncio.Event()
    failures: list[Exception] = []

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        await is_gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if on_body is None or not messages or messages[0]["status"] >= 400:
            messages.append(message)
        elif not failures:
            try:
                on_body(message.get("body", b""))
            except Exception as failure:  # noqa: BLE001 - it is raised once the application has ended
                failures.append(failure)
                is_gone.set()

    await app(scope, receive, send)
    if failures:
        raise failures[0]
    headers = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return messages[0]["status"], headers, b"".join(message.get("body", b"") for message in messages[1:])
