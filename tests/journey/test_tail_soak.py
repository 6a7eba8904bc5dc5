"""Soak test of many followers under load. Each follower gets each row once, within limits of memory and latency."""

import os

from bench.followers import FILTER_COUNT, KINDS, Load, measure
from tests.journey.conftest import PRIVATE, Start
from tests.machine_speed import scaled

IS_FULL = os.environ.get("TORTURE") == "full"
FOLLOWERS, RATE, SECONDS, RECONNECTS = (1000, 5000, 60, 60) if IS_FULL else (60, 500, 6, 12)
# Limits of the delay. The maximum includes a reconnection. The short form permits more, because other tests run at the
# same time.
MAX_DELAY_SECONDS = 0.25 if IS_FULL else 5.0


def test_followers_of_ten_filters_get_each_row_once_and_quickly(start: Start) -> None:
    env = {
        "CORDWOOD_LIMITS_KEY_FOLLOWERS": "1100",
        "CORDWOOD_LIMITS_FOLLOWERS": "1100",
        "CORDWOOD_LIMITS_MEMORY": "512MB",
    }
    service = start(env=env)
    outcome = measure(Load(service.url, PRIVATE, FOLLOWERS, RATE, SECONDS, RECONNECTS), service.process.pid)
    print(outcome)
    assert (outcome.missing, outcome.duplicates, outcome.gaps) == (0, 0, 0), outcome
    assert outcome.rows == outcome.events // KINDS * FOLLOWERS
    assert outcome.delay(0.99) < scaled(MAX_DELAY_SECONDS), outcome
    assert outcome.peak_bytes < 512 * 2**20, outcome
    # The followers share ten distinct queries.
    assert FOLLOWERS > FILTER_COUNT
