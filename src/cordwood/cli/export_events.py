"""Export the stored events of a stream to a Parquet file, all of them or those of a time range.

Columns: id, timestamp, event_message, project, metadata and extras (JSON text), ingested_at, timestamp_inferred.
DuckDB, pyarrow and ClickHouse can read it, and `cordwood import` restores every row with its time of receipt. The file
appears when it is complete.

examples:
  cordwood export day.parquet --stream postgres.logs --from 2026-01-01 --to 2026-01-02
  cordwood export all.parquet --stream my.stream --data-dir ./cordwood-data
  cordwood export all.parquet --stream my.stream --url https://logs.example.com --key "$PRIVATE_KEY"
"""

import argparse
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, urlencode

from cordwood.app.event_files import count_events
from cordwood.cli.service_target import add_target, target
from cordwood.cli.terminal import ByteProgress, say
from cordwood.errors import Refused


def _unwritten(problem: OSError) -> Refused:
    return Refused(f"The file cannot be written: {problem.strerror}.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="the file to write; it must not exist")
    parser.add_argument("--stream", required=True, metavar="NAME", help="name or UUID of the stream")
    parser.add_argument("--from", dest="since", metavar="TIME", help="only events from this time on")
    parser.add_argument("--to", dest="until", metavar="TIME", help="only events before this time")
    add_target(parser)


def run(arguments: argparse.Namespace) -> int:
    file: Path = arguments.file
    if file.exists():
        raise Refused(f"{file} exists already.", hint="Move it, or choose another name.")
    draft = file.with_name(f"{file.name}.part")
    progress = ByteProgress()
    try:
        with draft.open("wb") as out:
            _export(arguments, out, progress)
        count = count_events(draft)
        draft.rename(file)
    except OSError as problem:
        raise _unwritten(problem) from problem
    finally:
        with suppress(OSError):
            draft.unlink()
    say(f"{count:,} events, {progress.line()}")
    return 0


def _export(arguments: argparse.Namespace, out: BinaryIO, progress: ByteProgress) -> None:
    bounds = {name: value for name, value in (("from", arguments.since), ("to", arguments.until)) if value}
    path = f"/api/streams/{quote(arguments.stream, safe='')}/events?{urlencode(bounds)}"

    def take(piece: bytes) -> None:
        # Caught here, because errors of the network are OSError, too.
        try:
            out.write(piece)
        except OSError as problem:
            raise _unwritten(problem) from problem
        progress.add(len(piece))

    with target(arguments) as service:
        service.save(path, take).checked()
    progress.end()
