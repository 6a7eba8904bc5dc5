"""The MCP server, used by the official client over both transports and with every kind of key."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from jsonschema import Draft202012Validator
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent, TextResourceContents

from tests.journey.conftest import PRIVATE, Service, Start, start_service
from tests.journey.test_keys import run_keys
from tests.waiting import until

TRANSPORTS = ("stdio", "http")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start a service with events of two projects and a short time limit of queries."""
    running = start_service(tmp_path_factory.mktemp("agents") / "data", env={"CORDWOOD_LIMITS_QUERY_TIME": "2s"})
    for project in ("acme", "globex"):
        events = [event(project, number) for number in range(100)]
        assert running.send("cloudflare.logs.prod", events).status_code == 200
    yield running
    if running.process.poll() is None:
        running.stop()


def event(project: str, number: int) -> dict[str, object]:
    return {
        "id": f"{project}-{number:03}",
        "timestamp": f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z",
        "event_message": f"message {number} of {project}",
        "project": project,
        "metadata": {f"only_{project}": number, "request": {"path": f"/{number}"}},
    }


def new_key(service: Service, *terms: str) -> str:
    result = run_keys("create", *terms, "--data-dir", str(service.data_dir))
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@asynccontextmanager
async def connect_client(
    service: Service, key: str, transport: str, mode: str = "auto", *, redact: bool = False
) -> AsyncIterator[Client]:
    if transport == "stdio":
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "cordwood", "mcp", *(["--redact"] if redact else [])],
            env={**os.environ, "CORDWOOD_URL": service.url, "CORDWOOD_KEY": key},
        )
        async with Client(stdio_client(command), mode=mode) as client:
            yield client
        return
    headers = {"Authorization": f"Bearer {key}", **({"LF-ENDPOINT-REDACT-PII": "true"} if redact else {})}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{service.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


class Agent:
    """A session of the official MCP client, which this thread can use."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self.portal = portal
        self.client = client

    def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in self.portal.call(self.client.list_tools).tools}

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool and return its answer."""
        text, is_error = self._result(tool, arguments)
        assert not is_error, text
        return json.loads(text)

    def refusal_of(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must be refused, and return the text of the refusal."""
        text, is_error = self._result(tool, arguments)
        assert is_error, text
        return text

    def resource(self, uri: str) -> Any:
        (content,) = self.portal.call(self.client.read_resource, uri).contents
        assert isinstance(content, TextResourceContents)
        return json.loads(content.text)

    def _result(self, tool: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        result = self.portal.call(self.client.call_tool, tool, dict(arguments))
        (content,) = result.content
        assert isinstance(content, TextContent)
        return content.text, bool(result.is_error)


@contextmanager
def agent(service: Service, key: str, transport: str, mode: str = "auto", *, redact: bool = False) -> Iterator[Agent]:
    with session(connect_client(service, key, transport, mode, redact=redact)) as opened_agent:
        yield opened_agent


@contextmanager
def session(connecting: AbstractAsyncContextManager[Client]) -> Iterator[Agent]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(connecting) as client:
        yield Agent(portal, client)


@pytest.fixture(scope="module", params=TRANSPORTS)
def private(service: Service, request: pytest.FixtureRequest) -> Iterator[Agent]:
    with agent(service, PRIVATE, request.param) as opened_agent:
        yield opened_agent


ON_EACH_TRANSPORT = pytest.mark.parametrize("transport", TRANSPORTS)


@ON_EACH_TRANSPORT
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_each_endpoint_is_a_tool_and_every_schema_is_valid(service: Service, transport: str, mode: str) -> None:
    with agent(service, PRIVATE, transport, mode) as opened_agent:
        tools = opened_agent.tools()
    own = {"query", "list_tables", "read_event", "list_streams", "query_streams"}
    assert set(tools) == own | {"logs_all", "logs_all_otel", "usage_api-counts"}
    for tool in tools.values():
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["type"] == "object"
        assert tool.description
        assert tool.annotations.read_only_hint
    interval = tools["usage_api-counts"].input_schema["properties"]["interval"]
    assert "hourly" in interval["enum"]
    assert tools["usage_api-counts"].input_schema["required"] == ["interval", "project"]


def test_a_tool_returns_the_rows_of_the_http_endpoint(private: Agent, service: Service) -> None:
    rows = private.call("logs_all", project="acme", max_rows=1000)["rows"]
    assert rows == service.rows("logs.all", project="acme")
    assert len(rows) == 100


def test_queries_in_both_languages_are_answered(private: Agent) -> None:
    parameters = {"project": "acme"}
    for text in ({"sql": "select count(*) as n from edge_logs"}, {"lql": "f:edge_logs c:count(*) c:group_by(t::day)"}):
        reply = private.call("query", endpoint="logs.all", parameters=parameters, **text)
        assert [row.get("n", row.get("count")) for row in reply["rows"]] == [100]
    sql = "select count(*) as n from `cloudflare.logs.prod`"
    assert private.call("query_streams", sql=sql)["rows"] == [{"n": 200}]


def test_an_invalid_query_is_refused_with_a_position_and_a_hint(private: Agent) -> None:
    sql = "select count(*),\n  event_mesage from edge_logs"
    reply = private.refusal_of("query", endpoint="logs.all", sql=sql, parameters={"project": "acme"})
    lines = reply.splitlines()
    assert lines[0].startswith("query.unknown-name: ")
    assert lines[1:4] == ["Place: line 2, column 3.", "    event_mesage from edge_logs", "    ^"]
    assert "event_message" in lines[4]
    lql = private.refusal_of("query", endpoint="logs.all", lql='f:edge_logs "open', parameters={"project": "x"})
    assert "Place: line 1, column " in lql
    streams = private.refusal_of("query_streams", sql="select x y z from `postgres.logs`")
    assert streams.startswith("query.syntax: ")


def test_a_truncated_answer_says_so(private: Agent) -> None:
    reply = private.call("logs_all", project="acme", max_rows=7)
    assert reply["row_count"] == len(reply["rows"]) == 7
    assert "max_rows=7" in reply["truncated"]
    sql = "select repeat('x', 3000) as long from unnest(generate_array(1, 500)) as n"
    truncated = private.call("query_streams", sql=sql, max_rows=500)
    assert "40000 bytes" in truncated["truncated"]
    assert truncated["rows"][0]["long"] == "x" * 2000 + "… (3000 characters)"
    assert "shortened" in truncated
    assert len(json.dumps(truncated)) < 50_000
    complete_reply = private.call("query_streams", sql="select 1 as one")
    assert complete_reply == {"row_count": 1, "rows": [{"one": 1}]}


@ON_EACH_TRANSPORT
def test_a_pinned_key_has_the_same_restrictions_as_over_http(service: Service, transport: str) -> None:
    key = new_key(service, "--scope", "query", "--endpoint", "logs.all", "--pin", "project=acme")
    with agent(service, key, transport) as pinned:
        tools = pinned.tools()
        assert set(tools) == {"query", "list_tables", "read_event", "logs_all"}
        assert "project" not in tools["logs_all"].input_schema["properties"]
        rows = pinned.call("logs_all", max_rows=1000)["rows"]
        assert {row["id"][:5] for row in rows} == {"acme-"}
        counted = pinned.call("query", endpoint="logs.all", sql="select count(*) as n from edge_logs")
        assert counted["rows"] == [{"n": 100}]
        fields = pinned.call("list_tables", endpoint="logs.all", table="edge_logs")["fields"]
        assert "metadata.only_acme" in fields
        assert "metadata.only_globex" not in fields
        tables = json.dumps(pinned.resource("cordwood://endpoints/logs.all/tables"))
        assert "only_acme" in tables
        assert "only_globex" not in tables
        for arguments in ({"project": "globex"}, {"nonsense": "x"}):
            assert "There is no argument" in pinned.refusal_of("logs_all", **arguments)
        forced = {"endpoint": "logs.all", "sql": "select 1", "parameters": {"project": "globex"}}
        assert "has no parameter" in pinned.refusal_of("query", **forced)
        other = {"endpoint": "logs.all", "table": "edge_logs", "id": "globex-001"}
        assert "There is no event" in pinned.refusal_of("read_event", **other)
        for tool in ("list_streams", "query_streams", "usage_api-counts"):
            assert "There is no tool" in pinned.refusal_of(tool)
        with pytest.raises(MCPError, match=r"request\.forbidden"):
            pinned.resource("cordwood://streams/cloudflare.logs.prod/schema")


@ON_EACH_TRANSPORT
def test_a_key_that_may_query_nothing_has_no_tools(service: Service, transport: str) -> None:
    with agent(service, new_key(service, "--scope", "ingest"), transport) as ingest_key:
        assert ingest_key.tools() == {}
        assert "There is no tool" in ingest_key.refusal_of("query", endpoint="logs.all", sql="select 1")


def test_the_command_ends_with_an_error_if_its_key_is_wrong(service: Service) -> None:
    reply = run_command(service, "wrong")
    assert reply.returncode == 1
    assert reply.stderr.startswith("cordwood mcp: request.bad-key: ")
    assert "Traceback" not in reply.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_ends_on_a_signal_while_it_waits_for_input(service: Service, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "cordwood", "mcp", "--url", service.url, "--key", PRIVATE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # After its answer to `ping`, the server waits for the next message.
        process.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        process.stdin.flush()
        assert '"id":1' in process.stdout.readline()
        process.send_signal(number)
        assert process.wait(10) == -number


def run_command(service: Service, key: str, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "cordwood", "mcp", "--url", service.url, "--key", key]
    environment = {**os.environ, **env}
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment, timeout=60, check=False
    )


@ON_EACH_TRANSPORT
def test_an_expensive_query_is_limited_as_over_http(service: Service, transport: str) -> None:
    # Each transport has its own key, because a key whose query was killed is refused further queries.
    key, headers = new_key(service, "--scope", "query"), {"X-API-KEY": new_key(service, "--scope", "query")}
    with agent(service, key, transport) as hostile:
        for sql in EXPENSIVE_QUERIES:
            body = {"sql": sql, "project": "acme"}
            over_http = service.client.post("/api/endpoints/query/logs.all", json=body, headers=headers)
            reply = hostile.refusal_of("query", endpoint="logs.all", sql=sql, parameters={"project": "acme"})
            kinds = {reply.partition(":")[0], over_http.json()["error"]["status"]}
            assert len(kinds) == 1 or kinds <= LIMIT_CODES, kinds


# Error codes of the limits. An expensive query may reach any of them first.
LIMIT_CODES = {"limit.time", "limit.killed", "limit.quarantined-query", "limit.memory", "engine.unreachable"}
EXPENSIVE_QUERIES = (
    "select count(*) as n from unnest(generate_array(1, 1000000)) a, unnest(generate_array(1, 1000000)) b",
    "select string_agg(repeat('x', 16000)) as t from unnest(generate_array(1, 1000000)) as a",
    "select * from `postgres.logs`",
    "select * from edge_logs " + "".join(f"join edge_logs as t{n} on true " for n in range(60)),
    "select current_setting('threads')",
    "copy x to '/tmp/y'",
)


def test_an_event_of_a_stream_is_read_with_its_neighbours(private: Agent) -> None:
    of_stream = {"stream": "cloudflare.logs.prod"}
    reply = private.call("read_event", id="acme-000", before=5, after=1, **of_stream)
    assert reply["event"]["event_message"] == "message 0 of acme"
    assert reply["before"] == []
    assert [neighbour["id"] for neighbour in reply["after"]] == ["globex-000"]
    for text in ("' or true --", "x\\' or true --", "`", "'; drop table x"):
        assert "There is no event" in private.refusal_of("read_event", id=text, **of_stream)
        assert "query." in private.refusal_of("read_event", id="x", stream=text)


def test_an_event_and_large_neighbours_fit_into_one_answer(private: Agent, service: Service) -> None:
    def large_event(number: int) -> dict[str, object]:
        words = {f"field_{index}": "word " * 300 for index in range(100)}
        return {**event("large", number), "id": f"large-{number:02}", "metadata": words}

    assert service.send("postgres.logs", [large_event(number) for number in range(40)]).status_code == 200
    reply = private.call("read_event", stream="postgres.logs", id="large-20", before=20, after=19)
    assert reply["event"]["id"] == "large-20"
    assert len(json.dumps(reply, ensure_ascii=False)) < 50_000
    assert "truncated" in reply
    assert "shortened" in reply
    assert reply["before"][-1]["id"] == "large-19"
    assert reply["after"][0]["id"] == "large-21"


@ON_EACH_TRANSPORT
def test_an_event_of_a_table_is_read_with_its_neighbours(service: Service, transport: str) -> None:
    of_table = {"endpoint": "logs.all", "table": "edge_logs", "parameters": {"project": "acme"}}
    with agent(service, new_key(service, "--scope", "query"), transport) as sandbox:
        reply = sandbox.call("read_event", id="acme-050", before=2, after=3, **of_table)
        assert reply["event"]["event_message"] == "message 50 of acme"
        assert [neighbour["id"] for neighbour in reply["before"]] == ["acme-048", "acme-049"]
        assert [neighbour["id"] for neighbour in reply["after"]] == ["acme-051", "acme-052", "acme-053"]
        assert "There is no event" in sandbox.refusal_of("read_event", id="globex-050", **of_table)


def test_streams_tables_and_their_fields_are_listed(private: Agent) -> None:
    streams = {stream["name"]: stream for stream in private.call("list_streams")["streams"]}
    assert streams["cloudflare.logs.prod"]["events"] == 200
    fields = private.call("list_streams", stream="cloudflare.logs.prod")["fields"]
    assert fields["metadata.request.path"] == "string"
    under = private.call("list_streams", stream="cloudflare.logs.prod", under="metadata.request")
    assert set(under["fields"]) == {"metadata.request.path", "metadata.request.url"}
    tables = private.call("list_tables", endpoint="logs.all")["tables"]
    edge = next(table for table in tables if table["table"] == "edge_logs")
    assert [column["name"] for column in edge["columns"]] == ["id", "timestamp", "event_message", "metadata"]
    assert "edge_logs" in private.refusal_of("list_tables", endpoint="logs.all", table="edge_log")


def test_schemas_are_available_as_resources(private: Agent) -> None:
    listed = {str(resource.uri) for resource in private.portal.call(private.client.list_resources).resources}
    tables, schema = "cordwood://endpoints/logs.all/tables", "cordwood://streams/cloudflare.logs.prod/schema"
    assert {tables, schema} <= listed
    assert private.resource(tables)["endpoint"] == "logs.all"
    Draft202012Validator.check_schema(private.resource(schema))
    for uri in (
        "cordwood://streams/no.such/schema",
        "cordwood://x",
        "file:///etc/passwd",
        f"{schema}/../../../api/backup",
    ):
        with pytest.raises(MCPError):
            private.resource(uri)


@ON_EACH_TRANSPORT
def test_a_key_for_an_agent_gets_redacted_answers(service: Service, transport: str) -> None:
    message = "from 203.0.113.7 by ann@example.org"
    sent = {"id": "mail-1", "event_message": message, "project": "mail", "metadata": {"a": 1}}
    assert service.send("cloudflare.logs.prod", [sent]).status_code == 200
    call_arguments = {
        "endpoint": "logs.all",
        "sql": "select event_message from edge_logs",
        "parameters": {"project": "mail"},
    }
    for terms, reply in (
        (("--for-agent",), "from REDACTED by REDACTED"),
        (("--for-agent", "--redact", "never"), message),
    ):
        with agent(service, new_key(service, *terms), transport) as reading:
            assert reading.call("query", **call_arguments)["rows"] == [{"event_message": reply}]
    with agent(service, PRIVATE, transport, redact=True) as private:
        assert private.call("query", **call_arguments)["rows"] == [{"event_message": "from REDACTED by REDACTED"}]


@ON_EACH_TRANSPORT
def test_rate_limits_apply_and_refusals_are_audited(service: Service, transport: str) -> None:
    call_arguments = {"endpoint": "logs.all", "sql": "select 1", "parameters": {"project": "x"}}
    with agent(service, new_key(service, "--scope", "query", "--rate", "10/m"), transport) as limited:
        results = [limited.portal.call(limited.client.call_tool, "query", call_arguments) for _ in range(15)]
    reply = str([result.content for result in results if result.is_error])
    assert "limit.rate: " in reply
    assert "Try again after" in reply
    assert _audit_lines(service, "limit.rate")


def _audit_lines(service: Service, code: str) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        lines = [json.loads(line) for line in service.output.read_text().splitlines() if line.startswith("{")]
        if any(line.get("event") == "audit" and code in line["subject"] for line in lines):
            return True
        time.sleep(0.05)
    return False


def test_a_tool_call_is_logged_as_an_http_request_with_the_same_request_id(service: Service) -> None:
    params = {"name": "query_streams", "arguments": {"sql": "select 1 as one"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    assert post(service, body, **{"X-Request-Id": "from-an-agent"}).status_code == 200

    def routes() -> list[tuple[str, str]]:
        lines = [json.loads(line) for line in service.output.read_text().splitlines() if line.startswith("{")]
        return [(line["route"], line["key"]) for line in lines if line.get("request_id") == "from-an-agent"]

    until(lambda: routes() == [("ad_hoc", "settings:private"), ("mcp", "settings:private")])


@ON_EACH_TRANSPORT
def test_refusals_are_reported_with_logflares_error_format_enabled(start: Start, transport: str) -> None:
    running = start(env={"CORDWOOD_COMPAT_ERRORS": "logflare"})
    with agent(running, PRIVATE, transport) as opened_agent:
        call_arguments = {
            "endpoint": "logs.all",
            "sql": "select nothing from edge_logs",
            "parameters": {"project": "x"},
        }
        assert "nothing" in opened_agent.refusal_of("query", **call_arguments)


def test_the_command_reconnects_after_a_restart_of_the_service(start: Start, tmp_path: Path) -> None:
    port = start()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")}
    arguments = ["-m", "cordwood", "mcp", "--data-dir", str(tmp_path / "data")]
    command = StdioServerParameters(command=sys.executable, args=arguments, env=environment)
    with session(Client(stdio_client(command))) as opened_agent:
        assert opened_agent.call("query_streams", sql="select 1 as one")["row_count"] == 1
        port.stop()
        assert "service.unreachable" in opened_agent.refusal_of("query_streams", sql="select 1 as one")
        start()
        assert opened_agent.call("query_streams", sql="select 1 as one")["row_count"] == 1


@ON_EACH_TRANSPORT
def test_a_cancelled_call_stops_its_query(start: Start, transport: str) -> None:
    running = start(env={"CORDWOOD_LIMITS_QUERY_TIME": "60s"})
    slow = "select count(*) as n from unnest(generate_array(1, 1000000)) a, unnest(generate_array(1, 1000000)) b"

    async def cancel(client: Client) -> None:
        calling = asyncio.ensure_future(client.call_tool("query_streams", {"sql": slow}))
        await _wait_until(lambda: _running_queries(running) == 1)
        calling.cancel()
        await _wait_until(lambda: _running_queries(running) == 0)

    with agent(running, PRIVATE, transport) as opened_agent:
        opened_agent.portal.call(cancel, opened_agent.client)


def _running_queries(service: Service) -> int:
    return len(service.client.get("/api/status").json()["queries"]["under_way"])


async def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


def post(service: Service, body: bytes, key: str = PRIVATE, **headers: str) -> httpx.Response:
    """Send a raw message to the MCP route. An empty key means that the message has none."""
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "X-API-KEY": key}
    return service.client.post("/mcp", content=body, headers={**sent, **headers})


def test_messages_without_a_key_are_refused_before_they_are_read(service: Service) -> None:
    message = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    assert post(service, message, key="").status_code == 401
    assert post(service, message, key="wrong").status_code == 401
    assert httpx.get(f"{service.url}/mcp", headers={"X-API-KEY": PRIVATE}).status_code == 405


MALFORMED_MESSAGES = [
    b"",
    b'{"method": "\xff"}',
    b"{",
    b"[]",
    b"null",
    b"[" * 100_000,
    b'"\xff"',
    b'{"jsonrpc": "2.0", "id": 1}',
    b"1" * 5000,
]


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28", "never"])
def test_a_malformed_message_is_answered_with_400(service: Service, version: str) -> None:
    for body in MALFORMED_MESSAGES:
        answer = post(service, body, **{"MCP-Protocol-Version": version})
        assert answer.status_code == 400, (body[:20], answer.text[:300])


@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
def test_unusual_arguments_cause_no_internal_error(service: Service, version: str) -> None:
    deep: object = 1
    for _ in range(60):
        deep = [deep]
    values = ["\ud800", "\x00", deep, {"a": {"b": 1}}, 10**400, 1e308, None, True, "x" * 300_000]
    calls = [
        (tool, {name: value})
        for tool in ("logs_all", "query", "read_event", "no")
        for name in ("project", "sql", "id")
        for value in values
    ]
    calls += [("query", {"endpoint": "logs.all", "sql": value, "parameters": {"project": value}}) for value in values]
    calls += [("read_event", {"stream": value, "id": value}) for value in values]
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    for tool, arguments in calls:
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        headers = {"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        answer = post(service, body, **headers)
        assert answer.status_code in (200, 400), (tool, str(arguments)[:100], answer.text[:300])
    for uri in ("cordwood://streams/\ud800/schema", "cordwood://streams/%00/schema", "\x00"):
        params = {"uri": uri, "_meta": meta}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": params}).encode()
        headers = {"MCP-Protocol-Version": version, "Mcp-Method": "resources/read"}
        assert "error" in post(service, body, **headers).json()
    output = service.output.read_text()
    assert "bug.internal" not in output
    assert "Traceback" not in output


def test_a_large_message_is_refused(service: Service) -> None:
    assert post(service, b" " * (2**20 + 1)).status_code == 413


def test_many_large_messages_take_a_bounded_amount_of_memory(start: Start) -> None:
    running = start(env={"CORDWOOD_LIMITS_MEMORY": "1GB"})
    with agent(running, PRIVATE, "http") as opened_agent:
        assert opened_agent.tools()
    sql = f"select 1 /*{'x' * 900_000}*/"
    params = {"name": "query_streams", "arguments": {"sql": sql}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    before = max_resident_mebibytes(running)
    with ThreadPoolExecutor(100) as threads:
        statuses = Counter(answer.status_code for answer in threads.map(lambda _: post(running, body), range(100)))
    assert set(statuses) <= {200, 503}
    assert statuses[200]
    assert max_resident_mebibytes(running) - before < 120
    with agent(running, PRIVATE, "http") as opened_agent:
        assert opened_agent.call("query_streams", sql="select 1 as one")["row_count"] == 1


def max_resident_mebibytes(service: Service) -> int:
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def test_the_mcp_library_is_loaded_lazily(start: Start) -> None:
    running = start()
    assert not _has_loaded(running, "pydantic_core")
    assert post(running, b"{}", key="").status_code == 401
    assert not _has_loaded(running, "pydantic_core")
    with agent(running, PRIVATE, "http") as opened_agent:
        assert opened_agent.tools()
    assert _has_loaded(running, "pydantic_core")


def _has_loaded(service: Service, library: str) -> bool:
    return library in Path(f"/proc/{service.process.pid}/maps").read_text()


def test_without_the_mcp_extra_an_error_names_what_to_install(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')\n")
    path = os.pathsep.join((str(tmp_path), *filter(None, (os.environ.get("PYTHONPATH"),))))
    running = start(env={"PYTHONPATH": path})
    answer = post(running, b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}')
    assert answer.status_code == 501
    assert "pip install 'cordwood[mcp]'" in answer.text
    reply = run_command(running, PRIVATE, PYTHONPATH=path)
    assert reply.returncode == 1
    assert "pip install 'cordwood[mcp]'" in reply.stderr


def test_the_route_of_the_own_key_returns_its_permissions(service: Service) -> None:
    reply = service.client.get("/api/key").json()
    assert reply["scopes"] == "private"
    assert {endpoint["name"] for endpoint in reply["endpoints"]} == {"logs.all", "logs.all.otel", "usage.api-counts"}
    pinned = new_key(service, "--scope", "query", "--pin", "project=acme", "--rate", "5/s", "--redact", "always")
    reply = service.client.get("/api/key", headers={"X-API-KEY": pinned}).json()
    assert (reply["pins"], reply["redact"], reply["rate"]) == ({"project": "acme"}, True, "5/s")
    assert all("project" not in endpoint["parameters"]["properties"] for endpoint in reply["endpoints"])
    key_without_endpoints = new_key(service, "--scope", "query", "--pin", "nothing=has_this")
    assert service.client.get("/api/key", headers={"X-API-KEY": key_without_endpoints}).json()["endpoints"] == []
    endpoint_key = new_key(service, "--scope", "ingest query:endpoint:usage.api-counts")
    reply = service.client.get("/api/key", headers={"X-API-KEY": endpoint_key}).json()
    assert [endpoint["name"] for endpoint in reply["endpoints"]] == ["usage.api-counts"]
    for item in reply["endpoints"]:
        Draft202012Validator.check_schema(item["parameters"])
    assert httpx.get(f"{service.url}/api/key").status_code == 401


def test_a_key_for_an_agent_has_default_terms_that_options_override(service: Service) -> None:
    folder = ("--data-dir", str(service.data_dir))
    for terms, reply in (
        (("--for-agent",), "scopes query, redact always"),
        (("--for-agent", "--endpoint", "logs.all"), "scopes query:endpoint:logs.all, redact always"),
        (("--for-agent", "--scope", "private", "--redact", "never"), "scopes private."),
        (("--scope", "query", "--redact", "never"), "scopes query."),
    ):
        result = run_keys("create", *terms, *folder)
        assert result.returncode == 0, result.stderr
        assert reply in result.stderr
        assert ("/mcp" in result.stderr) is ("--for-agent" in terms)
        assert result.stdout.strip() not in result.stderr
    refused = run_keys("create", "--endpoint", "logs.all", *folder)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "A key needs a scope. Give --scope, or --for-agent." in refused.stderr
