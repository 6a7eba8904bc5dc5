"""Endpoints that read other endpoints by name: rows on both engines, joined parameters, refusals, changes over HTTP."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from cordwood.app.checks import read_and_check_definitions
from cordwood.app.in_process import open_in_process_app
from cordwood.catalog.catalog import CatalogSources
from cordwood.catalog.endpoint_file import read_endpoint_file
from cordwood.errors import BrokenDefinitionFiles
from cordwood.sql import included_endpoints
from cordwood.sql.included_endpoints import MAX_INCLUSION_DEPTH, link_included_endpoints
from tests.chdb_databases import fresh_database
from tests.unit.app.test_management import ManagedService, settings_at

# Both the included endpoint and the outer endpoint have a sub-query named `edge`.
INNER_ENDPOINT = """/*
name = "errors.by.project"
[parameters.project]
required = true
*/
with edge as (select e.event_message, e.project from `cloudflare.logs.prod` e where e.project = @project)
select event_message as message from edge where event_message like 'error%'
"""
OUTER_ENDPOINT = """/*
name = "outer"
sandbox = true
[parameters.least]
type = "INT64"
default = "1"
*/
with found as (select * from errors.by.project), edge as (select 'x' as message)
select message, count(*) as n from (
  select project.message from `errors.by.project` union all
  select o.message from errors.by.project as o, edge
) group by message having count(*) >= @least order by message
"""
EVENTS = [
    {"project": "a", "event_message": "error 1"},
    {"project": "a", "event_message": "fine"},
    {"project": "b", "event_message": "error 2"},
]


def write_files(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.sql").write_text(text)
    return folder


def endpoint_text(name: str, sql: str, settings: str = "") -> str:
    return f'/*\nname = "{name}"\n{settings}\n*/\n{sql}\n'


@pytest.fixture(scope="module", params=["duckdb", "clickhouse"])
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagedService]:
    folder = tmp_path_factory.mktemp("included")
    settings = settings_at(
        folder / "data", endpoints=str(write_files(folder / "files", inner=INNER_ENDPOINT, outer=OUTER_ENDPOINT))
    )
    if request.param == "clickhouse":
        settings = msgspec.structs.replace(settings, engine=fresh_database())
    with open_in_process_app(settings) as inside:
        components = ManagedService(inside, folder)
        assert components.request("POST", "/api/logs?source_name=cloudflare.logs.prod", EVENTS)[0] == 200
        yield components


def test_an_endpoint_reads_the_rows_of_another(service: ManagedService) -> None:
    assert service.rows("outer", "project=a") == [{"message": "error 1", "n": 2}]
    assert service.rows("outer", "project=b&least=3") == []


def test_a_parameter_of_the_inner_endpoint_is_required(service: ManagedService) -> None:
    status, response = service.request("GET", "/api/endpoints/query/outer")
    assert (status, "project" in json.dumps(response)) == (400, True)
    names = [parameter["name"] for parameter in service.request("GET", "/api/endpoints/outer")[1]["parameters"]]
    assert names == ["least", "project"]


def test_a_caller_reads_the_inner_endpoint_only_through_a_sub_query(service: ManagedService) -> None:
    assert service.rows("outer", sandbox_parameters("select message from found")) == [{"message": "error 1"}]
    for text in ("select * from errors.by.project", "select * from `errors.by.project`", "select * from `edge`.`x`"):
        status, response = service.request("GET", f"/api/endpoints/query/outer?{sandbox_parameters(text)}")
        assert (status, response["type"]) == (422, "urn:cordwood:error:query.refused"), response


def sandbox_parameters(text: str) -> str:
    return urlencode({"project": "a", "sql": text})


CYCLIC_ENDPOINTS = {
    "one": endpoint_text("one", "select * from two"),
    "two": endpoint_text("two", "select * from `one`"),
}
DEEPLY_NESTED_ENDPOINTS = {
    f"e{level}": endpoint_text(
        f"e{level}", f"select * from e{level + 1}" if level <= MAX_INCLUSION_DEPTH else "select 1 as x"
    )
    for level in range(MAX_INCLUSION_DEPTH + 2)
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (CYCLIC_ENDPOINTS, r"two\.sql:5:15: The endpoints read each other: one → two → one\."),
        ({"me": endpoint_text("me", "select * from me")}, r"me\.sql:5:15: The endpoints read each other: me → me\."),
        (DEEPLY_NESTED_ENDPOINTS, r"nested more than 5 deep"),
        (
            {"a": endpoint_text("a", "select * from b"), "b": endpoint_text("b", "select 1 as x", "redact_pii = true")},
            r"a\.sql:5:15: The endpoint b redacts .* Set redact_pii = true here, too",
        ),
        (
            {
                "a": endpoint_text("a", "select * from b where x > @n", '[parameters.n]\ntype = "INT64"'),
                "b": endpoint_text("b", "select 1 as x from unnest([1]) where @n = ''", "[parameters.n]"),
            },
            r"a\.sql:6:15: The parameter n of a and the parameter n of b .* differ",
        ),
        (
            {"a": endpoint_text("a", "select y from b"), "b": endpoint_text("b", "select 1 as x")},
            r"a\.sql:5:8: .*y",
        ),
        ({"a": endpoint_text("a", "select * from logs.all.otel")}, "in clickhouse SQL"),
    ],
    ids=["cycle", "itself", "depth", "redaction", "parameters", "columns", "dialect"],
)
def test_incompatible_endpoints_are_refused_with_the_position(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    with pytest.raises(BrokenDefinitionFiles, match=expected):
        read_and_check_definitions(CatalogSources(endpoints_folder=write_files(tmp_path, **files)))


def test_a_stream_takes_precedence_over_an_endpoint_of_its_name(tmp_path: Path) -> None:
    text = endpoint_text("cloudflare.logs.prod", "select id from `cloudflare.logs.prod`")
    contents = read_and_check_definitions(CatalogSources(endpoints_folder=write_files(tmp_path, same=text)))
    assert not next(
        endpoint for endpoint in contents.endpoints if endpoint.name == "cloudflare.logs.prod"
    ).included_endpoints


def test_an_unchanged_query_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = endpoint_text("reader", r"select x from `read.me` where 'never parsed before' <> '\n'")
    endpoints = [
        read_endpoint_file("reader.sql", text),
        read_endpoint_file("me.sql", endpoint_text("read.me", "select 1 as x")),
    ]
    first = list(link_included_endpoints(endpoints, set(), []))
    monkeypatch.setattr(included_endpoints, "parse_sql", None)
    assert list(link_included_endpoints(endpoints, set(), [])) == first
    assert first[0].included_endpoints == (endpoints[1],)


@pytest.fixture
def managed_service(tmp_path: Path) -> Iterator[ManagedService]:
    with open_in_process_app(settings_at(tmp_path / "data")) as inside:
        components = ManagedService(inside, tmp_path / "data")
        components.endpoint("base.rows", "select 1 as x")
        components.endpoint("made.rows", "select x from base.rows")
        yield components


def test_a_change_of_the_inner_endpoint_applies_to_the_outer_one(managed_service: ManagedService) -> None:
    assert managed_service.rows("made.rows") == [{"x": 1}]
    assert change_endpoint(managed_service, "select 2 as x")[0] == 200
    assert managed_service.rows("made.rows") == [{"x": 2}]


@pytest.fixture
def outer_text(managed_service: ManagedService) -> str:
    """Return the stored text of an endpoint that reads another one with the parameter `p`, and names it itself."""
    managed_service.endpoint("read.one", "select 1 as n, @p as p", parameters=[{"name": "p", "type": "int64"}])
    managed_service.endpoint("made.one", "select n, p, @own as own from read.one")
    assert parameter_names(managed_service) == ["own", "p"]
    return text_of_outer(managed_service)


def test_a_put_of_what_get_returned_changes_nothing(managed_service: ManagedService, outer_text: str) -> None:
    fields = managed_service.request("GET", "/api/endpoints/made.one")[1]
    assert managed_service.request("PUT", "/api/endpoints/made.one", fields) == (200, fields)
    assert text_of_outer(managed_service) == outer_text


@pytest.mark.usefixtures("outer_text")
def test_inherited_parameters_are_not_copied_by_a_change_of_another_field(managed_service: ManagedService) -> None:
    fields = managed_service.request("GET", "/api/endpoints/made.one")[1]
    for changed in (
        {**fields, "description": "new"},
        {**fields, "query": "select n, p, 2 as two, @own as own from read.one"},
    ):
        assert managed_service.request("PUT", "/api/endpoints/made.one", changed)[0] == 200
        assert "[parameters.own]" in text_of_outer(managed_service)
        assert "[parameters.p]" not in text_of_outer(managed_service)
    inner = {"parameters": [{"name": "p", "type": "string"}]}
    assert managed_service.request("PUT", "/api/endpoints/read.one", inner)[0] == 200
    assert managed_service.rows("made.one", "p=x&own=y") == [{"n": 1, "p": "x", "two": 2, "own": "y"}]


def test_an_inherited_parameter_that_the_query_names_is_not_declared_by_a_change_of_another_field(
    managed_service: ManagedService, outer_text: str
) -> None:
    text = outer_text.replace("select n, p,", "select n, @p as p,")
    assert (
        managed_service.inside.send("PUT", "/api/endpoints/made.one", text.encode(), {"content-type": "text/plain"})[0]
        == 200
    )
    assert managed_service.request("PATCH", "/api/endpoints/made.one", {"description": "new"})[0] in {200, 204}
    fields = managed_service.request("GET", "/api/endpoints/made.one")[1]
    assert managed_service.request("PUT", "/api/endpoints/made.one", {**fields, "max_limit": 5})[0] == 200
    assert "[parameters.p]" not in text_of_outer(managed_service)


@pytest.mark.usefixtures("outer_text")
def test_a_changed_inherited_parameter_and_one_that_a_new_query_names_are_declared(
    managed_service: ManagedService,
) -> None:
    fields = managed_service.request("GET", "/api/endpoints/made.one")[1]
    described = [{**one, "description": "mine"} for one in fields["parameters"]]
    for changed in ({**fields, "parameters": described}, {**fields, "query": "select @p as p, @own as own"}):
        assert managed_service.request("PUT", "/api/endpoints/made.one", changed)[0] == 200
        assert "[parameters.p]" in text_of_outer(managed_service)
        assert parameter_names(managed_service) == ["own", "p"]


def text_of_outer(managed_service: ManagedService) -> str:
    status, _, text = managed_service.inside.send("GET", "/api/endpoints/made.one/text", b"", {})
    assert status == 200
    return text.decode()


def parameter_names(managed_service: ManagedService) -> list[str]:
    return [one["name"] for one in managed_service.request("GET", "/api/endpoints/made.one")[1]["parameters"]]


def test_a_change_that_breaks_the_outer_endpoint_is_refused(managed_service: ManagedService) -> None:
    for query in ("select 2 as y", "select x from made.rows"):
        status, response = change_endpoint(managed_service, query)
        assert status in {409, 422}, response
    status, response = managed_service.request("DELETE", "/api/endpoints/base.rows")
    assert status == 409
    assert "made.rows" in json.dumps(response)
    assert managed_service.rows("made.rows") == [{"x": 1}]


def test_a_stream_cannot_have_the_name_of_an_included_endpoint(managed_service: ManagedService) -> None:
    assert managed_service.send("base.rows", "replaced?") == 404
    assert managed_service.request("POST", "/api/sources", {"name": "base.rows"})[0] in {409, 422}
    assert managed_service.rows("made.rows") == [{"x": 1}]


def change_endpoint(managed_service: ManagedService, query: str) -> tuple[int, Any]:
    return managed_service.request("PUT", "/api/endpoints/base.rows", {"query": query})
