"""`cordwood compile`: compiled SQL, or errors with a position, as text and as JSON lines."""

import io
import json

import pytest

from cordwood.cli.commands import run_command_line


def set_input(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_the_command_prints_sql_parameters_and_sub_queries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_input(monkeypatch, "select id from edge_logs")
    assert run_command_line(["compile", "--endpoint", "logs.all", "-"]) == 0
    printed = capsys.readouterr().out
    assert "-- parameters: project STRING" in printed
    assert "-- sub-queries: edge_logs" in printed
    assert "SELECT" in printed


def test_without_sql_the_saved_query_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["compile", "--endpoint", "usage.api-counts"]) == 0
    assert "total_rest_requests" in capsys.readouterr().out


def test_an_error_has_a_caret_below_its_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_input(monkeypatch, "select 1,\n  getenv('x')")
    assert run_command_line(["compile", "-"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("query.refused:")
    assert lines[1:3] == ["2 |   getenv('x')", "      ^"]


def test_each_input_line_has_an_output_line_or_error_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_input(monkeypatch, '{"sql": "select 1 as one"}\n{"sql": "select\\n  nope"}\nnot json\n')
    assert run_command_line(["compile", "--jsonl"]) == 0
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert "SELECT" in first["sql"]
    assert second["error"]["code"] == "query.unknown-name"
    assert (second["error"]["line"], second["error"]["column"]) == (2, 3)
    assert third["error"]["code"] == "request.bad-body"


def test_the_prelude_of_duckdb_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["compile", "--prelude", "--engine", "duckdb"]) == 0
    assert capsys.readouterr().out == ""


def test_the_error_of_an_unknown_endpoint_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["compile", "--endpoint", "nope"]) == 1
    assert "usage.api-counts" in capsys.readouterr().err


def test_input_that_is_not_utf_8_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"select '\xff'")))
    assert run_command_line(["compile", "-"]) == 1
    assert "Standard input is not text in UTF-8." in capsys.readouterr().err
