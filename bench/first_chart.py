"""`python -m bench.first_chart`: the time from opening the explorer to its first chart.

python -m bench.first_chart [--events N] [--rounds N] [--chromium PATH]

Each round opens Explore with an empty browser cache, for seven days of one project, and waits until the bars of the
histogram are drawn. Pages are measured at full speed and with the page's processor throttled to a quarter, which is how
Chromium's developer tools simulate a slow machine. The service and the browser run on the same machine.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from bench.events import STREAM, batches
from bench.service import KEY, Service, service

THROTTLES = (1, 4)
_BARS = "document.querySelectorAll('.histogram svg rect').length > 0"
_LARGEST_PROJECT = f"select project, count(*) as n from `{STREAM}` group by 1 order by 2 desc limit 1"
_POLL_MS = 5


def measure(running: Service, browser: Browser, project: str, throttle: int) -> Mapping[str, float]:
    """Open the page; return the milliseconds to its last script and to its bars, and its number of API requests."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.add_init_script(f"sessionStorage.setItem('cordwood.key', '{KEY}')")
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": throttle})
    page.goto(f"{running.client.base_url}#explore?range=7d&p.project={project}", wait_until="commit")
    while not page.evaluate(_BARS):
        page.wait_for_timeout(_POLL_MS)
    found: dict[str, float] = page.evaluate(
        """() => {
          const parts = performance.getEntriesByType("resource");
          const ends = (isWanted) => Math.max(0, ...parts.filter(isWanted).map((one) => one.responseEnd));
          return {
            scripts: ends((one) => one.name.endsWith(".js")),
            requests: parts.filter((one) => one.name.includes("/api/")).length,
            chart: performance.now(),
          };
        }"""
    )
    context.close()
    return found


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as running:
        running.load(batches(options.events), 2)
        running.wait_until_idle()
        answer = running.client.post("/api/query", params={"sql": _LARGEST_PROJECT})
        project, events = json.loads(answer.text)["result"][0].values()
        print(f"{options.events:,} events, {events:,} of them in the project {project}", flush=True)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
            for throttle in THROTTLES:
                rounds = [measure(running, browser, project, throttle) for _ in range(options.rounds)]
                print(_summary(throttle, rounds), flush=True)
            browser.close()


def _summary(throttle: int, rounds: list[Mapping[str, float]]) -> str:
    charts = sorted(one["chart"] for one in rounds)
    scripts = statistics.median(one["scripts"] for one in rounds)
    return (
        f"processor throttled to 1/{throttle}:"
        f" first chart {statistics.median(charts):.0f} ms ({charts[0]:.0f} to {charts[-1]:.0f}),"
        f" last script loaded after {scripts:.0f} ms"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.first_chart", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=2_000_000, help="number of stored events")
    parser.add_argument("--rounds", type=int, default=7, help="number of times that the page is opened at each speed")
    parser.add_argument(
        "--chromium",
        default=shutil.which("chromium"),
        help="path of the browser (default: Chromium of the PATH, else Playwright's)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
