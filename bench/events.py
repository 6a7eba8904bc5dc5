"""The generated events that all benchmarks use. The generator is in a folder beside the repository."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

STREAM = "cloudflare.logs.prod"
PROJECTS = [f"proj{number:03}" for number in range(50)]
# The default end of the times of generated events. It is fixed, so that the events of each run are the same.
END = "2026-11-20T00:00:00Z"

_GENERATOR = Path(__file__).parents[2] / "shared" / "bench" / "make_events.py"


def generate(count: int, file: Path, *, end: str = END, days: float = 7) -> Path:
    """Generate events into a file, as Parquet or NDJSON according to its suffix.

    The same arguments generate the same events.
    """
    if not _GENERATOR.exists():
        raise SystemExit(f"the benchmarks need the event generator, which was not found at {_GENERATOR}")
    arguments = ["--rows", str(count), "--days", str(days), "--end", end, "--out", str(file)]
    subprocess.run([sys.executable, str(_GENERATOR), *arguments], check=True)
    return file


def event_bodies(file: Path, size: int, count: int | None = None) -> Iterator[bytes]:
    """Yield the events of an NDJSON file in JSON arrays of `size` events, as log shippers post them.

    If `count` is given, only the first `count` events are used.
    """
    with file.open("rb") as lines:
        selected = islice(lines, count)
        while chunk := list(islice(selected, size)):
            yield b"[" + b",".join(line.rstrip() for line in chunk) + b"]"


def line_bodies(file: Path, size: int) -> Iterator[bytes]:
    """Yield the events of an NDJSON file in bodies of `size` lines."""
    with file.open("rb") as lines:
        while chunk := list(islice(lines, size)):
            yield b"".join(chunk)


def batches(count: int, size: int = 5000) -> Iterator[bytes]:
    """Yield JSON arrays of generated events of the last seven days, oldest first."""
    with tempfile.TemporaryDirectory() as folder:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        yield from event_bodies(generate(count, Path(folder) / "events.ndjson", end=now), size)
