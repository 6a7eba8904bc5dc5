"""Tables of answers and of events: sorting, wrapping, resizing, keyboard use, and many rows."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import NARROW, WIDE, OpenTab, Tab
from tests.machine_speed import scaled

ROW_SELECTOR = ".events tbody tr.row"
NUMBERS_QUERY = "select n as id_, n * n as squared, concat('text ', cast(n as string)) as words from unnest(generate_array(1, {})) as n"


def sql(text: str, **values: str) -> str:
    more_parameters = "".join(f"&{name}={quote(value)}" for name, value in values.items())
    return f"explore?range=7d&lang=sql&q={quote(text)}{more_parameters}"


def open_many_rows(tab: Tab, rows: int) -> Page:
    """Return the page with an answer that has more rows than an endpoint returns at once."""
    answer = {"result": [{"id_": n, "squared": n * n, "words": f"text {n}"} for n in range(1, rows + 1)]}

    def answer_with_rows(route: Route) -> None:
        is_rows = "text%20from%20many" in route.request.url.replace("+", "%20")
        route.fulfill(json=answer) if is_rows else route.continue_()

    tab.page.route("**/query/**", answer_with_rows)
    return tab.open(sql("select text from many"))


def header(page: Page, name: str) -> Locator:
    return page.locator(f'th[data-column="{name}"]')


def column(page: Page, place: int) -> list[str]:
    return page.locator(f"{ROW_SELECTOR} td:nth-child({place})").all_inner_texts()


def test_a_click_on_a_header_sorts_and_the_order_is_in_the_address(tab: Tab) -> None:
    page = tab.open(sql(NUMBERS_QUERY.format(12)))
    expect(page.locator(ROW_SELECTOR)).to_have_count(12)
    squared = header(page, "squared")
    expect(squared).to_have_attribute("aria-sort", "none")
    squared.locator(".sort").click()
    expect(squared).to_have_attribute("aria-sort", "descending")
    assert column(page, 2) == [str(n * n) for n in range(12, 0, -1)]
    page.reload()
    expect(squared).to_have_attribute("aria-sort", "descending")
    assert column(page, 2)[0] == "144"
    squared.locator(".sort").click()
    expect(squared).to_have_attribute("aria-sort", "ascending")
    # Texts that contain numbers are sorted by these numbers.
    header(page, "words").locator(".sort").click()
    assert column(page, 3)[:3] == ["text 1", "text 2", "text 3"]


def test_the_keyboard_sorts_and_resizes_and_keeps_the_focus(tab: Tab) -> None:
    page = tab.open(sql(NUMBERS_QUERY.format(12)))
    sorter = header(page, "words").locator(".sort")
    sorter.focus()
    page.keyboard.press("Enter")
    expect(header(page, "words")).to_have_attribute("aria-sort", "ascending")
    expect(sorter).to_be_focused()
    before = header(page, "words").bounding_box()
    page.keyboard.press("Shift+ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    after = header(page, "words").bounding_box()
    assert before
    assert after
    assert after["width"] - before["width"] == pytest.approx(32, abs=2)


def test_missing_values_are_last_in_both_orders(tab: Tab) -> None:
    page = tab.open(sql("select n, if(n = 2, null, n * 10) as m from unnest([1, 2, 3]) as n"))
    for expected in (["30", "10", ""], ["10", "30", ""]):
        header(page, "m").locator(".sort").click()
        assert [text.strip() for text in column(page, 2)] == expected


def test_a_column_is_resized_by_dragging_and_reset_by_a_double_click(tab: Tab) -> None:
    page = tab.open(sql(NUMBERS_QUERY.format(12)))
    squared = header(page, "squared")
    before = squared.bounding_box()
    grip = squared.locator(".grip").bounding_box()
    assert before
    assert grip
    page.mouse.move(grip["x"] + 4, grip["y"] + 8)
    page.mouse.down()
    page.mouse.move(grip["x"] + 124, grip["y"] + 8, steps=3)
    page.mouse.up()
    after = squared.bounding_box()
    assert after
    assert after["width"] == pytest.approx(before["width"] + 120, abs=3)
    expect(squared).to_have_attribute("aria-sort", "none")
    squared.locator(".grip").dblclick()
    box_after_reset = squared.bounding_box()
    assert box_after_reset
    assert box_after_reset["width"] == pytest.approx(before["width"], abs=1)


def test_numbers_are_right_aligned_and_times_formatted(tab: Tab) -> None:
    page = tab.open(sql("select timestamp('2026-03-04 05:06:07') as began, 'a' as word, 12 as n"))
    expect(page.locator(f"{ROW_SELECTOR} td").nth(2)).to_have_css("text-align", "right")
    expect(page.locator(f"{ROW_SELECTOR} td").nth(1)).to_have_css("text-align", re.compile("left|start"))
    expect(page.locator(f"{ROW_SELECTOR} td").first).to_have_text("2026-03-04 05:06:07")


LONG_TEXT_SQL = "'" + "lorem ipsum " * 30 + "'"
MANY_COLUMNS_SQL = ", ".join(f"'value {n}' as column_{n}" for n in range(24))


@pytest.mark.parametrize("place", ["explore", "endpoints"])
def test_no_column_wraps_after_a_few_characters(tab: Tab, place: str) -> None:
    if place == "explore":
        page = tab.open(sql(f"select {MANY_COLUMNS_SQL}, {LONG_TEXT_SQL} as event_message"))
    else:
        page = tab.open("endpoints?endpoint=logs.all&p.project=default&run=1")
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    widths = page.locator("th").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
    assert min(widths) > 50
    assert (
        max(page.locator(ROW_SELECTOR).evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")) < 40
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_first_column_stays_while_the_others_scroll(tab: Tab) -> None:
    page = tab.open(sql(f"select {MANY_COLUMNS_SQL}"))
    first = page.locator(f"{ROW_SELECTOR} td").first
    before = first.bounding_box()
    page.locator(".table-frame").evaluate("one => one.scrollLeft = 900")
    after = first.bounding_box()
    assert before
    assert after
    assert after["x"] == pytest.approx(before["x"], abs=1)
    assert page.locator(".table-frame").evaluate("one => one.scrollLeft") == 900


def test_wrapping_shows_whole_values_and_is_in_the_address(tab: Tab) -> None:
    page = tab.open(sql(f"select 1 as n, {LONG_TEXT_SQL} as event_message"))
    row = page.locator(ROW_SELECTOR).first
    one_line = row.bounding_box()
    page.get_by_role("button", name="Wrap").click()
    wrapped = row.bounding_box()
    assert one_line
    assert wrapped
    assert wrapped["height"] > one_line["height"] * 1.8
    page.reload()
    expect(page.get_by_role("button", name="Wrap")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".events.is-wrapped")).to_be_visible()


def test_thousands_of_rows_are_scrolled_and_few_are_drawn(tab: Tab) -> None:
    page = open_many_rows(tab, 5000)
    frame = page.locator(".table-frame")
    expect(page.locator(ROW_SELECTOR).first).to_contain_text("text 1")
    assert page.locator(ROW_SELECTOR).count() < 120
    expect(page.locator(".events")).to_have_attribute("aria-rowcount", "5001")
    frame.evaluate("one => one.scrollTop = one.scrollHeight")
    expect(page.locator(ROW_SELECTOR).last).to_contain_text("text 5000")
    assert page.locator(ROW_SELECTOR).count() < 120
    header(page, "squared").locator(".sort").click()
    frame.evaluate("one => one.scrollTop = 0")
    expect(page.locator(ROW_SELECTOR).first).to_contain_text("text 5000")
    # An expanded row is still expanded after scrolling away and back.
    page.locator(f"{ROW_SELECTOR} .toggle").nth(2).click()
    expect(page.locator(".tree")).to_contain_text("text 4998")
    frame.evaluate("one => one.scrollTop = one.scrollHeight / 2")
    expect(page.locator(".tree")).to_have_count(0)
    frame.evaluate("one => one.scrollTop = 0")
    expect(page.locator(".tree")).to_contain_text("text 4998")


def test_a_hundred_thousand_rows_scroll_smoothly(tab: Tab) -> None:
    page = open_many_rows(tab, 100_000)
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    slowest = page.locator(".table-frame").evaluate(
        """async (frame) => {
          let worst = 0;
          for (let top = 0; top < frame.scrollHeight; top += frame.scrollHeight / 60) {
            const began = performance.now();
            frame.scrollTop = top;
            await new Promise(requestAnimationFrame);
            await new Promise(requestAnimationFrame);
            worst = Math.max(worst, performance.now() - began);
            if (!frame.querySelector("tr.row")) return Infinity;
          }
          return worst;
        }"""
    )
    assert slowest < scaled(500)


def test_the_arrow_keys_move_beyond_the_drawn_rows(tab: Tab) -> None:
    page = open_many_rows(tab, 2000)
    page.locator(f"{ROW_SELECTOR} .toggle").first.focus()
    for _ in range(90):
        page.keyboard.press("ArrowDown")
    focused = page.evaluate("document.activeElement.closest('tr').innerText")
    assert "text 91" in focused
    in_sight = page.evaluate(
        """() => {
          const [row, frame] = [document.activeElement, document.querySelector(".table-frame")].map(
            (one) => one.getBoundingClientRect());
          return row.top >= frame.top && row.bottom <= frame.bottom;
        }"""
    )
    assert in_sight


def test_sorting_an_incomplete_answer_shows_a_notice(tab: Tab) -> None:
    page = tab.open("explore?range=7d")
    header(page, "event_message").locator(".sort").click()
    expect(page.locator(".table-bar")).to_contain_text("The 100 rows that are shown are sorted.")
    messages = column(page, 3)
    assert len(messages) == 100


def test_the_order_applies_to_further_rows(tab: Tab) -> None:
    page = tab.open("explore?range=7d")
    header(page, "event_message").locator(".sort").click()
    page.get_by_role("button", name="Wrap").click()
    page.get_by_role("button", name="Show more").click()
    expect(page.locator(ROW_SELECTOR)).to_have_count(200)
    expect(header(page, "event_message")).to_have_attribute("aria-sort", "ascending")
    expect(page.locator(".table-bar")).to_contain_text("The 200 rows that are shown are sorted.")
    expect(page.locator(".events.is-wrapped")).to_be_visible()


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_a_long_table_fits_the_screen(open_tab_with_look: OpenTab, width: int) -> None:
    tab = open_tab_with_look(width)
    page = open_many_rows(tab, 3000)
    expect(page.locator(ROW_SELECTOR).first).to_be_visible()
    assert page.locator(ROW_SELECTOR).count() < 160
    if width == NARROW:
        page.get_by_label("Sort by").select_option("-squared")
        expect(page.locator(ROW_SELECTOR).first).to_contain_text("text 3000")
    tab.save_screenshot("long")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
