"""The benchmark: its answers equal those of handwritten SQL, and its report is computed correctly."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import against_peers, service
from bench.peers.duckdb_handwritten import HANDWRITTEN, PLAIN_TABLE
from bench.peers.postgres import Postgres
from bench.peers.victorialogs import VictoriaLogs, victorialogs
from bench.pictures import questions_picture
from bench.questions import QUESTIONS, LogsQuery
from bench.report import LOAD_RATE, OURS, Report
from bench.timing import Ratio, Times, ratio
from tests import chdb_databases

EVENT_GENERATOR = Path(__file__).resolve().parents[3] / "shared" / "bench" / "make_events.py"


def test_every_question_of_the_benchmark_is_answered_as_by_handwritten_sql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not EVENT_GENERATOR.exists():
        pytest.skip("the maker of benchmark events is not beside this clone")
    for module, name, value in (
        (against_peers, "MEASUREMENT_PASSES", 1),
        (against_peers, "_ROUNDS", 1),
        (against_peers, "_START_COUNT", 2),
        (against_peers, "_AFTER_LOAD_SECONDS", 1.0),
        (against_peers, "_IDLE_SECONDS", 0.2),
        (service, "_COMPACTED_IDLE_SECONDS", 1.0),
    ):
        monkeypatch.setattr(module, name, value)

    report = against_peers.measure(tmp_path, 20_000, with_postgres=False)

    assert set(report.questions) == {question.name for question in QUESTIONS}
    assert all(len(times) == 3 for times in report.questions.values())
    assert all(
        len(times.milliseconds) == len(report.questions[name][OURS].milliseconds)
        for name, times in report.without_peers.items()
    )
    assert report.without_peers.keys() == report.questions.keys()
    assert report.starts.keys() == {OURS, HANDWRITTEN}
    after, limit = (
        report.figures[f"resident {when}, MB"][OURS] for when in ("after the load", "at most, during the load")
    )
    assert 0 < after <= limit
    assert "| to by hand | to plain table | cordwood alone | aim | aim here |" in report.markdown()


def test_clickhouse_answers_every_question_of_the_benchmark_as_by_handwritten_sql(tmp_path: Path) -> None:
    """Measure in a new process, because chDB opens only one folder in a process."""
    if not EVENT_GENERATOR.exists():
        pytest.skip("the maker of benchmark events is not beside this clone")
    if not chdb_databases.IS_INSTALLED:
        pytest.skip(chdb_databases.SKIP_REASON)
    code = (
        "import sys, pathlib; from bench import clickhouse, service; clickhouse.MEASUREMENT_PASSES = 1;"
        "service._COMPACTED_IDLE_SECONDS = 1.0; clickhouse._ROUNDS = 1; clickhouse._IDLE_SECONDS = 0.2;"
        "print(clickhouse.measure(pathlib.Path(sys.argv[1]), 20_000).markdown())"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert output.returncode == 0, output.stderr
    for question in QUESTIONS:
        assert f"| {question.name}, ms |" in output.stdout
    assert "| disk, all parts merged, MB |" in output.stdout


def test_goals_are_scaled_by_the_speed_of_the_peers() -> None:
    """Scale the goals by the median slowdown of the peers: two questions take twice as long, and one three times."""
    first, second, third = QUESTIONS[:3]
    milliseconds = {
        first.name: 2 * first.goal.duckdb_ms,
        second.name: 3 * second.goal.duckdb_ms,
        third.name: 2 * third.goal.duckdb_ms,
    }
    report = Report(
        1,
        {
            name: {OURS: Times([1.0]), HANDWRITTEN: Times([1.0]), PLAIN_TABLE: Times([ms])}
            for name, ms in milliseconds.items()
        },
    )
    report.figures[LOAD_RATE] = {
        OURS: 35_000,
        HANDWRITTEN: 50_000,
        PLAIN_TABLE: 10_000,
        Postgres.name: 18_000,
        "aim": 40_000,
    }

    assert report.scaled_goals()[second.name] == 2 * second.goal.ms
    assert (
        f"| {1 / (3 * second.goal.duckdb_ms):.2f} of {second.goal.ms / second.goal.duckdb_ms:.2f} |"
        in report.markdown()
    )
    assert report.markdown().endswith(
        "| load, events a second | 35,000 | 50,000 | 10,000 | 18,000 | – | – | – | 40,000 | 20,000 |\n"
    )


def test_ratios_do_not_depend_on_changes_of_speed() -> None:
    """Compute a ratio for each round, so that a change of speed between rounds adds no noise."""
    report = Report(1)
    report.add("counts", {OURS: Times([1.5, 1.5]), HANDWRITTEN: Times([1.0, 1.0])})
    report.add("counts", {OURS: Times([4.5, 4.5, 1.5]), HANDWRITTEN: Times([3.0, 3.0, 1.0])})
    report.add("counts", {Postgres.name: Times([9.0])})

    timings = report.questions["counts"]
    assert [len(timings[name].milliseconds) for name in (OURS, HANDWRITTEN, Postgres.name)] == [5, 5, 1]
    assert ratio(timings[OURS], timings[HANDWRITTEN]) == Ratio(1.5, 0.0)


def test_the_picture_has_a_bar_for_each_measurement() -> None:
    """Draw bars on a logarithmic scale from one millisecond, and escape the names."""
    measured = {"status >= 500": {"ours": Times([10.0]), "theirs": Times([100.0])}, "new": {"ours": Times([0.5])}}
    drawn = ET.fromstring(questions_picture(measured, {"status >= 500": 5.0, "new": 1.0}))
    lengths = [float(bar.attrib["width"]) for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(lengths) == 3
    assert lengths[1] == pytest.approx(2 * lengths[0], abs=0.2)
    assert lengths[2] == 0
    assert {"status >= 500", "new", "10.0", "100", "0.5"} <= {text.text for text in drawn.iter() if text.text}


# A fake server with the routes of VictoriaLogs that the benchmark uses. Its answer to each query is all received lines.
FAKE_VICTORIALOGS_PROGRAM = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
options = dict(option.lstrip("-").split("=", 1) for option in sys.argv[1:])
lines = []

class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        lines.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(b"")

    def do_GET(self):
        if self.path.startswith("/select/logsql/query?query=error&start=2026"):
            self.answer(b"".join(lines))
        else:
            self.answer(b"OK")

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

host, port = options["httpListenAddr"].split(":")
HTTPServer((host, int(port)), Handler).serve_forever()
"""


def test_victorialogs_is_loaded_and_queried_over_http(tmp_path: Path) -> None:
    binary, folder = tmp_path / "victoria-logs", tmp_path / "data"
    binary.write_text(f"#!{sys.executable}\n{FAKE_VICTORIALOGS_PROGRAM}")
    binary.chmod(0o700)
    folder.mkdir()
    line = b'{"_time":"2026-11-20T00:00:01.5Z","n":"3","_msg":"error"}\n'
    with victorialogs(binary, folder) as server:
        assert server.load(iter([line, line]), connections=1) > 0
        query = LogsQuery("error", "2026-11-13T00:00:00Z", ("_time", "n"))
        assert server.rows(query) == [(1_795_132_801_500_000, "3")] * 2
        assert server.milliseconds(query) > 0
        assert server.resident_mb > 0


def test_victorialogs_that_is_not_a_program_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(SystemExit, match=r"--victorialogs: .*absent is not a program"),
        victorialogs(tmp_path / "absent", tmp_path),
    ):
        pass


def test_only_a_run_with_victorialogs_has_its_columns() -> None:
    question = QUESTIONS[0].name
    times = {OURS: Times([1.0]), HANDWRITTEN: Times([2.0]), PLAIN_TABLE: Times([2.0])}
    for more_times, is_there in (({}, False), ({VictoriaLogs.name: Times([4.0])}, True)):
        report = Report(1, {question: {**times, **more_times}})
        report.figures[LOAD_RATE] = {OURS: 1, HANDWRITTEN: 1}
        report.starts = {OURS: Times([1.0]), HANDWRITTEN: Times([1.0])}
        lines = report.markdown().splitlines()
        assert ("| to VictoriaLogs |" in lines[0]) is is_there
        assert len({line.count("|") for line in lines}) == 1
        assert (report.ratios().get(f"{question}, to VictoriaLogs") == Ratio(0.25, 0.0)) is is_there
