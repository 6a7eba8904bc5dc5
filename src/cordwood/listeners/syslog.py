"""Syslog over TCP, TLS and UDP. It has no acknowledgement: what was read is stored, and TCP senders are slowed down."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from cordwood.ingest.body_budget import BodyBudget
from cordwood.ingest.formats.syslog import SyslogMessage, read_messages
from cordwood.ingest.parsed_body import Labels, ParsedBody, RefusedItem
from cordwood.listeners.connection import HeldMemory, SenderConnection
from cordwood.listeners.event_store import EventStore
from cordwood.listeners.syslog_frames import SyslogFrames

# More messages are decoded in a thread, so that they delay no request.
_DECODED_AT_ONCE: Final = 50
# The pieces of a connection that are decoded and stored at once, so that it is read meanwhile.
_MOST_STORING: Final = 4
# The datagrams that wait to be stored, of all senders.
MOST_DATAGRAMS: Final = 20_000
MOST_DATAGRAM_BYTES: Final = 4 * 2**20
_DATAGRAMS_TOGETHER: Final = 2000


class SyslogStreams:
    """Reads the messages of TCP connections. A message of more than `most_bytes` is quarantined."""

    def __init__(self, store: EventStore, budget: BodyBudget, most_bytes: int, count: Callable[[int], None]) -> None:
        self._store = store
        self._budget = budget
        self._most_bytes = most_bytes
        self._count = count

    async def converse(self, connection: SenderConnection) -> None:
        frames = SyslogFrames(self._most_bytes)
        storing: deque[asyncio.Task[None]] = deque()
        try:
            with HeldMemory(self._budget, connection) as unfinished:
                while await connection.has_more():
                    if len(storing) >= _MOST_STORING:
                        await storing.popleft()
                    memory = HeldMemory(self._budget, connection, is_whole=True)
                    await memory.hold(connection.unread_bytes)
                    messages = frames.feed(connection.take())
                    connection.has_partial(frames.held_bytes)
                    storing.append(asyncio.create_task(self._store_all(connection, messages, memory)))
                    if frames.held_bytes:
                        await unfinished.hold(frames.held_bytes)
                    else:
                        unfinished.release()
            if not connection.is_stopping:
                # The rest of a line that is still being sent is no message.
                await self._take(connection, frames.finish())
        finally:
            # What was read is stored, however the connection ends.
            await asyncio.gather(*storing)

    async def _store_all(
        self, connection: SenderConnection, messages: Sequence[SyslogMessage], memory: HeldMemory
    ) -> None:
        with memory:
            await self._take(connection, messages)

    async def _take(self, connection: SenderConnection, messages: Sequence[SyslogMessage]) -> None:
        if not messages:
            return
        self._count(len(messages))
        parts, body_bytes = await decoded(messages, connection.address)
        connection.is_proven = connection.is_proven or any(part.events for part in parts.values())
        await self._store.store(parts, body_bytes)


class SyslogDatagrams(asyncio.DatagramProtocol):
    """Receives datagrams, one message each. Beyond what may wait, they are dropped, and `drop` is called."""

    def __init__(self, store: EventStore, count: Callable[[int], None], drop: Callable[[int], None]) -> None:
        self._store = store
        self._count = count
        self._drop = drop
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._is_stopping = False

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        if len(self._waiting) >= MOST_DATAGRAMS or self._waiting_bytes + len(data) > MOST_DATAGRAM_BYTES:
            self._drop(1)
            return
        self._waiting.append((str(addr[0]), data))
        self._waiting_bytes += len(data)
        self._arrived.set()

    async def work(self) -> None:
        """Store datagrams until `stop` is called and none is left."""
        while self._waiting or not self._is_stopping:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            await self._store_some()

    def stop(self) -> None:
        self._is_stopping = True
        self._arrived.set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def _store_some(self) -> None:
        by_peer: dict[str, list[SyslogMessage]] = {}
        taken = min(len(self._waiting), _DATAGRAMS_TOGETHER)
        for _ in range(taken):
            peer, data = self._waiting.popleft()
            self._waiting_bytes -= len(data)
            by_peer.setdefault(peer, []).append(SyslogMessage(data))
        self._count(taken)
        outcomes = await asyncio.gather(
            *(self._store_of(messages, peer) for peer, messages in by_peer.items()), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, asyncio.CancelledError):
                raise outcome
            if isinstance(outcome, BaseException):
                self._store.note_bug(outcome)

    async def _store_of(self, messages: Sequence[SyslogMessage], peer: str) -> None:
        await self._store.store(*await decoded(messages, peer))


async def decoded(messages: Sequence[SyslogMessage], peer: str) -> tuple[dict[Labels, ParsedBody], int]:
    """Return the events by the name of their app, and the bytes of all messages."""
    body_bytes = sum(len(message.data) for message in messages)
    if len(messages) <= _DECODED_AT_ONCE:
        return _by_app(messages, peer), body_bytes
    return await asyncio.to_thread(_by_app, messages, peer), body_bytes


def _by_app(messages: Sequence[SyslogMessage], peer: str) -> dict[Labels, ParsedBody]:
    parts: dict[Labels, ParsedBody] = {}
    for index, (app, item) in enumerate(read_messages(messages, peer)):
        labels = (app,) if app else ()
        part = parts.get(labels)
        if part is None:
            part = parts[labels] = ParsedBody(indexes=[])
        if isinstance(item, RefusedItem):
            part.refused.append(item)
        else:
            part.add(item, index)
    return parts
