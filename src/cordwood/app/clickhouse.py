"""Open the ClickHouse engine. This module is imported only if needed: ClickHouse's client library is optional."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import uuid4

import msgspec

from cordwood.app.configuration import read_or_create_redaction_key, redaction_rules
from cordwood.engines.clickhouse.clickhouse_engine import ClickHouseEngine, ClickHouseOptions
from cordwood.engines.clickhouse.session import Session, client_arguments
from cordwood.engines.clickhouse.tables import TableStatementBuilder
from cordwood.engines.engine import Engine
from cordwood.errors import BadSetting
from cordwood.folder import DataFolder
from cordwood.model.definitions import Stream
from cordwood.model.redaction import RedactionConfig
from cordwood.observe.observation import RecordObservation, ReportOperatorMessage
from cordwood.settings.settings import ClickHouseSettings, Settings


def open_clickhouse(
    settings: Settings, folder: DataFolder, report: ReportOperatorMessage, note: RecordObservation
) -> Engine:
    if settings.limits.store_size is not None:
        hint = "Give streams a `retention`, which ClickHouse keeps to as well."
        raise BadSetting("limits.store_size is for the engine inside the process.", hint=hint)
    clickhouse = settings.clickhouse
    options = ClickHouseOptions(
        cluster=clickhouse.cluster,
        async_inserts=clickhouse.async_inserts,
        max_query_memory_bytes=clickhouse.query_memory,
        pending_folder=folder.path / "pending",
        max_pending_bytes=clickhouse.pending_size,
        response_timeout_seconds=max(60.0, settings.limits.query_time + 10),
        redaction=RedactionConfig(redaction_rules(settings), read_or_create_redaction_key(settings, folder)),
        report_message=report,
        record_observation=note,
    )
    return ClickHouseEngine(settings.engine, options)


def ddl_statements(settings: Settings, streams: Sequence[Stream]) -> list[str]:
    """Check the engine's address, and return the DDL statements that create the tables of the streams."""
    client_arguments(settings.engine)
    return list(TableStatementBuilder(settings.clickhouse.cluster).schema_statements(streams))


def run_ddl_statements(settings: Settings, streams: Sequence[Stream]) -> None:
    """Create the tables of the streams in the configured ClickHouse database."""
    engine = ClickHouseEngine(settings.engine, ClickHouseOptions(cluster=settings.clickhouse.cluster))
    try:
        engine.create_stream_tables(streams)
    finally:
        engine.close()


@contextmanager
def chdb_address_in_temporary_folder(address: str) -> Iterator[str]:
    """Replace the address `chdb://` by a chdb database in a temporary folder; yield any other address unchanged."""
    if address != "chdb://":
        yield address
        return
    with TemporaryDirectory(prefix="cordwood-test-", ignore_cleanup_errors=True) as folder:
        yield f"chdb://{folder}"


@contextmanager
def settings_with_temporary_database(settings: Settings) -> Iterator[Settings]:
    """Yield the settings with the address of a new database on the configured server; drop the database at the end."""
    name = f"cordwood_test_{uuid4().hex[:12]}"
    session = Session(settings.engine)
    try:
        session.execute(f"CREATE DATABASE {name}")
        try:
            address = _address_with_database(settings.engine, name)
            yield msgspec.structs.replace(settings, engine=address, clickhouse=ClickHouseSettings())
        finally:
            session.execute(f"DROP DATABASE {name}")
    finally:
        session.close()


def _address_with_database(address: str, database: str) -> str:
    """Return the address with the given database: in the path for a server, in the URL's query string for chdb."""
    parts = urlsplit(address)
    if parts.scheme != "chdb":
        return urlunsplit(parts._replace(path=f"/{database}"))
    query = dict(parse_qsl(parts.query)) | {"database": database}
    # `urlunsplit` would drop the two slashes if the address has no host.
    return f"chdb://{parts.netloc}{parts.path}?{urlencode(query)}"
