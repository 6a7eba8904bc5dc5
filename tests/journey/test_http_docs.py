"""The page /docs: the OpenAPI document as HTML, complete without its script."""

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

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """A parsed page: elements with attributes, texts by tag, and open elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
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
def answer(service: Service) -> httpx.Response:
    return httpx.get(f"{service.url}/docs")


@pytest.fixture(scope="module")
def page(answer: httpx.Response) -> Page:
    return Page(answer.text)


@pytest.fixture(scope="module")
def openapi_document(service: Service) -> Any:
    return service.client.get("/api/openapi.json").json()


def test_the_page_is_complete_and_needs_no_key(answer: httpx.Response, page: Page) -> None:
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert page.open == []
    assert ("html", {"lang": "en"}) in page.elements


def test_the_page_has_the_explorers_security_policy_and_loads_only_own_files(
    service: Service, answer: httpx.Response, page: Page
) -> None:
    explorer = httpx.get(f"{service.url}/", headers={"Accept": "text/html"})
    assert answer.headers["content-security-policy"] == explorer.headers["content-security-policy"]
    assert not [tag for tag, _ in page.elements if tag in ("style", "iframe", "form", "object")]
    assert not page.attributes("style")
    assert not [name for _, attrs in page.elements for name in attrs if name.startswith("on")]
    files = [href for href in (*page.attributes("src"), *page.attributes("href")) if href.startswith("explorer/")]
    assert {file.rpartition("/")[2] for file in files} == {"style.css", "docs.css", "docs.js", "mark.svg"}
    for file in files:
        assert httpx.get(f"{service.url}/{file}").status_code == 200, file


def test_the_page_links_to_every_page_of_the_explorer(page: Page) -> None:
    others = {href for href in page.attributes("href") if href[0] != "#" and not href.startswith("explorer/")}
    tabs = {f"./#{name}" for name in ("explore", "endpoints", "alerts", "streams", "service")}
    assert others == tabs | {"docs", "api/openapi.json", "api/client.py"}


def test_with_a_trailing_slash_it_redirects_to_where_its_links_work(service: Service) -> None:
    answer = httpx.get(f"{service.url}/docs/")
    assert answer.status_code == 308
    assert answer.next_request is not None
    assert str(answer.next_request.url) == f"{service.url}/docs"


OWN_IDS = {"operations", "account", "told"}


def test_every_operation_is_listed_once_and_linked_from_the_list_of_its_tag(page: Page, openapi_document: Any) -> None:
    ids = [operation["operationId"] for verbs in openapi_document["paths"].values() for operation in verbs.values()]
    assert sorted(id_ for id_ in page.attributes("id") if id_ not in OWN_IDS) == sorted(ids)
    first, *targets = [href[1:] for href in page.attributes("href") if href.startswith("#")]
    assert first == "operations"
    assert sorted(targets) == sorted(ids)
    assert targets[:2] == [
        openapi_document["paths"]["/api/endpoints/query/logs.all"][verb]["operationId"] for verb in ("get", "post")
    ]
    assert [text for text in page.texts["h2"] if text] == [tag["name"] for tag in openapi_document["tags"]]
    for path in openapi_document["paths"]:
        assert path in page.texts["code"]


def test_every_operation_has_a_summary(page: Page, openapi_document: Any) -> None:
    for verbs in openapi_document["paths"].values():
        for operation in verbs.values():
            assert operation["summary"] in page.texts["strong"]
    shipped = openapi_document["paths"]["/api/endpoints/query/usage.api-counts"]["get"]
    assert shipped["summary"].startswith("Requests to the gateway per time bucket")
    assert shipped["x-cordwood-endpoint"] == "usage.api-counts"


def test_an_endpoint_is_shown_with_its_parameters_and_columns(page: Page) -> None:
    text = page.text()
    assert "interval" in text
    assert "one of: hourly, daily, minutely" in text
    assert "total_realtime_requests" in text
    assert "integer or null" in text


def test_no_level_of_headings_is_skipped(page: Page) -> None:
    levels = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3", "h4")]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_a_curl_command_has_the_required_parameters(page: Page) -> None:
    command = next(text for text in page.texts["code"] if "curl" in text and "/usage.api-counts" in text)
    assert command.splitlines() == [
        'curl -sSG "$CORDWOOD_URL/api/endpoints/query/usage.api-counts" \\',
        '  -H "X-API-KEY: $CORDWOOD_KEY" \\',
        "  --data-urlencode interval=hourly \\",
        "  --data-urlencode project=default",
    ]


def test_curl_commands_that_only_read_can_be_run(service: Service, page: Page) -> None:
    require_program("curl", "curl")
    environment = {**os.environ, "CORDWOOD_URL": service.url, "CORDWOOD_KEY": PRIVATE}
    commands = [text for text in page.texts["code"] if re.match(r'curl -sSG? "', text) and "{" not in text]
    assert len(commands) > 12
    for command in commands:
        # A followed query does not end: curl exits with 28 at its time limit.
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
    shown = Page(httpx.get(f"{running.url}/docs").text)
    assert [tag for tag, _ in shown.elements if tag in ("script", "img")] == ["script", "img"]
    assert "<script>alert(1)</script>" in shown.text()
