"""Take the screenshots for the README and the guide from a demo.

`python -m tests.browser.readme_picture` runs it.
"""

import re
import struct
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Page, expect, sync_playwright

from tests.demo import Demo, start_demo

PICTURES_FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = {"width": 1200, "height": 660}
EXPLORER_ADDRESS = (
    "explore?range=7d&by=m.response.status_code&cols=timestamp|m.response.status_code|m.request.method|m.request.path"
)
FAILED_REQUESTS = "m.request.path:/functions/v1/checkout m.response.status_code:>=500"
BY_MINUTE = (
    "select timestamp_trunc(timestamp, minute) as minute, max(m.response.origin_time) as slowest_ms "
    "from edge_logs cross join unnest(metadata) as m "
    "where timestamp > timestamp_sub(current_timestamp(), interval 5 hour) group by 1 order by 1"
)
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def main() -> None:
    PICTURES_FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, start_demo(Path(folder)) as demo:
        take_pictures(demo)


def take_pictures(demo: Demo) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, (arrange, dark) in PICTURES.items():
            context = browser.new_context(
                viewport={"width": SIZE["width"], "height": SIZE["height"]},
                color_scheme="dark" if dark else "light",
                timezone_id="UTC",
            )
            page = context.new_page()
            page.goto(demo.sign_in_url)
            expect(page.locator(".events tbody tr.row").first).to_be_visible()
            arrange(page, demo)
            page.mouse.move(0, 0)
            (PICTURES_FOLDER / f"{name}.png").write_bytes(recompress(page.screenshot()))
            context.close()


def show_exploration(page: Page, demo: Demo) -> None:
    """Show a running query, the values of a field, and an expanded event."""
    page.goto(f"{demo.url}/#{EXPLORER_ADDRESS}")
    expect(page.locator(".events tbody tr.row").first).to_be_visible()
    page.get_by_role("combobox", name="Query", exact=True).fill("-m.request.method:DELETE")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_label("Find a field").fill("m.request.m")
    page.locator('[data-field="m.request.method"] .field-name').click()
    expect(page.locator(".top-values")).to_be_visible()
    expect(page.locator(".histogram rect.tone-error").first).to_be_visible()
    page.locator(".events tbody tr.row .toggle").nth(3).click()
    expect(page.locator(".tree")).to_be_visible()
    page.evaluate("scrollTo(0, 0)")


def show_incident(page: Page, demo: Demo) -> None:
    """Show the events of the last day by status; the bars show the incident."""
    page.goto(f"{demo.url}/#explore?range=24h&by=m.response.status_code")
    expect(page.locator(".histogram rect.tone-error").first).to_be_visible()
    page.get_by_label("Find a field").fill("m.request.path")
    page.locator('[data-field="m.request.path"] .field-name').click()
    expect(page.locator(".top-values")).to_be_visible()
    page.evaluate("scrollTo(0, 0)")


def show_slowest_requests(page: Page, demo: Demo) -> None:
    """Show the slowest request of each minute."""
    page.goto(f"{demo.url}/#explore?range=6h&lang=sql&q={quote(BY_MINUTE)}")
    expect(page.locator(".line-chart polyline.line").first).to_be_visible()


def show_request(page: Page, demo: Demo) -> None:
    """Show the events of one failed request in all services."""
    page.goto(f"{demo.url}/#explore?range=24h&q={quote(FAILED_REQUESTS)}")
    expect(page.locator(".readout")).to_have_text(re.compile(r"^1[0-4]\d events$"))
    expect(page.locator(".events tbody tr.row").first).to_contain_text("checkout")
    page.locator(".events tbody tr.row .toggle").first.click()
    page.get_by_role("link", name=re.compile("^Follow x_request_id")).first.click()
    expect(page.locator(".events tbody tr.row")).to_have_count(5)


def show_streams(page: Page, demo: Demo) -> None:
    """Show the streams with their rates and sizes."""
    page.goto(f"{demo.url}/#streams")
    expect(page.get_by_text("cloudflare.logs.prod").first).to_be_visible()


PICTURES: Mapping[str, tuple[Callable[[Page, Demo], None], bool]] = {
    "explorer": (show_exploration, False),
    "explorer-dark": (show_exploration, True),
    "incident": (show_incident, False),
    "chart": (show_slowest_requests, False),
    "request": (show_request, True),
    "streams": (show_streams, False),
}


def recompress(png: bytes) -> bytes:
    """Compress the picture at the highest level, because the browser compresses it for speed and not for size."""
    all_chunks = list(png_chunks(png))
    pixels = zlib.compress(zlib.decompress(b"".join(body for kind, body in all_chunks if kind == b"IDAT")), 9)
    chunks_to_write = [(kind, body) for kind, body in all_chunks if kind == b"IHDR"]
    return PNG_SIGNATURE + b"".join(
        png_chunk(kind, body) for kind, body in [*chunks_to_write, (b"IDAT", pixels), (b"IEND", b"")]
    )


def png_chunks(png: bytes) -> "list[tuple[bytes, bytes]]":
    found_chunks, at = [], len(PNG_SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        found_chunks.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += length + 12
    return found_chunks


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


if __name__ == "__main__":
    main()
