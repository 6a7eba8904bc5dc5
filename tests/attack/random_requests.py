"""A generator of random requests to every route, with unusual headers, parameters and bodies; one for each seed."""

import gzip
import json
import random
import re
import zlib
from typing import Final
from urllib.parse import quote_from_bytes

import msgspec

from cordwood.web.routes import PATTERN_ROUTES, ROUTES_BY_PATH

METHODS: Final = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "get", "M-SEARCH", "")
NAMES: Final = (
    *(b"logs.all", b"usage.api-counts", b"cloudflare.logs.prod", b"postgres.logs", b"1", b"0", b"-1", b"9" * 5000, b"a" * 3000),
    *(b"%00", b"%ff%fe", b"%", b"%2", b"%zz", b"..", b"%2e%2e%2f", b"a%2fb", b"'", b"`", b"name", b"\xff", b"caf%C3%A9", b"main.js"),
    *(b"29245a19-d43d-506d-b420-b1d201e0b1b3", b"explore.js", b"style.css", b"*", b"(", b"%F0%9F%98%80", b" ", b"", b"."),
)  # fmt: skip
PARAMETERS: Final = (
    *(b"project", b"sql", b"lql", b"interval", b"iso_timestamp_start", b"iso_timestamp_end", b"limit", b"source_name", b"source"),
    *(b"api_key", b"apikey", b"collection_name", b"format", b"variant", b"from", b"to", b"pg_sql", b"bq_sql", b"ch_sql", b"redact"),
    *(b"query", b"offset", b"page", b"", b"a[]", b"%ff", b"x", b"token", b"language", b"sub_query", b"until", b"since"),
)  # fmt: skip
VALUES: Final = (
    *(b"default", b"hourly", b"1day", b"cloudflare.logs.prod", b"json", b"dot", b"10", b"0", b"-1", b"1e9", b"9" * 5000, b"NaN", b""),
    *(b"2024-01-01T00:00:00Z", b"9999-12-31T23:59:59Z", b"0000-00-00", b"soon", b"%00", b"%ff", b"%", b"%zz", b"+", b"%F0%9F%98%80"),
    *(b"select+1+as+x", b"select+*+from+edge_logs", b"select", b"select+'%00'+as+x", b"f:edge_logs", b"f:edge_logs+c:count(*)"),
    *(b"m.a:~(", b"(", b"[[", b"%ED%A0%80", b"true", b"null", b"%C2%B2", b"%D9%A1", b"select+@project+as+p", b"a" * 10_000),
)  # fmt: skip
HEADERS: Final = (
    *("content-type", "content-type", "content-encoding", "accept", "accept", "accept-encoding", "authorization", "cookie", "origin"),
    *("if-none-match", "if-modified-since", "range", "lf-endpoint-redact-pii", "x-request-id", "traceparent", "content-length", "host"),
    *("x-forwarded-for", "expect", "cache-control", "prefer", "logplex-msg-count", "logplex-frame-id", "logplex-drain-token"),
    *("ce-id", "ce-type", "ce-source", "ce-specversion", "ce-time", "access-control-request-method", "user-agent", "upgrade", "te"),
    *("access-control-request-headers", "x-api-key", "x-collection", "connection", "transfer-encoding", "logflare-override", ""),
)  # fmt: skip
HEADER_VALUES: Final = (
    *(b"application/json", b"application/x-ndjson", b"application/x-protobuf", b"application/msgpack", b"application/bert"),
    *(b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"text/plain", b"text/csv", b"application/logplex-1"),
    *(b"application/vnd.apache.parquet", b"application/vnd.apache.arrow.stream", b"application/cloudevents+json", b"text/event-stream"),
    *(b"application/json; charset=utf-16", b"application/json;q=0, */*;q=x", b"*/*", b";;;", b"/", b"a/b/c", b"application/json,"),
    *(b"application/reports+json", b"application/cloudevents-batch+json", b"application/syslog+msgpack", b"text/html;q=0.1, */*;q=2"),
    *(b"gzip", b"deflate", b"zstd", b"br", b"identity", b"gzip, gzip", b"gzip;q=0", b"x" * 5000, b"\xff\xfe", b"\x00", b"\xb2"),
    *(b"Bearer x", b"Bearer ", b"Basic eDp5", b"Basic !!!", b"Bearer a.b.c", b"true", b"hash", b"maybe", b"bytes=0-1", b"100-continue"),
    *(b"0", b"-1", b"9" * 5000, b"5", b"2024-01-01", b"Thu, 01 Jan 1970 00:00:00 GMT", b"*", b'"x"', b'W/"', b"", b" ", b"\t", b"="),
    *(b"a=b; c", b";=;", b"https://elsewhere.example", b"null", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", b"1.0"),
)  # fmt: skip

_EVENT: Final = {
    "id": "e1",
    "event_message": "m",
    "project": "default",
    "metadata": {"project": "default", "a": [1, "b", None]},
}
_OTLP: Final = {
    "resourceLogs": [
        {"scopeLogs": [{"logRecords": [{"timeUnixNano": "1", "body": {"stringValue": "x"}, "attributes": []}]}]}
    ]
}
_SYSLOG_LINE: Final = b'<134>1 2024-01-01T00:00:00Z host app 1 - [a@1 b="c"] {"x": 1}'


def _bodies() -> tuple[bytes, ...]:
    as_json: list[object] = [
        *(
            _EVENT,
            [_EVENT, _EVENT],
            {"batch": [_EVENT]},
            {"batch": 5},
            {"logs": [_EVENT]},
            _OTLP,
            [],
            {},
            0,
            None,
            "x",
            [[[]]],
            [None, 1],
        ),
        *(
            {"sql": "select 1 as x"},
            {"sql": 5},
            {"lql": "f:edge_logs", "project": "default"},
            {"project": {"a": 1}},
            {"sql": None},
        ),
        *(
            {"scopes": "query", "pins": {"project": "p"}},
            {"scopes": 5},
            {"pins": []},
            {"note": "\ud800"},
            {"scopes": "private", "expires": "x"},
        ),
        *(
            {"timestamp": 1e300, "metadata": [[1]]},
            {"resourceLogs": 5},
            {"resourceLogs": [{"scopeLogs": [None]}]},
            {"resourceLogs": [[]]},
        ),
        *(
            {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {}},
            [{"type": "csp", "body": 5}],
            {"id": 9**99},
        ),
        {"id": "x", "timestamp": 1, "ingested_at": 2, "project": "p", "metadata": "{"},
    ]
    written = [json.dumps(event).encode() for event in as_json]
    packed = [msgspec.msgpack.encode(item) for item in (_EVENT, [_EVENT], {"batch": [_EVENT]}, 5)]
    return (
        *written, *packed, b"\n".join(written), b"\n\n" + written[0] + b"\r\n{", b"", b"{", b"[", b'{"a":1e999}', b"\xff\xfe{", b"\x00" * 100,
        b"[" * 2000, b'{"a":' * 2000, b'"\\ud800"', b"sql=select+1+as+x&project=default", b"a=%ff&&=&%", b"&" * 3000, b"83 " + _SYSLOG_LINE + b"\n",
        _SYSLOG_LINE, b"<999>bad", b"5 <13>", b"99999999999 x", b"\n" * 3000, b"\x0a\x05\x12\x03\x12\x01\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x08" * 50,
        b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--", b"\x83h\x03", b"\xef\xbb\xbf" + written[0], b"id,a\n1,2\n",
    )  # fmt: skip


BODIES: Final = _bodies()


class RawRequest(msgspec.Struct, frozen=True):
    """The parts of an HTTP request in the form in which ASGI passes them to the application."""

    method: str
    path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    chunks: tuple[bytes, ...]


def random_request(seed: str, keys: tuple[str, ...]) -> RawRequest:
    """Return the request that belongs to this seed. Most requests have one of the keys."""
    rng = random.Random(seed)
    headers = {rng.choice(HEADERS).encode(): rng.choice(HEADER_VALUES) for _ in range(rng.randrange(5))}
    if rng.random() < 0.9:
        headers[b"x-api-key"] = rng.choice(keys).encode()
    body = _body(rng, headers)
    cut = rng.randrange(len(body) + 1)
    chunks = (body[:cut], body[cut:]) if rng.random() < 0.3 else (body,)
    path, methods = _path(rng)
    sent_methods = [allowed for allowed in methods if allowed != "OPTIONS"]
    method = rng.choice(sent_methods if rng.random() < 0.9 else METHODS)
    return RawRequest(method, path, _query(rng), tuple(headers.items()), chunks)


# Patterns of the parts of a route: an optional group, a capturing group, a name in such a group, and alternatives.
_OPTIONAL_GROUP: Final = re.compile(rb"\(\?:[^()]*\)\?")
_CAPTURING_GROUP: Final = re.compile(rb"\(([^()]+)\)")
_NAME_PATTERN: Final = re.compile(rb"\[\^/\]\+|\.\+")
_ALTERNATIVES: Final = re.compile(rb"\(\?:([^()]*\|[^()]*)\)")


def _path(rng: random.Random) -> tuple[bytes, tuple[str, ...]]:
    """Return a random path of a route, and the methods of the route; a few paths are slightly changed."""
    if rng.random() < 0.4:
        path = rng.choice(tuple(ROUTES_BY_PATH))
        methods = ROUTES_BY_PATH[path].methods
    else:
        path_pattern, route = rng.choice((*PATTERN_ROUTES, *PATTERN_ROUTES[:1] * 4))
        plain = _ALTERNATIVES.sub(
            lambda alternatives: rng.choice(alternatives[1].split(b"|")), _OPTIONAL_GROUP.sub(b"", path_pattern.pattern)
        )
        path = _CAPTURING_GROUP.sub(lambda placeholder: _NAME_PATTERN.sub(lambda _: _name(rng), placeholder[1]), plain)
        methods = route.methods
    chance = rng.random()
    if chance < 0.04:
        return path + b"/", methods
    if chance < 0.08:
        return path.replace(b"/", b"//", 1), methods
    return quote_from_bytes(path).encode() if chance < 0.1 else path, methods


def _name(rng: random.Random) -> bytes:
    return rng.choice(NAMES if rng.random() < 0.5 else NAMES[:4])


def _query(rng: random.Random) -> bytes:
    pairs = [rng.choice(PARAMETERS) + b"=" + rng.choice(VALUES) for _ in range(rng.randrange(6))]
    if rng.random() < 0.5:
        pairs.append(
            rng.choice((b"project=default", b"source_name=cloudflare.logs.prod", b"sql=select+id+from+edge_logs"))
        )
    joined = b"&".join(pairs)
    return joined if rng.random() < 0.95 else joined.replace(b"=", b"", 1) + b"&&;?#"


def _body(rng: random.Random, headers: dict[bytes, bytes]) -> bytes:
    body = rng.choice(BODIES)
    chance = rng.random()
    if chance < 0.1:
        at = rng.randrange(len(body) + 1)
        body = body[:at] + rng.randbytes(rng.randrange(4)) + body[at + rng.randrange(3) :]
    elif chance < 0.25:
        coding, packed = rng.choice(
            ((b"gzip", gzip.compress(body)), (b"deflate", zlib.compress(body)), (b"zstd", body))
        )
        headers[b"content-encoding"] = coding
        body = packed if rng.random() < 0.7 else packed[: rng.randrange(len(packed) + 1)]
    return body
