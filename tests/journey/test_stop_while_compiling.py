"""The process ends when it is asked to while every compiler thread works at a text that doubles."""

from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import count

import httpx

from tests.journey.conftest import STOP_SECONDS, Service, Start

DRAIN_SECONDS = 2
# Two compile; the others wait for a thread.
CALLERS = 6
# Beyond the drain time only what runs is finished, after two seconds of the processor at most; others load the machine.
MOST_SECONDS = DRAIN_SECONDS + 20
CUT = "cut"
# The text reaches the limit on its parts and the one on time at about the same moment.
TOO_LONG = {"limit.compile", "limit.plan"}
ALLOWED = {CUT, *TOO_LONG, "limit.rate", "limit.busy", "service.draining"}


def doubling(number: int) -> str:
    """A text that stands for 2^40 columns, and that no cache has seen."""
    return f"select {number} as n from {'(select *, * from ' * 40}edge_logs{')' * 40}"


def test_sigterm_ends_the_process_while_two_threads_compile(start: Start) -> None:
    service = start(env={"CORDWOOD_WEB_DRAIN_TIME": f"{DRAIN_SECONDS}s"})
    assert MOST_SECONDS < STOP_SECONDS
    with ThreadPoolExecutor(CALLERS) as callers:
        waiting = [callers.submit(send_until_it_stops, service, first) for first in range(CALLERS)]
        try:
            first_refused = code_of(service.query("logs.all", project="p", sql=doubling(-1)))
            service.process.terminate()
            exit_code = service.process.wait(MOST_SECONDS)
        finally:
            # Whatever failed, the callers end with the process.
            service.kill()
        answers = [answer for one in as_completed(waiting) for answer in one.result()]
    assert exit_code == 0
    assert first_refused in TOO_LONG
    assert not TOO_LONG.isdisjoint(answers)
    assert answers.count(CUT) <= CALLERS
    assert set(answers) <= ALLOWED


def code_of(answer: httpx.Response) -> str:
    """The code is the last part of the problem's type. The HTTP server cuts what the drain time did not suffice for."""
    if answer.headers["content-type"].startswith("text/plain"):
        return CUT
    return str(answer.json().get("type", "")).removeprefix("urn:cordwood:error:")


def send_until_it_stops(service: Service, first: int) -> list[str]:
    """The codes of all answers, until no connection is taken."""
    codes: list[str] = []
    try:
        with httpx.Client(base_url=service.url, headers=service.client.headers, timeout=60) as client:
            for number in count(first, CALLERS):
                asked = {"project": "p", "sql": doubling(number)}
                codes.append(code_of(client.get("/api/endpoints/query/logs.all", params=asked)))
    except httpx.HTTPError:
        return codes
    raise AssertionError("unreachable")
