"""Fluent Forward over TCP and TLS, with its handshake. A chunk is acknowledged once all of its events are durable."""

import asyncio
import hmac
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha512
from typing import Final

import msgspec

from cordwood.errors import BacklogFull, BadBody, BadSetting, BodyTooLarge, Forbidden, UnsupportedMediaType
from cordwood.ingest.formats.fluent import (
    ForwardMessage,
    MessagePackValueScanner,
    NotForwardProtocolError,
    read_entries,
    read_message,
)
from cordwood.ingest.limits import BodyMemoryBudget
from cordwood.ingest.parsed_body import ParsedBody, StreamLabels
from cordwood.listeners.connection import MAX_UNRESERVED_BYTES, ConnectionMemory, SenderConnection
from cordwood.listeners.event_writer import ListenerEventWriter, merge_parsed_bodies
from cordwood.web.request_body import BodyBounds, inflate

# The maximum size of a PING message, which consists of a host name, a salt, two digests and a user name.
_MAX_PING_BYTES: Final = 8192
_HANDSHAKE_SALT_BYTES: Final = 16
_PING_ELEMENT_COUNT: Final = 6

_raw_array_decoder: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_LENGTH_FIELD_BYTES_BY_FIRST_BYTE: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
# Messages larger than this are decoded in a thread, so that they do not block the event loop.
_MAX_EVENT_LOOP_DECODED_BYTES: Final = 32 * 1024
_MIN_EVENTS_PER_BATCH: Final = 2000
_MEMORY_RETRY_SECONDS: Final = 0.25
_encode = msgspec.msgpack.Encoder().encode


class HandshakeSecrets(msgspec.Struct, frozen=True):
    """The secrets of the handshake: the shared key, and the password of each user.

    If no users are configured, a sender needs only the shared key.
    """

    shared_key: str = ""
    passwords_by_user: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def requires_handshake(self) -> bool:
        return bool(self.shared_key or self.passwords_by_user)


def read_handshake_secrets(shared_key: str, users: str) -> HandshakeSecrets:
    """Parse the settings of the handshake. `users` has a line `name = password` for each user."""
    found = {}
    for line in filter(str.strip, users.splitlines()):
        name, equals, password = (part.strip() for part in line.partition("="))
        if not (name and equals and password):
            raise BadSetting("listen.fluent_users: a line is not of the form name = password.")
        found[name] = password
    if found and not shared_key:
        raise BadSetting("listen.fluent_users needs listen.fluent_shared_key, which all senders share.")
    return HandshakeSecrets(shared_key, found)


class _Handshake:
    """The server side of the handshake with which a connection begins.

    Sender and server prove to each other that they know the shared key. If users are configured, the sender also signs
    in as one of them.
    """

    def __init__(self, security: HandshakeSecrets, hostname: str) -> None:
        self._secrets = security
        self._hostname = hostname
        self._nonce = os.urandom(_HANDSHAKE_SALT_BYTES)
        self._auth_salt = os.urandom(_HANDSHAKE_SALT_BYTES) if security.passwords_by_user else b""

    def encode_helo(self) -> bytes:
        return _encode(["HELO", {"nonce": self._nonce, "auth": self._auth_salt, "keepalive": True}])

    def answer_ping(self, ping: bytes) -> tuple[bytes, str]:
        """Return the answer to a sender's PING, and the reason why the sender is refused (empty if it is accepted)."""
        elements = _decode_array_of_texts(ping)
        if len(elements) != _PING_ELEMENT_COUNT or elements[0] != b"PING":
            raise NotForwardProtocolError("The sender does not answer the handshake with PING: it has no shared key.")
        _, hostname, salt, digest, user, password_digest = elements
        reason = self._refusal_reason(hostname, salt, digest, user, password_digest)
        own = "" if reason else self._shared_key_digest(salt, self._hostname.encode())
        return _encode(["PONG", not reason, reason, self._hostname, own]), reason

    def _refusal_reason(self, hostname: bytes, salt: bytes, digest: bytes, user: bytes, password_digest: bytes) -> str:
        if not hmac.compare_digest(digest, self._shared_key_digest(salt, hostname).encode()):
            return "shared_key mismatch"
        if not self._secrets.passwords_by_user:
            return ""
        # For an unknown user, the digest of an empty password is compared, so that the time of the answer does not
        # reveal which users exist.
        password = self._secrets.passwords_by_user.get(user.decode("utf-8", "replace"), "")
        expected = sha512(self._auth_salt + user + password.encode()).hexdigest().encode()
        is_right = hmac.compare_digest(password_digest, expected)
        return "" if password and is_right else "username/password mismatch"

    def _shared_key_digest(self, salt: bytes, hostname: bytes) -> str:
        return sha512(salt + hostname + self._nonce + self._secrets.shared_key.encode()).hexdigest()


def _decode_array_of_texts(data: bytes) -> list[bytes]:
    """Decode an array of texts, each to bytes.

    The texts are not decoded to strings, because salts are not UTF-8, and because digests are computed over the bytes
    as sent.
    """
    try:
        return [_strip_msgpack_header(bytes(raw)) for raw in _raw_array_decoder.decode(data)]
    except (msgspec.DecodeError, RecursionError) as problem:
        raise NotForwardProtocolError("The answer to the handshake is not an array of texts.") from problem


def _strip_msgpack_header(raw: bytes) -> bytes:
    first = raw[0]
    if 0xA0 <= first < 0xC0:
        return raw[1:]
    if first not in _LENGTH_FIELD_BYTES_BY_FIRST_BYTE:
        raise NotForwardProtocolError("The answer to the handshake is not an array of texts.")
    return raw[1 + _LENGTH_FIELD_BYTES_BY_FIRST_BYTE[first] :]


class FluentOptions(msgspec.Struct, frozen=True):
    """The options for receiving messages: limits, the secrets of the handshake, and the name of the server.

    The server states its name `hostname` in the handshake. It is not the host name of the machine: Fluentd ends a
    handshake if the server has the same name as Fluentd itself.
    """

    body_bounds: BodyBounds
    max_item_bytes: int
    handshake_secrets: HandshakeSecrets = HandshakeSecrets()
    hostname: str = "cordwood"


class FluentConnectionHandler:
    """Reads the messages of connections and stores their events."""

    def __init__(
        self, store: ListenerEventWriter, budget: BodyMemoryBudget, options: FluentOptions, count: Callable[[int], None]
    ) -> None:
        self._event_writer = store
        self._body_memory_budget = budget
        self._options = options
        self._count_received_items = count

    async def handle(self, connection: SenderConnection) -> None:
        incoming = _MessageSplitter(connection, self._options.body_bounds.max_sent_bytes)
        if self._options.handshake_secrets.requires_handshake:
            await self._perform_handshake(connection, incoming)
        with ConnectionMemory(self._body_memory_budget, connection) as memory:
            while await connection.wait_for_data():
                await memory.reserve_up_to(incoming.buffered_bytes + connection.unread_bytes)
                messages = incoming.feed(connection.take_unread())
                if messages:
                    memory.mark_message_complete()
                    await self._store_and_acknowledge(connection, messages, memory)
                    # The memory for the beginning of the next message is also released here. It is reserved again when
                    # more of the next message arrives.
                    del messages
                    memory.release()

    async def _perform_handshake(self, connection: SenderConnection, incoming: "_MessageSplitter") -> None:
        handshake = _Handshake(self._options.handshake_secrets, self._options.hostname)
        await connection.send(handshake.encode_helo())
        while await connection.wait_for_data():
            data = connection.take_unread()
            if incoming.buffered_bytes + len(data) > _MAX_PING_BYTES:
                raise NotForwardProtocolError("The answer to the handshake is too long.")
            messages = incoming.feed(data)
            if not messages:
                continue
            if len(messages) > 1 or incoming.buffered_bytes:
                raise NotForwardProtocolError("The sender did not wait for the end of the handshake.")
            answer_ping, reason = handshake.answer_ping(messages[0])
            await connection.send(answer_ping)
            if reason:
                raise Forbidden(f"A sender of Fluent messages was refused: {reason}.")
            connection.has_sent_valid_message = True
            return

    async def _store_and_acknowledge(
        self, connection: SenderConnection, messages: Sequence[bytes], memory: ConnectionMemory
    ) -> None:
        """Store the events of the messages, then acknowledge each message that has a chunk id."""
        parts: dict[StreamLabels, list[ParsedBody]] = {}
        events = stored_bytes = 0
        chunks: list[str] = []
        for data in messages:
            message = await self._decode_and_decompress_message(data, memory)
            if message is None:
                continue
            connection.has_sent_valid_message = True
            stored_bytes += len(data)
            slices = read_entries(message, self._options.max_item_bytes)
            while (one := await _decode_next_entries(slices, len(data))) is not None:
                parts.setdefault((message.tag,), []).append(one)
                events += len(one.events)
                if events >= _MIN_EVENTS_PER_BATCH:
                    await self._store_and_clear_parts(parts, stored_bytes)
                    events = 0
            if message.chunk_id is not None:
                chunks.append(message.chunk_id)
        await self._store_and_clear_parts(parts, stored_bytes)
        if chunks:
            await connection.send(b"".join(_encode({"ack": chunk}) for chunk in chunks))

    async def _store_and_clear_parts(self, parts: dict[StreamLabels, list[ParsedBody]], body_bytes: int) -> None:
        together = {labels: merge_parsed_bodies(several) for labels, several in parts.items()}
        parts.clear()
        self._count_received_items(sum(len(part.events) + len(part.refused_items) for part in together.values()))
        await self._event_writer.store_events_by_labels(together, body_bytes)

    async def _decode_and_decompress_message(self, data: bytes, memory: ConnectionMemory) -> ForwardMessage | None:
        """Decode a message and decompress its entries.

        If decompression fails, the message keeps its `compression`, and `read_entries` refuses the entries.
        """
        message = read_message(data)
        if message is None or not message.compression:
            return message
        inflated = partial(
            inflate,
            message.packed_entries,
            message.compression,
            self._options.body_bounds.max_inflated_bytes,
            memory.reserve_more,
        )
        while True:
            await memory.reserve_up_to(max(len(data), MAX_UNRESERVED_BYTES + 1))
            memory.mark_message_complete()
            try:
                message.packed_entries = await asyncio.to_thread(inflated)
            except (BadBody, UnsupportedMediaType):
                return message
            except BacklogFull:
                # Release all memory before waiting. Otherwise two messages could each wait for memory that the other
                # holds.
                memory.release()
                await asyncio.sleep(_MEMORY_RETRY_SECONDS)
            else:
                message.compression = ""
                return message


class _MessageSplitter:
    """Splits incoming data into messages; raises BodyTooLarge for a message of more than `max_bytes`."""

    def __init__(self, connection: SenderConnection, max_bytes: int) -> None:
        self._connection = connection
        self._max_message_bytes = max_bytes
        self._buffer = bytearray()
        self._scanner = MessagePackValueScanner()

    @property
    def buffered_bytes(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Add data; return the messages that it completes."""
        self._buffer += data
        found: list[bytes] = []
        at = 0
        while at < len(self._buffer) and (end := self._scanner.find_end(self._buffer)) is not None:
            found.append(bytes(self._buffer[at:end]))
            at = end
            self._scanner = MessagePackValueScanner(at)
        if at:
            del self._buffer[:at]
            self._scanner = MessagePackValueScanner()
            self._scanner.find_end(self._buffer)
        if len(self._buffer) > self._max_message_bytes:
            raise BodyTooLarge(
                f"A message is larger than {self._max_message_bytes} bytes.",
                hint="Send smaller chunks (chunk_limit_size), or raise ingest.body_size.",
            )
        self._connection.record_partial_message_bytes(len(self._buffer))
        return found


async def _decode_next_entries(slices: Iterator[ParsedBody], body_bytes: int) -> ParsedBody | None:
    if body_bytes <= _MAX_EVENT_LOOP_DECODED_BYTES:
        return next(slices, None)
    return await asyncio.to_thread(next, slices, None)
