"""Long values in tables and in the field list: columns are wide enough, and counts stay visible."""

import time
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NARROW, WIDE, OpenTab, Tab

ROW_SELECTOR = ".events tbody tr.row"
LONG_URL = "https://example.com/" + "/".join(f"part-{number}" for number in range(60))
# Script that lists cells of more than three lines with room for fewer than six characters in a line.
NARROW_CELLS_SCRIPT = """() => [...document.querySelectorAll(".events .row td")].filter((cell) => {
  const { width, height } = cell.getBoundingClientRect();
  const style = getComputedStyle(cell);
  const inner = width - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return width > 0 && inner < 6 * 7 && height > 3 * 22;
}).map((cell) => `${cell.dataset.label}: ${cell.textContent.slice(0, 40)}`)"""
# Script that lists counts and exclude buttons that are not completely inside the card of fields.
HIDDEN_COUNTS_SCRIPT = """() => {
  const card = document.querySelector(".side").getBoundingClientRect();
  return [...document.querySelectorAll(".top-values .faint, .top-values .value-not, .field-column")].filter((one) => {
    const { left, right, width } = one.getBoundingClientRect();
    return width < 4 || left < card.left || right > card.right;
  }).map((one) => one.parentElement.textContent.slice(0, 80));
}"""


def send_long_events(tab: Tab, project: str) -> None:
    metadata: dict[str, Any] = {
        "a_long_word": "w" * 300,
        "a_list": [LONG_URL, LONG_URL],
        "name_" * 12 + "end": LONG_URL,
        "response": {"status_code": 200},
        "request": {"url": LONG_URL, "method": "GET"},
    }
    event = {"event_message": f"GET {LONG_URL}", "project": project, "metadata": metadata}
    tab.send("cloudflare.logs.prod", *[event] * 3)


def open_with_long_events(tab: Tab, address: str) -> Page:
    """Send long events of a new project, then open the address."""
    project = f"long-{time.monotonic_ns()}"
    send_long_events(tab, project)
    page = tab.open(f"{address}&p.project={project}")
    expect(page.locator(ROW_SELECTOR)).to_have_count(3)
    return page


def enable_wrapping(page: Page) -> None:
    page.get_by_role("button", name="Wrap", exact=True).click()
    expect(page.locator(".events")).to_have_class("events is-wrapped")


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_endpoints_page_has_no_narrow_columns_and_expands_events(open_tab_with_look: OpenTab, width: int) -> None:
    tab = open_tab_with_look(width)
    page = open_with_long_events(tab, "endpoints?endpoint=logs.all&run=1")
    assert page.evaluate(NARROW_CELLS_SCRIPT) == []
    enable_wrapping(page)
    assert page.evaluate(NARROW_CELLS_SCRIPT) == []
    page.locator(f"{ROW_SELECTOR} .toggle").first.click()
    expect(page.locator(".tree").get_by_text("w" * 300)).to_be_visible()
    assert page.evaluate(NARROW_CELLS_SCRIPT) == []
    tab.save_screenshot("endpoint")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_counts_beside_long_field_values_stay_visible(open_tab_with_look: OpenTab, width: int) -> None:
    tab = open_tab_with_look(width)
    page = open_with_long_events(tab, "explore?range=1h")
    if width == NARROW:
        page.locator(".field-list summary").click()
    for name in ("m.a_long_word", "m.a_list", f"m.{'name_' * 12}end", "m.request.url", "event_message"):
        field = page.locator(f'[data-field="{name}"]')
        field.locator(".field-name").click()
        expect(field.locator(".top-values .faint")).to_have_text("3")
    assert page.evaluate(HIDDEN_COUNTS_SCRIPT) == []
    assert page.evaluate("document.querySelector('.side').scrollWidth <= document.querySelector('.side').clientWidth")
    tab.save_screenshot("fields")
