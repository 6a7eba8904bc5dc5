"""Events a second over HTTP, durable, by the size of batches and the number of senders; beside two bulk loads."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from bench.against_peers import made
from bench.events import bodies
from bench.peers.duckdb_by_hand import bulk_insert_seconds
from bench.peers.postgres import postgres
from bench.service import service
from bench.timing import Ratio

_CONNECTIONS = (1, 8)
# So many events in batches of so many: small batches take long.
_EVENTS = {1: 2_000, 100: 40_000, 1000: 100_000, 5000: 200_000}
_BULK = 200_000


@dataclass
class Loading:
    by_batch: dict[tuple[int, int], float] = field(default_factory=dict)
    duckdb: float = 0
    postgres: float = 0

    def ratios(self) -> dict[str, Ratio]:
        """How many times as fast the bare engine's bulk insert is."""
        return {
            f"batches of {batch}, {connections} at once": Ratio(round(self.duckdb / rate, 3), 0.25)
            for (batch, connections), rate in self.by_batch.items()
        }

    def markdown(self) -> str:
        lines = ["| events a second | 1 sender | 8 senders |", "|---|--:|--:|"]
        for batch in _EVENTS:
            cells = " | ".join(f"{self.by_batch[batch, connections]:,.0f}" for connections in _CONNECTIONS)
            lines.append(f"| batches of {batch:,} | {cells} |")
        lines.append(f"| DuckDB, one bulk insert of the same lines | {self.duckdb:,.0f} | – |")
        return "\n".join([*lines, f"| PostgreSQL, one COPY of the same events | {self.postgres:,.0f} | – |"]) + "\n"


def measure(scratch: Path, *, with_postgres: bool) -> Loading:
    events, lines = made(scratch, _BULK)
    taken = Loading()
    for batch, count in _EVENTS.items():
        for connections in _CONNECTIONS:
            with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as ours:
                taken.by_batch[batch, connections] = count / ours.load(bodies(lines, batch, count), connections)
                print(
                    f"batches of {batch}, {connections} at once: {taken.by_batch[batch, connections]:,.0f}/s",
                    flush=True,
                )
    with tempfile.TemporaryDirectory() as folder:
        taken.duckdb = _BULK / bulk_insert_seconds(lines, Path(folder) / "bulk.duckdb")
    if with_postgres:
        with postgres() as there:
            taken.postgres = _BULK / there.load(events)
    return taken
