"""Edge events of about 1.4 KB, as many as asked for, spread evenly over the last week."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

STREAM = "cloudflare.logs.prod"
PROJECTS = [f"project-{number:02}" for number in range(20)]
_PATHS = ["/rest/v1/todos", "/rest/v1/users", "/auth/v1/token", "/storage/v1/object/a.png", "/realtime/v1/websocket"]
_STATUSES = [200] * 90 + [404] * 6 + [500, 502, 503, 504]
_FILLER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36 " * 6


def batches(count: int, size: int = 5000) -> Iterator[bytes]:
    """JSON arrays of events, oldest first."""
    dice = random.Random(7)
    start = datetime.now(UTC) - timedelta(days=7)
    step = timedelta(days=7) / count
    for first in range(0, count, size):
        numbers = range(first, min(first + size, count))
        yield msgspec.json.encode([_event(number, start + number * step, dice) for number in numbers])


def _event(number: int, at: datetime, dice: random.Random) -> dict[str, object]:
    project, path, status = dice.choice(PROJECTS), dice.choice(_PATHS), dice.choice(_STATUSES)
    return {
        "id": f"bench-{number}",
        "timestamp": at.isoformat(),
        "event_message": f"GET | {status} | 203.0.113.{dice.randint(1, 254)} | https://{project}.example.com{path}",
        "project": project,
        "metadata": {
            "request": {
                "method": "GET",
                "path": path,
                "host": f"{project}.example.com",
                "url": f"https://{project}.example.com{path}",
                "headers": {"user_agent": _FILLER, "x_request_id": f"{dice.getrandbits(128):032x}"},
                "cf": {"country": dice.choice(["DE", "US", "SG", "BR", "JP"]), "colo": "FRA"},
            },
            "response": {"status_code": status, "origin_time": round(dice.expovariate(1 / 80), 1)},
        },
    }
