"""The tools that an agent is offered for a key, and the requests that these tools send to the service."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cordwood.agents.api import ApiCall, ApiResponse, KeyPermissions, OnChunk, QueryableEndpoint
from cordwood.agents.mcp_server import answer_message
from cordwood.agents.toolset import (
    ToolAnswer,
    agent_instructions,
    call_tool,
    create_tools_for_key,
    quote_sql_identifier,
    quote_sql_string,
)
from cordwood.sql.parse import parse_sql


def endpoint(name: str, token: str = "0" * 8, **changes: Any) -> QueryableEndpoint:
    schema = {"type": "object", "properties": {"project": {"type": "string"}}, "required": ["project"]}
    offered = QueryableEndpoint(name, token, "Describes something.", "bq_sql", True, 1000, schema)  # noqa: FBT003 - as declared
    return msgspec.structs.replace(offered, **changes)


def key_view(
    *endpoints: QueryableEndpoint, scopes: str = "query", pins: Mapping[str, str] | None = None
) -> KeyPermissions:
    return KeyPermissions("7", scopes, pins or {}, False, None, endpoints)  # noqa: FBT003 - as declared


class RecordingApi:
    """An API that answers each call with the next scripted reply, and records the calls."""

    def __init__(self, of_key: KeyPermissions, *replies: tuple[ApiResponse, bytes]) -> None:
        self.calls: list[ApiCall] = []
        self._view = of_key
        self._replies = list(replies)

    async def fetch_permissions(self) -> KeyPermissions:
        return self._view

    async def send(self, call: ApiCall, take: OnChunk) -> ApiResponse:
        self.calls.append(call)
        reply, body = self._replies.pop(0)
        if reply.status < 400:
            take(body)
        return reply


def call_agent_tool(api: RecordingApi, tool: str, **arguments: Any) -> ToolAnswer:
    return asyncio.run(call_tool(api, tool, arguments))


NDJSON = ("content-type", "application/x-ndjson")
OK_REPLY = ApiResponse(200, [NDJSON])


def test_names_of_tools_are_valid_and_unique() -> None:
    names = ["a.b", "a b", "a/b", "query", "é" * 100, "x" * 100, "list_tables", "..."]
    offered = [endpoint(name, f"{number:08}-0000") for number, name in enumerate(names)]
    tools = [tool.name for tool in create_tools_for_key(key_view(*offered))]
    assert len(set(tools)) == len(tools)
    for name in tools:
        assert 0 < len(name) <= 64
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    assert {"query", "list_tables", "query_00000003", "list_tables_00000006"} <= set(tools)


def test_a_parameter_of_the_endpoint_has_precedence_over_max_rows() -> None:
    schema = {"type": "object", "properties": {"max_rows": {"type": "string"}}, "required": []}
    api = RecordingApi(key_view(endpoint("e", parameters=schema)), (OK_REPLY, b""))
    assert not call_agent_tool(api, "e", max_rows="all").is_error
    assert api.calls[0].body_parameters == {"max_rows": "all"}


@pytest.mark.parametrize("max_rows", [0, -1, 1.5, "5", True, [1]])
def test_an_invalid_number_of_rows_is_refused_without_a_request(max_rows: object) -> None:
    api = RecordingApi(key_view(endpoint("e")))
    assert call_agent_tool(api, "e", project="x", max_rows=max_rows).is_error
    assert call_agent_tool(api, "query", endpoint="e", sql="select 1", max_rows=max_rows).is_error
    assert api.calls == []


def test_every_schema_is_valid_and_names_the_endpoints() -> None:
    for of_key in (key_view(), key_view(endpoint("a"), endpoint("b")), key_view(endpoint("a"), scopes="private")):
        for tool in create_tools_for_key(of_key):
            Draft202012Validator.check_schema(tool.argument_schema)
    query = next(tool for tool in create_tools_for_key(key_view(endpoint("a"), endpoint("b"))) if tool.name == "query")
    assert query.argument_schema["properties"]["endpoint"]["enum"] == ["a", "b"]


@pytest.mark.parametrize(
    ("of_key", "names"),
    [
        (key_view(), set()),
        (key_view(endpoint("e", sandboxable=False)), {"e"}),
        (key_view(endpoint("e")), {"e", "query", "list_tables", "read_event"}),
        (key_view(endpoint("e", language="ch_sql")), {"e", "query", "list_tables"}),
        (key_view(scopes="private"), {"list_streams", "query_streams", "read_event"}),
        (key_view(scopes="private", pins={"project": "x"}), {"list_streams"}),
        (key_view(scopes="ingest public"), set()),
    ],
)
def test_the_tools_follow_the_permissions_of_the_key(of_key: KeyPermissions, names: set[str]) -> None:
    assert {tool.name for tool in create_tools_for_key(of_key)} == names


def test_the_instructions_for_an_agent_mention_pins_and_redaction() -> None:
    text = agent_instructions(msgspec.structs.replace(key_view(endpoint("e"), pins={"project": "acme"}), redact=True))
    assert "project = acme" in text
    assert "redacted" in text


def test_truncation_is_stated_even_if_a_streamed_answer_has_no_header() -> None:
    rows = b'{"n": 1}\n' * 5
    ndjson_reply = ApiResponse(
        200, [NDJSON, ("cordwood-truncated", "max_rows=5"), ("cordwood-notice", "one"), ("cordwood-notice", "two")]
    )
    for reply, limit in ((ndjson_reply, 1000), (OK_REPLY, 5)):
        api = RecordingApi(key_view(endpoint("e", max_limit=limit)), (reply, rows))
        answer = json.loads(call_agent_tool(api, "e", project="x", max_rows=100).text)
        assert "at most 5 rows" in answer["truncated"] or "max_rows=5" in answer["truncated"]
    reply_with_header = call_agent_tool(
        RecordingApi(key_view(endpoint("e")), (ndjson_reply, rows)), "e"
    ).text.partition('"rows":')[0]
    assert '"notices":["one","two"]' in reply_with_header
    assert '"truncated":' in reply_with_header


@pytest.mark.parametrize(
    "body",
    [b"", b"not json", b'{"error": "\xff"}', b"[]", b"{}", b'{"error": 5}', b'{"error": {"line": "x"}}', b"[" * 9999],
)
def test_any_error_body_becomes_text(body: bytes) -> None:
    answer = call_agent_tool(RecordingApi(key_view(endpoint("e")), (ApiResponse(502, [], body), b"")), "e", project="x")
    assert answer.is_error
    assert "502" in answer.text or "None" not in answer.text


@pytest.mark.parametrize("text", ["x", "'", "\\", "\\'", "a'b\\c", "';--", "'''", '"', "`", "é", "@p", "{x}"])
def test_quoted_texts_and_names_are_parsed_back_unchanged(text: str) -> None:
    tree = parse_sql(f"select {quote_sql_string(text)} as v from {quote_sql_identifier(text)} as t").tree
    (literal,) = [node for node in tree.walk() if type(node).__name__ == "Literal"]
    assert literal.name == text
    (table,) = [node for node in tree.walk() if type(node).__name__ == "Table"]
    assert table.name == text


class FailingApi(RecordingApi):
    """An API whose second call raises an unexpected exception, as a bug does."""

    async def fetch_permissions(self) -> KeyPermissions:
        if self.calls:
            raise RuntimeError
        self.calls.append(ApiCall("/"))
        return await super().fetch_permissions()


def test_an_unexpected_failure_is_raised_and_not_shown_to_the_agent() -> None:
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    headers = [(b"content-type", b"application/json"), (b"accept", b"application/json, text/event-stream")]
    with pytest.raises(RuntimeError):
        asyncio.run(answer_message(FailingApi(key_view()), headers, body))


class AcceptingApi(RecordingApi):
    """An API that answers every call with one event."""

    async def send(self, call: ApiCall, take: OnChunk) -> ApiResponse:
        self.calls.append(call)
        if call.accepted_media_type == "application/json":
            take(
                b'{"sub_queries": []}'
                if call.path.endswith("/scope")
                else b"[]"
                if call.path == "/api/sources"
                else b"{}"
            )
            return ApiResponse(200, [])
        take(b'{"id": "1", "timestamp": 5}\n')
        return OK_REPLY


@settings(max_examples=150)
@given(st.data())
def test_a_tool_accepts_exactly_what_its_schema_allows(data: st.DataObject) -> None:
    of_key = key_view(endpoint("e"), endpoint("f"), scopes=data.draw(st.sampled_from(["query", "private"])))
    tool = data.draw(st.sampled_from(create_tools_for_key(of_key)))
    names = st.sampled_from([*tool.argument_schema["properties"], "other"])
    values: st.SearchStrategy[object] = st.sampled_from(
        ["e", "text", "", "\n", "x" * 301, 0, 5, 20, 21, 1001, -1, 1.5, True, None, [], {}, {"project": "x"}]
    )
    arguments = data.draw(st.dictionaries(names, values, max_size=5))
    is_allowed = Draft202012Validator(tool.argument_schema).is_valid(arguments)
    api = AcceptingApi(of_key)
    answer = call_agent_tool(api, tool.name, **arguments)
    if not is_allowed and tool.name in ("e", "f"):
        # An argument of an endpoint's own tool may be wrong, because the service checks the endpoint's parameters.
        return
    if not is_allowed:
        assert answer.is_error
        assert api.calls == []
    elif tool.name == "query" and bool(arguments.get("sql")) is bool(arguments.get("lql")):
        assert "Send either sql or lql." in answer.text
    else:
        assert "arguments are wrong" not in answer.text
        assert "There is no argument" not in answer.text
