"""The Alerts page: states, silences, targets and history, and hostile texts of events."""

import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from tests.browser.conftest import ALL_LOOKS, OpenTab, Tab, demo_from_service, open_tab_in
from tests.browser.test_accessible import load_axe, serious_faults
from tests.demo import Demo
from tests.journey.conftest import PUBLIC, start_service
from tests.journey.watched_databases import ERRORS_NOW, UNREACHABLE_TARGET, alert_named, create_endpoint, fire_alert
from tests.waiting import until

HOSTILE = "<img src=x onerror=document.title='taken'>\u202edetrevni"
QUERY_WITHOUT_ROWS = "select id from `gotrue.logs.prod`"
FAILING_QUERY = "select cast(event_message as int64) as n from `postgres.logs`"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Start a service with an alert that fires for two databases, a quiet one, and one that cannot be evaluated."""
    service = start_service(tmp_path_factory.mktemp("alerts") / "data", env=UNREACHABLE_TARGET)
    quiet = {"condition": "rows", "every": "1h", "for": "5m"}
    fails = {"condition": "n > 1", "every": "1s", "severity": "info"}
    create_endpoint(service, ERRORS_NOW)
    create_endpoint(service, {"name": "quiet", "query": QUERY_WITHOUT_ROWS, "alert": quiet})
    create_endpoint(service, {"name": "fails", "query": FAILING_QUERY, "alert": fails})
    fire_alert(service, ("orders", HOSTILE))
    until(lambda: bool(alert_named(service, "fails")["error"]))
    yield demo_from_service(service)
    service.stop()


def silences(demo: Demo) -> list[dict[str, object]]:
    response_silences: list[dict[str, object]] = httpx.get(
        f"{demo.url}/api/alerts/silences", headers={"X-API-KEY": demo.key}
    ).json()["silences"]
    return response_silences


@pytest.fixture
def page(tab: Tab) -> Page:
    opened = tab.open("alerts")
    expect(opened.get_by_role("region", name="Alert errors.now")).to_be_visible()
    return opened


def test_firing_alerts_come_first_with_text_labels_value_and_start(page: Page) -> None:
    cards = page.locator(".alert-card h2")
    expect(cards).to_have_text(["errors.now", "fails", "quiet"])
    card = page.get_by_role("region", name="Alert errors.now")
    expect(card.locator(".alert-head")).to_contain_text(
        re.compile("firing.*critical.*n > 1.*every 1s; sent to nowhere")
    )
    row = card.get_by_role("row", name=re.compile("orders"))
    expect(row).to_contain_text(re.compile(r"firing.*2 errors in orders.*2.*database=orders.* (s|min) ago"))
    expect(page.locator(".alert-totals")).to_contain_text(re.compile("2 firing.*0 pending.*1 cannot be evaluated"))


def test_a_failed_evaluation_shows_its_reason(page: Page) -> None:
    card = page.get_by_role("region", name="Alert fails")
    expect(card.locator(".problem")).to_contain_text("It cannot be evaluated: ")
    expect(card.locator(".alert-head")).to_contain_text("unknown")


def test_markup_in_texts_of_events_is_shown_as_text(page: Page) -> None:
    expect(page.get_by_role("region", name="Alert errors.now")).to_contain_text(HOSTILE)
    expect(page.get_by_role("region", name="History").first).to_contain_text(HOSTILE)
    expect(page.locator("main img")).to_have_count(0)
    expect(page).to_have_title("Alerts · cordwood")
    # Each text is in a `bdi` element, so that a bidirectional override in it does not affect the text after it.
    assert page.locator(".alert-card td bdi").count() > 0


def test_a_group_is_silenced_and_its_silence_is_ended(page: Page, demo: Demo) -> None:
    page.get_by_role("button", name="Silence database=orders").click()
    form = page.get_by_role("form", name="Silence")
    expect(form).to_contain_text("errors.now with database=orders")
    expect(form.get_by_label("For")).to_be_focused()
    form.get_by_label("For").select_option("8 hours")
    form.get_by_label("Comment").fill("the migration <b>")
    form.get_by_role("button", name="Begin the silence").click()
    expect(form).to_be_hidden()
    expect(page.locator("#told")).to_contain_text("Silenced until")
    expect(page.get_by_role("button", name="Silence database=orders")).to_be_focused()
    silence = silences(demo)[0]
    assert (silence["alert"], silence["labels"], silence["comment"]) == (
        "errors.now",
        {"database": "orders"},
        "the migration <b>",
    )
    card = page.get_by_role("region", name="Alert errors.now")
    expect(card.get_by_role("row", name=re.compile("orders"))).to_contain_text("silenced")
    section = page.get_by_role("region", name="Silences").first
    expect(section).to_contain_text(re.compile("errors.now.*database=orders.*the migration <b>"))
    section.get_by_role("button", name="End the silence of errors.now with database=orders").click()
    expect(section).to_contain_text("Nothing is silenced.")
    expect(page.locator("#told")).to_contain_text("The silence has ended.")
    assert silences(demo) == []


def test_an_alert_or_all_of_them_are_silenced_by_the_keyboard(page: Page, demo: Demo) -> None:
    for name, alert in (("Silence quiet", "quiet"), ("Silence all", None)):
        page.get_by_role("button", name=name).focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        expect(page.get_by_role("form", name="Silence")).to_be_hidden()
        expect(page.get_by_role("button", name=name)).to_be_focused()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        page.keyboard.type("tonight")
        page.keyboard.press("Enter")
        end = page.get_by_role("button", name=f"End the silence of {alert or 'all alerts'}")
        expect(end).to_be_visible()
        assert [silence["alert"] for silence in silences(demo)] == [alert]
        end.click()
        expect(end).to_have_count(0)
        expect(page.get_by_role("heading", name="Alerts")).to_be_focused()


def test_a_refused_silence_shows_the_reason(page: Page, tab: Tab) -> None:
    tab.expect_refusal(422)
    page.get_by_role("button", name="Silence quiet").click()
    form = page.get_by_role("form", name="Silence")
    form.get_by_label("Comment").evaluate(
        "input => { input.removeAttribute('maxlength'); input.value = 'x'.repeat(501) }"
    )
    form.get_by_role("button", name="Begin the silence").click()
    expect(form.get_by_role("alert")).to_contain_text("at most 500 characters")


def test_a_failing_target_shows_its_error_and_can_be_tested(page: Page) -> None:
    row = page.get_by_role("row", name=re.compile("nowhere.*webhook"))
    expect(row).to_contain_text(re.compile(r"127\.0\.0\.1.*(1 failure|failures in a row): "))
    row.get_by_role("button", name="Test nowhere").click()
    expect(page.locator("#told")).to_contain_text("Nothing was sent to nowhere: ")


def test_the_history_can_be_limited_to_one_alert(page: Page) -> None:
    history = page.get_by_role("region", name="History").first
    expect(history.get_by_role("row", name=re.compile("fails.*cannot be evaluated"))).to_be_visible()
    history.get_by_label("of").select_option("errors.now")
    expect(history.get_by_role("row", name=re.compile("fails"))).to_have_count(0)
    expect(history.get_by_role("row", name=re.compile("errors.now.*not sent"))).to_be_visible()
    assert page.url.endswith("#alerts?alert=errors.now")
    page.reload()
    expect(history.get_by_label("of")).to_have_value("errors.now")


def test_older_pages_of_the_history_stay_when_it_is_refreshed(page: Page) -> None:
    at = "2026-01-01T00:00:00.000000Z"
    items = {n: {"at": at, "alert": "quiet", "kind": "firing", "text": f"item {n}", "number": n} for n in range(1, 121)}

    def answer(route: Route) -> None:
        cursor = re.search(r"before=(\d+)", route.request.url)
        numbers = [number for number in sorted(items, reverse=True) if cursor is None or number < int(cursor[1])]
        route.fulfill(json={"history": [items[number] for number in numbers[:50]]})

    page.route("**/api/alerts/history?*", answer)
    page.reload()
    history = page.get_by_role("region", name="History").first
    expect(history.locator("tbody tr")).to_have_count(50)
    history.get_by_role("button", name="Show more").click()
    expect(history.locator("tbody tr")).to_have_count(100)
    items[121] = {**items[120], "text": "the newest", "number": 121}
    expect(history.locator("tbody tr").first).to_contain_text("the newest", timeout=10_000)
    expect(history.locator("tbody tr")).to_have_count(101)
    expect(history.get_by_role("button", name="Show more")).to_be_visible()
    history.get_by_role("button", name="Show more").click()
    expect(history.locator("tbody tr")).to_have_count(121)
    expect(history.get_by_role("button", name="Show more")).to_be_hidden()


def test_a_hundred_groups_are_shown_and_the_others_are_counted(page: Page, demo: Demo) -> None:
    alerts = httpx.get(f"{demo.url}/api/alerts", headers={"X-API-KEY": demo.key}).json()
    alert = next(candidate for candidate in alerts["alerts"] if candidate["name"] == "errors.now")
    group = alert["instances"][0]
    alert["instances"] = [{**group, "fingerprint": str(number), "labels": {"n": str(number)}} for number in range(100)]
    alert["firing"], alert["pending"] = 1_000, 0
    page.route("**/api/alerts", lambda route: route.fulfill(json=alerts))
    page.reload()
    card = page.get_by_role("region", name="Alert errors.now")
    expect(card.locator("tbody tr")).to_have_count(100)
    expect(card).to_contain_text("900 more.")
    expect(page.locator(".alert-totals")).to_contain_text("1,000 firing")


def test_a_hidden_page_is_not_refreshed_and_a_failed_refresh_is_retried(tab: Tab) -> None:
    tab.expected.append("net::ERR_FAILED")
    tab.page.clock.install()
    page = tab.open("alerts")
    expect(page.get_by_role("region", name="Alert errors.now")).to_be_visible()
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.clock.run_for(20_000)
    page.wait_for_timeout(200)
    assert requests == []
    page.route("**/api/alerts", lambda route: route.abort())
    page.evaluate("delete document.hidden")
    with page.expect_event("requestfailed"):
        page.clock.run_for(10_000)
    page.unroute("**/api/alerts")
    with page.expect_response(re.compile("/api/alerts$")):
        page.clock.run_for(10_000)
    expect(page.get_by_role("region", name="Alert errors.now")).to_be_visible()


def test_a_refresh_keeps_the_focus(tab: Tab) -> None:
    tab.page.clock.install()
    page = tab.open("alerts")
    button = page.get_by_role("button", name="Silence database=orders")
    button.focus()
    for _ in range(2):
        with page.expect_response(re.compile("/api/alerts$")):
            page.clock.run_for(10_000)
    expect(button).to_be_focused()


def test_the_link_in_notifications_opens_the_alert(tab: Tab) -> None:
    page = tab.open("/alerts")
    expect(page.get_by_role("region", name="Alert errors.now")).to_be_visible()


def test_a_key_that_is_not_private_sees_a_message(tab: Tab) -> None:
    tab.expect_refusal(403)
    tab.demo = Demo(tab.demo.process, "", tab.demo.temporary, tab.demo.url, PUBLIC)
    expect(tab.open("alerts").get_by_text("Alerts are shown for a private key.")).to_be_visible()


def test_without_alerts_the_page_explains_how_to_define_one(
    shared_context: BrowserContext, shared_demo: Demo, request: pytest.FixtureRequest
) -> None:
    opened = open_tab_in(shared_context, shared_demo, request)
    page = opened.open("alerts")
    expect(page.get_by_text("There are no alerts yet.")).to_be_visible()
    expect(page.locator(".alert-example")).to_contain_text("[alert]")
    expect(page.get_by_role("region", name="Silences")).to_have_count(0)
    load_axe(page)
    assert serious_faults(page) == []
    page.close()
    assert opened.page_errors == []


@ALL_LOOKS
def test_the_page_is_accessible_and_fits_the_screen(open_tab_with_look: OpenTab, width: int, scheme: str) -> None:
    tab = open_tab_with_look(width, scheme)
    page = tab.open("alerts")
    expect(page.get_by_role("region", name="Alert errors.now")).to_be_visible()
    load_axe(page)
    page.get_by_role("button", name="Silence database=orders").click()
    tab.save_screenshot("alerts")
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
