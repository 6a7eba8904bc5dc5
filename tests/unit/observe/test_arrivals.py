"""How many events a second a stream took: over the last minute, or since the start when that is less."""

from cordwood.observe.metrics import Arrivals
from cordwood.observe.observation import Ingested


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_events_count_for_a_minute() -> None:
    clock = Clock()
    arrivals = Arrivals(clock)
    clock.now += 60
    arrivals.note(Ingested(stream="s", accepted=90))
    arrivals.note(Ingested(stream="s", accepted=30))
    assert arrivals.per_second("s") == 2.0
    assert arrivals.per_second("t") == 0.0
    clock.now += 61
    assert arrivals.per_second("s") == 0.0


def test_a_young_service_divides_by_its_age() -> None:
    clock = Clock()
    arrivals = Arrivals(clock)
    clock.now += 10
    arrivals.note(Ingested(stream="s", accepted=50))
    assert arrivals.per_second("s") == 5.0


def test_what_was_refused_did_not_arrive() -> None:
    arrivals = Arrivals(Clock())
    arrivals.note(Ingested(stream="s", accepted=0, quarantined=5))
    assert arrivals.per_second("s") == 0.0
