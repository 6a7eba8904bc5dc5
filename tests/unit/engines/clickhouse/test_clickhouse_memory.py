"""Freed memory is returned to the operating system during a load, and when the engine is idle."""

import pytest

from cordwood.engines.clickhouse import storage
from cordwood.engines.clickhouse.session import Session
from cordwood.engines.clickhouse.storage import MemoryReclaimer


class TrimRecorder:
    """A memory reclaimer with a manual clock, which counts how often the heap was trimmed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, session: Session) -> None:
        self.now = 0.0
        self.trims = 0
        monkeypatch.setattr(storage, "trim_heap", self._trim)
        self.reclaimer = MemoryReclaimer(session, lambda: self.now)

    def _trim(self) -> None:
        self.trims += 1


@pytest.fixture
def recorder(address: str, monkeypatch: pytest.MonkeyPatch) -> TrimRecorder:
    return TrimRecorder(monkeypatch, Session(address))


def test_an_idle_engine_returns_memory_once_after_each_activity(recorder: TrimRecorder) -> None:
    recorder.reclaimer.reclaim_when_idle()
    assert recorder.trims == 0, "nothing was used"
    for number in (1, 2):
        recorder.reclaimer.record_activity()
        recorder.now += 1.0
        recorder.reclaimer.reclaim_when_idle()
        assert recorder.trims == number - 1, "a second ago is not idle"
        recorder.now += 10.0
        for _ in range(3):
            recorder.reclaimer.reclaim_when_idle()
        assert recorder.trims == number


def test_a_load_returns_memory_after_every_64_mib(recorder: TrimRecorder) -> None:
    for _ in range(9):
        recorder.reclaimer.record_insert(16 << 20)
    assert recorder.trims == 2
