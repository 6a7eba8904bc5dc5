"""The explorer in unusual situations: odd keys, odd events, and a service that stops and restarts."""

import re
import time
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import HeldRequest, Tab

ROW_SELECTOR = ".events tbody tr.row"
SQL_OF_TAGS = "select%20id,%20m.tags%20from%20edge_logs%20cross%20join%20unnest(metadata)%20as%20m"


def test_a_page_whose_script_fails_to_load_is_loaded_later(tab: Tab) -> None:
    """Load the script of a page again after a failure.

    The scripts of all pages except Explore are loaded after Explore is shown, or when the page is visited.
    """
    tab.expected.append("net::ERR_FAILED")
    page = tab.page
    page.route("**/alerts.js", lambda route: route.abort())
    tab.open("explore?range=7d")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    page.get_by_role("link", name="Alerts", exact=True).click()
    expect(page.locator("#content")).to_contain_text("This part of the explorer could not be loaded.")
    page.get_by_role("link", name="Streams", exact=True).click()
    expect(page.get_by_role("heading", name="Streams")).to_be_visible()
    page.unroute("**/alerts.js")
    page.get_by_role("link", name="Alerts", exact=True).click()
    expect(page.get_by_role("heading", name="Alerts")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Streams")).to_be_visible()


def test_a_page_that_was_left_while_loading_does_not_change_the_next(tab: Tab) -> None:
    tab.expected.append("net::ERR_FAILED")
    page = tab.page
    held_script = HeldRequest(page, "**/alerts.js")
    tab.open("streams")
    page.get_by_role("link", name="Alerts", exact=True).click()
    script = held_script.sent()
    page.get_by_role("link", name="Streams", exact=True).click()
    expect(page.get_by_role("heading", name="Streams")).to_be_visible()
    with page.expect_event("requestfailed"):
        script.abort()
    page.evaluate("new Promise((then) => setTimeout(then, 100))")
    expect(page.locator("#content")).not_to_contain_text("could not be loaded")
    expect(page.get_by_role("heading", name="Streams")).to_be_visible()


def paste_key(page: Page, key: str) -> None:
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="Open").click()


def make_key(tab: Tab, **terms: Any) -> Any:
    return tab.post("/api/access-tokens", terms)


def private_key(tab: Tab) -> dict[str, str]:
    return {"X-API-KEY": tab.demo.key}


def send(tab: Tab, **event: Any) -> None:
    tab.send("cloudflare.logs.prod", event)


def filter_line(page: Page) -> str:
    return page.get_by_role("combobox", name="Query", exact=True).input_value()


@pytest.mark.parametrize("around", ["“{}”", "\u200b{}", "  '{}' "])
def test_quotes_and_spaces_around_a_pasted_key_are_ignored(tab: Tab, around: str) -> None:
    page = tab.open(with_key=False)
    paste_key(page, around.format(tab.demo.key))
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()


def test_a_key_with_invalid_characters_is_refused_with_a_message(tab: Tab) -> None:
    page = tab.open(with_key=False)
    paste_key(page, "cw_żółć")
    expect(page.get_by_role("alert")).to_contain_text("characters that keys do not have")


@pytest.mark.parametrize("place", ["explore", "streams", "service"])
def test_a_revoked_key_leads_to_the_key_page(tab: Tab, place: str) -> None:
    tab.expect_refusal(401)
    new_key = make_key(tab, scopes="private")
    page = tab.open(with_key=False)
    paste_key(page, new_key["token"])
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    tab.page.request.delete(f"{tab.demo.url}/api/access-tokens/{new_key['token']}", headers=private_key(tab))
    page.goto(f"{tab.demo.url}/#{place}?live=1")
    expect(page.get_by_role("alert")).to_contain_text("no longer in force")
    assert page.evaluate("sessionStorage.getItem('cordwood.key')") is None


def test_a_key_for_one_endpoint_explores_that_endpoint(tab: Tab) -> None:
    tab.expect_refusal(403)
    new_key = make_key(tab, scopes="query:endpoint:usage.api-counts")
    page = tab.open("explore?range=7d", with_key=False)
    paste_key(page, new_key["token"])
    expect(page.get_by_label("Endpoint", exact=True)).to_have_value("usage.api-counts")
    expect(page.locator(".summary")).to_contain_text("in ")


def test_a_forbidden_endpoint_in_the_address_offers_another_one(tab: Tab) -> None:
    tab.expect_refusal(403)
    new_key = make_key(tab, scopes="query:endpoint:usage.api-counts")
    page = tab.open("explore?range=7d&endpoint=logs.all&sub=auth_logs", with_key=False)
    paste_key(page, new_key["token"])
    expect(page.locator(".result")).to_contain_text("logs.all is not for this key.")
    page.get_by_role("button", name="Look at another endpoint").click()
    expect(page.get_by_label("Endpoint", exact=True)).to_have_value("usage.api-counts")
    expect(page.locator(".summary")).to_contain_text("in ")
    assert "endpoint=" not in page.url


SET_HIDDEN_SCRIPT = "document.isHidden = {}; document.dispatchEvent(new Event('visibilitychange'))"


def make_tab_hideable(page: Page) -> None:
    """Let a script report the page's tab as hidden, because headless tabs are never hidden."""
    page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => document.isHidden === true })")


@pytest.mark.parametrize(("place", "request_pattern"), [("streams", "/api/sources"), ("service", "/api/status")])
def test_a_page_in_a_hidden_tab_sends_no_requests_until_it_is_shown(tab: Tab, place: str, request_pattern: str) -> None:
    page = tab.page
    page.clock.install()
    make_tab_hideable(page)
    calls: list[str] = []
    page.on("request", lambda message: calls.append(message.url) if request_pattern in message.url else None)
    tab.open(place)
    expect(page.get_by_role("heading", name=place.title()).first).to_be_visible()
    expect(page.locator(f".{place} .skeleton")).to_have_count(0)
    with page.expect_response(lambda message: request_pattern in message.url):
        page.clock.run_for(10_000)
    page.evaluate(SET_HIDDEN_SCRIPT.format("true"))
    page.clock.run_for(10_000)
    before = len(calls)
    page.clock.run_for(60_000)
    assert len(calls) == before
    page.evaluate(SET_HIDDEN_SCRIPT.format("false"))
    with page.expect_response(lambda message: request_pattern in message.url):
        page.clock.run_for(10_000)


@pytest.mark.parametrize(("place", "expected_element"), [("streams", "cloudflare.logs.prod"), ("service", "Memory")])
def test_a_page_opened_in_a_hidden_tab_is_complete_when_shown(tab: Tab, place: str, expected_element: str) -> None:
    tab.page.add_init_script("document.isHidden = true")
    make_tab_hideable(tab.page)
    page = tab.open(place)
    expect(page.locator(f".page.{place}")).to_contain_text(expected_element)


def test_invalid_values_in_an_address_are_ignored(tab: Tab) -> None:
    page = tab.open("explore?sub=gone&range=7d&limit=many&lang=cobol&cols=%7C%7C&utc=x")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    expect(page.get_by_label("Sub-query", exact=True)).to_have_value("edge_logs")


def test_a_query_typed_before_the_fields_are_known_is_run_later(tab: Tab) -> None:
    """Run a query that was typed before the fields are known.

    Regression: without known fields, the suggestions for values failed, and Enter was ignored.
    """
    scope = HeldRequest(tab.page, "**/scope")
    page = tab.open("explore?range=7d")
    query = page.get_by_role("combobox", name="Query", exact=True)
    held_request = scope.sent()
    query.fill("m.response.status_code:>=500")
    query.press("Enter")
    expect(page.locator(".page.explore [inert]")).to_have_count(3)
    held_request.continue_()
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    expect(page.locator(".page.explore [inert]")).to_have_count(0)
    expect(query).to_have_value("m.response.status_code:>=500")
    assert "status_code" in page.url.partition("#")[2]


def test_live_resumes_after_a_restart_of_the_service(tab: Tab) -> None:
    tab.expected.append("net::ERR_FAILED")
    page = tab.open("explore?range=15m&live=1")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    page.route("**/api/**", lambda route: route.abort())
    expect(page.locator(".editor-error")).to_contain_text("cannot be reached")
    page.unroute_all()
    expect(page.locator(".editor-error")).to_be_empty()


@pytest.mark.parametrize(("place", "address"), [("streams", "/api/sources"), ("service", "/api/status")])
def test_the_other_pages_resume_after_a_restart_of_the_service(tab: Tab, place: str, address: str) -> None:
    tab.expected.append("net::ERR_FAILED")
    tab.page.clock.install()
    page = tab.open(place)
    expect(page.locator("main table").first).to_be_visible()
    page.route("**/api/**", lambda route: route.abort())
    with page.expect_event("requestfailed"):
        page.clock.run_for(10_000)
    page.unroute_all()
    with page.expect_response(lambda answer: answer.url.endswith(address)):
        page.clock.run_for(10_000)


def test_an_element_of_an_array_can_be_a_filter(tab: Tab) -> None:
    project = f"odd-{time.monotonic_ns()}"
    send(
        tab, event_message="tagged", project=project, metadata={"tags": ["one", "two words"], "none": [], "deep": [[1]]}
    )
    send(tab, event_message="other", project=project, metadata={"tags": ["three"], "none": [], "deep": [[2]]})
    page = tab.open(f"explore?range=1h&p.project={project}")
    expect(page.locator(ROW_SELECTOR)).to_have_count(2)
    page.locator(ROW_SELECTOR, has_text="tagged").locator(".toggle").click()
    page.locator(".tree").get_by_role("button", name="two words", exact=True).click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    assert filter_line(page) == 'm.tags:@>"two words"'
    # A value by which no query can filter is not a button.
    for key in ("none", "deep"):
        twig = page.locator(".tree .twigs > *", has=page.locator(".tree-key", has_text=re.compile(f"^{key}$"))).last
        expect(twig.get_by_role("button")).to_have_count(0)
    page.locator('[data-field="m.tags"] .field-name').click()
    expect(page.locator(".top-values")).to_contain_text("two words")
    expect(page.locator(".top-values").get_by_role("button")).to_have_count(0)


def test_an_element_of_an_array_can_be_a_filter_in_sql(tab: Tab) -> None:
    project = f"odd-{time.monotonic_ns()}"
    send(tab, event_message="a", project=project, metadata={"tags": ["it's", "b"]})
    send(tab, event_message="b", project=project, metadata={"tags": ["c"]})
    page = tab.open(f"explore?range=1h&lang=sql&p.project={project}&q={SQL_OF_TAGS}")
    expect(page.locator(ROW_SELECTOR)).to_have_count(2)
    page.locator(ROW_SELECTOR, has_text="it's").locator(".toggle").click()
    page.locator(".tree").get_by_role("button", name="it's", exact=True).click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    expect(page.locator(ROW_SELECTOR)).to_contain_text("it's")


def test_markup_in_events_and_field_names_is_shown_as_text(tab: Tab) -> None:
    project = f"odd-{time.monotonic_ns()}"
    markup = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>"
    send(tab, event_message=markup, project=project, metadata={markup: {markup: markup}})
    page = tab.open(f"explore?range=1h&p.project={project}")
    page.locator(f"{ROW_SELECTOR} .toggle").click()
    expect(page.locator(".tree")).to_contain_text(markup)
    expect(page.locator("main img, main script")).to_have_count(0)
    assert page.evaluate("window.pwned") is None


def test_a_very_long_value_leaves_the_other_columns_visible(tab: Tab) -> None:
    project = f"odd-{time.monotonic_ns()}"
    send(tab, event_message="x" * 60_000, project=project)
    page = tab.open(f"endpoints?endpoint=logs.all&p.project={project}")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".table-frame tbody")).to_contain_text("(60000 characters)")


def test_a_very_long_query_has_a_histogram(tab: Tab) -> None:
    page = tab.open(f"explore?range=7d&q={'z' * 9000}")
    expect(page.locator(".summary")).to_contain_text("0 rows")
    expect(page.locator(".readout")).to_have_text("0 events")
