"""Axe finds no serious accessibility fault on any page, in either colour scheme and at either width."""

from importlib import resources
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NARROW, WIDE, OpenTab

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
GRAVE = ("serious", "critical")
PLACES = {
    "explore?range=7d&q=limit:12": ".events tbody tr.row",
    "explore?range=7d&lang=sql&q=select timestamp_trunc(timestamp, day) as day, count(*) as n from edge_logs group by 1": ".line-chart",
    "endpoints?endpoint=usage.api-counts&p.interval=daily&p.project=default&run=1": ".line-chart",
    "streams": ".shape tbody tr",
    "service": ".meter",
}


def faults(page: Page) -> list[str]:
    found: Any = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in GRAVE
        for node in one["nodes"]
    ]


def load_axe(page: Page) -> None:
    page.evaluate(AXE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_no_page_has_a_serious_fault(tab_of: OpenTab, width: int, scheme: str) -> None:
    tab = tab_of(width, scheme)
    page = tab.open("explore?range=7d&q=limit:12")
    load_axe(page)
    for place, seen in PLACES.items():
        page.evaluate("place => { location.hash = place }", place)
        expect(page.locator(seen).first).to_be_visible()
        assert faults(page) == [], place


def test_no_menu_or_panel_has_a_serious_fault(tab_of: OpenTab) -> None:
    tab = tab_of(WIDE)
    tab.expect_refusal(400)
    page = tab.open("explore?range=7d&q=limit:12")
    load_axe(page)
    page.locator(".events tbody tr.row .toggle").first.click()
    page.locator('[data-field="m.request.method"] .field-name').click()
    expect(page.locator(".tree")).to_be_visible()
    expect(page.locator(".top-values")).to_be_visible()
    assert faults(page) == []
    page.get_by_role("button", name="Last 7 days").click()
    assert faults(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Save", exact=True).click()
    assert faults(page) == []
    page.keyboard.press("Escape")
    editor = page.get_by_role("combobox", name="Query", exact=True)
    editor.fill("(")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".editor-error")).not_to_be_empty()
    editor.press_sequentially(" meth")
    expect(page.get_by_role("listbox", name="Completions")).to_be_visible()
    assert faults(page) == []


def test_the_key_page_has_no_serious_fault(tab_of: OpenTab) -> None:
    page = tab_of(WIDE, "dark").open(with_key=False)
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    load_axe(page)
    assert faults(page) == []
