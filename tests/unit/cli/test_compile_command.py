"""`cordwood compile`: SQL or the place of what is wrong, for people and by the line."""

import io
import json

import pytest

from cordwood.cli.commands import run


def given(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_it_prints_the_sql_its_parameters_and_sub_queries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, "select id from edge_logs")
    assert run(["compile", "--endpoint", "logs.all", "-"]) == 0
    printed = capsys.readouterr().out
    assert "-- parameters: project STRING" in printed
    assert "-- sub-queries: edge_logs" in printed
    assert "SELECT" in printed


def test_without_sql_the_saved_query_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "--endpoint", "usage.api-counts"]) == 0
    assert "total_rest_requests" in capsys.readouterr().out


def test_a_caret_stands_under_the_place(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    given(monkeypatch, "select 1,\n  getenv('x')")
    assert run(["compile", "-"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("query.refused:")
    assert lines[1:3] == ["2 |   getenv('x')", "      ^"]


def test_lines_are_answered_in_order_and_bad_ones_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, '{"sql": "select 1 as one"}\n{"sql": "select\\n  nope"}\nnot json\n')
    assert run(["compile", "--jsonl"]) == 0
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert "SELECT" in first["sql"]
    assert second["error"]["code"] == "query.unknown-name"
    assert (second["error"]["line"], second["error"]["column"]) == (2, 3)
    assert third["error"]["code"] == "request.bad-body"


def test_no_prelude_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "--prelude", "--engine", "duckdb"]) == 0
    assert capsys.readouterr().out == ""


def test_an_unknown_endpoint_is_told_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "--endpoint", "nope"]) == 1
    assert "usage.api-counts" in capsys.readouterr().err
