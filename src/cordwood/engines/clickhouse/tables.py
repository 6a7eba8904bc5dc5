"""The tables of streams and shapes, and the statements that create them, on one server or on a cluster."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cordwood.engines.engine import STORED_EVENT_COLUMNS
from cordwood.model.definitions import Stream

# The columns of a stream's table into which values are inserted, with their types. `metadata` and `extras` hold the
# JSON text as the sender sent it.
INSERTED_COLUMNS: Final = {
    "id": "String",
    "timestamp": "DateTime64(6, 'UTC')",
    "event_message": "Nullable(String)",
    "project": "LowCardinality(Nullable(String))",
    "metadata": "Nullable(String)",
    "extras": "Nullable(String)",
    "ingested_at": "DateTime64(6, 'UTC')",
    "timestamp_inferred": "Bool",
    "object_paths": "LowCardinality(String)",
}

# `OBJECT_PATHS_COLUMN` holds the paths at which an event has objects. `JSON_COLUMN_BY_TEXT_COLUMN` names, for a column
# with JSON text, a column of type JSON with the same content, of which a query can read single paths. Answers are made
# from the text, because the type JSON loses nulls, empty objects and the order of keys, and treats a dot in a key like
# a nested path.
OBJECT_PATHS_COLUMN: Final = "object_paths"
JSON_COLUMN_BY_TEXT_COLUMN: Final = {"metadata": "metadata_paths", "extras": "extras_paths"}
_JSON_TYPE: Final = "JSON(max_dynamic_paths = 256)"

SHAPES_TABLE: Final = "cordwood_shapes"
PROJECT_SHAPES_TABLE: Final = "cordwood_project_shapes"

_CODEC_BY_COLUMN: Final = {
    # With the codec ZSTD(1), an id that is a UUID takes 18 bytes instead of 36.
    "id": "CODEC(ZSTD(1))",
    "timestamp": "CODEC(Delta, ZSTD(1))",
    "ingested_at": "CODEC(Delta, ZSTD(1))",
    "event_message": "CODEC(ZSTD(1))",
    "metadata": "CODEC(ZSTD(3))",
    "extras": "CODEC(ZSTD(3))",
}


class TableStatementBuilder(msgspec.Struct, frozen=True):
    """Makes the statements that create and change the tables of a database.

    In a cluster, each table is a pair: a local table on each server, and a distributed table over the local ones.
    """

    cluster: str = ""
    has_ttl: bool = True

    def local_table_name(self, table: str) -> str:
        """Return the quoted name of the table that stores the rows on each server."""
        return quote_identifier(f"{table} local" if self.cluster else table)

    def schema_statements(self, streams: Sequence[Stream]) -> Iterator[str]:
        """Yield statements that create or update the tables of shapes and of the streams; all may be run repeatedly."""
        yield self._create_table_statement(SHAPES_TABLE, _SHAPE_COLUMNS, _SHAPES_ORDER_BY_CLAUSE, "ReplacingMergeTree")
        if self.cluster:
            yield self._create_distributed_statement(SHAPES_TABLE, "cityHash64(stream)")
        yield self._create_table_statement(
            PROJECT_SHAPES_TABLE, _PROJECT_SHAPE_COLUMNS, _PROJECT_SHAPES_ORDER_BY_CLAUSE, "ReplacingMergeTree"
        )
        if self.cluster:
            yield self._create_distributed_statement(PROJECT_SHAPES_TABLE, "cityHash64(stream, project)")
        for stream in streams:
            yield self._create_table_statement(
                stream.name, _event_column_and_index_definitions(), self._event_storage_clauses(stream), "MergeTree"
            )
            yield self._alter_codecs_statement(stream)
            if self.has_ttl:
                yield self._alter_ttl_statement(stream)
            if self.cluster:
                yield self._create_distributed_statement(stream.name, "cityHash64(id)")

    def delete_expired_statement(self, stream: str) -> str:
        return f"DELETE FROM {self.local_table_name(stream)}{self._on_cluster_clause} WHERE timestamp < {{before:DateTime64(6, 'UTC')}}"  # noqa: S608 - our own names

    def _create_table_statement(self, table: str, columns: Sequence[str], layout: str, engine: str) -> str:
        body = ",\n  ".join(columns)
        return (
            f"CREATE TABLE IF NOT EXISTS {self.local_table_name(table)}{self._on_cluster_clause}\n(\n  {body}\n)\n"
            f"ENGINE = {self._engine_clause(table, engine)}\n{layout}"
        )

    def _event_storage_clauses(self, stream: Stream) -> str:
        retention_seconds = stream.retention_seconds if self.has_ttl else None
        ttl = f"{_ttl_clause(retention_seconds)}\n" if retention_seconds is not None else ""
        window = "" if self.cluster else ", non_replicated_deduplication_window = 1000"
        return (
            "PARTITION BY toYYYYMMDD(timestamp)\nORDER BY (project, timestamp DESC)\n"
            f"{ttl}SETTINGS allow_nullable_key = 1, ttl_only_drop_parts = 1{window}"
        )

    def _engine_clause(self, table: str, engine: str) -> str:
        if not self.cluster:
            return engine
        replica_path = text_literal(f"/clickhouse/tables/{{shard}}/{{database}}/{table}")
        return f"Replicated{engine}({replica_path}, '{{replica}}')"

    def _alter_ttl_statement(self, stream: Stream) -> str:
        """Return the statement that sets the table's TTL to the stream's current retention.

        If the stream keeps its events forever, the TTL is a hundred years.
        """
        retention_seconds = stream.retention_seconds
        ttl = _ttl_clause(retention_seconds) if retention_seconds is not None else "TTL timestamp + toIntervalYear(100)"
        return f"ALTER TABLE {self.local_table_name(stream.name)}{self._on_cluster_clause} MODIFY {ttl}"

    def _alter_codecs_statement(self, stream: Stream) -> str:
        """Return the statement that sets the current codecs, for a table that an earlier version of cordwood created.

        The statement does not rewrite stored data.
        """
        columns = ", ".join(
            f"MODIFY COLUMN {name} {INSERTED_COLUMNS[name]} {_CODEC_BY_COLUMN[name]}"
            for name in _COLUMNS_WITH_CHANGED_CODEC
        )
        return f"ALTER TABLE {self.local_table_name(stream.name)}{self._on_cluster_clause} {columns}"

    def _create_distributed_statement(self, table: str, sharding_key: str) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {quote_identifier(table)}{self._on_cluster_clause} AS {self.local_table_name(table)}\n"
            f"ENGINE = Distributed({quote_identifier(self.cluster)}, currentDatabase(), {self.local_table_name(table)}, {sharding_key})"
        )

    @property
    def _on_cluster_clause(self) -> str:
        return f" ON CLUSTER {quote_identifier(self.cluster)}" if self.cluster else ""


_SHAPE_COLUMNS: Final = ("stream String", "path Array(String)", "kind LowCardinality(String)")
_SHAPES_ORDER_BY_CLAUSE: Final = "ORDER BY (stream, path, kind)"
_PROJECT_SHAPE_COLUMNS: Final = (
    "stream String",
    "project String",
    *_SHAPE_COLUMNS[1:],
    "seen_at DateTime64(6, 'UTC') DEFAULT now64(6)",
)
_PROJECT_SHAPES_ORDER_BY_CLAUSE: Final = "ORDER BY (stream, project, path, kind)"


# The columns for which earlier versions of cordwood used another codec. Once a table's codec is changed, the parts that
# the server writes or merges have the new codec.
_COLUMNS_WITH_CHANGED_CODEC: Final = ("id",)


# The indexes of a stream's table. With the index `by_time`, a query for the newest events skips blocks that are older
# than the events found so far.
_INDEX_DEFINITIONS: Final = (
    "INDEX by_id id TYPE bloom_filter(0.01) GRANULARITY 1",
    "INDEX by_time timestamp TYPE minmax GRANULARITY 1",
)


def _event_column_and_index_definitions() -> list[str]:
    stored = [f"{name} {kind} {_CODEC_BY_COLUMN.get(name, '')}".rstrip() for name, kind in INSERTED_COLUMNS.items()]
    paths = [
        f"{name} {_JSON_TYPE} MATERIALIZED ifNull(accurateCastOrNull({text}, '{_JSON_TYPE}'), CAST('{{}}', '{_JSON_TYPE}'))"
        for text, name in JSON_COLUMN_BY_TEXT_COLUMN.items()
    ]
    return [*stored, *paths, *_INDEX_DEFINITIONS]


def _ttl_clause(seconds: float) -> str:
    return f"TTL timestamp + toIntervalSecond({int(seconds)})"


def quote_identifier(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def text_literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def select_events_sql(stream: str) -> str:
    """Return the statement that reads a stream's stored events in a time range.

    If the parameter `project` of the statement is NULL, the statement reads the events of all projects.
    """
    return (
        f"SELECT {', '.join(column.name for column in STORED_EVENT_COLUMNS)} FROM {quote_identifier(stream)}"  # noqa: S608 - our own names
        " WHERE timestamp >= fromUnixTimestamp64Micro({since:Int64}, 'UTC')"
        " AND timestamp < fromUnixTimestamp64Micro({until:Int64}, 'UTC')"
        " AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})"
    )
