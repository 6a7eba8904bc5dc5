"""What is set aside can be asked for, by whoever publishes a query over it."""

from pathlib import Path

from tests.journey.conftest import Start

ENDPOINT = """/*
name = "quarantine"
*/
select event_message, m.stream, m.reason, m.text
from `_quarantine` as t cross join unnest(t.metadata) as m
order by t.timestamp desc limit 100
"""


def test_an_endpoint_may_read_what_was_set_aside(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "endpoints"
    folder.mkdir()
    (folder / "quarantine.sql").write_text(ENDPOINT)
    service = start("--endpoints", str(folder))
    answer = service.send("postgres.logs", [{"id": "a"}, 7])
    assert (answer.json()["accepted"], answer.json()["quarantined"]) == (1, 1)
    reason = "The item is not an object."
    assert service.rows("quarantine") == [
        {"event_message": f"postgres.logs: {reason}", "stream": "postgres.logs", "reason": reason, "text": "7"}
    ]
