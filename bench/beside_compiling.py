"""`python -m bench.beside_compiling`: the time of short answers while other callers send new texts that must be
compiled.

python -m bench.beside_compiling [--seconds N] [--rounds N]

Services that differ only in how long a thread may hold the interpreter lock are measured in turns.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path
from statistics import median, quantiles
from uuid import uuid4

from bench.service import Service, service
from cordwood.app.service import THREAD_SWITCH_INTERVAL_SECONDS

PYTHON_SECONDS = 0.005
_SENDER_THREADS, _COLUMNS_OF_NEW_TEXTS = 3, 60
_PAUSE_SECONDS = 0.01
_EVENTS = [{"project": "a", "event_message": f"event {number}"} for number in range(1_000)]
_PROGRAM = (
    "import cordwood.app.service as service; service.THREAD_SWITCH_INTERVAL_SECONDS = {seconds};"
    " from cordwood.__main__ import main; main()"
)


def measure(switch_seconds: float, seconds: float) -> list[float]:
    """Return the time in milliseconds of each short answer during the load."""
    with tempfile.TemporaryDirectory() as folder:
        program = ("-c", _PROGRAM.format(seconds=switch_seconds))
        with service(Path(folder), program=program) as running:
            stored = running.client.post("/api/logs", params={"source_name": "postgres.logs"}, json=_EVENTS)
            stored.raise_for_status()
            until_time = time.monotonic() + seconds
            senders = [
                threading.Thread(target=_send_new_texts, args=(running, until_time)) for _ in range(_SENDER_THREADS)
            ]
            for sender in senders:
                sender.start()
            times_ms = _time_short_answers(running, until_time)
            for sender in senders:
                sender.join()
    return times_ms


def _send_new_texts(running: Service, until_time: float) -> None:
    while time.monotonic() < until_time:
        columns = ", ".join(
            f"concat(event_message, '{uuid4().hex}') as c{number}" for number in range(_COLUMNS_OF_NEW_TEXTS)
        )
        running.client.get(
            "/api/endpoints/query/logs.all",
            params={"project": "a", "sql": f"select {columns} from postgres_logs where id = '{uuid4()}'"},
        )


def _time_short_answers(running: Service, until_time: float) -> list[float]:
    parameters = {"project": "a", "sql": "select count(*) as n from postgres_logs"}
    milliseconds = []
    while time.monotonic() < until_time:
        began_at = time.perf_counter()
        running.query("logs.all", parameters, use_cache=True)
        milliseconds.append((time.perf_counter() - began_at) * 1000)
        time.sleep(_PAUSE_SECONDS)
    return milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.beside_compiling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each service is measured in each round")
    parser.add_argument("--rounds", type=int, default=3, help="how often each service is measured")
    options = parser.parse_args()
    times: dict[float, list[float]] = {PYTHON_SECONDS: [], THREAD_SWITCH_INTERVAL_SECONDS: []}
    for _ in range(options.rounds):
        for switch_seconds, samples_ms in times.items():
            samples_ms.extend(measure(switch_seconds, options.seconds))
    print("| interpreter lock held for at most | median | 95th percentile |\n|--:|--:|--:|")
    for switch_seconds, samples_ms in times.items():
        print(
            f"| {switch_seconds * 1000:g} ms | {median(samples_ms):.1f} ms | {quantiles(samples_ms, n=20)[-1]:.1f} ms |"
        )


if __name__ == "__main__":
    main()
