"""Syslog over TCP, TLS and UDP.

The protocol has no acknowledgements. All messages that were read from TCP connections are stored, and back pressure
slows down their senders. Senders of datagrams cannot be slowed down, so datagrams beyond a limit are dropped. Each
stream has its own limit, so that one stream does not delay the datagrams of others. If no stream is configured for the
labels of a datagram, the datagram is dropped at once.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from cordwood.errors import Fault
from cordwood.ingest.formats.syslog import read_syslog_messages
from cordwood.ingest.formats.syslog_frames import SyslogFrameDecoder, SyslogMessage
from cordwood.ingest.limits import BodyMemoryBudget
from cordwood.ingest.parsed_body import ParsedBody, RefusedItem, StreamLabels
from cordwood.listeners.connection import ConnectionMemory, SenderConnection
from cordwood.listeners.event_writer import ListenerEventWriter

# More messages than this are decoded in a thread, so that they do not block the event loop.
_MAX_EVENT_LOOP_DECODED_MESSAGES: Final = 50
# The maximum number of chunks of data of one connection that are being stored while the next chunk is read.
_MAX_CONCURRENT_CHUNKS: Final = 4
# Two limits for all senders together: the number of datagrams that are not decoded yet, and the total size of the
# datagrams that are not stored yet. Datagrams beyond them are dropped.
MAX_WAITING_DATAGRAMS: Final = 20_000
MAX_UNSTORED_DATAGRAM_BYTES: Final = 4 * 2**20
# The limit on the total size of the datagrams that are being stored in one stream.
MAX_UNSTORED_BYTES_PER_STREAM: Final = MAX_UNSTORED_DATAGRAM_BYTES // 4
_MAX_DATAGRAMS_PER_BATCH: Final = 200
_OVERLOAD_DROP_REASON: Final = "events arrive faster than they are stored"


class SyslogConnectionHandler:
    """Reads the messages of TCP connections. A message of more than `max_bytes` is quarantined."""

    def __init__(
        self, store: ListenerEventWriter, budget: BodyMemoryBudget, max_bytes: int, count: Callable[[int], None]
    ) -> None:
        self._event_writer = store
        self._body_memory_budget = budget
        self._max_message_bytes = max_bytes
        self._count_received_items = count

    async def handle(self, connection: SenderConnection) -> None:
        frames = SyslogFrameDecoder(self._max_message_bytes)
        storing: deque[asyncio.Task[None]] = deque()
        try:
            with ConnectionMemory(self._body_memory_budget, connection) as unfinished:
                while await connection.wait_for_data():
                    if len(storing) >= _MAX_CONCURRENT_CHUNKS:
                        await storing.popleft()
                    memory = ConnectionMemory(self._body_memory_budget, connection, is_whole=True)
                    await memory.reserve_up_to(connection.unread_bytes)
                    messages = frames.feed(connection.take_unread())
                    connection.record_partial_message_bytes(frames.buffered_bytes)
                    storing.append(asyncio.create_task(self._store_and_release(connection, messages, memory)))
                    if frames.buffered_bytes:
                        await unfinished.reserve_up_to(frames.buffered_bytes)
                    else:
                        unfinished.release()
            if not connection.is_stopping:
                # The sender has closed the connection, so a last line without a line end is complete. If the service
                # stops instead, the end of this line may be missing, and the line is not stored.
                await self._store_messages(connection, frames.finish())
        finally:
            # Store everything that was read, even if the connection ended with an error.
            await asyncio.gather(*storing)

    async def _store_and_release(
        self, connection: SenderConnection, messages: Sequence[SyslogMessage], memory: ConnectionMemory
    ) -> None:
        with memory:
            await self._store_messages(connection, messages)

    async def _store_messages(self, connection: SenderConnection, messages: Sequence[SyslogMessage]) -> None:
        if not messages:
            return
        self._count_received_items(len(messages))
        parts, body_bytes = await decode_messages(messages, connection.peer_address)
        connection.has_sent_valid_message = connection.has_sent_valid_message or any(
            part.events for part in parts.values()
        )
        await self._event_writer.store_events_by_labels(parts, body_bytes)


class SyslogDatagramReceiver(asyncio.DatagramProtocol):
    """Receives datagrams, each with one message.

    If a datagram exceeds a limit or has no stream, `drop` is called with the number of dropped datagrams and the
    reason.
    """

    def __init__(
        self, store: ListenerEventWriter, count: Callable[[int], None], drop: Callable[[int, str], None]
    ) -> None:
        self._event_writer = store
        self._count_received_items = count
        self._count_dropped_datagrams = drop
        self._waiting_datagrams: deque[tuple[str, bytes]] = deque()
        self._waiting_datagram_bytes = 0
        self._datagram_counts_by_storing_task: dict[asyncio.Task[None], int] = {}
        self._bytes_being_stored_by_stream: Counter[str] = Counter()
        self._arrival_or_stop_event = asyncio.Event()
        self._is_stopping = False

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        held_bytes = self._waiting_datagram_bytes + self._bytes_being_stored_by_stream.total() + len(data)
        if len(self._waiting_datagrams) >= MAX_WAITING_DATAGRAMS or held_bytes > MAX_UNSTORED_DATAGRAM_BYTES:
            self._count_dropped_datagrams(1, _OVERLOAD_DROP_REASON)
            return
        self._waiting_datagrams.append((str(addr[0]), data))
        self._waiting_datagram_bytes += len(data)
        self._arrival_or_stop_event.set()

    async def run(self) -> None:
        """Store datagrams until `stop` is called and none is left."""
        try:
            while self._waiting_datagrams or not self._is_stopping:
                if not self._waiting_datagrams:
                    self._arrival_or_stop_event.clear()
                    await self._arrival_or_stop_event.wait()
                    continue
                await self._decode_and_store_batch()
            while self._datagram_counts_by_storing_task:
                await asyncio.wait(self._datagram_counts_by_storing_task)
        finally:
            for task in self._datagram_counts_by_storing_task:
                task.cancel()

    def stop(self) -> None:
        self._is_stopping = True
        self._arrival_or_stop_event.set()

    @property
    def unstored_count(self) -> int:
        """The number of received datagrams that are not stored yet."""
        return len(self._waiting_datagrams) + sum(self._datagram_counts_by_storing_task.values())

    async def _decode_and_store_batch(self) -> None:
        by_peer: dict[str, list[SyslogMessage]] = {}
        taken = min(len(self._waiting_datagrams), _MAX_DATAGRAMS_PER_BATCH)
        for _ in range(taken):
            peer, data = self._waiting_datagrams.popleft()
            self._waiting_datagram_bytes -= len(data)
            by_peer.setdefault(peer, []).append(SyslogMessage(data))
        self._count_received_items(taken)
        for peer, messages in by_peer.items():
            parts, _ = await decode_messages(messages, peer)
            for labels, parsed in parts.items():
                self._begin_storing(labels, parsed)

    def _begin_storing(self, labels: StreamLabels, parsed: ParsedBody) -> None:
        """Begin to store the datagrams with these labels in the background.

        They are dropped if no stream is configured for the labels, or if too many bytes are already being stored in the
        stream.
        """
        datagrams = len(parsed.events) + len(parsed.refused_items)
        try:
            stream = self._event_writer.stream_name_for_labels(labels)
        except Fault as fault:
            self._count_dropped_datagrams(datagrams, fault.one_line_text())
            return
        size = _parsed_content_size(parsed)
        if self._bytes_being_stored_by_stream[stream] + size > MAX_UNSTORED_BYTES_PER_STREAM:
            self._count_dropped_datagrams(datagrams, _OVERLOAD_DROP_REASON)
            return
        self._bytes_being_stored_by_stream[stream] += size
        task = asyncio.create_task(self._store_events(stream, parsed, size))
        self._datagram_counts_by_storing_task[task] = datagrams
        task.add_done_callback(self._datagram_counts_by_storing_task.pop)

    async def _store_events(self, stream: str, parsed: ParsedBody, size: int) -> None:
        try:
            await self._event_writer.store_events(stream, parsed, size)
        except Exception as problem:  # noqa: BLE001 - no sender can be told
            self._event_writer.report_bug(problem)
        finally:
            self._bytes_being_stored_by_stream[stream] -= size
            if not self._bytes_being_stored_by_stream[stream]:
                del self._bytes_being_stored_by_stream[stream]


def _parsed_content_size(parsed: ParsedBody) -> int:
    """Return the number of characters of the events and of the quarantined items, as an estimate of their size."""
    events = sum(len(bytes(event.metadata)) + len(event.event_message or "") for event in parsed.events)
    return events + sum(len(item.text) for item in parsed.refused_items)


async def decode_messages(messages: Sequence[SyslogMessage], peer: str) -> tuple[dict[StreamLabels, ParsedBody], int]:
    """Decode messages; return the events and refused items by the app that sent them, and the size of all messages."""
    body_bytes = sum(len(message.data) for message in messages)
    if len(messages) <= _MAX_EVENT_LOOP_DECODED_MESSAGES:
        return _decode_messages_by_app(messages, peer), body_bytes
    return await asyncio.to_thread(_decode_messages_by_app, messages, peer), body_bytes


def _decode_messages_by_app(messages: Sequence[SyslogMessage], peer: str) -> dict[StreamLabels, ParsedBody]:
    parts: dict[StreamLabels, ParsedBody] = {}
    for index, (app, item) in enumerate(read_syslog_messages(messages, peer)):
        labels = (app,) if app else ()
        part = parts.get(labels)
        if part is None:
            part = parts[labels] = ParsedBody(item_indexes=[])
        if isinstance(item, RefusedItem):
            part.refused_items.append(item)
        else:
            part.add_event(item, index)
    return parts
