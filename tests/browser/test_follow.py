"""The Follow page: the events of one request in all sub-queries, and the events before and after an event."""

import re
import time
import uuid
from dataclasses import replace

from playwright.sync_api import Page, expect

from tests.browser.conftest import ALL_LOOKS, OpenTab, Tab, copy_with
from tests.browser.test_accessible import load_axe, serious_faults

ROW_SELECTOR = ".events tbody tr.row"


def new_project() -> str:
    return f"follow-{time.monotonic_ns()}"


def send_request(tab: Tab, project: str) -> str:
    """Store the events of one request in three streams, each with the request's id in another field.

    The second event is 40 ms after the first, and the third 2.5 s after the second. An event of another request is
    stored too.
    """
    request, now = str(uuid.uuid4()), time.time_ns() // 1000 - 60_000_000
    common = {"project": project}
    edge = {"request": {"headers": {"x_request_id": request}}, "response": {"status_code": 500}}
    tab.send("cloudflare.logs.prod", {**common, "timestamp": now, "event_message": "POST /token", "metadata": edge})
    auth = {"request_id": request, "level": "error", "duration_ms": 31}
    tab.send("gotrue.logs.prod", {**common, "timestamp": now + 40_000, "event_message": "login", "metadata": auth})
    message = f"ERROR: no connection for {request}"
    tab.send("postgres.logs", {**common, "timestamp": now + 2_540_000, "event_message": message, "metadata": {}})
    other = {"request_id": str(uuid.uuid4())}
    tab.send("gotrue.logs.prod", {**common, "timestamp": now, "event_message": "another login", "metadata": other})
    return request


def test_an_id_in_an_event_leads_to_all_its_events_in_two_clicks(tab: Tab) -> None:
    project = new_project()
    request = send_request(tab, project)
    page = tab.open(f"explore?range=1h&p.project={project}")
    page.locator(f"{ROW_SELECTOR} .toggle").click()
    page.get_by_role("link", name=f"Follow x_request_id {request}").click()
    expect(page.locator(".summary")).to_contain_text("3 events of 3 sub-queries, 2.54 s from the first to the last.")
    expect(page.locator(".summary")).to_contain_text("The longest gap is 2.50 s, before “ERROR: no connection")
    rows = page.locator(ROW_SELECTOR)
    expect(rows).to_have_count(3)
    for place, words in enumerate(
        (r"0 µs.*edge_logs.*500.*POST", r"40 ms.*31 ms.*auth_logs.*login", r"2.54 s.*2.50 s")
    ):
        expect(rows.nth(place)).to_contain_text(re.compile(words, re.DOTALL))
    expect(page.locator(".lanes circle")).to_have_count(3)
    expect(page.locator(".lanes rect.gap")).to_have_count(1)
    # A click on a dot expands the dot's event in the table.
    page.locator(".lanes circle").last.click()
    expect(page.locator(".tree")).to_contain_text("no connection")
    page.reload()
    expect(rows).to_have_count(3)
    page.go_back()
    expect(page.locator(".explore")).to_be_visible()


def test_ids_in_messages_and_columns_are_links(tab: Tab) -> None:
    project = new_project()
    request = send_request(tab, project)
    page = tab.open(f"explore?range=1h&p.project={project}&sub=postgres_logs")
    page.locator(f"{ROW_SELECTOR} .toggle").click()
    expect(page.get_by_role("link", name=f"Follow event_message {request}")).to_be_visible()
    page.goto(f"{tab.demo.url}/#explore?range=1h&p.project={project}&sub=auth_logs&cols=timestamp|m.request_id&q=login")
    page.locator(ROW_SELECTOR).get_by_role("link", name=request).click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(3)


def test_a_short_id_is_searched_in_its_own_field_only(tab: Tab) -> None:
    project = new_project()
    for user in (42, 421):
        event = {"event_message": f"of {user} in 42 ms", "project": project, "metadata": {"user_id": user}}
        tab.send("gotrue.logs.prod", event)
    page = tab.open(f"explore?range=1h&p.project={project}&sub=auth_logs&q=421")
    page.locator(f"{ROW_SELECTOR} .toggle").click()
    page.get_by_role("link", name="Follow user_id 421").click()
    expect(page.locator(".summary")).to_contain_text("One event of auth_logs.")
    page.goto(page.url.replace("421", "42"))
    expect(page.locator(ROW_SELECTOR)).to_contain_text("of 42 in 42 ms")
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)


def test_a_pasted_id_without_events_is_reported(tab: Tab) -> None:
    page = tab.open("follow?range=1h&p.project=nobody")
    page.get_by_label("Id", exact=True).fill("0d7e6c1a-aaaa-bbbb-cccc-000000000000")
    page.get_by_role("button", name="Follow").click()
    expect(page.locator(".summary")).to_contain_text("No event in this time has this id.")


def test_a_failing_sub_query_is_named_and_the_others_are_shown(tab: Tab) -> None:
    project = new_project()
    request = send_request(tab, project)
    tab.expect_refusal(503)
    error = {"error": {"code": 503, "status": "engine.unreachable", "message": "The engine is away."}}
    tab.page.route(re.compile("from(%20|[+])postgres_logs"), lambda route: route.fulfill(status=503, json=error))
    page = tab.open(f"follow?range=1h&p.project={project}&id={request}")
    expect(page.locator(".problem")).to_contain_text("postgres_logs: The engine is away.")
    expect(page.locator(ROW_SELECTOR)).to_have_count(2)


def send_lines(tab: Tab, project: str, limit: int = 40) -> None:
    now = time.time_ns() // 1000 - 60_000_000
    events = [
        {"event_message": f"line {n}", "project": project, "timestamp": now + n * 1_000_000, "metadata": {"n": n}}
        for n in range(limit)
    ]
    tab.send("gotrue.logs.prod", *events)
    tab.send("gotrue.logs.prod", {"event_message": "of another", "project": f"{project}-x", "timestamp": now})


def test_events_before_and_after_an_event_are_listed_with_links(tab: Tab) -> None:
    project = new_project()
    send_lines(tab, project)
    page = tab.open(f'explore?range=1h&p.project={project}&sub=auth_logs&q="line 20"')
    page.locator(f"{ROW_SELECTOR} .toggle").click()
    page.get_by_role("link", name="Lines around").click()
    lines = page.locator(".context li")
    expect(lines).to_have_count(21)
    texts = lines.locator(".line-text").all_inner_texts()
    assert texts == [f"line {n}" for n in range(10, 31)]
    expect(page.locator(".context .is-this")).to_contain_text("this event")
    expect(lines.first).to_contain_text("−10.0 s")
    page.get_by_role("button", name="More before").click()
    expect(lines.first).to_contain_text("line 0")
    expect(page.get_by_role("button", name="More before")).to_have_count(0)
    expect(page.locator(".tree")).to_contain_text("line 20")
    page.get_by_role("link", name="line 25").click()
    expect(page.locator(".context .is-this")).to_contain_text("line 25")
    link = copy_with(page, page.get_by_role("button", name="Copy the link"))
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator(".tree")).to_contain_text("line 25")
    page.get_by_role("link", name="Explore this hour").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(40)


def test_a_pinned_key_follows_ids_only_in_its_own_project(tab: Tab) -> None:
    tab.expect_refusal(403)
    mine, other = new_project(), new_project()
    request = send_request(tab, mine)
    leaked = {"event_message": "of another project", "project": other, "metadata": {"request_id": request}}
    tab.send("gotrue.logs.prod", leaked)
    tab.demo = replace(tab.demo, key=tab.new_key(scopes="query", pins={"project": mine}))
    page = tab.open(f"follow?range=1h&p.project={mine}&id={request}")
    expect(page.locator(".summary")).to_contain_text("3 events")
    page.locator(f"{ROW_SELECTOR} .toggle").nth(1).click()
    page.get_by_role("link", name="Lines around").click()
    expect(page.locator(".context li")).to_have_count(2)
    expect(page.locator("body")).not_to_contain_text("of another project")


def test_a_missing_event_and_an_invalid_link_are_reported(tab: Tab) -> None:
    page = tab.open("event?sub=auth_logs&id=00000000-0000-0000-0000-000000000001&at=1700000000000000")
    expect(page.get_by_text("This event is not there, or not for this key.")).to_be_visible()
    page.goto(f"{tab.demo.url}/#event?at=never")
    expect(page.get_by_text("This is not a link to an event.")).to_be_visible()


def test_markup_in_ids_and_messages_is_shown_as_text(tab: Tab) -> None:
    project = new_project()
    markup = "<img src=x onerror=window.pwned=1>"
    event = {"event_message": markup, "project": project, "metadata": {"request_id": f"{markup}' or 1=1 --"}}
    tab.send("gotrue.logs.prod", event)
    page = tab.open(f"explore?range=1h&p.project={project}&sub=auth_logs")
    page.locator(f"{ROW_SELECTOR} .toggle").click()
    page.locator(".follow-link").click()
    expect(page.locator(".summary")).to_contain_text("One event of auth_logs.")
    page.locator(f"{ROW_SELECTOR} .toggle").click()
    page.get_by_role("link", name="Lines around").click()
    expect(page.locator(".context .is-this")).to_contain_text(markup)
    expect(page.locator("main img, main script")).to_have_count(0)
    assert page.evaluate("window.pwned") is None


@ALL_LOOKS
def test_the_pages_are_accessible_and_fit_the_screen(open_tab_with_look: OpenTab, width: int, scheme: str) -> None:
    tab = open_tab_with_look(width, scheme)
    project = new_project()
    request = send_request(tab, project)
    page: Page = tab.open(f"follow?range=1h&p.project={project}&id={request}")
    load_axe(page)
    expect(page.locator(".summary")).to_contain_text("3 events")
    page.locator(f"{ROW_SELECTOR} .toggle").nth(1).click()
    tab.save_screenshot("follow")
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("link", name="Lines around").click()
    expect(page.locator(".tree")).to_be_visible()
    expect(page.locator(".context li").first).to_be_visible()
    tab.save_screenshot("around")
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
