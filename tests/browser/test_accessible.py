"""Axe, a checker of accessibility, finds no serious fault on any page, in any colour scheme and width."""

from importlib import resources
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NARROW, WIDE, OpenTab

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
REPORTED_IMPACTS = ("serious", "critical")
ADDRESSES_AND_ELEMENTS = {
    "explore?range=7d&q=limit:12": ".events tbody tr.row",
    "explore?range=7d&lang=sql&q=select timestamp_trunc(timestamp, day) as day, count(*) as n from edge_logs group by 1": ".line-chart",
    "endpoints?endpoint=usage.api-counts&p.interval=daily&p.project=default&run=1": ".line-chart",
    "streams": ".shape tbody tr",
    "service": ".meter",
}


def serious_faults(page: Page) -> list[str]:
    violations: Any = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{fault['id']}: {node['target']} {node['failureSummary']}"
        for fault in violations["violations"]
        if fault["impact"] in REPORTED_IMPACTS
        for node in fault["nodes"]
    ]


def load_axe(page: Page) -> None:
    page.evaluate(AXE)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_no_page_has_a_serious_fault(open_tab_with_look: OpenTab, width: int, scheme: str) -> None:
    tab = open_tab_with_look(width, scheme)
    page = tab.open("explore?range=7d&q=limit:12")
    load_axe(page)
    for place, expected_element in ADDRESSES_AND_ELEMENTS.items():
        page.evaluate("place => { location.hash = place }", place)
        expect(page.locator(expected_element).first).to_be_visible()
        assert serious_faults(page) == [], place


def test_no_menu_or_panel_has_a_serious_fault(open_tab_with_look: OpenTab) -> None:
    tab = open_tab_with_look(WIDE)
    tab.expect_refusal(400)
    page = tab.open("explore?range=7d&q=limit:12")
    load_axe(page)
    page.locator(".events tbody tr.row .toggle").first.click()
    page.locator('[data-field="m.request.method"] .field-name').click()
    expect(page.locator(".tree")).to_be_visible()
    expect(page.locator(".top-values")).to_be_visible()
    assert serious_faults(page) == []
    page.get_by_role("button", name="Last 7 days").click()
    assert serious_faults(page) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Save", exact=True).click()
    assert serious_faults(page) == []
    page.keyboard.press("Escape")
    editor = page.get_by_role("combobox", name="Query", exact=True)
    editor.fill("(")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".editor-error")).not_to_be_empty()
    editor.press_sequentially(" meth")
    expect(page.get_by_role("listbox", name="Completions")).to_be_visible()
    assert serious_faults(page) == []


def test_the_key_page_has_no_serious_fault(open_tab_with_look: OpenTab) -> None:
    page = open_tab_with_look(WIDE, "dark").open(with_key=False)
    expect(page.get_by_label("Key", exact=True)).to_be_focused()
    load_axe(page)
    assert serious_faults(page) == []
