"""The made-up events that every benchmark uses: those of the generator that lies beside the project."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

STREAM = "cloudflare.logs.prod"
PROJECTS = [f"proj{number:03}" for number in range(50)]
# The end of the last day, for questions whose answers are compared from run to run.
END = "2026-11-20T00:00:00Z"

_GENERATOR = Path(__file__).parents[2] / "shared" / "bench" / "make_events.py"


def make(count: int, file: Path, *, end: str = END, days: float = 7) -> Path:
    """The same for the same arguments; the file's ending says whether they are Parquet or NDJSON."""
    if not _GENERATOR.exists():
        raise SystemExit(f"the benchmarks need the generator of events, which is not at {_GENERATOR}")
    arguments = ["--rows", str(count), "--days", str(days), "--end", end, "--out", str(file)]
    subprocess.run([sys.executable, str(_GENERATOR), *arguments], check=True)
    return file


def bodies(file: Path, size: int, count: int | None = None) -> Iterator[bytes]:
    """JSON arrays of that many events, as a shipper posts them."""
    with file.open("rb") as lines:
        rest = islice(lines, count)
        while chunk := list(islice(rest, size)):
            yield b"[" + b",".join(line.rstrip() for line in chunk) + b"]"


def batches(count: int, size: int = 5000) -> Iterator[bytes]:
    """Events of the week that ends now, oldest first."""
    with tempfile.TemporaryDirectory() as folder:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        yield from bodies(make(count, Path(folder) / "events.ndjson", end=now), size)
