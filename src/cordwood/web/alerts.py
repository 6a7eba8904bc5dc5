"""Alerts over HTTP with a private key that sees everything: states, history, previews, silences, and tests of targets."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

import msgspec

from cordwood.alerts.notification import Change, DeliveryFailed, Notification, State
from cordwood.alerts.service import AlertParts, Alerts, TargetFacts
from cordwood.alerts.states import SECOND_US, Instance, Phase, Silence, is_silenced
from cordwood.alerts.store import HistoryEntry
from cordwood.errors import BadBody, BadDefinition, UnknownAlert, UnknownItem, did_you_mean
from cordwood.model.alert import Alert, Severity
from cordwood.model.json_checks import describe_json_error
from cordwood.model.key import Caller
from cordwood.model.timestamps import format_time
from cordwood.observe.observation import Observer
from cordwood.settings.quantities import read_duration, show_duration
from cordwood.web.asgi import Request, Response
from cordwood.web.audit import audit_definition
from cordwood.web.credentials import unrestricted_caller
from cordwood.web.lifecycle import Services
from cordwood.web.options import WebOptions
from cordwood.web.percent_encoding import asked_count
from cordwood.web.receiving import read_body
from cordwood.web.responses import no_store_json

ALERT_ADDRESS = re.compile(rb"/api/alerts/([^/]+)/preview")
TARGET_ADDRESS = re.compile(rb"/api/alerts/targets/([^/]+)/test")
SILENCE_ADDRESS = re.compile(rb"/api/alerts/silences/([^/]+)")

_LISTED_BY_DEFAULT, _MOST_LISTED = 100, 1_000
_MOST_INSTANCES: Final = 100
_LONGEST_SILENCE_SECONDS: Final = 366 * 86_400.0
_MAX_COMMENT: Final = 500

Told = dict[str, Any]


class AskedSilence(msgspec.Struct, forbid_unknown_fields=True):
    """A request for a silence: of one alert or of all, of groups with these labels, for a duration or until a time."""

    alert: str = ""
    labels: dict[str, str] = {}
    lasts: str | None = msgspec.field(default=None, name="for")
    until: str | None = None
    comment: str = ""


async def list_alerts(request: Request, services: Services) -> Response:
    _manager(request, services)
    # In a thread: alerts may have thousands of groups.
    return await asyncio.to_thread(_listed, services.alerts)


async def list_history(request: Request, services: Services) -> Response:
    _, query = _manager(request, services)
    limit = asked_count(query.get("limit"), _LISTED_BY_DEFAULT, _MOST_LISTED)
    before = asked_count(query.get("before"), 2**53, 2**53, "before")
    parts = services.alerts.parts
    if parts is None:
        return no_store_json({"history": []})
    found = await asyncio.to_thread(parts.store.history, query.get("alert") or None, limit, before)
    return no_store_json({"history": [_told_entry(entry) for entry in found]})


async def preview_alert(request: Request, services: Services, name: str) -> Response:
    """Evaluate an alert now; store and send nothing."""
    _manager(request, services)
    alert = _alert(services.alerts, name)
    verdicts, notice = await services.alerts.open().evaluator.preview(alert)
    firing = [
        {
            "labels": dict(verdict.labels),
            "severity": alert.severity,
            "text": verdict.text,
            "value": _plain(verdict.value),
        }
        for verdict in verdicts
        if verdict.holds
    ]
    return no_store_json({"alert": alert.name, "firing": firing, "groups": len(verdicts), "notice": notice})


async def test_target(request: Request, services: Services, observer: Observer, name: str) -> Response:
    """Send a test notification to a target, and return what came of it."""
    _manager(request, services)
    target = services.alerts.options.targets.get(name)
    if target is None:
        hint = did_you_mean(name, services.alerts.options.targets) or "Targets are named in the setting alerts.targets."
        raise UnknownItem(f"There is no target {name[:100]!r}.", hint=hint)
    audit_definition(observer, request, "alert_target.tested", name)
    try:
        await services.alerts.deliver(target, _test_notification(services.alerts))
    except DeliveryFailed as failure:
        return no_store_json({"target": name, "sent": False, "reason": failure.reason})
    return no_store_json({"target": name, "sent": True})


async def list_silences(request: Request, services: Services) -> Response:
    _manager(request, services)
    parts, now_us = services.alerts.parts, services.alerts.clock_us()
    silences = parts.store.silences() if parts is not None else ()
    return no_store_json({"silences": [_told_silence(silence) for silence in silences if silence.ends_us > now_us]})


async def create_silence(request: Request, services: Services, options: WebOptions, observer: Observer) -> Response:
    caller, _ = _manager(request, services)
    asked = _read(await read_body(request, options.queries))
    alerts = services.alerts
    if asked.alert:
        asked.alert = _alert(alerts, asked.alert).name
    silence = _silence(asked, caller, alerts.clock_us())
    await asyncio.to_thread(alerts.open().store.add_silence, silence, alerts.clock_us())
    audit_definition(observer, request, "silence.created", silence.alert or "all alerts")
    return no_store_json(_told_silence(silence), 201)


async def delete_silence(request: Request, services: Services, observer: Observer, silence_id: str) -> Response:
    _manager(request, services)
    parts = services.alerts.parts
    if parts is None or not await asyncio.to_thread(parts.store.delete_silence, silence_id):
        raise UnknownItem("There is no silence of this id.", hint="GET /api/alerts/silences lists them.")
    audit_definition(observer, request, "silence.deleted", silence_id)
    return Response(204, [])


def _manager(request: Request, services: Services) -> tuple[Caller, Mapping[str, str]]:
    """Return the caller; raise Forbidden unless the key is private and unrestricted, since alerts read everything."""
    return unrestricted_caller(request, services, "This key does not see everything, and alerts read everything.")


def _alert(alerts: Alerts, name: str) -> Alert:
    found = next((alert for alert in alerts.catalog.alerts() if name in (alert.name, str(alert.id))), None)
    if found is None:
        known = [alert.name for alert in alerts.catalog.alerts()]
        hint = did_you_mean(name, known) or "An alert is the [alert] table of an endpoint file, or a .alert.toml file."
        raise UnknownAlert(f"There is no alert {name[:200]!r}.", hint=hint)
    return found


def _read(body: bytes) -> AskedSilence:
    try:
        return msgspec.json.decode(body, type=AskedSilence)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        message = f"The body cannot be read: {describe_json_error(problem, body)}."
        raise BadBody(message, hint='Send, for example, {"alert": "my.endpoint", "for": "2h"}.') from problem


def _silence(asked: AskedSilence, caller: Caller, now_us: int) -> Silence:
    if len(asked.comment) > _MAX_COMMENT or len(msgspec.json.encode(asked.labels)) > 8 * _MAX_COMMENT:
        raise BadDefinition("comment", "is too long", hint=f"A comment has at most {_MAX_COMMENT} characters.")
    ends_us = _ends_us(asked, now_us)
    if not now_us < ends_us <= now_us + _LONGEST_SILENCE_SECONDS * SECOND_US:
        raise BadDefinition("until", "is invalid", hint="A silence ends in the future, within a year.")
    return Silence(uuid4().hex, asked.alert, asked.labels, now_us, ends_us, asked.comment, caller.key_id)


def _ends_us(asked: AskedSilence, now_us: int) -> int:
    if (asked.lasts is None) == (asked.until is None):
        raise BadDefinition("for", "is required", hint="Send either for, such as 2h, or until, an ISO 8601 time.")
    try:
        if asked.lasts is not None:
            return now_us + round(min(read_duration(asked.lasts), 2 * _LONGEST_SILENCE_SECONDS) * SECOND_US)
        moment = datetime.fromisoformat(str(asked.until))
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * SECOND_US)
    except (ValueError, OverflowError) as problem:
        field = "for" if asked.lasts is not None else "until"
        raise BadDefinition(field, "is invalid", hint=f"{problem}.") from problem


def _test_notification(alerts: Alerts) -> Notification:
    now_us = alerts.clock_us()
    fingerprint = uuid4().hex[:24]
    change = Change(fingerprint, State.RESOLVED, {}, "A test of this target: nothing is wrong.", None, now_us, now_us)
    return Notification(uuid4().hex, "test", "", Severity.INFO, (change,), now_us, now_us)


# What is told


def _listed(alerts: Alerts) -> Response:
    parts, now_us = alerts.parts, alerts.clock_us()
    silences = parts.store.silences() if parts is not None else ()
    told = [_told_alert(alert, parts, silences, now_us) for alert in alerts.catalog.alerts()]
    return no_store_json({"alerts": told, "targets": _told_targets(alerts)})


def _told_alert(alert: Alert, parts: AlertParts | None, silences: Sequence[Silence], now_us: int) -> Told:
    instances = {} if parts is None else parts.store.instances(str(alert.id))
    active = [instance for instance in instances.values() if instance.phase is not Phase.QUIET]
    active.sort(key=lambda instance: (instance.phase is not Phase.FIRING, instance.since_us))
    firing = sum(instance.phase is Phase.FIRING for instance in active)
    told: Told = {
        "name": alert.name,
        "id": str(alert.id),
        "endpoint": alert.endpoint,
        "severity": alert.severity,
        "condition": alert.condition.written,
        "every": show_duration(alert.every_seconds),
        "for": show_duration(alert.for_seconds),
        "group_by": alert.group_by,
        "send_to": alert.send_to,
        "state": active[0].phase if active else "inactive",
        "firing": firing,
        "pending": len(active) - firing,
        # Senders of events make the groups: all of them would be megabytes.
        "instances": [_told_instance(alert, instance, silences, now_us) for instance in active[:_MOST_INSTANCES]],
    }
    if parts is not None:
        health = parts.evaluator.health(alert)
        told |= {"evaluated_at": _time(health.evaluated_us), "error": health.error, "hint": health.hint}
        told["notice"] = health.notice
    return told


def _told_instance(alert: Alert, instance: Instance, silences: Sequence[Silence], now_us: int) -> Told:
    return {
        "fingerprint": instance.fingerprint,
        "state": instance.phase,
        "labels": dict(instance.labels),
        "since": _time(instance.since_us),
        "value": _plain(instance.value),
        "text": instance.text,
        "silenced": is_silenced(silences, alert.name, instance.labels, now_us),
    }


def _told_targets(alerts: Alerts) -> list[Told]:
    parts = alerts.parts
    queued = {} if parts is None else parts.store.queued_counts()
    return [_told_target(target, parts, queued.get(target.name, 0)) for target in alerts.options.targets.values()]


def _told_target(target: TargetFacts, parts: AlertParts | None, queued: int) -> Told:
    told: Told = {"name": target.name, "kind": target.kind, "host": target.host, "queued": queued}
    if parts is not None:
        attempts = parts.sender.attempts(target.name)
        told |= {"failures": attempts.failures, "error": attempts.error or None}
        told["next_attempt_at"] = _time(attempts.next_us) if attempts.failures else None
    return told


def _told_silence(silence: Silence) -> Told:
    return {
        "id": silence.id,
        "alert": silence.alert or None,
        "labels": silence.labels,
        "starts_at": _time(silence.starts_us),
        "ends_at": _time(silence.ends_us),
        "comment": silence.comment,
        "key": silence.created_by,
    }


def _told_entry(entry: HistoryEntry) -> Told:
    told = msgspec.to_builtins(entry)
    del told["at_us"]
    return {"at": _time(entry.at_us), **told}


def _plain(value: float | None) -> float | None:
    """Return a whole number as one."""
    return int(value) if value is not None and value.is_integer() and abs(value) < 2**53 else value


def _time(micros: int | None) -> str | None:
    return None if micros is None else format_time(micros)
