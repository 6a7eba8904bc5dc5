"""Every engine hands out events as they are stored, for an export to be taken back."""

from uuid import UUID

from cordwood.engines.engine import STORED, Engine
from cordwood.model.caller import Caller
from cordwood.model.endpoint import Endpoint
from cordwood.model.event import Event
from cordwood.model.rows import Row
from cordwood.serve.ask import Ask
from cordwood.serve.export import Range, export_job
from cordwood.web.negotiate import FORMATS
from tests.contract.engine_asking import NOBODY, NOW_US, batch

ASK = Ask(Endpoint("test", UUID(int=1), "", "1"), Caller("k", frozenset()), FORMATS["parquet"])


def stored(engine: Engine, wanted: Range) -> list[Row]:
    job = export_job(ASK, wanted, engine, NOW_US)
    rows = engine.answer(job.question, job.limits, NOBODY)
    assert rows.columns == STORED
    return sorted((row for part in rows.batches for row in part), key=lambda row: str(row[0]))


def test_every_field_of_an_event_is_as_it_was_stored(engine: Engine) -> None:
    whole = Event("a", NOW_US - 1, "m", "p", '{"x":[1,{"y":null}],"z":{}}', '{"app":"web"}', timestamp_inferred=True)
    engine.append([batch(whole, Event("b", NOW_US))])
    assert stored(engine, Range("s", 0, NOW_US + 1)) == [
        ("a", NOW_US - 1, "m", "p", '{"x":[1,{"y":null}],"z":{}}', '{"app":"web"}', NOW_US, True),
        ("b", NOW_US, None, None, None, None, NOW_US, False),
    ]


def test_a_range_holds_its_start_and_not_its_end_and_one_project_where_one_is_meant(engine: Engine) -> None:
    engine.append([batch(*(Event(f"e{n}", NOW_US + n, project="p" if n % 2 else None) for n in range(4)))])
    assert [row[0] for row in stored(engine, Range("s", NOW_US + 1, NOW_US + 3))] == ["e1", "e2"]
    assert [row[0] for row in stored(engine, Range("s", 0, NOW_US + 9, project="p"))] == ["e1", "e3"]
