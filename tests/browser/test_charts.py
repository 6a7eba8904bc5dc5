"""Charts of answers: columns over time or by category, groups, stacking, a logarithmic scale, and the previous period."""

import re
import time
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import ALL_LOOKS, OpenTab, Tab
from tests.browser.test_accessible import load_axe, serious_faults

BY_DAY = (
    "select timestamp_trunc(timestamp, day) as day, m.request.method as method, count(*) as requests, "
    "max(m.response.origin_time) as slowest from edge_logs cross join unnest(metadata) as m group by 1, 2 order by 1"
)
BY_METHOD = (
    "select m.request.method as method, count(*) as requests, max(m.response.origin_time) as slowest "
    "from edge_logs cross join unnest(metadata) as m group by 1 order by 2 desc"
)


def sql(text: str, **values: str) -> str:
    more_parameters = "".join(f"&{name}={quote(value)}" for name, value in values.items())
    return f"explore?range=7d&lang=sql&q={quote(text)}{more_parameters}"


def values_of(text: str, kind: str) -> str:
    """Return a query of constant rows; each row is a day or a word, with a number."""
    rows = ", ".join(
        f"struct({kind.format(name)} as x, {value} as n)" for name, value in (pair.split("=") for pair in text.split())
    )
    return f"select x, n from unnest([{rows}])"


def chart_button(page: Page, name: str) -> Locator:
    return page.locator(".chart-controls").get_by_label(f"Chart: {name}")


def is_pressed(page: Page, name: str) -> Locator:
    return page.locator(".chart-controls").get_by_role("button", name=name, exact=True)


def point_heights(page: Page, selector: str) -> list[float]:
    """Return the height of each point of a line above the bottom of the chart."""
    points = page.locator(selector).first.get_attribute("points") or ""
    return [240 - 22 - float(pair.split(",")[1]) for pair in points.split()]


def test_each_group_is_a_line_and_any_numeric_column_can_be_drawn(tab: Tab) -> None:
    page = tab.open(sql(BY_DAY))
    lines = page.locator(".line-chart polyline.line")
    expect(page.locator(".chart-legend")).to_contain_text("DELETE")
    assert lines.count() >= 4
    expect(chart_button(page, "by")).to_have_value("method")
    expect(chart_button(page, "value")).to_have_value("requests")
    chart_button(page, "value").select_option("slowest")
    expect(page.get_by_role("img", name="slowest over day by method")).to_be_visible()
    chart_button(page, "by").select_option("nothing")
    expect(lines).to_have_count(1)
    expect(page.locator(".chart-legend")).to_contain_text("Rows with the same day are added up.")
    page.reload()
    expect(page.get_by_role("img", name="slowest over day")).to_be_visible()
    expect(lines).to_have_count(1)


def test_groups_are_stacked_on_each_other(tab: Tab) -> None:
    page = tab.open(sql(BY_DAY))
    is_pressed(page, "Stacked").click()
    areas = page.locator(".line-chart polygon")
    expect(areas.first).to_be_visible()
    assert areas.count() >= 4
    first, second = (areas.nth(place).get_attribute("points") or "" for place in (0, 1))
    # The bottom edge of the second series is the top edge of the first series.
    middle = len(first.split()) // 2
    assert first.split()[:middle] == list(reversed(second.split()[middle:]))
    expect(is_pressed(page, "Stacked")).to_have_attribute("aria-pressed", "true")
    page.reload()
    expect(areas.first).to_be_visible()


def test_a_logarithmic_scale_has_equal_steps_for_powers_of_ten(tab: Tab) -> None:
    page = tab.open(sql(values_of("1=1 2=10 3=100 4=1000", "timestamp '2026-01-0{} 00:00:00'")))
    expect(page.locator(".line-chart polyline.line")).to_have_count(1)
    plain = point_heights(page, "polyline.line")
    assert plain[3] > 8 * plain[2]
    is_pressed(page, "Log scale").click()
    steps = point_heights(page, "polyline.line")
    assert [steps[n + 1] - steps[n] for n in range(3)] == pytest.approx([steps[1] - steps[0]] * 3, abs=0.5)
    expect(page.locator(".line-chart .mark", has_text=re.compile(r"^1,000$"))).to_be_visible()


def test_chart_options_stay_when_the_query_runs_again(tab: Tab) -> None:
    page = tab.open(sql(BY_DAY))
    chart_button(page, "value").select_option("slowest")
    is_pressed(page, "Log scale").click()
    with page.expect_response(lambda answer: "/query/" in answer.url):
        page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".is-busy")).to_have_count(0)
    expect(chart_button(page, "value")).to_have_value("slowest")
    expect(is_pressed(page, "Log scale")).to_have_attribute("aria-pressed", "true")


def test_a_category_is_drawn_as_bars(tab: Tab) -> None:
    page = tab.open(sql(BY_METHOD))
    chart = page.locator(".bar-chart")
    expect(chart.locator("dt").first).to_have_text("GET")
    chart_button(page, "value").select_option("requests")
    widths = chart.locator(".bar-piece").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 100
    is_pressed(page, "Chart").click()
    expect(chart).to_be_hidden()
    page.reload()
    expect(is_pressed(page, "Chart")).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".events tbody tr.row").first).to_be_visible()


def test_the_previous_period_is_drawn_behind_the_current_one(tab: Tab) -> None:
    project, now = f"before-{time.monotonic_ns()}", time.time_ns() // 1000
    day = 86_400_000_000
    events = [
        {"event_message": "x", "project": project, "timestamp": now - ago * day - 3_600_000_000}
        for ago, count in ((0, 2), (1, 3), (7, 9), (8, 9))
        for _ in range(count)
    ]
    tab.page.request.post(
        f"{tab.demo.url}/api/logs?source_name=cloudflare.logs.prod", headers={"X-API-KEY": tab.demo.key}, data=events
    )
    text = "select timestamp_trunc(timestamp, day) as day, count(*) as n from edge_logs group by 1 order by 1"
    page = tab.open(sql(text, **{"p.project": project}))
    expect(page.locator(".line-chart polyline.line")).to_have_count(1)
    with page.expect_response(lambda answer: "/query/" in answer.url) as query_response:
        is_pressed(page, "Period before").click()
    assert [row["n"] for row in query_response.value.json()["result"]] == [9, 9]
    expect(page.locator(".line-chart polyline.ghost")).to_have_count(1)
    expect(page.locator(".chart-legend")).to_contain_text("Dashed: the period before.")
    assert min(point_heights(page, "polyline.ghost")) > max(point_heights(page, "polyline.line"))
    page.reload()
    expect(page.locator(".line-chart polyline.ghost")).to_have_count(1)


def test_a_previous_period_without_rows_is_reported(tab: Tab) -> None:
    page = tab.open(sql(values_of("1=1 2=2", "timestamp '2026-01-0{} 00:00:00'")).replace("7d", "1~2"))
    expect(page.locator(".line-chart polyline.line")).to_have_count(1)
    tab.page.route("**/query/**", lambda route: route.fulfill(json={"result": []}))
    is_pressed(page, "Period before").click()
    expect(page.locator(".chart-legend")).to_contain_text("The period before has no rows.")


def test_negative_numbers_many_groups_and_hostile_names_are_drawn(tab: Tab) -> None:
    markup = "<img src=x onerror=window.pwned=1>"
    text = (
        "select timestamp_add(timestamp '2026-01-01 00:00:00', interval n hour) as at, "
        f"concat('{markup}', cast(g as string)) as name, n - g as value "
        "from unnest(generate_array(1, 12)) as n cross join unnest(generate_array(1, 20)) as g"
    )
    page = tab.open(sql(text))
    expect(page.locator(".line-chart polyline.line")).to_have_count(8)
    expect(page.locator(".chart-legend")).to_contain_text("The 8 largest of 20 groups.")
    expect(page.locator(".line-chart .mark", has_text=re.compile("^-"))).not_to_have_count(0)
    expect(page.locator("main img, main script")).to_have_count(0)
    assert page.evaluate("window.pwned") is None


def test_the_values_of_a_chart_are_read_with_the_keyboard(tab: Tab) -> None:
    page = tab.open(sql(values_of("1=5 2=7", "timestamp '2026-01-0{} 00:00:00'")))
    expect(page.locator(".line-chart polyline.line")).to_have_count(1)
    page.locator(".line-chart .chart").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".chart-readout")).to_have_text("2026-01-02 00:00:00: n 7")


def test_a_chart_of_events_is_drawn_on_request_only(tab: Tab) -> None:
    text = (
        "select id, timestamp, m.response.origin_time as took from edge_logs cross join unnest(metadata) as m limit 50"
    )
    page = tab.open(sql(text))
    expect(is_pressed(page, "Chart")).to_have_attribute("aria-pressed", "false")
    expect(page.locator(".line-chart polyline")).to_have_count(0)
    is_pressed(page, "Chart").click()
    expect(page.locator(".line-chart polyline.line").first).to_be_visible()


@ALL_LOOKS
def test_charts_are_accessible_and_fit_the_screen(open_tab_with_look: OpenTab, width: int, scheme: str) -> None:
    tab = open_tab_with_look(width, scheme)
    page = tab.open(sql(BY_DAY, stack="1"))
    load_axe(page)
    expect(page.locator(".line-chart polygon").first).to_be_visible()
    tab.save_screenshot("stacked")
    assert serious_faults(page) == []
    page.goto(f"{tab.demo.url}/#{sql(BY_METHOD, before='1')}")
    expect(page.locator(".bar-chart")).to_be_visible()
    expect(page.locator(".chart-legend")).to_contain_text("period before")
    tab.save_screenshot("bars")
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
