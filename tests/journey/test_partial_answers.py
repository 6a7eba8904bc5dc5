"""A repeated count over HTTP is answered from partial answers, with the right numbers even after kills."""

import random
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from tests.journey.conftest import Service, Start
from tests.journey.modified_service import SMALL_BLOCKS
from tests.waiting import until

EDGE_STREAM = "cloudflare.logs.prod"
ENDPOINT = f"""/*
name = "counts"

[parameters.project]
*/
select format_timestamp('%Y-%m-%d', t.timestamp) as day, count(*) as requests, countif(m.status = '500') as failed from `{EDGE_STREAM}` as t
cross join unnest(t.metadata) as m
where t.timestamp >= timestamp_sub(current_timestamp(), interval 30 day) and regexp_contains(t.project, @project)
group by day order by day
"""
DAY_SECONDS = 86_400


class Sender:
    """A sender of events of the last five days. It counts its events by project, day and status."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._sent = 0
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def send(self, service: Service, count: int) -> None:
        events = []
        for _ in range(count):
            self._sent += 1
            moment = datetime.fromtimestamp(time.time() - self._random.uniform(0, 5 * DAY_SECONDS), UTC)
            project, status = f"p{self._random.randrange(4)}", self._random.choice(["200", "500"])
            self.counts[project, moment.strftime("%Y-%m-%d"), status] += 1
            events.append(
                {
                    "id": f"e{self._sent}",
                    "timestamp": moment.isoformat(),
                    "project": project,
                    "metadata": {"status": status},
                }
            )
        answer = service.send(EDGE_STREAM, events)
        assert answer.status_code == 200, answer.text

    def expected(self, project: str) -> list[tuple[str, int, int]]:
        days = sorted({day for counted_project, day, _ in self.counts if counted_project == project})
        statuses = [[self.counts[project, day, status] for status in ("200", "500")] for day in days]
        return [
            (day, successes + failures, failures) for day, (successes, failures) in zip(days, statuses, strict=True)
        ]


def query_counts(service: Service, project: str) -> list[tuple[str, int, int]]:
    """Return the endpoint's rows, without using the cache of answers."""
    answer = service.client.get(
        "/api/endpoints/query/counts", params={"project": project}, headers={"Cache-Control": "no-cache"}
    )
    assert answer.status_code == 200, answer.text
    return [(row["day"], row["requests"], row["failed"]) for row in answer.json()["result"]]


def outcome_count(service: Service, outcome: str) -> int:
    line = f'cordwood_partial_answers_total{{outcome="{outcome}"}} '
    metrics = service.client.get("/metrics").text.splitlines()
    return next((int(metric.rpartition(" ")[2]) for metric in metrics if metric.startswith(line)), 0)


def test_repeated_counts_are_right_while_blocks_are_compacted_and_after_kills(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    folder.mkdir()
    (folder / "counts.sql").write_text(ENDPOINT)
    sender = Sender(seed=1)
    service = start("--endpoints", str(folder), program=SMALL_BLOCKS)
    for _ in range(6):
        sender.send(service, 2000)

    def is_reused() -> bool:
        assert query_counts(service, "p1") == sender.expected("p1")
        return outcome_count(service, "reused") > 0

    until(is_reused, 120)
    # Now partial answers are written. More events are stored and compacted while the question is repeated.
    for _ in range(4):
        sender.send(service, 2000)
        for project in ("p1", "p2"):
            assert query_counts(service, project) == sender.expected(project)
    service.kill()

    service = start("--endpoints", str(folder), program=SMALL_BLOCKS)
    for project in ("p1", "p2", "p3"):
        assert query_counts(service, project) == sender.expected(project)
    until(is_reused, 120)
    assert outcome_count(service, "failed") == 0
    assert service.stop() == 0
