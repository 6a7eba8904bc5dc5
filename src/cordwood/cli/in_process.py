"""The service inside this process, on a data folder that no service owns. Imports the whole service."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from cordwood.app.in_process import InProcessApp, open_service
from cordwood.cli.client import Answer, PostRequest, ServiceClient
from cordwood.settings.settings import Settings


class InProcess(msgspec.Struct, frozen=True):
    """Answers requests from the service in this process."""

    inside: InProcessApp

    def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        return Answer(*self.inside.send(method, path, body, headers or {}))

    def save(self, path: str, on_chunk: Callable[[bytes], object], posted: PostRequest | None = None) -> Answer:
        method, body, headers = ("POST", posted.body, posted.headers) if posted else ("GET", b"", {})
        return Answer(*self.inside.send(method, path, body, headers, on_chunk))


@contextmanager
def in_process(settings: Settings) -> Iterator[ServiceClient]:
    with open_service(settings) as inside:
        yield InProcess(inside)
