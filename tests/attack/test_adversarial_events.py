"""Events with unusual keys and values change no answer for other projects, and survive export, import and backup.

The same queries run before another project sends such events, afterwards, and after a restart. The answers must be
equal byte for byte, except for the order of rows where a query does not define it. `make torture` runs all queries and
sends more random events, for which POISON_SEED is the seed.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pytest

from cordwood.app.demo import history_events
from cordwood.app.event_files import ReadOptions, open_event_file
from cordwood.app.in_process import open_in_process_app
from cordwood.app.restore import restore_backup
from tests.attack.adversarial_events import crafted_events, events_of_other_types, random_events
from tests.attack.store_comparison import Store, StoreAnswer
from tests.attack.test_pinned_queries import make_settings
from tests.chdb_databases import fresh_database

CLIENTS_FOLDER: Final = Path(__file__).resolve().parents[3] / "shared" / "clients"
NOW_SECONDS: Final = 1_790_000_000
IS_FULL: Final = os.environ.get("TORTURE") == "full"
# The tests run every n-th of the clients' queries. ClickHouse in this process takes longer for each query than DuckDB.
QUERY_STRIDE: Final = {"duckdb": 1, "clickhouse": 1} if IS_FULL else {"duckdb": 8, "clickhouse": 16}
# The first stream gets all crafted events, and each other stream gets every n-th of them.
OTHER_STREAMS_STRIDE: Final = 1 if IS_FULL else 24
EVENT_SEED: Final = os.environ.get("POISON_SEED", "1")
RANDOM_EVENT_COUNT: Final = 20_000 if IS_FULL else 120
# Clients' queries with several correct results: ties at a LIMIT, ANY_VALUE, ARRAY_AGG without an order.
NONDETERMINISTIC: Final = {"rep_top_error_routes", "uni_rows_all", "uni_rows_fn", "flow_edge_function"}
# Suffix that distinguishes the answers to the private key from those to the pinned key.
PRIVATE_KEY_SUFFIX: Final = " for the private key"
FIRST_STREAM: Final = "cloudflare.logs.prod"
SUB_QUERIES: Final = {
    "edge_logs": FIRST_STREAM,
    "function_logs": "deno-subhosting-events",
    "storage_logs": "storage.logs.prod.2",
}
SQL_QUERIES: Final = (
    "select * from {table} order by timestamp, id",
    "select t.id, m.* from {table} t cross join unnest(t.metadata) as m order by t.timestamp, t.id",
    "select count(*) as n, count(distinct to_json_string(metadata)) as d, min(timestamp) as a from {table}",
    "select timestamp_seconds(div(unix_seconds(timestamp), 300) * 300) as at, count(*) as events from {table} group by 1 order by 1",
)
LQL_QUERIES: Final = ("f:{table} s:* limit:50", "f:{table} c:count(*) c:group_by(t::minute)", "f:{table} default")


def ordinary_events() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the streams of the recorded clients with their events; without a recording, yield those of the demo."""
    if not CLIENTS_FOLDER.exists():
        streams = {stream: events[:60] for stream, events in history_events(datetime.fromtimestamp(NOW_SECONDS, UTC))}
        yield from streams.items()
        return
    by_stream: dict[str, list[dict[str, Any]]] = {}
    for record in client_records("events"):
        by_stream.setdefault(record["source_name"], []).append(record["event"])
    yield from by_stream.items()


def client_records(kind: str) -> list[dict[str, Any]]:
    """Return the recorded events or queries of clients, in which times are relative to NOW_SECONDS."""
    command = [sys.executable, str(CLIENTS_FOLDER / "oracle.py"), "--now", str(NOW_SECONDS), "--emit", kind]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in answer.splitlines()]


@pytest.fixture(scope="module")
def client_queries() -> list[dict[str, Any]]:
    return client_records("queries") if CLIENTS_FOLDER.exists() else []


@pytest.fixture(params=["duckdb", "clickhouse"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class RestartableService(msgspec.Struct, frozen=True):
    """A data folder and a database with which a service can be opened repeatedly."""

    folder: Path
    engine: str
    address: str

    @classmethod
    def new(cls, folder: Path, engine: str) -> "RestartableService":
        return cls(folder, engine, fresh_database() if engine == "clickhouse" else engine)

    @contextmanager
    def opened(self) -> Iterator[Store]:
        with open_in_process_app(
            make_settings(self.folder, engine=self.address), lambda: NOW_SECONDS * 1_000_000
        ) as app:
            yield Store(app, self.engine, "default")


def answers_by_query(store: Store, queries: list[dict[str, Any]]) -> dict[str, StoreAnswer]:
    """Return the answers to all queries, with keys that are pinned to the project.

    Clients' queries are also sent with the private key, with the project as a parameter.
    """
    answers: dict[str, StoreAnswer] = {}
    for client_query in queries[:: QUERY_STRIDE[store.engine]]:
        path = f"/api/endpoints/query/{client_query['endpoint']}"
        parameters = {**client_query["params"], **({"sql": client_query["sql"]} if client_query["sql"] else {})}
        status, _, body = store.answer_with(client_query["headers"], path, store.private, parameters)
        # Error messages are omitted for the private key, because they may suggest field names of other projects.
        answers[client_query["id"] + PRIVATE_KEY_SUFFIX] = (status, {}, body if status == 200 else "")
        if parameters.get("project") == "default":
            answers[client_query["id"]] = store.answer_with(client_query["headers"], path, store.pinned, parameters)
    for table, stream in SUB_QUERIES.items():
        for sql in (client_query.format(table=table) for client_query in SQL_QUERIES):
            answers[sql] = store.ask(store.pinned, sql=sql)
        for lql in (client_query.format(table=table) for client_query in LQL_QUERIES):
            answers[lql] = store.ask(store.pinned, lql=lql)
        for page in ("/schema", "/recent"):
            answers[f"{stream}{page}"] = store.answer(f"/api/sources/{stream}{page}", store.pinned_private)
        answers[f"{stream} exported"] = (200, {}, json.dumps(export_stream(store, stream, store.pinned_private)))
    for address in ("/api/endpoints/logs.all/scope", "/api/openapi.json", "/api/quarantine"):
        answers[address] = store.answer(address, store.pinned_private)
    return answers


def export_stream(store: Store, stream: str, key: str) -> list[str]:
    """Return the lines of a stream's export, sorted."""
    path = f"/api/streams/{quote(stream)}/events"
    status, _, file = store.app.send("GET", path, b"", {"x-api-key": key})
    assert status == 200, file
    with tempfile.NamedTemporaryFile() as export_file:
        export_file.write(file)
        export_file.flush()
        with open_event_file(Path(export_file.name), ReadOptions()) as events:
            return sorted(record.json_bytes.decode() for record in events.rows_of_cordwood_export())


def different_answers(
    before: Mapping[str, StoreAnswer], after: Mapping[str, StoreAnswer]
) -> dict[str, tuple[StoreAnswer, StoreAnswer]]:
    """Return the pairs of answers that differ, except for differences that a query permits."""
    assert before.keys() == after.keys()
    return {
        name: (answer, after[name])
        for name, answer in before.items()
        if answer != after[name]
        and not _is_permitted_difference(name.removesuffix(PRIVATE_KEY_SUFFIX), _rows(answer), _rows(after[name]))
    }


def _rows(answer: StoreAnswer) -> list[str]:
    """Return the rows of an answer, each as a JSON text."""
    body = json.loads(answer[2] or "null")
    return [json.dumps(row) for row in body["result"]] if isinstance(body, dict) and "result" in body else []


def _is_permitted_difference(query: str, before: list[str], after: list[str]) -> bool:
    """Return whether both answers are correct, because the query does not determine its rows or their order.

    Most clients' queries sort by a key that is not unique.
    """
    if query in NONDETERMINISTIC:
        return len(before) == len(after) > 0
    return not query.startswith(("select ", "f:")) and bool(before) and sorted(before) == sorted(after)


def send(store: Store, stream: str, items: Sequence[str]) -> Counter[str]:
    """Send events in one batch; each must be stored, quarantined or recognised as a duplicate.

    Alternatively, the whole batch may be refused with a message.
    """
    status, answer = store.send_text(f"/api/logs?source_name={quote(stream)}", f"[{','.join(items)}]")
    if status != 200:
        assert 400 <= status < 500, (status, answer, items)
        assert json.loads(answer)["error"]["message"]
        return Counter(refused=len(items))
    outcome = Counter({name: json.loads(answer)[name] for name in ("accepted", "duplicates", "quarantined")})
    assert outcome.total() == len(items), (answer, items)
    assert len(json.loads(answer)["reasons"]) == min(10, outcome["quarantined"]), answer
    return outcome


def send_crafted_events(store: Store, ordinary: Mapping[str, list[dict[str, Any]]]) -> Counter[str]:
    """Send all crafted events to the first stream, and some of them to each other stream.

    If a batch is refused, its events are sent again one by one.
    """
    outcome: Counter[str] = Counter()
    for place, (stream, events) in enumerate(ordinary.items()):
        items = [
            *(
                list(crafted_events("poison"))
                if stream == FIRST_STREAM
                else list(crafted_events("poison"))[place % OTHER_STREAMS_STRIDE :: OTHER_STREAMS_STRIDE]
            ),
            *events_of_other_types(events[:: 1 if IS_FULL else 6], "poison"),
            *random_events(f"{EVENT_SEED}:{stream}", "poison", RANDOM_EVENT_COUNT // len(ordinary)),
        ]
        for first in range(0, len(items), 37):
            batch = items[first : first + 37]
            answer = send(store, stream, batch)
            if answer["refused"]:
                answer = sum((send(store, stream, [single_event]) for single_event in batch), Counter[str]())
            outcome += answer
    return outcome


def check_private_key(store: Store) -> None:
    """Check that requests with the private key, which may read all projects' events, are answered with status 200."""
    for table, stream in SUB_QUERIES.items():
        for page in ("", "/schema", "/recent", "/schema?variant=dot"):
            assert store.answer(f"/api/sources/{stream}{page}", store.private)[0] == 200, (stream, page)
        for sql in (template.format(table=table) for template in SQL_QUERIES):
            assert store.ask(store.private, project="poison", sql=sql)[0] == 200, sql
        for lql in (template.format(table=table) for template in LQL_QUERIES):
            assert store.ask(store.private, project="poison", lql=lql)[0] == 200, lql
    for address in ("/api/endpoints/logs.all/scope", "/api/openapi.json", "/api/quarantine?limit=1000", "/api/status"):
        assert store.answer(address, store.private)[0] == 200, address


def all_answers(store: Store) -> dict[str, list[str]]:
    return {stream: export_stream(store, stream, store.private) for stream in SUB_QUERIES.values()}


def import_events(store: Store, streams: Mapping[str, Sequence[str]]) -> None:
    for stream, lines in streams.items():
        status, answer = store.send_text(f"/api/streams/{quote(stream)}/events", "\n".join(lines))
        assert (status, json.loads(answer).get("accepted")) == (200, len(lines)), answer[:500]


def back_up_and_restore(store: Store, folder: Path) -> Path:
    """Back up a store, restore the backup into a new data folder, and return this folder."""
    status, _, archive = store.app.send("GET", "/api/backup", b"", {"x-api-key": store.private})
    assert status == 200
    with tarfile.open(fileobj=io.BytesIO(archive)) as backup:
        backup.extractall(folder / "backup", filter="data")
    restore_backup(folder / "backup", make_settings(folder / "restored"), lambda _: None)
    return folder / "restored"


def test_answers_of_other_projects_are_unchanged_and_all_events_survive_export(
    engine: str, tmp_path: Path, client_queries: list[dict[str, Any]]
) -> None:
    components, ordinary = RestartableService.new(tmp_path / "data", engine), dict(ordinary_events())
    with components.opened() as store:
        for stream, events in ordinary.items():
            store.take(stream, events)
        before = answers_by_query(store, client_queries)
        assert [name for name, answer in before.items() if answer[0] >= 500] == []
        outcome = send_crafted_events(store, ordinary)
        assert outcome["accepted"] > 10 * outcome["quarantined"] > 0
        assert different_answers(before, answers_by_query(store, client_queries)) == {}
        check_private_key(store)
    with components.opened() as store:
        assert different_answers(before, answers_by_query(store, client_queries)) == {}
        stored = all_answers(store)
        backup = back_up_and_restore(store, tmp_path) if engine == "duckdb" else None
    assert sum(map(len, stored.values())) > outcome["accepted"] / 3
    with RestartableService.new(tmp_path / "imported", engine).opened() as store:
        import_events(store, stored)
        assert all_answers(store) == stored
    if backup is not None:
        with RestartableService.new(backup, engine).opened() as store:
            assert all_answers(store) == stored
