"""The bodies of made-up events: what services log about a request, and what they log on their own."""

import json
import math
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

EDGE = "cloudflare.logs.prod"
POSTGRES = "postgres.logs"
RELAY = "deno-relay-logs"
FUNCTIONS = "deno-subhosting-events"
AUTH = "gotrue.logs.prod"
REALTIME = "realtime.logs.prod"
STORAGE = "storage.logs.prod.2"
POSTGREST = "postgREST.logs.prod"
PGBOUNCER = "pgbouncer.logs.prod"

Body = dict[str, object]
# A stream, and an event for it.
Logged = tuple[str, Body]


class EventContext(msgspec.Struct, frozen=True):
    """The circumstances of one event: time, project, and the random generator."""

    at: datetime
    project: str
    rng: random.Random

    def after(self, milliseconds: float) -> "EventContext":
        return msgspec.structs.replace(self, at=self.at + timedelta(milliseconds=milliseconds))

    def choose(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def milliseconds(self, usual: float) -> int:
        return max(1, round(self.rng.lognormvariate(math.log(usual), 0.6)))

    def address(self) -> str:
        return f"203.0.113.{self.rng.randint(1, 254)}"

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))


class Call(msgspec.Struct, frozen=True):
    """A request of a client. Every service that takes part in it logs its `id`."""

    context: EventContext
    id: str
    method: str
    path: str
    status: int
    ms: int
    address: str

    def at_share(self, share: float) -> EventContext:
        """Return the context at the time when this share of the request's duration has passed."""
        return self.context.after(self.ms * share)


def random_call(context: EventContext) -> Call:
    method, path = _method_and_path(context)
    slowness = 180.0 if path.startswith("/functions") else 60.0
    return Call(
        context, context.uuid(), method, path, _status(context, path), context.milliseconds(slowness), context.address()
    )


def events_of_call(call: Call) -> Iterator[Logged]:
    """Yield the events that services log about a request."""
    context = call.context
    yield edge(call)
    service = call.path.split("/")[1]
    if service == "auth":
        action, path = _LOGINS[call.path.rpartition("/")[2]]
        yield auth(call, action, path, call.status if call.status >= 400 else 200)
    elif service == "storage":
        yield _storage(call)
    elif service == "functions":
        yield auth(call, "token_checked", "/user", 200)
        yield relay(call, version=3)
        yield function(call, "Log", *context.rng.choice(_FUNCTION_LINES), version=3)
    elif call.status >= 500:
        yield postgres(call.at_share(0.9), *context.rng.choice(_DATABASE_ERRORS), request_id=call.id)
    elif service == "rest" and context.chance(0.15):
        table = call.path.rpartition("/")[2].removeprefix("search_")
        statement = slow_statement(call, table, "order by created_at desc")
        yield postgres(call.at_share(0.9), "LOG", "00000", statement, request_id=call.id)


def slow_statement(call: Call, table: str, ending: str) -> str:
    """Return PostgreSQL's line about a slow statement, with a comment that names the request."""
    statement = f"select * from {table} {ending} /*request_id='{call.id}'*/"  # noqa: S608 - text of a log line
    return f"duration: {call.ms * 0.9:.3f} ms  statement: {statement}"


def edge(call: Call) -> Logged:
    """Return the event that the edge logs about a request."""
    context, host = call.context, f"{call.context.project}.example.co"
    agent, ray = context.choose(*_AGENTS), f"{context.rng.getrandbits(64):016x}"
    country, city, colo = context.rng.choice(_LOCATIONS)
    search = context.choose("", "", "?select=*", "?select=id,name&order=id.desc&limit=20")
    url = f"https://{host}{call.path}{search}"
    request: Body = {
        "method": call.method,
        "path": call.path,
        "search": search,
        "host": host,
        "protocol": "https:",
        "url": url,
        "headers": {
            "host": host,
            "user_agent": agent,
            "cf_connecting_ip": call.address,
            "x_real_ip": call.address,
            "cf_ipcountry": country,
            "cf_ray": ray,
            "x_request_id": call.id,
            "x_forwarded_proto": "https",
            "x_client_info": context.choose("supabase-js/2.43.1", "supabase-py/2.5.0", "supabase-flutter/2.5.2"),
        },
        "cf": {"country": country, "city": city, "colo": colo, "httpProtocol": "HTTP/3", "tlsVersion": "TLSv1.3"},
    }
    # The URL is left out, because some senders do so: a derived field fills it.
    if context.chance(0.2):
        del request["url"]
    response: Body = {
        "status_code": call.status,
        "origin_time": call.ms,
        "headers": {
            "content_type": "application/json",
            "cf_cache_status": context.choose("DYNAMIC", "HIT", "MISS"),
        },
    }
    worker = {"worker_id": context.choose("A1B2C3", "D4E5F6")}
    body: Body = {
        "event_message": f"{call.method} | {call.status} | {call.address} | {ray} | {url} | {agent}",
        "project": context.project,
        "metadata": {"request": request, "response": response, "logflare_worker": worker},
    }
    return _logged(EDGE, context, body)


def _method_and_path(context: EventContext) -> tuple[str, str]:
    kind = context.rng.choices(("rest", "auth", "storage", "realtime", "functions"), (50, 18, 16, 10, 6))[0]
    table = context.choose("todos", "profiles", "orders", "messages", "products")
    if kind == "rest":
        return context.choose("GET", "GET", "GET", "POST", "PATCH", "DELETE"), context.choose(
            f"/rest/v1/{table}", f"/rest/v1/rpc/search_{table}"
        )
    if kind == "auth":
        return context.rng.choice((("POST", "/auth/v1/token"), ("GET", "/auth/v1/user"), ("POST", "/auth/v1/signup")))
    if kind == "storage":
        file = f"/storage/v1/object/public/{table}/{context.rng.randint(1, 400)}.png"
        return context.choose("GET", "GET", "POST"), file
    if kind == "realtime":
        return "GET", "/realtime/v1/websocket"
    return "POST", f"/functions/v1/{context.choose('send-mail', 'checkout', 'resize-image')}"


def _status(context: EventContext, path: str) -> int:
    if context.chance(0.012):
        return context.rng.choice((500, 502, 503, 504))
    if context.chance(0.06):
        return context.rng.choice((400, 401, 403, 404, 409, 429))
    return 101 if "websocket" in path else context.rng.choice((200, 200, 200, 201, 204, 206))


def postgres(context: EventContext, severity: str, state: str, message: str, request_id: str | None = None) -> Logged:
    """Return a log line of PostgreSQL."""
    parsed: Body = {
        "error_severity": severity,
        "sql_state_code": state,
        "backend_type": "client backend",
        "command_tag": context.choose("SELECT", "INSERT", "UPDATE", "authentication"),
        "connection_from": f"{context.address()}:{context.rng.randint(30_000, 60_000)}",
        "database_name": "postgres",
        "user_name": context.choose("authenticator", "supabase_admin", "postgres"),
        "process_id": context.rng.randint(1000, 90_000),
        "session_id": f"{context.rng.getrandbits(52):013x}",
        "session_line_num": context.rng.randint(1, 40),
        "query_id": context.rng.getrandbits(48),
    }
    if request_id is not None:
        parsed["request_id"] = request_id
    metadata = {"host": f"db-{context.project}", "parsed": parsed}
    return _logged(POSTGRES, context, {"event_message": message, "project": context.project, "metadata": metadata})


def relay(call: Call, version: int) -> Logged:
    """Return the event that the relay in front of the functions logs about a request."""
    name, context = call.path.rpartition("/")[2], call.context
    host = f"{context.project}.functions.example.co"
    metadata: Body = {
        "project_ref": context.project,
        "request_id": call.id,
        "function_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        "deployment_id": f"{context.project}_{name}_{version}",
        "version": str(version),
        "execution_time_ms": call.ms,
        "request": {"method": "POST", "pathname": f"/{name}", "host": host, "url": f"https://{host}/{name}"},
        "response": {"status_code": call.status},
    }
    message = f"POST | {call.status} | https://{host}/{name}"
    return _logged(RELAY, call.at_share(0.97), {"event_message": message, "metadata": metadata})


def function(call: Call, kind: str, level: str, message: str, version: int) -> Logged:
    """Return an event that a function logs while it serves a request."""
    name = call.path.rpartition("/")[2]
    return function_line(call.at_share(0.95), name, (kind, level, message), version, request_id=call.id)


def function_line(
    context: EventContext, name: str, line: tuple[str, str, str], version: int, request_id: str | None = None
) -> Logged:
    """Return a log line of a function, with its kind, level and text."""
    kind, level, message = line
    metadata: Body = {
        "project_ref": context.project,
        "function_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        "execution_id": context.uuid(),
        "deployment_id": f"{context.project}_{name}_{version}",
        "event_type": kind,
        "level": level,
        "region": context.choose("eu-central-1", "us-east-1"),
        "version": str(version),
    }
    if request_id is not None:
        metadata["request_id"] = request_id
    return _logged(FUNCTIONS, context, {"event_message": message, "metadata": metadata})


def auth(call: Call, action: str, path: str, status: int) -> Logged:
    """Return the event that the auth service logs about its part in a request."""
    context = call.context
    level = "error" if status >= 500 else "warning" if status >= 400 else "info"
    user = f"user{context.rng.randint(1, 90)}@example.com"
    metadata: Body = {
        "component": "api",
        "level": level,
        "method": "GET" if path == "/user" else "POST",
        "path": path,
        "status": status,
        "msg": "request completed",
        "remote_addr": call.address,
        "request_id": call.id,
        "duration": context.milliseconds(40) * 1_000_000,
        "auth_event": {"action": action, "actor_username": user, "log_type": "account"},
    }
    if status >= 500:
        metadata["error"] = f"{status}: Processing this request timed out, please retry after a moment."
    elif status >= 400:
        metadata["error"] = (
            f"{status}: {context.choose('Invalid login credentials', 'Token has expired or is invalid')}"
        )
    message = json.dumps({key: metadata[key] for key in ("level", "msg", "path", "status", "remote_addr")})
    return _logged(
        AUTH, call.at_share(0.01), {"event_message": message, "project": context.project, "metadata": metadata}
    )


def _storage(call: Call) -> Logged:
    context = call.context
    file = call.path.removeprefix("/storage/v1")
    metadata: Body = {
        "project": context.project,
        "tenantId": context.project,
        "reqId": call.id,
        "level": "info" if call.status < 400 else "warning",
        "responseTime": call.ms,
        "context": [{"host": "storage-1", "pid": context.rng.randint(10, 99)}],
    }
    message = f"{call.method} | {call.status} | {call.address} | {file}"
    return _logged(STORAGE, call.at_share(0.5), {"event_message": message, "metadata": metadata})


def _database_line(context: EventContext) -> Logged:
    return postgres(context, *context.rng.choice(_DATABASE_ERRORS if context.chance(0.1) else _DATABASE_MESSAGES))


def _function_life(context: EventContext) -> Logged:
    name = context.choose("send-mail", "checkout", "resize-image")
    return function_line(context, name, context.rng.choice(_FUNCTION_LIFE), version=3)


def _realtime(context: EventContext) -> Logged:
    level, message = context.rng.choice(_REALTIME_MESSAGES)
    metadata: Body = {
        "project": context.project,
        "external_id": context.project,
        "level": level,
        "context": {
            "application": "realtime",
            "module": "RealtimeWeb.RealtimeChannel",
            "pid": "<0.1234.0>",
            "line": 71,
        },
    }
    return _logged(REALTIME, context, {"event_message": message, "metadata": metadata})


def _postgrest(context: EventContext) -> Logged:
    return _of_database_host(POSTGREST, context, context.choose(*_REST_MESSAGES))


def _pgbouncer(context: EventContext) -> Logged:
    return pooler(
        context,
        context.choose(
            f"stats: {context.rng.randint(5, 90)} xacts/s, {context.rng.randint(10, 300)} queries/s, wait {context.milliseconds(2)} us",
            f"C-0x55d: postgres/authenticator@{context.address()}:5432 login attempt: db=postgres user=authenticator tls=TLSv1.3",
            "C-0x55d: closing because: client close request (age=12s)",
        ),
    )


def pooler(context: EventContext, message: str) -> Logged:
    """Return a log line of the connection pooler."""
    return _of_database_host(PGBOUNCER, context, message)


def _of_database_host(stream: str, context: EventContext, message: str) -> Logged:
    metadata = {"host": f"db-{context.project}"}
    return _logged(stream, context, {"event_message": message, "project": context.project, "metadata": metadata})


def _logged(stream: str, context: EventContext, body: Body) -> Logged:
    at = context.at.astimezone(UTC).isoformat(timespec="microseconds")
    return stream, {"id": context.uuid(), "timestamp": at, **body}


_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/126.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 Chrome/124.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
    "python-httpx/0.27.0",
    "node",
)
_LOCATIONS = (
    ("DE", "Berlin", "TXL"),
    ("US", "Ashburn", "IAD"),
    ("FR", "Paris", "CDG"),
    ("IN", "Mumbai", "BOM"),
    ("SG", "Singapore", "SIN"),
)
_DATABASE_MESSAGES = (
    ("LOG", "00000", "checkpoint complete: wrote 41 buffers (0.3%)"),
    ("LOG", "00000", "connection authorized: user=authenticator database=postgres application_name=postgrest"),
    ("LOG", "00000", "connection received: host=10.0.0.12 port=50214"),
    ("LOG", "00000", "duration: 512.204 ms  statement: select * from orders order by created_at desc"),
)  # fmt: skip
_DATABASE_ERRORS = (
    ("ERROR", "23505", 'duplicate key value violates unique constraint "profiles_pkey"'),
    ("ERROR", "42P01", 'relation "public.invoices" does not exist'),
    ("ERROR", "57014", "canceling statement due to statement timeout"),
    ("FATAL", "53300", "remaining connection slots are reserved for roles with the SUPERUSER attribute"),
)
_FUNCTION_LINES = (
    ("info", "mail queued for 1 recipient"),
    ("info", "checkout session created"),
    ("info", "image resized"),
    ("error", "TypeError: Cannot read properties of undefined (reading 'price')"),
)
_FUNCTION_LIFE = (("Boot", "info", "booted (time: 31ms)"), ("Shutdown", "info", "shutdown"))
_LOGINS = {
    "token": ("login", "/token"),
    "user": ("token_checked", "/user"),
    "signup": ("user_signedup", "/signup"),
}
_REALTIME_MESSAGES = (
    ("info", "Subscribed to channel realtime:public:messages"),
    ("info", "Connected users 12, channels 31"),
    ("warning", "Channel join rate limit reached"),
    ("error", "Replication slot is already in use, retrying in 5 s"),
)
_REST_MESSAGES = (
    "Listening on port 3000",
    "Schema cache loaded: 41 Relations, 22 Relationships, 18 Functions",
    "Attempting to reconnect to the database in 2 seconds...",
    'Successfully connected to PostgreSQL 15.6 on "db"',
)
# By service: how many lines a day it logs without a request, and the function that makes one.
BACKGROUND_LINES: Mapping[str, tuple[int, Callable[[EventContext], Logged]]] = {
    POSTGRES: (50, _database_line),
    FUNCTIONS: (20, _function_life),
    REALTIME: (40, _realtime),
    POSTGREST: (20, _postgrest),
    PGBOUNCER: (30, _pgbouncer),
}
