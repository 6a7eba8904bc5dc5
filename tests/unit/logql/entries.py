"""Entries of two streams.

`app` has the entries of Loki's documentation, one per second. `edge` has events with fields.
"""

import json
from typing import Any, Final

START_US: Final = 1_715_774_400_000_000  # 2024-05-15T12:00:00Z
SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
END_US: Final = START_US + 10 * MINUTE_US
NOW_US: Final = END_US

DOCUMENT: Final = {
    "protocol": "HTTP/2.0",
    "servers": ["129.0.1.1", "10.2.1.3"],
    "request": {
        "time": "6.032",
        "method": "GET",
        "host": "foo.grafana.net",
        "size": "55",
        "headers": {"Accept": "*/*", "User-Agent": "curl/7.68.0"},
    },
    "response": {"status": 401, "size": "228", "latency_seconds": "6.031"},
}
JSON_LINE: Final = json.dumps(DOCUMENT)
LOGFMT_LINE: Final = 'at=info method=GET path=/ host=grafana.net fwd="124.133.124.161" service=8ms status=200 msg="say \\"host=x\\" twice"'


def _push_entry(line: str, labels: dict[str, str], **metadata: object) -> tuple[str, dict[str, object]]:
    return line, {"labels": labels, **metadata}


_MYSQL_LABELS: Final = {"job": "mysql", "host": "db1", "service_name": "mysql"}
_NGINX_LABELS: Final = {"job": "nginx", "region": "eu"}
_APP_ENTRIES: Final = (
    _push_entry(JSON_LINE, _NGINX_LABELS),
    _push_entry(LOGFMT_LINE, _NGINX_LABELS, level="info"),
    _push_entry('level=error duration=1m30s bytes_consumed=25MB method="a b"', _MYSQL_LABELS, level="error"),
    _push_entry("level=warn duration=250ms bytes_consumed=20KB method=200", _MYSQL_LABELS, level="warn"),
    _push_entry('{"duration": "12s", "path": "/home", "request_time": 0.5, "org": "a"} error', _MYSQL_LABELS),
    _push_entry('{"duration": "12s", "path": "/home", "request_time": 0.5, "org": "a", "msg": "error"}', _MYSQL_LABELS),
    _push_entry(
        '{"duration": "2s", "path": "/home", "request_time": 1.5, "org": "a", "msg": "timeout error"}', _MYSQL_LABELS
    ),
    _push_entry('{"duration": "30s", "path": "/login", "request_time": 2, "org": "b", "msg": "error"}', _MYSQL_LABELS),
    _push_entry("plain line\nof two", {}, structured_metadata={"trace_id": "t1", "user.id": "7"}),
    _push_entry('{"mail": "jane@example.com"}', {"mail_to": "jane@example.com"}),
)


def _event(number: int, message: str | None, metadata: dict[str, Any], project: str) -> dict[str, object]:
    return {
        "id": f"e{number}",
        "timestamp": START_US + number * SECOND_US,
        "event_message": message,
        "project": project,
        "metadata": metadata,
    }


APP_EVENTS: Final[list[dict[str, Any]]] = [
    {"id": f"a{number}", "timestamp": START_US + number * SECOND_US, "event_message": line, "metadata": metadata}
    for number, (line, metadata) in enumerate(_APP_ENTRIES)
]
EDGE_EVENTS: Final[list[dict[str, Any]]] = [
    _event(0, "GET /a 200", {"status": 200, "request": {"path": "/a", "host-name": "x"}, "level": "info"}, "p"),
    _event(60, "GET /b 404", {"status": "404", "request": {"path": "/b"}, "level": "WARN"}, "p"),
    _event(61, "GET /b 500", {"status": 500, "request": {"path": "/b"}, "level": "error"}, "q"),
    _event(125, "GET /c 500", {"status": 500, "request": [{"path": "/c"}, {"path": "/d"}]}, "q"),
    _event(300, None, {"user": "jane@example.com", "ip": "10.0.0.1"}, "q"),
]
STREAMS: Final = {"edge": EDGE_EVENTS, "app": APP_EVENTS}
