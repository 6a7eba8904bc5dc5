"""The pages Endpoints, Streams and Service."""

import re

import httpx
from playwright.sync_api import expect

from tests.browser.conftest import ALL_LOOKS, OpenTab, Tab

INGEST_ADDRESS = "/api/logs?source_name=postgREST.logs.prod"


def test_an_endpoint_is_run_with_parameters_and_drawn(tab: Tab) -> None:
    page = tab.open("endpoints")
    page.get_by_role("link", name=re.compile("usage.api-counts")).click()
    expect(page.get_by_text("Requests to the gateway per time bucket").last).to_be_visible()
    page.get_by_label(re.compile("^interval")).select_option("daily")
    # No other test uses this project, so the first answer does not come from the cache.
    page.get_by_label(re.compile("^project")).fill("defaul.")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".line-chart polyline")).to_have_count(4)
    expect(page.locator(".receipt")).to_contain_text(
        re.compile(r"[78] rows in .* ms\. The engine ran it; the answer is kept")
    )
    page.get_by_role("button", name="Table").click()
    expect(page.get_by_role("columnheader", name="total_rest_requests")).to_be_visible()
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".receipt")).to_contain_text("A kept answer")
    page.reload()
    expect(page.locator(".line-chart polyline")).to_have_count(4)
    expect(page.get_by_label(re.compile("^interval"))).to_have_value("daily")


def test_a_refusal_of_an_endpoint_is_shown_as_text(tab: Tab) -> None:
    tab.expect_refusal(400)
    page = tab.open("endpoints?endpoint=logs.all")
    expect(page.get_by_label(re.compile("^iso_timestamp_start"))).to_have_attribute("placeholder", re.compile("^20"))
    page.get_by_label(re.compile("^iso_timestamp_start")).fill("yesterday")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".problem").last).to_contain_text("iso_timestamp_start")
    expect(page.locator(".problem").last).to_contain_text("request.bad-parameter")


def test_rows_without_numbers_are_shown_as_a_table(tab: Tab) -> None:
    page = tab.open("endpoints?endpoint=logs.all&p.project=default&run=1")
    expect(page.get_by_role("columnheader", name="event_message")).to_be_visible()
    expect(page.locator(".receipt")).to_contain_text("100 rows")


def test_streams_show_size_rate_and_fields(tab: Tab) -> None:
    page = tab.open("streams")
    expect(page.get_by_role("row", name=re.compile("cloudflare.logs.prod"))).to_contain_text(
        re.compile(r"4,\d{3}.* ago.*(KB|MB)")
    )
    page.get_by_role("link", name="deno-subhosting-events").click()
    expect(page.get_by_role("heading", name="deno-subhosting-events")).to_be_visible()
    expect(page.get_by_text("in the newest 100 events")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("metadata.level"))).to_contain_text("100 %")
    # Another event is needed, because the demo's events of this stream are minutes apart.
    event = {"event_message": "booted", "metadata": {"project_ref": "moving", "level": "info"}}
    address = f"{tab.demo.url}/api/logs?source_name=deno-subhosting-events"
    httpx.post(address, headers={"X-API-KEY": tab.demo.key}, json=[event]).raise_for_status()
    page.reload()
    expect(page.locator(".is-moving").first).to_be_visible(timeout=20_000)


def test_a_quarantined_event_is_shown_and_replayed(tab: Tab) -> None:
    key = {"X-API-KEY": tab.demo.key}
    sent = httpx.post(tab.demo.url + INGEST_ADDRESS, headers=key, json=[{"event_message": "fine"}, "not an event"])
    assert sent.json()["quarantined"] == 1
    tab.expect_refusal(409)
    page = tab.open("streams?stream=postgREST.logs.prod")
    expect(page.get_by_role("heading", name="Set aside: 1")).to_be_visible()
    expect(page.locator(".aside")).to_contain_text("not an event")
    page.get_by_role("button", name="Replay").click()
    expect(page.locator("#told")).not_to_be_empty()


def test_the_service_page_shows_memory_cache_queries_and_version(tab: Tab) -> None:
    page = tab.open("service")
    expect(page.get_by_role("meter", name="Memory")).to_be_visible()
    expect(page.get_by_role("region", name="Version")).to_contain_text(re.compile(r"\d+\.\d+"))
    expect(page.get_by_role("region", name="Cache", exact=True)).to_contain_text("of 67 MB")
    engine = page.get_by_role("region", name="Engine process")
    expect(engine).to_contain_text("0 queries are refused because it was killed with them")
    address = f"{tab.demo.url}/api/endpoints/query/logs.all"
    httpx.get(address, params={"project": "default"}, headers={"X-API-KEY": tab.demo.key})
    slowest = page.get_by_role("region", name="Slowest of the last hour").first
    expect(slowest.get_by_role("row").nth(1)).to_contain_text(re.compile(r"\d m?s.*ago", re.DOTALL), timeout=10_000)


def test_a_tab_restores_the_last_state_of_its_page(tab: Tab) -> None:
    page = tab.open("explore?range=3d&sub=auth_logs")
    expect(page.locator(".events tbody tr.row").first).to_be_visible()
    page.get_by_role("link", name="Service").click()
    expect(page.get_by_role("meter", name="Memory")).to_be_visible()
    page.get_by_role("link", name="Explore", exact=True).click()
    expect(page.get_by_label("Sub-query")).to_have_value("auth_logs")


def test_slash_focuses_the_query_and_the_first_tab_stop_skips_the_menu(tab: Tab) -> None:
    page = tab.open()
    expect(page.locator(".events tbody tr.row").first).to_be_visible()
    page.locator("h1").first.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Query", exact=True)).to_be_focused()
    page.reload()
    expect(page.locator(".events tbody tr.row").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#content")).to_be_focused()


PAGES = {
    "endpoints": "endpoints?endpoint=usage.api-counts&p.interval=daily&p.project=default&run=1",
    "streams": "streams",
    "service": "service",
}
EXPECTED_ELEMENTS = {"endpoints": ".line-chart polyline", "streams": ".shape tbody tr", "service": ".meter"}


@ALL_LOOKS
def test_the_pages_fit_the_screen(open_tab_with_look: OpenTab, width: int, scheme: str) -> None:
    tab = open_tab_with_look(width, scheme)
    page = tab.open("service")
    for name, place in PAGES.items():
        page.goto(f"{tab.demo.url}/#{place}")
        expect(page.locator(EXPECTED_ELEMENTS[name]).first).to_be_visible()
        tab.save_screenshot(name)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
