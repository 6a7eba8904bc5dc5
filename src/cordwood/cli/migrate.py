"""Copy the events that another service has stored: those of Logflare in PostgreSQL, each source into a stream.

An interrupted run is continued by running it again: its progress is stored in a file. Events keep their ids and times.
The other service is only read; stop it first, or run the command again once it has stopped. Needs PostgreSQL's client:
pip install 'cordwood[migrate]'. The password may be in PGPASSWORD or ~/.pgpass instead of the URL.

examples:
  cordwood migrate logflare --from postgresql://supabase_admin@db:5432/_supabase
  cordwood migrate logflare --from "$POSTGRES_BACKEND_URL" --dry-run
  cordwood migrate logflare --from "$POSTGRES_BACKEND_URL" --only postgres.logs --as 0f7c…=my.stream
"""

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from cordwood.cli.client import (
    IngestTotals,
    RetryPolicy,
    ServiceClient,
    add_service_and_folder_options,
    end_progress,
    open_service_client,
    remote_service_from_arguments,
    send_events,
    show_progress,
)
from cordwood.cli.terminal import print_message, print_output
from cordwood.errors import RefusedByService, did_you_mean
from cordwood.folder import write_durably

_STATE_FILE_VERSION = 1


class MigrationState:
    """The progress of a migration: how far each table was copied, stored in a file.

    `route` names the source and the destination. A file of a migration with another route is refused.
    """

    def __init__(self, file: Path, route: str) -> None:
        self._state_file = file
        self._file_content: dict[str, Any] = {"version": _STATE_FILE_VERSION, "route": route, "tables": {}}
        if file.exists():
            self._file_content = self._read_state_file(route)

    def last_copied_sort_key(self, table: str) -> tuple[str, str] | None:
        """Return the sort key of the table's last copied event, or None if no event of the table was copied yet."""
        found = self._file_content["tables"].get(table)
        return (str(found[0]), str(found[1])) if found else None

    def record_last_copied_sort_key(self, table: str, sort_key: tuple[str, str]) -> None:
        """Write the sort key of the table's last copied event to disk. A later run starts after this event."""
        self._file_content["tables"][table] = list(sort_key)
        write_durably(self._state_file, json.dumps(self._file_content, indent=2).encode())

    def _read_state_file(self, route: str) -> dict[str, Any]:
        try:
            content = json.loads(self._state_file.read_text())
            is_ours = content["version"] == _STATE_FILE_VERSION and isinstance(content["tables"], dict)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise RefusedByService(
                f"{self._state_file} is not a state file of a migration.", hint=_STATE_FILE_HINT
            ) from problem
        if not is_ours or content["route"] != route:
            raise RefusedByService(
                f"{self._state_file} is of another migration: {content.get('route')}.", hint=_STATE_FILE_HINT
            )
        return dict(content)


_STATE_FILE_HINT = "Name another file: --state FILE."


# The status 507 means that the disk is full. It is retried too, because space may become free.
_RETRY_POLICY = RetryPolicy(100, (429, 503, 507))
_PROGRESS_INTERVAL_SECONDS = 5.0


class TableCopy(msgspec.Struct, frozen=True):
    """A table of a source, and the stream to which its events are copied."""

    source_table: Any
    target_stream: str


class CopyProgress(msgspec.Struct):
    """The counts of the events copied so far, and the time when the last progress line was printed."""

    ingest_totals: IngestTotals = msgspec.field(default_factory=IngestTotals)
    printed_at: float = msgspec.field(default_factory=time.monotonic)

    def totals_line(self) -> str:
        stored, there, aside = (
            self.ingest_totals.counts_by_outcome[name] for name in ("accepted", "duplicates", "quarantined")
        )
        return f"{stored:,} events stored, {there:,} duplicates, {aside:,} quarantined"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    logflare = actions.add_parser("logflare", help="copy Logflare's log_events_* tables", allow_abbrev=False)
    logflare.add_argument("--from", dest="source", required=True, metavar="URL", help="postgresql://user@host/database")
    logflare.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only this source, by name or UUID (may be repeated)",
    )
    logflare.add_argument(
        "--as",
        action="append",
        default=[],
        dest="renamed",
        metavar="SOURCE=STREAM",
        help="the stream of a source (by name or UUID) if their names differ (may be repeated)",
    )
    logflare.add_argument("--dry-run", action="store_true", help="print what would be copied, without copying")
    logflare.add_argument(
        "--state",
        type=Path,
        default=Path("cordwood-migrate.json"),
        metavar="FILE",
        help="the file in which the progress is stored (default: cordwood-migrate.json)",
    )
    add_service_and_folder_options(logflare)


def run(arguments: argparse.Namespace) -> int:
    _check_source_address(arguments.source)
    with (
        _import_logflare_tables().connect_to_postgresql(arguments.source) as source_tables,
        open_service_client(arguments, may_open_folder=True) as service,
    ):
        copies = _plan_copies(source_tables.list_source_tables(), arguments)
        _require_existing_streams(copies, service)
        state = MigrationState(arguments.state, _describe_source_and_destination(arguments))
        if arguments.dry_run:
            for copy in copies:
                print_output(
                    f"{source_tables.count_remaining_events(copy.source_table, state.last_copied_sort_key(copy.source_table.qualified_name)):>12,}  {copy.target_stream}  ({copy.source_table.qualified_name})"
                )
            return 0
        return _copy_all_tables(copies, source_tables, service, state)


def _check_source_address(address: str) -> None:
    """Raise RefusedByService if the address of the PostgreSQL database is invalid or empty.

    PostgreSQL's client would connect to a local database if the address were empty.
    """
    if not address.startswith(("postgresql://", "postgres://")) and "=" not in address:
        problem = "--from is empty." if not address.strip() else "--from is not a PostgreSQL address."
        raise RefusedByService(problem, hint="Write: --from postgresql://user@host/database.")


def _import_logflare_tables() -> Any:
    """Import `logflare_tables`, which needs PostgreSQL's client, an optional dependency."""
    try:
        return importlib.import_module("cordwood.cli.logflare_tables")
    except ModuleNotFoundError as missing:
        hint = "Install it: pip install 'cordwood[migrate]'."
        raise RefusedByService(
            f"Reading PostgreSQL needs {missing.name}, which is not installed.", hint=hint
        ) from missing


def _plan_copies(tables: list[Any], arguments: argparse.Namespace) -> list[TableCopy]:
    """Return the tables to copy, each with its stream; raise RefusedByService for a table without a stream."""
    if not tables:
        raise RefusedByService(
            "There is no table log_events_… in that database.", hint="Is it the one of POSTGRES_BACKEND_URL?"
        )
    streams = dict(_parse_source_and_stream(one) for one in arguments.renamed)
    _check_source_names([*arguments.only, *streams], [key for table in tables for key in _source_id_and_name(table)])
    wanted = [
        table
        for table in tables
        if not arguments.only or not set(arguments.only).isdisjoint(_source_id_and_name(table))
    ]
    return list(_assign_streams(wanted, streams))


def _check_source_names(names: list[str], known_names: list[str]) -> None:
    for key in names:
        if key not in known_names:
            raise RefusedByService(f"There is no source {key!r} there.", hint=did_you_mean(key, known_names))


def _assign_streams(tables: list[Any], streams: dict[str, str]) -> Iterator[TableCopy]:
    for table in tables:
        stream = next((streams[key] for key in _source_id_and_name(table) if key in streams), table.source_name)
        if stream is None:
            hint = f"Name it: --as {table.source_id}=STREAM, or leave it out with --only."
            raise RefusedByService(f"The database has no name for the source of {table.qualified_name}.", hint=hint)
        yield TableCopy(table, stream)


def _source_id_and_name(table: Any) -> list[str]:
    return [key for key in (table.source_id, table.source_name) if key]


def _parse_source_and_stream(text: str) -> tuple[str, str]:
    source, mark, stream = text.partition("=")
    if not (source and mark and stream):
        raise RefusedByService(f"{text!r} is not of the form SOURCE=STREAM.", hint="Write: --as SOURCE=STREAM.")
    return source, stream


def _require_existing_streams(copies: list[TableCopy], service: ServiceClient) -> None:
    """Raise RefusedByService if a stream does not exist. If the key may not list streams, do nothing."""
    answer = service.send("GET", "/api/sources")
    if answer.status != 200:
        return
    there = {key for stream in answer.json() for key in (stream["name"], stream["token"])}
    missing = [copy.target_stream for copy in copies if copy.target_stream not in there]
    if missing:
        named = "".join(f'\n[[stream]]\nname = "{name}"' for name in missing)
        hint = f"Name them in your streams file, or say which to use with --as SOURCE=STREAM.{named}"
        raise RefusedByService(f"These streams do not exist: {', '.join(missing)}.", hint=hint)


def _copy_all_tables(copies: list[TableCopy], source_tables: Any, service: ServiceClient, state: MigrationState) -> int:
    progress = CopyProgress()
    for copy in copies:
        _copy_table(copy, source_tables, service, state, progress)
    return progress.ingest_totals.print_summary(progress.totals_line())


def _copy_table(
    copy: TableCopy, source_tables: Any, service: ServiceClient, state: MigrationState, progress: CopyProgress
) -> None:
    path = f"/api/logs?source_name={quote(copy.target_stream, safe='')}"
    after = state.last_copied_sort_key(copy.source_table.qualified_name)
    whole, done, began = source_tables.count_remaining_events(copy.source_table, after), 0, time.monotonic()
    print_message(f"{copy.target_stream}: {whole:,} events to copy{', going on' if after else ''}")
    for rows in source_tables.event_batches(copy.source_table, after):
        answer = send_events(service, path, b"\n".join(rows.json_lines), _RETRY_POLICY)
        progress.ingest_totals.add_batch_result(answer.raise_for_error().json(), lambda _: copy.target_stream)
        state.record_last_copied_sort_key(copy.source_table.qualified_name, rows.last_sort_key)
        done += len(rows.json_lines)
        _print_progress(
            progress, f"{copy.target_stream}: {done:,} of {whole:,} ({done / (time.monotonic() - began):,.0f}/s)"
        )
    if done:
        end_progress()


def _print_progress(progress: CopyProgress, line: str) -> None:
    """Print a progress line.

    On a terminal, the line overwrites the previous one. Elsewhere, a line is printed only every few seconds.
    """
    show_progress(line)
    if not sys.stderr.isatty() and time.monotonic() - progress.printed_at > _PROGRESS_INTERVAL_SECONDS:
        progress.printed_at = time.monotonic()
        print_message(line)


def _describe_source_and_destination(arguments: argparse.Namespace) -> str:
    """Return a text that names the source and the destination, without credentials."""
    source_tables, service = urlsplit(arguments.source), remote_service_from_arguments(arguments)
    there = (
        service.url
        if service
        else str(Path(arguments.data_dir).resolve())
        if arguments.data_dir
        else "the local service"
    )
    return f"{source_tables.hostname or ''}:{source_tables.port or 5432}{source_tables.path} to {there}"
