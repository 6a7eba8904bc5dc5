"""Events a second over HTTP, durable, by the size of batches and the number of connections.

    python bench/ingest.py EVENTS.ndjson [--events 400000] [--batch 5000] [--connections 4]

Starts a service of its own on a throw-away folder; the events are those of any NDJSON file.
"""

import argparse
import http.client
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path

KEY = "bench"


def main() -> None:
    cli = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cli.add_argument("file", type=Path)
    cli.add_argument("--events", type=int, default=400_000)
    cli.add_argument("--batch", type=int, default=5_000)
    cli.add_argument("--connections", type=int, default=4)
    cli.add_argument("--memory", default="512MB")
    cli.add_argument("--keep", type=Path, help="keep the data in this folder")
    arguments = cli.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = arguments.keep or Path(folder)
        process, port = start(data, arguments.memory)
        try:
            seconds = load(arguments, port)
            resident = resident_bytes(process.pid)
            time.sleep(8)
            settled = resident_bytes(process.pid)
        finally:
            process.terminate()
            process.wait()
        size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
        print(
            f"batch {arguments.batch}, {arguments.connections} connections:"
            f" {arguments.events / seconds:,.0f} events/s, {resident / 1e6:.0f} MB resident, {settled / 1e6:.0f} MB 8 s later,"
            f" {size / arguments.events:.0f} bytes an event on disk after the stop"
        )


def start(data: Path, memory: str) -> tuple["subprocess.Popen[str]", int]:
    command = [sys.executable, "-m", "cordwood", "serve", "--port", "0", "--data-dir", str(data), "--memory", memory]
    environment = {**os.environ, "CORDWOOD_KEYS_PRIVATE": KEY, "CORDWOOD_KEYS_PUBLIC": KEY + "-public"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"listens on http://[^:]+:(\d+)", line)
        if found:
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return process, int(found[1])
    raise SystemExit("cordwood did not start")


def load(arguments: argparse.Namespace, port: int) -> float:
    """Bodies are made beforehand, so that the clock measures the service."""
    with arguments.file.open("rb") as source:
        lines = [line.rstrip() for line in islice(source, arguments.events)]
    bodies = [
        b"[" + b",".join(lines[first : first + arguments.batch]) + b"]"
        for first in range(0, len(lines), arguments.batch)
    ]
    del lines
    shares = [bodies[number :: arguments.connections] for number in range(arguments.connections)]
    threads = [threading.Thread(target=post, args=(port, share)) for share in shares]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def post(port: int, bodies: list[bytes]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"X-API-KEY": KEY, "Content-Type": "application/json"}
    for body in bodies:
        while True:
            connection.request("POST", "/api/logs?source_name=cloudflare.logs.prod", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status == 200:
                break
            if answer.status not in {429, 503}:
                raise SystemExit(f"{answer.status}: {text.decode()[:300]}")
            time.sleep(float(answer.headers.get("Retry-After", "1")))


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    main()
