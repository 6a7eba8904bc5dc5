"""An endpoint with an alert that fires for each database with errors, and a target that is unreachable."""

from collections.abc import Sequence
from typing import Any, Final

from tests.journey.conftest import Service
from tests.waiting import until

# A target on a port where no program listens, so that each delivery fails immediately.
UNREACHABLE_TARGET: Final = {
    "CORDWOOD_ALERTS_TARGETS": "nowhere = webhook+http://127.0.0.1:9/hook",
    "CORDWOOD_ALERTS_REFUSE_ADDRESSES": "link-local",
}
ERRORS_NOW: Final[dict[str, Any]] = {
    "name": "errors.now",
    "query": """select database, count(*) as n
from (select m.database from `postgres.logs` as t cross join unnest(t.metadata) as m where t.timestamp >= @since)
group by 1""",
    "parameters": [{"name": "since", "type": "timestamp", "required": True}],
    "alert": {
        "condition": "n > 1",
        "every": "1s",
        "group_by": ["database"],
        "severity": "critical",
        "text": "{n} errors in {database}",
        "send_to": ["nowhere"],
        "parameters": {"since": "now-10m"},
    },
}


def create_endpoint(service: Service, fields: object) -> None:
    answer = service.client.post("/api/endpoints", json=fields)
    assert answer.status_code == 201, answer.text


def fire_alert(service: Service, databases: Sequence[str]) -> None:
    """Send two errors for each database, and wait until the alert fires for all databases."""
    events = [{"event_message": "e", "metadata": {"database": name}} for name in databases for _ in range(2)]
    assert service.send("postgres.logs", events).json()["accepted"] == len(events)
    until(lambda: alert_named(service, "errors.now")["firing"] == len(databases))


def alert_named(service: Service, name: str) -> dict[str, Any]:
    alerts = service.client.get("/api/alerts").json()["alerts"]
    return next(alert for alert in alerts if alert["name"] == name)
