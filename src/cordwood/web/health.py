"""Whether the service lives, and whether it takes requests: cheap, and without a key."""

import msgspec

from cordwood.observe import metrics as prometheus
from cordwood.observe.metrics import Metrics
from cordwood.web.asgi import Header, Response
from cordwood.web.standing import Phase, Standing

NO_STORE: Header = (b"cache-control", b"no-store")
STATUSES = {Phase.STARTING: "coming_up", Phase.READY: "ok", Phase.DRAINING: "draining"}


def health(standing: Standing) -> Response:
    """For those who wait on the incumbent: 200 only when streams and endpoints are there."""
    return _told(standing, STATUSES[standing.phase])


def ready(standing: Standing) -> Response:
    return _told(standing, "ok" if standing.phase is Phase.READY else "not_ready")


def live() -> Response:
    return Response(200, [(b"content-type", b"text/plain; charset=utf-8"), NO_STORE], b"ok\n")


def metrics(counted: Metrics) -> Response:
    return Response(200, [(b"content-type", prometheus.CONTENT_TYPE), NO_STORE], counted.text())


def _told(standing: Standing, status: str) -> Response:
    body: dict[str, object] = {"status": status}
    if standing.phase is Phase.READY and standing.rooms is not None:
        body |= {
            "endpoints": len(standing.rooms.catalog.endpoints()),
            "streams": len(standing.rooms.catalog.streams()),
        }
    headers = [(b"content-type", b"application/json; charset=utf-8"), NO_STORE]
    if standing.phase is Phase.READY:
        return Response(200, headers, msgspec.json.encode(body))
    return Response(503, [*headers, (b"retry-after", b"1")], msgspec.json.encode(body))
