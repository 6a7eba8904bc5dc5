"""Made-up but realistic events for all nine streams: busy days, quiet nights, and one bad hour two days ago."""

import json
import math
import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

DAYS = 7
_BAD_HOUR = timedelta(days=2, hours=3)

Body = dict[str, object]


class Moment(msgspec.Struct):
    """The circumstances of one event: time, whether it is the bad hour, and the random generator."""

    at: datetime
    is_bad: bool
    rng: random.Random
    project: str

    def choose(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def milliseconds(self, usual: float) -> int:
        slowdown = 8.0 if self.is_bad else 1.0
        return max(1, round(self.rng.lognormvariate(math.log(usual * slowdown), 0.6)))

    def address(self) -> str:
        return f"203.0.113.{self.rng.randint(1, 254)}"

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))


def history_events(now: datetime, seed: int = 7) -> Iterator[tuple[str, list[Body]]]:
    """Yield a week of events that ends now, by stream, oldest first."""
    rng = random.Random(seed)  # noqa: S311 - dice for play, not for secrets
    for stream, (per_day, create_body) in _STREAMS.items():
        moments = sorted(_moments(now, round(per_day * DAYS), rng), key=lambda moment: moment.at)
        yield stream, [_event(moment, create_body) for moment in moments]


def current_events(now: datetime, rng: random.Random) -> Iterator[tuple[str, list[Body]]]:
    """Yield the events of the second that begins now."""
    for stream, (per_day, create_body) in _STREAMS.items():
        if rng.random() < per_day / 500:
            moment = _moment(now + timedelta(seconds=rng.random()), now, rng)
            yield stream, [_event(moment, create_body)]


def _moments(now: datetime, count: int, rng: random.Random) -> Iterator[Moment]:
    while count:
        age = timedelta(seconds=rng.random() * DAYS * 86_400)
        in_bad_hour = abs(age - _BAD_HOUR) < timedelta(minutes=30)
        if rng.random() < (1.0 if in_bad_hour else _relative_traffic(now - age)):
            count -= 1
            yield _moment(now - age, now, rng)


def _relative_traffic(at: datetime) -> float:
    """Return the traffic relative to the busiest hour: most in the afternoon, little at night and on Sundays."""
    day = 0.5 - 0.5 * math.cos((at.hour + at.minute / 60 - 3) / 24 * 2 * math.pi)
    return (0.1 + 0.6 * day) * (0.6 if at.weekday() >= 5 else 1.0)


def _moment(at: datetime, now: datetime, rng: random.Random) -> Moment:
    is_bad = abs((now - at) - _BAD_HOUR) < timedelta(minutes=30)
    return Moment(at, is_bad, rng, "default" if rng.random() < 0.85 else "acme")


def _event(moment: Moment, create_body: Callable[[Moment], Body]) -> Body:
    return {
        "id": moment.uuid(),
        "timestamp": moment.at.astimezone(UTC).isoformat(timespec="microseconds"),
        **create_body(moment),
    }


def _edge(moment: Moment) -> Body:
    method, path = _request(moment)
    status = _status(moment, path)
    host = f"{moment.project}.example.co"
    address, agent, ray = moment.address(), moment.choose(*_AGENTS), f"{moment.rng.getrandbits(64):016x}"
    country, city, colo = moment.rng.choice(_LOCATIONS)
    search = moment.choose("", "", "?select=*", "?select=id,name&order=id.desc&limit=20")
    url = f"https://{host}{path}{search}"
    request: Body = {
        "method": method,
        "path": path,
        "search": search,
        "host": host,
        "protocol": "https:",
        "url": url,
        "headers": {
            "host": host,
            "user_agent": agent,
            "cf_connecting_ip": address,
            "x_real_ip": address,
            "cf_ipcountry": country,
            "cf_ray": ray,
            "x_forwarded_proto": "https",
            "x_client_info": moment.choose("supabase-js/2.43.1", "supabase-py/2.5.0", "supabase-flutter/2.5.2"),
        },
        "cf": {"country": country, "city": city, "colo": colo, "httpProtocol": "HTTP/3", "tlsVersion": "TLSv1.3"},
    }
    # Some senders omit the URL: it is a derived field.
    if moment.chance(0.2):
        del request["url"]
    return {
        "event_message": f"{method} | {status} | {address} | {ray} | {url} | {agent}",
        "project": moment.project,
        "metadata": {
            "request": request,
            "response": {
                "status_code": status,
                "origin_time": moment.milliseconds(60),
                "headers": {
                    "content_type": "application/json",
                    "cf_cache_status": moment.choose("DYNAMIC", "HIT", "MISS"),
                },
            },
            "logflare_worker": {"worker_id": moment.choose("A1B2C3", "D4E5F6")},
        },
    }


def _request(moment: Moment) -> tuple[str, str]:
    kind = moment.rng.choices(("rest", "auth", "storage", "realtime", "functions"), (50, 18, 16, 10, 6))[0]
    table = moment.choose("todos", "profiles", "orders", "messages", "products")
    if kind == "rest":
        return moment.choose("GET", "GET", "GET", "POST", "PATCH", "DELETE"), moment.choose(
            f"/rest/v1/{table}", f"/rest/v1/rpc/search_{table}"
        )
    if kind == "auth":
        return moment.rng.choice((("POST", "/auth/v1/token"), ("GET", "/auth/v1/user"), ("POST", "/auth/v1/signup")))
    if kind == "storage":
        return moment.choose(
            "GET", "GET", "POST"
        ), f"/storage/v1/object/public/{table}/{moment.rng.randint(1, 400)}.png"
    if kind == "realtime":
        return "GET", "/realtime/v1/websocket"
    return "POST", f"/functions/v1/{moment.choose('send-mail', 'checkout', 'resize-image')}"


def _status(moment: Moment, path: str) -> int:
    if moment.chance(0.35 if moment.is_bad else 0.012):
        return moment.rng.choice((500, 502, 503, 504))
    if moment.chance(0.06):
        return moment.rng.choice((400, 401, 403, 404, 409, 429))
    return 101 if "websocket" in path else moment.rng.choice((200, 200, 200, 201, 204, 206))


def _postgres(moment: Moment) -> Body:
    is_error = moment.chance(0.4 if moment.is_bad else 0.08)
    severity, state, message = moment.rng.choice(_DATABASE_ERRORS if is_error else _DATABASE_MESSAGES)
    return {
        "event_message": message,
        "project": moment.project,
        "metadata": {
            "host": f"db-{moment.project}",
            "parsed": {
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
            },
        },
    }


def _function_relay(moment: Moment) -> Body:
    name = moment.choose("send-mail", "checkout", "resize-image")
    status = moment.rng.choice((500, 504, 546)) if moment.chance(0.3 if moment.is_bad else 0.03) else 200
    host = f"{moment.project}.functions.example.co"
    return {
        "event_message": f"POST | {status} | https://{host}/{name}",
        "metadata": {
            "project_ref": moment.project,
            "function_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
            "deployment_id": f"{moment.project}_{name}_3",
            "version": "3",
            "execution_time_ms": moment.milliseconds(180),
            "request": {"method": "POST", "pathname": f"/{name}", "host": host, "url": f"https://{host}/{name}"},
            "response": {"status_code": status},
        },
    }


def _function(moment: Moment) -> Body:
    name = moment.choose("send-mail", "checkout", "resize-image")
    kind, level, message = moment.rng.choice(_FUNCTION_MESSAGES)
    return {
        "event_message": message,
        "metadata": {
            "project_ref": moment.project,
            "function_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
            "execution_id": moment.uuid(),
            "deployment_id": f"{moment.project}_{name}_3",
            "event_type": kind,
            "level": level,
            "region": moment.choose("eu-central-1", "us-east-1"),
            "version": "3",
        },
    }


def _auth(moment: Moment) -> Body:
    action, path, status = moment.rng.choice(_LOGINS)
    level = "error" if status >= 500 else "warning" if status >= 400 else "info"
    user = f"user{moment.rng.randint(1, 90)}@example.com"
    metadata: Body = {
        "component": "api",
        "level": level,
        "method": "POST",
        "path": path,
        "status": status,
        "msg": "request completed",
        "remote_addr": moment.address(),
        "request_id": moment.uuid(),
        "duration": moment.milliseconds(40) * 1_000_000,
        "auth_event": {"action": action, "actor_username": user, "log_type": "account"},
    }
    if status >= 400:
        metadata["error"] = f"{status}: {moment.choose('Invalid login credentials', 'Token has expired or is invalid')}"
    message_fields = {key: metadata[key] for key in ("level", "msg", "path", "status", "remote_addr")}
    return {"event_message": json.dumps(message_fields), "project": moment.project, "metadata": metadata}


def _realtime(moment: Moment) -> Body:
    level, message = moment.rng.choice(_REALTIME_MESSAGES)
    return {
        "event_message": message,
        "metadata": {
            "project": moment.project,
            "external_id": moment.project,
            "level": level,
            "context": {
                "application": "realtime",
                "module": "RealtimeWeb.RealtimeChannel",
                "pid": "<0.1234.0>",
                "line": 71,
            },
        },
    }


def _storage(moment: Moment) -> Body:
    method, status = moment.choose("GET", "POST", "DELETE"), moment.rng.choice((200, 200, 200, 200, 400, 404))
    file = f"/object/public/avatars/{moment.rng.randint(1, 400)}.png"
    return {
        "event_message": f"{method} | {status} | {moment.address()} | {file}",
        "metadata": {
            "project": moment.project,
            "tenantId": moment.project,
            "reqId": moment.uuid(),
            "level": "info" if status < 400 else "warning",
            "responseTime": moment.milliseconds(30),
            "context": [{"host": "storage-1", "pid": moment.rng.randint(10, 99)}],
        },
    }


def _postgrest(moment: Moment) -> Body:
    return {
        "event_message": moment.choose(*_REST_MESSAGES),
        "project": moment.project,
        "metadata": {"host": f"db-{moment.project}"},
    }


def _pgbouncer(moment: Moment) -> Body:
    message = moment.choose(
        f"stats: {moment.rng.randint(5, 90)} xacts/s, {moment.rng.randint(10, 300)} queries/s, wait {moment.milliseconds(2)} us",
        f"C-0x55d: postgres/authenticator@{moment.address()}:5432 login attempt: db=postgres user=authenticator tls=TLSv1.3",
        "C-0x55d: closing because: client close request (age=12s)",
    )
    return {"event_message": message, "project": moment.project, "metadata": {"host": f"db-{moment.project}"}}


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
_FUNCTION_MESSAGES = (
    ("Boot", "info", "booted (time: 31ms)"),
    ("Log", "info", "mail queued for 1 recipient"),
    ("Log", "info", "checkout session created"),
    ("Log", "error", "TypeError: Cannot read properties of undefined (reading 'price')"),
    ("Shutdown", "info", "shutdown"),
)
_LOGINS = (
    ("login", "/token", 200),
    ("login", "/token", 200),
    ("token_refreshed", "/token", 200),
    ("user_signedup", "/signup", 200),
    ("login", "/token", 400),
    ("user_recovery_requested", "/recover", 429),
    ("logout", "/logout", 204),
)
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
# By stream: events a day, and the function that makes one.
_STREAMS: Mapping[str, tuple[int, Callable[[Moment], Body]]] = {
    "cloudflare.logs.prod": (330, _edge),
    "postgres.logs": (90, _postgres),
    "deno-relay-logs": (45, _function_relay),
    "deno-subhosting-events": (60, _function),
    "gotrue.logs.prod": (70, _auth),
    "realtime.logs.prod": (40, _realtime),
    "storage.logs.prod.2": (50, _storage),
    "postgREST.logs.prod": (20, _postgrest),
    "pgbouncer.logs.prod": (30, _pgbouncer),
}
