"""A route of the HTTP API, and the context that a route's handler receives."""

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
    """The objects that all handlers share.

    A handler can call `dispatch_request` to send another request to the application, as a client would.
    """

    lifecycle: Lifecycle
    options: WebOptions
    metrics: Metrics
    observer: Observer
    request_cache: ParsedRequestCache
    dispatch_request: Application


class HandlerContext(msgspec.Struct, frozen=True):
    """What a handler receives: the request, the variable part of its path, and the objects that all handlers share.

    The variable part is empty if the route has a fixed path.
    """

    request: Request
    path_argument: str
    dependencies: HandlerDependencies

    def services(self) -> Services:
        """Return the services; raise ServiceStarting or ServiceDraining if the process is not ready."""
        lifecycle = self.dependencies.lifecycle
        if lifecycle.phase is LifecyclePhase.DRAINING:
            raise ServiceDraining("The service is stopping.", retry_after=5)
        if lifecycle.services is None:
            raise ServiceStarting("The service is starting.", retry_after=1)
        return lifecycle.services


Handler = Callable[[HandlerContext], Awaitable[Response]]


class Route(msgspec.Struct, frozen=True):
    """A route. In metrics and logs it appears as `name`, whatever the variable part of the path is."""

    name: str
    methods: tuple[str, ...]
    handler: Handler
