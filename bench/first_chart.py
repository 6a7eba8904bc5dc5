"""`python -m bench.first_chart`: the time from opening the explorer to its first chart.

python -m bench.first_chart [--events N] [--rounds N] [--chromium PATH]

Each round opens Explore with an empty browser cache, for seven days of one project. It waits until the bars of the
histogram are drawn. Pages are measured at full speed, and with a throttled processor, as Chromium's developer tools
simulate a slow machine. The service and the browser run on the same machine.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from bench.events import STREAM, batches
from bench.service import KEY, Service, service

CPU_THROTTLES = (1, 2, 4)
# A script that notes the time of the first frame in which the histogram has bars.
_FIRST_CHART_OBSERVER = f"""
sessionStorage.setItem("cordwood.key", "{KEY}");
requestAnimationFrame(function look() {{
  if (document.querySelector(".histogram svg rect")) window.firstChart = performance.now();
  else requestAnimationFrame(look);
}});
"""
_LARGEST_PROJECT_SQL = f"select project, count(*) as n from `{STREAM}` group by 1 order by 2 desc limit 1"
_POLL_MS = 100


def measure(running: Service, browser: Browser, project: str, throttle: int) -> float:
    """Open the page. Return the milliseconds from the start of the navigation to the page's first chart."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.add_init_script(_FIRST_CHART_OBSERVER)
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": throttle})
    page.goto(f"{running.client.base_url}#explore?range=7d&p.project={project}", wait_until="commit")
    while (milliseconds := page.evaluate("window.firstChart")) is None:
        page.wait_for_timeout(_POLL_MS)
    context.close()
    return float(milliseconds)


def main() -> None:
    options = _parse_options()
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as running:
        running.load(batches(options.events), 2)
        running.wait_for_compaction()
        answer = running.client.post("/api/query", params={"sql": _LARGEST_PROJECT_SQL})
        project, events = json.loads(answer.text)["result"][0].values()
        print(f"{options.events:,} events, {events:,} of them in the project {project}", flush=True)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
            for throttle in CPU_THROTTLES:
                rounds = [measure(running, browser, project, throttle) for _ in range(options.rounds)]
                print(_format_summary(throttle, rounds), flush=True)
            browser.close()


def _format_summary(throttle: int, rounds: list[float]) -> str:
    median = statistics.median(rounds)
    return f"processor / {throttle}: first chart after {median:.0f} ms ({min(rounds):.0f} to {max(rounds):.0f})"


def _parse_options() -> argparse.Namespace:
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
