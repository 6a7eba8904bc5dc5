"""Opens the ClickHouse engine; loaded only when the settings ask for it, for its client is an extra."""

from collections.abc import Sequence

from cordwood.app.redaction import redaction_key, redaction_rules
from cordwood.engines.clickhouse.clickhouse_engine import ClickHouse, Options
from cordwood.engines.clickhouse.tables import Tables
from cordwood.engines.engine import Engine
from cordwood.folder import DataFolder
from cordwood.model.redaction import Redacting
from cordwood.model.stream import Stream
from cordwood.settings.settings import Settings


def open_clickhouse(settings: Settings, folder: DataFolder) -> Engine:
    chosen = settings.clickhouse
    options = Options(
        cluster=chosen.cluster,
        async_inserts=chosen.async_inserts,
        memory_bytes=chosen.query_memory,
        pending_folder=folder.path / "pending",
        pending_bytes=chosen.pending_size,
        patience_seconds=max(60.0, settings.limits.query_time + 10),
        redacting=Redacting(redaction_rules(settings), redaction_key(settings, folder)),
    )
    return ClickHouse(settings.engine, options)


def statements(settings: Settings, streams: Sequence[Stream]) -> list[str]:
    """The DDL that the settings and streams come to."""
    return list(Tables(settings.clickhouse.cluster).create_all(streams))


def prepare(settings: Settings, streams: Sequence[Stream]) -> None:
    """Run that DDL."""
    engine = ClickHouse(settings.engine, Options(cluster=settings.clickhouse.cluster))
    try:
        engine.prepare(streams)
    finally:
        engine.close()
