"""Every setting: its section, type, default, bounds and one sentence. The reference page is made from this file."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from cordwood.settings.machine import allowed_memory, default_ceiling

# What a value is written in, beyond its type; `settings.read` knows how to read each.
SIZE = {"unit": "size"}
DURATION = {"unit": "duration"}
RATE = {"unit": "rate"}
SECRET = {"secret": True}
PATH = {"path": True}
# Written as a list or a table in a file, and as one text elsewhere.
LIST = {"form": "list"}
TABLE = {"form": "table"}


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group of settings that belong together."""


class Web(Section, frozen=True):
    """Where HTTP is listened for, and what is taken."""

    host: Annotated[str, Meta(description="The address to listen on: a name, an IPv4 or an IPv6 address.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(description="The port to listen on; 0 lets the system choose.", ge=0, le=65535)] = 4000
    connections: Annotated[
        int,
        Meta(
            description="How many connections may be open at once; 0 takes it from limits.memory, 10000 at most."
            " Beyond it a connection without a request is closed for a new one.",
            ge=0,
        ),
    ] = 0
    drain_time: Annotated[
        float,
        Meta(description="How long requests under way may take to finish once asked to stop.", ge=0, extra=DURATION),
    ] = 25.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="The least severe line the log keeps.")
    ] = "info"


class Serve(Section, frozen=True):
    """What is served, and from where."""

    data_dir: Annotated[
        str, Meta(description="The folder that holds the events and the keys; one process owns it.", extra=PATH)
    ] = "./cordwood-data"
    endpoints: Annotated[
        str,
        Meta(
            description="A folder of endpoint files of your own, beside the two that ship; empty means none.",
            extra=PATH,
        ),
    ] = ""
    streams: Annotated[
        str, Meta(description="A streams file of your own, beside the nine that ship; empty means none.", extra=PATH)
    ] = ""
    cache_memory: Annotated[int, Meta(description="How much memory finished answers may take.", ge=0, extra=SIZE)] = (
        64 * 2**20
    )


class Ingest(Section, frozen=True):
    """What is taken of events."""

    body_size: Annotated[int, Meta(description="The largest body, as it is sent; 413 beyond.", ge=1024, extra=SIZE)] = (
        16 * 2**20
    )
    inflated_size: Annotated[int, Meta(description="The largest body, inflated; 413 beyond.", ge=1024, extra=SIZE)] = (
        128 * 2**20
    )
    event_size: Annotated[
        int, Meta(description="The largest single event; a larger one is set aside.", ge=1024, extra=SIZE)
    ] = 2**20
    stream_rate: Annotated[
        float | None,
        Meta(description="Events a second of any one stream that states no `rate` of its own; 429 beyond.", extra=RATE),
    ] = None
    new_streams: Annotated[
        int,
        Meta(
            description="Events for a stream that no file names make that stream while the data folder's `streams.toml` has"
            " fewer than so many; 0 makes none, and answers 404.",
            ge=0,
            le=10_000,
        ),
    ] = 0
    vercel_verify: Annotated[
        str,
        Meta(
            description="What `/logs/vercel` answers in `x-vercel-verify`: the text that Vercel gives for a log drain."
        ),
    ] = ""
    vercel_secret: Annotated[
        str,
        Meta(
            description="The secret of a Vercel log drain: when set, a body whose `x-vercel-signature` is not of it is 403.",
            extra=SECRET,
        ),
    ] = ""
    github_secret: Annotated[
        str,
        Meta(
            description="The secret of GitHub webhooks: when set, a body whose `x-hub-signature-256` is not of it is 403.",
            extra=SECRET,
        ),
    ] = ""
    queue_size: Annotated[
        int,
        Meta(
            description="How much may be read or wait to be stored at once, inflated; 429 beyond.", ge=2**20, extra=SIZE
        ),
    ] = 64 * 2**20


class Limits(Section, frozen=True):
    """What the service may cost the machine, and a query the service."""

    memory: Annotated[
        Annotated[int, Meta(ge=2**26)] | None,
        Meta(
            description="The ceiling of the whole process; engine and cache are fitted under it."
            " Empty: a quarter of what the machine or its cgroup has, 256 MB at least.",
            extra=SIZE,
        ),
    ] = None
    store_size: Annotated[
        Annotated[int, Meta(ge=64 * 10**6)] | None,
        Meta(
            description="What the events of all streams may take on disk; beyond it the oldest go, whatever their stream."
            " Empty: no bound but each stream's `retention`.",
            extra=SIZE,
        ),
    ] = None
    query_time: Annotated[
        float, Meta(description="How long one query may run before it is stopped; 504 then.", gt=0, extra=DURATION)
    ] = 30.0
    answer_size: Annotated[
        int,
        Meta(
            description="The largest answer that is made whole; NDJSON and CSV that leave as rows come may be larger.",
            ge=1024,
            extra=SIZE,
        ),
    ] = 64 * 2**20
    concurrent_queries: Annotated[
        int,
        Meta(
            description="How many queries run at once; 0 takes it from the cores. Callers' own texts never take all of them.",
            ge=0,
        ),
    ] = 0
    queued_queries: Annotated[
        int,
        Meta(
            description="How many queries may wait for their turn; beyond, the newest of the key that has most of them is 503.",
            ge=0,
        ),
    ] = 200
    queue_time: Annotated[
        float, Meta(description="How long a query may wait for its turn; 503 then.", gt=0, extra=DURATION)
    ] = 10.0
    key_rate: Annotated[
        float | None, Meta(description="Requests a second of any one key that states no rate of its own.", extra=RATE)
    ] = None
    key_concurrent_queries: Annotated[
        int | None,
        Meta(
            description="How many queries of any one key run or wait at once;"
            " empty: a key may use what is idle, and gives way to others."
        ),
    ] = None

    @property
    def ceiling(self) -> int:
        """What `memory` says, or what this machine gives."""
        return self.memory or default_ceiling(allowed_memory())


class Keys(Section, frozen=True):
    """Keys that are given rather than stored. Without any, one private and one public key are made at first start."""

    private: Annotated[str, Meta(description="A private key: queries, ingest, management.", extra=SECRET)] = ""
    public: Annotated[str, Meta(description="A public key: ingest only.", extra=SECRET)] = ""
    private_file: Annotated[str, Meta(description="A file whose first line is the private key.", extra=PATH)] = ""
    public_file: Annotated[str, Meta(description="A file whose first line is the public key.", extra=PATH)] = ""
    jwt_secret: Annotated[str, Meta(description="Keys signed with this secret (HS256) are taken.", extra=SECRET)] = ""
    jwt_jwks_file: Annotated[
        str,
        Meta(
            description="Keys signed by the private half of a key in this JWKS file (RS256, ES256, EdDSA) are taken.",
            extra=PATH,
        ),
    ] = ""
    jwt_audience: Annotated[str, Meta(description="What a signed key must name as its audience, when set.")] = ""


class DuckDB(Section, frozen=True):
    """The engine inside the process."""

    threads: Annotated[int, Meta(description="Threads for queries; 0 takes it from the cores.", ge=0)] = 0
    memory: Annotated[
        int, Meta(description="The engine's own ceiling; 0 takes it from limits.memory.", ge=0, extra=SIZE)
    ] = 0


class ClickHouse(Section, frozen=True):
    """The engine on another machine; used when `engine` is a clickhouse:// or chdb:// address."""

    cluster: Annotated[str, Meta(description="The cluster's name, where tables are replicated and distributed.")] = ""
    async_inserts: Annotated[
        bool,
        Meta(description="Let the server gather small inserts of many processes; they are waited for all the same."),
    ] = False
    query_memory: Annotated[
        int, Meta(description="How much memory one query may take on the server.", ge=16 * 2**20, extra=SIZE)
    ] = 2**30
    pending_size: Annotated[
        int, Meta(description="How much is kept on disk while the server is away.", ge=0, extra=SIZE)
    ] = 2**30


class Redaction(Section, frozen=True):
    """What is hidden in the answers of calls that ask for redaction."""

    detectors: Annotated[
        str,
        Meta(
            description="What is looked for: any of ip, email, token, secret, card and phone, with commas between.",
            extra=LIST,
        ),
    ] = "ip,email,token,secret,card"
    patterns: Annotated[
        str,
        Meta(
            description="Patterns of your own, hidden as well: a line `name = RE2` each, or a table in the file.",
            extra=TABLE,
        ),
    ] = ""
    key: Annotated[
        str,
        Meta(
            description='The key of `redact_mode = "hash"`; empty: made at first start, kept in the data folder.',
            extra=SECRET,
        ),
    ] = ""


class Compat(Section, frozen=True):
    """Old shapes for clients that need them."""

    errors: Annotated[
        Literal["plain", "logflare"],
        Meta(description="`logflare` answers failed queries with 200 and one sentence, as Logflare does."),
    ] = "plain"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that an operator may choose."""

    engine: Annotated[
        str, Meta(description="What stores events and runs queries: `duckdb`, or a clickhouse:// or chdb:// address.")
    ] = "duckdb"
    web: Web = Web()
    serve: Serve = Serve()
    ingest: Ingest = Ingest()
    limits: Limits = Limits()
    keys: Keys = Keys()
    duckdb: DuckDB = DuckDB()
    clickhouse: ClickHouse = ClickHouse()
    redaction: Redaction = Redaction()
    compat: Compat = Compat()
