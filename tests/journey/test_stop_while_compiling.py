"""SIGTERM stops the process even if every compiler thread compiles a query of exponential size."""

from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import count

import httpx

from tests.journey.conftest import STOP_SECONDS, Service, Start

DRAIN_SECONDS = 2
# Number of callers. The queries of two of them compile, and the others wait for a thread.
CALLER_COUNT = 6
# After the drain time, running compilations end within two seconds of CPU time, but the machine may be busy.
MAX_SECONDS = DRAIN_SECONDS + 20
ABORTED = "cut"
# Codes of the compiler's limits for size and time, which the query reaches at about the same moment.
COMPILE_LIMIT_CODES = {"limit.compile", "limit.plan"}
ALLOWED_CODES = {ABORTED, *COMPILE_LIMIT_CODES, "limit.rate", "limit.busy", "service.draining"}


def exponential_query(number: int) -> str:
    """Return a new query with 2^40 columns."""
    return f"select {number} as n from {'(select *, * from ' * 40}edge_logs{')' * 40}"


def test_sigterm_stops_the_process_during_compilations(start: Start) -> None:
    service = start(env={"CORDWOOD_WEB_DRAIN_TIME": f"{DRAIN_SECONDS}s"})
    assert MAX_SECONDS < STOP_SECONDS
    with ThreadPoolExecutor(CALLER_COUNT) as callers:
        waiting = [callers.submit(send_until_it_stops, service, first) for first in range(CALLER_COUNT)]
        try:
            first_refused = error_code(service.query("logs.all", project="p", sql=exponential_query(-1)))
            service.process.terminate()
            exit_code = service.process.wait(MAX_SECONDS)
        finally:
            # The process is killed even after a failure, so that the callers' threads end.
            service.kill()
        answers = [answer for future in as_completed(waiting) for answer in future.result()]
    assert exit_code == 0
    assert first_refused in COMPILE_LIMIT_CODES
    assert not COMPILE_LIMIT_CODES.isdisjoint(answers)
    assert answers.count(ABORTED) <= CALLER_COUNT
    assert set(answers) <= ALLOWED_CODES


def error_code(answer: httpx.Response) -> str:
    """Return the code of the error. If the HTTP server aborted the request after the drain time, return ABORTED."""
    if answer.headers["content-type"].startswith("text/plain"):
        return ABORTED
    return str(answer.json().get("type", "")).removeprefix("urn:cordwood:error:")


def send_until_it_stops(service: Service, first: int) -> list[str]:
    """Send queries until no connection is accepted. Return the codes of all answers."""
    codes: list[str] = []
    try:
        with httpx.Client(base_url=service.url, headers=service.client.headers, timeout=60) as client:
            for number in count(first, CALLER_COUNT):
                parameters = {"project": "p", "sql": exponential_query(number)}
                codes.append(error_code(client.get("/api/endpoints/query/logs.all", params=parameters)))
    except httpx.HTTPError:
        return codes
    raise AssertionError("unreachable")
