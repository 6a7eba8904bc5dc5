"""Hints at events elsewhere: projects with their counts, and links from a view without rows to events at other times.

The tests count the steps of a person. Selecting another project takes 2 steps. From a view without rows, it takes 1
step to reach the events of a project, or the time of the newest event.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import ALL_LOOKS, HeldRequest, OpenTab, Tab
from tests.browser.test_accessible import load_axe, serious_faults
from tests.browser.test_explore import chosen_project
from tests.journey.conftest import PRIVATE, Service, start_service

ROW_SELECTOR = ".events tbody tr.row"
MARKUP = "<img src=x onerror=window.pwned=1>"
DAY_US = 86_400_000_000
# Script that lists counts that extend beyond their panel or card.
CUT_OFF_COUNTS_SCRIPT = """[...document.querySelectorAll('.value-choice .faint')].filter((one) =>
    one.getBoundingClientRect().right > one.closest('.panel, .card').getBoundingClientRect().right
).map((one) => one.textContent)"""


def new_name(kind: str = "where") -> str:
    return f"{kind}-{time.monotonic_ns()}"


def known_values(page: Page) -> Locator:
    return page.get_by_role("button", name="Known values")


def listed_values(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Values that have events").locator(".value-choice")


def hint_section(page: Page, words: str) -> Locator:
    return page.locator(".whereabouts section", has_text=words)


def test_a_project_with_events_is_chosen_in_two_steps(tab: Tab) -> None:
    project = new_name()
    tab.send("gotrue.logs.prod", *({"event_message": f"login {n}", "project": project} for n in range(30)))
    page = tab.open("explore?range=1h&sub=auth_logs")
    known_values(page).click()
    chosen = listed_values(page).filter(has_text=project)
    expect(chosen).to_have_text(f"{project}30")
    chosen.click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(30)
    expect(page.get_by_label("project", exact=True)).to_have_value(project)
    assert f"p.project={project}" in chosen_project(page)
    page.reload()
    expect(page.locator(ROW_SELECTOR)).to_have_count(30)


def test_projects_are_listed_by_number_of_events_up_to_a_limit(tab: Tab) -> None:
    prefix = new_name("many")
    events_of_sixty_projects = [{"event_message": "x", "project": f"{prefix}-{n}"} for n in range(60)]
    tab.send("pgbouncer.logs.prod", *events_of_sixty_projects, {"event_message": "x", "project": f"{prefix}-7"})
    # In this stream, events name their project in the metadata.
    relay = {"metadata": {"project_ref": f"{prefix}-7"}}
    tab.send("deno-relay-logs", {"event_message": "x", **relay}, {"event_message": "y", **relay})
    page = tab.open("explore?range=1h")
    known_values(page).click()
    panel = page.get_by_role("dialog", name="Values that have events")
    panel.get_by_label("Find", exact=True).fill(prefix)
    expect(listed_values(page)).to_have_count(50)
    expect(panel).to_contain_text("The first 50 of 60.")
    expect(listed_values(page).first).to_have_text(f"{prefix}-74")
    panel.get_by_label("Find", exact=True).fill("nowhere-at-all")
    expect(panel).to_contain_text("None has “nowhere-at-all” in its name.")


def test_a_project_is_chosen_with_the_keyboard_or_typed(tab: Tab) -> None:
    page = tab.open("explore?range=7d")
    known_values(page).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Find", exact=True)).to_be_focused()
    page.keyboard.type("acme")
    expect(listed_values(page)).to_have_count(1)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_label("project", exact=True)).to_have_value("acme")
    expect(known_values(page)).to_be_focused()
    page.get_by_label("project", exact=True).fill("typed")
    page.get_by_label("project", exact=True).press("Enter")
    expect(page).to_have_url(re.compile(r"p\.project=typed"))


@pytest.mark.parametrize("scopes", ["private", "query"])
def test_a_pinned_key_shows_its_project_without_a_choice(tab: Tab, scopes: str) -> None:
    tab.expect_refusal(403)
    tab.demo = replace(tab.demo, key=tab.new_key(scopes=scopes, pins={"project": "acme"}))
    page = tab.open("explore?range=7d&p.project=default")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    expect(page.locator(".pin")).to_have_text("acme")
    expect(page.get_by_label("project", exact=True)).to_have_count(0)
    expect(known_values(page)).to_have_count(0)


def test_with_a_query_key_the_project_is_typed_without_a_list_of_projects(tab: Tab) -> None:
    tab.expect_refusal(403)
    tab.demo = replace(tab.demo, key=tab.new_key(scopes="query"))
    page = tab.open("explore?range=1h&p.project=nobody")
    expect(page.locator(".whereabouts")).to_contain_text("No event is in edge_logs of nobody at any time.")
    expect(page.get_by_label("project", exact=True)).to_have_value("nobody")
    expect(known_values(page)).to_have_count(0)
    expect(page.get_by_text("Streams with events")).to_have_count(0)


def test_the_list_for_one_key_is_not_shown_for_the_next_key(tab: Tab) -> None:
    tab.expect_refusal(403)
    project = new_name()
    # The project needs many events, because the list has only the projects with the most events, also of other tests.
    tab.send("gotrue.logs.prod", *({"event_message": f"login {n}", "project": project} for n in range(300)))
    page = tab.open("explore?range=15m&sub=auth_logs&p.project=nobody")
    expect(page.locator(".whereabouts").get_by_role("link", name=project)).to_be_visible()
    page.get_by_role("button", name="Key …").click()
    page.get_by_role("button", name="Forget the key").click()
    page.get_by_label("Key", exact=True).fill(tab.new_key(scopes="query"))
    page.get_by_role("button", name="Open").click()
    expect(page.locator(".whereabouts")).to_contain_text("No event is in auth_logs of nobody at any time.")
    expect(page.get_by_text(project)).to_have_count(0)


def test_a_late_refusal_of_a_forgotten_key_does_not_affect_the_next_key(tab: Tab) -> None:
    """Answer a request of the forgotten key with 401 after the next key is in use.

    Regression: requests with the forgotten key continued, and their 401 closed the page of the next key.
    """
    page = tab.open("explore?range=15m&sub=auth_logs")
    counts = HeldRequest(page, "**/api/query*")
    page.get_by_label("project", exact=True).fill("nobody")
    page.get_by_label("project", exact=True).press("Enter")
    expect(page.locator(".whereabouts")).to_be_visible()
    held_request = counts.sent()
    page.get_by_role("button", name="Key …").click()
    page.get_by_role("button", name="Forget the key").click()
    page.get_by_label("Key", exact=True).fill(tab.demo.key)
    page.get_by_role("button", name="Open").click()
    expect(page.locator(".page.explore")).to_be_visible()
    held_request.fulfill(status=401, json={"error": {"code": 401, "message": "", "status": "auth.invalid"}})
    page.wait_for_timeout(200)
    expect(page.locator(".page.explore")).to_be_visible()


def test_a_view_without_rows_links_to_a_project_with_events(tab: Tab) -> None:
    project = f"{new_name()}{MARKUP}"
    tab.send("gotrue.logs.prod", *({"event_message": f"login {n}", "project": project} for n in range(200)))
    page = tab.open("explore?range=15m&sub=auth_logs&p.project=nobody")
    other_projects_hint = hint_section(page, "Other projects with events of auth_logs in this time")
    other_projects_hint.get_by_role("link", name=project).click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(100)
    expect(page.get_by_label("project", exact=True)).to_have_value(project)
    expect(page.locator("main img")).to_have_count(0)
    assert page.evaluate("window.pwned") is None


def test_a_view_without_rows_links_to_the_newest_matching_event(tab: Tab) -> None:
    project, now = new_name(), time.time_ns() // 1000
    days_ago = {"event_message": "long ago", "project": project, "timestamp": now - 3 * DAY_US}
    tab.send("gotrue.logs.prod", days_ago, {**days_ago, "event_message": "before", "timestamp": now - 4 * DAY_US})
    page = tab.open(f"explore?range=1h&sub=auth_logs&p.project={project}&q=ago")
    expect(page.locator(".whereabouts")).to_contain_text("The newest event that matches is of 20")
    page.get_by_role("link", name="Look there").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    expect(page.locator(ROW_SELECTOR)).to_contain_text("long ago")
    assert re.search(r"range=\d+~\d+", chosen_project(page))


def test_a_filter_without_matches_shows_the_newest_event_of_all(tab: Tab) -> None:
    project = new_name()
    old_event = {"event_message": "old", "project": project, "timestamp": time.time_ns() // 1000 - 3 * DAY_US}
    tab.send("gotrue.logs.prod", old_event)
    page = tab.open(f"explore?range=1h&sub=auth_logs&p.project={project}&q=nowhere-to-be-found")
    where = page.locator(".whereabouts")
    expect(where).to_contain_text("Nothing matches at any other time.")
    expect(where).to_contain_text(f"The newest event in auth_logs of {project} is of 20")


@pytest.fixture(scope="module")
def other_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start a service that has no events of the project that the page selects first."""
    service = start_service(tmp_path_factory.mktemp("other") / "data")
    service.send("cloudflare.logs.prod", [{"event_message": "of the shop", "project": "shop"}]).raise_for_status()
    yield service
    service.stop()


def test_a_folder_without_the_default_project_shows_other_events(tab: Tab, other_folder: Service) -> None:
    tab.demo = replace(tab.demo, url=other_folder.url, key=PRIVATE)
    page = tab.open("explore")
    expect(page.locator(".whereabouts")).to_contain_text("Streams with events")
    page.locator(".whereabouts").get_by_role("link", name="shop").click()
    expect(page.locator(ROW_SELECTOR)).to_contain_text("of the shop")


@ALL_LOOKS
def test_the_page_is_accessible_and_fits_the_screen(open_tab_with_look: OpenTab, width: int, scheme: str) -> None:
    tab = open_tab_with_look(width, scheme)
    long_project = f"{new_name()}-{'long-' * 60}"
    tab.send("cloudflare.logs.prod", *({"event_message": "x", "project": long_project} for _ in range(200)))
    page = tab.open("explore?range=15m&p.project=nobody")
    load_axe(page)
    expect(hint_section(page, "Other projects")).to_contain_text(long_project)
    expect(hint_section(page, "Streams with events")).to_be_visible()
    hint_section(page, "Streams with events").scroll_into_view_if_needed()
    tab.save_screenshot("nothing")
    assert serious_faults(page) == []
    known_values(page).click()
    expect(listed_values(page).first).to_be_visible()
    tab.save_screenshot("projects")
    assert serious_faults(page) == []
    assert page.evaluate(CUT_OFF_COUNTS_SCRIPT) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
