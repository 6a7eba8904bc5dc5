"""A route, and the context that its handler receives."""

from collections.abc import Awaitable, Callable

import msgspec

from cordwood.errors import ServiceDraining, ServiceStarting
from cordwood.observe.metrics import Metrics
from cordwood.observe.observation import Observer
from cordwood.web.asgi import Application, Request, Response
from cordwood.web.query import ParsedRequestCache
from cordwood.web.services import Lifecycle, LifecyclePhase, Services, WebOptions

READ_METHODS = ("GET", "HEAD", "OPTIONS")
WRITE_METHODS = ("POST", "OPTIONS")


class HandlerDependencies(msgspec.Struct, frozen=True):
    """The objects that all handlers share. `dispatch_request` answers a further request as if a client had sent it."""

    lifecycle: Lifecycle
    options: WebOptions
    metrics: Metrics
    observer: Observer
    request_cache: ParsedRequestCache
    dispatch_request: Application


class HandlerContext(msgspec.Struct, frozen=True):
    """The input of a handler: the request, the variable part of its path (empty for a fixed path), shared objects."""

    request: Request
    path_argument: str
    shared: HandlerDependencies

    def services(self) -> Services:
        """Return the services while the process is ready; raise Starting or Draining otherwise."""
        lifecycle = self.shared.lifecycle
        if lifecycle.phase is LifecyclePhase.DRAINING:
            raise ServiceDraining("The service is stopping.", retry_after=5)
        if lifecycle.services is None:
            raise ServiceStarting("The service is starting.", retry_after=1)
        return lifecycle.services


Handler = Callable[[HandlerContext], Awaitable[Response]]


class Route(msgspec.Struct, frozen=True):
    """A route. Metrics and logs contain its `name`, which is the same for all paths of the route."""

    name: str
    methods: tuple[str, ...]
    handler: Handler
