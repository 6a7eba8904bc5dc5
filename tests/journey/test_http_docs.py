"""The page /docs, which is the OpenAPI document as HTML, and is complete without its script."""

import os
import re
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.debian import require_program
from tests.journey.conftest import PRIVATE, Service

VOID_ELEMENTS = {"meta", "link", "br", "img", "input", "hr"}


class ParsedPage(HTMLParser):
    """A parsed page: its elements with their attributes, the texts by tag, and the elements that are open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID_ELEMENTS:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def attributes(self, name: str) -> list[str]:
        return [value for _, attrs in self.elements if (value := attrs.get(name)) is not None]

    def text(self) -> str:
        return " ".join(text for tag, texts in self.texts.items() if tag != "style" for text in texts)


@pytest.fixture(scope="module")
def docs_response(service: Service) -> httpx.Response:
    return httpx.get(f"{service.url}/docs")


@pytest.fixture(scope="module")
def docs_page(docs_response: httpx.Response) -> ParsedPage:
    return ParsedPage(docs_response.text)


@pytest.fixture(scope="module")
def openapi_document(service: Service) -> Any:
    return service.client.get("/api/openapi.json").json()


def test_the_page_is_complete_and_needs_no_key(docs_response: httpx.Response, docs_page: ParsedPage) -> None:
    assert docs_response.status_code == 200
    assert docs_response.headers["content-type"] == "text/html; charset=utf-8"
    assert docs_page.open == []
    assert ("html", {"lang": "en"}) in docs_page.elements


def test_the_page_has_the_explorers_security_policy_and_loads_only_own_files(
    service: Service, docs_response: httpx.Response, docs_page: ParsedPage
) -> None:
    explorer = httpx.get(f"{service.url}/", headers={"Accept": "text/html"})
    assert docs_response.headers["content-security-policy"] == explorer.headers["content-security-policy"]
    assert not [tag for tag, _ in docs_page.elements if tag in ("style", "iframe", "form", "object")]
    assert not docs_page.attributes("style")
    assert not [name for _, attrs in docs_page.elements for name in attrs if name.startswith("on")]
    files = [
        href for href in (*docs_page.attributes("src"), *docs_page.attributes("href")) if href.startswith("explorer/")
    ]
    assert {file.rpartition("/")[2] for file in files} == {"style.css", "docs.css", "docs.js", "mark.svg"}
    for file in files:
        assert httpx.get(f"{service.url}/{file}").status_code == 200, file


def test_the_page_links_to_every_page_of_the_explorer(docs_page: ParsedPage) -> None:
    other_links = {href for href in docs_page.attributes("href") if href[0] != "#" and not href.startswith("explorer/")}
    tabs = {f"./#{name}" for name in ("explore", "endpoints", "alerts", "streams", "service")}
    assert other_links == tabs | {"docs", "api/openapi.json", "api/client.py"}


def test_with_a_trailing_slash_it_redirects_to_where_its_links_work(service: Service) -> None:
    docs_response = httpx.get(f"{service.url}/docs/")
    assert docs_response.status_code == 308
    assert docs_response.next_request is not None
    assert str(docs_response.next_request.url) == f"{service.url}/docs"


OTHER_IDS = {"operations", "account", "told"}


def test_every_operation_is_listed_once_and_linked_from_the_list_of_its_tag(
    docs_page: ParsedPage, openapi_document: Any
) -> None:
    ids = [operation["operationId"] for verbs in openapi_document["paths"].values() for operation in verbs.values()]
    assert sorted(id_ for id_ in docs_page.attributes("id") if id_ not in OTHER_IDS) == sorted(ids)
    first, *targets = [href[1:] for href in docs_page.attributes("href") if href.startswith("#")]
    assert first == "operations"
    assert sorted(targets) == sorted(ids)
    assert targets[:2] == [
        openapi_document["paths"]["/api/endpoints/query/logs.all"][verb]["operationId"] for verb in ("get", "post")
    ]
    assert [text for text in docs_page.texts["h2"] if text] == [tag["name"] for tag in openapi_document["tags"]]
    for path in openapi_document["paths"]:
        assert path in docs_page.texts["code"]


def test_every_operation_has_a_summary(docs_page: ParsedPage, openapi_document: Any) -> None:
    for verbs in openapi_document["paths"].values():
        for operation in verbs.values():
            assert operation["summary"] in docs_page.texts["strong"]
    shipped = openapi_document["paths"]["/api/endpoints/query/usage.api-counts"]["get"]
    assert shipped["summary"].startswith("Requests to the gateway per time bucket")
    assert shipped["x-cordwood-endpoint"] == "usage.api-counts"


def test_an_endpoint_is_shown_with_its_parameters_and_columns(docs_page: ParsedPage) -> None:
    text = docs_page.text()
    assert "interval" in text
    assert "one of: hourly, daily, minutely" in text
    assert "total_realtime_requests" in text
    assert "integer or null" in text


def test_no_level_of_headings_is_skipped(docs_page: ParsedPage) -> None:
    levels = [int(tag[1]) for tag, _ in docs_page.elements if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_a_curl_command_has_the_required_parameters(docs_page: ParsedPage) -> None:
    command = next(text for text in docs_page.texts["code"] if "curl" in text and "/usage.api-counts" in text)
    assert command.splitlines() == [
        'curl -sSG "$CORDWOOD_URL/api/endpoints/query/usage.api-counts" \\',
        '  -H "X-API-KEY: $CORDWOOD_KEY" \\',
        "  --data-urlencode interval=hourly \\",
        "  --data-urlencode project=default",
    ]


def test_curl_commands_that_only_read_can_be_run(service: Service, docs_page: ParsedPage) -> None:
    require_program("curl", "curl")
    environment = {**os.environ, "CORDWOOD_URL": service.url, "CORDWOOD_KEY": PRIVATE}
    commands = [text for text in docs_page.texts["code"] if re.match(r'curl -sSG? "', text) and "{" not in text]
    assert len(commands) > 12
    for command in commands:
        # The answer to a followed query does not end, so curl exits with 28 at its time limit.
        limit, ends = ("-m 1", 28) if "/tail/" in command else ("", 0)
        run = subprocess.run(
            ["bash", "-c", f"{command} {limit} -f -o /dev/null"], env=environment, capture_output=True, check=False
        )
        assert run.returncode == ends, (command, run.stderr)


def test_descriptions_of_endpoints_are_escaped(start: Any, tmp_path: Any) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "x.sql").write_text(
        '/*\nname = "x"\ndescription = "<script>alert(1)</script>"\n*/\nselect 1 as `<img src=x>`\n'
    )
    running = start("--endpoints", str(tmp_path / "queries"))
    page = ParsedPage(httpx.get(f"{running.url}/docs").text)
    assert [tag for tag, _ in page.elements if tag in ("script", "img")] == ["script", "img"]
    assert "<script>alert(1)</script>" in page.text()
