"""Durable events per second over HTTP by batch size and number of senders, compared with two bulk loads."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from bench.against_peers import event_files
from bench.events import event_bodies
from bench.peers.duckdb_handwritten import bulk_insert_seconds
from bench.peers.postgres import postgres
from bench.service import service
from bench.timing import Ratio

_CONNECTION_COUNTS = (1, 8)
# The number of events to load for each batch size. Small batches are slow, so fewer events are loaded with them.
_EVENTS_BY_BATCH_SIZE = {1: 2_000, 100: 40_000, 1000: 100_000, 5000: 200_000}
_BULK_EVENTS = 200_000


@dataclass
class LoadRates:
    """Events per second of the service, by batch size and number of senders, and of the bulk loads of both peers."""

    by_batch: dict[tuple[int, int], float] = field(default_factory=dict)
    duckdb: float = 0
    postgres: float = 0

    def ratios(self) -> dict[str, Ratio]:
        """Return the rate of DuckDB's bulk insert as a multiple of each rate of the service."""
        return {
            f"batches of {batch}, {connections} at once": Ratio(round(self.duckdb / rate, 3), 0.25)
            for (batch, connections), rate in self.by_batch.items()
        }

    def markdown(self) -> str:
        lines = ["| events a second | 1 sender | 8 senders |", "|---|--:|--:|"]
        for batch in _EVENTS_BY_BATCH_SIZE:
            cells = " | ".join(f"{self.by_batch[batch, connections]:,.0f}" for connections in _CONNECTION_COUNTS)
            lines.append(f"| batches of {batch:,} | {cells} |")
        lines.append(f"| DuckDB, one bulk insert of the same lines | {self.duckdb:,.0f} | – |")
        return "\n".join([*lines, f"| PostgreSQL, one COPY of the same events | {self.postgres:,.0f} | – |"]) + "\n"


def measure(scratch: Path, *, with_postgres: bool) -> LoadRates:
    events, lines = event_files(scratch, _BULK_EVENTS)
    rates = LoadRates()
    for batch, count in _EVENTS_BY_BATCH_SIZE.items():
        for connections in _CONNECTION_COUNTS:
            with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as running:
                rates.by_batch[batch, connections] = count / running.load(
                    event_bodies(lines, batch, count), connections
                )
                print(
                    f"batches of {batch}, {connections} at once: {rates.by_batch[batch, connections]:,.0f}/s",
                    flush=True,
                )
    with tempfile.TemporaryDirectory() as folder:
        rates.duckdb = _BULK_EVENTS / bulk_insert_seconds(lines, Path(folder) / "bulk.duckdb")
    if with_postgres:
        with postgres() as peer:
            rates.postgres = _BULK_EVENTS / peer.load(events)
    return rates
