"""The tables of streams and shapes, and the statements that create them, on one server or on a cluster."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from cordwood.engines.engine import STORED_COLUMNS
from cordwood.model.definitions import Stream

# The columns that are inserted; `metadata` and `extras` are the JSON text that was sent.
INSERTED: Final = {
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

# The column with the paths of an event's objects; and the JSON columns in which the JSON texts are also stored, to read
# one path without the rest. Answers use the texts: the JSON type loses nulls, empty objects and the order of keys, and
# treats a dot in a key like a nested path.
OBJECT_PATHS: Final = "object_paths"
PATHS: Final = {"metadata": "metadata_paths", "extras": "extras_paths"}
_JSON: Final = "JSON(max_dynamic_paths = 256)"

SHAPES: Final = "cordwood_shapes"
PROJECT_SHAPES: Final = "cordwood_project_shapes"

_CODECS: Final = {
    # With this codec, an id that is a UUID takes 18 bytes instead of 36.
    "id": "CODEC(ZSTD(1))",
    "timestamp": "CODEC(Delta, ZSTD(1))",
    "ingested_at": "CODEC(Delta, ZSTD(1))",
    "event_message": "CODEC(ZSTD(1))",
    "metadata": "CODEC(ZSTD(3))",
    "extras": "CODEC(ZSTD(3))",
}


class Tables(msgspec.Struct, frozen=True):
    """Makes the statements that create and change the tables of a database.

    In a cluster, each table is a pair: a local table on each server, and a distributed table over the local ones.
    """

    cluster: str = ""
    with_ttl: bool = True

    def local(self, table: str) -> str:
        """Return the name of the table that holds the rows on each server."""
        return quoted(f"{table} local" if self.cluster else table)

    def create_all(self, streams: Sequence[Stream]) -> Iterator[str]:
        """Yield every statement that creates the tables of the streams; each is idempotent."""
        yield self._create(SHAPES, _SHAPE_COLUMNS, _SHAPE_LAYOUT, "ReplacingMergeTree")
        if self.cluster:
            yield self._create_distributed(SHAPES, "cityHash64(stream)")
        yield self._create(PROJECT_SHAPES, _PROJECT_SHAPE_COLUMNS, _PROJECT_SHAPE_LAYOUT, "ReplacingMergeTree")
        if self.cluster:
            yield self._create_distributed(PROJECT_SHAPES, "cityHash64(stream, project)")
        for stream in streams:
            yield self._create(stream.name, _event_columns(), self._event_layout(stream), "MergeTree")
            yield self._alter_codecs(stream)
            if self.with_ttl:
                yield self._alter_ttl(stream)
            if self.cluster:
                yield self._create_distributed(stream.name, "cityHash64(id)")

    def delete_before(self, stream: str) -> str:
        return f"DELETE FROM {self.local(stream)}{self._on_cluster} WHERE timestamp < {{before:DateTime64(6, 'UTC')}}"  # noqa: S608 - our own names

    def _create(self, table: str, columns: Sequence[str], layout: str, engine: str) -> str:
        body = ",\n  ".join(columns)
        return (
            f"CREATE TABLE IF NOT EXISTS {self.local(table)}{self._on_cluster}\n(\n  {body}\n)\n"
            f"ENGINE = {self._engine(table, engine)}\n{layout}"
        )

    def _event_layout(self, stream: Stream) -> str:
        retention_seconds = stream.retention_seconds if self.with_ttl else None
        ttl = f"{_ttl(retention_seconds)}\n" if retention_seconds is not None else ""
        window = "" if self.cluster else ", non_replicated_deduplication_window = 1000"
        return (
            "PARTITION BY toYYYYMMDD(timestamp)\nORDER BY (project, timestamp DESC)\n"
            f"{ttl}SETTINGS allow_nullable_key = 1, ttl_only_drop_parts = 1{window}"
        )

    def _engine(self, table: str, engine: str) -> str:
        if not self.cluster:
            return engine
        replica_path = literal(f"/clickhouse/tables/{{shard}}/{{database}}/{table}")
        return f"Replicated{engine}({replica_path}, '{{replica}}')"

    def _alter_ttl(self, stream: Stream) -> str:
        """Return the statement that applies a changed retention; a removed one becomes a TTL of a hundred years."""
        retention_seconds = stream.retention_seconds
        ttl = _ttl(retention_seconds) if retention_seconds is not None else "TTL timestamp + toIntervalYear(100)"
        return f"ALTER TABLE {self.local(stream.name)}{self._on_cluster} MODIFY {ttl}"

    def _alter_codecs(self, stream: Stream) -> str:
        """Return the statement that gives tables of earlier versions the codecs of this one; it rewrites no data."""
        columns = ", ".join(f"MODIFY COLUMN {name} {INSERTED[name]} {_CODECS[name]}" for name in _CHANGED_CODECS)
        return f"ALTER TABLE {self.local(stream.name)}{self._on_cluster} {columns}"

    def _create_distributed(self, table: str, sharding_key: str) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {quoted(table)}{self._on_cluster} AS {self.local(table)}\n"
            f"ENGINE = Distributed({quoted(self.cluster)}, currentDatabase(), {self.local(table)}, {sharding_key})"
        )

    @property
    def _on_cluster(self) -> str:
        return f" ON CLUSTER {quoted(self.cluster)}" if self.cluster else ""


_SHAPE_COLUMNS: Final = ("stream String", "path Array(String)", "kind LowCardinality(String)")
_SHAPE_LAYOUT: Final = "ORDER BY (stream, path, kind)"
_PROJECT_SHAPE_COLUMNS: Final = (
    "stream String",
    "project String",
    *_SHAPE_COLUMNS[1:],
    "seen_at DateTime64(6, 'UTC') DEFAULT now64(6)",
)
_PROJECT_SHAPE_LAYOUT: Final = "ORDER BY (stream, project, path, kind)"


# Columns whose codec was changed after tables were created with another: new parts and merges use the new one.
_CHANGED_CODECS: Final = ("id",)


# The second index lets a query for the newest events skip blocks that are older than the events found so far.
_INDEXES: Final = (
    "INDEX by_id id TYPE bloom_filter(0.01) GRANULARITY 1",
    "INDEX by_time timestamp TYPE minmax GRANULARITY 1",
)


def _event_columns() -> list[str]:
    stored = [f"{name} {kind} {_CODECS.get(name, '')}".rstrip() for name, kind in INSERTED.items()]
    paths = [
        f"{name} {_JSON} MATERIALIZED ifNull(accurateCastOrNull({text}, '{_JSON}'), CAST('{{}}', '{_JSON}'))"
        for text, name in PATHS.items()
    ]
    return [*stored, *paths, *_INDEXES]


def _ttl(seconds: float) -> str:
    return f"TTL timestamp + toIntervalSecond({int(seconds)})"


def quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def select_events(stream: str) -> str:
    """Return the statement that reads a stream's stored events."""
    return (
        f"SELECT {', '.join(column.name for column in STORED_COLUMNS)} FROM {quoted(stream)}"  # noqa: S608 - our own names
        " WHERE timestamp >= fromUnixTimestamp64Micro({since:Int64}, 'UTC')"
        " AND timestamp < fromUnixTimestamp64Micro({until:Int64}, 'UTC')"
        " AND ({project:Nullable(String)} IS NULL OR project = {project:Nullable(String)})"
    )
