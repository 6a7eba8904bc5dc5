"""Every setting: section, type, default, bounds and description. The reference page is generated from this file.

The default of the memory ceiling depends on the memory that this process may use: that of the machine, or less if a
cgroup sets a limit.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_MIN_MEMORY_CEILING_BYTES = 256 * 10**6


def read_allowed_memory_bytes(root: Path = Path("/"), pid: int | None = None) -> int | None:
    """Return how many bytes of memory the process `pid` may use, or None if this is unknown.

    If `pid` is None, return this number for the current process.
    """
    limits = (_read_number(file) for file in _cgroup_memory_limit_files(root, root / f"proc/{pid or 'self'}/cgroup"))
    found = [limit for limit in (_read_machine_memory_bytes(root), *limits) if limit is not None]
    return min(found, default=None)


def default_memory_ceiling_bytes(allowed: int | None) -> int:
    """Return a quarter of `allowed`, but at least `_MIN_MEMORY_CEILING_BYTES`.

    `allowed` is the memory in bytes that this process may use; None means that it is unknown.

    The result is a whole number of megabytes.
    """
    return max(_MIN_MEMORY_CEILING_BYTES, (allowed or 0) // 4 // 10**6 * 10**6)


def _read_machine_memory_bytes(root: Path) -> int | None:
    lines = (line.split() for line in _read_text(root / "proc/meminfo").splitlines())
    return next((int(words[1]) * 1024 for words in lines if words[0] == "MemTotal:"), None)


def _cgroup_memory_limit_files(root: Path, groups: Path) -> Iterator[Path]:
    """Yield the files with the memory limits of a process's cgroup and of all ancestors of the cgroup.

    The files of the root come first, because inside a container the root is the container's own cgroup.
    """
    mounts = root / "sys/fs/cgroup"
    yield mounts / "memory.max"
    yield mounts / "memory/memory.limit_in_bytes"
    for line in _read_text(groups).splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        for part in _cgroup_and_ancestors(group):
            if not controllers:
                yield mounts / part / "memory.max"
            elif "memory" in controllers.split(","):
                yield mounts / "memory" / part / "memory.limit_in_bytes"


def _cgroup_and_ancestors(group: str) -> Iterator[PurePosixPath]:
    own = PurePosixPath(group.lstrip("/"))
    yield from (part for part in (own, *own.parents) if part.parts and ".." not in part.parts)


def _read_number(file: Path) -> int | None:
    text = _read_text(file).strip()
    return int(text) if text.isdecimal() else None


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


# Marks that tell the module `load` how to parse the value of a setting, and which values are secrets or paths.
SIZE_METADATA = {"unit": "size"}
DURATION_METADATA = {"unit": "duration"}
RATE_METADATA = {"unit": "rate"}
SECRET_METADATA = {"secret": True}
PATH_METADATA = {"path": True}
# Marks of settings that are a list or a table in a settings file, but a single text in the environment and in flags.
LIST_METADATA = {"form": "list"}
TABLE_METADATA = {"form": "table"}


class SettingsSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section of the settings."""


class WebSettings(SettingsSection, frozen=True):
    """HTTP: where the service listens, and limits on connections."""

    host: Annotated[str, Meta(description="The address to listen on: a name, an IPv4 or an IPv6 address.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(description="The port to listen on; 0 lets the system choose.", ge=0, le=65535)] = 4000
    connections: Annotated[
        int,
        Meta(
            description="The maximum number of connections open at once; 0 derives it from limits.memory, at most 10000."
            " When it is reached, an idle connection is closed for each new one.",
            ge=0,
        ),
    ] = 0
    drain_time: Annotated[
        float,
        Meta(
            description="How long running requests may take to finish after a signal to stop.",
            ge=0,
            extra=DURATION_METADATA,
        ),
    ] = 25.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The lowest severity that is logged.")
    ] = "info"


class ServeSettings(SettingsSection, frozen=True):
    """What is served, and from where."""

    data_dir: Annotated[
        str, Meta(description="The folder of events and keys; one process at a time may use it.", extra=PATH_METADATA)
    ] = "./cordwood-data"
    endpoints: Annotated[
        str,
        Meta(
            description="A folder of your own endpoint files, in addition to the endpoints that ship; empty means none.",
            extra=PATH_METADATA,
        ),
    ] = ""
    streams: Annotated[
        str,
        Meta(
            description="Your own streams file, in addition to the nine streams that ship; empty means none.",
            extra=PATH_METADATA,
        ),
    ] = ""
    cache_memory: Annotated[int, Meta(description="The memory of the answer cache.", ge=0, extra=SIZE_METADATA)] = (
        64 * 2**20
    )


class IngestSettings(SettingsSection, frozen=True):
    """Limits and options of ingestion."""

    body_size: Annotated[
        int,
        Meta(description="The largest body of events as sent; a larger one gets 413.", ge=1024, extra=SIZE_METADATA),
    ] = 16 * 2**20
    inflated_size: Annotated[
        int,
        Meta(
            description="The largest body of events after decompression; a larger one gets 413.",
            ge=1024,
            extra=SIZE_METADATA,
        ),
    ] = 128 * 2**20
    event_size: Annotated[
        int, Meta(description="The largest single event; a larger one is quarantined.", ge=1024, extra=SIZE_METADATA)
    ] = 2**20
    stream_rate: Annotated[
        float | None,
        Meta(
            description="The maximum number of events a second of each stream without a `rate` of its own; senders of more get 429.",
            extra=RATE_METADATA,
        ),
    ] = None
    new_streams: Annotated[
        int,
        Meta(
            description="The number of streams in the data folder's `streams.toml` up to which events for an unknown stream"
            " create the stream; with 0 such events get 404.",
            ge=0,
            le=10_000,
        ),
    ] = 0
    stream_map: Annotated[
        str,
        Meta(
            description="The streams of events whose senders name no stream, but send labels (an index, a service, a tag):"
            " entries `pattern=stream`, of which the first that matches a label applies; `*` stands for any text."
            " Without a match, the stream is the one whose name is a label.",
            extra=LIST_METADATA,
        ),
    ] = ""
    default_stream: Annotated[
        str,
        Meta(
            description="The stream of events for which neither `stream_map` nor a label gives a stream,"
            " and of OTLP requests that name none; empty: such events are refused."
        ),
    ] = ""
    vercel_verify: Annotated[
        str,
        Meta(
            description="The value of the header `x-vercel-verify` that `/logs/vercel` returns; Vercel shows this value for a log drain."
        ),
    ] = ""
    vercel_secret: Annotated[
        str,
        Meta(
            description="The secret of a Vercel log drain: if set, a body without a valid `x-vercel-signature` gets 403.",
            extra=SECRET_METADATA,
        ),
    ] = ""
    github_secret: Annotated[
        str,
        Meta(
            description="The secret of GitHub webhooks: if set, a body without a valid `x-hub-signature-256` gets 403.",
            extra=SECRET_METADATA,
        ),
    ] = ""
    queue_size: Annotated[
        int,
        Meta(
            description="The decompressed size of all events that are being decoded or wait to be written at once; senders of more get 429.",
            ge=2**20,
            extra=SIZE_METADATA,
        ),
    ] = 64 * 2**20


class ListenSettings(SettingsSection, frozen=True):
    """Listeners beside HTTP, all of them off by default.

    OTLP over gRPC requires a key. To the other addresses, anyone who can reach them may send events.
    """

    otlp_grpc: Annotated[
        str,
        Meta(
            description="The addresses for OTLP over gRPC: `tcp://127.0.0.1:4317` or `tls://…`. Needs the extra `cordwood[grpc]`.",
            extra=LIST_METADATA,
        ),
    ] = ""

    syslog: Annotated[
        str,
        Meta(
            description="The addresses for syslog (RFC 5424 and 3164): `tcp://127.0.0.1:6514`, `tls://…` or `udp://…`.",
            extra=LIST_METADATA,
        ),
    ] = ""
    syslog_stream: Annotated[
        str,
        Meta(
            description="The stream of all syslog messages. Empty: `ingest.stream_map` applies to the name of the app,"
            " and `ingest.default_stream`, which must be set then, to all others."
        ),
    ] = ""
    syslog_key: Annotated[
        str,
        Meta(
            description="The key whose scopes, pins and rate apply to syslog messages."
            " Empty: they may go to any stream, and no pin or rate applies.",
            extra=SECRET_METADATA,
        ),
    ] = ""
    fluent: Annotated[
        str,
        Meta(
            description="The addresses for Fluentd and Fluent Bit (Forward protocol): `tcp://127.0.0.1:24224` or `tls://…`.",
            extra=LIST_METADATA,
        ),
    ] = ""
    fluent_stream: Annotated[
        str,
        Meta(
            description="The stream of all Fluent events. Empty: `ingest.stream_map` applies to their tag, then the stream"
            " with the name of the tag, then `ingest.default_stream`."
        ),
    ] = ""
    fluent_key: Annotated[
        str,
        Meta(
            description="The key whose scopes, pins and rate apply to Fluent events."
            " Empty: they may go to any stream, and no pin or rate applies.",
            extra=SECRET_METADATA,
        ),
    ] = ""
    fluent_shared_key: Annotated[
        str, Meta(description="The shared key that Fluent senders must know; empty: none.", extra=SECRET_METADATA)
    ] = ""
    fluent_users: Annotated[
        str,
        Meta(
            description="The users of Fluent senders: a line `name = password` for each, or a table in the file.",
            extra=SECRET_METADATA | TABLE_METADATA,
        ),
    ] = ""
    tls_certificate: Annotated[
        str,
        Meta(
            description="The certificate (PEM, with its chain) of `tls://` addresses. It is read again at a reload,"
            " except for OTLP over gRPC.",
            extra=PATH_METADATA,
        ),
    ] = ""
    tls_key: Annotated[
        str, Meta(description="The private key of the certificate; empty: it is in the same file.", extra=PATH_METADATA)
    ] = ""
    tls_client_ca: Annotated[
        str,
        Meta(
            description="The authority (PEM) that must have signed the certificates of senders; empty: they need none.",
            extra=PATH_METADATA,
        ),
    ] = ""
    connections: Annotated[
        int,
        Meta(
            description="The maximum number of open connections of all listeners; 0 derives it from limits.memory, at most 1000."
            " One network address may have half of them. OTLP over gRPC has the same number for itself.",
            ge=0,
        ),
    ] = 0


class LimitSettings(SettingsSection, frozen=True):
    """Limits on what the service may use of the machine, and on what queries may use of the service."""

    memory: Annotated[
        Annotated[int, Meta(ge=2**26)] | None,
        Meta(
            description="The memory limit of the service, including the engine and caches."
            " Empty: a quarter of the memory of the machine or its cgroup, at least 256 MB.",
            extra=SIZE_METADATA,
        ),
    ] = None
    store_size: Annotated[
        Annotated[int, Meta(ge=64 * 10**6)] | None,
        Meta(
            description="The maximum disk space of all events; when it is exceeded, the oldest events are deleted, whatever their stream."
            " Empty: only each stream's `retention` applies.",
            extra=SIZE_METADATA,
        ),
    ] = None
    query_time: Annotated[
        float,
        Meta(description="How long a query may run; then it is stopped and gets 504.", gt=0, extra=DURATION_METADATA),
    ] = 30.0
    answer_size: Annotated[
        int,
        Meta(
            description="The largest answer held in memory; NDJSON and CSV are streamed and may be larger.",
            ge=1024,
            extra=SIZE_METADATA,
        ),
    ] = 64 * 2**20
    concurrent_queries: Annotated[
        int,
        Meta(
            description="How many queries run at once; 0 derives it from the cores. Ad hoc and sandbox queries never take all of them.",
            ge=0,
        ),
    ] = 0
    queued_queries: Annotated[
        int,
        Meta(
            description="How many queries may wait in the queue; when there would be more, the newest query of the key with the most of them gets 503.",
            ge=0,
        ),
    ] = 200
    queue_time: Annotated[
        float,
        Meta(description="How long a query may wait in the queue; then it gets 503.", gt=0, extra=DURATION_METADATA),
    ] = 10.0
    key_rate: Annotated[
        float | None,
        Meta(
            description="The maximum rate of requests of each key without a rate of its own; empty: no limit.",
            extra=RATE_METADATA,
        ),
    ] = None
    key_concurrent_queries: Annotated[
        int | None,
        Meta(
            description="How many queries of one key may run or wait at once;"
            " empty: no limit, but slots for running queries are still shared fairly with other keys."
        ),
    ] = None
    followers: Annotated[
        int,
        Meta(
            description="How many connections may follow queries at once; 0 means half of web.connections.",
            ge=0,
        ),
    ] = 0
    key_followers: Annotated[
        int,
        Meta(
            description="How many connections of one key, or of one network address without a key, may follow queries at once.",
            ge=1,
        ),
    ] = 100

    @property
    def memory_ceiling(self) -> int:
        """The configured memory ceiling, or the default for this machine."""
        return self.memory or default_memory_ceiling_bytes(read_allowed_memory_bytes())


class KeySettings(SettingsSection, frozen=True):
    """Keys in the settings. If none is set, a private and a public key are created at the first start."""

    private: Annotated[
        str,
        Meta(description="A private key, which may query, send events and manage everything.", extra=SECRET_METADATA),
    ] = ""
    public: Annotated[str, Meta(description="A public key, which may only send events.", extra=SECRET_METADATA)] = ""
    private_file: Annotated[
        str, Meta(description="A file whose first line is the private key.", extra=PATH_METADATA)
    ] = ""
    public_file: Annotated[str, Meta(description="A file whose first line is the public key.", extra=PATH_METADATA)] = (
        ""
    )
    jwt_secret: Annotated[str, Meta(description="The secret of signed keys (JWT, HS256).", extra=SECRET_METADATA)] = ""
    jwt_jwks_file: Annotated[
        str,
        Meta(
            description="A JWKS file with the public keys of signed keys (JWT; RS256, ES256, EdDSA).",
            extra=PATH_METADATA,
        ),
    ] = ""
    jwt_audience: Annotated[str, Meta(description="The audience that signed keys must have; empty: any.")] = ""


class DuckDBSettings(SettingsSection, frozen=True):
    """DuckDB, the embedded engine."""

    threads: Annotated[
        int, Meta(description="The number of threads for queries; 0 derives it from the cores.", ge=0)
    ] = 0
    memory: Annotated[
        int, Meta(description="The engine's memory; 0 derives it from limits.memory.", ge=0, extra=SIZE_METADATA)
    ] = 0
    partial_answers: Annotated[
        int,
        Meta(
            description="The disk space for partial answers, by which repeated counts read only new events; 0 turns them off.",
            ge=0,
            extra=SIZE_METADATA,
        ),
    ] = 64 * 2**20


class ClickHouseSettings(SettingsSection, frozen=True):
    """ClickHouse; used if `engine` is a clickhouse:// or chdb:// address."""

    cluster: Annotated[str, Meta(description="The cluster's name; if set, tables are replicated and distributed.")] = ""
    async_inserts: Annotated[
        bool,
        Meta(
            description="Let the server combine small inserts of many processes; each is still acknowledged only when it is durable."
        ),
    ] = False
    query_memory: Annotated[
        int, Meta(description="The maximum memory of one query on the server.", ge=16 * 2**20, extra=SIZE_METADATA)
    ] = 2**30
    pending_size: Annotated[
        int,
        Meta(
            description="The maximum size of events that are stored on disk while the server cannot be reached.",
            ge=0,
            extra=SIZE_METADATA,
        ),
    ] = 2**30


class RedactionSettings(SettingsSection, frozen=True):
    """What redaction replaces, in answers to calls with redaction on."""

    detectors: Annotated[
        str,
        Meta(
            description="The detectors, separated by commas: ip, email, token, secret, card, phone.",
            extra=LIST_METADATA,
        ),
    ] = "ip,email,token,secret,card"
    patterns: Annotated[
        str,
        Meta(
            description="Additional patterns (RE2) to redact: a line `name = pattern` for each, or a table in the file.",
            extra=TABLE_METADATA,
        ),
    ] = ""
    key: Annotated[
        str,
        Meta(
            description='The key of `redact_mode = "hash"`; empty: a key is created at the first start and stored in the data folder.',
            extra=SECRET_METADATA,
        ),
    ] = ""


class AlertSettings(SettingsSection, frozen=True):
    """Where alerts are sent, and how.

    The guide has [the forms of addresses](../guide/alerts.md#where-alerts-are-sent).
    """

    targets: Annotated[
        str,
        Meta(
            description="The targets of alerts: a line `name = address` for each, or a table in the file. Addresses begin with"
            " `webhook+https:`, `slack+https:`, `pagerduty:`, `alertmanager+https:`, `smtp:` or `smtps:`.",
            extra=SECRET_METADATA | TABLE_METADATA,
        ),
    ] = ""
    signing_secret: Annotated[
        str,
        Meta(
            description="The secret with which webhooks are signed (Standard Webhooks): `whsec_` and base64, or any text;"
            " empty: they are not signed.",
            extra=SECRET_METADATA,
        ),
    ] = ""
    refuse_addresses: Annotated[
        str,
        Meta(
            description="The kinds of network addresses to which no message is sent: any of loopback, link-local, private;"
            " empty or `none`: none of these is refused.",
            extra=LIST_METADATA,
        ),
    ] = "loopback,link-local"
    send_time: Annotated[
        float,
        Meta(
            description="How long sending a message to a target may take, from the look-up of its name to its answer.",
            gt=0,
            le=300,
            extra=DURATION_METADATA,
        ),
    ] = 10.0
    send_rate: Annotated[
        float,
        Meta(
            description="The maximum rate of messages to one target; further ones wait, and are sent together where possible.",
            extra=RATE_METADATA,
        ),
    ] = 10 / 60
    retry_time: Annotated[
        float,
        Meta(
            description="For how long a message is sent again that its target does not accept.",
            ge=0,
            extra=DURATION_METADATA,
        ),
    ] = 86400.0
    external_url: Annotated[
        str,
        Meta(
            description="The address of this service in messages, like `https://logs.example.com`; empty: messages have no link."
        ),
    ] = ""


class CompatSettings(SettingsSection, frozen=True):
    """Compatibility with Logflare's clients."""

    errors: Annotated[
        Literal["plain", "logflare"],
        Meta(description="`logflare` answers failed queries with 200 and a message, as Logflare does."),
    ] = "plain"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings."""

    engine: Annotated[
        str, Meta(description="The storage and query engine: `duckdb`, or a clickhouse:// or chdb:// address.")
    ] = "duckdb"
    web: WebSettings = WebSettings()
    serve: ServeSettings = ServeSettings()
    ingest: IngestSettings = IngestSettings()
    listen: ListenSettings = ListenSettings()
    limits: LimitSettings = LimitSettings()
    keys: KeySettings = KeySettings()
    duckdb: DuckDBSettings = DuckDBSettings()
    clickhouse: ClickHouseSettings = ClickHouseSettings()
    redaction: RedactionSettings = RedactionSettings()
    alerts: AlertSettings = AlertSettings()
    compat: CompatSettings = CompatSettings()
