"""The tables of a stream and their columns, and the SQL statements over them."""

from collections.abc import Sequence

EVENT_COLUMNS = {
    "id": "VARCHAR",
    "timestamp": "TIMESTAMPTZ",
    "event_message": "VARCHAR",
    "project": "VARCHAR",
    "metadata": "VARIANT",
    "extras": "VARIANT",
    "ingested_at": "TIMESTAMPTZ",
    "timestamp_inferred": "BOOLEAN",
    # The paths at which the event has objects. Nearly every query tests whether the value at a path is an object, which
    # takes long to determine from a VARIANT.
    "object_paths": "VARCHAR",
}

# The approximate memory of an event without its texts.
EVENT_MEMORY_OVERHEAD_BYTES = 300

# The columns whose compression is not chosen by DuckDB. With zstd, long texts take half the space and are written
# faster.
_COMPRESSION_CLAUSE_BY_COLUMN = {"event_message": " USING COMPRESSION zstd"}


class StreamTableStatements:
    """The SQL statements for one stream: for its table of flushed events, its tables in memory, and its view."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.view = quote_identifier(stream)
        self.table = f"store.main.{quote_identifier(stream)}"
        self.memtable = f"memory.memtable.{quote_identifier(stream)}"
        self.recent_table = f"memory.recent.{quote_identifier(stream)}"
        self.arrived_table = f"memory.arrived.{quote_identifier(stream)}"
        # The catalog, schema and name of each table and view that a statement over the stream may read.
        schemas = ("store.main", "memory.main", "memory.memtable", "memory.recent", "memory.arrived")
        self.qualified_table_names = frozenset((*schema.split("."), stream) for schema in schemas)

    def create_table(self) -> str:
        columns = ", ".join(
            f"{quote_identifier(name)} {kind}{_COMPRESSION_CLAUSE_BY_COLUMN.get(name, '')}"
            for name, kind in EVENT_COLUMNS.items()
        )
        return f"CREATE TABLE IF NOT EXISTS {self.table} ({columns})"

    def add_missing_columns(self) -> str:
        """Return SQL that adds the columns `settled` and `block` to a table without them.

        `settled` is true if the event is in a compacted run.
        """
        add_column = f"ALTER TABLE {self.table} ADD COLUMN IF NOT EXISTS"
        return f"{add_column} settled BOOLEAN DEFAULT false; {add_column} block BIGINT DEFAULT 0"

    def memtable_part_name(self, part: int) -> str:
        return f"memory.parts.{quote_identifier(f'{part} of {self.stream}')}"

    def create_memtable_part(self, part: int) -> str:
        return f"CREATE TABLE {self.memtable_part_name(part)} AS {self._select_no_rows()}"

    def drop_memtable_part(self, part: int) -> str:
        return f"DROP TABLE {self.memtable_part_name(part)}"

    def create_memtable_view(self, parts: Sequence[int], flushed_to: int) -> str:
        """Return SQL that creates the memtable, which is a view of the unflushed rows in `parts`.

        The view's `rowid` is the event's sequence number.
        """
        rows = "SELECT * EXCLUDE (number), number AS rowid FROM"
        tables = [f"{rows} {self.memtable_part_name(part)} WHERE number >= {flushed_to:d}" for part in parts]
        return f"CREATE OR REPLACE VIEW {self.memtable} AS {' UNION ALL '.join(tables) or f'{rows} ({self._select_no_rows()})'}"

    def _select_no_rows(self) -> str:
        return f"SELECT {_COLUMN_LIST_SQL}, 0::BIGINT AS number FROM {self.table} WHERE false"  # noqa: S608 - our own names

    def create_recent_table(self) -> str:
        """Return SQL that creates the recent table of flushed events newer than `$since`, with objects as JSON text."""
        columns = ", ".join(_select_as_text(quote_identifier(name), kind) for name, kind in EVENT_COLUMNS.items())
        newer = "timestamp > make_timestamptz($since)"
        return f"CREATE OR REPLACE TABLE {self.recent_table} AS SELECT {columns} FROM {self.table} WHERE {newer}"  # noqa: S608

    def empty_recent_table(self) -> str:
        return f"CREATE OR REPLACE TABLE {self.recent_table} AS FROM {self.recent_table} WHERE false"

    def trim_recent_table(self) -> str:
        return f"CREATE OR REPLACE TABLE {self.recent_table} AS FROM {self.recent_table} WHERE timestamp > make_timestamptz($since)"

    def delete_recent_rows_before(self) -> str:
        return f"DELETE FROM {self.recent_table} WHERE timestamp < make_timestamptz($before)"  # noqa: S608 - our own names

    def insert_into_recent_table(self, source: str) -> str:
        """Return SQL that inserts events newer than `$since` into the recent table.

        Objects become JSON text, spelled exactly as when objects are read from the file.
        """
        values = "i, t, e, p, m::JSON::VARIANT::JSON, x::JSON::VARIANT::JSON, r, f, o"
        return f"INSERT INTO {self.recent_table} SELECT {values} FROM {source} WHERE t > make_timestamptz($since)"  # noqa: S608

    def create_arrived_table(self) -> str:
        return f"CREATE OR REPLACE TABLE {self.arrived_table} AS {self._select_no_rows()}"

    def drop_arrived_table(self) -> str:
        return f"DROP TABLE IF EXISTS {self.arrived_table}"

    def trim_arrived_table(self) -> str:
        return f"CREATE OR REPLACE TABLE {self.arrived_table} AS FROM {self.arrived_table} WHERE number >= $number"

    def create_view(self, *, with_memtable: bool) -> str:
        union = f" UNION ALL SELECT * EXCLUDE (rowid) FROM {self.memtable}" if with_memtable else ""  # noqa: S608 - our own names
        return f"CREATE OR REPLACE VIEW memory.main.{self.view} AS SELECT {_COLUMN_LIST_SQL} FROM {self.table}{union}"  # noqa: S608

    def count_rows(self) -> str:
        return f"SELECT count(*) FROM {self.table}"  # noqa: S608 - our own names

    def select_newest_and_oldest_time(self) -> str:
        """Return SQL that selects the newest and the oldest time of the flushed events.

        The SQL uses ORDER BY with LIMIT, because DuckDB then reads only row groups that can contain these times.
        """
        first = f"(SELECT epoch_us(timestamp) FROM {self.table} ORDER BY timestamp"  # noqa: S608
        return f"SELECT {first} DESC LIMIT 1), {first} LIMIT 1)"

    def select_average_event_bytes(self) -> str:
        """Return SQL that selects the average memory of an event, in bytes, from a sample of 100 events.

        The SQL estimates an event's memory by the same formula as `chunk.estimate_event_bytes`.
        """
        texts = ("event_message", "metadata::JSON::VARCHAR", "extras::JSON::VARCHAR")
        total = " + ".join(f"coalesce(strlen({text}), 0)" for text in texts)
        return f"SELECT avg({EVENT_MEMORY_OVERHEAD_BYTES} + {total}) FROM (SELECT * FROM {self.table} LIMIT 100)"  # noqa: S608 - our own names

    def delete_before(self) -> str:
        return f"DELETE FROM {self.table} WHERE timestamp < make_timestamptz($before)"  # noqa: S608

    def select_oldest_rowids(self) -> str:
        """Return SQL that selects the first and the last rowid of the oldest `$rows` rows."""
        return f"SELECT min(rowid), max(rowid) FROM (SELECT rowid FROM {self.table} ORDER BY rowid LIMIT $rows)"  # noqa: S608

    def copy_rows_to_end(self) -> str:
        return f"INSERT INTO {self.table} SELECT * FROM {self.table} WHERE rowid BETWEEN $first AND $last"  # noqa: S608

    def delete_rows(self) -> str:
        return f"DELETE FROM {self.table} WHERE rowid BETWEEN $first AND $last"  # noqa: S608 - our own names

    def select_times(self) -> str:
        return f"SELECT epoch_us(timestamp) FROM {self.table}"  # noqa: S608

    def select_time_of_rank(self, table: str | None = None) -> str:
        """Return SQL that selects the time of the `$rank`-th newest event, by default among the flushed events."""
        events = table or self.table
        return f"SELECT epoch_us(timestamp) FROM {events} ORDER BY timestamp DESC LIMIT 1 OFFSET $rank - 1"  # noqa: S608

    def select_stored_keys(self) -> str:
        """Return SQL that selects the projects and ids of flushed events that are among `$projects` and `$ids`.

        The events at the same position of the two lists belong together. Only events that were received from `$since`
        and before `$before` are searched.
        """
        return f"{self._select_given_keys()} AND ingested_at < make_timestamptz($before)"

    def select_stored_keys_by_receipt(self) -> str:
        """Return SQL like that of `select_stored_keys`, for events received from `$since` to `$until`, inclusive."""
        return f"{self._select_given_keys()} AND ingested_at <= make_timestamptz($until)"

    def _select_given_keys(self) -> str:
        given = "(SELECT unnest($projects::VARCHAR[]) AS given_project, unnest($ids::VARCHAR[]) AS given_id)"
        return (
            f"SELECT DISTINCT project, id FROM {self.table} SEMI JOIN {given}"  # noqa: S608 - our own names
            " ON id = given_id AND project IS NOT DISTINCT FROM given_project"
            " WHERE ingested_at >= make_timestamptz($since)"
        )

    def select_newest_events_receipt_range(self) -> str:
        return (
            f"SELECT epoch_us(min(ingested_at)), epoch_us(max(ingested_at)) FROM (SELECT ingested_at FROM {self.table}"  # noqa: S608
            " ORDER BY ingested_at DESC LIMIT $events)"
        )

    def select_uncompacted_run_end(self) -> str:
        """Return SQL that selects the number of uncompacted rows, and the rowid of the `$rows`-th of them."""
        uncompacted = (
            f"SELECT row_number() OVER (ORDER BY rowid) AS rank, rowid AS place FROM {self.table} WHERE NOT settled"  # noqa: S608
        )
        return f"SELECT count(*), min(place) FILTER (rank = $rows) FROM ({uncompacted})"  # noqa: S608 - our own names

    def create_row_group_assignment(self) -> str:
        """Return SQL that creates the table `slice`, which assigns each uncompacted row to a new row group.

        A new row group has `$rows` rows. The table has the uncompacted rows with a rowid up to `$last`.
        """
        rank = "row_number() OVER (ORDER BY project NULLS FIRST, timestamp)"
        events = f"SELECT rowid AS place, ({rank} - 1) // $rows AS part FROM {self.table} WHERE NOT settled AND rowid <= $last"  # noqa: S608
        return f"CREATE OR REPLACE TEMP TABLE slice AS {events}"

    def insert_compacted_row_group(self) -> str:
        return (
            f"INSERT INTO {self.table} ({_COLUMN_LIST_SQL}, settled, block) SELECT {_COLUMN_LIST_SQL}, true, $block FROM {self.table}"  # noqa: S608 - our own names
            " WHERE rowid IN (SELECT place FROM slice WHERE part = $part) ORDER BY project NULLS FIRST, timestamp"
        )

    def delete_run_rows(self) -> str:
        return f"DELETE FROM {self.table} WHERE NOT settled AND rowid <= $last"  # noqa: S608 - our own names

    def pin_snapshot(self) -> str:
        """Return SQL that selects no rows, but makes its transaction see the data as they are at this moment.

        From then on, changes of the file and of the tables in memory are invisible to the transaction.
        """
        return f"FROM {self.view} LIMIT 0"

    def pin_snapshot_of_table(self) -> str:
        return f"FROM {self.table} LIMIT 0"

    def select_events(self) -> str:
        return (
            "SELECT id, timestamp, event_message, project, metadata::JSON::VARCHAR AS metadata,"  # noqa: S608
            " extras::JSON::VARCHAR AS extras, ingested_at, timestamp_inferred"
            f" FROM memory.main.{self.view} WHERE timestamp >= make_timestamptz($since) AND timestamp < make_timestamptz($until)"
            " AND ($project::VARCHAR IS NULL OR project = $project)"
        )

    def insert_events(self, table: str, source: str, *, numbered: bool) -> str:
        """Return SQL that inserts the events of `source` into `table`.

        `source` is `EVENTS_FROM_PARAMETERS_SQL`, or a relation with the same columns, whose names are single letters.
        """
        into, number = (", number", ", n") if numbered else (", block", ", $block")
        return f"INSERT INTO {table} ({_COLUMN_LIST_SQL}{into}) SELECT i, t, e, p, m::JSON::VARIANT, x::JSON::VARIANT, r, f, o{number} FROM {source}"  # noqa: S608


# SQL for a relation of events that are passed as parameters, with one list for each column. The JSON is parsed after
# UNNEST, because that saves a third of the time.
EVENTS_FROM_PARAMETERS_SQL = (
    "(SELECT i, make_timestamptz(t) AS t, e, p, m, x, make_timestamptz(r) AS r, f, o, n FROM ("
    "SELECT unnest($i::VARCHAR[]) AS i, unnest($t::BIGINT[]) AS t, unnest($e::VARCHAR[]) AS e,"
    " unnest($p::VARCHAR[]) AS p, unnest($m::VARCHAR[]) AS m, unnest($x::VARCHAR[]) AS x, unnest($r::BIGINT[]) AS r,"
    " unnest($f::BOOLEAN[]) AS f, unnest($o::VARCHAR[]) AS o, unnest($n::BIGINT[]) AS n))"
)


def quote_identifier(name: str) -> str:
    """Quote a name for DuckDB, which does not allow names that are empty or contain a NUL character."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """Return SQL for a text; NUL characters are written as `chr(0)`, because DuckDB's literals cannot contain them."""
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
    return parts[0] if len(parts) == 1 else "(" + " || chr(0) || ".join(parts) + ")"


def _select_as_text(column: str, kind: str) -> str:
    return f"{column}::JSON AS {column}" if kind == "VARIANT" else column


_COLUMN_LIST_SQL = ", ".join(map(quote_identifier, EVENT_COLUMNS))
