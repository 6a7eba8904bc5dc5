"""Send a file of events to a stream: NDJSON (optionally gzip) or Parquet, one event for each line or row.

Sending a file again stores nothing twice: events are identified by their ids, and those without one get an id that
depends only on the file. So an import that was interrupted can simply be repeated. A file written by `cordwood export`
is stored unchanged, with its times of receipt; that needs a private key.

examples:
  cordwood import events.ndjson --stream cloudflare.logs.prod
  cordwood import day.parquet --stream postgres.logs --data-dir ./cordwood-data
  cordwood import old.ndjson.gz --stream my.stream --url https://logs.example.com --key "$KEY"
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import msgspec

from cordwood.app.event_files import EventFile
from cordwood.cli.client import Outcome, RetryPolicy, end_progress, sent_events, show_progress
from cordwood.cli.service_target import add_target, target
from cordwood.cli.terminal import note, say
from cordwood.errors import Fault

_BATCH_BYTES = 4 * 2**20
_BATCH_EVENTS = 5000
_RETRIES = RetryPolicy(30, most_seconds=30.0)
_BAR_WIDTH = 24


class Progress(msgspec.Struct):
    """The counts of what was sent so far."""

    events: int = 0
    outcome: Outcome = msgspec.field(default_factory=Outcome)
    began: float = msgspec.field(default_factory=time.monotonic)

    def add(self, batch: int, told: dict[str, object]) -> None:
        first = self.events
        self.outcome.add(told, lambda reason: f"event {first + int(reason['index']) + 1}")
        self.events += batch

    def show(self, share: float) -> None:
        full = round(share * _BAR_WIDTH)
        show_progress(f"{'█' * full + '░' * (_BAR_WIDTH - full)} {share:4.0%}  {self.line()}")

    def line(self) -> str:
        a_second = self.events / max(time.monotonic() - self.began, 1e-9)
        counts = self.outcome.sums.items()
        sums = ", ".join(f"{count:,} {name}" for name, count in counts if count or name == "accepted")
        return f"{self.events:,} events ({a_second:,.0f}/s): {sums}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="NDJSON, NDJSON.gz or Parquet")
    parser.add_argument("--stream", required=True, metavar="NAME", help="name or UUID of the stream")
    parser.add_argument(
        "--as-new",
        action="store_true",
        help="send the events of an export as new events; a public key is sufficient",
    )
    add_target(parser)


def run(arguments: argparse.Namespace) -> int:
    progress = Progress()
    file = EventFile(arguments.file)
    as_stored = file.is_export and not arguments.as_new
    with target(arguments, may_make=True) as service, _told_so_far(progress):
        for batch in _batches(file.stored() if as_stored else file.events()):
            answer = sent_events(service, _path(arguments.stream, as_stored=as_stored), b"\n".join(batch), _RETRIES)
            if as_stored and answer.status == 403:
                note(
                    "Restoring exported events unchanged needs a private key. Use --as-new to send them as new events."
                )
            progress.add(len(batch), answer.checked().json())
            progress.show(file.share)
    end_progress()
    return progress.outcome.tell(progress.line())


@contextmanager
def _told_so_far(progress: Progress) -> Iterator[None]:
    """Print the counts if an import ends early: what was sent until then is stored."""
    try:
        yield
    except Fault:
        end_progress()
        if progress.events:
            say(progress.line())
        raise


def _path(stream: str, *, as_stored: bool) -> str:
    name = quote(stream, safe="")
    return f"/api/streams/{name}/events" if as_stored else f"/api/logs?source_name={name}"


def _batches(events: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for event in events:
        if batch and (size + len(event) > _BATCH_BYTES or len(batch) == _BATCH_EVENTS):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(event) + 1
    if batch:
        yield batch
