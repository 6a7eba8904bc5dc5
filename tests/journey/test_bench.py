"""The benchmark's own promise: that our answers are those of SQL written by hand over the same events."""

from pathlib import Path

import pytest

from bench import against_peers
from bench.questions import QUESTIONS

MAKER = Path(__file__).resolve().parents[3] / "shared" / "bench" / "make_events.py"


def test_every_question_of_the_benchmark_is_answered_as_by_hand(tmp_path: Path) -> None:
    if not MAKER.exists():
        pytest.skip("the maker of benchmark events is not beside this clone")

    report = against_peers.measure(tmp_path, 100_000, with_postgres=False)

    assert set(report.questions) == {question.name for question in QUESTIONS}
    assert "| ratio to DuckDB |" in report.markdown()
