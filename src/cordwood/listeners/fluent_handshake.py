"""The handshake of the Fluent Forward protocol: both sides prove that they know the shared key, then a user signs in."""

import hmac
import os
from collections.abc import Mapping
from hashlib import sha512
from typing import Final

import msgspec

from cordwood.errors import BadSetting
from cordwood.ingest.formats.fluent import NotForwardError

# A PING has a host name, a salt, two digests and a user name.
MOST_PING_BYTES: Final = 8192
_SALT_BYTES: Final = 16
_PING_ELEMENTS: Final = 6

_encode = msgspec.msgpack.Encoder().encode


class Security(msgspec.Struct, frozen=True):
    """The shared key and the passwords of users. Without users, the shared key is sufficient."""

    shared_key: str = ""
    users: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def is_needed(self) -> bool:
        return bool(self.shared_key or self.users)


def read_security(shared_key: str, users: str) -> Security:
    """Parse the settings: users are lines `name = password`."""
    found = {}
    for line in filter(str.strip, users.splitlines()):
        name, equals, password = (part.strip() for part in line.partition("="))
        if not (name and equals and password):
            raise BadSetting("listen.fluent_users: a line is not of the form name = password.")
        found[name] = password
    if found and not shared_key:
        raise BadSetting("listen.fluent_users needs listen.fluent_shared_key, which every sender must know.")
    return Security(shared_key, found)


class Handshake:
    """The handshake of one connection, as the server."""

    def __init__(self, security: Security, hostname: str) -> None:
        self._security = security
        self._hostname = hostname
        self._nonce = os.urandom(_SALT_BYTES)
        self._auth = os.urandom(_SALT_BYTES) if security.users else b""

    def helo(self) -> bytes:
        return _encode(["HELO", {"nonce": self._nonce, "auth": self._auth, "keepalive": True}])

    def pong(self, ping: bytes) -> tuple[bytes, str]:
        """Return the answer to a PING, and the reason of a refusal, which is empty if the sender is admitted."""
        elements = _texts(ping)
        if len(elements) != _PING_ELEMENTS or elements[0] != b"PING":
            raise NotForwardError("The sender does not answer the handshake with PING: it has no shared key.")
        _, hostname, salt, digest, user, password_digest = elements
        reason = self._refusal(hostname, salt, digest, user, password_digest)
        own = "" if reason else self._digest(salt, self._hostname.encode())
        return _encode(["PONG", not reason, reason, self._hostname, own]), reason

    def _refusal(self, hostname: bytes, salt: bytes, digest: bytes, user: bytes, password_digest: bytes) -> str:
        if not hmac.compare_digest(digest, self._digest(salt, hostname).encode()):
            return "shared_key mismatch"
        if not self._security.users:
            return ""
        # An unknown user takes as long as a wrong password.
        password = self._security.users.get(user.decode("utf-8", "replace"), "")
        expected = sha512(self._auth + user + password.encode()).hexdigest().encode()
        is_right = hmac.compare_digest(password_digest, expected)
        return "" if password and is_right else "username/password mismatch"

    def _digest(self, salt: bytes, hostname: bytes) -> str:
        return sha512(salt + hostname + self._nonce + self._security.shared_key.encode()).hexdigest()


_raws: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_WIDTHS: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}


def _texts(data: bytes) -> list[bytes]:
    """Decode an array of texts, as bytes: salts are no UTF-8, and the digests cover them as they were sent."""
    try:
        return [_content(bytes(raw)) for raw in _raws.decode(data)]
    except (msgspec.DecodeError, RecursionError) as problem:
        raise NotForwardError("The answer to the handshake is not an array of texts.") from problem


def _content(raw: bytes) -> bytes:
    first = raw[0]
    if 0xA0 <= first < 0xC0:
        return raw[1:]
    if first not in _WIDTHS:
        raise NotForwardError("The answer to the handshake is not an array of texts.")
    return raw[1 + _WIDTHS[first] :]
