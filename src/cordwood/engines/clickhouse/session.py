"""Connections to ClickHouse: the parsing of addresses, and a pool of clients.

Each query has settings, such as its limits, and may have a mark: a text that identifies the query when it is cancelled
or when its progress is read.
"""

import logging
import re
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import clickhouse_connect
import msgspec
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from cordwood.engines.clickhouse.faults import translate_clickhouse_errors
from cordwood.engines.engine import QueryProgress
from cordwood.errors import BadQueryValue, BadSetting, DataFolderUnusable

NamedValues = Mapping[str, object]

# The setting that holds a query's mark. A query id cannot serve as the mark, because the in-process engine does not
# support query ids.
QUERY_TAG_SETTING: Final = "log_comment"

# Keep the client's libraries from printing log lines, because cordwood reports their failures as faults.
for _library in ("clickhouse_connect", "urllib3"):
    logging.getLogger(_library).addHandler(logging.NullHandler())  # noqa: TID251 - it silences the loggers of the client libraries

_KILL_QUERY_SQL: Final = "KILL QUERY WHERE Settings[{name:String}] = {mark:String} ASYNC"
# The beginning of a placeholder for a bound value, which ends with the next closing brace.
_PLACEHOLDER_START_PATTERN: Final = re.compile(r"\{\w+:[^}]", re.ASCII)
# The maximum size of a bound value: the default of a server's setting `http_max_field_value_size`.
_MAX_BOUND_VALUE_BYTES: Final = 128 << 10
# The maximum number of attempts to cancel a query, and the seconds between two attempts. One attempt may not be enough,
# because the query may not have begun yet.
_STOP_ATTEMPTS, _STOP_SECONDS = 40, 0.25

# Progress that was read longer ago than this is read again when a caller asks for it.
_MAX_PROGRESS_AGE_SECONDS: Final = 0.4
_PROGRESS_QUERY_SETTINGS: Final = {"max_execution_time": 2, "log_queries": 0}
_SELECT_PROGRESS_SQL: Final = (
    "SELECT Settings[{name:String}], read_rows, total_rows_approx FROM system.processes"
    " WHERE has({marks:Array(String)}, Settings[{name:String}])"
)

# The formats in which the client returns values: a DateTime64 as the number of microseconds, and a JSON value as a
# text.
_READ_FORMAT_BY_COLUMN_TYPE: Final = {"DateTime64": "int", "JSON": "string"}
_BYTES_COLUMN_FORMAT_BY_TYPE: Final = {"String": "bytes"}


def _has_placeholder(sql: str) -> bool:
    """Return whether the SQL has a placeholder, such as `{name:String}`.

    Every text that the client takes for a placeholder must count. Otherwise, values that the client would bind would
    not be passed to it. Only the beginnings of placeholders are searched for, because the SQL may contain a text with
    many beginnings and no end.
    """
    end = sql.rfind("}")
    return end >= 0 and _PLACEHOLDER_START_PATTERN.search(sql, 0, end) is not None


class BoundQuery(msgspec.Struct, frozen=True):
    """A query with its values and settings; the text columns named in `bytes_columns` are returned as bytes."""

    sql: str
    parameter_values: NamedValues
    settings: NamedValues
    query_tag: str = ""
    bytes_columns: tuple[str, ...] = ()

    @property
    def bound_values(self) -> NamedValues:
        """Return the values to bind; return no values if the SQL has no placeholder.

        If the client received values for SQL without placeholders, it would interpret percent signs in the SQL as
        placeholders.
        """
        return self.parameter_values if _has_placeholder(self.sql) else {}

    @property
    def time_limit_seconds(self) -> object:
        """Return the query's time limit in seconds, or None if it has no time limit."""
        return self.settings.get("max_execution_time")


class SelectResult(msgspec.Struct, frozen=True):
    """The answer to a query: column names, column types as objects of the client, and rows in blocks as they arrive."""

    column_names: Sequence[str]
    column_types: Sequence[Any]
    row_blocks: Iterator[Sequence[Sequence[object]]]


class Session:
    """A pool of clients. Only one thread at a time uses a client, because the in-process engine requires this."""

    def __init__(self, address: str, *, response_timeout_seconds: float = 60.0) -> None:
        self._client_arguments = client_arguments(address)
        self._is_in_process = is_in_process_address(address)
        self._in_process_engine_folder = _in_process_engine_folder(address)
        self._response_timeout_seconds = response_timeout_seconds
        self._idle_clients: list[Client] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def is_in_process(self) -> bool:
        """Return whether the engine runs inside this process."""
        return self._is_in_process

    @contextmanager
    def select(self, query: BoundQuery) -> Iterator[SelectResult]:
        """Run a query, and give its answer to the `with` block; if the block is left early, the query is cancelled."""
        if not self.is_in_process:
            _check_value_sizes(query.parameter_values)
        settings = dict(query.settings) | ({QUERY_TAG_SETTING: query.query_tag} if query.query_tag else {})
        with self._borrow_client() as client, translate_clickhouse_errors(query.time_limit_seconds):
            stream = client.query_row_block_stream(
                query.sql,
                parameters=dict(query.bound_values),
                settings=settings,
                query_formats=_READ_FORMAT_BY_COLUMN_TYPE,
                column_formats=dict.fromkeys(query.bytes_columns, _BYTES_COLUMN_FORMAT_BY_TYPE),
            )
            with stream:
                source: Any = stream.source
                yield SelectResult(
                    source.column_names, source.column_types, _translate_block_faults(stream, query.time_limit_seconds)
                )

    def fetch_rows(
        self, sql: str, values: NamedValues | None = None, settings: NamedValues | None = None
    ) -> list[Sequence[object]]:
        """Run a query whose answer is small, and return all its rows as a list."""
        with self.select(BoundQuery(sql, values or {}, settings or {})) as selected:
            return [row for block in selected.row_blocks for row in block]

    def execute(self, sql: str, values: NamedValues | None = None) -> None:
        with self._borrow_client() as client, translate_clickhouse_errors():
            client.command(sql, parameters=dict(values or {}))

    def insert(
        self, table: str, columns: Mapping[str, Sequence[object]], kinds: Sequence[str], settings: NamedValues
    ) -> None:
        """Insert the columns as one block, which is stored as a whole or not at all."""
        with self._borrow_client() as client, translate_clickhouse_errors():
            client.insert(
                table,
                list(columns.values()),
                column_names=list(columns),
                column_type_names=list(kinds),
                column_oriented=True,
                settings=dict(settings),
            )

    def cancel_query(self, mark: str, finished: threading.Event) -> None:
        """Cancel the query with this mark in the background, even if it has not begun yet.

        Attempts are repeated for a limited time, until one succeeds or `finished` is set.
        """
        threading.Thread(target=self._cancel_until_finished, args=(mark, finished), name="stop", daemon=True).start()

    def _cancel_until_finished(self, mark: str, finished: threading.Event) -> None:
        for _ in range(_STOP_ATTEMPTS):
            if finished.is_set() or self._kill_query(mark):
                return
            finished.wait(_STOP_SECONDS)

    def _kill_query(self, mark: str) -> bool:
        """Cancel the query with this mark; return whether the server cancelled it, or False after a failure."""
        with suppress(Exception), self._borrow_client() as client:
            rows = client.query(_KILL_QUERY_SQL, {"name": QUERY_TAG_SETTING, "mark": mark}).result_rows
            # The answer has a row for each cancelled query, whose first value is a text. If no query was cancelled, the
            # client makes up a row of its own counters.
            return any(isinstance(row[0], str) and row[0] for row in rows if row)
        return False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle_clients = self._idle_clients, []
        for client in idle:
            client.close()

    @contextmanager
    def _borrow_client(self) -> Iterator[Client]:
        client = self._take_client()
        try:
            yield client
        except BaseException as problem:
            self._return_client(client, is_usable=self._is_usable_after_failure(client, problem))
            raise
        self._return_client(client, is_usable=True)

    def _take_client(self) -> Client:
        with self._lock:
            if self._idle_clients:
                return self._idle_clients.pop()
        with translate_clickhouse_errors():
            return self._connect()

    def _connect(self) -> Client:
        if self.is_in_process:
            _create_folder(self._in_process_engine_folder)
            return clickhouse_connect.get_client(**self._client_arguments)
        return clickhouse_connect.get_client(
            **self._client_arguments,
            send_receive_timeout=int(self._response_timeout_seconds),
            connect_timeout=5,
            query_retries=0,
            autogenerate_session_id=False,
        )

    def _is_usable_after_failure(self, client: Client, problem: BaseException) -> bool:
        """Return whether the client can be used again after a failure."""
        if not self.is_in_process:
            return getattr(problem.__cause__, "code", None) is not None
        # After a failure, the in-process engine's next answer begins with the partial output of the failed query. The
        # answer to this query is ignored, and takes that output with it.
        with suppress(ClickHouseError):
            client.query("SELECT 1")
        return True

    def _return_client(self, client: Client, *, is_usable: bool) -> None:
        with self._lock:
            if is_usable and not self._is_closed:
                self._idle_clients.append(client)
                return
        client.close()


def _check_value_sizes(values: NamedValues) -> None:
    """Refuse values that are too long for the server; the server's own message would not name the parameter."""
    for name, value in values.items():
        if isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) > _MAX_BOUND_VALUE_BYTES:
            raise BadQueryValue(f"The value of @{name} is longer than the 128 KiB that ClickHouse takes.")


def _create_folder(folder: Path | None) -> None:
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise DataFolderUnusable(
            f"ClickHouse's folder {folder} cannot be made: {problem.strerror}.",
            hint="Choose another in the setting `engine`: chdb:///path/to/folder",
        ) from problem


def _translate_block_faults(
    stream: Iterator[Sequence[Sequence[object]]], seconds: object
) -> Iterator[Sequence[Sequence[object]]]:
    """Yield the blocks of an answer, and translate the client's exceptions into faults."""
    while True:
        with translate_clickhouse_errors(seconds):
            block = next(stream, None)
        if block is None:
            return
        yield block


class QueryProgressReader:
    """Reads how far running queries are, by the marks of the queries.

    The progress is read from the server only when a caller asks for it. A background thread reads it, by one request
    for all queries that were asked for.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._requested_query_tags: set[str] = set()
        self._progress_by_query_tag: Mapping[str, QueryProgress] = {}
        self._is_reading = False
        self._progress_read_at = 0.0

    def progress_of(self, mark: str) -> QueryProgress | None:
        """Return the query's progress that was read last; if it is too old, start a thread that reads it again."""
        with self._lock:
            self._requested_query_tags.add(mark)
            is_due = not self._is_reading and time.monotonic() > self._progress_read_at + _MAX_PROGRESS_AGE_SECONDS
            self._is_reading = self._is_reading or is_due
        if is_due:
            threading.Thread(target=self._read_progress, name="progress", daemon=True).start()
        return self._progress_by_query_tag.get(mark)

    def _read_progress(self) -> None:
        with self._lock:
            marks, self._requested_query_tags = sorted(self._requested_query_tags), set()
        found: dict[str, QueryProgress] = {}
        # If the server cannot be reached, or hides its processes from this user, no progress is known.
        with suppress(Exception):
            values = {"name": QUERY_TAG_SETTING, "marks": marks}
            for mark, rows_read, rows_total in self._session.fetch_rows(
                _SELECT_PROGRESS_SQL, values, _PROGRESS_QUERY_SETTINGS
            ):
                found[str(mark)] = _make_progress(int(str(rows_read)), int(str(rows_total)))
        with self._lock:
            self._progress_by_query_tag, self._is_reading, self._progress_read_at = found, False, time.monotonic()


def _make_progress(rows_read: int, rows_total: int) -> QueryProgress:
    """Return the progress of a query from its numbers of rows.

    The server only estimates the total, and reports 0 until the query is planned. `part` (the share of the work that is
    done) is not set, because it is not the share of rows read. A row may be read long before it is joined or sorted.
    """
    return QueryProgress(rows_read=rows_read, rows_total=max(rows_read, rows_total) if rows_total else None)


ADDRESS_SCHEMES: Final = ("clickhouse", "clickhouses", "chdb")
# The options that the address of a server may have in addition to `secure`. They are passed on as parameters of the
# client, which have the same names.
_TLS_ADDRESS_OPTIONS: Final = frozenset({"verify", "ca_cert", "client_cert", "client_cert_key", "server_host_name"})
_ADDRESS_OPTIONS: Final = _TLS_ADDRESS_OPTIONS | {"compress"}
_TLS_FILE_OPTIONS: Final = ("ca_cert", "client_cert", "client_cert_key")
# In the options for files of TLS, this value stands for the certificate authorities that are shipped with the client.
_BUNDLED_CA_VALUE: Final = "certifi"
_TRUE_TEXTS: Final = frozenset({"1", "true", "yes", "on"})
_FALSE_TEXTS: Final = frozenset({"0", "false", "no", "off"})
# The ports on which TLS is used if the address has no option `secure`.
_DEFAULT_TLS_PORTS: Final = frozenset({"443", "8443"})
# The limits, in bytes, of the in-process engine's caches. Without limits, the caches would hold the marks and the
# sorting keys of every part of a table that was read, and might grow to gigabytes with the stored events.
_IN_PROCESS_CACHE_SETTINGS: Final = {
    "mark_cache_size": 64 << 20,
    "index_mark_cache_size": 16 << 20,
    "primary_index_cache_size": 32 << 20,
    "query_condition_cache_size": 16 << 20,
    "compiled_expression_cache_size": 16 << 20,
}


def is_in_process_address(address: str) -> bool:
    """Return whether the engine runs inside this process."""
    return address.startswith("chdb://")


def client_arguments(address: str) -> Mapping[str, Any]:
    """Return the client's arguments for an address; raise BadSetting if the address is invalid."""
    if address.partition("://")[0] not in ADDRESS_SCHEMES:
        raise BadSetting("engine: a ClickHouse address begins with clickhouse:// or chdb://.")
    return (
        _in_process_client_arguments(address) if is_in_process_address(address) else _server_client_arguments(address)
    )


def _in_process_engine_folder(address: str) -> Path | None:
    """Return the folder of the in-process engine; None if the engine is in memory, or if the address is a server's."""
    path = unquote(urlsplit(address).path)
    return Path(path) if is_in_process_address(address) and path else None


def _in_process_client_arguments(address: str) -> Mapping[str, Any]:
    parts = urlsplit(address)
    if parts.netloc not in ("", "memory"):
        raise BadSetting(
            "engine: chdb:// is followed by an absolute path.", hint="Write three slashes: chdb:///path/to/folder"
        )
    options = dict(parse_qsl(parts.query))
    for name in sorted(options.keys() - {"database"}):
        raise BadSetting(f"engine: {name!r} is not an option of chdb:// addresses.", hint="There is: database.")
    return {
        "dsn": address.partition("?")[0],
        "database": options.get("database"),
        "chdb_options": dict(_IN_PROCESS_CACHE_SETTINGS),
    }


def _server_client_arguments(address: str) -> Mapping[str, Any]:
    parts = urlsplit(address)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    is_tls = _uses_tls(parts, options.pop("secure", None), _port_of(parts.netloc.rpartition("@")[2]))
    _check_address_options(options, is_tls=is_tls)
    dsn = urlunsplit(parts._replace(scheme="clickhouse", query=urlencode(options)))
    return {"dsn": dsn, "interface": "https" if is_tls else "http"}


def _uses_tls(parts: SplitResult, secure: str | None, port: str) -> bool:
    if parts.scheme == "clickhouses":
        return True
    return port in _DEFAULT_TLS_PORTS if secure is None else _read_boolean("secure", secure)


def _read_boolean(name: str, text: str) -> bool:
    if text.lower() not in _TRUE_TEXTS | _FALSE_TEXTS:
        raise BadSetting(f"engine: {name} is 1 or 0, not {text!r}.")
    return text.lower() in _TRUE_TEXTS


def _port_of(host: str) -> str:
    port = host.rpartition("]")[2].rpartition(":")[2] if ":" in host.rpartition("]")[2] else ""
    if port and not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise BadSetting(
            f"engine: {port!r} is not a port.", hint="Write: clickhouse://user:password@host:8443/db?secure=1"
        )
    return port


def _check_address_options(options: Mapping[str, str], *, is_tls: bool) -> None:
    for name in sorted(options.keys() - _ADDRESS_OPTIONS):
        known = ", ".join(sorted(_ADDRESS_OPTIONS | {"secure"}))
        raise BadSetting(f"engine: {name!r} is not an option of ClickHouse addresses.", hint=f"There are: {known}.")
    for name in sorted(options.keys() & _TLS_ADDRESS_OPTIONS):
        if not is_tls:
            raise BadSetting(f"engine: {name!r} is for TLS, which the address does not ask for.", hint="Add secure=1.")
    _read_boolean("verify", options.get("verify", "1"))
    for name in _TLS_FILE_OPTIONS:
        _check_tls_file(name, options.get(name, _BUNDLED_CA_VALUE))


def _check_tls_file(name: str, file: str) -> None:
    """Check that a file for TLS exists, and that a file of certificate authorities can be parsed."""
    if file == _BUNDLED_CA_VALUE:
        return
    if not Path(file).is_file():
        raise BadSetting(f"engine: {name}: there is no file {file}.")
    try:
        if name == "ca_cert":
            ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as problem:
        raise BadSetting(f"engine: {name}: {file} has no readable certificate in PEM format.") from problem
