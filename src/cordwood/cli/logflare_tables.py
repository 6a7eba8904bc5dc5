"""Read Logflare's event tables in PostgreSQL, one table for each source, oldest events first."""

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import psycopg
from psycopg import sql

from cordwood.errors import RefusedByService, ServiceUnreachable

# The key by which the events of a table are sorted: the event's time as PostgreSQL formats it, and the event's id.
SortKey = tuple[str, str]

_ROWS_PER_FETCH = 500
_MAX_BATCH_EVENTS = 2_000
_MAX_BATCH_BYTES = 4 * 2**20
_CONNECT_TIMEOUT_SECONDS = 15

_EVENT_TABLES_SQL = r"""
select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and not c.relispartition
  and c.relname ~ '^log_events_[0-9a-f]{8}(_[0-9a-f]{4}){3}_[0-9a-f]{12}$'
order by 1, 2
"""
# Logflare lists its sources in the table `sources`. The schema of this table can be configured; this query finds it.
_SOURCES_SCHEMA_SQL = """
select table_schema from information_schema.columns where table_name = 'sources' and column_name in ('token', 'name')
group by table_schema having count(*) = 2
"""
_SOURCE_NAMES_SQL = "select token::text, name from {}.sources"
_COUNT_EVENTS_SQL = "select count(*) from {} where {}"
# Times without a zone are read as UTC. Events without a time come first; as their time, cordwood uses the time of
# receipt.
_SELECT_EVENTS_SQL = """
select coalesce(timestamp, '-infinity')::text, id,
  to_char(timestamp, 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), event_message, body::jsonb::text
from {} where {} order by coalesce(timestamp, '-infinity'), id
"""
_AFTER_SORT_KEY_CONDITION = sql.SQL("(coalesce(timestamp, '-infinity'), id) > (%s, %s)")
_ALWAYS_TRUE_CONDITION = sql.SQL("true")

_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode_json = msgspec.json.Encoder().encode


class SourceTable(msgspec.Struct, frozen=True):
    """The table with the events of one Logflare source. `source_name` is None if Logflare's list has no name for it."""

    schema_name: str
    table_name: str
    source_id: str
    source_name: str | None

    @property
    def qualified_name(self) -> str:
        return f"{self.schema_name}.{self.table_name}"

    @property
    def sql_identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema_name, self.table_name)


class EventBatch(msgspec.Struct, frozen=True):
    """A batch of events as JSON lines, and the sort key of the batch's last event."""

    json_lines: list[bytes]
    last_sort_key: SortKey


class LogflareTableReader:
    """Reads Logflare's event tables through a read-only connection to PostgreSQL.

    Events that are added to a table after its reading began are not read.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def list_source_tables(self) -> list[SourceTable]:
        names = self._source_names_by_id()
        found = self._connection.execute(_EVENT_TABLES_SQL).fetchall()
        return [_source_table(schema, table, names) for schema, table in found]

    def count_remaining_events(self, table: SourceTable, last_key: SortKey | None) -> int:
        """Return the number of the table's events after `last_key`, or of all its events if `last_key` is None."""
        statement = sql.SQL(_COUNT_EVENTS_SQL).format(
            table.sql_identifier, _AFTER_SORT_KEY_CONDITION if last_key else _ALWAYS_TRUE_CONDITION
        )
        ((count,),) = self._connection.execute(statement, last_key).fetchall()
        return int(count)

    def event_batches(self, table: SourceTable, last_key: SortKey | None) -> Iterator[EventBatch]:
        statement = sql.SQL(_SELECT_EVENTS_SQL).format(
            table.sql_identifier, _AFTER_SORT_KEY_CONDITION if last_key else _ALWAYS_TRUE_CONDITION
        )
        with _convert_table_errors(table), self._connection.transaction(), self._connection.cursor("events") as cursor:
            cursor.itersize = _ROWS_PER_FETCH
            cursor.execute(statement, last_key)
            lines: list[bytes] = []
            size, last = 0, ("", "")
            for at, event_id, timestamp, message, body in cursor:
                lines.append(_event_line(event_id, timestamp, message, body))
                size, last = size + len(lines[-1]), (at, event_id)
                if len(lines) == _MAX_BATCH_EVENTS or size > _MAX_BATCH_BYTES:
                    yield EventBatch(lines, last)
                    lines, size = [], 0
            if lines:
                yield EventBatch(lines, last)

    def _source_names_by_id(self) -> dict[str, str]:
        schemas = self._connection.execute(_SOURCES_SCHEMA_SQL).fetchall()
        names: dict[str, str] = {}
        for (schema,) in schemas:
            names |= dict(
                self._connection.execute(sql.SQL(_SOURCE_NAMES_SQL).format(sql.Identifier(schema))).fetchall()
            )
        return names


@contextmanager
def connect_to_postgresql(address: str) -> Iterator[LogflareTableReader]:
    """Connect to PostgreSQL; raise ServiceUnreachable if that fails.

    The message of the exception never contains the password.
    """
    try:
        connection = psycopg.connect(
            address, autocommit=True, connect_timeout=_CONNECT_TIMEOUT_SECONDS, application_name="cordwood migrate"
        )
    except psycopg.Error as problem:
        raise ServiceUnreachable(f"PostgreSQL refuses the login: {_one_line_message(problem)}") from problem
    with connection:
        connection.execute("set time zone 'UTC'; set datestyle to iso; set default_transaction_read_only to on")
        try:
            yield LogflareTableReader(connection)
        except psycopg.OperationalError as problem:
            raise ServiceUnreachable(
                f"PostgreSQL is gone: {_one_line_message(problem)}", hint=_RESUME_HINT
            ) from problem


_RESUME_HINT = "Start again, and it goes on where it stopped."


@contextmanager
def _convert_table_errors(table: SourceTable) -> Iterator[None]:
    try:
        yield
    except psycopg.ProgrammingError as problem:
        raise RefusedByService(
            f"{table.qualified_name} cannot be read: {_one_line_message(problem)}",
            hint="It should have the columns id, timestamp, event_message and body.",
        ) from problem


def _source_table(schema: str, table: str, names: dict[str, str]) -> SourceTable:
    source_id = str(uuid.UUID(re.sub(r"^log_events_|_", "", table)))
    return SourceTable(schema, table, source_id, names.get(source_id))


def _event_line(event_id: str, timestamp: str | None, message: str | None, body: str | None) -> bytes:
    """Return an event as a line of JSON.

    The columns `id`, `timestamp` and `event_message` override fields of the body with the same names, because
    Logflare's own queries read the columns.
    """
    try:
        fields = _decode_fields.decode(body or "{}")
    except (msgspec.DecodeError, RecursionError):
        fields = {"metadata": msgspec.Raw((body or "").encode())}
    columns = {"id": event_id, "timestamp": timestamp, "event_message": message}
    return _encode_json(
        fields | {name: msgspec.Raw(_encode_json(value)) for name, value in columns.items() if value is not None}
    )


def _one_line_message(problem: psycopg.Error) -> str:
    return " ".join(str(problem).split())
