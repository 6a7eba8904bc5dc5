"""Where events are: projects to choose from with their counts.

Steps of the job, as a person would do it: another project 2.
"""

import re
import time
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Tab
from tests.browser.test_explore import place

ROWS = ".events tbody tr.row"


def send(tab: Tab, stream: str, *events: dict[str, Any]) -> None:
    answer = tab.page.request.post(
        f"{tab.demo.url}/api/logs?source_name={stream}", headers={"X-API-KEY": tab.demo.key}, data=list(events)
    )
    assert answer.ok, answer.text()


def new_name(kind: str = "where") -> str:
    return f"{kind}-{time.monotonic_ns()}"


def key_of(tab: Tab, **terms: Any) -> str:
    made = tab.page.request.post(f"{tab.demo.url}/api/access-tokens", headers={"X-API-KEY": tab.demo.key}, data=terms)
    assert made.ok, made.text()
    return str(made.json()["token"])


def known_values(page: Page) -> Locator:
    return page.get_by_role("button", name="Known values")


def values(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Values that have events").locator(".value-choice")


def test_another_project_is_chosen_in_two_steps_from_those_that_have_events(tab: Tab) -> None:
    project = new_name()
    send(tab, "gotrue.logs.prod", *({"event_message": f"login {n}", "project": project} for n in range(30)))
    page = tab.open("explore?range=1h&sub=auth_logs")
    known_values(page).click()
    chosen = values(page).filter(has_text=project)
    expect(chosen).to_have_text(f"{project}30")
    chosen.click()
    expect(page.locator(ROWS)).to_have_count(30)
    expect(page.get_by_label("project", exact=True)).to_have_value(project)
    assert f"p.project={project}" in place(page)
    page.reload()
    expect(page.locator(ROWS)).to_have_count(30)


def test_projects_are_listed_by_their_events_of_all_streams_and_the_list_is_bounded(tab: Tab) -> None:
    prefix = new_name("many")
    many = [{"event_message": "x", "project": f"{prefix}-{n}"} for n in range(60)]
    send(tab, "pgbouncer.logs.prod", *many, {"event_message": "x", "project": f"{prefix}-7"})
    # A stream whose events have their project in their metadata.
    relay = {"metadata": {"project_ref": f"{prefix}-7"}}
    send(tab, "deno-relay-logs", {"event_message": "x", **relay}, {"event_message": "y", **relay})
    page = tab.open("explore?range=1h")
    known_values(page).click()
    panel = page.get_by_role("dialog", name="Values that have events")
    panel.get_by_label("Find a value").fill(prefix)
    expect(values(page)).to_have_count(50)
    expect(panel).to_contain_text("The 50 with the most events of 60.")
    expect(values(page).first).to_have_text(f"{prefix}-74")
    panel.get_by_label("Find a value").fill("nowhere-at-all")
    expect(panel).to_contain_text("None of them has “nowhere-at-all” in its name.")


def test_the_choice_is_used_with_the_keyboard_and_any_other_project_is_still_typed(tab: Tab) -> None:
    page = tab.open("explore?range=7d")
    known_values(page).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Find a value")).to_be_focused()
    page.keyboard.type("acme")
    expect(values(page)).to_have_count(1)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("project", exact=True)).to_have_value("acme")
    expect(known_values(page)).to_be_focused()
    page.get_by_label("project", exact=True).fill("typed")
    page.get_by_label("project", exact=True).press("Enter")
    expect(page).to_have_url(re.compile(r"p\.project=typed"))


@pytest.mark.parametrize("scopes", ["private", "query"])
def test_a_pinned_key_shows_its_pin_and_no_choice(tab: Tab, scopes: str) -> None:
    tab.expect_refusal(403)
    tab.demo = replace(tab.demo, key=key_of(tab, scopes=scopes, pins={"project": "acme"}))
    page = tab.open("explore?range=7d&p.project=default")
    expect(page.locator(ROWS).first).to_be_visible()
    expect(page.locator(".pin")).to_have_text("acme")
    expect(page.get_by_label("project", exact=True)).to_have_count(0)
    expect(known_values(page)).to_have_count(0)


def test_a_key_that_may_only_query_types_its_project(tab: Tab) -> None:
    tab.expect_refusal(403)
    tab.demo = replace(tab.demo, key=key_of(tab, scopes="query"))
    page = tab.open("explore?range=7d&p.project=acme")
    expect(page.locator(ROWS).first).to_be_visible()
    expect(page.get_by_label("project", exact=True)).to_have_value("acme")
    expect(known_values(page)).to_have_count(0)
