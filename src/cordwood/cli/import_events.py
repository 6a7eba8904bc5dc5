"""Send a file of events (NDJSON, JSON, CSV, Parquet or journald export) to a stream; - reads standard input.

The file may be compressed with gzip or zstd. The command recognises the format by the file's name and its beginning,
unless --as names the format. Logs as text are read only with --as: lines (each line is a message), logfmt, combined
(access logs of Apache and nginx) and syslog. `cordwood sniff FILE` shows what the first events would be.

CSV has a header line. Columns are named like the fields of events: timestamp, id, event_message, project, metadata
(JSON) and any others. Cells are texts, and an empty cell is a missing field. With --types auto, cells that are numbers,
true or false are stored as such; with --types status=number,ok=bool only those of the named columns (number, bool,
json, auto or text).

Sending a file again stores no event twice: events are identified by their ids, and an event without one gets an id that
depends only on the file. So an interrupted import can simply be repeated. A file written by `cordwood export`
is stored unchanged, with its times of receipt; that needs a private key.

examples:
  cordwood import events.ndjson --stream cloudflare.logs.prod
  cordwood import day.parquet --stream postgres.logs --data-dir ./cordwood-data
  cordwood import old.ndjson.gz --stream my.stream --url https://logs.example.com --key "$KEY"
  cordwood import orders.csv --types total=number --stream my.stream
  cordwood import access.log.1.gz --as combined --stream my.stream
  journalctl -o export --since today | cordwood import - --stream my.stream
  zcat *.json.gz | cordwood import - --stream my.stream
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import msgspec

from cordwood.app.event_files import EventFile, FileRecord, open_event_file
from cordwood.cli.client import (
    IngestTotals,
    RetryPolicy,
    ServiceClient,
    ServiceResponse,
    add_service_and_folder_options,
    end_progress,
    open_service_client,
    send_events,
    show_progress,
)
from cordwood.cli.sniff import add_read_options, read_options_from_arguments
from cordwood.cli.terminal import print_message, print_output
from cordwood.errors import Fault, RefusedByService

_MAX_BATCH_BYTES = 4 * 2**20
_MAX_BATCH_EVENTS = 5000
_RETRY_POLICY = RetryPolicy(30, max_pause_seconds=30.0)
_PROGRESS_BAR_CHARACTERS = 24


class ImportProgress(msgspec.Struct):
    """The number of events sent so far, and what the service answered about them.

    `position_unit` is the unit in which positions in the file are counted, such as a line.
    """

    position_unit: str = "line"
    sent_event_count: int = 0
    ingest_totals: IngestTotals = msgspec.field(default_factory=IngestTotals)
    began_at: float = msgspec.field(default_factory=time.monotonic)

    def add_batch(self, batch: Sequence[FileRecord], result: dict[str, object]) -> None:
        self.ingest_totals.add_batch_result(
            result, lambda reason: f"{self.position_unit} {batch[int(reason['index'])].position}"
        )
        self.sent_event_count += len(batch)

    def show_file_progress(self, file: EventFile) -> None:
        if file.read_fraction is None:
            show_progress(f"{file.bytes_read / 1e6:,.1f} MB  {self.progress_line()}")
        else:
            full = round(file.read_fraction * _PROGRESS_BAR_CHARACTERS)
            show_progress(
                f"{'█' * full + '░' * (_PROGRESS_BAR_CHARACTERS - full)} {file.read_fraction:4.0%}  {self.progress_line()}"
            )

    def progress_line(self) -> str:
        a_second = self.sent_event_count / max(time.monotonic() - self.began_at, 1e-9)
        counts = self.ingest_totals.counts_by_outcome.items()
        sums = ", ".join(f"{count:,} {name}" for name, count in counts if count or name == "accepted")
        return f"{self.sent_event_count:,} events ({a_second:,.0f}/s): {sums}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the file to read; - for standard input")
    parser.add_argument("--stream", required=True, metavar="NAME", help="name or UUID of the stream")
    add_read_options(parser)
    parser.add_argument(
        "--as-new",
        action="store_true",
        help="send the events of an export as new events; a public key is sufficient",
    )
    add_service_and_folder_options(parser)


def run(arguments: argparse.Namespace) -> int:
    with open_event_file(arguments.file, read_options_from_arguments(arguments)) as file:
        progress = ImportProgress(file.position_unit)
        as_stored = file.is_cordwood_export and not arguments.as_new
        path = _import_path(arguments.stream, as_stored=as_stored)
        with open_service_client(arguments, may_open_folder=True) as service, _print_counts_on_failure(progress):
            for batch in _split_into_batches(file.rows_of_cordwood_export() if as_stored else file.events()):
                answer = _send_batch(service, path, batch, progress)
                if as_stored and answer.status == 403:
                    print_message(
                        "Restoring exported events unchanged needs a private key. "
                        "Use --as-new to send them as new events."
                    )
                progress.add_batch(batch, _add_item_faults_to_answer(batch, answer.raise_for_error().json()))
                progress.show_file_progress(file)
    end_progress()
    return progress.ingest_totals.print_summary(progress.progress_line())


@contextmanager
def _print_counts_on_failure(progress: ImportProgress) -> Iterator[None]:
    """Print the counts if the import fails or is interrupted, because the events sent until then are stored."""
    try:
        yield
    except (Fault, KeyboardInterrupt) as end:
        end_progress()
        if progress.sent_event_count:
            print_output(progress.progress_line())
        if isinstance(end, KeyboardInterrupt):
            print_message("Interrupted. Import the file again to continue: nothing is stored twice.")
        raise


def _import_path(stream: str, *, as_stored: bool) -> str:
    name = quote(stream, safe="")
    return f"/api/streams/{name}/events" if as_stored else f"/api/logs?source_name={name}"


def _split_into_batches(events: Iterator[FileRecord]) -> Iterator[list[FileRecord]]:
    batch: list[FileRecord] = []
    size = 0
    for event in events:
        if batch and (size + len(event.json_bytes) > _MAX_BATCH_BYTES or len(batch) == _MAX_BATCH_EVENTS):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += len(event.json_bytes) + 1
    if batch:
        yield batch


def _send_batch(
    service: ServiceClient, path: str, batch: Sequence[FileRecord], progress: ImportProgress
) -> ServiceResponse:
    """Send a batch as NDJSON; if the service refuses it, send it again as a JSON array.

    The service refuses NDJSON without any valid line, but quarantines each invalid item of an array. If the first batch
    is refused, the file probably has another format than assumed, so the batch is not sent again. Then return the
    service's refusal, or raise RefusedByService if the file reader has already found the first item invalid. A refused
    batch of a Parquet file is not sent again either.
    """
    answer = send_events(service, path, b"\n".join(record.json_bytes for record in batch), _RETRY_POLICY)
    if answer.status != 400:
        return answer
    first = batch[0]
    if progress.sent_event_count and progress.position_unit != "row":
        return send_events(
            service, path, b"[" + b",".join(map(_item_json, batch)) + b"]", _RETRY_POLICY, "application/json"
        )
    if first.refusal_reason is not None:
        raise RefusedByService(
            f"No {progress.position_unit} can be read. {progress.position_unit.capitalize()} {first.position}: {first.refusal_reason}"
        )
    return answer


def _item_json(record: FileRecord) -> bytes:
    """Return the bytes of a record if they are valid JSON, otherwise their text as a JSON string."""
    try:
        msgspec.json.decode(record.json_bytes, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.encode(record.json_bytes.decode("utf-8", "replace"))
    return record.json_bytes


def _add_item_faults_to_answer(batch: Sequence[FileRecord], result: dict[str, object]) -> dict[str, object]:
    """Return the service's answer to a batch, with more exact reasons for quarantined items.

    If the file reader has already found a record invalid, its reason replaces the reason of the service.
    """
    reasons = msgspec.convert(result.get("reasons", []), list[dict[str, object]])
    for reason in reasons:
        fault = batch[int(str(reason["index"]))].refusal_reason
        if fault is not None:
            reason["reason"] = fault
    return {**result, "reasons": reasons}
