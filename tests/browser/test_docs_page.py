"""The page at /docs in a browser: its look, its code examples, and its forms that send requests."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import ALL_LOOKS, NARROW, WIDE, OpenTab, Tab
from tests.browser.test_accessible import REPORTED_IMPACTS, load_axe, serious_faults
from tests.debian import require_program

COUNTS_PATH = "/api/endpoints/query/usage.api-counts"
LANGUAGES = ("curl", "Python", "JavaScript")


def open_docs_page(tab: Tab, *, with_key: bool = False) -> Page:
    """Return the page after its script has run."""
    if with_key:
        tab.open()
    tab.page.goto(f"{tab.demo.url}/docs")
    expect(tab.page.locator("body[data-ready=yes]")).to_have_count(1)
    return tab.page


def operation(page: Page, verb: str, path: str) -> Locator:
    return page.locator("article", has=page.get_by_role("heading", name=f"{verb} {path}", exact=True))


def open_operation(page: Page, verb: str, path: str) -> Locator:
    """Return an operation with its form open."""
    section = operation(page, verb, path)
    section.get_by_role("button", name="Try it").click()
    return section


def faults_in(page: Page, selector: str) -> Any:
    """Return the faults that axe finds in a part of the page, because checking the whole page takes seconds."""
    load_axe(page)
    violations = page.evaluate(
        "selector => axe.run(document.querySelector(selector), {resultTypes: ['violations']})", selector
    )
    return [fault["id"] for fault in violations["violations"] if fault["impact"] in REPORTED_IMPACTS]


def send_request(opened_operation: Locator) -> None:
    opened_operation.get_by_role("button", name="Send", exact=True).click()


@ALL_LOOKS
def test_the_page_looks_like_the_explorer_in_all_widths_and_schemes(
    open_tab_with_look: OpenTab, width: int, scheme: str
) -> None:
    tab = open_tab_with_look(width, scheme)
    styles = """() => ['body', '.top', '.brand']
        .map(one => getComputedStyle(document.querySelector(one)))
        .map(style => [style.color, style.fontFamily, style.fontSize, style.backgroundColor, style.padding])"""
    explorer = tab.open(with_key=False).evaluate(styles)
    page = open_docs_page(tab)
    assert page.evaluate(styles) == explorer
    expect(page.get_by_role("heading", level=1)).to_have_text("cordwood API")
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    tab.save_screenshot("docs")
    opened_operation = open_operation(page, "POST", COUNTS_PATH)
    expect(opened_operation.get_by_label("Body", exact=True)).to_be_visible()
    page.get_by_role("button", name="Use a key").click()
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    # Axe examines only some operations, because it takes half a minute for all of them.
    page.evaluate(
        "() => document.querySelectorAll('.operation + .operation:not(:has(form))').forEach(one => one.remove())"
    )
    load_axe(page)
    assert serious_faults(page) == []
    page.keyboard.press("Escape")
    opened_operation.scroll_into_view_if_needed()
    tab.save_screenshot("docs-form")


def test_the_key_is_kept_on_the_way_to_the_explorer_and_back(open_tab_with_look: OpenTab) -> None:
    tab = open_tab_with_look(WIDE)
    page = tab.open()
    page.get_by_role("link", name="API").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("cordwood API")
    expect(page.get_by_role("button", name=f"…{tab.demo.key[-4:]}")).to_be_visible()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Streams").click()
    expect(page.locator('.tabs [aria-current="page"]')).to_have_text("Streams")
    expect(page.locator(".gate")).to_have_count(0)


def test_operations_are_listed_by_tag_found_by_words_and_reached_by_keyboard(open_tab_with_look: OpenTab) -> None:
    page = open_docs_page(open_tab_with_look(NARROW))
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the operations")).to_be_focused()
    listed = page.get_by_role("navigation", name="Operations")
    expect(listed.get_by_role("link", name="Delete a stream")).to_be_hidden()
    listed.get_by_role("searchbox", name="Find an operation").focus()
    page.keyboard.type("sources delete")
    expect(listed.get_by_role("link")).to_have_count(1)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(listed.get_by_role("link", name="Delete a stream")).to_be_focused()
    page.keyboard.press("Enter")
    expect(operation(page, "DELETE", "/api/sources/{name_or_id}")).to_be_in_viewport()


def test_the_page_loads_nothing_from_other_hosts_and_needs_no_key(open_tab_with_look: OpenTab) -> None:
    tab = open_tab_with_look(WIDE)
    urls: list[str] = []
    tab.page.on("request", lambda request: urls.append(request.url))
    open_docs_page(tab)
    assert urls
    assert all(url.startswith(f"{tab.demo.url}/") for url in urls)


def run_code(language: str, code: str, key: str, folder: Path) -> Any:
    """Run the code of an example in a shell, Python or Node.js, as a reader does, and return its output."""
    commands = {
        "curl": ["bash", "-c", code],
        "Python": [sys.executable, "-I", "-c", code],
        "JavaScript": ["node", "--input-type=module", "--eval", code],
    }
    environment = {**os.environ, "CORDWOOD_KEY": key}
    run = subprocess.run(
        commands[language], env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, f"{code}\n{run.stdout}\n{run.stderr}"
    return json.loads(run.stdout)


@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_the_code_runs_unchanged_and_does_not_contain_the_key(
    open_tab_with_look: OpenTab, tmp_path: Path, verb: str
) -> None:
    for command, package in (("bash", "bash"), ("curl", "curl"), ("node", "nodejs")):
        require_program(command, package)
    tab = open_tab_with_look(WIDE)
    page = open_docs_page(tab, with_key=True)
    opened_operation = open_operation(page, verb, COUNTS_PATH)
    values = {"interval": "daily", "project": 'o\'brien "é😀" $HOME `id` \\ & = %|default'}
    if verb == "GET":
        opened_operation.get_by_label("interval").select_option(values["interval"])
        opened_operation.get_by_label("project").fill(values["project"])
    else:
        opened_operation.get_by_label("Body", exact=True).fill(json.dumps(values, ensure_ascii=False))
    answer = httpx.get(tab.demo.url + COUNTS_PATH, params=values, headers={"X-API-KEY": tab.demo.key})
    assert answer.json()["result"]
    for language in LANGUAGES:
        opened_operation.get_by_role("button", name=language, exact=True).click()
        code = opened_operation.locator("pre").first.text_content() or ""
        assert "CORDWOOD_KEY" in code
        assert tab.demo.key not in page.content()
        assert run_code(language, code, tab.demo.key, tmp_path) == answer.json(), language


def test_the_language_is_chosen_for_the_whole_page(open_tab_with_look: OpenTab) -> None:
    page = open_docs_page(open_tab_with_look(WIDE))
    first, other = operation(page, "GET", COUNTS_PATH), operation(page, "DELETE", "/api/sources/{name_or_id}")
    expect(other.locator("pre").first).to_contain_text("curl -sS -X DELETE")
    first.get_by_role("button", name="Python").click()
    expect(other.locator("pre").first).to_contain_text('method="DELETE"')


def test_a_request_is_sent_with_the_key_of_the_tab(open_tab_with_look: OpenTab) -> None:
    tab = open_tab_with_look(WIDE)
    page = open_docs_page(tab)
    opened_operation = open_operation(page, "GET", COUNTS_PATH)
    send_request(opened_operation)
    expect(opened_operation.get_by_role("alert")).to_have_text(
        "This operation needs a key: give one at the top of the page."
    )
    page.get_by_role("button", name="Use a key").click()
    tab.expect_refusal(401)
    page.get_by_label("Key", exact=True).fill("mistyped")
    page.keyboard.press("Enter")
    expect(page.locator("#account").get_by_role("alert")).to_contain_text("not in force")
    page.get_by_label("Key", exact=True).fill(tab.demo.key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name=f"…{tab.demo.key[-4:]}")).to_be_visible()
    send_request(opened_operation)
    expect(opened_operation.get_by_role("status")).to_contain_text("200 OK after")
    expect(opened_operation.get_by_role("region", name="Body")).to_contain_text("total_rest_requests")
    opened_operation.get_by_text("Headers (").click()
    expect(opened_operation.locator(".call-answer dl")).to_contain_text("cordwood-rows")
    expect(opened_operation.locator(".call-answer dl")).to_contain_text("cache-status")
    assert faults_in(page, "article:has(.call-answer dl)") == []
    tab.save_screenshot("docs-answer")


def test_error_responses_are_shown_unchanged(open_tab_with_look: OpenTab) -> None:
    tab = open_tab_with_look(NARROW)
    page = open_docs_page(tab, with_key=True)
    tab.expect_refusal(400)
    opened_operation = open_operation(page, "GET", COUNTS_PATH)
    opened_operation.get_by_label("sql", exact=True).fill("select")
    send_request(opened_operation)
    expect(opened_operation.get_by_role("status")).to_contain_text("400 Bad Request after")
    expect(opened_operation.get_by_role("region", name="Body")).to_contain_text("query.syntax")
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_a_request_that_deletes_asks_for_confirmation(open_tab_with_look: OpenTab) -> None:
    tab = open_tab_with_look(WIDE)
    page = open_docs_page(tab, with_key=True)
    with httpx.Client(base_url=tab.demo.url, headers={"X-API-KEY": tab.demo.key}) as client:
        client.post("/api/sources", json={"name": "short-lived"}).raise_for_status()
        opened_operation = open_operation(page, "DELETE", "/api/sources/{name_or_id}")
        opened_operation.get_by_label("name_or_id").fill("short-lived")
        send_request(opened_operation)
        dialog = page.get_by_role("dialog", name="Send this request?")
        expect(dialog).to_contain_text("DELETE")
        assert faults_in(page, "dialog") == []
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        assert client.get("/api/sources/short-lived").status_code == 200
        send_request(opened_operation)
        dialog.get_by_role("button", name="Send it").click()
        expect(opened_operation.get_by_role("status")).to_contain_text("204 No Content after")
        assert client.get("/api/sources/short-lived").status_code == 404


def test_an_endless_answer_is_shown_while_it_arrives_and_can_be_stopped(open_tab_with_look: OpenTab) -> None:
    tab = open_tab_with_look(WIDE)
    page = open_docs_page(tab, with_key=True)
    opened_operation = open_operation(page, "GET", "/api/endpoints/tail/{name_or_id}")
    opened_operation.get_by_label("name_or_id").fill("logs.all")
    opened_operation.get_by_label("project").fill("docs-reader")
    opened_operation.get_by_label("lql", exact=True).fill("f:edge_logs s:event_message")
    opened_operation.get_by_label("since").fill("")
    send_request(opened_operation)
    expect(opened_operation.get_by_role("status")).to_contain_text("still open")
    tab.send("cloudflare.logs.prod", {"event_message": "followed", "project": "docs-reader"})
    expect(opened_operation.get_by_role("region", name="Body")).to_contain_text("event_message")
    opened_operation.get_by_role("button", name="Stop").click()
    expect(opened_operation.get_by_role("status")).to_contain_text("Stopped after")


def test_the_downloaded_client_has_the_endpoints_that_the_key_may_query(open_tab_with_look: OpenTab) -> None:
    tab = open_tab_with_look(WIDE)
    page = open_docs_page(tab, with_key=True)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download a client in Python").click()
    assert download.value.suggested_filename == "cordwood_client.py"
    text = Path(download.value.path()).read_text()
    assert "def query_logs_all(" in text
    assert tab.demo.key not in text
