"""Two services whose events differ only in private values, so that any difference in their answers or work is a leak.

A private value of the second service may be longer, shorter or of the same length. There are other numbers of distinct
values, and they sort in reverse. Events, types, keys and clock are the same.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from cordwood.app.compose import Observability, ServiceComponents, build_components
from cordwood.app.configuration import create_fixed_key, web_options
from cordwood.app.in_process import InProcessApp
from cordwood.engines.engine import Engine
from cordwood.engines.late_redaction import OptionalTexts, RedactTexts, TextRedactor
from cordwood.folder import DataFolder
from cordwood.model.redaction import RedactMode
from cordwood.settings.settings import DuckDBSettings, LimitSettings, ServeSettings, Settings, WebSettings
from cordwood.sql.stages import BoundStatement
from cordwood.web.routes import create_application
from cordwood.web.services import Lifecycle

STREAM: Final = "twins"
NOW_US: Final = 1_763_000_100_000_000
FIRST_US: Final = 1_763_000_000_000_000

ENDPOINT: Final = f"""/*
name = "logs"
max_rows = 200
cache = "60s"
sandbox = true

[parameters.p]
default = "203.0.113.7"
*/
with
  logs as (select id, timestamp, event_message, metadata, who, whence from `{STREAM}`),
  again as (select id, event_message, who from `{STREAM}` order by timestamp desc),
  flat as (
    select l.id, l.timestamp, l.event_message, l.who, r.ip, r.card, r.mixed, r.method, r.status, r.nothing, r.list
    from `{STREAM}` as l cross join unnest(l.metadata) as m cross join unnest(m.request) as r
  )
select id, timestamp, event_message, metadata from logs order by timestamp desc limit 100
"""

# Private values by name. The events use the values of each name in rotation.
_Secrets = Mapping[str, Sequence[str]]
FIRST_SECRETS: Final[_Secrets] = {
    "ip": ("203.0.113.7", "198.51.100.23", "192.0.2.99", "10.20.30.40", "9.9.9.9"),
    "ip6": ("2001:db8:1:2::7", "2001:db8::1", "fe80::aaaa:1"),
    "mail": ("first.person@example.org", "a@b.example.com", "zoe@example.net"),
    "card": ("4111111111111111", "5500005555555559", "378282246310005"),
    "key": ("sb_secret_aaaaaaaaaaaa", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
    "password": ("correct horse", "x", "hunter2 but longer"),
    "field": ("10.9.9.9",),
}
SECOND_SECRETS: Final[_Secrets] = {
    "ip": ("192.0.2.1", "192.0.2.1", "198.51.100.200", "255.255.255.254", "203.0.113.255"),
    "ip6": ("fe80::aaaa:1", "fe80::aaaa:1", "fe80::aaaa:1"),
    "mail": ("someone-else@elsewhere.example.com", "zz@b.example.com", "ann@example.net"),
    "card": ("5555555555554444", "4012888888881881", "4012888888881881"),
    "key": ("ghp_9876543210abcdefghijABCDEFGHIJ012345", "sb_secret_bbbbbbbbbbbb"),
    "password": ("zzz", "also not short at all", "1"),
    "field": ("192.168.77.8",),
}
EVENT_COUNT: Final = 24

# Headers whose values differ between two equal requests.
_VARYING_HEADERS: Final = ("x-request-id", "server-timing", "date")


class ComparableAnswer(msgspec.Struct, frozen=True):
    """An answer without the parts that differ even between equal requests."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class EngineRecord(msgspec.Struct):
    """The questions that an engine was asked, and the number of texts in each redaction of fetched rows."""

    questions: list[BoundStatement] = []
    redacted_counts: list[int] = []


class Twin(msgspec.Struct, frozen=True):
    """One of the two services, with its components and its private values."""

    components: ServiceComponents
    app: InProcessApp
    secrets: _Secrets
    record: EngineRecord

    @property
    def engine_name(self) -> str:
        return self.components.engine.compile_target.name

    def ask(self, query: str, *, language: str = "sql", mode: str = "true") -> ComparableAnswer:
        path = f"/api/endpoints/query/logs?{urlencode({language: query})}"
        headers = {"lf-endpoint-redact-pii": mode, "x-request-id": "twin"}
        status, response_headers, body = self.app.send("GET", path, b"", headers)
        lower_case_headers = {name.lower(): value for name, value in response_headers.items()}
        # A cursor contains the encrypted time of its request, so only the cursor's length is compared.
        compared_headers = [
            (name, str(len(value)) if name == "cordwood-next" else value) for name, value in lower_case_headers.items()
        ]
        return ComparableAnswer(
            status, tuple(sorted(pair for pair in compared_headers if pair[0] not in _VARYING_HEADERS)), body
        )


def events(secrets: _Secrets, first: int = 0) -> list[dict[str, object]]:
    return [
        _event({name: values[at % len(values)] for name, values in secrets.items()}, at)
        for at in range(first, first + EVENT_COUNT)
    ]


def _event(secret: Mapping[str, str], at: int) -> dict[str, object]:
    inner = json.dumps({"ip": secret["ip"], "email": secret["mail"], "password": secret["password"]})
    messages = (
        f"hit from {secret['ip']} by {secret['mail']}",
        f"key {secret['key']} card {secret['card']} [{secret['ip6']}]:443",
        inner,
        "nothing here",
    )
    request: dict[str, object] = {
        "ip": secret["ip"],
        "ip6": secret["ip6"],
        "status": (200, 404, 500)[at % 3],
        "method": ("GET", "POST")[at % 2],
        "headers": [{"name": "x-real-ip", "value": secret["ip"]}, {"name": "cookie", "value": "a"}],
        "list": [secret["ip"], secret["mail"], "same", 7][: 1 + at % 4],
        "texts": [secret["mail"], secret["ip"]],
        "password": secret["password"],
        "api_key": [secret["password"], secret["key"]],
        "card": secret["card"],
        "mixed": (secret["card"], at, True)[at % 3],
        secret["field"]: "seen",
    }
    if at % 5 == 0:
        request["nothing"] = None if at % 2 else secret["mail"]
    return {
        "id": f"id-{at:03}",
        "timestamp": FIRST_US + at * 1000,
        "event_message": messages[at % len(messages)],
        "project": "default",
        "metadata": {"request": request, "inner": inner, "level": ("info", "error")[at % 2]},
        "who": secret["ip"],
        "whence": secret["mail"] if at % 3 else None,
    }


@contextmanager
def open_twin(folder: Path, engine: str, secrets: _Secrets) -> Iterator[Twin]:
    settings = _settings(folder, engine)
    data, key, watch = (
        DataFolder(folder / "data"),
        "twin-key-0123456789abcdef0123456789",
        Observability.from_settings(settings),
    )
    with data.take_ownership(), asyncio.Runner() as runner:
        local = (create_fixed_key("private", key, "local"),)
        components = build_components(settings, data, watch.observer, local, lambda: NOW_US)
        lifecycle = Lifecycle()
        try:
            lifecycle.set_ready(components.services)
            app = create_application(lifecycle, watch.observer, web_options(settings), watch.metrics)
            yield Twin(components, InProcessApp(app, runner, key), secrets, _record_questions(components.engine))
        finally:
            runner.run(components.services.query_service.close())
            components.close()


def _record_questions(engine: Engine) -> EngineRecord:
    record, answer = EngineRecord(), engine.answer
    hiding = engine._answer_redactor if hasattr(engine, "_answer_redactor") else engine._query_runner._answer_redactor  # type: ignore[attr-defined]
    texts: TextRedactor = hiding._text_redactor
    json_texts = texts.redact_json

    def record_answer(question: BoundStatement, *arguments: object) -> object:
        record.questions.append(question)
        return answer(question, *arguments)  # type: ignore[arg-type] # handed on as they come

    def record_redaction(mode: RedactMode, some: OptionalTexts, redact: RedactTexts) -> list[str | None]:
        def count_texts(of: Sequence[str]) -> Sequence[str]:
            record.redacted_counts.append(len(of))
            return redact(of)

        return json_texts(mode, some, count_texts)

    if engine.compile_target.name == "clickhouse":
        _use_one_thread(engine)
    engine.answer = record_answer  # type: ignore[method-assign, assignment]
    texts.redact_json = record_redaction  # type: ignore[method-assign, assignment]
    return record


def _use_one_thread(engine: Engine) -> None:
    """Make ClickHouse use one thread, so that the order of rows is deterministic.

    For DuckDB, the number of threads is a setting of the service.
    """
    build_query: Callable[..., Any] = engine._build_query  # type: ignore[attr-defined]

    def query_in_one_thread(*arguments: object) -> object:
        query = build_query(*arguments)
        return msgspec.structs.replace(query, settings={**query.settings, "max_threads": 1})

    engine._build_query = query_in_one_thread  # type: ignore[attr-defined]


def store_events(twin: Twin, first: int = 0) -> None:
    body = json.dumps(events(twin.secrets, first)).encode()
    headers = {"content-type": "application/json"}
    status, _, body_text = twin.app.send("POST", f"/api/logs?source_name={STREAM}", body, headers)
    assert status == 200, body_text


def _settings(folder: Path, engine: str) -> Settings:
    endpoints, streams = folder / "endpoints", folder / "streams.toml"
    endpoints.mkdir()
    (endpoints / "logs.sql").write_text(ENDPOINT)
    streams.write_text(f'[[stream]]\nname = "{STREAM}"\n')
    serve = ServeSettings(data_dir=str(folder / "data"), endpoints=str(endpoints), streams=str(streams))
    return Settings(
        engine=engine,
        serve=serve,
        web=WebSettings(log_level="error"),
        limits=LimitSettings(memory=700 * 10**6),
        duckdb=DuckDBSettings(threads=1),
    )
