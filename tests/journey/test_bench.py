"""The benchmark's own promise: that our answers are those of SQL written by hand over the same events."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import against_peers
from bench.pictures import questions_picture
from bench.questions import QUESTIONS
from bench.timing import Times

MAKER = Path(__file__).resolve().parents[3] / "shared" / "bench" / "make_events.py"


def test_every_question_of_the_benchmark_is_answered_as_by_hand(tmp_path: Path) -> None:
    if not MAKER.exists():
        pytest.skip("the maker of benchmark events is not beside this clone")

    report = against_peers.measure(tmp_path, 100_000, with_postgres=False)

    assert set(report.questions) == {question.name for question in QUESTIONS}
    assert "| ratio to DuckDB |" in report.markdown()


def test_the_picture_has_a_bar_for_each_who_answered() -> None:
    """Ten times as long is as far again from a millisecond, whatever the names hold."""
    asked = {"status >= 500": {"ours": Times([10.0]), "theirs": Times([100.0])}, "new": {"ours": Times([0.5])}}
    drawn = ET.fromstring(questions_picture(asked, {"status >= 500": 5.0, "new": 1.0}))
    lengths = [float(bar.attrib["width"]) for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(lengths) == 3
    assert lengths[1] == pytest.approx(2 * lengths[0], abs=0.2)
    assert lengths[2] == 0
    assert {"status >= 500", "new", "10.0", "100", "0.5"} <= {text.text for text in drawn.iter() if text.text}
