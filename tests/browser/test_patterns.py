"""Message patterns: templates of a query's messages with counts, and filters by such a template."""

import json
import re
import time
import uuid
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import ALL_LOOKS, OpenTab, Tab
from tests.browser.test_accessible import load_axe, serious_faults

ROW_SELECTOR = ".events tbody tr.row"
# Messages that must stay plain text in the page, in the regular expression, and in the query that contains it.
HOSTILE_MESSAGES = [
    'say "hi" 1',
    'x") OR f:postgres_logs limit:1 ("',
    "it's 1' or true --",
    r"C:\temp\new 7 (a|b)* [c] ^$ {2}",
    "<img src=x onerror=window.pwned=1> 3",
    "two\nlines 4\tand a tab",
    "already <*> and 5",
    "żółć 🙂 6",
    r"\x41 \E \Q 8",
    "@project `stream` /* 9 */",
]


def send(tab: Tab, project: str, *messages: str) -> None:
    events = [{"event_message": text, "project": project, "metadata": {"of": project}} for text in messages]
    tab.send("cloudflare.logs.prod", *events)


def new_project() -> str:
    return f"patterns-{time.monotonic_ns()}"


def login_messages(number: int) -> list[str]:
    return [
        f"user{place}@example.com from 10.0.{place}.{place} at 2026-11-2{place}T10:00:0{place}.{place}5Z ({uuid.uuid4()})"
        for place in range(number)
    ]


def patterns_panel(page: Page) -> Locator:
    return page.get_by_role("list", name="Patterns of messages").locator("li[data-template]")


def template_button(page: Page, template: str) -> Locator:
    """Return the button that filters the messages by this template."""
    return page.get_by_role("button", name=template, exact=True)


def listed_templates(page: Page) -> dict[str, int]:
    """Return the listed templates with their counts, once the list is shown."""
    expect(page.locator(".pattern-bar [role=status]")).to_have_text(re.compile(r"pattern"), timeout=30_000)
    pairs = page.evaluate(
        """() => [...document.querySelectorAll(".pattern-list li[data-template]")].map(
          (one) => [one.dataset.template, Number(one.querySelector(".pattern-count").textContent.replaceAll(",", ""))])"""
    )
    return dict(pairs)


def filter_chips(page: Page) -> Locator:
    return page.get_by_role("list", name="Filters by pattern").get_by_role("listitem")


def query_text(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Query", exact=True)


def wait_for_events(page: Page, count: int) -> None:
    expect(page.locator(".readout")).to_have_text(f"{count:,} events")


def test_messages_are_grouped_by_pattern_and_filtered_in_two_steps(tab: Tab) -> None:
    project = new_project()
    send(tab, project, *login_messages(4), "disk sda1 is 91.5 % full", "disk sdb2 is 92 % full", "shutting down")
    page = tab.open(f"explore?range=1h&p.project={project}")
    # Step 1: list the patterns.
    page.get_by_role("button", name="Patterns", exact=True).click()
    assert listed_templates(page) == {"<*> from <*> at <*> (<*>)": 4, "disk <*> is <*> % full": 2, "shutting down": 1}
    expect(page.locator(".pattern-bar [role=status]")).to_have_text("3 patterns of 7 messages.")
    assert patterns_panel(page).first.locator("svg rect").count() >= 1
    # Step 2: filter by one pattern.
    template_button(page, "disk <*> is <*> % full").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(2)
    wait_for_events(page, 2)
    expect(filter_chips(page)).to_have_text([re.compile("disk <.> is <.> % full")])
    # The filter does not change the typed query.
    expect(query_text(page)).to_have_value("")


def test_a_filter_is_removed_and_another_pattern_is_excluded(tab: Tab) -> None:
    project = new_project()
    send(tab, project, *login_messages(3), "shutting down")
    page = tab.open(f"explore?range=1h&p.project={project}&patterns=1")
    template_button(page, "shutting down").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    page.get_by_role("button", name="Remove the filter: The pattern shutting down").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(4)
    page.get_by_role("button", name="Leave out <*> from").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    expect(filter_chips(page)).to_have_text([re.compile("≠.*from")])
    assert listed_templates(page) == {"shutting down": 1}
    # The filter is in the page's address, and therefore also in links, views and the browser's history.
    page.reload()
    expect(filter_chips(page)).to_have_count(1)
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    page.go_back()
    expect(filter_chips(page)).to_have_count(0)
    expect(page.locator(ROW_SELECTOR)).to_have_count(4)


@pytest.mark.parametrize("sub", ["edge_logs", "auth_logs", "postgres_logs"])
def test_the_count_of_a_pattern_includes_the_whole_time_range(tab: Tab, sub: str) -> None:
    # The range is in the past, so that new events do not change the counts.
    day = 86_400_000_000
    until = time.time_ns() // 1000 // day * day
    page = tab.open(f"explore?range={until - 5 * day}~{until}&sub={sub}&patterns=1")
    templates = listed_templates(page)
    assert sum(templates.values()) > 50
    template, count = next(iter(templates.items()))
    patterns_panel(page).first.locator(".pattern-only").click()
    wait_for_events(page, count)
    assert filter_chips(page).locator(".chip-text").text_content() == template


def test_hostile_messages_are_shown_as_text_and_found_by_their_pattern(tab: Tab) -> None:
    project = new_project()
    send(tab, project, *HOSTILE_MESSAGES, "x" * 5000, f"{'long ' * 1000}12", "\u0001 control 2")
    page = tab.open(f"explore?range=1h&p.project={project}&patterns=1")
    templates = listed_templates(page)
    assert len(templates) == len(HOSTILE_MESSAGES) + 3
    assert max(map(len, templates)) == 300
    expect(page.locator("main img, main script")).to_have_count(0)
    for template in templates:
        index = page.evaluate(
            "(template) => [...document.querySelectorAll('.pattern-list li[data-template]')].findIndex((one) => one.dataset.template === template)",
            template,
        )
        assert index >= 0, template
        patterns_panel(page).nth(index).locator(".pattern-only").click()
        expect(page.locator(ROW_SELECTOR)).to_have_count(1)
        expect(page.locator(".editor-error")).to_be_empty()
        wait_for_events(page, 1)
        filter_chips(page).get_by_role("button").click()
        expect(page.locator(ROW_SELECTOR)).to_have_count(len(templates))
        assert listed_templates(page) == templates
    assert page.evaluate("window.pwned") is None


def test_a_pattern_applies_to_every_alternative_of_the_query(tab: Tab) -> None:
    project = new_project()
    send(tab, project, "alpha 1", "beta 2", "beta 3", "alpha two", "gamma 4")
    page = tab.open(f"explore?range=1h&p.project={project}&patterns=1&q={quote('alpha OR beta s:event_message')}")
    assert listed_templates(page) == {"beta <*>": 2, "alpha <*>": 1, "alpha two": 1}
    template_button(page, "beta <*>").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(2)
    wait_for_events(page, 2)


def test_unlisted_patterns_are_counted(tab: Tab) -> None:
    project = new_project()
    words = [f"{first}{second} only" for first in "abcdef" for second in "ghijklmnop"]
    send(tab, project, *words, *words[:50])
    page = tab.open(f"explore?range=1h&p.project={project}&patterns=1")
    assert set(listed_templates(page)) == set(words[:50])
    expect(page.locator(".pattern-rest")).to_have_text("10 more patterns with 10 messages.")


def test_patterns_are_used_with_the_keyboard_alone(tab: Tab) -> None:
    project = new_project()
    send(tab, project, "alpha 1", "alpha 2", "beta")
    page = tab.open(f"explore?range=1h&p.project={project}")
    expect(page.locator(ROW_SELECTOR)).to_have_count(3)
    page.get_by_role("button", name="Patterns", exact=True).focus()
    page.keyboard.press("Enter")
    listed_templates(page)
    page.keyboard.press("Tab")
    # In some browsers, the Tab key first focuses the scrollable list.
    if page.evaluate("document.activeElement.tagName") == "OL":
        page.keyboard.press("Tab")
    expect(template_button(page, "alpha <*>")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(ROW_SELECTOR)).to_have_count(2)
    expect(patterns_panel(page)).to_have_count(1)
    expect(template_button(page, "alpha <*>")).to_be_focused()
    filter_chips(page).get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(page.locator(ROW_SELECTOR)).to_have_count(3)
    expect(page.get_by_role("button", name="Patterns", exact=True)).to_be_focused()
    page.keyboard.press("Space")
    expect(page.get_by_role("list", name="Patterns of messages")).to_have_count(0)
    assert "patterns=1" not in page.url


SQL_QUERY = "select timestamp, event_message from edge_logs order by timestamp desc limit 2"
CLICKHOUSE_QUERY = (
    "select timestamp, event_message from logs where source = 'edge_logs' order by timestamp desc limit 2"
)


@pytest.mark.parametrize(("endpoint", "text"), [("logs.all", SQL_QUERY), ("logs.all.otel", CLICKHOUSE_QUERY)])
def test_in_sql_the_filter_becomes_a_part_of_the_query(tab: Tab, endpoint: str, text: str) -> None:
    project = new_project()
    send(tab, project, r"it's \d 1", r"it's \d 2", r"it's \d 3", "other")
    place = f"explore?range=1h&lang=sql&endpoint={endpoint}&p.project={project}&patterns=1&q={quote(text)}"
    page = tab.open(place)
    # The query's limit applies to the rows, but not to the messages that are grouped by pattern.
    assert listed_templates(page) == {r"it's \d <*>": 3, "other": 1}
    patterns_panel(page).first.locator(".pattern-only").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(3)
    expect(query_text(page)).to_have_value(re.compile("match|regexp_contains"))
    page.get_by_role("button", name="Leave out it's").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(0)
    expect(page.locator(".editor-error")).to_be_empty()


def use_key(tab: Tab, **terms: Any) -> None:
    """Create a key with these terms, and use it in this tab."""
    tab.demo = replace(tab.demo, key=tab.new_key(**terms))
    # The service answers 403 to the page's requests for which the key lacks a scope.
    tab.expect_refusal(403)


def test_a_pinned_key_sees_the_patterns_of_its_own_project(tab: Tab) -> None:
    own_project, other_project = new_project(), new_project()
    send(tab, own_project, "mine 1", "mine 2")
    send(tab, other_project, "theirs 1")
    use_key(tab, scopes="query", pins={"project": own_project})
    page = tab.open(f"explore?range=1h&p.project={own_project}&patterns=1")
    assert listed_templates(page) == {"mine <*>": 2}
    patterns_panel(page).first.locator(".pattern-only").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(2)


def test_patterns_and_their_examples_are_redacted(tab: Tab) -> None:
    project = new_project()
    send(tab, project, "10.1.2.3 is blocked", "10.4.5.6 is blocked", "nothing is blocked")
    use_key(tab, scopes="query", redact=True)
    page = tab.open(f"explore?range=1h&p.project={project}&patterns=1")
    redacted = next(template for template, count in listed_templates(page).items() if count == 2)
    assert redacted.endswith(" is blocked")
    assert not re.search(r"10\.[14]\.", page.content())
    patterns_panel(page).first.locator(".pattern-only").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(2)
    wait_for_events(page, 2)


def test_several_clicks_before_the_next_answer_all_apply(tab: Tab) -> None:
    project = new_project()
    send(tab, project, "alpha 1", "beta 2", "gamma 3")
    page = tab.open(f"explore?range=1h&p.project={project}&patterns=1")
    listed_templates(page)
    page.route("**/query/**", lambda _: None)
    page.get_by_role("button", name="Leave out alpha").click()
    page.get_by_role("button", name="Leave out beta").click()
    expect(filter_chips(page)).to_have_text([re.compile("alpha"), re.compile("beta")])
    page.unroute_all(behavior="ignoreErrors")


def test_without_rows_hints_take_the_pattern_into_account(tab: Tab) -> None:
    project = new_project()
    send(tab, project, "alpha 1", "alpha 2")
    page = tab.open(f"explore?range=1h&p.project={project}&patterns=1")
    listed_templates(page)
    page.get_by_role("button", name="Leave out alpha").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(0)
    expect(page.locator(".whereabouts")).to_contain_text("Nothing matches at any other time.")


def test_live_follows_the_events_of_a_pattern(tab: Tab) -> None:
    project = new_project()
    filters = quote(json.dumps(["+=alpha <*>"]))
    page = tab.open(f"explore?range=15m&p.project={project}&pat={filters}")
    expect(page.locator(".summary")).to_contain_text("0 rows")
    with page.expect_response(lambda answer: "/tail/" in answer.url and answer.status == 200):
        page.get_by_role("button", name="Live").click()
    # The page must not repeat the query, because it receives the rows by following the query.
    page.route("**/query/**", lambda _: None)
    send(tab, project, "alpha 1", "beta 2", "alpha 3")
    expect(page.locator(ROW_SELECTOR)).to_have_count(2)
    expect(page.locator(ROW_SELECTOR).filter(has_text="beta")).to_have_count(0)
    page.unroute_all(behavior="ignoreErrors")


def test_the_number_of_patterns_in_an_address_is_limited(tab: Tab) -> None:
    odd = json.dumps(["+=fine 1", "no sign", 7, None, "+=" + "y" * 400, *[f"-={name}" for name in "abcdefgh"]])
    page = tab.open(f"explore?range=1h&pat={quote(odd)}")
    expect(filter_chips(page)).to_have_count(5)
    expect(page.locator(".summary")).to_contain_text("0 rows")
    page.goto(f"{tab.demo.url}/#explore?range=7d&pat=%7B")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    expect(filter_chips(page)).to_have_count(0)


def test_a_slow_count_is_cancelled_when_the_panel_is_closed(tab: Tab) -> None:
    page = tab.open("explore?range=7d")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    page.route(re.compile("/query/.*regexp_replace"), lambda _: None)
    page.get_by_role("button", name="Patterns", exact=True).click()
    expect(page.locator(".pattern-bar [role=status]")).to_have_text("Counting…")
    with page.expect_event("requestfailed"):
        page.get_by_role("button", name="Patterns", exact=True).click()
    expect(page.locator(".pattern-bar [role=status]")).to_be_empty()
    page.unroute_all(behavior="ignoreErrors")


@ALL_LOOKS
def test_the_panel_is_accessible_and_fits_the_screen(open_tab_with_look: OpenTab, width: int, scheme: str) -> None:
    tab = open_tab_with_look(width, scheme)
    page = tab.open("explore?range=7d&sub=postgres_logs&patterns=1")
    load_axe(page)
    listed_templates(page)
    patterns_panel(page).first.locator(".pattern-only").click()
    expect(filter_chips(page)).to_have_count(1)
    expect(patterns_panel(page)).to_have_count(1)
    assert serious_faults(page) == []
    filter_chips(page).get_by_role("button").click()
    expect(patterns_panel(page).nth(3)).to_be_visible()
    assert serious_faults(page) == []
    tab.save_screenshot("patterns")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
