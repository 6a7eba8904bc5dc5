"""The page at /docs in a browser: nothing is loaded or refused, nothing runs over at 360 px, axe finds no serious fault."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import NARROW, WIDE, OpenTab, Tab
from tests.browser.test_accessible import faults, load_axe


def shown(tab: Tab) -> Page:
    tab.page.goto(f"{tab.demo.url}/docs")
    return tab.page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_it_reads_well_at_both_widths_in_both_schemes(tab_of: OpenTab, width: int, scheme: str) -> None:
    tab = tab_of(width, scheme)
    page = shown(tab)
    expect(page.get_by_role("heading", level=1)).to_have_text("cordwood")
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(13, 17, 23)" if scheme == "dark" else "rgb(255, 255, 255)")
    tab.picture("docs")
    load_axe(page)
    assert faults(page) == []
    assert tab.went_wrong == []


def test_a_link_of_the_list_leads_to_its_address_by_keyboard(tab_of: OpenTab) -> None:
    page = shown(tab_of(NARROW))
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the addresses")).to_be_focused()
    link = page.get_by_role("navigation").get_by_role("link", name="/api/endpoints/query/usage.api-counts")
    link.focus()
    page.keyboard.press("Enter")
    article = page.locator("article", has=page.get_by_role("heading", name="GET /api/endpoints/query/usage.api-counts"))
    expect(article).to_be_in_viewport()
    expect(article).to_contain_text("one of: hourly, daily, minutely")


def test_nothing_but_the_page_itself_is_asked_for(tab_of: OpenTab) -> None:
    tab = tab_of(WIDE)
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    shown(tab)
    assert [url for url in asked if not url.startswith("data:")] == [f"{tab.demo.url}/docs"]
