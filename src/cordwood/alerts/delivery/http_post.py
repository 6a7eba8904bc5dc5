"""HTTP POST requests, several on one connection, without redirects, and the signatures of webhooks."""

import base64
import binascii
import contextlib
import hmac
import http.client
import io
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Any, Final

from cordwood.alerts.delivery.connections import BoundedFile, Connector, Deadline, with_tls
from cordwood.alerts.delivery.targets import HttpAddress, Target
from cordwood.alerts.notification import DeliveryFailed
from cordwood.errors import BadSetting

# The bytes that are read of an answer's body, to report why a message was refused.
_MAX_BODY_BYTES: Final = 1024
_MAX_WAIT_SECONDS: Final = 86400.0
_DEFAULT_PORTS: Final = {True: 443, False: 80}

# Returns the headers of a body at the time when it is sent.
Headers = Callable[[bytes], Mapping[str, str]]

_ENCODED_KEY_PREFIX: Final = "whsec_"
_MESSAGE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


class HttpPost:
    """Posts JSON to targets."""

    def __init__(self, connector: Connector, context: Callable[[], ssl.SSLContext]) -> None:
        self._connector = connector
        self._context = context

    def post(self, target: Target, bodies: Iterable[bytes], headers: Headers, deadline: Deadline) -> None:
        """Post each body; raise DeliveryFailed at the first one that the target does not accept."""
        left = list(bodies)
        while left:
            with self._connector.connected(target.host, target.port, deadline) as plain:
                self._post_on(plain, target, left, headers)

    def _post_on(
        self, tcp_socket: socket.socket, target: Target, remaining_bodies: list[bytes], headers: Headers
    ) -> None:
        """Post bodies and remove them from the list while the connection can be used for another one."""
        address = _address(target)
        connection = with_tls(tcp_socket, target.host, self._context()) if address.is_tls else tcp_socket
        with connection:
            client = _Client(target.host, target.port)
            client.sock = connection
            is_usable = True
            while remaining_bodies and is_usable:
                own = {**_own_headers(target, address), **headers(remaining_bodies[0])}
                client.request("POST", address.path, remaining_bodies[0], own)
                is_usable = _take_answer(client, target, is_last=len(remaining_bodies) == 1)
                del remaining_bodies[0]


def _take_answer(client: http.client.HTTPConnection, target: Target, *, is_last: bool) -> bool:
    """Read an answer; return whether another may follow; raise DeliveryFailed if it is not a success."""
    with client.getresponse() as answer:
        _check(target, answer)
        # The body of a success is only read because the next answer follows it.
        if is_last or answer.will_close or (answer.length or 0) > _MAX_BODY_BYTES:
            return False
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer.read(_MAX_BODY_BYTES)
        return answer.isclosed()


class _Answer(http.client.HTTPResponse):
    """An answer of which a limited number of bytes is read, whatever its head says."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self._file = BoundedFile(sock)
        self.fp = io.BufferedReader(self._file)

    def begin(self) -> None:
        """Read the head. The library would accept a head that ends with the connection."""
        super().begin()
        if self._file.is_at_end:
            raise ConnectionResetError


class _Client(http.client.HTTPConnection):
    response_class = _Answer
    # The library must never connect by itself, because the address has to be checked.
    auto_open = 0


def _address(target: Target) -> HttpAddress:
    if not isinstance(target.address, HttpAddress):
        raise TypeError(f"{target} is no target of HTTP")
    return target.address


def _own_headers(target: Target, address: HttpAddress) -> dict[str, str]:
    host = target.host.rstrip(".")
    named = f"[{host}]" if ":" in host else host
    port = "" if target.port == _DEFAULT_PORTS[address.is_tls] else f":{target.port}"
    login = {"Authorization": address.authorization} if address.authorization else {}
    return {"Host": named + port, "Content-Type": "application/json", "User-Agent": "cordwood", **login}


def _check(target: Target, answer: http.client.HTTPResponse) -> None:
    if 200 <= answer.status < 300:
        return
    said = b""
    with contextlib.suppress(OSError, http.client.HTTPException):
        said = answer.read(_MAX_BODY_BYTES)
    text = said.decode("utf-8", "replace").strip()
    status = f"{answer.status} {answer.reason}".strip()
    hint = " Redirects are not followed." if 300 <= answer.status < 400 else ""
    raise DeliveryFailed(
        f"{target.host} answered {status}{f': {text}' if text and not hint else ''}.{hint}",
        read_retry_after(answer.getheader("Retry-After"), time.time()),
    )


def read_retry_after(text: str | None, now: float) -> float | None:
    """Return the seconds of a Retry-After header, which has a number or a date, or None if it is invalid."""
    if text is None:
        return None
    given = text.strip()
    if given.isascii() and given.isdigit():
        return min(float(given[:10]), _MAX_WAIT_SECONDS)
    try:
        moment = parsedate_to_datetime(given)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(seconds, 0.0), _MAX_WAIT_SECONDS)


def read_signing_key(secret: str) -> bytes:
    """Return the bytes of the setting `alerts.signing_secret`, which are empty if messages are not signed."""
    if not secret.startswith(_ENCODED_KEY_PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(_ENCODED_KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise BadSetting(
            "alerts.signing_secret begins with whsec_, but no base64 follows.",
            hint='Make one: echo "whsec_$(openssl rand -base64 32)"',
        )
    return key


def webhook_headers(key: bytes, identity: str, timestamp: int, body: bytes) -> Mapping[str, str]:
    """Return the headers of Standard Webhooks (https://www.standardwebhooks.com) for a message.

    The id is the same when the message is sent again; `timestamp` is in seconds.
    """
    # A dot separates the id from the rest of the signed text, so the id must not contain one.
    own = (
        identity
        if _MESSAGE_ID.fullmatch(identity)
        else f"msg_{sha256(identity.encode('utf-8', 'replace')).hexdigest()}"
    )
    headers = {"webhook-id": own, "webhook-timestamp": str(timestamp)}
    if not key:
        return headers
    digest = hmac.new(key, f"{own}.{timestamp}.".encode() + body, sha256).digest()
    return {**headers, "webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}
