"""`cordwood compile --lql`: the SQL that an LQL text means, for people who want to learn it."""

import pytest

from cordwood.cli.commands import run


def test_lql_is_shown_as_the_sql_it_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "--endpoint", "logs.all", "--lql", "f:auth_logs m.level:error limit:5"]) == 0
    assert capsys.readouterr().out.split() == (
        "SELECT id, timestamp, event_message FROM auth_logs LEFT JOIN UNNEST(metadata) AS m ON TRUE"
        " WHERE m.level = 'error' ORDER BY timestamp DESC LIMIT 5"
    ).split()  # fmt: skip


def test_what_cannot_be_read_is_shown_at_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "--endpoint", "logs.all", "--lql", "error"]) == 1
    assert "The endpoint has several sub-queries: edge_logs, postgres_logs" in capsys.readouterr().err


def test_lql_needs_an_endpoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "--lql", "error"]) == 2
    assert "--endpoint" in capsys.readouterr().err
