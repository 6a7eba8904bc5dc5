"""Whether the service lives, and whether it takes requests: cheap, and without a key."""

from cordwood.observe import metrics as prometheus
from cordwood.observe.metrics import Metrics
from cordwood.web.asgi import Response
from cordwood.web.standing import Phase, Standing
from cordwood.web.unkept import NO_STORE, unkept_json

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
    return unkept_json(body) if standing.phase is Phase.READY else unkept_json(body, 503, (b"retry-after", b"1"))
