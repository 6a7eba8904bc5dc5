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


class Moment(msgspec.Struct, frozen=True):
    """The circumstances of one event: time, project, and the random generator."""

    at: datetime
    project: str
    rng: random.Random

    def after(self, milliseconds: float) -> "Moment":
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

    moment: Moment
    id: str
    method: str
    path: str
    status: int
    ms: int
    address: str

    def at_share(self, share: float) -> Moment:
        """Return the moment at which this share of the request's duration has passed."""
        return self.moment.after(self.ms * share)


def random_call(moment: Moment) -> Call:
    method, path = _method_and_path(moment)
    slowness = 180.0 if path.startswith("/functions") else 60.0
    return Call(
        moment, moment.uuid(), method, path, _status(moment, path), moment.milliseconds(slowness), moment.address()
    )


def events_of_call(call: Call) -> Iterator[Logged]:
    """Yield the events that services log about a request."""
    moment = call.moment
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
        yield function(call, "Log", *moment.rng.choice(_FUNCTION_LINES), version=3)
    elif call.status >= 500:
        yield postgres(call.at_share(0.9), *moment.rng.choice(_DATABASE_ERRORS), request_id=call.id)
    elif service == "rest" and moment.chance(0.15):
        table = call.path.rpartition("/")[2].removeprefix("search_")
        statement = slow_statement(call, table, "order by created_at desc")
        yield postgres(call.at_share(0.9), "LOG", "00000", statement, request_id=call.id)


def slow_statement(call: Call, table: str, ending: str) -> str:
    """Return PostgreSQL's line about a slow statement, with a comment that names the request."""
    statement = f"select * from {table} {ending} /*request_id='{call.id}'*/"  # noqa: S608 - text of a log line
    return f"duration: {call.ms * 0.9:.3f} ms  statement: {statement}"


def edge(call: Call) -> Logged:
    """Return the event that the edge logs about a request."""
    moment, host = call.moment, f"{call.moment.project}.example.co"
    agent, ray = moment.choose(*_AGENTS), f"{moment.rng.getrandbits(64):016x}"
    country, city, colo = moment.rng.choice(_LOCATIONS)
    search = moment.choose("", "", "?select=*", "?select=id,name&order=id.desc&limit=20")
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
            "x_client_info": moment.choose("supabase-js/2.43.1", "supabase-py/2.5.0", "supabase-flutter/2.5.2"),
        },
        "cf": {"country": country, "city": city, "colo": colo, "httpProtocol": "HTTP/3", "tlsVersion": "TLSv1.3"},
    }
    # The URL is left out, because some senders do so: a derived field fills it.
    if moment.chance(0.2):
        del request["url"]
    response: Body = {
        "status_code": call.status,
        "origin_time": call.ms,
        "headers": {
            "content_type": "application/json",
            "cf_cache_status": moment.choose("DYNAMIC", "HIT", "MISS"),
        },
    }
    worker = {"worker_id": moment.choose("A1B2C3", "D4E5F6")}
    body: Body = {
        "event_message": f"{call.method} | {call.status} | {call.address} | {ray} | {url} | {agent}",
        "project": moment.project,
        "metadata": {"request": request, "response": response, "logflare_worker": worker},
    }
    return _logged(EDGE, moment, body)


def _method_and_path(moment: Moment) -> tuple[str, str]:
    kind = moment.rng.choices(("rest", "auth", "storage", "realtime", "functions"), (50, 18, 16, 10, 6))[0]
    table = moment.choose("todos", "profiles", "orders", "messages", "products")
    if kind == "rest":
        return moment.choose("GET", "GET", "GET", "POST", "PATCH", "DELETE"), moment.choose(
            f"/rest/v1/{table}", f"/rest/v1/rpc/search_{table}"
        )
    if kind == "auth":
        return moment.rng.choice((("POST", "/auth/v1/token"), ("GET", "/auth/v1/user"), ("POST", "/auth/v1/signup")))
    if kind == "storage":
        file = f"/storage/v1/object/public/{table}/{moment.rng.randint(1, 400)}.png"
        return moment.choose("GET", "GET", "POST"), file
    if kind == "realtime":
        return "GET", "/realtime/v1/websocket"
    return "POST", f"/functions/v1/{moment.choose('send-mail', 'checkout', 'resize-image')}"


def _status(moment: Moment, path: str) -> int:
    if moment.chance(0.012):
        return moment.rng.choice((500, 502, 503, 504))
    if moment.chance(0.06):
        return moment.rng.choice((400, 401, 403, 404, 409, 429))
    return 101 if "websocket" in path else moment.rng.choice((200, 200, 200, 201, 204, 206))


def postgres(moment: Moment, severity: str, state: str, message: str, request_id: str | None = None) -> Logged:
    """Return a log line of PostgreSQL."""
    parsed: Body = {
        "error_severity": severity,
        "sql_state_code": state,
        "backend_type": "client backend",
        "command_tag": moment.choose("SELECT", "INSERT", "UPDATE", "authentication"),
        "connection_from": f"{moment.address()}:{moment.rng.randint(30_000, 60_000)}",
        "database_name": "postgres",
        "user_name": moment.choose("authenticator", "supabase_admin", "postgres"),
        "process_id": moment.rng.randint(1000, 90_000),
        "session_id": f"{moment.rng.getrandbits(52):013x}",
        "session_line_num": moment.rng.randint(1, 40),
        "query_id": moment.rng.getrandbits(48),
    }
    if request_id is not None:
        parsed["request_id"] = request_id
    metadata = {"host": f"db-{moment.project}", "parsed": parsed}
    return _logged(POSTGRES, moment, {"event_message": message, "project": moment.project, "metadata": metadata})


def relay(call: Call, version: int) -> Logged:
    """Return the event that the relay in front of the functions logs about a request."""
    name, moment = call.path.rpartition("/")[2], call.moment
    host = f"{moment.project}.functions.example.co"
    metadata: Body = {
        "project_ref": moment.project,
        "request_id": call.id,
        "function_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        "deployment_id": f"{moment.project}_{name}_{version}",
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
    moment: Moment, name: str, line: tuple[str, str, str], version: int, request_id: str | None = None
) -> Logged:
    """Return a log line of a function, with its kind, level and text."""
    kind, level, message = line
    metadata: Body = {
        "project_ref": moment.project,
        "function_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        "execution_id": moment.uuid(),
        "deployment_id": f"{moment.project}_{name}_{version}",
        "event_type": kind,
        "level": level,
        "region": moment.choose("eu-central-1", "us-east-1"),
        "version": str(version),
    }
    if request_id is not None:
        metadata["request_id"] = request_id
    return _logged(FUNCTIONS, moment, {"event_message": message, "metadata": metadata})


def auth(call: Call, action: str, path: str, status: int) -> Logged:
    """Return the event that the auth service logs about its part in a request."""
    moment = call.moment
    level = "error" if status >= 500 else "warning" if status >= 400 else "info"
    user = f"user{moment.rng.randint(1, 90)}@example.com"
    metadata: Body = {
        "component": "api",
        "level": level,
        "method": "GET" if path == "/user" else "POST",
        "path": path,
        "status": status,
        "msg": "request completed",
        "remote_addr": call.address,
        "request_id": call.id,
        "duration": moment.milliseconds(40) * 1_000_000,
        "auth_event": {"action": action, "actor_username": user, "log_type": "account"},
    }
    if status >= 500:
        metadata["error"] = f"{status}: Processing this request timed out, please retry after a moment."
    elif status >= 400:
        metadata["error"] = f"{status}: {moment.choose('Invalid login credentials', 'Token has expired or is invalid')}"
    message = json.dumps({key: metadata[key] for key in ("level", "msg", "path", "status", "remote_addr")})
    return _logged(
        AUTH, call.at_share(0.01), {"event_message": message, "project": moment.project, "metadata": metadata}
    )


def _storage(call: Call) -> Logged:
    moment = call.moment
    file = call.path.removeprefix("/storage/v1")
    metadata: Body = {
        "project": moment.project,
        "tenantId": moment.project,
        "reqId": call.id,
        "level": "info" if call.status < 400 else "warning",
        "responseTime": call.ms,
        "context": [{"host": "storage-1", "pid": moment.rng.randint(10, 99)}],
    }
    message = f"{call.method} | {call.status} | {call.address} | {file}"
    return _logged(STORAGE, call.at_share(0.5), {"event_message": message, "metadata": metadata})


def _database_line(moment: Moment) -> Logged:
    return postgres(moment, *moment.rng.choice(_DATABASE_ERRORS if moment.chance(0.1) else _DATABASE_MESSAGES))


def _function_life(moment: Moment) -> Logged:
    name = moment.choose("send-mail", "checkout", "resize-image")
    return function_line(moment, name, moment.rng.choice(_FUNCTION_LIFE), version=3)


def _realtime(moment: Moment) -> Logged:
    level, message = moment.rng.choice(_REALTIME_MESSAGES)
    metadata: Body = {
        "project": moment.project,
        "external_id": moment.project,
        "level": level,
        "context": {
            "application": "realtime",
            "module": "RealtimeWeb.RealtimeChannel",
            "pid": "<0.1234.0>",
            "line": 71,
        },
    }
    return _logged(REALTIME, moment, {"event_message": message, "metadata": metadata})


def _postgrest(moment: Moment) -> Logged:
    return _of_database_host(POSTGREST, moment, moment.choose(*_REST_MESSAGES))


def _pgbouncer(moment: Moment) -> Logged:
    return pooler(
        moment,
        moment.choose(
            f"stats: {moment.rng.randint(5, 90)} xacts/s, {moment.rng.randint(10, 300)} queries/s, wait {moment.milliseconds(2)} us",
            f"C-0x55d: postgres/authenticator@{moment.address()}:5432 login attempt: db=postgres user=authenticator tls=TLSv1.3",
            "C-0x55d: closing because: client close request (age=12s)",
        ),
    )


def pooler(moment: Moment, message: str) -> Logged:
    """Return a log line of the connection pooler."""
    return _of_database_host(PGBOUNCER, moment, message)


def _of_database_host(stream: str, moment: Moment, message: str) -> Logged:
    metadata = {"host": f"db-{moment.project}"}
    return _logged(stream, moment, {"event_message": message, "project": moment.project, "metadata": metadata})


def _logged(stream: str, moment: Moment, body: Body) -> Logged:
    at = moment.at.astimezone(UTC).isoformat(timespec="microseconds")
    return stream, {"id": moment.uuid(), "timestamp": at, **body}


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
BACKGROUND_LINES: Mapping[str, tuple[int, Callable[[Moment], Logged]]] = {
    POSTGRES: (50, _database_line),
    FUNCTIONS: (20, _function_life),
    REALTIME: (40, _realtime),
    POSTGREST: (20, _postgrest),
    PGBOUNCER: (30, _pgbouncer),
}
