"""The Explore page: filters, time ranges, details of events, exports, and saved queries."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote_plus

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import ALL_LOOKS, OpenTab, Tab, copy_with

ROW_SELECTOR = ".events tbody tr.row"


def chosen_project(page: Page) -> str:
    return unquote_plus(page.url.partition("#")[2])


def query_editor(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Query", exact=True)


def run_query(page: Page, text: str) -> None:
    query_editor(page).fill(text)
    page.get_by_role("button", name="Run", exact=True).click()


def event_count(page: Page) -> int:
    """Return the number of events that the histogram shows, once it is visible."""
    readout = page.locator(".readout")
    expect(readout).to_have_text(re.compile(r"^[\d,]+ events$"))
    return int(re.sub(r"\D", "", readout.inner_text()))


def test_events_are_shown_after_the_key_is_pasted(tab: Tab) -> None:
    page = tab.open("explore")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    expect(page.get_by_role("columnheader")).to_have_text(
        [re.compile("timestamp"), re.compile("status_code"), re.compile("event_message")]
    )
    assert event_count(page) >= page.locator(ROW_SELECTOR).count() > 10
    assert page.locator(".histogram rect.tone-fine").count() > 5
    expect(page.get_by_role("status").first).to_contain_text("rows in")


def test_the_key_is_kept_in_the_tab_and_not_in_addresses(tab: Tab) -> None:
    urls: list[str] = []
    tab.page.on("request", lambda request: urls.append(request.url))
    page = tab.open()
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    assert tab.demo.key not in page.url
    assert not [url for url in urls if tab.demo.key in url]
    assert {url.partition("/")[0] + "//" + url.split("/")[2] for url in urls} == {tab.demo.url}
    assert page.evaluate("localStorage.length") == 0
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Key …").click()
    page.get_by_role("button", name="Forget the key").click()
    expect(page.get_by_role("heading", name="Paste a key")).to_be_visible()
    assert page.evaluate("sessionStorage.getItem('cordwood.key')") is None


def test_an_invalid_key_is_refused_with_a_message(tab: Tab) -> None:
    tab.expect_refusal(401)
    page = tab.open(with_key=False)
    page.get_by_label("Key", exact=True).fill("cw_mistyped")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("alert")).to_contain_text("not in force")


def test_another_sub_query_has_its_own_fields_and_colours(tab: Tab) -> None:
    page = tab.open()
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    page.get_by_label("Sub-query").select_option("postgres_logs")
    expect(page.get_by_label("Stack the bars by")).to_have_value("m.parsed.error_severity")
    expect(page.locator(".legend")).to_contain_text("ERROR")
    assert "sub=postgres_logs" in chosen_project(page)
    page.get_by_label("Stack the bars by").select_option("m.parsed.command_tag")
    expect(page.locator(".legend")).to_contain_text("SELECT")


def test_words_and_filters_apply_to_rows_and_bars(tab: Tab) -> None:
    page = tab.open()
    all_events = event_count(page)
    run_query(page, "m.response.status_code:>=500")
    expect(page.locator(".legend-entry")).to_have_text([re.compile("^5xx")])
    assert 0 < event_count(page) < all_events
    run_query(page, "nowhere-to-be-found")
    expect(page.get_by_text("Nothing in this time that matches.")).to_be_visible()


def test_dragging_across_the_bars_selects_a_time_range(tab: Tab) -> None:
    page = tab.open()
    all_events = event_count(page)
    box = page.locator(".histogram .chart").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=4)
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"range=\d+%7E\d+"))
    expect(page.locator(".readout")).not_to_have_text(f"{all_events:,} events")
    assert 0 < event_count(page) < all_events


def test_the_bars_are_read_and_zoomed_with_the_keyboard(tab: Tab) -> None:
    page = tab.open()
    event_count(page)
    page.locator(".histogram .chart").focus()
    page.keyboard.press("End")
    expect(page.locator(".readout")).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d: \d+"))
    for _ in range(9):
        page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"range=\d+%7E\d+"))


def test_quick_ranges_and_the_calendar_set_the_time(tab: Tab) -> None:
    page = tab.open()
    page.get_by_role("button", name="Last 7 days").click()
    page.get_by_role("button", name="24 hours").click()
    expect(page.get_by_role("button", name="Last 24 hours")).to_be_visible()
    page.get_by_role("button", name="Last 24 hours").click()
    page.get_by_label("From", exact=True).fill("2026-01-01T00:00:00")
    page.get_by_label("To", exact=True).fill("2026-01-02T12:00:00")
    page.get_by_role("button", name="Use these").click()
    assert "range=1767225600000000~1767355200000000" in chosen_project(page)
    page.get_by_role("button", name="Wider: twice the time").click()
    assert "range=1767160800000000~" in chosen_project(page)


def test_a_row_expands_to_its_event_whose_values_add_filters(tab: Tab) -> None:
    page = tab.open()
    page.locator(f"{ROW_SELECTOR} .toggle").first.click()
    tree = page.locator(".tree")
    expect(tree.get_by_text("logflare_worker")).to_be_visible()
    leaf = tree.locator(".leaf", has=page.locator(".tree-key", has_text=re.compile("^method$")))
    method = leaf.locator(".value").inner_text()
    leaf.locator(".value").click()
    expect(query_editor(page)).to_have_value(f"m.request.method:{method}")
    # The row stays expanded, because it matches the new filter.
    leaf = page.locator(".tree .leaf", has=page.locator(".tree-key", has_text=re.compile("^country$")))
    country = leaf.locator(".value").inner_text()
    leaf.hover()
    leaf.get_by_role("button", name=re.compile("Leave out")).click()
    expect(query_editor(page)).to_have_value(f"m.request.method:{method} -m.request.cf.country:{country}")
    expect(page.locator(".editor-error")).to_be_empty()


def test_a_row_expands_if_the_query_names_its_sub_query(tab: Tab) -> None:
    page = tab.open("explore?range=7d&q=f:auth_logs")
    page.locator(f"{ROW_SELECTOR} .toggle").first.click()
    expect(page.locator(".tree .leaf").first).to_be_visible()


def test_an_expanded_row_can_be_read_with_the_keyboard(tab: Tab) -> None:
    page = tab.open()
    page.locator(f"{ROW_SELECTOR} .toggle").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(f"{ROW_SELECTOR} >> nth=1")).to_have_class(re.compile("is-open"))
    expect(page.locator(f"{ROW_SELECTOR} >> nth=1").locator(".toggle")).to_be_focused()


def test_a_field_shows_its_top_values_and_can_become_a_column(tab: Tab) -> None:
    page = tab.open()
    field = page.locator('[data-field="m.request.method"]')
    field.get_by_role("button", name="m.request.method").first.click()
    expect(field.locator(".top-value").first).to_have_text("GET")
    field.get_by_role("button", name="Column m.request.method").click()
    expect(page.get_by_role("columnheader", name="m.request.method")).to_be_visible()
    page.get_by_role("button", name="Remove the column event_message").click()
    expect(page.get_by_role("columnheader", name="event_message")).to_have_count(0)
    field.get_by_role("button", name="DELETE", exact=True).click()
    expect(query_editor(page)).to_have_value("m.request.method:DELETE")
    page.get_by_label("Find a field").fill("country")
    expect(page.locator(".field")).to_have_count(2)


def test_completion_suggests_fields_and_then_their_values(tab: Tab) -> None:
    page = tab.open()
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    query_editor(page).press_sequentially("meth")
    offered = page.get_by_role("listbox", name="Completions").get_by_role("option")
    expect(offered.first).to_contain_text("m.request.method:")
    page.keyboard.press("Tab")
    expect(query_editor(page)).to_have_value("m.request.method:")
    expect(offered.first).to_contain_text("GET")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(query_editor(page)).to_have_value(re.compile(r"^m\.request\.method:[A-Z]+ $"))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("q=m.request.method"))


def test_an_error_is_shown_at_its_position(tab: Tab) -> None:
    tab.expect_refusal(400)
    page = tab.open()
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    run_query(page, "error (m.request.method:GET")
    expect(page.get_by_role("alert")).to_contain_text("never closed")
    expect(page.locator(".editor-paint .wrong")).to_have_text("(")
    # The rows of the previous query stay visible, but grey.
    expect(page.locator(".explore.is-behind")).to_be_visible()
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    page.get_by_role("button", name="line 1, column 7").click()
    assert page.evaluate("[document.activeElement.selectionStart, document.activeElement.selectionEnd]") == [6, 7]
    run_query(page, "error")
    expect(page.locator(".editor-error")).to_be_empty()
    expect(page.locator(".explore.is-behind")).to_have_count(0)


def test_switching_to_sql_translates_the_query_and_errors_have_positions(tab: Tab) -> None:
    tab.expect_refusal(400)
    page = tab.open("explore?range=7d&q=m.response.status_code:>=500")
    filtered_count = event_count(page)
    page.get_by_role("button", name="SQL", exact=True).click()
    expect(query_editor(page)).to_have_value(re.compile(r"SELECT[\s\S]+status_code >= 500"))
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    assert event_count(page) == filtered_count
    query_editor(page).fill("select timestamp,\n  event_mesage\nfrom edge_logs")
    query_editor(page).press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text('Did you mean "event_message"?')
    expect(page.locator(".editor-paint .wrong")).to_have_text("event_mesage")
    query_editor(page).fill(
        "select timestamp_trunc(timestamp, day) as day, count(*) as requests from edge_logs group by 1 order by 1"
    )
    query_editor(page).press("Control+Enter")
    expect(page.locator(".line-chart polyline")).to_have_count(1)


def test_a_value_of_a_row_filters_a_query_in_sql(tab: Tab) -> None:
    page = tab.open("explore?range=7d&lang=sql&q=select timestamp, metadata from edge_logs limit 50")
    page.locator(f"{ROW_SELECTOR} .toggle").first.click()
    page.locator(".tree .leaf", has=page.locator(".tree-key", has_text=re.compile("^method$"))).locator(
        ".value"
    ).click()
    expect(query_editor(page)).to_have_value(re.compile(r"cross join unnest\(t\.metadata\) as r0"))
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    expect(page.locator(".editor-error")).to_be_empty()


def test_an_endpoint_in_clickhouse_sql_can_be_explored(tab: Tab) -> None:
    page = tab.open("explore?range=7d&q=POST")
    page.get_by_label("Endpoint").select_option("logs.all.otel")
    expect(query_editor(page)).to_have_value(re.compile("^select id, timestamp, source"))
    assert event_count(page) > 100
    expect(page.get_by_role("button", name="LQL", exact=True)).to_have_count(0)
    run_query(page, "select timestamp, source, log_attributes from logs where source = 'edge_logs' limit 50")
    expect(page.get_by_role("columnheader", name="log_attributes")).to_be_visible()
    page.locator(f"{ROW_SELECTOR} .toggle").first.click()
    key = page.locator(".tree-key", has_text=re.compile("^request.method$"))
    page.locator(".tree .leaf", has=key).locator(".value").click()
    expect(query_editor(page)).to_have_value(re.compile(r"where t\.log_attributes\['request\.method'\] = '"))
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    expect(page.locator(".editor-error")).to_be_empty()


def test_sub_queries_without_events_are_shown_as_plain_rows(tab: Tab) -> None:
    page = tab.open("explore?endpoint=usage.api-counts&p.interval=daily&p.project=default&range=30d&sub=chart_counts")
    expect(page.locator(".line-chart polyline")).to_have_count(4)
    expect(page.get_by_role("columnheader", name="total_auth_requests")).to_be_visible()
    page.get_by_label("Sub-query").select_option("dates")
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)
    expect(page.locator(".editor-error")).to_be_empty()


def test_a_missing_parameter_is_reported_by_the_service(tab: Tab) -> None:
    tab.expect_refusal(400)
    page = tab.open()
    page.get_by_label("project").fill("")
    page.get_by_label("project").press("Enter")
    expect(page.locator(".editor-error")).to_contain_text("project")
    page.get_by_label("project").fill("acme")
    page.get_by_label("project").press("Enter")
    expect(page.locator(ROW_SELECTOR).first).to_contain_text("acme")


def test_whole_numbers_keep_all_their_digits(tab: Tab) -> None:
    event = {"event_message": "digits", "project": "digits", "metadata": {"big": 9_223_372_036_854_775_807}}
    tab.page.request.post(
        f"{tab.demo.url}/api/logs?source_name=cloudflare.logs.prod", headers={"X-API-KEY": tab.demo.key}, data=event
    )
    page = tab.open("explore?range=15m&p.project=digits")
    page.locator(f"{ROW_SELECTOR} .toggle").click()
    page.get_by_role("button", name="9223372036854775807", exact=True).click()
    expect(query_editor(page)).to_have_value("m.big:9223372036854775807")
    expect(page.locator(ROW_SELECTOR)).to_have_count(1)


def test_live_refreshes_the_rows_and_keeps_expanded_ones(tab: Tab) -> None:
    page = tab.open("explore?range=15m")
    page.get_by_role("button", name="Live").click()
    with page.expect_response(lambda answer: "lql=" in answer.url and "/query/" in answer.url):
        pass
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    page.locator(f"{ROW_SELECTOR} .toggle").first.click()
    expect(page.locator(".tree")).to_be_visible()
    with page.expect_response(lambda answer: "lql=" in answer.url and "page_size=100" in answer.url):
        pass
    expect(page.locator(".tree")).to_be_visible()
    assert "live=1" in chosen_project(page)
    page.get_by_role("button", name="Live").click()
    assert "live" not in chosen_project(page)


def test_the_next_page_is_appended_to_the_rows(tab: Tab) -> None:
    page = tab.open("explore?range=7d")
    expect(page.locator(ROW_SELECTOR)).to_have_count(100)
    for rows in (200, 300):
        page.get_by_role("button", name="Show more").click()
        expect(page.locator(ROW_SELECTOR)).to_have_count(rows)
    expect(page.locator(".summary")).to_contain_text("300 rows")
    with page.expect_request(lambda request: "cursor=" in request.url) as page_request:
        page.get_by_role("button", name="Show more").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(400)
    assert "limit" not in page_request.value.url


def test_live_shows_a_row_as_its_event_is_stored(tab: Tab) -> None:
    page = tab.open("explore?range=15m&p.project=followed")
    with page.expect_response(lambda answer: "/tail/" in answer.url and answer.status == 200):
        page.get_by_role("button", name="Live").click()
    for text in ("first", "second"):
        event = {"event_message": text, "project": "followed", "metadata": {"response": {"status_code": 200}}}
        # The page must show the row without repeating the query, so requests for queries get no answer.
        page.route("**/query/**", lambda _: None)
        page.request.post(
            f"{tab.demo.url}/api/logs?source_name=cloudflare.logs.prod", headers={"X-API-KEY": tab.demo.key}, data=event
        )
        expect(page.locator(ROW_SELECTOR).first).to_contain_text(text)
    expect(page.locator(ROW_SELECTOR)).to_have_count(2)
    page.unroute_all(behavior="ignoreErrors")


def test_back_forward_and_reload_restore_the_view(tab: Tab) -> None:
    page = tab.open()
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    run_query(page, "m.request.method:DELETE")
    expect(page).to_have_url(re.compile("q=m.request.method"))
    page.get_by_label("Sub-query").select_option("auth_logs")
    expect(page).to_have_url(re.compile("sub=auth_logs"))
    page.go_back()
    expect(page.get_by_label("Sub-query")).to_have_value("edge_logs")
    expect(query_editor(page)).to_have_value("m.request.method:DELETE")
    page.go_back()
    expect(query_editor(page)).to_have_value("")
    page.go_forward()
    expect(query_editor(page)).to_have_value("m.request.method:DELETE")
    expect(page.locator(ROW_SELECTOR).first).to_contain_text("DELETE")
    before = chosen_project(page)
    page.reload()
    expect(query_editor(page)).to_have_value("m.request.method:DELETE")
    expect(page.locator(ROW_SELECTOR).first).to_contain_text("DELETE")
    assert chosen_project(page) == before


def test_the_rows_are_downloaded_in_every_format(tab: Tab) -> None:
    page = tab.open("explore?range=7d&q=m.request.method:DELETE")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    for form, begins in (
        ("json", b'{"result"'),
        ("ndjson", b"{"),
        ("csv", b"id,"),
        ("arrow", b"\xff\xff\xff\xff"),
        ("parquet", b"PAR1"),
    ):
        page.get_by_role("button", name="Save", exact=True).click()
        with page.expect_download() as download:
            page.get_by_role("button", name=form, exact=True).click()
        assert Path(download.value.path()).read_bytes().startswith(begins)


def test_the_copied_curl_command_has_no_key_and_returns_the_same_rows(tab: Tab) -> None:
    page = tab.open("explore?range=7d&q=m.request.method:DELETE limit:3")
    expect(page.locator(ROW_SELECTOR)).to_have_count(3)
    page.get_by_role("button", name="Save", exact=True).click()
    line = copy_with(page, page.get_by_role("button", name="Copy as curl"))
    expect(page.locator("#told")).to_contain_text("clipboard")
    assert tab.demo.key not in line
    shell = {"CORDWOOD_KEY": tab.demo.key, "PATH": "/usr/bin:/bin"}
    output = subprocess.run(
        ["bash", "-c", line], env=shell, capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert len(json.loads(output)["result"]) == 3


@pytest.mark.parametrize(
    "query",
    [
        "q=m.response.status_code:>=500",
        "lang=sql&q=select count(*) as n from edge_logs",
        "endpoint=logs.all.otel&q=with 1 as one select count() as n, one from logs",
    ],
)
def test_a_query_is_saved_as_a_valid_endpoint_file(tab: Tab, tmp_path: Path, query: str) -> None:
    page = tab.open(f"explore?range=7d&{query}")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_label("Name of the endpoint").fill("edge.failures")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save .sql").click()
    assert download.value.suggested_filename == "edge.failures.sql"
    download.value.save_as(tmp_path / "edge.failures.sql")
    checked = subprocess.run(
        [sys.executable, "-m", "cordwood", "check", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_query_is_saved_to_the_service_and_served_at_once(tab: Tab) -> None:
    page = tab.open("explore?range=7d&p.project=acme&lang=sql&q=select count(*) as n from edge_logs")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()

    def save() -> None:
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_label("Name of the endpoint").fill("saved.here")
        page.get_by_role("button", name="Save here").click()

    save()
    expect(page.get_by_text("The endpoint saved.here is served.")).to_be_visible()
    answer = page.request.get(
        f"{tab.demo.url}/api/endpoints/query/saved.here?project=acme", headers={"X-API-KEY": tab.demo.key}
    )
    assert answer.json()["result"][0]["n"] > 0
    tab.expect_refusal(422)
    save()
    expect(page.get_by_text("name has already been taken.")).to_be_visible()
    page.get_by_role("link", name="Endpoints").click()
    page.get_by_role("link", name="saved.here").click()
    expect(page.get_by_role("heading", name="saved.here")).to_be_visible()
    deleted = page.request.delete(f"{tab.demo.url}/api/endpoints/saved.here", headers={"X-API-KEY": tab.demo.key})
    assert deleted.status == 204


def test_a_query_key_may_explore_and_sees_what_it_may_not_read(tab: Tab) -> None:
    tab.expect_refusal(403)
    tab.demo = replace(tab.demo, key=tab.new_key(scopes="query", pins={"project": "acme"}))
    page = tab.open("explore?range=7d&p.project=acme")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    # The service does not list fields for a pinned key, so the page lists the fields of the events that the key may
    # read.
    expect(page.locator('[data-field="m.request.method"]')).to_be_visible()
    page.get_by_role("link", name="Endpoints").click()
    expect(page.get_by_role("heading", name="logs.all")).to_be_visible()
    page.get_by_role("link", name="Streams").click()
    expect(page.get_by_text("Streams are shown for a private key.")).to_be_visible()
    page.get_by_role("link", name="Service").click()
    expect(page.get_by_text("for a private key")).to_be_visible()


@ALL_LOOKS
def test_the_page_fits_the_screen(open_tab_with_look: OpenTab, width: int, scheme: str) -> None:
    tab = open_tab_with_look(width, scheme)
    page = tab.open()
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    event_count(page)
    tab.save_screenshot("rows")
    page.locator(f"{ROW_SELECTOR} .toggle").nth(1).click()
    expect(page.locator(".tree")).to_be_visible()
    tab.save_screenshot("event")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
