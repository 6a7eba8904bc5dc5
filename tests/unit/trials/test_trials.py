"""Endpoint tests: comparison with the expected answer, errors in test pages, `--update`, and JUnit reports."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from cordwood.cli.commands import run_command_line
from cordwood.errors import BadTestPage
from cordwood.settings.settings import ServeSettings, Settings
from cordwood.trials.runner import CasePage, CaseResult, case_report, find_pages, run_pages
from cordwood.trials.test_page import read_cases
from tests.unreadable_folders import make_unreadable

ENDPOINT_TEXT = """/*
name = "newest"
sandbox = true
cache = "60s"
[parameters.least]
type = "int64"
default = 0
*/
with e as (select t.id, t.timestamp, t.event_message, t.metadata from `postgres.logs` as t)
select id, int64(metadata.n) as n, timestamp_diff(current_timestamp(), timestamp, second) as age
from e where int64(metadata.n) >= @least order by id
""".replace("int64(metadata.n)", "cast(metadata.n as int64)")

PAGE_HEAD = """# newest

```clock
2024-05-15T12:00:00Z
```

```events postgres.logs
{"id": "a", "timestamp": "2024-05-15T11:59:50Z", "event_message": "mail to a@example.com", "metadata": {"n": 1}}
{"id": "b", "timestamp": "2024-05-15T11:59:00Z", "event_message": "two", "metadata": {"n": 2}}
```

"""


def case_text(title: str, *fences: str) -> str:
    return "\n".join([f"## {title}\n", *(f"```{fence}\n```\n" for fence in fences)])


def run_trials(folder: Path, *cases: str) -> list[CaseResult]:
    (folder / "newest.sql").write_text(ENDPOINT_TEXT)
    (folder / "newest.test.md").write_text(PAGE_HEAD + "".join(cases))
    settings = Settings(serve=ServeSettings(endpoints=str(folder)))
    return list(run_pages(settings, find_pages(folder)))


def differences(folder: Path, *fences: str) -> list[str]:
    (trial,) = run_trials(folder, case_text("it", *fences))
    return list(trial.differences)


@pytest.mark.parametrize("page", find_pages(None), ids=lambda page: page.path.name)
def test_the_shipped_endpoints_pass_their_tests(page: CasePage) -> None:
    assert not [case_report(trial) for trial in run_pages(Settings(), [page]) if not trial.passed]


def test_every_shipped_endpoint_has_a_page() -> None:
    assert [page.path.name for page in find_pages(None)] == [
        "logs.all.otel.test.md",
        "logs.all.test.md",
        "usage.api-counts.test.md",
    ]


def test_the_query_runs_at_the_time_of_the_page(tmp_path: Path) -> None:
    assert not differences(tmp_path, 'rows\n{"id": "a", "n": 1, "age": 10}\n{"id": "b", "n": 2, "age": 60}')


def test_a_case_may_set_its_own_time_and_events(tmp_path: Path) -> None:
    more_events = 'events postgres.logs\n[{"id": "c", "timestamp": "2024-05-15T11:59:59Z", "metadata": {"n": 3}}]'
    rows = 'rows\n{"id": "c", "n": 3, "age": 2}'
    assert not differences(tmp_path, "clock\n2024-05-15T12:00:01Z", more_events, "call\nleast = 3", rows)


def test_column_order_and_white_space_are_ignored(tmp_path: Path) -> None:
    assert not differences(tmp_path, "call\nleast = 2", 'rows\n{ "age":60,"n":2,"id":"b" }')


def test_row_order_is_compared_unless_unordered(tmp_path: Path) -> None:
    rows = '{"id": "b", "n": 2, "age": 60}\n{"id": "a", "n": 1, "age": 10}'
    assert differences(tmp_path, f"rows\n{rows}")
    assert not differences(tmp_path, f"rows unordered\n{rows}")


def test_a_different_row_is_shown_with_the_expected_one(tmp_path: Path) -> None:
    report = differences(tmp_path, "call\nleast = 2", 'rows\n{"id": "b", "n": 3, "age": 60}')
    assert '- {"age":60,"id":"b","n":3}' in report
    assert '+ {"age":60,"id":"b","n":2}' in report


def test_rows_instead_of_a_refusal_are_a_difference_and_vice_versa(tmp_path: Path) -> None:
    assert differences(tmp_path, "call\nleast = 9", "refused\n400")
    report = differences(tmp_path, 'call\nleast = "many"', "rows")
    assert "+ 400 request.bad-parameter" in report


@pytest.mark.parametrize(
    "head",
    ["422", "query.refused", "422 query.refused", "query.refused at 1:15", "422 query.refused at 1:15"],
)
def test_a_refusal_is_expected_by_status_code_or_position(tmp_path: Path, head: str) -> None:
    assert not differences(tmp_path, "sql\nselect * from secrets", f"refused\n{head}")


@pytest.mark.parametrize("refused", ["400", "query.syntax", "422 query.refused at 1:14", "422\nAnother sentence."])
def test_another_refusal_is_a_difference(tmp_path: Path, refused: str) -> None:
    assert differences(tmp_path, "sql\nselect * from secrets", f"refused\n{refused}")


def test_a_case_may_have_a_sandbox_query_in_sql_or_lql(tmp_path: Path) -> None:
    assert not differences(tmp_path, "sql\nselect count(*) as n from e", 'rows\n{"n": 2}')
    assert not differences(tmp_path, "lql\nf:e m.n:>1 s:id", 'rows\n{"id": "b"}')


def test_a_call_may_switch_redaction_on(tmp_path: Path) -> None:
    sql = "sql\nselect event_message from e where id = 'a'"
    assert not differences(tmp_path, "call redact", sql, 'rows\n{"event_message": "mail to REDACTED"}')
    assert not differences(tmp_path, "call redact=false", sql, 'rows\n{"event_message": "mail to a@example.com"}')


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# no case\n", "no case"),
        ("## a\n```row\n```\n", "is unknown"),
        ("## a\n```rows\n{}\n", "not closed"),
        ("```rows\n```\n## a\n", "belong to a case"),
        ("## a\n```rows\n```\n```refused\n```\n", "has two"),
        ("## a\n```sql\n```\n```lql\n```\n", "not both"),
    ],
)
def test_an_invalid_page_is_refused_with_its_position(text: str, problem: str) -> None:
    with pytest.raises(BadTestPage, match=problem) as refused:
        read_cases("x.test.md", text)
    assert refused.value.span is not None
    assert refused.value.span.file == "x.test.md"


@pytest.mark.parametrize(
    ("fence", "problem"),
    [
        ("clock\nnoon", "is not a time"),
        ("events\n{}", "one stream"),
        ("events postgres.logs\n{", "not JSON"),
        ("events nobody\n{}", "no stream"),
        ("events postgres.logs\n{}\n5", "does not take"),
        ("events postgres.logs\n5", "No line can be read"),
        ("call\nleast =", "not TOML"),
        ("call\nleast = [1]", "one value"),
        ("call redacted", "is not an option of call"),
        ("rows\nid: a", "not JSON"),
    ],
)
def test_an_invalid_case_is_refused(tmp_path: Path, fence: str, problem: str) -> None:
    with pytest.raises(BadTestPage, match=problem):
        run_trials(tmp_path, case_text("it", fence))


def test_a_page_without_its_endpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.test.md").write_text(PAGE_HEAD + case_text("it"))
    with pytest.raises(BadTestPage, match="no endpoint in"):
        run_trials(tmp_path, case_text("it"))


def test_the_command_exits_with_1_if_a_case_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_trials(tmp_path, case_text("it", "call\nleast = 2", "rows"), case_text("passes", "call\nleast = 9", "rows"))
    assert run_command_line(["test", str(tmp_path)]) == 1
    report = capsys.readouterr().out
    assert "FAILED" in report
    assert "1 passed, 1 failed" in report
    assert run_command_line(["test"]) == 0


def test_a_folder_without_pages_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["test", str(tmp_path)]) == 1
    assert "There are no tests" in capsys.readouterr().err
    assert run_command_line(["test", str(tmp_path / "gone")]) == 1


def test_a_folder_of_pages_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "a.test.md").write_text("")
    make_unreadable(monkeypatch, tmp_path / "closed")
    with pytest.raises(BadTestPage, match="closed cannot be read: Permission denied"):
        find_pages(tmp_path)


def test_update_rewrites_failed_expectations_only(tmp_path: Path) -> None:
    wrong = case_text("wrong", "call\nleast = 2", "rows unordered")
    passed = case_text("none", "call\nleast = 9")
    refused = case_text("refused", "sql\nselect * from secrets", "rows")
    run_trials(tmp_path, wrong, passed, refused, case_text("right", "call\nleast = 9", "rows"))
    assert run_command_line(["test", str(tmp_path), "--update"]) == 0
    page = (tmp_path / "newest.test.md").read_text()
    assert page.startswith(PAGE_HEAD)
    assert '```rows unordered\n{"id":"b","n":2,"age":60}\n```\n' in page
    assert "```refused\n422 query.refused at 1:15\n```\n" in page
    assert run_command_line(["test", str(tmp_path)]) == 0
    assert run_command_line(["test", str(tmp_path), "--update"]) == 0
    assert (tmp_path / "newest.test.md").read_text() == page


@pytest.mark.parametrize("without_expectation", [False, True])
def test_update_keeps_the_line_ends_of_a_page(tmp_path: Path, *, without_expectation: bool) -> None:
    """Update a page with LF, and the same page with CR LF; then compare the two."""
    fences = ("call\nleast = 2",) if without_expectation else ("call\nleast = 2", "rows unordered")
    run_trials(tmp_path, case_text("first", *fences), case_text("second", *fences))
    page = tmp_path / "newest.test.md"
    original = page.read_text()
    pages = []
    for line_end in ("\n", "\r\n"):
        page.write_text(original, newline=line_end)
        assert run_command_line(["test", str(tmp_path), "--update"]) == 0
        pages.append(page.read_bytes())
    assert pages[0] != original.encode()
    assert pages[1] == pages[0].replace(b"\n", b"\r\n")


def test_the_junit_report_has_all_cases_and_the_differences(tmp_path: Path) -> None:
    run_trials(tmp_path, case_text("fails", "call\nleast = 2", "rows"), case_text("passes", "call\nleast = 9", "rows"))
    report = tmp_path / "report.xml"
    run_command_line(["test", str(tmp_path), "--junit", str(report)])
    (suite,) = ET.parse(report).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.get("name") for case in suite] == ["fails", "passes"]
    assert '"id":"b"' in (suite[0][0].text or "")
    assert not list(suite[1])


def test_no_temporary_files_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run_command_line(["test"]) == 0
    assert not list(tmp_path.iterdir())
