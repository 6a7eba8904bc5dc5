"""The guide's chart for events of the reader's own app."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Tab, demo_from_service
from tests.demo import Demo
from tests.journey.conftest import start_service
from tests.journey.guide_walk import steps_of

GUIDE_FILES = {step.saved_as: step.text for step in steps_of("docs/guide/first-app.md") if step.saved_as}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Start a service with the guide's stream and endpoint, and with requests from three minutes."""
    folder = tmp_path_factory.mktemp("shop")
    for name in ("streams.toml", "queries/shop.paths.sql"):
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(GUIDE_FILES[name])
    service = start_service(
        folder / "data", "--endpoints", str(folder / "queries"), "--streams", str(folder / "streams.toml")
    )
    now = time.time()
    events = [
        {"timestamp": now - 60 * minute, "event_message": path, "metadata": {"path": path, "status": 200, "ms": 10}}
        for minute in range(1, 4)
        for path in ("/", "/cart", "/pay")
    ]
    assert service.send("shop.requests", events).json()["accepted"] == 9
    yield demo_from_service(service)
    service.stop()


def test_the_query_of_the_guide_is_drawn_with_a_line_for_each_path(tab: Tab) -> None:
    page = tab.open("explore")
    page.get_by_label("Endpoint").select_option("shop.paths")
    page.get_by_role("button", name="SQL", exact=True).click()
    query = page.get_by_role("combobox", name="Query", exact=True)
    # The page first translates the query that is already shown to SQL.
    expect(query).to_have_value(re.compile("^select", re.IGNORECASE))
    query.fill(GUIDE_FILES["slowest.sql"])
    query.press("Control+Enter")
    expect(page.locator(".line-chart polyline.line")).to_have_count(3)
    expect(page.locator(".chart-legend")).to_contain_text("/pay")
    tab.save_screenshot("chart")
