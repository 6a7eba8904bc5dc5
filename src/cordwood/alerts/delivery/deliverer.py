"""Deliver notifications to targets, in the format of each target and within a time limit.

Several HTTP POST requests may use one connection. Redirects are not followed, and webhooks are signed. E-mail is sent
over SMTP, and encrypted if the server supports it. A password is never sent without encryption. If delivery fails,
DeliveryFailed is raised with the reason.
"""

import base64
import binascii
import contextlib
import hmac
import http.client
import io
import re
import smtplib
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from cordwood.alerts.delivery.connections import (
    AddressPolicy,
    BoundedSocketFile,
    Connector,
    Deadline,
    read_address_policy,
    start_tls,
)
from cordwood.alerts.delivery.messages import (
    alertmanager_body,
    mail_message,
    pagerduty_events,
    shorten_text,
    slack_body,
    webhook_body,
)
from cordwood.alerts.delivery.targets import AlertTarget, AlertTargetKind, HttpAddress, MailAddress, read_targets
from cordwood.alerts.notification import DeliveryFailed, Notification
from cordwood.errors import BadSetting
from cordwood.settings.settings import AlertSettings

# The maximum number of bytes that are read of the body of an error response, which may say why a message was refused.
_MAX_ERROR_BODY_BYTES: Final = 1024
_MAX_RETRY_DELAY_SECONDS: Final = 86400.0
_DEFAULT_PORTS_BY_TLS: Final = {True: 443, False: 80}

# A function that returns the headers for a request body. It is called only when the body is sent, because the headers
# contain the time of sending.
MakeHeaders = Callable[[bytes], Mapping[str, str]]

_BASE64_SIGNING_KEY_PREFIX: Final = "whsec_"
_MESSAGE_ID_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")


class _HttpSender:
    """Posts JSON to targets."""

    def __init__(self, connector: Connector, context: Callable[[], ssl.SSLContext]) -> None:
        self._connector = connector
        self._get_tls_context = context

    def post(self, target: AlertTarget, bodies: Iterable[bytes], headers: MakeHeaders, deadline: Deadline) -> None:
        """Post each body; raise DeliveryFailed at the first body that the target does not accept."""
        left = list(bodies)
        while left:
            with self._connector.open_connection(target.host, target.port, deadline) as plain:
                self._post_on_connection(plain, target, left, headers)

    def _post_on_connection(
        self, tcp_socket: socket.socket, target: AlertTarget, remaining_bodies: list[bytes], headers: MakeHeaders
    ) -> None:
        """Post the remaining bodies on one connection, as long as it stays usable.

        Each body that the target accepts is removed from `remaining_bodies`.
        """
        address = _http_address_of(target)
        connection = start_tls(tcp_socket, target.host, self._get_tls_context()) if address.uses_tls else tcp_socket
        with connection:
            client = _HttpClient(target.host, target.port)
            client.sock = connection
            is_usable = True
            while remaining_bodies and is_usable:
                own = {**_common_headers(target, address), **headers(remaining_bodies[0])}
                client.request("POST", address.path_and_query, remaining_bodies[0], own)
                is_usable = _read_response(client, target, is_last=len(remaining_bodies) == 1)
                del remaining_bodies[0]


def _read_response(client: http.client.HTTPConnection, target: AlertTarget, *, is_last: bool) -> bool:
    """Read a response; return whether the connection can be used for another request.

    `is_last` is true if no further request is to be sent; then the result is False. Raise DeliveryFailed if the status
    is not a success.
    """
    with client.getresponse() as answer:
        _check_status(target, answer)
        # The body of a successful response is ignored, but must be read before the next request on the connection.
        if is_last or answer.will_close or (answer.length or 0) > _MAX_ERROR_BODY_BYTES:
            return False
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer.read(_MAX_ERROR_BODY_BYTES)
        return answer.isclosed()


class _BoundedHttpResponse(http.client.HTTPResponse):
    """A response of which only a limited number of bytes is read, even if its headers state a greater length."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self._bounded_file = BoundedSocketFile(sock)
        self.fp = io.BufferedReader(self._bounded_file)

    def begin(self) -> None:
        """Read the status line and the headers; raise ConnectionResetError if the connection ends within them.

        The library would accept incomplete headers.
        """
        super().begin()
        if self._bounded_file.is_at_end:
            raise ConnectionResetError


class _HttpClient(http.client.HTTPConnection):
    response_class = _BoundedHttpResponse
    # Python's HTTP library must not open a connection by itself, because the address would not be checked.
    auto_open = 0


def _http_address_of(target: AlertTarget) -> HttpAddress:
    if not isinstance(target.address, HttpAddress):
        raise TypeError(f"{target} is not an HTTP target")
    return target.address


def _common_headers(target: AlertTarget, address: HttpAddress) -> dict[str, str]:
    host = target.host.rstrip(".")
    named = f"[{host}]" if ":" in host else host
    port = "" if target.port == _DEFAULT_PORTS_BY_TLS[address.uses_tls] else f":{target.port}"
    login = {"Authorization": address.authorization_header} if address.authorization_header else {}
    return {"Host": named + port, "Content-Type": "application/json", "User-Agent": "cordwood", **login}


def _check_status(target: AlertTarget, answer: http.client.HTTPResponse) -> None:
    if 200 <= answer.status < 300:
        return
    said = b""
    with contextlib.suppress(OSError, http.client.HTTPException):
        said = answer.read(_MAX_ERROR_BODY_BYTES)
    text = said.decode("utf-8", "replace").strip()
    status = f"{answer.status} {answer.reason}".strip()
    hint = " Redirects are not followed." if 300 <= answer.status < 400 else ""
    raise DeliveryFailed(
        f"{target.host} answered {status}{f': {text}' if text and not hint else ''}.{hint}",
        parse_retry_after_seconds(answer.getheader("Retry-After"), time.time()),
    )


def parse_retry_after_seconds(text: str | None, now: float) -> float | None:
    """Return the seconds of a Retry-After header, which has a number or a date; return None for an invalid header."""
    if text is None:
        return None
    given = text.strip()
    if given.isascii() and given.isdigit():
        return min(float(given[:10]), _MAX_RETRY_DELAY_SECONDS)
    try:
        moment = parsedate_to_datetime(given)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return min(max(seconds, 0.0), _MAX_RETRY_DELAY_SECONDS)


def read_signing_key(secret: str) -> bytes:
    """Return the key with which webhooks are signed, read from the setting `alerts.signing_secret`.

    The key is empty if webhooks are not signed.
    """
    if not secret.startswith(_BASE64_SIGNING_KEY_PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(_BASE64_SIGNING_KEY_PREFIX), validate=True)
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

    `identity` is the same when the message is sent again. `timestamp` is in seconds since 1970.
    """
    # A dot separates the id from the rest of the signed text, so the id must not contain one.
    own = (
        identity
        if _MESSAGE_ID_PATTERN.fullmatch(identity)
        else f"msg_{sha256(identity.encode('utf-8', 'replace')).hexdigest()}"
    )
    headers = {"webhook-id": own, "webhook-timestamp": str(timestamp)}
    if not key:
        return headers
    digest = hmac.new(key, f"{own}.{timestamp}.".encode() + body, sha256).digest()
    return {**headers, "webhook-signature": f"v1,{base64.b64encode(digest).decode()}"}


_ACCEPTED_SMTP_CODES: Final = {250, 251}

# A function that creates an e-mail. Its argument has the recipients that the server refused; the e-mail lists them.
MakeMessage = Callable[[tuple[str, ...]], EmailMessage]


class _SmtpSender:
    """Sends e-mails to targets over SMTP."""

    def __init__(self, connector: Connector, context: Callable[[], ssl.SSLContext]) -> None:
        self._connector = connector
        self._get_tls_context = context

    def send(self, target: AlertTarget, message: MakeMessage, deadline: Deadline) -> None:
        """Send an e-mail to every recipient that the server accepts; raise DeliveryFailed if it accepts none."""
        address = target.address
        if not isinstance(address, MailAddress):
            raise TypeError(f"{target} is not an e-mail target")
        with self._connector.open_connection(target.host, target.port, deadline) as plain:
            connection = start_tls(plain, target.host, self._get_tls_context()) if address.uses_tls else plain
            with connection:
                session = _SmtpSession(connection, target.host.rstrip("."), target.port)
                try:
                    self._sign_in(session, address)
                    _send_mail(session, address, message)
                finally:
                    session.close()

    def _sign_in(self, session: "_SmtpSession", address: MailAddress) -> None:
        session.ehlo_or_helo_if_needed()
        if not address.uses_tls and session.has_extn("starttls"):
            session.starttls(context=self._get_tls_context())
            session.ehlo()
        elif not address.uses_tls and address.user:
            raise DeliveryFailed("The server does not offer STARTTLS, and the password is not sent without it.")
        if address.user:
            session.login(address.user, address.password)


class _SmtpSession(smtplib.SMTP):
    """An SMTP session on an existing connection."""

    def __init__(self, connection: socket.socket, host: str, port: int) -> None:
        self._connection = connection
        super().__init__(host, port, local_hostname=_local_address_literal(connection))

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        return self._connection

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(BoundedSocketFile(self.sock))
        return super().getreply()


def _local_address_literal(connection: socket.socket) -> str:
    """Return the IP address of this machine as the SMTP command EHLO sends it.

    The address is sent instead of the machine's name, so that the name stays private.
    """
    address = connection.getsockname()[0].partition("%")[0]
    return f"[IPv6:{address}]" if ":" in address else f"[{address}]"


def _send_mail(session: _SmtpSession, address: MailAddress, message: MakeMessage) -> None:
    code, said = session.mail(address.sender)
    if code != 250:
        raise smtplib.SMTPResponseException(code, said)
    refused: list[str] = []
    for recipient in address.recipients:
        code, said = session.rcpt(recipient)
        if code not in _ACCEPTED_SMTP_CODES:
            refused.append(recipient)
    if len(refused) == len(address.recipients):
        raise smtplib.SMTPResponseException(code, said)
    code, said = session.data(message(tuple(refused)).as_bytes())
    if code != 250:
        raise smtplib.SMTPResponseException(code, said)
    # The answer to QUIT does not matter, so it is not read.
    session.putcmd("quit")


_MAX_FAILURE_REASON_LENGTH: Final = 400


class NotificationDeliverer:
    """Sends notifications to targets. `deliver` blocks, and several threads may call it at the same time."""

    def __init__(
        self,
        targets: Mapping[str, AlertTarget],
        *,
        policy: AddressPolicy,
        signing_key: bytes = b"",
        send_seconds: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.targets_by_name = targets
        self._signing_key = signing_key
        self._send_timeout_seconds = send_seconds
        self._cached_tls_context = tls
        connector = Connector(policy)
        self._http_sender = _HttpSender(connector, self._tls_context)
        self._smtp_sender = _SmtpSender(connector, self._tls_context)

    @classmethod
    def from_settings(cls, settings: AlertSettings) -> "NotificationDeliverer":
        """Create the deliverer from the settings; raise BadSetting if one of them is invalid."""
        policy = read_address_policy(settings.refuse_addresses)
        targets = read_targets(settings.targets)
        for target in targets.values():
            _check_literal_target_host(target, policy)
        _check_external_url(settings.external_url)
        signing_key = read_signing_key(settings.signing_secret)
        return cls(targets, policy=policy, signing_key=signing_key, send_seconds=settings.send_time)

    def deliver(self, target: AlertTarget, notification: Notification) -> None:
        """Send a notification; raise DeliveryFailed if the target did not accept all of it."""
        deadline = Deadline(self._send_timeout_seconds)
        try:
            self._send(target, notification, deadline)
        except DeliveryFailed as failed:
            reason = failed.reason
            retry_after = failed.retry_after_seconds
        except (OSError, http.client.HTTPException, smtplib.SMTPException, UnicodeError) as problem:
            reason = _describe_connection_error(target.host, problem, deadline)
            retry_after = None
        else:
            return
        # Raise the exception outside of the handlers. Within them, it would be chained to the original exception, whose
        # text may contain secrets.
        raise DeliveryFailed(
            shorten_text(target.secrets.remove_secrets_from(reason), _MAX_FAILURE_REASON_LENGTH), retry_after
        )

    def _send(self, target: AlertTarget, notification: Notification, deadline: Deadline) -> None:
        if isinstance(target.address, MailAddress):
            self._smtp_sender.send(target, partial(mail_message, notification, target.address), deadline)
            return
        bodies = _make_request_bodies(target.kind, target.address, notification)
        self._http_sender.post(target, bodies, partial(self._signature_headers, target, notification), deadline)

    def _signature_headers(self, target: AlertTarget, notification: Notification, body: bytes) -> Mapping[str, str]:
        if target.kind is not AlertTargetKind.WEBHOOK:
            return {}
        return webhook_headers(self._signing_key, notification.id, int(time.time()), body)

    def _tls_context(self) -> ssl.SSLContext:
        """Return the TLS context, which is created on first use."""
        if self._cached_tls_context is None:
            self._cached_tls_context = ssl.create_default_context()
        return self._cached_tls_context


def _make_request_bodies(kind: AlertTargetKind, address: HttpAddress, notification: Notification) -> list[bytes]:
    if kind is AlertTargetKind.SLACK:
        return [slack_body(notification)]
    if kind is AlertTargetKind.PAGERDUTY:
        return list(pagerduty_events(notification, address.pagerduty_routing_key))
    if kind is AlertTargetKind.ALERTMANAGER:
        return [alertmanager_body(notification)]
    return [webhook_body(notification)]


def _describe_connection_error(host: str, problem: Exception, deadline: Deadline) -> str:
    """Describe a connection error in a sentence."""
    if deadline.is_over or isinstance(problem, TimeoutError):
        return f"{host} gave no complete answer within {deadline.timeout_seconds:g} s."
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"The certificate of {host} is not accepted: {problem.verify_message}."
    if isinstance(problem, ssl.SSLError):
        return f"The TLS connection to {host} failed: {problem.reason or 'no reason given'}."
    if isinstance(problem, smtplib.SMTPResponseException):
        said = problem.smtp_error
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        return f"{host} answered {problem.smtp_code} {text}."
    if isinstance(problem, (ConnectionResetError, BrokenPipeError, smtplib.SMTPServerDisconnected)):
        return f"{host} closed the connection without an answer."
    if isinstance(problem, http.client.HTTPException):
        return f"The answer of {host} is not HTTP: {type(problem).__name__}."
    reason = problem.strerror if isinstance(problem, OSError) else None
    return f"Sending to {host} failed: {str(reason or problem).rstrip('.')}."


def _check_literal_target_host(target: AlertTarget, policy: AddressPolicy) -> None:
    """Raise BadSetting if the host of a target is localhost or an IP address, and its address is refused.

    Other host names are checked at each delivery, after they have been resolved.
    """
    try:
        literal = str(ip_address(target.host))
    except ValueError:
        literal = "127.0.0.1" if target.host.rstrip(".") == "localhost" else ""
    refusal = policy.refusal_reason(literal) if literal else None
    if refusal is not None:
        raise BadSetting(
            f"alerts.targets: {target.name}: {target.host} is {refusal}, to which nothing is sent.",
            hint="alerts.refuse_addresses has the kinds of addresses that are refused.",
        )


def _check_external_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and not (parts.query or parts.fragment)
    except ValueError:
        is_valid = False
    if url and not (is_valid and url.isascii() and url.isprintable() and " " not in url):
        raise BadSetting(
            "alerts.external_url is not an address like https://logs.example.com.",
            hint="It has no query and no fragment.",
        )
