"""The Timeline page, which shows several whole streams together, for a private key.

The tests count the steps of a person. Seeing the events of one's own stream takes 2 steps from Explore, or 3 from
Streams. Seeing them beside the events of another stream takes 4. Selecting one project takes 2 more.
"""

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import ALL_LOOKS, OpenTab, Tab, copy_with
from tests.browser.test_accessible import load_axe, serious_faults
from tests.browser.test_explore import chosen_project, event_count
from tests.browser.test_where_events_are import MARKUP, known_values, listed_values, new_name

ROW_SELECTOR = ".events tbody tr.row"
SECOND_US = 1_000_000


def new_stream(tab: Tab, *events: dict[str, Any], name: str = "") -> str:
    """Create a stream that no endpoint reads, and store these events in it."""
    name = name or new_name("own.app")
    tab.post("/api/sources", {"name": name})
    if events:
        tab.send(name, *events)
    return name


def ten_minutes_ago() -> int:
    return time.time_ns() // 1000 - 600 * SECOND_US


def events_of_lines(*texts: str, began: int | None = None, **fields: Any) -> list[dict[str, Any]]:
    """Return an event for each line. The first event is ten minutes old, and each next event is two seconds later."""
    first = began or ten_minutes_ago()
    return [{"event_message": text, "timestamp": first + n * 2 * SECOND_US, **fields} for n, text in enumerate(texts)]


def stream_chooser(page: Page) -> Locator:
    page.get_by_role("button", name=re.compile("^Streams: ")).click()
    return page.get_by_role("dialog", name="Streams")


def test_two_streams_are_shown_together_in_four_steps(tab: Tab) -> None:
    project, began = new_name(), ten_minutes_ago()
    own = new_stream(tab, *events_of_lines("own 0", "own 1", "own 2", began=began))
    other = new_stream(tab, *events_of_lines("other 0", "other 1", began=began + SECOND_US, project=project))
    page = tab.open("explore?range=1h")
    page.get_by_role("link", name="Several streams").click()
    page.get_by_role("link", name=re.compile(own)).click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(3)
    panel = stream_chooser(page)
    panel.get_by_label(re.compile(other)).check()
    rows = page.locator(ROW_SELECTOR)
    expect(rows).to_have_count(5)
    # Rows are sorted with the newest first, and show their stream.
    for n, (text, stream) in enumerate(
        [("own 2", own), ("other 1", other), ("own 1", own), ("other 0", other), ("own 0", own)]
    ):
        expect(rows.nth(n)).to_contain_text(text)
        expect(rows.nth(n)).to_contain_text(stream)
    expect(page.locator(".summary")).to_have_text("5 events of 2 streams.")
    expect(page.locator(".legend-entry")).to_have_text([f"{own}3", f"{other}2"])
    assert event_count(page) == 5
    page.keyboard.press("Escape")
    page.reload()
    expect(rows).to_have_count(5)
    page.go_back()
    expect(rows).to_have_count(3)
    page.go_forward()
    expect(rows).to_have_count(5)
    # The filter shows only the events of one project.
    page.get_by_role("button", name="Known values").click()
    expect(listed_values(page)).to_have_text([f"{project}2"])
    listed_values(page).click()
    expect(rows).to_have_count(2)
    assert f"project={project}" in chosen_project(page)


def test_the_streams_page_links_to_the_events_of_a_stream(tab: Tab) -> None:
    own = new_stream(tab, *events_of_lines("mine"))
    page = tab.open("streams")
    page.get_by_role("link", name=own).click()
    expect(page.get_by_role("heading", name=own)).to_be_visible()
    page.get_by_role("link", name="Show its events").click()
    expect(page.locator(ROW_SELECTOR)).to_contain_text("mine")


def test_a_view_without_rows_links_to_a_stream_with_events(tab: Tab) -> None:
    page = tab.open("explore?range=1h&p.project=nobody")
    page.locator(".whereabouts").get_by_role("link", name="cloudflare.logs.prod").click()
    expect(page.locator(ROW_SELECTOR).first).to_contain_text("cloudflare.logs.prod")


def test_a_row_expands_to_its_event_and_words_and_fields_filter(tab: Tab) -> None:
    own = new_stream(tab, *events_of_lines("first", "second", metadata={"level": "info", "deep": {"n": 1}}))
    tab.send(own, *events_of_lines(f"third {MARKUP}", metadata={"level": "error", "deep": {"n": 2}}))
    page = tab.open(f"timeline?range=1h&streams={own},{new_stream(tab)}")
    expect(page.locator(ROW_SELECTOR, has_text=own)).to_have_count(3)
    page.locator(ROW_SELECTOR, has_text="third").locator(".toggle").click()
    page.locator(".tree").get_by_role("button", name="error", exact=True).click()
    expect(page.get_by_label("Search")).to_have_value("m.level:error")
    expect(page.locator(ROW_SELECTOR, has_text=own)).to_have_count(1)
    expect(page.locator("main img")).to_have_count(0)
    page.get_by_label("Search").fill("m.deep.n:1 second")
    page.get_by_label("Search").press("Enter")
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    expect(page.locator(ROW_SELECTOR)).to_contain_text("second")
    expect(page.locator(".summary")).to_have_text("One event of 2 streams.")
    tab.expect_refusal(400)
    page.get_by_label("Search").fill("(")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("never closed")


def test_stream_names_are_quoted_in_queries(tab: Tab) -> None:
    odd = new_stream(tab, *events_of_lines("of the odd one", "else"), name=f"""{new_name()}' \\ " 50%, or 1=1; <b>""")
    page = tab.open("timeline?range=1h&q=one")
    stream_chooser(page).get_by_label(odd).check()
    page.keyboard.press("Escape")
    rows = page.locator(ROW_SELECTOR)
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(odd)
    rows.locator(".toggle").click()
    expect(page.locator(".tree")).to_contain_text("of the odd one")
    page.reload()
    expect(rows).to_have_count(1)
    page.get_by_label("Search").fill("")
    page.get_by_label("Search").press("Enter")
    expect(rows).to_have_count(2)


def test_a_failing_stream_is_named_and_the_others_are_shown(tab: Tab) -> None:
    own, other = new_stream(tab, *events_of_lines("mine")), new_stream(tab, *events_of_lines("of the other"))
    tab.expect_refusal(503)
    error = {"error": {"code": 503, "status": "engine.unreachable", "message": "The engine is away."}}
    tab.page.route(re.compile(f"api/query.*{other}"), lambda route: route.fulfill(status=503, json=error))
    page = tab.open(f"timeline?range=1h&streams={own},{other},gone")
    expect(page.get_by_role("alert")).to_contain_text(f"{other}: The engine is away.")
    expect(page.get_by_role("alert")).to_contain_text("There is no stream gone.")
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    expect(page.locator(ROW_SELECTOR)).to_contain_text("mine")


@pytest.mark.parametrize("span", ["99999999999999999d", f"{'1' * 31}~{'2' * 31}"])
def test_a_range_with_too_many_digits_is_replaced_by_the_default(tab: Tab, span: str) -> None:
    """Ignore a range with too many digits.

    Otherwise the loop over the ticks of its time axis would not end, so that a link could block the tab.
    """
    own = new_stream(tab, *events_of_lines("mine"))
    page = tab.open(f"timeline?streams={own}&range={span}")
    expect(page.locator(ROW_SELECTOR)).to_contain_text("mine")


def test_further_rows_are_appended_and_a_link_has_streams_and_time(tab: Tab) -> None:
    own = new_stream(tab, *events_of_lines(*(f"line {n}" for n in range(150))))
    page = tab.open(f"timeline?range=1h&streams={own}")
    expect(page.locator(".summary")).to_have_text(f"The newest 100 of 150 events of {own}.")
    page.get_by_role("button", name="Show more").click()
    expect(page.locator(".summary")).to_have_text(f"150 events of {own}.")
    link = copy_with(page, page.get_by_role("button", name="Copy a link"))
    expect(page.locator("#told")).to_contain_text("clipboard")
    assert re.search(r"range=\d+%7E\d+", link)
    assert f"streams={own}" in link


def test_a_view_without_rows_links_to_the_newest_events(tab: Tab) -> None:
    old_event = {"event_message": "old", "timestamp": time.time_ns() // 1000 - 86_400 * SECOND_US}
    page = tab.open(f"timeline?range=15m&streams={new_stream(tab, old_event)}")
    page.get_by_role("link", name="Look at the newest events").click()
    expect(page.locator(ROW_SELECTOR)).to_contain_text("old")


def test_at_most_eight_streams_are_shown_at_once(tab: Tab) -> None:
    names = [new_stream(tab) for _ in range(9)]
    page = tab.open(f"timeline?range=1h&streams={','.join(names)}")
    expect(page.get_by_role("alert")).to_contain_text("Only the first 8 streams of the link are shown.")
    panel = stream_chooser(page)
    expect(panel).to_contain_text("At most 8 at once.")
    expect(panel.get_by_label(re.compile(names[8]))).to_be_disabled()
    panel.get_by_label(re.compile(names[0])).uncheck()
    expect(panel.get_by_label(re.compile(names[8]))).to_be_enabled()


@pytest.mark.parametrize("terms", [{"scopes": "query"}, {"scopes": "private", "pins": {"project": "acme"}}])
def test_only_private_keys_see_whole_streams(tab: Tab, terms: dict[str, Any]) -> None:
    tab.expect_refusal(403)
    tab.demo = replace(tab.demo, key=tab.new_key(**terms))
    page = tab.open("explore?range=7d&p.project=acme")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    expect(page.get_by_role("link", name="Several streams")).to_have_count(0)
    page.goto(f"{tab.demo.url}/#timeline?streams=gotrue.logs.prod")
    expect(page.get_by_text("Whole streams are shown for a private key without pins.")).to_be_visible()


@ALL_LOOKS
def test_the_page_is_accessible_and_fits_the_screen(open_tab_with_look: OpenTab, width: int, scheme: str) -> None:
    tab = open_tab_with_look(width, scheme)
    page = tab.open("timeline")
    load_axe(page)
    expect(page.locator(".whereabouts")).to_be_visible()
    tab.save_screenshot("begins")
    assert serious_faults(page) == []
    names = "cloudflare.logs.prod,gotrue.logs.prod,postgres.logs,realtime.logs.prod"
    page.goto(f"{tab.demo.url}/#timeline?range=24h&streams={names}")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    event_count(page)
    stream_chooser(page)
    tab.save_screenshot("streams")
    assert serious_faults(page) == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name=re.compile("^Streams: 4"))).to_be_focused()
    known_values(page).click()
    expect(listed_values(page).first).to_be_visible()
    tab.save_screenshot("projects")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
