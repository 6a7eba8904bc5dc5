"""Migration of Logflare's tables from PostgreSQL, complete and without duplicates despite interruptions."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.journey.conftest import PRIVATE, Service, Start
from tests.journey.test_cli_clients import Result, cordwood
from tests.postgresql import PASSWORD, run_postgresql

EDGE_SOURCE, AUTH_SOURCE, LARGE_SOURCE, UNNAMED_SOURCE = (
    f"{letter * 8}-0000-4000-8000-00000000000{letter}" for letter in "abcd"
)
MANY_EVENTS = 30_000
CREATE_SOURCES = f"""
create schema _analytics;
create table _analytics.sources (id bigserial primary key, name varchar(255), token uuid, favorite bool);
insert into _analytics.sources (name, token) values
  ('cloudflare.logs.prod', '{EDGE_SOURCE}'), ('gotrue.logs.prod', '{AUTH_SOURCE}'), ('postgres.logs', '{LARGE_SOURCE}');
create table _analytics.log_events_not_ours (id text);
"""
CREATE_EVENTS_TABLE = """
create table _analytics."{}" (
  id varchar(255) primary key, body jsonb, event_message text, timestamp timestamp without time zone
)
"""
INSERT_ROW = 'insert into _analytics."{}" (id, timestamp, event_message, body) values (%s, %s, %s, %s)'
INSERT_MANY_ROWS = """
insert into _analytics."{}" (id, timestamp, event_message, body) select 'm' || n, timestamp '2024-01-01' + n * interval '1 second', 'line ' || n,
  jsonb_build_object('id', 'm' || n, 'project', 'moved', 'event_message', 'line ' || n, 'metadata',
    jsonb_build_object('host', 'db', 'parsed', jsonb_build_object('error_severity', 'LOG', 'process_id', n)))
from generate_series(1, {}) as n
"""


def table_of(source: str) -> str:
    return "log_events_" + source.replace("-", "_")


def event_body(event_id: str, **more_fields: object) -> str:
    return json.dumps({"id": event_id, "project": "moved", **more_fields})


EDGE_EVENT = event_body(
    "e1",
    event_message="GET | 200",
    timestamp=1704067200000001,
    metadata={"request": {"host": "moved.example.com", "path": "/rest/v1/todos"}, "response": {"status_code": 200}},
)


@pytest.fixture(scope="module")
def logflare_database() -> Iterator[str]:
    """Yield the address of a PostgreSQL database with Logflare's tables."""
    with run_postgresql() as address:
        with psycopg.connect(address, password=PASSWORD, autocommit=True) as connection:
            connection.execute(CREATE_SOURCES)
            for source in (EDGE_SOURCE, AUTH_SOURCE, LARGE_SOURCE):
                connection.execute(CREATE_EVENTS_TABLE.format(table_of(source)))
            edge, auth = INSERT_ROW.format(table_of(EDGE_SOURCE)), INSERT_ROW.format(table_of(AUTH_SOURCE))
            connection.execute(edge, ("e1", "2024-01-01 00:00:00.000001", "GET | 200", EDGE_EVENT))
            connection.execute(auth, ("a1", None, None, event_body("a1", metadata={"level": "info"})))
            connection.execute(auth, ("a2", "2024-01-02 03:04:05", "bare", None))
            large = '{"project": "moved", "metadata": {"large": 123456789012345678901234567890, "text": "a\\nb\u00e9"}}'
            connection.execute(auth, ("a3", "2024-01-02 03:04:06", "large", large))
            connection.execute(INSERT_MANY_ROWS.format(table_of(LARGE_SOURCE), MANY_EVENTS))
        yield address


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def arguments(logflare_database: str, state: Path, service: Service, *more_arguments: str) -> list[str]:
    where = ("--url", service.url, "--key", PRIVATE, "--state", str(state))
    return ["migrate", "logflare", "--from", logflare_database, *where, *more_arguments]


def migrate(logflare_database: str, state: Path, service: Service, *more_arguments: str) -> Result:
    return cordwood(*arguments(logflare_database, state, service, *more_arguments), PGPASSWORD=PASSWORD)


def rows(service: Service, sql: str) -> list[dict[str, object]]:
    return service.rows("logs.all", project="moved", sql=sql)


COUNT_QUERY = "select count(*) as n, count(distinct id) as ids, min(timestamp) as first, max(timestamp) as last from postgres_logs"
COMPLETE_COUNTS = {"n": MANY_EVENTS, "ids": MANY_EVENTS, "first": 1704067201000000, "last": 1704097200000000}


def test_events_keep_their_ids_times_and_fields(start: Start, logflare_database: str, state: Path) -> None:
    service = start()
    result = migrate(logflare_database, state, service, "--only", "cloudflare.logs.prod", "--only", AUTH_SOURCE)
    assert (result.returncode, result.stdout) == (0, "4 events stored, 0 duplicates, 0 quarantined\n"), result.stderr
    assert "cloudflare.logs.prod: 1 events to copy" in result.stderr
    sql = "select id, timestamp, event_message, r.url from edge_logs cross join unnest(metadata) as m"
    assert rows(service, f"{sql} cross join unnest(m.request) as r") == [
        {
            "id": "e1",
            "timestamp": 1704067200000001,
            "event_message": "GET | 200",
            "url": "https://moved.example.com/rest/v1/todos",
        }
    ]
    without_time, large = rows(service, "select id, timestamp, metadata from auth_logs order by id")
    assert (without_time["id"], without_time["metadata"]) == ("a1", [{"level": "info"}])
    assert isinstance(without_time["timestamp"], int)
    assert without_time["timestamp"] > 1.7e15
    expected_fields = {"large": "123456789012345678901234567890", "text": "a\nbé"}
    assert (large["id"], large["timestamp"], large["metadata"]) == ("a3", 1704164646000000, [expected_fields])


def test_a_repeated_migration_copies_only_new_events(start: Start, logflare_database: str, state: Path) -> None:
    service = start()
    assert migrate(logflare_database, state, service, "--only", AUTH_SOURCE).stdout.startswith("3 events stored")
    assert migrate(logflare_database, state, service, "--only", AUTH_SOURCE).stdout.startswith(
        "0 events stored, 0 duplicates"
    )
    with psycopg.connect(logflare_database, password=PASSWORD, autocommit=True) as connection:
        connection.execute(INSERT_ROW.format(table_of(AUTH_SOURCE)), ("a9", "2024-02-01", "later", None))
        assert migrate(logflare_database, state, service, "--only", AUTH_SOURCE).stdout.startswith(
            "1 events stored, 0 duplicates"
        )
        connection.execute(f'delete from _analytics."{table_of(AUTH_SOURCE)}" where id = %s', ("a9",))


def test_a_dry_run_lists_tables_and_copies_nothing(start: Start, logflare_database: str, state: Path) -> None:
    service = start()
    output = migrate(logflare_database, state, service, "--dry-run").stdout
    assert f"{MANY_EVENTS:>12,}  postgres.logs  (_analytics.{table_of(LARGE_SOURCE)})" in output
    assert len(output.splitlines()) == 3
    assert not state.exists()
    assert rows(service, COUNT_QUERY)[0]["n"] == 0


def test_a_killed_migration_resumes(start: Start, logflare_database: str, state: Path) -> None:
    service = start()
    for _ in range(2):
        kill_while_copying(arguments(logflare_database, state, service, "--only", "postgres.logs"), state)
    done = migrate(logflare_database, state, service, "--only", "postgres.logs")
    assert done.returncode == 0, done.stderr
    assert "going on" in done.stderr
    assert rows(service, COUNT_QUERY) == [COMPLETE_COUNTS]


def kill_while_copying(command: list[str], state: Path) -> None:
    before = state.read_text() if state.exists() else ""
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    process = subprocess.Popen([sys.executable, "-m", "cordwood", *command], env=environment, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while (not state.exists() or state.read_text() == before) and time.monotonic() < deadline:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait(30)


def test_a_migration_resumes_after_the_service_was_killed(
    start: Start, logflare_database: str, state: Path, tmp_path: Path
) -> None:
    service = start()
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    folder = ("--data-dir", str(service.data_dir), "--state", str(state), "--only", LARGE_SOURCE)
    command = [sys.executable, "-m", "cordwood", "migrate", "logflare", "--from", logflare_database, *folder]
    with (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(command, env=environment, stderr=errors)
        while not state.exists():
            assert process.poll() is None
            time.sleep(0.002)
        service.kill()
        assert process.wait(60) == 1
    assert "No service answers" in (tmp_path / "errors").read_text()
    restarted = start()
    done = cordwood("migrate", "logflare", "--from", logflare_database, *folder, PGPASSWORD=PASSWORD)
    assert done.returncode == 0, done.stderr
    assert rows(restarted, COUNT_QUERY) == [COMPLETE_COUNTS]


def test_a_migration_works_without_a_service(logflare_database: str, state: Path, tmp_path: Path, start: Start) -> None:
    folder = tmp_path / "fresh"
    more = ("--data-dir", str(folder), "--state", str(state), "--only", "gotrue.logs.prod")
    done = cordwood("migrate", "logflare", "--from", logflare_database, *more, PGPASSWORD=PASSWORD)
    assert done.stdout.startswith("3 events stored"), done.stderr
    service = start(data_dir=folder)
    assert len(rows(service, "select id from auth_logs")) == 2


def test_a_source_may_be_renamed(start: Start, logflare_database: str, state: Path) -> None:
    service = start()
    done = migrate(
        logflare_database, state, service, "--only", AUTH_SOURCE, "--as", "gotrue.logs.prod=realtime.logs.prod"
    )
    assert done.returncode == 0, done.stderr
    assert "realtime.logs.prod: 3 events to copy" in done.stderr


@pytest.mark.parametrize(
    ("more", "expected_message"),
    [
        (("--only", "gotrue.logs"), "There is no source 'gotrue.logs' there. Did you mean gotrue.logs.prod?"),
        (("--as", "gotrue.logs.prod"), "Write: --as SOURCE=STREAM."),
        (("--as", "gotrue.logs.prod=mine"), "These streams do not exist: mine. Name them in your streams file"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_copied(
    start: Start, logflare_database: str, state: Path, more: tuple[str, ...], expected_message: str
) -> None:
    done = migrate(logflare_database, state, start(), *more)
    assert done.returncode == 1
    assert expected_message in done.stderr
    assert not state.exists()


def test_a_table_without_a_source_name_is_an_error(start: Start, logflare_database: str, state: Path) -> None:
    service = start()
    with psycopg.connect(logflare_database, password=PASSWORD, autocommit=True) as connection:
        connection.execute(CREATE_EVENTS_TABLE.format(table_of(UNNAMED_SOURCE)))
        try:
            done = migrate(logflare_database, state, service)
            assert f"Name it: --as {UNNAMED_SOURCE}=STREAM, or leave it out with --only." in done.stderr
            assert (
                migrate(
                    logflare_database,
                    state,
                    service,
                    "--only",
                    UNNAMED_SOURCE,
                    "--as",
                    f"{UNNAMED_SOURCE}=postgres.logs",
                ).returncode
                == 0
            )
            connection.execute(f'alter table _analytics."{table_of(UNNAMED_SOURCE)}" drop column body')
            broken = migrate(
                logflare_database, state, service, "--only", UNNAMED_SOURCE, "--as", f"{UNNAMED_SOURCE}=postgres.logs"
            )
            assert 'cannot be read: column "body" does not exist' in broken.stderr
            assert "columns id, timestamp, event_message and body" in broken.stderr
        finally:
            connection.execute(f'drop table _analytics."{table_of(UNNAMED_SOURCE)}"')


def test_the_state_file_of_another_migration_is_refused(start: Start, logflare_database: str, state: Path) -> None:
    service = start()
    state.write_text('{"version": 1, "route": "elsewhere", "tables": {}}')
    done = migrate(logflare_database, state, service)
    assert "is of another migration: elsewhere. Name another file: --state FILE." in done.stderr
    state.write_text("{")
    assert "is not a state file of a migration" in migrate(logflare_database, state, service).stderr


def test_a_failed_login_is_reported_without_the_password(start: Start, logflare_database: str, state: Path) -> None:
    service = start()
    wrong_password_result = logflare_database.replace("@", ":secret-word@")
    done = migrate(wrong_password_result, state, service)
    assert done.returncode == 1
    assert "PostgreSQL refuses the login:" in done.stderr
    assert "password authentication failed" in done.stderr
    assert "secret-word" not in done.stderr
    unreachable_result = migrate("postgresql://127.0.0.1:1/x", state, service)
    assert "PostgreSQL refuses the login:" in unreachable_result.stderr
    empty_database_result = migrate(logflare_database.replace("/postgres", "/template1"), state, service)
    assert "There is no table log_events_… in that database." in empty_database_result.stderr
