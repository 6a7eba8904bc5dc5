"""A route, and the context that its handler receives."""

from collections.abc import Awaitable, Callable

import msgspec

from cordwood.errors import Draining, Starting
from cordwood.observe.metrics import Metrics
from cordwood.observe.observation import Observer
from cordwood.web.asgi import Application, Request, Response
from cordwood.web.query import RequestCache
from cordwood.web.services import Lifecycle, Phase, Services, WebOptions

READ = ("GET", "HEAD", "OPTIONS")
WRITE = ("POST", "OPTIONS")


class SharedObjects(msgspec.Struct, frozen=True):
    """The objects that all handlers share. `dispatch` answers a further request as if a client had sent it."""

    lifecycle: Lifecycle
    options: WebOptions
    metrics: Metrics
    observer: Observer
    request_cache: RequestCache
    dispatch: Application


class HandlerContext(msgspec.Struct, frozen=True):
    """The input of a handler: the request, the variable part of its path (empty for a fixed path), shared objects."""

    request: Request
    path_argument: str
    shared: SharedObjects

    def services(self) -> Services:
        """Return the services while the process is ready; raise Starting or Draining otherwise."""
        lifecycle = self.shared.lifecycle
        if lifecycle.phase is Phase.DRAINING:
            raise Draining("The service is stopping.", retry_after=5)
        if lifecycle.services is None:
            raise Starting("The service is starting.", retry_after=1)
        return lifecycle.services


Handler = Callable[[HandlerContext], Awaitable[Response]]


class Route(msgspec.Struct, frozen=True):
    """A route. Metrics and logs contain its `name`, which is the same for all paths of the route."""

    name: str
    methods: tuple[str, ...]
    handler: Handler
