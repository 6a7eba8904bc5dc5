"""The benchmark: its answers equal those of handwritten SQL, and its report is computed correctly."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import against_peers
from bench.peers.duckdb_by_hand import BY_HAND, PLAIN
from bench.peers.postgres import Postgres
from bench.pictures import questions_picture
from bench.questions import QUESTIONS
from bench.report import LOAD, OURS, Report
from bench.timing import Ratio, Times, ratio

EVENT_GENERATOR = Path(__file__).resolve().parents[3] / "shared" / "bench" / "make_events.py"


def test_every_question_of_the_benchmark_is_answered_as_by_handwritten_sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not EVENT_GENERATOR.exists():
        pytest.skip("the maker of benchmark events is not beside this clone")
    monkeypatch.setattr(against_peers, "VISITS", 1)

    report = against_peers.measure(tmp_path, 100_000, with_postgres=False)

    assert set(report.questions) == {question.name for question in QUESTIONS}
    assert all(len(times) == 3 for times in report.questions.values())
    assert all(
        len(times.milliseconds) == len(report.questions[name][OURS].milliseconds)
        for name, times in report.alone.items()
    )
    assert report.alone.keys() == report.questions.keys()
    assert report.starts.keys() == {OURS, BY_HAND}
    after, most = (
        report.figures[f"resident {when}, MB"][OURS] for when in ("after the load", "at most, during the load")
    )
    assert 0 < after < most
    assert "| to by hand | to plain table | cordwood alone | aim | aim here |" in report.markdown()


def test_goals_are_scaled_by_the_speed_of_the_peers() -> None:
    """Scale goals by the median slowdown of the peers: two questions take twice as long, one three times."""
    one, two, three = QUESTIONS[:3]
    took = {one.name: 2 * one.goal.duckdb_ms, two.name: 3 * two.goal.duckdb_ms, three.name: 2 * three.goal.duckdb_ms}
    report = Report(
        1, {name: {OURS: Times([1.0]), BY_HAND: Times([1.0]), PLAIN: Times([ms])} for name, ms in took.items()}
    )
    report.figures[LOAD] = {OURS: 35_000, BY_HAND: 50_000, PLAIN: 10_000, Postgres.name: 18_000, "aim": 40_000}

    assert report.scaled_goals()[two.name] == 2 * two.goal.ms
    assert f"| {1 / (3 * two.goal.duckdb_ms):.2f} of {two.goal.ms / two.goal.duckdb_ms:.2f} |" in report.markdown()
    assert report.markdown().endswith(
        "| load, events a second | 35,000 | 50,000 | 10,000 | 18,000 | – | – | – | 40,000 | 20,000 |\n"
    )


def test_ratios_do_not_depend_on_changes_of_speed() -> None:
    """Compute ratios per round, so that a change of speed between rounds adds no noise."""
    report = Report(1)
    report.add("counts", {OURS: Times([1.5, 1.5]), BY_HAND: Times([1.0, 1.0])})
    report.add("counts", {OURS: Times([4.5, 4.5, 1.5]), BY_HAND: Times([3.0, 3.0, 1.0])})
    report.add("counts", {Postgres.name: Times([9.0])})

    timings = report.questions["counts"]
    assert [len(timings[name].milliseconds) for name in (OURS, BY_HAND, Postgres.name)] == [5, 5, 1]
    assert ratio(timings[OURS], timings[BY_HAND]) == Ratio(1.5, 0.0)


def test_the_picture_has_a_bar_for_each_measurement() -> None:
    """Draw bars on a logarithmic scale from one millisecond, and escape the names."""
    measured = {"status >= 500": {"ours": Times([10.0]), "theirs": Times([100.0])}, "new": {"ours": Times([0.5])}}
    drawn = ET.fromstring(questions_picture(measured, {"status >= 500": 5.0, "new": 1.0}))
    lengths = [float(bar.attrib["width"]) for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(lengths) == 3
    assert lengths[1] == pytest.approx(2 * lengths[0], abs=0.2)
    assert lengths[2] == 0
    assert {"status >= 500", "new", "10.0", "100", "0.5"} <= {text.text for text in drawn.iter() if text.text}
