"""Generate the events of the demo: first a past week with an incident, then a new request about every half minute.

Each request causes an event in every service that handles it. In addition, services log events in the background. There
are more requests by day than by night.
"""

import asyncio
import json
import math
import random
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from cordwood.app.compose import ServiceComponents
from cordwood.observe.observation import EventsIngested, Observer

EDGE_STREAM = "cloudflare.logs.prod"
POSTGRES_STREAM = "postgres.logs"
RELAY_STREAM = "deno-relay-logs"
FUNCTIONS_STREAM = "deno-subhosting-events"
AUTH_STREAM = "gotrue.logs.prod"
REALTIME_STREAM = "realtime.logs.prod"
STORAGE_STREAM = "storage.logs.prod.2"
POSTGREST_STREAM = "postgREST.logs.prod"
PGBOUNCER_STREAM = "pgbouncer.logs.prod"

EventBody = dict[str, object]
# The name of a stream, and an event for this stream.
_StreamEvent = tuple[str, EventBody]


class _EventContext(msgspec.Struct, frozen=True):
    """What an event is generated from: its time, its project, and the random generator."""

    time: datetime
    project: str
    rng: random.Random

    def delayed_by(self, milliseconds: float) -> "_EventContext":
        return msgspec.structs.replace(self, time=self.time + timedelta(milliseconds=milliseconds))

    def random_choice(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def random_bool(self, share: float) -> bool:
        return self.rng.random() < share

    def random_milliseconds(self, usual: float) -> int:
        return max(1, round(self.rng.lognormvariate(math.log(usual), 0.6)))

    def random_ip_address(self) -> str:
        return f"203.0.113.{self.rng.randint(1, 254)}"

    def random_uuid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))


class _ClientRequest(msgspec.Struct, frozen=True):
    """A request of a client. Every service that handles a part of the request logs the request's `id`."""

    context: _EventContext
    id: str
    method: str
    path: str
    status: int
    duration_milliseconds: int
    client_ip_address: str

    def context_at_elapsed_share(self, share: float) -> _EventContext:
        """Return the context at the time when the given share of the request's duration has passed."""
        return self.context.delayed_by(self.duration_milliseconds * share)


def _random_request(context: _EventContext) -> _ClientRequest:
    method, path = _random_method_and_path(context)
    slowness = 180.0 if path.startswith("/functions") else 60.0
    return _ClientRequest(
        context,
        context.random_uuid(),
        method,
        path,
        _random_status(context, path),
        context.random_milliseconds(slowness),
        context.random_ip_address(),
    )


def _events_of_request(call: _ClientRequest) -> Iterator[_StreamEvent]:
    """Yield the events of a request: those that each of the services handling it logs."""
    context = call.context
    yield _cloudflare_event(call)
    service = call.path.split("/")[1]
    if service == "auth":
        action, path = _AUTH_ACTIONS[call.path.rpartition("/")[2]]
        yield _auth_event(call, action, path, call.status if call.status >= 400 else 200)
    elif service == "storage":
        yield _storage_event(call)
    elif service == "functions":
        yield _auth_event(call, "token_checked", "/user", 200)
        yield _relay_event(call, version=3)
        yield _edge_function_request_event(call, "Log", *context.rng.choice(_EDGE_FUNCTION_LOG_LINES), version=3)
    elif call.status >= 500:
        yield _postgres_event(
            call.context_at_elapsed_share(0.9), *context.rng.choice(_DATABASE_ERRORS), request_id=call.id
        )
    elif service == "rest" and context.random_bool(0.15):
        table = call.path.rpartition("/")[2].removeprefix("search_")
        statement = _slow_statement_message(call, table, "order by created_at desc")
        yield _postgres_event(call.context_at_elapsed_share(0.9), "LOG", "00000", statement, request_id=call.id)


def _slow_statement_message(call: _ClientRequest, table: str, ending: str) -> str:
    """Return the line that PostgreSQL logs about a slow statement. A comment in the statement has the request's id."""
    statement = f"select * from {table} {ending} /*request_id='{call.id}'*/"  # noqa: S608 - text of a log line
    return f"duration: {call.duration_milliseconds * 0.9:.3f} ms  statement: {statement}"


def _cloudflare_event(call: _ClientRequest) -> _StreamEvent:
    """Return the event that the edge (Cloudflare) logs about a request."""
    context, host = call.context, f"{call.context.project}.example.co"
    agent, ray = context.random_choice(*_USER_AGENTS), f"{context.rng.getrandbits(64):016x}"
    country, city, colo = context.rng.choice(_CLIENT_LOCATIONS)
    search = context.random_choice("", "", "?select=*", "?select=id,name&order=id.desc&limit=20")
    url = f"https://{host}{call.path}{search}"
    request: EventBody = {
        "method": call.method,
        "path": call.path,
        "search": search,
        "host": host,
        "protocol": "https:",
        "url": url,
        "headers": {
            "host": host,
            "user_agent": agent,
            "cf_connecting_ip": call.client_ip_address,
            "x_real_ip": call.client_ip_address,
            "cf_ipcountry": country,
            "cf_ray": ray,
            "x_request_id": call.id,
            "x_forwarded_proto": "https",
            "x_client_info": context.random_choice("supabase-js/2.43.1", "supabase-py/2.5.0", "supabase-flutter/2.5.2"),
        },
        "cf": {"country": country, "city": city, "colo": colo, "httpProtocol": "HTTP/3", "tlsVersion": "TLSv1.3"},
    }
    # Leave out some URLs, as some senders do. The stream has a derived field that then computes the URL.
    if context.random_bool(0.2):
        del request["url"]
    response: EventBody = {
        "status_code": call.status,
        "origin_time": call.duration_milliseconds,
        "headers": {
            "content_type": "application/json",
            "cf_cache_status": context.random_choice("DYNAMIC", "HIT", "MISS"),
        },
    }
    worker = {"worker_id": context.random_choice("A1B2C3", "D4E5F6")}
    body: EventBody = {
        "event_message": f"{call.method} | {call.status} | {call.client_ip_address} | {ray} | {url} | {agent}",
        "project": context.project,
        "metadata": {"request": request, "response": response, "logflare_worker": worker},
    }
    return _stream_event(EDGE_STREAM, context, body)


def _random_method_and_path(context: _EventContext) -> tuple[str, str]:
    kind = context.rng.choices(("rest", "auth", "storage", "realtime", "functions"), (50, 18, 16, 10, 6))[0]
    table = context.random_choice("todos", "profiles", "orders", "messages", "products")
    if kind == "rest":
        return context.random_choice("GET", "GET", "GET", "POST", "PATCH", "DELETE"), context.random_choice(
            f"/rest/v1/{table}", f"/rest/v1/rpc/search_{table}"
        )
    if kind == "auth":
        return context.rng.choice((("POST", "/auth/v1/token"), ("GET", "/auth/v1/user"), ("POST", "/auth/v1/signup")))
    if kind == "storage":
        file = f"/storage/v1/object/public/{table}/{context.rng.randint(1, 400)}.png"
        return context.random_choice("GET", "GET", "POST"), file
    if kind == "realtime":
        return "GET", "/realtime/v1/websocket"
    return "POST", f"/functions/v1/{context.random_choice('send-mail', 'checkout', 'resize-image')}"


def _random_status(context: _EventContext, path: str) -> int:
    if context.random_bool(0.012):
        return context.rng.choice((500, 502, 503, 504))
    if context.random_bool(0.06):
        return context.rng.choice((400, 401, 403, 404, 409, 429))
    return 101 if "websocket" in path else context.rng.choice((200, 200, 200, 201, 204, 206))


def _postgres_event(
    context: _EventContext, severity: str, state: str, message: str, request_id: str | None = None
) -> _StreamEvent:
    """Return the event for a line that PostgreSQL logs."""
    parsed: EventBody = {
        "error_severity": severity,
        "sql_state_code": state,
        "backend_type": "client backend",
        "command_tag": context.random_choice("SELECT", "INSERT", "UPDATE", "authentication"),
        "connection_from": f"{context.random_ip_address()}:{context.rng.randint(30_000, 60_000)}",
        "database_name": "postgres",
        "user_name": context.random_choice("authenticator", "supabase_admin", "postgres"),
        "process_id": context.rng.randint(1000, 90_000),
        "session_id": f"{context.rng.getrandbits(52):013x}",
        "session_line_num": context.rng.randint(1, 40),
        "query_id": context.rng.getrandbits(48),
    }
    if request_id is not None:
        parsed["request_id"] = request_id
    metadata = {"host": f"db-{context.project}", "parsed": parsed}
    return _stream_event(
        POSTGRES_STREAM, context, {"event_message": message, "project": context.project, "metadata": metadata}
    )


def _relay_event(call: _ClientRequest, version: int) -> _StreamEvent:
    """Return the event that the relay, which passes requests on to functions, logs about a request."""
    name, context = call.path.rpartition("/")[2], call.context
    host = f"{context.project}.functions.example.co"
    metadata: EventBody = {
        "project_ref": context.project,
        "request_id": call.id,
        "function_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        "deployment_id": f"{context.project}_{name}_{version}",
        "version": str(version),
        "execution_time_ms": call.duration_milliseconds,
        "request": {"method": "POST", "pathname": f"/{name}", "host": host, "url": f"https://{host}/{name}"},
        "response": {"status_code": call.status},
    }
    message = f"POST | {call.status} | https://{host}/{name}"
    return _stream_event(
        RELAY_STREAM, call.context_at_elapsed_share(0.97), {"event_message": message, "metadata": metadata}
    )


def _edge_function_request_event(
    call: _ClientRequest, kind: str, level: str, message: str, version: int
) -> _StreamEvent:
    """Return the event for a line that a function logs while it handles a request."""
    name = call.path.rpartition("/")[2]
    return _edge_function_log_event(
        call.context_at_elapsed_share(0.95), name, (kind, level, message), version, request_id=call.id
    )


def _edge_function_log_event(
    context: _EventContext, name: str, line: tuple[str, str, str], version: int, request_id: str | None = None
) -> _StreamEvent:
    """Return the event for a line that a function logs. `line` has the line's kind, level and text."""
    kind, level, message = line
    metadata: EventBody = {
        "project_ref": context.project,
        "function_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        "execution_id": context.random_uuid(),
        "deployment_id": f"{context.project}_{name}_{version}",
        "event_type": kind,
        "level": level,
        "region": context.random_choice("eu-central-1", "us-east-1"),
        "version": str(version),
    }
    if request_id is not None:
        metadata["request_id"] = request_id
    return _stream_event(FUNCTIONS_STREAM, context, {"event_message": message, "metadata": metadata})


def _auth_event(call: _ClientRequest, action: str, path: str, status: int) -> _StreamEvent:
    """Return the event that the auth service logs about its part in a request, such as the check of a token."""
    context = call.context
    level = "error" if status >= 500 else "warning" if status >= 400 else "info"
    user = f"user{context.rng.randint(1, 90)}@example.com"
    metadata: EventBody = {
        "component": "api",
        "level": level,
        "method": "GET" if path == "/user" else "POST",
        "path": path,
        "status": status,
        "msg": "request completed",
        "remote_addr": call.client_ip_address,
        "request_id": call.id,
        "duration": context.random_milliseconds(40) * 1_000_000,
        "auth_event": {"action": action, "actor_username": user, "log_type": "account"},
    }
    if status >= 500:
        metadata["error"] = f"{status}: Processing this request timed out, please retry after a moment."
    elif status >= 400:
        metadata["error"] = (
            f"{status}: {context.random_choice('Invalid login credentials', 'Token has expired or is invalid')}"
        )
    message = json.dumps({key: metadata[key] for key in ("level", "msg", "path", "status", "remote_addr")})
    return _stream_event(
        AUTH_STREAM,
        call.context_at_elapsed_share(0.01),
        {"event_message": message, "project": context.project, "metadata": metadata},
    )


def _storage_event(call: _ClientRequest) -> _StreamEvent:
    context = call.context
    file = call.path.removeprefix("/storage/v1")
    metadata: EventBody = {
        "project": context.project,
        "tenantId": context.project,
        "reqId": call.id,
        "level": "info" if call.status < 400 else "warning",
        "responseTime": call.duration_milliseconds,
        "context": [{"host": "storage-1", "pid": context.rng.randint(10, 99)}],
    }
    message = f"{call.method} | {call.status} | {call.client_ip_address} | {file}"
    return _stream_event(
        STORAGE_STREAM, call.context_at_elapsed_share(0.5), {"event_message": message, "metadata": metadata}
    )


def _random_postgres_event(context: _EventContext) -> _StreamEvent:
    return _postgres_event(
        context, *context.rng.choice(_DATABASE_ERRORS if context.random_bool(0.1) else _DATABASE_MESSAGES)
    )


def _edge_function_lifecycle_event(context: _EventContext) -> _StreamEvent:
    name = context.random_choice("send-mail", "checkout", "resize-image")
    return _edge_function_log_event(context, name, context.rng.choice(_EDGE_FUNCTION_LIFECYCLE_MESSAGES), version=3)


def _realtime_event(context: _EventContext) -> _StreamEvent:
    level, message = context.rng.choice(_REALTIME_MESSAGES)
    metadata: EventBody = {
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
    return _stream_event(REALTIME_STREAM, context, {"event_message": message, "metadata": metadata})


def _postgrest_event(context: _EventContext) -> _StreamEvent:
    return _database_host_event(POSTGREST_STREAM, context, context.random_choice(*_POSTGREST_MESSAGES))


def _random_pgbouncer_event(context: _EventContext) -> _StreamEvent:
    return _pgbouncer_event(
        context,
        context.random_choice(
            f"stats: {context.rng.randint(5, 90)} xacts/s, {context.rng.randint(10, 300)} queries/s, wait {context.random_milliseconds(2)} us",
            f"C-0x55d: postgres/authenticator@{context.random_ip_address()}:5432 login attempt: db=postgres user=authenticator tls=TLSv1.3",
            "C-0x55d: closing because: client close request (age=12s)",
        ),
    )


def _pgbouncer_event(context: _EventContext, message: str) -> _StreamEvent:
    """Return the event for a line that the connection pooler PgBouncer logs."""
    return _database_host_event(PGBOUNCER_STREAM, context, message)


def _database_host_event(stream: str, context: _EventContext, message: str) -> _StreamEvent:
    metadata = {"host": f"db-{context.project}"}
    return _stream_event(stream, context, {"event_message": message, "project": context.project, "metadata": metadata})


def _stream_event(stream: str, context: _EventContext, body: EventBody) -> _StreamEvent:
    at = context.time.astimezone(UTC).isoformat(timespec="microseconds")
    return stream, {"id": context.random_uuid(), "timestamp": at, **body}


_USER_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/126.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 Chrome/124.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
    "python-httpx/0.27.0",
    "node",
)
_CLIENT_LOCATIONS = (
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
_EDGE_FUNCTION_LOG_LINES = (
    ("info", "mail queued for 1 recipient"),
    ("info", "checkout session created"),
    ("info", "image resized"),
    ("error", "TypeError: Cannot read properties of undefined (reading 'price')"),
)
_EDGE_FUNCTION_LIFECYCLE_MESSAGES = (("Boot", "info", "booted (time: 31ms)"), ("Shutdown", "info", "shutdown"))
_AUTH_ACTIONS = {
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
_POSTGREST_MESSAGES = (
    "Listening on port 3000",
    "Schema cache loaded: 41 Relations, 22 Relationships, 18 Functions",
    "Attempting to reconnect to the database in 2 seconds...",
    'Successfully connected to PostgreSQL 15.6 on "db"',
)
# For each stream: the number of events per day that its service logs in the background, and the function that creates
# such an event.
BACKGROUND_EVENT_GENERATORS_BY_STREAM: Mapping[str, tuple[int, Callable[[_EventContext], _StreamEvent]]] = {
    POSTGRES_STREAM: (50, _random_postgres_event),
    FUNCTIONS_STREAM: (20, _edge_function_lifecycle_event),
    REALTIME_STREAM: (40, _realtime_event),
    POSTGREST_STREAM: (20, _postgrest_event),
    PGBOUNCER_STREAM: (30, _random_pgbouncer_event),
}


HISTORY_DAYS = 7
REQUESTS_PER_DAY = 600
# The minimum and maximum time between two requests while the demo runs: about a hundred requests per hour. The
# generated week has at most about forty requests per hour.
LIVE_REQUEST_INTERVAL_SECONDS = (25.0, 45.0)
# While the demo runs, background events are this many times as frequent as in the generated week.
_LIVE_BACKGROUND_FREQUENCY_FACTOR = 2.0

DEMO_PROJECT = "default"
INCIDENT_PATH = "/functions/v1/checkout"
_INCIDENT_START_MINUTE = 5
INCIDENT_SLOW_PHASE_DURATION = timedelta(minutes=6)
INCIDENT_DURATION = timedelta(minutes=14)
_INCIDENT_EDGE_FUNCTION_NAME = "checkout"
_MIN_INCIDENT_AGE = timedelta(hours=3)
_LOCKING_CLAUSE = "where cart_id = $1 for update"
_SLOW_CALLS, _FAILED_CALLS, _POOL_FAILURE_COUNT = 40, 120, 25


def history_events(now: datetime, seed: int = 7) -> Iterator[tuple[str, list[EventBody]]]:
    """Yield the name of each stream, with the events that the stream got in the week before `now`, oldest first."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    by_stream: dict[str, list[EventBody]] = defaultdict(list)
    for stream, event in (*_events_of_week(now, rng), *_incident_events(now, rng)):
        by_stream[stream].append(event)
    for stream, events in by_stream.items():
        yield stream, sorted(events, key=lambda event: str(event["timestamp"]))


class LiveTraffic:
    """The events that arrive while the demo runs: of one request at the start, then of one about every half minute.

    Background events of services arrive in between.
    """

    def __init__(self, now: datetime, rng: random.Random) -> None:
        self._rng = rng
        self._next_request_at = self._last_polled_at = now

    def due_events(self, now: datetime) -> list[_StreamEvent]:
        """Return the events whose time has come since the previous call of this method."""
        events: list[_StreamEvent] = []
        while self._next_request_at <= now:
            events += _events_of_request(_random_request(_context_at(self._next_request_at, self._rng)))
            self._next_request_at += timedelta(seconds=self._rng.uniform(*LIVE_REQUEST_INTERVAL_SECONDS))
        days = (now - self._last_polled_at) / timedelta(days=1)
        self._last_polled_at = now
        for per_day, create in BACKGROUND_EVENT_GENERATORS_BY_STREAM.values():
            if self._rng.random() < per_day * days * _LIVE_BACKGROUND_FREQUENCY_FACTOR:
                events.append(create(_context_at(now, self._rng)))
        return events


def _events_of_week(now: datetime, rng: random.Random) -> Iterator[_StreamEvent]:
    for at in _random_times(now, REQUESTS_PER_DAY * HISTORY_DAYS, rng):
        yield from _events_of_request(_random_request(_context_at(at, rng)))
    for per_day, create in BACKGROUND_EVENT_GENERATORS_BY_STREAM.values():
        for at in _random_times(now, per_day * HISTORY_DAYS, rng):
            yield create(_context_at(at, rng))


def _random_times(now: datetime, count: int, rng: random.Random) -> Iterator[datetime]:
    while count:
        at = now - timedelta(seconds=rng.random() * HISTORY_DAYS * 86_400)
        if rng.random() < _relative_request_rate(at):
            count -= 1
            yield at


def _relative_request_rate(at: datetime) -> float:
    """Return the number of requests at a time relative to the busiest hour, from 0 to 1.

    It is high in the afternoon, and low at night and on weekends.
    """
    day = 0.5 - 0.5 * math.cos((at.hour + at.minute / 60 - 3) / 24 * 2 * math.pi)
    return (0.3 + 0.7 * day) * (0.6 if at.weekday() >= 5 else 1.0)


def _context_at(at: datetime, rng: random.Random) -> _EventContext:
    return _EventContext(at, DEMO_PROJECT if rng.random() < 0.85 else "acme", rng)


def incident_start(now: datetime) -> datetime:
    """Return the start of the incident, for a demo that starts at `now`.

    It is at five minutes past an hour, three to four hours before `now`.
    """
    hour = (now.astimezone(UTC) - _MIN_INCIDENT_AGE).replace(minute=0, second=0, microsecond=0)
    return hour + timedelta(minutes=_INCIDENT_START_MINUTE)


def _incident_events(now: datetime, rng: random.Random) -> Iterator[_StreamEvent]:
    """Yield the events of the incident, in no particular order.

    A deployment makes a function slow. Then requests to this function fail, and other requests get no connection to the
    database, until the deployment is rolled back. A request has the same id in all streams: those of the edge, of auth,
    of the functions and of PostgreSQL.
    """
    start = incident_start(now)
    yield _deployment_event(_EventContext(start, DEMO_PROJECT, rng), version=4, replaced=3)
    for at in _random_request_times(
        start + timedelta(seconds=20), start + INCIDENT_SLOW_PHASE_DURATION, _SLOW_CALLS, rng
    ):
        yield from _slow_request_events(_EventContext(at, DEMO_PROJECT, rng))
    for at in _random_request_times(
        start + INCIDENT_SLOW_PHASE_DURATION, start + INCIDENT_DURATION, _FAILED_CALLS, rng
    ):
        yield from _failed_request_events(_EventContext(at, DEMO_PROJECT, rng))
    for at in _random_request_times(
        start + INCIDENT_SLOW_PHASE_DURATION + timedelta(minutes=2), start + INCIDENT_DURATION, _POOL_FAILURE_COUNT, rng
    ):
        yield from _exhausted_pool_events(_EventContext(at, DEMO_PROJECT, rng))
    yield _deployment_event(_EventContext(start + INCIDENT_DURATION, DEMO_PROJECT, rng), version=3, replaced=4)


def _random_request_times(period_start: datetime, end: datetime, count: int, rng: random.Random) -> list[datetime]:
    """Return a random time in each of `count` equal parts of the period, so that no minute lacks a request."""
    return [period_start + (end - period_start) * ((place + rng.random()) / count) for place in range(count)]


def _deployment_event(context: _EventContext, version: int, replaced: int) -> _StreamEvent:
    message = f"deployment {DEMO_PROJECT}_{_INCIDENT_EDGE_FUNCTION_NAME}_{version} is live, it replaces {DEMO_PROJECT}_{_INCIDENT_EDGE_FUNCTION_NAME}_{replaced}"
    return _edge_function_log_event(context, _INCIDENT_EDGE_FUNCTION_NAME, ("Deploy", "info", message), version)


def _slow_request_events(context: _EventContext) -> Iterator[_StreamEvent]:
    """Yield the events of a slow request to the new version of the function: its SQL statement waits for a lock."""
    call = _new_request(context, INCIDENT_PATH, 200, context.rng.randint(2_000, 7_000))
    yield _cloudflare_event(call)
    yield _auth_event(call, "token_checked", "/user", 200)
    yield _relay_event(call, version=4)
    yield _edge_function_request_event(call, "Log", "info", "checkout session created", version=4)
    yield _postgres_event(
        call.context_at_elapsed_share(0.9),
        "LOG",
        "00000",
        _slow_statement_message(call, "orders", _LOCKING_CLAUSE),
        call.id,
    )


def _failed_request_events(context: _EventContext) -> Iterator[_StreamEvent]:
    """Yield the events of a failed request to the function: its SQL statement waited too long for a lock."""
    status = context.rng.choice((500, 500, 504))
    call = _new_request(context, INCIDENT_PATH, status, context.rng.randint(8_000, 10_000))
    yield _cloudflare_event(call)
    yield _auth_event(call, "token_checked", "/user", 504 if context.random_bool(0.2) else 200)
    yield _relay_event(call, version=4)
    yield _edge_function_request_event(
        call, "Log", "error", "PostgresError: canceling statement due to lock timeout", version=4
    )
    yield _postgres_event(
        call.context_at_elapsed_share(0.9), "ERROR", "55P03", "canceling statement due to lock timeout", call.id
    )


def _exhausted_pool_events(context: _EventContext) -> Iterator[_StreamEvent]:
    """Yield the events of a failed request that does not call the function: no database connection was free."""
    call = _new_request(
        context, context.random_choice("/rest/v1/orders", "/rest/v1/products"), 503, context.rng.randint(900, 1_100)
    )
    yield _cloudflare_event(call)
    slots = "remaining connection slots are reserved for roles with the SUPERUSER attribute"
    yield _postgres_event(call.context_at_elapsed_share(0.9), "FATAL", "53300", slots, call.id)
    yield _pgbouncer_event(context, "pool postgres/authenticator is full: 60 connections in use, clients wait")


def _new_request(context: _EventContext, path: str, status: int, milliseconds: int) -> _ClientRequest:
    method = "POST" if path == INCIDENT_PATH else "GET"
    return _ClientRequest(
        context, context.random_uuid(), method, path, status, milliseconds, context.random_ip_address()
    )


_FAILURES_BY_PATH_SQL = (
    "select request.path, count(*) as failed from edge_logs cross join unnest(metadata) as m"
    " cross join unnest(m.request) as request cross join unnest(m.response) as response"
    " where response.status_code >= 500 group by path order by failed desc"
)


async def post_history_events(components: ServiceComponents, now: datetime) -> None:
    """Store the events of the week before `now` in the streams of the demo."""
    for stream, events in history_events(now):
        await _post_events(components, stream, events)


async def post_live_events(components: ServiceComponents, observer: Observer) -> None:
    """Store and log new demo events until the task is cancelled, as if a client had sent them."""
    traffic = LiveTraffic(datetime.now(UTC), random.Random())  # noqa: S311 - no secret
    while True:
        await asyncio.sleep(1.0)
        for stream, event in traffic.due_events(datetime.now(UTC)):
            await _post_events(components, stream, [event])
            observer.record(EventsIngested(stream=stream, accepted=1))


def incident_hint(now: datetime) -> str:
    """Return the sentence that says when the demo's incident happened."""
    at = f"{incident_start(now):%H:%M}"
    return f"Project {DEMO_PROJECT} had an incident at {at} UTC. docs/guide/incident.md finds it step by step."


def sign_in_link(url: str, key: str) -> str:
    """Return a link that signs in to the explorer. The key follows the #, so browsers do not send it to servers."""
    return f"{url}/sign-in#{key}"


def example_commands(url: str, key: str) -> tuple[str, str, str]:
    """Return three shell commands, each of which prints rows of the demo's data."""
    query = f"{url}/api/endpoints/query"
    return (
        f"curl -s '{query}/usage.api-counts?interval=daily&project={DEMO_PROJECT}' -H 'X-API-KEY: {key}'",
        f"curl -s '{query}/logs.all?project={DEMO_PROJECT}' -H 'X-API-KEY: {key}'",
        (
            f"curl -sG '{query}/logs.all' -H 'X-API-KEY: {key}' -d project={DEMO_PROJECT}"
            f" --data-urlencode 'sql={_FAILURES_BY_PATH_SQL}'"
        ),
    )


async def _post_events(components: ServiceComponents, stream: str, events: list[EventBody]) -> None:
    known_stream = components.catalog.stream(stream)
    if known_stream is not None:
        await components.services.intake.ingest_body(known_stream, "application/json", msgspec.json.encode(events))
