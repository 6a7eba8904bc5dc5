"""The rate of accepted events of a stream over the last minute, or since a start less than a minute ago."""

from cordwood.observe.metrics import ArrivalRateCounter
from cordwood.observe.observation import EventsIngested


class ManualClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_rate_is_that_of_the_last_minute() -> None:
    clock = ManualClock()
    arrivals = ArrivalRateCounter(clock)
    clock.now += 60
    arrivals.count_events(EventsIngested(stream="s", accepted=90))
    arrivals.count_events(EventsIngested(stream="s", accepted=30))
    assert arrivals.events_per_second("s") == 2.0
    assert arrivals.events_per_second("t") == 0.0
    clock.now += 61
    assert arrivals.events_per_second("s") == 0.0


def test_in_its_first_minute_the_rate_is_that_since_the_start() -> None:
    clock = ManualClock()
    arrivals = ArrivalRateCounter(clock)
    clock.now += 10
    arrivals.count_events(EventsIngested(stream="s", accepted=50))
    assert arrivals.events_per_second("s") == 5.0


def test_quarantined_events_are_not_counted() -> None:
    arrivals = ArrivalRateCounter(ManualClock())
    arrivals.count_events(EventsIngested(stream="s", accepted=0, quarantined=5))
    assert arrivals.events_per_second("s") == 0.0
