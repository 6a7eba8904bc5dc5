"""Makes the README's pictures of the explorer from a demo: python -m tests.browser.readme_picture."""

import struct
import tempfile
import zlib
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.demo import Demo, demo_in

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = {"width": 1200, "height": 660}
PLACE = (
    "explore?range=7d&by=m.response.status_code&cols=timestamp|m.response.status_code|m.request.method|m.request.path"
)
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, demo_in(Path(folder)) as demo:
        take(demo)


def take(demo: Demo) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, dark in (("explorer", False), ("explorer-dark", True)):
            context = browser.new_context(
                viewport={"width": SIZE["width"], "height": SIZE["height"]},
                color_scheme="dark" if dark else "light",
                timezone_id="UTC",
            )
            arranged(page := context.new_page(), demo)
            (FOLDER / f"{name}.png").write_bytes(smaller(page.screenshot()))
            context.close()


def arranged(page: Page, demo: Demo) -> None:
    """Something to look at: a query under way, the values of a field, an event that is open."""
    page.goto(f"{demo.url}/#{PLACE}")
    page.get_by_label("Key", exact=True).fill(demo.key)
    page.get_by_role("button", name="Open").click()
    expect(page.locator(".events tbody tr.row").first).to_be_visible()
    page.get_by_role("combobox", name="Query", exact=True).fill("m.request.path:~^/rest -m.request.method:DELETE")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator('[data-field="m.request.method"] .field-name').click()
    expect(page.locator(".top-values")).to_be_visible()
    expect(page.locator(".histogram rect.tone-error").first).to_be_visible()
    page.locator(".events tbody tr.row .toggle").nth(3).click()
    expect(page.locator(".tree")).to_be_visible()
    page.mouse.move(0, 0)


def smaller(png: bytes) -> bytes:
    """The same picture, pressed as hard as can be: the browser is in a hurry when it takes one."""
    pieces = list(chunks(png))
    pixels = zlib.compress(zlib.decompress(b"".join(body for kind, body in pieces if kind == b"IDAT")), 9)
    kept = [(kind, body) for kind, body in pieces if kind == b"IHDR"]
    return SIGNATURE + b"".join(chunk(kind, body) for kind, body in [*kept, (b"IDAT", pixels), (b"IEND", b"")])


def chunks(png: bytes) -> "list[tuple[bytes, bytes]]":
    found, at = [], len(SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        found.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += length + 12
    return found


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


if __name__ == "__main__":
    main()
