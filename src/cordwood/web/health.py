"""Health, readiness, liveness and metrics routes: cheap, and without a key."""

from cordwood.observe import metrics as prometheus
from cordwood.observe.metrics import Metrics
from cordwood.web.asgi import Response
from cordwood.web.standing import Phase, Standing
from cordwood.web.unkept import NO_STORE, unkept_json

RETRY = (b"retry-after", b"1")
STATUSES = {Phase.STARTING: "coming_up", Phase.READY: "ok", Phase.DRAINING: "draining"}


def health(standing: Standing) -> Response:
    """Report the health like Logflare: 200 once streams and endpoints are loaded."""
    return _told(standing, STATUSES[standing.phase])


def ready(standing: Standing) -> Response:
    return _told(standing, "ok" if standing.phase is Phase.READY else "not_ready")


def live() -> Response:
    return Response(200, [(b"content-type", b"text/plain; charset=utf-8"), NO_STORE], b"ok\n")


def metrics(counted: Metrics) -> Response:
    return Response(200, [(b"content-type", prometheus.CONTENT_TYPE), NO_STORE], counted.text())


def _told(standing: Standing, status: str) -> Response:
    """Report 200 while queries are answered, with the parts that are degraded."""
    if standing.phase is not Phase.READY or standing.rooms is None:
        return unkept_json({"status": status}, 503, RETRY)
    reasons = standing.unready_reasons()
    if reasons:
        return unkept_json({"status": "not_ready", "reasons": reasons}, 503, RETRY)
    body: dict[str, object] = {
        "status": status,
        "endpoints": len(standing.rooms.catalog.endpoints()),
        "streams": len(standing.rooms.catalog.streams()),
    }
    degraded = standing.degraded_reasons()
    return unkept_json(body | {"degraded": degraded} if degraded else body)
