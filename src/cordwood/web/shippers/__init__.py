"""The protocols of log shippers that were made for other services. Each protocol has a module with its handlers."""

import re
from collections.abc import Callable, Mapping

from cordwood.errors import Fault
from cordwood.web.asgi import Request, Response
from cordwood.web.route import READ_METHODS, WRITE_METHODS, Route
from cordwood.web.shippers import datadog, elastic, journald, loki, splunk

_CHECK_METHODS = ("GET", "HEAD", "PUT", "OPTIONS")
_ALL_METHODS = ("GET", "HEAD", "POST", "PUT", "OPTIONS")

ROUTES_BY_PATH: Mapping[bytes, Route] = {
    b"/api/v2/logs": Route("datadog", WRITE_METHODS, datadog.receive_logs),
    b"/v1/input": Route("datadog", WRITE_METHODS, datadog.receive_logs),
    b"/api/v1/validate": Route("datadog", READ_METHODS, datadog.validate_key),
    b"/services/collector": Route("splunk", WRITE_METHODS, splunk.receive_events),
    b"/services/collector/event": Route("splunk", WRITE_METHODS, splunk.receive_events),
    b"/services/collector/event/1.0": Route("splunk", WRITE_METHODS, splunk.receive_events),
    b"/services/collector/raw": Route("splunk", WRITE_METHODS, splunk.receive_raw_events),
    b"/services/collector/raw/1.0": Route("splunk", WRITE_METHODS, splunk.receive_raw_events),
    b"/services/collector/ack": Route("splunk", WRITE_METHODS, splunk.answer_acknowledgements),
    b"/services/collector/health": Route("splunk", READ_METHODS, splunk.show_health),
    b"/services/collector/health/1.0": Route("splunk", READ_METHODS, splunk.show_health),
    b"/elastic": Route("elastic", READ_METHODS, elastic.show_cluster),
    b"/_bulk": Route("elastic", elastic.BULK_METHODS, elastic.receive_bulk),
    b"/upload": Route("journald", WRITE_METHODS, journald.receive_upload),
    b"/loki/api/v1/push": Route("loki", WRITE_METHODS, loki.receive_push),
    b"/loki/api/v1/status/buildinfo": Route("loki", READ_METHODS, loki.show_version),
}
# Routes with a variable part in their path, which the handler gets as `path_argument`.
PATTERN_ROUTES: tuple[tuple[re.Pattern[bytes], Route], ...] = (
    (re.compile(rb"/elastic/(.+)"), Route("elastic", _ALL_METHODS, elastic.answer_elastic_prefixed_path)),
    (re.compile(rb"/([^/]+)/_bulk"), Route("elastic", elastic.BULK_METHODS, elastic.receive_bulk)),
    (re.compile(rb"/journald/([^/]+)/upload"), Route("journald", WRITE_METHODS, journald.receive_upload)),
    (
        re.compile(rb"/((?:%b)(?:/.+)?)" % "|".join(elastic.ROOT_PATH_SEGMENTS).encode()),
        Route("elastic", _CHECK_METHODS, elastic.answer_client_check),
    ),
)

# For each name of a route: the function that renders errors in the format of the route's protocol.
ERROR_RENDERERS: Mapping[str, Callable[[Fault, Request], Response]] = {
    "datadog": datadog.render_error,
    "elastic": elastic.render_error,
    "journald": journald.render_error,
    "splunk": splunk.render_error,
    "loki": loki.render_error,
}
