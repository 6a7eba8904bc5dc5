"""Events of any kind change no answer for other projects, and leave and come back as they were stored.

The same questions are asked before others send events with every key and value that JSON permits, afterwards, and
again after a restart: each answer is the same, byte for byte,
but for the order of rows where a client's query leaves it open. `make torture` asks every query and sends more
random events, of the seed in POISON_SEED.
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

from cordwood.app.event_files import Reading, opened_events
from cordwood.app.in_process import open_service
from cordwood.app.restore import restore
from cordwood.demo import history_events
from tests.attack.poison import contradicting, crafted, random_events
from tests.attack.stores import Store, Told
from tests.attack.test_pinned import settings
from tests.chdb_databases import fresh_database

CLIENTS: Final = Path(__file__).resolve().parents[3] / "shared" / "clients"
NOW: Final = 1_790_000_000
FULL: Final = os.environ.get("TORTURE") == "full"
# Of the clients' queries, every so many: ClickHouse inside this process takes longer for each.
EVERY: Final = {"duckdb": 1, "clickhouse": 1} if FULL else {"duckdb": 8, "clickhouse": 16}
# Of the crafted events, so many go to each stream but the first, which has all.
ELSEWHERE: Final = 1 if FULL else 24
SEED: Final = os.environ.get("POISON_SEED", "1")
RANDOM: Final = 20_000 if FULL else 120
# Clients' queries that leave it open which rows they want: ties at a LIMIT, ANY_VALUE, ARRAY_AGG without an order.
OPEN: Final = {"rep_top_error_routes", "uni_rows_all", "uni_rows_fn", "flow_edge_function"}
# Marks what the private key was told, not the one that is held to the project.
PRIVATE: Final = " for the private key"
FIRST: Final = "cloudflare.logs.prod"
SUB_QUERIES: Final = {
    "edge_logs": FIRST,
    "function_logs": "deno-subhosting-events",
    "storage_logs": "storage.logs.prod.2",
}
ASKED: Final = (
    "select * from {table} order by timestamp, id",
    "select t.id, m.* from {table} t cross join unnest(t.metadata) as m order by t.timestamp, t.id",
    "select count(*) as n, count(distinct to_json_string(metadata)) as d, min(timestamp) as a from {table}",
    "select timestamp_seconds(div(unix_seconds(timestamp), 300) * 300) as at, count(*) as events from {table} group by 1 order by 1",
)
ASKED_IN_LQL: Final = ("f:{table} s:* limit:50", "f:{table} c:count(*) c:group_by(t::minute)", "f:{table} default")


def ordinary_events() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The clients' own where they lie beside the project, those of the demo elsewhere."""
    if not CLIENTS.exists():
        streams = {stream: events[:60] for stream, events in history_events(datetime.fromtimestamp(NOW, UTC))}
        yield from streams.items()
        return
    by_stream: dict[str, list[dict[str, Any]]] = {}
    for one in emitted("events"):
        by_stream.setdefault(one["source_name"], []).append(one["event"])
    yield from by_stream.items()


def emitted(kind: str) -> list[dict[str, Any]]:
    """The clients' events or queries, their times counted back from NOW."""
    command = [sys.executable, str(CLIENTS / "oracle.py"), "--now", str(NOW), "--emit", kind]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in told.splitlines()]


@pytest.fixture(scope="module")
def client_queries() -> list[dict[str, Any]]:
    return emitted("queries") if CLIENTS.exists() else []


@pytest.fixture(params=["duckdb", "clickhouse"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Components(msgspec.Struct, frozen=True):
    """A data folder and the database of its events, which can be opened more than once."""

    folder: Path
    engine: str
    address: str

    @classmethod
    def new(cls, folder: Path, engine: str) -> "Components":
        return cls(folder, engine, fresh_database() if engine == "clickhouse" else engine)

    @contextmanager
    def opened(self) -> Iterator[Store]:
        with open_service(settings(self.folder, engine=self.address), lambda: NOW * 1_000_000) as inside:
            yield Store(inside, self.engine, "default")


def answers(store: Store, queries: list[dict[str, Any]]) -> dict[str, Told]:
    """What keys of the project, and the private one that asks for the project, are told."""
    found: dict[str, Told] = {}
    for one in queries[:: EVERY[store.engine]]:
        path = f"/api/endpoints/query/{one['endpoint']}"
        asked = {**one["params"], **({"sql": one["sql"]} if one["sql"] else {})}
        status, _, body = store.told_with(one["headers"], path, store.private, asked)
        # Of names that are unknown it may be told what others call theirs.
        found[one["id"] + PRIVATE] = (status, {}, body if status == 200 else "")
        if asked.get("project") == "default":
            found[one["id"]] = store.told_with(one["headers"], path, store.pinned, asked)
    for table, stream in SUB_QUERIES.items():
        for sql in (one.format(table=table) for one in ASKED):
            found[sql] = store.ask(store.pinned, sql=sql)
        for lql in (one.format(table=table) for one in ASKED_IN_LQL):
            found[lql] = store.ask(store.pinned, lql=lql)
        for page in ("/schema", "/recent"):
            found[f"{stream}{page}"] = store.told(f"/api/sources/{stream}{page}", store.pinned_private)
        found[f"{stream} exported"] = (200, {}, json.dumps(exported(store, stream, store.pinned_private)))
    for address in ("/api/endpoints/logs.all/scope", "/api/openapi.json", "/api/quarantine"):
        found[address] = store.told(address, store.pinned_private)
    return found


def exported(store: Store, stream: str, key: str) -> list[str]:
    """The lines of a stream's export, in order of themselves."""
    path = f"/api/streams/{quote(stream)}/events"
    status, _, file = store.inside.send("GET", path, b"", {"x-api-key": key})
    assert status == 200, file
    with tempfile.NamedTemporaryFile() as kept:
        kept.write(file)
        kept.flush()
        with opened_events(Path(kept.name), Reading()) as events:
            return sorted(record.data.decode() for record in events.stored_rows())


def differing(before: Mapping[str, Told], after: Mapping[str, Told]) -> dict[str, tuple[Told, Told]]:
    """What is answered differently, but for the choice that a query leaves open."""
    assert before.keys() == after.keys()
    return {
        name: (told, after[name])
        for name, told in before.items()
        if told != after[name] and not _is_choice(name.removesuffix(PRIVATE), _rows(told), _rows(after[name]))
    }


def _rows(told: Told) -> list[str]:
    """The rows of an answer, each as JSON."""
    body = json.loads(told[2] or "null")
    return [json.dumps(row) for row in body["result"]] if isinstance(body, dict) and "result" in body else []


def _is_choice(query: str, before: list[str], after: list[str]) -> bool:
    """Whether a client's query leaves it open: most order their rows by what several have alike."""
    if query in OPEN:
        return len(before) == len(after) > 0
    return not query.startswith(("select ", "f:")) and bool(before) and sorted(before) == sorted(after)


def send(store: Store, stream: str, items: Sequence[str]) -> Counter[str]:
    """Send the events: nothing but what is stored, set aside, there already, or refused as a whole for a stated reason."""
    status, told = store.send_text(f"/api/logs?source_name={quote(stream)}", f"[{','.join(items)}]")
    if status != 200:
        assert 400 <= status < 500, (status, told, items)
        assert json.loads(told)["error"]["message"]
        return Counter(refused=len(items))
    outcome = Counter({name: json.loads(told)[name] for name in ("accepted", "duplicates", "quarantined")})
    assert outcome.total() == len(items), (told, items)
    assert len(json.loads(told)["reasons"]) == min(10, outcome["quarantined"]), told
    return outcome


def send_poison(store: Store, ordinary: Mapping[str, list[dict[str, Any]]]) -> Counter[str]:
    """Some events alone, some together; all crafted ones to the first stream, and a share of them to each other one."""
    outcome: Counter[str] = Counter()
    for place, (stream, events) in enumerate(ordinary.items()):
        items = [
            *(list(crafted("poison")) if stream == FIRST else list(crafted("poison"))[place % ELSEWHERE :: ELSEWHERE]),
            *contradicting(events[:: 1 if FULL else 6], "poison"),
            *random_events(f"{SEED}:{stream}", "poison", RANDOM // len(ordinary)),
        ]
        for first in range(0, len(items), 37):
            batch = items[first : first + 37]
            told = send(store, stream, batch)
            if told["refused"]:
                told = sum((send(store, stream, [one]) for one in batch), Counter[str]())
            outcome += told
    return outcome


def hold_pages(store: Store) -> None:
    """Whoever sees all events is served, the poison among them."""
    for table, stream in SUB_QUERIES.items():
        for page in ("", "/schema", "/recent", "/schema?variant=dot"):
            assert store.told(f"/api/sources/{stream}{page}", store.private)[0] == 200, (stream, page)
        for sql in (one.format(table=table) for one in ASKED):
            assert store.ask(store.private, project="poison", sql=sql)[0] == 200, sql
        for lql in (one.format(table=table) for one in ASKED_IN_LQL):
            assert store.ask(store.private, project="poison", lql=lql)[0] == 200, lql
    for address in ("/api/endpoints/logs.all/scope", "/api/openapi.json", "/api/quarantine?limit=1000", "/api/status"):
        assert store.told(address, store.private)[0] == 200, address


def everything(store: Store) -> dict[str, list[str]]:
    return {stream: exported(store, stream, store.private) for stream in SUB_QUERIES.values()}


def take_back(store: Store, streams: Mapping[str, Sequence[str]]) -> None:
    for stream, lines in streams.items():
        status, told = store.send_text(f"/api/streams/{quote(stream)}/events", "\n".join(lines))
        assert (status, json.loads(told).get("accepted")) == (200, len(lines)), told[:500]


def restored(store: Store, folder: Path) -> Path:
    """A data folder that is made of the store's backup."""
    status, _, archive = store.inside.send("GET", "/api/backup", b"", {"x-api-key": store.private})
    assert status == 200
    with tarfile.open(fileobj=io.BytesIO(archive)) as backup:
        backup.extractall(folder / "backup", filter="data")
    restore(folder / "backup", settings(folder / "restored"), lambda _: None)
    return folder / "restored"


def test_other_projects_are_answered_as_before_and_all_events_come_back(
    engine: str, tmp_path: Path, client_queries: list[dict[str, Any]]
) -> None:
    components, ordinary = Components.new(tmp_path / "data", engine), dict(ordinary_events())
    with components.opened() as store:
        for stream, events in ordinary.items():
            store.take(stream, events)
        before = answers(store, client_queries)
        assert [name for name, told in before.items() if told[0] >= 500] == []
        outcome = send_poison(store, ordinary)
        assert outcome["accepted"] > 10 * outcome["quarantined"] > 0
        assert differing(before, answers(store, client_queries)) == {}
        hold_pages(store)
    with components.opened() as store:
        assert differing(before, answers(store, client_queries)) == {}
        stored = everything(store)
        backup = restored(store, tmp_path) if engine == "duckdb" else None
    assert sum(map(len, stored.values())) > outcome["accepted"] / 3
    with Components.new(tmp_path / "imported", engine).opened() as store:
        take_back(store, stored)
        assert everything(store) == stored
    if backup is not None:
        with Components.new(backup, engine).opened() as store:
            assert everything(store) == stored
