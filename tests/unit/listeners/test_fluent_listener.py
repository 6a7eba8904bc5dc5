"""The Fluent Forward listener: acknowledgements, duplicates, malformed input, limits and the handshake."""

import asyncio
import gzip
from collections.abc import Callable
from hashlib import sha512
from typing import Any
from unittest import mock

import msgspec
import pytest

from cordwood.errors import OutOfDisk
from cordwood.listeners.listeners import Listeners
from cordwood.settings.settings import ListenSettings
from tests.unit.listeners.conftest import ListenerSite, close_writer, connect, read_to_end, until

Run = Callable[..., None]
pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode

STREAM = "postgres.logs"
OPEN_LISTENER = ListenSettings(fluent="tcp://127.0.0.1:0", fluent_stream=STREAM)
LISTENER_WITH_KEY = ListenSettings(
    fluent="tcp://127.0.0.1:0", fluent_stream=STREAM, fluent_shared_key="s3cret", fluent_users="alice = pass\nbob = x"
)
EVENT_SECONDS = 1_760_000_000


def forward_chunk(name: str, count: int, **options: Any) -> bytes:
    return pack(["app.web", [[EVENT_SECONDS, {"message": f"{name}-{number}"}] for number in range(count)], options])


def packed_forward_chunk(name: str, count: int, **options: Any) -> bytes:
    entries = b"".join(pack([EVENT_SECONDS, {"message": f"{name}-{number}"}]) for number in range(count))
    return pack(["app.web", gzip.compress(entries) if "compressed" in options else entries, options])


async def read_answers(reader: asyncio.StreamReader, count: int = 1) -> list[Any]:
    """Return the next `count` messages of the listener, or fewer if the listener closes the connection."""
    answers: list[Any] = []
    data = b""
    while len(answers) < count:
        chunk = await reader.read(4096)
        if not chunk:
            break
        data += chunk
        while data:
            try:
                value, data = unpack(data), b""
            except msgspec.DecodeError as problem:
                if "trailing" not in str(problem):
                    break
                end = int(str(problem).rpartition("byte ")[2].rstrip(")"))
                value, data = unpack(data[:end]), data[end:]
            answers.append(value)
    return answers


async def stored_count(site: ListenerSite, name: str) -> tuple[int, int]:
    sql = (
        f"select count(*) as n, count(distinct event_message) as d from `{STREAM}` where event_message like '{name}-%'"
    )
    (row,) = await site.query(sql)
    return row["n"], row["d"]


def test_every_mode_is_acknowledged_and_a_repeated_chunk_is_stored_once(
    site: ListenerSite, with_listeners: Run
) -> None:
    async def handle(listeners: Listeners) -> None:
        reader, writer = await connect(listeners)
        writer.write(pack(["app", EVENT_SECONDS, {"log": "mode-message"}, {"chunk": "c0"}]))
        writer.write(
            forward_chunk("mode-forward", 3, chunk="c1") + b"\xc0" + packed_forward_chunk("mode-packed", 3, chunk="c2")
        )
        writer.write(packed_forward_chunk("mode-gzip", 3000, chunk="c3", compressed="gzip"))
        assert await read_answers(reader, 4) == [{"ack": f"c{number}"} for number in range(4)]
        await close_writer(writer)
        reader, writer = await connect(listeners)
        writer.write(packed_forward_chunk("mode-gzip", 3000, chunk="c3", compressed="gzip"))
        assert await read_answers(reader) == [{"ack": "c3"}]
        await close_writer(writer)
        assert await stored_count(site, "mode") == (3007, 3007)

    with_listeners(OPEN_LISTENER, handle)
    sql = f"select metadata from `{STREAM}` where event_message = 'mode-message'"
    assert asyncio.run(site.query(sql)) == [{"metadata": [{"tag": "app"}]}]


def test_nothing_is_acknowledged_before_it_is_stored(site: ListenerSite, with_listeners: Run) -> None:
    intake = site.components.services.intake
    store, refuses = intake.store_body_parts, True

    async def raise_disk_full(*arguments: object, **options: object) -> object:
        if refuses:
            raise OutOfDisk("The disk is full.")
        return await store(*arguments, **options)  # type: ignore[arg-type]

    async def handle(listeners: Listeners) -> None:
        nonlocal refuses
        reader, writer = await connect(listeners)
        writer.write(forward_chunk("late", 2, chunk="late"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.4)
        refuses = False
        assert await read_answers(reader) == [{"ack": "late"}]
        assert await stored_count(site, "late") == (2, 2)
        await close_writer(writer)

    with mock.patch.object(intake, "store_body_parts", raise_disk_full):
        with_listeners(OPEN_LISTENER, handle)


def test_a_received_chunk_is_stored_and_acknowledged_at_shutdown(site: ListenerSite, with_listeners: Run) -> None:
    ends: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def handle(listeners: Listeners) -> None:
        before = site.event_count("received")
        ends.append(await connect(listeners))
        ends[0][1].write(forward_chunk("stop", 5, chunk="stop"))

        async def read() -> bool:
            return site.event_count("received") > before

        await until(read)
        await listeners.stop(20)
        assert await read_answers(ends[0][0]) == [{"ack": "stop"}]
        assert await read_to_end(ends[0][0]) == b""
        await close_writer(ends[0][1])

    with_listeners(OPEN_LISTENER, handle)
    assert asyncio.run(stored_count(site, "stop")) == (5, 5)


def test_malformed_entries_are_quarantined_and_the_chunk_is_acknowledged(
    site: ListenerSite, with_listeners: Run
) -> None:
    """Acknowledge the chunk, because the sender would otherwise repeat it forever."""

    async def handle(listeners: Listeners) -> None:
        reader, writer = await connect(listeners)
        entries = pack([EVENT_SECONDS, {"message": "broken-1"}]) + pack([EVENT_SECONDS, 7]) + b"\xc1\xc1"
        writer.write(pack(["t", entries, {"chunk": "b1"}]))
        writer.write(pack(["t", b"no gzip", {"chunk": "b2", "compressed": "gzip"}]))
        writer.write(pack(["t", b"what is it", {"chunk": "b3", "compressed": "lzma"}]))
        assert await read_answers(reader, 3) == [{"ack": "b1"}, {"ack": "b2"}, {"ack": "b3"}]
        await close_writer(writer)

    with_listeners(OPEN_LISTENER, handle)
    assert asyncio.run(stored_count(site, "broken")) == (1, 1)
    rows = asyncio.run(site.query("select event_message as m from `_quarantine` where event_message like '%'"))
    reasons = sorted(row["m"] for row in rows if "postgres.logs: The" in row["m"])
    assert [reason.partition(": ")[2][:34] for reason in reasons if "syslog" not in reason] == [
        "The entries cannot be inflated: th",
        "The entries cannot be inflated: th",
        "The entry is not a time and a reco",
        "The rest of the chunk is not Messa",
    ]


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n\r\n", pack(["t"]), pack(["t", 1]), b"\xc1", pack(["t", [], {"chunk": "x" * 300}])],
)
def test_an_invalid_message_closes_the_connection_and_is_logged(
    site: ListenerSite, with_listeners: Run, sent: bytes
) -> None:
    async def handle(listeners: Listeners) -> None:
        reader, writer = await connect(listeners)
        writer.write(sent)
        assert await read_to_end(reader) == b""
        await close_writer(writer)

    with_listeners(OPEN_LISTENER, handle)
    assert any("ended with an error" in message for message in site.notes.messages)


def test_oversized_messages_and_compression_bombs_close_the_connection(with_listeners: Run) -> None:
    bomb = pack(["t", gzip.compress(b"\xc0" * 10**7), {"chunk": "bomb", "compressed": "gzip"}])

    async def handle(listeners: Listeners) -> None:
        for sent in (
            b"\x93\xa1t\xc6\xff\xff\xff\xff" + b"x" * 200_000,
            bomb,
            b"\xdd\xff\xff\xff\xff" + b"\x90" * 200_000,
        ):
            reader, writer = await connect(listeners)
            writer.write(sent)
            assert await read_to_end(reader) == b""
            await close_writer(writer)

    with_listeners(OPEN_LISTENER, handle, body_size=100_000, inflated_size=10**6)


def test_a_chunk_waits_while_the_body_budget_is_exhausted(site: ListenerSite, with_listeners: Run) -> None:
    budget = site.components.services.intake.body_budget

    async def handle(listeners: Listeners) -> None:
        reader, writer = await connect(listeners)
        with budget.open_reservation("someone") as first, budget.open_reservation("else") as second:
            for reservation in (first, second):
                reservation.reserve(budget._half_of_max_bytes)
                reservation.mark_body_complete()
            writer.write(forward_chunk("room", 1000, chunk="room"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.4)
        assert await read_answers(reader) == [{"ack": "room"}]
        await close_writer(writer)

    with_listeners(OPEN_LISTENER, handle)


def handshake_digest(*parts: bytes) -> str:
    return sha512(b"".join(parts)).hexdigest()


async def perform_handshake(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: bytes, user: str, password: bytes
) -> list[Any]:
    """Perform the client's side of the handshake, and return the PONG message."""
    ((word, options),) = await read_answers(reader)
    assert (word, options["keepalive"]) == ("HELO", True)
    salt, host = b"\xff\xfesalt", b"web-1"
    shared = handshake_digest(salt, host, options["nonce"], key)
    signed = handshake_digest(options["auth"], user.encode(), password)
    writer.write(pack(["PING", "web-1", salt, shared, user, signed]))
    (answer_ping,) = await read_answers(reader)
    if answer_ping[1]:
        # Fluentd refuses a server whose host name equals its own, so the listener always calls itself `cordwood`.
        assert answer_ping[3] == "cordwood"
        assert answer_ping[4] == handshake_digest(salt, answer_ping[3].encode(), options["nonce"], key)
    assert isinstance(answer_ping, list)
    return answer_ping


@pytest.mark.parametrize(
    ("key", "user", "password", "reason"),
    [
        (b"s3cret", "alice", b"pass", ""),
        (b"guess", "alice", b"pass", "shared_key mismatch"),
        (b"s3cret", "alice", b"x", "username/password mismatch"),
        (b"s3cret", "eve", b"", "username/password mismatch"),
    ],
)
def test_the_handshake_requires_the_shared_key_and_a_password(
    with_listeners: Run, key: bytes, user: str, password: bytes, reason: str
) -> None:
    async def handle(listeners: Listeners) -> None:
        reader, writer = await connect(listeners)
        answer_ping = await perform_handshake(reader, writer, key, user, password)
        assert answer_ping[:3] == ["PONG", not reason, reason]
        if reason:
            assert await read_to_end(reader) == b""
        else:
            writer.write(forward_chunk("secure", 2, chunk="secure"))
            assert await read_answers(reader) == [{"ack": "secure"}]
        await close_writer(writer)

    with_listeners(LISTENER_WITH_KEY, handle)


@pytest.mark.parametrize(
    "sent",
    [
        forward_chunk("sneak", 2, chunk="sneak"),
        pack(["PING", "h", "s", "d", "u"]),
        pack(["PING", 1, 2, 3, 4, 5]),
        pack(["PING", "h", "s", "d", "u", "p"]) + forward_chunk("sneak", 2, chunk="sneak"),
        b"\xc6\xff\xff\xff\xff" + b"x" * 20_000,
        pack(7),
    ],
)
def test_nothing_is_stored_before_the_handshake(site: ListenerSite, with_listeners: Run, sent: bytes) -> None:
    async def handle(listeners: Listeners) -> None:
        reader, writer = await connect(listeners)
        await read_answers(reader)
        writer.write(sent)
        answers_received = await read_answers(reader)
        assert answers_received == [] or answers_received[0][:2] == ["PONG", False]
        await close_writer(writer)

    with_listeners(LISTENER_WITH_KEY, handle)
    assert asyncio.run(stored_count(site, "sneak")) == (0, 0)


def test_a_chunk_with_an_unmapped_tag_is_logged_and_not_acknowledged(site: ListenerSite, with_listeners: Run) -> None:
    async def handle(listeners: Listeners) -> None:
        reader, writer = await connect(listeners)
        writer.write(forward_chunk("tag", 1, chunk="tag"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.3)
        assert any("No stream is configured for 'app.web'" in message for message in site.notes.messages)
        await close_writer(writer)
        await listeners.stop(0.1)

    with_listeners(ListenSettings(fluent="tcp://127.0.0.1:0"), handle)
