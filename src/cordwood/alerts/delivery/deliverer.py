"""The deliverer: sends a notification to a target in its format, within a time limit, or raises the reason."""

import http.client
import smtplib
import ssl
import time
from collections.abc import Mapping
from functools import partial
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from cordwood.alerts.delivery.addresses import AddressPolicy, read_policy
from cordwood.alerts.delivery.connections import Connector, Deadline
from cordwood.alerts.delivery.http_post import HttpPost, read_signing_key, webhook_headers
from cordwood.alerts.delivery.messages import (
    alertmanager_alerts,
    mail,
    pagerduty_events,
    shortened,
    slack_body,
    webhook_body,
)
from cordwood.alerts.delivery.smtp import Smtp
from cordwood.alerts.delivery.targets import HttpAddress, Kind, MailAddress, Target, read_targets
from cordwood.alerts.notification import DeliveryFailed, Notification
from cordwood.errors import BadSetting
from cordwood.settings.settings import Alerts

_MAX_REASON_LENGTH: Final = 400


class Deliverer:
    """Sends notifications to targets. `deliver` blocks, and may be called in several threads."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        *,
        policy: AddressPolicy,
        signing_key: bytes = b"",
        send_seconds: float = 10.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.targets = targets
        self._signing_key = signing_key
        self._send_seconds = send_seconds
        self._tls = tls
        connector = Connector(policy)
        self._http = HttpPost(connector, self._context)
        self._smtp = Smtp(connector, self._context)

    @classmethod
    def of(cls, settings: Alerts) -> "Deliverer":
        """Create the deliverer from the settings; raise BadSetting if one of them is invalid."""
        policy = read_policy(settings.refuse_addresses)
        targets = read_targets(settings.targets)
        for target in targets.values():
            _check_literal(target, policy)
        _check_external_url(settings.external_url)
        signing_key = read_signing_key(settings.signing_secret)
        return cls(targets, policy=policy, signing_key=signing_key, send_seconds=settings.send_time)

    def deliver(self, target: Target, notification: Notification) -> None:
        """Send a notification; raise DeliveryFailed if the target did not accept all of it."""
        deadline = Deadline(self._send_seconds)
        try:
            self._send(target, notification, deadline)
        except DeliveryFailed as failed:
            reason = failed.reason
            retry_after = failed.retry_after_seconds
        except (OSError, http.client.HTTPException, smtplib.SMTPException, UnicodeError) as problem:
            reason = _problem_sentence(target.host, problem, deadline)
            retry_after = None
        else:
            return
        # Not `from problem`, whose text may contain secrets.
        raise DeliveryFailed(shortened(target.secrets.remove_secrets_from(reason), _MAX_REASON_LENGTH), retry_after)

    def _send(self, target: Target, notification: Notification, deadline: Deadline) -> None:
        if isinstance(target.address, MailAddress):
            self._smtp.send(target, partial(mail, notification, target.address), deadline)
            return
        bodies = _bodies(target.kind, target.address, notification)
        self._http.post(target, bodies, partial(self._headers, target, notification), deadline)

    def _headers(self, target: Target, notification: Notification, body: bytes) -> Mapping[str, str]:
        if target.kind is not Kind.WEBHOOK:
            return {}
        return webhook_headers(self._signing_key, notification.id, int(time.time()), body)

    def _context(self) -> ssl.SSLContext:
        """Return the TLS context, which is created on first use."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def _bodies(kind: Kind, address: HttpAddress, notification: Notification) -> list[bytes]:
    if kind is Kind.SLACK:
        return [slack_body(notification)]
    if kind is Kind.PAGERDUTY:
        return list(pagerduty_events(notification, address.routing_key))
    if kind is Kind.ALERTMANAGER:
        return [alertmanager_alerts(notification)]
    return [webhook_body(notification)]


def _problem_sentence(host: str, problem: Exception, deadline: Deadline) -> str:
    """Describe a connection error in a sentence."""
    if deadline.is_over or isinstance(problem, TimeoutError):
        return f"{host} gave no complete answer within {deadline.seconds:g} s."
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


def _check_literal(target: Target, policy: AddressPolicy) -> None:
    """Raise BadSetting for an address that is always refused. Names are checked when they are resolved."""
    try:
        literal = str(ip_address(target.host))
    except ValueError:
        literal = "127.0.0.1" if target.host.rstrip(".") == "localhost" else ""
    refusal = policy.refusal(literal) if literal else None
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
