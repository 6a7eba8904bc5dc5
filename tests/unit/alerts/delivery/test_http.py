"""Delivery over HTTP: request formats, refusals, timeouts, invalid answers, TLS, and checked name resolution."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from cordwood.alerts.delivery.connections import read_address_policy
from cordwood.alerts.delivery.deliverer import NotificationDeliverer, parse_retry_after_seconds, webhook_headers
from cordwood.alerts.delivery.targets import read_targets
from cordwood.alerts.notification import DeliveryFailed, Notification, NotifiedState
from tests.certificates import Authority
from tests.machine_speed import scaled
from tests.unit.alerts.delivery.receivers import Answer, change, http_receiver, notification, raw_receiver

Script = Callable[[socket.socket, threading.Event], None]


def make_deliverer(
    address: str, *, refuse: str = "", seconds: float = 5.0, key: bytes = b"", tls: ssl.SSLContext | None = None
) -> NotificationDeliverer:
    targets = read_targets(f"team = {address}")
    return NotificationDeliverer(
        targets, policy=read_address_policy(refuse), signing_key=key, send_seconds=seconds, tls=tls
    )


def deliver(sender: NotificationDeliverer, outgoing: Notification | None = None) -> None:
    sender.deliver(sender.targets_by_name["team"], outgoing or notification())


def delivery_failure(sender: NotificationDeliverer, outgoing: Notification | None = None) -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as raised:
        deliver(sender, outgoing)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    return raised.value


def answer_always(status: int, body: bytes = b"", **headers: str) -> Callable[[int], Answer]:
    return lambda _: (status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def test_a_webhook_is_posted_and_signed() -> None:
    with http_receiver() as receiver:
        deliver(make_deliverer(f"webhook+http://bob:pa%3Ass@127.0.0.1:{receiver.port}/hook?a=b", key=b"secret"))
    (request,) = receiver.received
    assert request.path == "/hook?a=b"
    assert json.loads(request.body)["data"]["alert"] == "too-many-errors"
    assert request.headers["Host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Authorization"] == "Basic Ym9iOnBhOnNz"
    sent = int(request.headers["webhook-timestamp"])
    assert abs(time.time() - sent) < 60
    expected = webhook_headers(b"secret", notification().id, sent, request.body)
    assert {name: request.headers[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("slack+http://127.0.0.1:{}/services/x", "/services/x"),
        ("alertmanager+http://127.0.0.1:{}/am", "/am/api/v2/alerts"),
    ],
)
def test_other_kinds_of_targets_are_posted_to_unsigned(address: str, path: str) -> None:
    with http_receiver() as receiver:
        deliver(make_deliverer(address.format(receiver.port), key=b"secret"))
    (request,) = receiver.received
    assert request.path == path
    assert not [name for name in request.headers if name.lower().startswith("webhook-")]


def test_pagerduty_gets_one_request_per_change() -> None:
    changes = [change(fingerprint=str(number)) for number in range(30)]
    with http_receiver(answer_always(202, b'{"status":"success"}')) as receiver:
        deliver(make_deliverer(f"pagerduty+http://127.0.0.1:{receiver.port}/q?routing_key=KEY"), notification(*changes))
    events = [json.loads(request.body) for request in receiver.received]
    assert [event["dedup_key"] for event in events] == [str(number) for number in range(20)]
    assert {event["payload"]["custom_details"]["further_changes_not_sent"] for event in events} == {10}
    assert {request.path for request in receiver.received} == {"/q"}


@pytest.mark.parametrize("body", [b"ok", b"x" * 5000])
def test_pagerduty_gets_all_changes_when_connections_close(body: bytes) -> None:
    changes = [change(fingerprint=str(number), state=NotifiedState.RESOLVED) for number in range(5)]
    with http_receiver(answer_always(202, body), version="HTTP/1.0" if body == b"ok" else "HTTP/1.1") as receiver:
        deliver(make_deliverer(f"pagerduty+http://127.0.0.1:{receiver.port}/q?routing_key=KEY"), notification(*changes))
    assert [json.loads(request.body)["dedup_key"] for request in receiver.received] == ["0", "1", "2", "3", "4"]


def test_a_failure_of_one_request_fails_the_delivery() -> None:
    with http_receiver(lambda number: (429 if number == 2 else 202, {"Retry-After": "7"}, b"slow down")) as receiver:
        sender = make_deliverer(f"pagerduty+http://127.0.0.1:{receiver.port}/q?routing_key=KEY")
        failed = delivery_failure(sender, notification(*[change(fingerprint=str(number)) for number in range(5)]))
    assert (failed.reason, failed.retry_after_seconds) == ("127.0.0.1 answered 429 Too Many Requests: slow down.", 7.0)
    assert len(receiver.received) == 3


@pytest.mark.parametrize(
    ("answer", "reason", "retry_after"),
    [
        (
            answer_always(500, b"broken\r\n\x1b[2J\xe2\x80\xaenow\xff"),
            "answered 500 Internal Server Error: broken [2Jnow\ufffd.",
            None,
        ),
        (answer_always(503, b"", Retry_After="120"), "answered 503 Service Unavailable.", 120.0),
        (answer_always(429, b"", Retry_After="-5"), "answered 429 Too Many Requests.", None),
        (answer_always(429, b"", Retry_After="9" * 400), "answered 429 Too Many Requests.", 86400.0),
        (
            answer_always(302, b"", Location="http://127.0.0.1:1/"),
            "answered 302 Found. Redirects are not followed.",
            None,
        ),
        (answer_always(404, b"y" * 5000), "… (cut from", None),
        (answer_always(403, b"no team/SECRETPATH here"), "403 Forbidden: no team/… here.", None),
    ],
    ids=["500", "503", "negative", "far", "redirect", "long", "secret"],
)
def test_an_error_status_is_reported_without_secrets(
    answer: Callable[[int], Answer], reason: str, retry_after: float | None
) -> None:
    with http_receiver(answer) as receiver:
        failed = delivery_failure(make_deliverer(f"slack+http://127.0.0.1:{receiver.port}/team/SECRETPATH"))
    assert reason in failed.reason
    assert "SECRET" not in failed.reason
    assert len(failed.reason) <= 400
    assert failed.retry_after_seconds == retry_after
    assert len(receiver.received) == 1


def test_retry_after_may_be_a_date() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    later = format_datetime(now + timedelta(seconds=90), usegmt=True)
    earlier = format_datetime(now - timedelta(seconds=90), usegmt=True)
    assert parse_retry_after_seconds(later, now.timestamp()) == 90.0
    assert parse_retry_after_seconds(earlier, now.timestamp()) == 0.0
    assert parse_retry_after_seconds("Thu, 01 Jan 2026 00:00:30 -0000", now.timestamp()) == 30.0


@pytest.mark.parametrize(
    "text", [None, "", "soon", "1.5", "²", "Thu, 99 Foo 2026 00:00:00", "Thu, 01 Jan 99999 00:00:00 GMT", "\x00"]
)
def test_an_invalid_retry_after_is_ignored(text: str | None) -> None:
    assert parse_retry_after_seconds(text, 0.0) is None


def wait_silently(_: socket.socket, ended: threading.Event) -> None:
    ended.wait(10)


def close_at_once(_: socket.socket, __: threading.Event) -> None:
    pass


def send_head_slowly(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while not ended.wait(0.05):
        connection.sendall(b"x")


def send_body_slowly(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\n")
    while not ended.wait(0.05):
        connection.sendall(b"x")


def send_continues_slowly(connection: socket.socket, ended: threading.Event) -> None:
    while not ended.wait(0.05):
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


def send_endless_head(connection: socket.socket, ended: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not ended.is_set():
        connection.sendall(b"X: " + b"y" * 5000 + b"\r\n")


def send_text_that_is_not_http(connection: socket.socket, _: threading.Event) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH\r\n")
    connection.recv(65536)


@pytest.mark.parametrize(
    "script", [wait_silently, send_head_slowly, send_continues_slowly], ids=lambda script: script.__name__
)
def test_an_incomplete_answer_times_out(script: Script) -> None:
    with raw_receiver(script) as port:
        began = time.monotonic()
        failed = delivery_failure(make_deliverer(f"webhook+http://127.0.0.1:{port}/", seconds=0.5))
        assert 0.4 < time.monotonic() - began < scaled(3)
    assert failed.reason == "127.0.0.1 gave no complete answer within 0.5 s."


def test_an_error_with_an_incomplete_body_is_reported_by_its_status() -> None:
    with raw_receiver(send_body_slowly) as port:
        began = time.monotonic()
        failed = delivery_failure(make_deliverer(f"webhook+http://127.0.0.1:{port}/", seconds=0.5))
        assert time.monotonic() - began < scaled(3)
    assert "answered 500 No" in failed.reason


def test_a_success_with_an_incomplete_body_is_a_success() -> None:
    def script(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        ended.wait(10)

    with raw_receiver(script) as port:
        began = time.monotonic()
        deliver(make_deliverer(f"webhook+http://127.0.0.1:{port}/"))
        assert time.monotonic() - began < scaled(3)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (close_at_once, "closed the connection without an answer"),
        (send_endless_head, "failed: the answer is too long|answer of 127.0.0.1 is not HTTP"),
        (send_text_that_is_not_http, "answer of 127.0.0.1 is not HTTP: BadStatusLine"),
    ],
    ids=["hang_up", "endless_head", "no_http"],
)
def test_an_invalid_answer_is_reported(script: Script, reason: str) -> None:
    with raw_receiver(script) as port, pytest.raises(DeliveryFailed, match=reason):
        deliver(make_deliverer(f"webhook+http://127.0.0.1:{port}/"))


def test_a_refused_connection_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert (
        delivery_failure(make_deliverer(f"webhook+http://127.0.0.1:{port}/")).reason
        == "Sending to 127.0.0.1 failed: Connection refused."
    )


def context_that_trusts(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


def test_tls_certificates_are_verified_for_the_host_name(tmp_path: Path, resolver: "Resolver") -> None:
    authority = Authority(tmp_path)
    resolver.names = {"hooks.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}
    with http_receiver(certificate=authority.sign_certificate(name="hooks.test")) as receiver:
        deliver(make_deliverer(f"webhook+https://hooks.test:{receiver.port}/", tls=context_that_trusts(authority)))
        deliver(make_deliverer(f"webhook+https://127.0.0.1:{receiver.port}/", tls=context_that_trusts(authority)))
        failed = delivery_failure(
            make_deliverer(f"webhook+https://other.test:{receiver.port}/", tls=context_that_trusts(authority))
        )
        assert "certificate of other.test is not accepted: Hostname mismatch" in failed.reason
        failed = delivery_failure(make_deliverer(f"webhook+https://hooks.test:{receiver.port}/"))
        assert "certificate of hooks.test is not accepted: " in failed.reason
    assert [request.headers["Host"] for request in receiver.received] == [
        f"hooks.test:{receiver.port}",
        f"127.0.0.1:{receiver.port}",
    ]


def test_a_tls_handshake_that_hangs_or_fails_is_reported() -> None:
    with raw_receiver(wait_silently) as port:
        assert (
            "no complete answer within 0.5 s"
            in delivery_failure(make_deliverer(f"webhook+https://127.0.0.1:{port}/", seconds=0.5)).reason
        )
    with http_receiver() as receiver:
        assert (
            "TLS connection to 127.0.0.1 failed"
            in delivery_failure(make_deliverer(f"webhook+https://127.0.0.1:{receiver.port}/")).reason
        )


class Resolver:
    """A replacement of getaddrinfo that resolves fixed names and records the look-ups."""

    def __init__(self) -> None:
        self.names: Mapping[str, list[str]] = {}
        self.resolved: list[str] = []
        self.real = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *args: Any, **options: Any) -> Any:
        self.resolved.append(host)
        if host not in self.names:
            return self.real(host, port, *args, **options)
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in self.names[host]
        ]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver_of_names = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver_of_names)
    return resolver_of_names


@contextmanager
def assert_never_connected() -> Iterator[int]:
    accepted = []
    with raw_receiver(lambda connection, _: accepted.append(connection)) as port:
        yield port
    assert not accepted


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "0",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "[::ffff:127.0.0.1]",
    ],
)
@pytest.mark.parametrize("form", ["webhook+http://{}:{}/", "smtp://{}:{}/?from=a@x.test&to=b@y.test"])
def test_loopback_is_refused_in_every_spelling(host: str, form: str) -> None:
    with assert_never_connected() as port:
        failed = delivery_failure(make_deliverer(form.format(host, port), refuse="loopback,link-local"))
    # Some resolvers do not resolve `localhost.` with a dot at its end.
    is_refused = "is refused by alerts.refuse_addresses" in failed.reason and "is a loopback address" in failed.reason
    assert is_refused or (host == "localhost." and "cannot be resolved" in failed.reason)


def test_the_checked_address_is_used_without_a_second_look_up(resolver: Resolver) -> None:
    with http_receiver() as receiver:
        resolver.names = {"hooks.test": ["127.0.0.1"]}
        deliver(make_deliverer(f"webhook+http://hooks.test:{receiver.port}/", refuse="link-local"))
        assert resolver.resolved == ["hooks.test"]
    assert receiver.received[0].headers["Host"] == f"hooks.test:{receiver.port}"


def test_a_name_with_only_refused_addresses_is_refused(resolver: Resolver) -> None:
    with assert_never_connected() as port:
        resolver.names = {"hooks.test": ["127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "224.0.0.1"]}
        failed = delivery_failure(
            make_deliverer(f"webhook+http://hooks.test:{port}/", refuse="loopback,link-local,private")
        )
    assert failed.reason == (
        "hooks.test is refused by alerts.refuse_addresses: 127.0.0.1 is a loopback address,"
        " 169.254.169.254 is a link-local address, ::ffff:10.0.0.1 is a private address."
    )


def test_an_allowed_address_among_refused_ones_is_used(resolver: Resolver) -> None:
    with http_receiver() as receiver:
        resolver.names = {"hooks.test": ["169.254.169.254", "127.0.0.1"]}
        deliver(make_deliverer(f"webhook+http://hooks.test:{receiver.port}/", refuse="link-local"))
    assert len(receiver.received) == 1


def test_the_next_address_is_tried_after_a_refused_connection(resolver: Resolver) -> None:
    with http_receiver() as receiver:
        resolver.names = {"hooks.test": ["127.0.0.2", "127.0.0.1"]}
        deliver(make_deliverer(f"webhook+http://hooks.test:{receiver.port}/"))
    assert len(receiver.received) == 1


def test_a_name_that_cannot_be_resolved_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_unknown_name(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", raise_unknown_name)
    failed = delivery_failure(make_deliverer("webhook+http://hooks.test/"))
    assert failed.reason == "The name hooks.test cannot be resolved: Name or service not known."


def test_a_hanging_look_up_times_out_and_look_up_threads_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait(30) and [])
    sender = make_deliverer("webhook+http://hooks.test/", seconds=0.05)
    try:
        reasons = [delivery_failure(sender).reason for _ in range(20)]
        assert reasons[0] == "The name hooks.test was not resolved within 0.05 s."
        assert reasons[-1] == "The name hooks.test was not looked up: 16 look-ups are unanswered."
        lookups = [thread for thread in threading.enumerate() if thread.name == "alerts-lookup"]
        assert len(lookups) == 16
    finally:
        ended.set()
    for thread in lookups:
        thread.join(5)


def test_a_failure_to_start_a_thread_is_reported_and_temporary(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_to_start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with http_receiver() as receiver:
        sender = make_deliverer(f"webhook+http://127.0.0.1:{receiver.port}/", seconds=0.5)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail_to_start)
            reasons = {delivery_failure(sender).reason for _ in range(20)}
        deliver(sender)
    assert reasons == {"The system allows no further thread."}


def test_proxy_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with assert_never_connected() as port, http_receiver() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
        deliver(make_deliverer(f"webhook+http://127.0.0.1:{receiver.port}/"))
    assert len(receiver.received) == 1


def test_a_delivery_leaves_no_thread() -> None:
    with http_receiver() as receiver:
        deliver(make_deliverer(f"webhook+http://127.0.0.1:{receiver.port}/"))
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("alerts-")]
