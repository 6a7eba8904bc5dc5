"""Running and earlier queries: the clock and Stop, history, saved views, links, and copied code."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from urllib.parse import quote

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.browser.conftest import NARROW, WIDE, HeldRequest, OpenTab, Tab, copy_with, wait_until_true
from tests.browser.test_accessible import load_axe, serious_faults

ROW_SELECTOR = ".events tbody tr.row"
SLOW_QUERY = "select count(*) as n from unnest(generate_array(1, 60000)) as a cross join unnest(generate_array(1, 60000)) as b where mod(a * b, 7) = 3"


def run_query(page: Page, text: str) -> None:
    page.get_by_role("combobox", name="Query", exact=True).fill(text)
    page.get_by_role("button", name="Run", exact=True).click()


def wait_until_in_history(page: Page, count: int, text: str) -> None:
    """Wait until the history has `count` queries, and the address of the newest contains the text."""
    wait_until_true(
        page,
        """([count, text]) => {
          const kept = JSON.parse(sessionStorage.getItem("cordwood.history") || "[]");
          return kept.length === count && kept[0].place.includes(text);
        }""",
        [count, text],
    )


def running_queries(tab: Tab) -> list[str]:
    answer = tab.page.request.get(f"{tab.demo.url}/api/status", headers={"X-API-KEY": tab.demo.key})
    return [query["text"] for query in answer.json()["queries"]["under_way"]]


def test_a_slow_query_shows_its_time_and_is_stopped_in_the_engine_too(tab: Tab) -> None:
    page = tab.open("explore?range=7d&lang=sql&q=select%201%20as%20one")
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    run_query(page, SLOW_QUERY)
    expect(page.locator(".clock")).to_have_text(re.compile(r"^\d+\.\d s$"))
    # The rows of the previous query stay visible and are marked.
    expect(page.locator(".summary")).to_have_text("Asking. What is shown is of the query before.")
    expect(page.locator(".explore.is-behind")).to_be_visible()
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    assert SLOW_QUERY in running_queries(tab)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".summary")).to_have_text(
        re.compile(r"^Stopped after \d+\.\d s\. What is shown is of the query")
    )
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    expect(page.locator(".clock")).to_be_empty()
    page.wait_for_timeout(500)
    assert SLOW_QUERY not in running_queries(tab)
    run_query(page, "select 2 as two")
    expect(page.get_by_role("columnheader", name="two")).to_be_visible()
    expect(page.locator(".explore.is-behind")).to_have_count(0)


def test_a_slow_query_shows_its_progress(tab: Tab) -> None:
    """Replace the progress in the service's answer, because a real engine decides when it reports progress."""
    page = tab.open("explore?range=7d&lang=sql&q=select%201%20as%20one")
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    expect(page.locator(".progress")).to_be_empty()
    progress: dict[str, object] = {"part": 0.375}
    other_query = {"id": "another", "endpoint": "logs.all", "seconds": 9, "rows_read": 7, "rows_total": 7, "part": 0.1}

    def answer_progress(route: Route) -> None:
        own_query = [{**query, **progress} for query in route.fetch().json()["queries"]]
        route.fulfill(json={"queries": [other_query, *own_query]})

    page.route("**/api/queries", answer_progress)
    run_query(page, SLOW_QUERY)
    expect(page.locator(".progress")).to_have_text("37 % done")
    expect(page.locator(".clock")).to_have_text(re.compile(r"^\d+\.\d s$"))
    progress |= {"part": None, "rows_read": 1_234_567}
    expect(page.locator(".progress")).to_have_text("1.2M rows read")
    progress |= {"rows_total": 5_000_000}
    expect(page.locator(".progress")).to_have_text("1.2M of 5M rows read")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".progress")).to_be_empty()
    page.unroute_all(behavior="wait")


def test_a_refused_progress_request_is_not_repeated_or_shown(tab: Tab) -> None:
    page = tab.open("explore?range=7d&lang=sql&q=select%201%20as%20one")
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    tab.expect_refusal(403)
    lists: list[str] = []

    def refuse(route: Route) -> None:
        lists.append(route.request.url)
        route.fulfill(status=403, json={})

    page.route("**/api/queries", refuse)
    run_query(page, SLOW_QUERY)
    expect(page.locator(".clock")).to_have_text(re.compile(r"^([3-9]|\d\d)\.\d s$"))
    expect(page.locator(".progress")).to_be_empty()
    expect(page.locator("#told")).to_be_empty()
    assert len(lists) == 1
    page.get_by_role("button", name="Stop").click()
    page.unroute_all(behavior="wait")


def test_rows_are_current_while_their_bars_are_awaited(tab: Tab) -> None:
    page = tab.open("explore?range=7d")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    page.route(re.compile("/query/.*sql="), lambda _: None)
    run_query(page, "m.request.method:DELETE")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.locator(".summary")).to_contain_text("rows in")
    expect(page.locator(".explore.is-behind")).to_have_count(0)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#told")).to_contain_text("Stopped after")
    expect(page.locator(".summary")).to_contain_text("rows in")
    page.unroute_all(behavior="ignoreErrors")


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_layout_does_not_move_during_a_query(open_tab_with_look: OpenTab, width: int) -> None:
    """Check that the layout does not move during a query.

    Regression: the query bar became a line higher when it showed the time and Stop. A click on a row then missed the
    row.
    """
    tab = open_tab_with_look(width)
    bars = HeldRequest(tab.page, re.compile("/query/.*sql="))
    page = tab.open("explore?range=7d")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    positions = top_of(page, ".query-line"), top_of(page, ".table-box")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    assert (top_of(page, ".query-line"), top_of(page, ".table-box")) == positions
    bars.sent().continue_()
    expect(page.locator(".readout")).to_contain_text("events")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    # On a narrow page, the names of series are below the bars, in as many lines as they need.
    assert width == NARROW or (top_of(page, ".query-line"), top_of(page, ".table-box")) == positions


def test_endpoint_and_sub_query_can_be_read_on_a_narrow_page(open_tab_with_look: OpenTab) -> None:
    page = open_tab_with_look(NARROW).open("explore?range=7d")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    for label in ("Endpoint", "Sub-query"):
        box = page.get_by_label(label, exact=True).bounding_box()
        assert box is not None
        assert box["width"] > 100


def top_of(page: Page, selector: str) -> float:
    box = page.locator(selector).first.bounding_box()
    assert box is not None
    return box["y"]


def test_the_clock_runs_until_the_keyboard_stops_the_query(tab: Tab) -> None:
    page = tab.open("explore?range=7d")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    page.route("**/query/**", lambda _: None)
    run_query(page, "anything")
    page.get_by_role("button", name="Stop").focus()
    expect(page.locator(".clock")).to_have_text(re.compile(r"^[2-9]\.\d s$"))
    page.keyboard.press("Enter")
    expect(page.locator(".summary")).to_contain_text("Stopped after")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_focused()
    page.unroute_all(behavior="ignoreErrors")


def test_earlier_queries_are_listed_and_restore_their_project(tab: Tab) -> None:
    page = tab.open("explore?range=7d&p.project=acme")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    wait_until_in_history(page, 1, "acme")
    # The history lists a repeated query only once.
    for text, count in (("DELETE", 2), ("PUT", 3), ("DELETE", 3)):
        run_query(page, f"m.request.method:{text}")
        wait_until_in_history(page, count, text)
    page.get_by_label("project").fill("default")
    page.get_by_label("project").press("Enter")
    wait_until_in_history(page, 4, "p.project=default")
    page.get_by_role("button", name="History").click()
    menu = page.get_by_role("dialog", name="Queries before and saved views")
    expect(menu.locator("ol li")).to_have_count(4)
    expect(menu.locator("ol li").nth(1)).to_contain_text("m.request.method:DELETE")
    expect(menu.locator("ol li").nth(1)).to_contain_text("edge_logs, acme")
    menu.locator("ol li").nth(2).get_by_role("link").click()
    expect(page.get_by_role("combobox", name="Query", exact=True)).to_have_value("m.request.method:PUT")
    expect(page.get_by_label("project")).to_have_value("acme")
    page.get_by_role("button", name="History").click()
    menu.get_by_role("button", name="Clear").click()
    expect(menu).to_contain_text("None was run yet.")


def test_history_is_bounded_and_holds_no_rows(tab: Tab) -> None:
    page = tab.open("explore?range=7d")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    wait_until_in_history(page, 1, "explore")
    page.evaluate(
        """() => {
          const before = JSON.parse(sessionStorage.getItem("cordwood.history"));
          const many = Array.from({ length: 200 }, (_, n) => ({ ...before[0], place: `#explore?q=x${n}` }));
          sessionStorage.setItem("cordwood.history", JSON.stringify(many));
        }"""
    )
    run_query(page, "m.request.method:DELETE")
    wait_until_in_history(page, 50, "DELETE")
    expect(page.locator(ROW_SELECTOR).first).to_contain_text("DELETE")
    stored_text = page.evaluate("JSON.stringify([{ ...sessionStorage, 'cordwood.key': '' }, { ...localStorage }])")
    assert tab.demo.key not in stored_text
    assert "event_message" not in stored_text
    assert "https://" not in stored_text


def save_view(page: Page, name: str) -> None:
    page.get_by_role("button", name="History").click()
    page.get_by_label("Name of the view").fill(name)
    page.get_by_role("dialog").get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text(f"The view {name} is saved in this browser.")).to_be_visible()
    page.keyboard.press("Escape")


def test_a_saved_view_is_available_in_later_tabs_with_the_same_key(shared_context: BrowserContext, tab: Tab) -> None:
    page = tab.open("explore?range=3d&sub=auth_logs&p.project=acme&q=login")
    expect(page.locator(".summary")).to_contain_text("in ")
    save_view(page, "logins")
    other = shared_context.new_page()
    opened = replace(tab, page=other).open("explore")
    opened.get_by_role("button", name="History").click()
    opened.get_by_role("link", name="logins").click()
    expect(opened.get_by_label("Sub-query")).to_have_value("auth_logs")
    expect(opened.get_by_label("project")).to_have_value("acme")
    expect(opened.get_by_role("button", name="Last 3 days")).to_be_visible()
    other.close()
    other_key = tab.new_key(scopes="query")
    stranger = shared_context.new_page()
    theirs = replace(tab, page=stranger, demo=replace(tab.demo, key=other_key)).open("explore?range=7d")
    theirs.get_by_role("button", name="History").click()
    expect(theirs.get_by_role("dialog", name="Queries before")).to_be_visible()
    expect(theirs.get_by_role("link", name="logins")).to_have_count(0)
    stranger.close()
    page.get_by_role("button", name="History").click()
    page.get_by_role("button", name="Remove logins").click()
    expect(page.get_by_role("link", name="logins")).to_have_count(0)
    assert page.evaluate("localStorage.length") == 0


def test_forgetting_a_key_deletes_everything_stored_for_it(tab: Tab) -> None:
    page = tab.open("explore?range=7d&q=secret-of-this-key")
    expect(page.locator(".summary")).to_contain_text("0 rows")
    save_view(page, "mine")
    page.get_by_role("button", name="Key …").click()
    page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_role("heading", name="Paste a key")).to_be_visible()
    stored_text = page.evaluate("JSON.stringify([{ ...sessionStorage }, { ...localStorage }])")
    assert "secret-of-this-key" not in stored_text
    assert page.evaluate("localStorage.length") == 0


def test_invalid_entries_in_the_browser_storage_are_ignored(tab: Tab) -> None:
    page = tab.open("explore?range=7d")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    for text in ("{", "null", '[1, null, {"place": "javascript:alert(1)"}, {"place": "#explore?x", "owner": 1}]'):
        page.evaluate(
            "text => { localStorage.setItem('cordwood.views', text); sessionStorage.setItem('cordwood.history', text) }",
            text,
        )
        page.get_by_role("button", name="History").click()
        menu = page.get_by_role("dialog", name="Queries before and saved views")
        expect(menu).to_contain_text("None was run yet.")
        expect(menu.get_by_role("link")).to_have_count(0)
        page.keyboard.press("Escape")
    page.evaluate("localStorage.clear()")


def copy_from_save_menu(page: Page, menu_item: str) -> str:
    """Return the text that an entry of the Save menu copies."""
    page.get_by_role("button", name="Save", exact=True).click()
    text = copy_with(page, page.get_by_role("button", name=menu_item, exact=True))
    expect(page.locator("#told")).to_contain_text("is in the clipboard")
    return text


def test_a_link_has_an_absolute_time_range_and_the_project(tab: Tab) -> None:
    page = tab.open("explore?range=24h&p.project=acme&q=limit:5")
    expect(page.locator(ROW_SELECTOR)).to_have_count(5)
    ids = page.locator(ROW_SELECTOR).all_inner_texts()
    link = copy_from_save_menu(page, "Copy a link to this view")
    for part in ("endpoint=logs.all", "sub=edge_logs", "p.project=acme"):
        assert part in link
    assert re.search(r"range=\d{16}%7E\d{16}", link)
    assert tab.demo.key not in link
    page.evaluate("sessionStorage.removeItem('cordwood.project')")
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator(ROW_SELECTOR)).to_have_count(5)
    assert page.locator(ROW_SELECTOR).all_inner_texts() == ids


@pytest.mark.parametrize("query", ["q=m.request.method:DELETE limit:3", 'q="it\'s" limit:3 OR "a\\\\b"'])
def test_the_copied_python_program_returns_the_same_rows(tab: Tab, query: str) -> None:
    page = tab.open(f"explore?range=7d&{quote(query, safe='=')}")
    expect(page.locator(".summary")).to_have_text(re.compile(r"^\d+ rows? in "))
    rows = int(page.locator(".summary").inner_text().split()[0])
    program = copy_from_save_menu(page, "Copy as Python")
    assert tab.demo.key not in program
    output = subprocess.run(
        [sys.executable, "-c", program],
        env={"CORDWOOD_KEY": tab.demo.key},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    ).stdout
    assert len([json.loads(line) for line in output.splitlines()]) == rows


def test_the_copied_lql_and_sql_return_the_same_rows(tab: Tab) -> None:
    page = tab.open("explore?range=7d&q=m.request.method:DELETE limit:3")
    expect(page.locator(ROW_SELECTOR)).to_have_count(3)
    address = f"{tab.demo.url}/api/endpoints/query/logs.all"
    for language, menu_item in (("lql", "Copy as LQL"), ("sql", "Copy as SQL")):
        text = copy_from_save_menu(page, menu_item)
        assert "\n" not in text or language == "sql"
        answer = page.request.get(
            address, params={"project": "default", language: text}, headers={"X-API-KEY": tab.demo.key}
        )
        assert "result" in answer.json(), (text, answer.text())
        assert len(answer.json()["result"]) == 3, text


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_menus_are_accessible_and_fit_the_screen(open_tab_with_look: OpenTab, width: int) -> None:
    tab = open_tab_with_look(width)
    page = tab.open("explore?range=7d&q=m.request.method:DELETE limit:12")
    expect(page.locator(ROW_SELECTOR)).to_have_count(12)
    load_axe(page)
    save_view(page, "deletions")
    page.get_by_role("button", name="History").click()
    tab.save_screenshot("history")
    assert serious_faults(page) == []
    page.keyboard.press("Escape")
    page.route("**/query/**", lambda _: None)
    run_query(page, "m.request.method:PUT")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    tab.save_screenshot("running")
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.unroute_all(behavior="ignoreErrors")


def test_on_a_slow_network_the_clock_runs_until_the_answer_arrives(open_tab_with_look: OpenTab) -> None:
    """Use a connection of 1 Mbit/s with a latency of three seconds."""
    tab = open_tab_with_look(NARROW)
    page = tab.open("explore?range=7d")
    expect(page.locator(".readout")).to_contain_text("events")
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    slow = {"offline": False, "latency": 3000, "downloadThroughput": 125_000, "uploadThroughput": 125_000}
    network.send("Network.emulateNetworkConditions", slow)
    run_query(page, "m.request.method:DELETE")
    expect(page.locator(".clock")).to_have_text(re.compile(r"^\d+\.\d s$"))
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.locator(".explore.is-behind")).to_be_visible()
    expect(page.locator(".clock")).to_be_empty()
    expect(page.locator(".explore.is-behind")).to_have_count(0)
    expect(page.locator(ROW_SELECTOR).first).to_contain_text("DELETE")
