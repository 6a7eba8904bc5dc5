"""The protocols of other services' shippers, one module each: routes, keys, answers and errors as they are there."""

from collections.abc import Callable, Mapping

from cordwood.errors import Fault
from cordwood.web.asgi import Request, Response
from cordwood.web.route import READ, WRITE, Route
from cordwood.web.shippers import datadog

EXACT: Mapping[bytes, Route] = {
    b"/api/v2/logs": Route("datadog", WRITE, datadog.receive_logs),
    b"/v1/input": Route("datadog", WRITE, datadog.receive_logs),
    b"/api/v1/validate": Route("datadog", READ, datadog.validate_key),
}

# The form of errors, by the name of the route.
FAILED: Mapping[str, Callable[[Fault, Request], Response]] = {
    "datadog": datadog.failed,
}
