"""Fixtures for tests in a real Chromium with a real service: pages that record their errors, and screenshots."""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect, sync_playwright

from tests.debian import require_program
from tests.demo import Demo, start_demo
from tests.journey.conftest import PRIVATE, Service

IS_FULL = os.environ.get("TORTURE") == "full"
EXPECT_TIMEOUT_MS = 15_000
WIDE, NARROW = 1280, 360
HEIGHTS = {WIDE: 860, NARROW: 740}
# Each look is a width and a colour scheme. The first two looks run always. The other two run only in the full run, and
# in test_accessible.py, which visits all pages.
TORTURE_LOOKS = [pytest.param(*look, marks=pytest.mark.torture) for look in ((NARROW, "light"), (WIDE, "dark"))]
ALL_LOOKS = pytest.mark.parametrize(
    ("width", "scheme"), [(NARROW, "dark"), (WIDE, "light"), *(TORTURE_LOOKS if IS_FULL else [])]
)
PICTURES = Path(__file__).parents[2] / ".pictures"
# On a busy machine, rows may appear later than after five seconds, the default time for which expectations wait.
expect.set_options(timeout=EXPECT_TIMEOUT_MS)


@dataclass
class Tab:
    """A page of the browser with a record of its errors."""

    page: Page
    demo: Demo
    name: str
    fault_at: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def open(self, place: str = "explore?range=7d", *, with_key: bool = True) -> Page:
        """Return the page at an address of the service, after pasting the tab's key as a person does."""
        self.page.goto(f"{self.demo.url}/#{place}")
        if with_key:
            self.page.get_by_label("Key", exact=True).fill(self.demo.key)
            self.page.get_by_role("button", name="Open").click()
            expect(self.page.locator(".gate")).to_have_count(0)
        return self.page

    def post(self, path: str, body: object) -> Any:
        """Return the JSON of the answer to a request with the key of the tab; fail if it is refused."""
        answer = self.page.request.post(self.demo.url + path, headers={"X-API-KEY": self.demo.key}, data=body)
        assert answer.ok, answer.text()
        return answer.json()

    def send(self, stream: str, *events: Mapping[str, Any]) -> None:
        """Store events of another project than the demo's, so that other tests find the demo's newest events."""
        assert all(event.get("project") != "default" for event in events)
        self.post(f"/api/logs?source_name={quote(stream)}", list(events))

    def new_key(self, **terms: Any) -> str:
        """Create a key with these terms and return it."""
        return str(self.post("/api/access-tokens", terms)["token"])

    def expect_refusal(self, status: int) -> None:
        """Accept the line that the browser logs for each answer with this error status."""
        self.expected.append(f"the server responded with a status of {status}")

    @property
    def page_errors(self) -> list[str]:
        """Return the errors that the page logged or raised, except expected ones. They include violations of its
        content security policy.
        """
        return [line for line in self.fault_at if not any(expected in line for expected in self.expected)]

    def save_screenshot(self, name: str) -> None:
        self.page.screenshot(path=PICTURES / f"{self.name}-{name}.png")


class HeldRequest:
    """The first request of a page to an address, held until the test lets it continue. Later requests are not held."""

    def __init__(self, page: Page, address: str | re.Pattern[str]) -> None:
        self._page = page
        self._routes: list[Route] = []
        page.route(address, self._handle_request)

    def _handle_request(self, route: Route) -> None:
        if self._routes:
            route.continue_()
        else:
            self._routes.append(route)

    def sent(self) -> Route:
        """Wait until the page sends the request, and return it."""
        while not self._routes:
            self._page.wait_for_timeout(20)
        return self._routes[0]


def wait_until_true(page: Page, expression: str, argument: object = None) -> None:
    """Wait until an expression or a function is true in the page.

    `Page.wait_for_function` polls with eval in the page, which the content security policy blocks. It works only if the
    first evaluation is true.
    """
    while not page.evaluate(expression, argument):
        page.wait_for_timeout(20)


def copy_with(page: Page, button: Locator) -> str:
    """Click a button that copies to the clipboard; return the copied text."""
    page.evaluate("navigator.clipboard.writeText('')")
    button.click()
    while not (text := str(page.evaluate("navigator.clipboard.readText()"))):
        page.wait_for_timeout(20)
    return text


@pytest.fixture(scope="session")
def shared_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with start_demo(tmp_path_factory.mktemp("explorer")) as running:
        yield running


@pytest.fixture(scope="session")
def demo(shared_demo: Demo) -> Demo:
    """Return the service that tabs open. A module may override this fixture with its own service."""
    return shared_demo


def demo_from_service(service: Service) -> Demo:
    """Return a module's own service, with its private key, in the form of the demo."""
    return Demo(cast("subprocess.Popen[str]", service.process), "", service.data_dir, service.url, PRIVATE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield a browser for one module, because the browser's event loop occupies the thread that other modules need."""
    chromium = require_program("chromium", "chromium")
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as profile:
        # Chromium's sandbox does not run as root, which is the usual user in a container.
        sandbox_options = ["--no-sandbox"] if os.geteuid() == 0 else []
        yield playwright.chromium.launch(
            executable_path=chromium,
            # Containers have little shared memory.
            args=[*sandbox_options, "--disable-dev-shm-usage", "--force-color-profile=srgb"],
            env={**os.environ, "HOME": profile},
        )
    print(f"\npictures of the explorer: {PICTURES}")


OpenTab = Callable[..., Tab]


def open_context(browser: Browser, width: int, scheme: str) -> BrowserContext:
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHTS[width]},
        color_scheme="dark" if scheme == "dark" else "light",
        timezone_id="UTC",
        permissions=["clipboard-read", "clipboard-write"],
        reduced_motion="reduce",
    )
    context.set_default_timeout(EXPECT_TIMEOUT_MS)
    return context


def open_tab_in(context: BrowserContext, demo: Demo, request: pytest.FixtureRequest) -> Tab:
    page = context.new_page()
    tab = Tab(page, demo, re.sub(r"\W+", "-", request.node.name).strip("-"))
    page.on("console", lambda line: tab.fault_at.append(line.text) if line.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: tab.fault_at.append(str(error)))
    return tab


@pytest.fixture(scope="module")
def shared_context(browser: Browser) -> BrowserContext:
    """Return the browser context in which most tests open their tab, so that the page's files are fetched once."""
    return open_context(browser, WIDE, "light")


@pytest.fixture
def tab(shared_context: BrowserContext, demo: Demo, request: pytest.FixtureRequest) -> Iterator[Tab]:
    """Yield a tab with its own key and history. At its end, the test fails if the page reported an unexpected error."""
    opened = open_tab_in(shared_context, demo, request)
    yield opened
    opened.page.close()
    assert opened.page_errors == []


@pytest.fixture
def open_tab_with_look(browser: Browser, demo: Demo, request: pytest.FixtureRequest) -> Iterator[OpenTab]:
    """Yield a function that opens tabs of a given width and colour scheme."""
    tabs: list[Tab] = []

    def open_tab(width: int = WIDE, scheme: str = "light") -> Tab:
        tabs.append(open_tab_in(open_context(browser, width, scheme), demo, request))
        return tabs[-1]

    yield open_tab
    for tab in tabs:
        tab.page.context.close()
        assert tab.page_errors == []
