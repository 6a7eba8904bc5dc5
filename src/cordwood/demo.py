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
    dice: random.Random
    project: str

    def pick(self, *choices: str) -> str:
        return self.dice.choice(choices)

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def milliseconds(self, usual: float) -> int:
        slow = 8.0 if self.is_bad else 1.0
        return max(1, round(self.dice.lognormvariate(math.log(usual * slow), 0.6)))

    def address(self) -> str:
        return f"203.0.113.{self.dice.randint(1, 254)}"

    def uuid(self) -> str:
        return str(uuid.UUID(int=self.dice.getrandbits(128), version=4))


def past(now: datetime, seed: int = 7) -> Iterator[tuple[str, list[Body]]]:
    """Yield a week of events that ends now, by stream, oldest first."""
    dice = random.Random(seed)  # noqa: S311 - dice for play, not for secrets
    for stream, (per_day, make) in _STREAMS.items():
        moments = sorted(_moments(now, round(per_day * DAYS), dice), key=lambda moment: moment.at)
        yield stream, [_event(moment, make) for moment in moments]


def arriving(now: datetime, dice: random.Random) -> Iterator[tuple[str, list[Body]]]:
    """Yield the events of the second that begins now."""
    for stream, (per_day, make) in _STREAMS.items():
        if dice.random() < per_day / 500:
            moment = _moment(now + timedelta(seconds=dice.random()), now, dice)
            yield stream, [_event(moment, make)]


def _moments(now: datetime, count: int, dice: random.Random) -> Iterator[Moment]:
    while count:
        ago = timedelta(seconds=dice.random() * DAYS * 86_400)
        in_bad_hour = abs(ago - _BAD_HOUR) < timedelta(minutes=30)
        if dice.random() < (1.0 if in_bad_hour else _bustle(now - ago)):
            count -= 1
            yield _moment(now - ago, now, dice)


def _bustle(at: datetime) -> float:
    """Return the traffic relative to the busiest hour: most in the afternoon, little at night and on Sundays."""
    day = 0.5 - 0.5 * math.cos((at.hour + at.minute / 60 - 3) / 24 * 2 * math.pi)
    return (0.1 + 0.6 * day) * (0.6 if at.weekday() >= 5 else 1.0)


def _moment(at: datetime, now: datetime, dice: random.Random) -> Moment:
    is_bad = abs((now - at) - _BAD_HOUR) < timedelta(minutes=30)
    return Moment(at, is_bad, dice, "default" if dice.random() < 0.85 else "acme")


def _event(moment: Moment, make: Callable[[Moment], Body]) -> Body:
    return {
        "id": moment.uuid(),
        "timestamp": moment.at.astimezone(UTC).isoformat(timespec="microseconds"),
        **make(moment),
    }


def _edge(m: Moment) -> Body:
    method, path = _request(m)
    status = _status(m, path)
    host = f"{m.project}.example.co"
    address, agent, ray = m.address(), m.pick(*_AGENTS), f"{m.dice.getrandbits(64):016x}"
    country, city, colo = m.dice.choice(_PLACES)
    search = m.pick("", "", "?select=*", "?select=id,name&order=id.desc&limit=20")
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
            "x_client_info": m.pick("supabase-js/2.43.1", "supabase-py/2.5.0", "supabase-flutter/2.5.2"),
        },
        "cf": {"country": country, "city": city, "colo": colo, "httpProtocol": "HTTP/3", "tlsVersion": "TLSv1.3"},
    }
    # Some senders omit the URL: it is a derived field.
    if m.chance(0.2):
        del request["url"]
    return {
        "event_message": f"{method} | {status} | {address} | {ray} | {url} | {agent}",
        "project": m.project,
        "metadata": {
            "request": request,
            "response": {
                "status_code": status,
                "origin_time": m.milliseconds(60),
                "headers": {"content_type": "application/json", "cf_cache_status": m.pick("DYNAMIC", "HIT", "MISS")},
            },
            "logflare_worker": {"worker_id": m.pick("A1B2C3", "D4E5F6")},
        },
    }


def _request(m: Moment) -> tuple[str, str]:
    kind = m.dice.choices(("rest", "auth", "storage", "realtime", "functions"), (50, 18, 16, 10, 6))[0]
    table = m.pick("todos", "profiles", "orders", "messages", "products")
    if kind == "rest":
        return m.pick("GET", "GET", "GET", "POST", "PATCH", "DELETE"), m.pick(
            f"/rest/v1/{table}", f"/rest/v1/rpc/search_{table}"
        )
    if kind == "auth":
        return m.dice.choice((("POST", "/auth/v1/token"), ("GET", "/auth/v1/user"), ("POST", "/auth/v1/signup")))
    if kind == "storage":
        return m.pick("GET", "GET", "POST"), f"/storage/v1/object/public/{table}/{m.dice.randint(1, 400)}.png"
    if kind == "realtime":
        return "GET", "/realtime/v1/websocket"
    return "POST", f"/functions/v1/{m.pick('send-mail', 'checkout', 'resize-image')}"


def _status(m: Moment, path: str) -> int:
    if m.chance(0.35 if m.is_bad else 0.012):
        return m.dice.choice((500, 502, 503, 504))
    if m.chance(0.06):
        return m.dice.choice((400, 401, 403, 404, 409, 429))
    return 101 if "websocket" in path else m.dice.choice((200, 200, 200, 201, 204, 206))


def _postgres(m: Moment) -> Body:
    trouble = m.chance(0.4 if m.is_bad else 0.08)
    severity, state, message = m.dice.choice(_DATABASE_TROUBLE if trouble else _DATABASE_NEWS)
    return {
        "event_message": message,
        "project": m.project,
        "metadata": {
            "host": f"db-{m.project}",
            "parsed": {
                "error_severity": severity,
                "sql_state_code": state,
                "backend_type": "client backend",
                "command_tag": m.pick("SELECT", "INSERT", "UPDATE", "authentication"),
                "connection_from": f"{m.address()}:{m.dice.randint(30_000, 60_000)}",
                "database_name": "postgres",
                "user_name": m.pick("authenticator", "supabase_admin", "postgres"),
                "process_id": m.dice.randint(1000, 90_000),
                "session_id": f"{m.dice.getrandbits(52):013x}",
                "session_line_num": m.dice.randint(1, 40),
                "query_id": m.dice.getrandbits(48),
            },
        },
    }


def _function_relay(m: Moment) -> Body:
    name = m.pick("send-mail", "checkout", "resize-image")
    status = m.dice.choice((500, 504, 546)) if m.chance(0.3 if m.is_bad else 0.03) else 200
    host = f"{m.project}.functions.example.co"
    return {
        "event_message": f"POST | {status} | https://{host}/{name}",
        "metadata": {
            "project_ref": m.project,
            "function_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
            "deployment_id": f"{m.project}_{name}_3",
            "version": "3",
            "execution_time_ms": m.milliseconds(180),
            "request": {"method": "POST", "pathname": f"/{name}", "host": host, "url": f"https://{host}/{name}"},
            "response": {"status_code": status},
        },
    }


def _function(m: Moment) -> Body:
    name = m.pick("send-mail", "checkout", "resize-image")
    kind, level, message = m.dice.choice(_FUNCTION_NEWS)
    return {
        "event_message": message,
        "metadata": {
            "project_ref": m.project,
            "function_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
            "execution_id": m.uuid(),
            "deployment_id": f"{m.project}_{name}_3",
            "event_type": kind,
            "level": level,
            "region": m.pick("eu-central-1", "us-east-1"),
            "version": "3",
        },
    }


def _auth(m: Moment) -> Body:
    action, path, status = m.dice.choice(_LOGINS)
    level = "error" if status >= 500 else "warning" if status >= 400 else "info"
    user = f"user{m.dice.randint(1, 90)}@example.com"
    metadata: Body = {
        "component": "api",
        "level": level,
        "method": "POST",
        "path": path,
        "status": status,
        "msg": "request completed",
        "remote_addr": m.address(),
        "request_id": m.uuid(),
        "duration": m.milliseconds(40) * 1_000_000,
        "auth_event": {"action": action, "actor_username": user, "log_type": "account"},
    }
    if status >= 400:
        metadata["error"] = f"{status}: {m.pick('Invalid login credentials', 'Token has expired or is invalid')}"
    told = {key: metadata[key] for key in ("level", "msg", "path", "status", "remote_addr")}
    return {"event_message": json.dumps(told), "project": m.project, "metadata": metadata}


def _realtime(m: Moment) -> Body:
    level, message = m.dice.choice(_REALTIME_NEWS)
    return {
        "event_message": message,
        "metadata": {
            "project": m.project,
            "external_id": m.project,
            "level": level,
            "context": {
                "application": "realtime",
                "module": "RealtimeWeb.RealtimeChannel",
                "pid": "<0.1234.0>",
                "line": 71,
            },
        },
    }


def _storage(m: Moment) -> Body:
    method, status = m.pick("GET", "POST", "DELETE"), m.dice.choice((200, 200, 200, 200, 400, 404))
    file = f"/object/public/avatars/{m.dice.randint(1, 400)}.png"
    return {
        "event_message": f"{method} | {status} | {m.address()} | {file}",
        "metadata": {
            "project": m.project,
            "tenantId": m.project,
            "reqId": m.uuid(),
            "level": "info" if status < 400 else "warning",
            "responseTime": m.milliseconds(30),
            "context": [{"host": "storage-1", "pid": m.dice.randint(10, 99)}],
        },
    }


def _postgrest(m: Moment) -> Body:
    return {"event_message": m.pick(*_REST_NEWS), "project": m.project, "metadata": {"host": f"db-{m.project}"}}


def _pgbouncer(m: Moment) -> Body:
    message = m.pick(
        f"stats: {m.dice.randint(5, 90)} xacts/s, {m.dice.randint(10, 300)} queries/s, wait {m.milliseconds(2)} us",
        f"C-0x55d: postgres/authenticator@{m.address()}:5432 login attempt: db=postgres user=authenticator tls=TLSv1.3",
        "C-0x55d: closing because: client close request (age=12s)",
    )
    return {"event_message": message, "project": m.project, "metadata": {"host": f"db-{m.project}"}}


_AGENTS = (
    "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/126.0",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 Chrome/124.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
    "python-httpx/0.27.0",
    "node",
)
_PLACES = (
    ("DE", "Berlin", "TXL"),
    ("US", "Ashburn", "IAD"),
    ("FR", "Paris", "CDG"),
    ("IN", "Mumbai", "BOM"),
    ("SG", "Singapore", "SIN"),
)
_DATABASE_NEWS = (
    ("LOG", "00000", "checkpoint complete: wrote 41 buffers (0.3%)"),
    ("LOG", "00000", "connection authorized: user=authenticator database=postgres application_name=postgrest"),
    ("LOG", "00000", "connection received: host=10.0.0.12 port=50214"),
    ("LOG", "00000", "duration: 512.204 ms  statement: select * from orders order by created_at desc"),
)  # fmt: skip
_DATABASE_TROUBLE = (
    ("ERROR", "23505", 'duplicate key value violates unique constraint "profiles_pkey"'),
    ("ERROR", "42P01", 'relation "public.invoices" does not exist'),
    ("ERROR", "57014", "canceling statement due to statement timeout"),
    ("FATAL", "53300", "remaining connection slots are reserved for roles with the SUPERUSER attribute"),
)
_FUNCTION_NEWS = (
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
_REALTIME_NEWS = (
    ("info", "Subscribed to channel realtime:public:messages"),
    ("info", "Connected users 12, channels 31"),
    ("warning", "Channel join rate limit reached"),
    ("error", "Replication slot is already in use, retrying in 5 s"),
)
_REST_NEWS = (
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
