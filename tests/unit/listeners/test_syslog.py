"""The syslog listener over TCP, TLS and UDP: storage, stream mapping, shutdown, back pressure and certificates."""

import asyncio
import contextlib
import logging.handlers
import shutil
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from cordwood.errors import BadSetting, OutOfDisk
from cordwood.ingest.accept import BodyPartForStream
from cordwood.listeners import connection, syslog
from cordwood.listeners.listeners import Listeners, bind_listeners
from cordwood.model.key import KeyTerms
from cordwood.settings.settings import ListenSettings
from tests.certificates import Authority
from tests.unit.listeners.conftest import (
    ListenerSite,
    close_writer,
    connect,
    port_of,
    read_to_end,
    send_datagrams,
    settings_of,
    until,
)

Run = Callable[..., None]
TCP_LISTENER = ListenSettings(syslog="tcp://127.0.0.1:0", syslog_stream="postgres.logs")
EDGE_STREAM = "cloudflare.logs.prod"


def syslog_line(text: str, app: str = "app") -> bytes:
    return f"<13>1 2026-01-02T03:04:05Z host {app} 1 - - {text}\n".encode()


def test_lines_and_counted_messages_are_stored_with_their_fields(site: ListenerSite, with_listeners: Run) -> None:
    async def handle(listeners: Listeners) -> None:
        _, lines = await connect(listeners)
        lines.write(syslog_line("tcp-1") + syslog_line("tcp-2") + b"no syslog\n" + syslog_line("tcp-3")[:-1])
        _, counts = await connect(listeners)
        counts.write(
            b"".join(b"%d %s" % (len(item), item) for item in (syslog_line("tcp-4\nand"), syslog_line("tcp-5")))
        )
        await close_writer(lines)
        await close_writer(counts)
        await until(lambda: stored_rows(site, "tcp-%", 5))

    with_listeners(TCP_LISTENER, handle)
    rows = asyncio.run(
        site.query("select metadata from `postgres.logs` where event_message like 'tcp-%' order by event_message")
    )
    (first,) = rows[0]["metadata"]
    assert (first["appname"], first["level"], first["peer"]) == ("app", "notice", "127.0.0.1")
    (quarantined,) = asyncio.run(site.query("select metadata from `_quarantine`"))
    assert (quarantined["metadata"][0]["text"], quarantined["metadata"][0]["form"]) == ("no syslog", "syslog")


async def stored_rows(site: ListenerSite, pattern: str, count: int, stream: str = "postgres.logs") -> bool:
    sql = (
        f"select count(*) as n, count(distinct event_message) as d from `{stream}` where event_message like '{pattern}'"
    )
    (row,) = await site.query(sql)
    assert row["n"] <= count
    return bool(row["n"] == row["d"] == count)


def test_the_app_name_selects_the_stream_with_a_default_for_others(site: ListenerSite, with_listeners: Run) -> None:
    async def handle(listeners: Listeners) -> None:
        _, sender = await connect(listeners)
        sender.write(
            syslog_line("mapped-1", "nginx-a")
            + syslog_line("mapped-2", "cron")
            + syslog_line("mapped-3", EDGE_STREAM)
            + b"<13>mapped-4\n"
        )
        await close_writer(sender)
        await until(lambda: stored_rows(site, "mapped-%", 2, EDGE_STREAM))
        await until(lambda: stored_rows(site, "mapped-%", 2))

    with_listeners(
        ListenSettings(syslog="tcp://127.0.0.1:0"),
        handle,
        stream_map=f"nginx-*={EDGE_STREAM}",
        default_stream="postgres.logs",
    )


def test_the_pins_of_the_listener_s_key_apply(site: ListenerSite, with_listeners: Run) -> None:
    keys = site.components.key_store
    key = keys.create(KeyTerms(frozenset({"ingest:source:postgres.logs"}), pins={"project": "pinned"})).secret

    async def handle(listeners: Listeners) -> None:
        _, sender = await connect(listeners)
        sender.write(syslog_line("pinned-1"))
        await close_writer(sender)
        await until(lambda: stored_rows(site, "pinned-%", 1))

    with_listeners(ListenSettings(syslog="tcp://127.0.0.1:0", syslog_stream="postgres.logs", syslog_key=key), handle)
    (row,) = asyncio.run(site.query("select project from `postgres.logs` where event_message = 'pinned-1'"))
    assert row["project"] == "pinned"


def test_lines_that_were_read_are_stored_at_shutdown(site: ListenerSite, with_listeners: Run) -> None:
    """Stop the listener while the sender's connection is open and its last line is incomplete."""
    senders: list[socket.socket] = []

    async def handle(listeners: Listeners) -> None:
        sender = socket.create_connection(("127.0.0.1", port_of(listeners)))
        senders.append(sender)
        sender.sendall(
            b"".join(syslog_line(f"stop-{number}") for number in range(300)) + b"<13>1 - - - - - stop-unfinished"
        )
        await until(has_read)

    before = site.event_count("received")

    async def has_read() -> bool:
        return site.event_count("received") == before + 300

    with_listeners(TCP_LISTENER, handle)
    senders[0].close()
    assert asyncio.run(stored_rows(site, "stop-%", 300))


def test_a_full_disk_pauses_reading_and_no_line_is_lost(site: ListenerSite, with_listeners: Run) -> None:
    intake = site.components.services.intake
    store, refuses = intake.store_body_parts, True

    async def raise_disk_full(*arguments: object, **options: object) -> object:
        if refuses:
            raise OutOfDisk("The disk is full.")
        return await store(*arguments, **options)  # type: ignore[arg-type]

    async def handle(listeners: Listeners) -> None:
        nonlocal refuses
        sender = socket.create_connection(("127.0.0.1", port_of(listeners)))
        sender.settimeout(0)
        sent, block = 0, b"".join(syslog_line(f"full-{'x' * 1000}") for _ in range(100))
        stalled = 0
        while stalled < 20:
            try:
                sent += sender.send(block[sent % len(block) :])
                stalled = 0
            except BlockingIOError:
                stalled += 1
                await asyncio.sleep(0.02)
        assert sent < 100 * 2**20
        assert any("keeps trying" in message and "disk is full" in message for message in site.notes.messages)
        refuses = False
        sender.settimeout(20)
        missing_bytes = -sent % len(block)
        await asyncio.to_thread(sender.sendall, block[len(block) - missing_bytes :])
        sender.close()
        lines = (sent + missing_bytes) // len(block) * 100

        async def all_stored() -> bool:
            (row,) = await site.query("select count(*) as n from `postgres.logs` where event_message like 'full-%'")
            return bool(row["n"] == lines)

        await until(all_stored)

    with mock.patch.object(intake, "store_body_parts", raise_disk_full):
        with_listeners(TCP_LISTENER, handle)


def test_lines_that_were_read_are_stored_after_their_connection_is_replaced(
    site: ListenerSite, with_listeners: Run
) -> None:
    intake = site.components.services.intake
    store, may_store, reached = intake.store_body_parts, asyncio.Event(), asyncio.Event()

    async def store_when_permitted(*arguments: object, **options: object) -> object:
        reached.set()
        await may_store.wait()
        return await store(*arguments, **options)  # type: ignore[arg-type]

    async def handle(listeners: Listeners) -> None:
        _, sender = await connect(listeners)
        sender.write(b"".join(syslog_line(f"cut-{number}") for number in range(10)))
        await reached.wait()
        for sender_connection in listeners._connection_budget.open_connections:
            sender_connection.abort()
        may_store.set()
        await until(lambda: stored_rows(site, "cut-%", 10))
        await close_writer(sender)

    with mock.patch.object(intake, "store_body_parts", store_when_permitted):
        with_listeners(TCP_LISTENER, handle)


def test_datagrams_are_stored_and_those_beyond_the_queue_are_counted(
    site: ListenerSite, with_listeners: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(listeners: Listeners) -> None:
        port = port_of(listeners)
        handler = logging.handlers.SysLogHandler(("127.0.0.1", port), logging.handlers.SysLogHandler.LOG_LOCAL3)
        handler.emit(logging.LogRecord("x", logging.ERROR, "", 0, "udp-1", None, None))
        handler.close()
        send_datagrams(port, syslog_line("udp-2"), syslog_line("udp-3\nand more"))
        await until(lambda: stored_rows(site, "udp-%", 3))
        before = site.event_count("dropped")
        monkeypatch.setattr(syslog, "MAX_WAITING_DATAGRAMS", 0)
        send_datagrams(port, syslog_line("udp-4"))

        async def dropped() -> bool:
            return site.event_count("dropped") == before + 1

        await until(dropped)

    with_listeners(ListenSettings(syslog="udp://127.0.0.1:0", syslog_stream="postgres.logs"), handle)
    assert any("1 datagrams were dropped" in message for message in site.notes.messages)


def test_a_stalled_stream_does_not_delay_datagrams_of_others(site: ListenerSite, with_listeners: Run) -> None:
    intake = site.components.services.intake
    store, may_store = intake.store_body_parts, asyncio.Event()

    async def store_when_permitted(parts: list[BodyPartForStream], *arguments: object, **options: object) -> object:
        if parts[0].stream.name == "postgres.logs":
            await may_store.wait()
        return await store(parts, *arguments, **options)  # type: ignore[arg-type]

    async def handle(listeners: Listeners) -> None:
        send_datagrams(port_of(listeners), syslog_line("slow-1"))
        await asyncio.sleep(0.05)
        send_datagrams(port_of(listeners), *(syslog_line(f"fast-{number}", EDGE_STREAM) for number in range(20)))
        await until(lambda: stored_rows(site, "fast-%", 20, EDGE_STREAM))
        assert not await stored_rows(site, "slow-%", 1)
        may_store.set()
        await until(lambda: stored_rows(site, "slow-%", 1))

    with mock.patch.object(intake, "store_body_parts", store_when_permitted):
        with_listeners(ListenSettings(syslog="udp://127.0.0.1:0"), handle, default_stream="postgres.logs")


def test_datagrams_beyond_the_queue_of_one_stream_are_dropped(
    site: ListenerSite, with_listeners: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syslog, "MAX_UNSTORED_BYTES_PER_STREAM", 0)

    async def handle(listeners: Listeners) -> None:
        dropped = site.event_count("dropped")
        send_datagrams(port_of(listeners), syslog_line("much-1"))

        async def is_dropped() -> bool:
            return site.event_count("dropped") == dropped + 1

        await until(is_dropped)

    with_listeners(ListenSettings(syslog="udp://127.0.0.1:0", syslog_stream="postgres.logs"), handle)


def test_received_datagrams_are_stored_at_shutdown(site: ListenerSite, with_listeners: Run) -> None:
    async def handle(listeners: Listeners) -> None:
        send_datagrams(port_of(listeners), *(syslog_line(f"last-{number}") for number in range(50)))
        before = site.event_count("received")

        async def read() -> bool:
            receiver = listeners._open_listeners[0]._datagram_receiver  # type: ignore[attr-defined]
            return site.event_count("received") > before or receiver.unstored_count > 0

        await until(read)
        await asyncio.sleep(0)

    with_listeners(ListenSettings(syslog="udp://127.0.0.1:0", syslog_stream="postgres.logs"), handle)
    assert asyncio.run(stored_rows(site, "last-%", 50))


def test_tls_clients_with_a_certificate_are_served_and_silent_or_plain_ones_closed(
    site: ListenerSite, with_listeners: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "OVERDUE_CHECK_INTERVAL_SECONDS", 0.05)
    authority = Authority(tmp_path)
    certificate = authority.sign_certificate()
    trusting = ssl.create_default_context(cafile=str(authority.file))

    async def handle(listeners: Listeners) -> None:
        plain_reader, plain = await connect(listeners)
        plain.write(syslog_line("tls-plain") * 10)
        with contextlib.suppress(OSError):
            # The client lacks the required certificate. With TLS 1.3, the client sees the refusal only after its
            # handshake.
            await send_over_tls(listeners, trusting, syslog_line("tls-stranger"))
        trusting.load_cert_chain(certificate)
        for number in range(20):
            await send_over_tls(listeners, trusting, syslog_line(f"tls-{number}"))
        assert await read_to_end(plain_reader) == b""
        await close_writer(plain)
        await until(lambda: stored_rows(site, "tls-%", 20))
        silent_reader, silent = await connect(listeners)
        await asyncio.sleep(0.05)
        monkeypatch.setattr(connection, "MAX_FIRST_MESSAGE_SECONDS", 0.0)
        assert await read_to_end(silent_reader) == b""
        await close_writer(silent)

    with_listeners(
        ListenSettings(
            syslog="tls://127.0.0.1:0",
            syslog_stream="postgres.logs",
            tls_certificate=str(certificate),
            tls_client_ca=str(authority.file),
        ),
        handle,
    )


def test_a_reload_reads_the_certificate_again(with_listeners: Run, tmp_path: Path) -> None:
    authorities = []
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        authorities.append(Authority(tmp_path / name))
    old, new = authorities
    certificate = tmp_path / "certificate.pem"
    shutil.copy(old.sign_certificate(), certificate)

    async def handle(listeners: Listeners) -> None:
        await send_over_tls(listeners, ssl.create_default_context(cafile=str(old.file)), syslog_line("reload-1"))
        shutil.copy(new.sign_certificate(), certificate)
        listeners.reload_certificates()
        await send_over_tls(listeners, ssl.create_default_context(cafile=str(new.file)), syslog_line("reload-2"))
        with pytest.raises(ssl.SSLCertVerificationError):
            await send_over_tls(listeners, ssl.create_default_context(cafile=str(old.file)), syslog_line("reload-3"))
        certificate.write_text("broken")
        with pytest.raises(BadSetting, match="cannot be used"):
            listeners.reload_certificates()

    listen = ListenSettings(syslog="tls://127.0.0.1:0", syslog_stream="postgres.logs", tls_certificate=str(certificate))
    with_listeners(listen, handle)


async def send_over_tls(listeners: Listeners, context: ssl.SSLContext, data: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listeners), ssl=context)
    try:
        writer.write(data)
        writer.write_eof() if writer.can_write_eof() else None
        await writer.drain()
        writer.close()
        await reader.read()
    finally:
        await close_writer(writer)


@pytest.mark.parametrize(
    ("listen", "message"),
    [
        (ListenSettings(syslog="tcp://127.0.0.1:0"), "needs a stream"),
        (ListenSettings(syslog="http://127.0.0.1:0", syslog_stream="s"), "is not an address"),
        (ListenSettings(syslog="tcp://127.0.0.1", syslog_stream="s"), "is not an address"),
        (ListenSettings(syslog="tcp://:514", syslog_stream="s"), "is not an address"),
        (ListenSettings(syslog="tcp://127.0.0.1:x", syslog_stream="s"), "is not an address"),
        (ListenSettings(syslog="tcp://[::1:514", syslog_stream="s"), "is not an address"),
        (ListenSettings(syslog="tcp://203.0.113.1:0", syslog_stream="s"), "cannot listen on tcp://203.0.113.1:0"),
        (ListenSettings(syslog="tls://127.0.0.1:0", syslog_stream="s"), "tls_certificate is needed"),
        (
            ListenSettings(syslog="tls://127.0.0.1:0", syslog_stream="s", tls_certificate="/nowhere.pem"),
            "cannot be used",
        ),
        (ListenSettings(fluent="udp://127.0.0.1:0"), "is not an address"),
        (ListenSettings(fluent="tcp://127.0.0.1:0", fluent_users="a = b"), "needs listen.fluent_shared_key"),
        (ListenSettings(fluent="tcp://127.0.0.1:0", fluent_shared_key="k", fluent_users="a"), "name = password"),
    ],
)
def test_invalid_settings_are_refused(listen: ListenSettings, message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        bind_listeners(settings_of(listen))
    assert message in caught.value.one_line_text()
