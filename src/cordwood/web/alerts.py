"""Routes for alerts, for unrestricted private keys: states, history, previews, silences, and tests of targets."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any, Final
from uuid import uuid4

import msgspec

from cordwood.alerts.evaluation import MICROSECONDS_PER_SECOND, GroupPhase, GroupState, Silence, is_silenced
from cordwood.alerts.notification import DeliveryFailed, Notification, NotifiedState, StateChange
from cordwood.alerts.service import AlertComponents, AlertService, DeliveryTarget
from cordwood.alerts.store import HistoryEntry
from cordwood.errors import BadBody, BadDefinition, UnknownAlert, UnknownResource, did_you_mean
from cordwood.model.definitions import Alert, Severity
from cordwood.model.json_checks import describe_json_error
from cordwood.model.key import Caller
from cordwood.model.timestamps import format_timestamp, parse_iso_time
from cordwood.observe.observation import Observer
from cordwood.settings.quantities import format_duration, parse_duration
from cordwood.web.asgi import Request, Response, no_store_json_response, parse_count_parameter
from cordwood.web.credentials import audit_definition_change, require_unrestricted_caller
from cordwood.web.request_body import read_body
from cordwood.web.services import Services, WebOptions

ALERT_PREVIEW_PATH_REGEX = re.compile(rb"/api/alerts/([^/]+)/preview")
TARGET_TEST_PATH_REGEX = re.compile(rb"/api/alerts/targets/([^/]+)/test")
SILENCE_PATH_REGEX = re.compile(rb"/api/alerts/silences/([^/]+)")

_LISTED_BY_DEFAULT, _MAX_LISTED = 100, 1_000
_MAX_LISTED_GROUPS: Final = 100
_MAX_SILENCE_SECONDS: Final = 366 * 86_400.0
_MAX_COMMENT_CHARACTERS: Final = 500

JsonObject = dict[str, Any]


class SilenceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request to silence an alert, or all alerts if `alert` is empty.

    The silence applies to the groups that have all of the `labels`. It lasts for a duration (`for`) or until a time
    (`until`).
    """

    alert: str = ""
    labels: dict[str, str] = {}
    duration: str | None = msgspec.field(default=None, name="for")
    until: str | None = None
    comment: str = ""


async def list_alerts(request: Request, services: Services) -> Response:
    _require_unrestricted_caller(request, services)
    # Read the states in a thread, because an alert can have thousands of groups.
    return await asyncio.to_thread(_alert_list_response, services.alert_service)


async def list_alert_history(request: Request, services: Services) -> Response:
    _, query = _require_unrestricted_caller(request, services)
    limit = parse_count_parameter(query.get("limit"), _LISTED_BY_DEFAULT, _MAX_LISTED)
    before = parse_count_parameter(query.get("before"), 2**53, 2**53, "before")
    parts = services.alert_service.components
    if parts is None:
        return no_store_json_response({"history": []})
    found = await asyncio.to_thread(parts.store.history, query.get("alert") or None, limit, before)
    return no_store_json_response({"history": [_history_json(entry) for entry in found]})


async def preview_alert(request: Request, services: Services, name: str) -> Response:
    """Evaluate an alert now, without storing or sending anything."""
    _require_unrestricted_caller(request, services)
    alert = _find_alert(services.alert_service, name)
    verdicts, notice = await services.alert_service.open_store().evaluator.preview(alert)
    firing = [
        {
            "labels": dict(verdict.labels),
            "severity": alert.severity,
            "text": verdict.alert_text,
            "value": _int_if_whole(verdict.value),
        }
        for verdict in verdicts
        if verdict.condition_holds
    ]
    return no_store_json_response({"alert": alert.name, "firing": firing, "groups": len(verdicts), "notice": notice})


async def send_test_notification(request: Request, services: Services, observer: Observer, name: str) -> Response:
    """Send a test notification to a target and return the outcome."""
    _require_unrestricted_caller(request, services)
    target = services.alert_service.options.targets_by_name.get(name)
    if target is None:
        hint = (
            did_you_mean(name, services.alert_service.options.targets_by_name)
            or "Targets are named in the setting alerts.targets."
        )
        raise UnknownResource(f"There is no target {name[:100]!r}.", hint=hint)
    audit_definition_change(observer, request, "alert_target.tested", name)
    try:
        await services.alert_service.deliver(target, _create_test_notification(services.alert_service))
    except DeliveryFailed as failure:
        return no_store_json_response({"target": name, "sent": False, "reason": failure.reason})
    return no_store_json_response({"target": name, "sent": True})


async def list_silences(request: Request, services: Services) -> Response:
    _require_unrestricted_caller(request, services)
    parts, now_us = services.alert_service.components, services.alert_service.clock_us()
    silences = parts.store.silences() if parts is not None else ()
    return no_store_json_response(
        {"silences": [_silence_json(silence) for silence in silences if silence.ends_us > now_us]}
    )


async def create_silence(request: Request, services: Services, options: WebOptions, observer: Observer) -> Response:
    caller, _ = _require_unrestricted_caller(request, services)
    silence_request = _read_silence_request(await read_body(request, options.query_body_bounds))
    alerts = services.alert_service
    if silence_request.alert:
        silence_request.alert = _find_alert(alerts, silence_request.alert).name
    silence = _silence_of_request(silence_request, caller, alerts.clock_us())
    await asyncio.to_thread(alerts.open_store().store.add_silence, silence, alerts.clock_us())
    audit_definition_change(observer, request, "silence.created", silence.alert or "all alerts")
    return no_store_json_response(_silence_json(silence), 201)


async def delete_silence(request: Request, services: Services, observer: Observer, silence_id: str) -> Response:
    _require_unrestricted_caller(request, services)
    parts = services.alert_service.components
    if parts is None or not await asyncio.to_thread(parts.store.delete_silence, silence_id):
        raise UnknownResource("There is no silence of this id.", hint="GET /api/alerts/silences lists them.")
    audit_definition_change(observer, request, "silence.deleted", silence_id)
    return Response(204, [])


def _require_unrestricted_caller(request: Request, services: Services) -> tuple[Caller, Mapping[str, str]]:
    """Return the caller and the query string; raise Forbidden unless the key is private and unrestricted.

    A restricted key is refused, because alerts read the events of all projects.
    """
    return require_unrestricted_caller(
        request, services, "This key does not see everything, and alerts read everything."
    )


def _find_alert(alerts: AlertService, name: str) -> Alert:
    found = next((alert for alert in alerts.catalog.alerts() if name in (alert.name, str(alert.id))), None)
    if found is None:
        known = [alert.name for alert in alerts.catalog.alerts()]
        hint = did_you_mean(name, known) or "An alert is the [alert] table of an endpoint file, or a .alert.toml file."
        raise UnknownAlert(f"There is no alert {name[:200]!r}.", hint=hint)
    return found


def _read_silence_request(body: bytes) -> SilenceRequest:
    try:
        return msgspec.json.decode(body, type=SilenceRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        message = f"The body cannot be read: {describe_json_error(problem, body)}."
        raise BadBody(message, hint='Send, for example, {"alert": "my.endpoint", "for": "2h"}.') from problem


def _silence_of_request(silence_request: SilenceRequest, caller: Caller, now_us: int) -> Silence:
    if (
        len(silence_request.comment) > _MAX_COMMENT_CHARACTERS
        or len(msgspec.json.encode(silence_request.labels)) > 8 * _MAX_COMMENT_CHARACTERS
    ):
        raise BadDefinition(
            "comment", "is too long", hint=f"A comment has at most {_MAX_COMMENT_CHARACTERS} characters."
        )
    ends_us = _silence_end_us(silence_request, now_us)
    if not now_us < ends_us <= now_us + _MAX_SILENCE_SECONDS * MICROSECONDS_PER_SECOND:
        raise BadDefinition("until", "is invalid", hint="A silence ends in the future, within a year.")
    return Silence(
        uuid4().hex,
        silence_request.alert,
        silence_request.labels,
        now_us,
        ends_us,
        silence_request.comment,
        caller.key_id,
    )


def _silence_end_us(silence_request: SilenceRequest, now_us: int) -> int:
    if (silence_request.duration is None) == (silence_request.until is None):
        raise BadDefinition("for", "is required", hint="Send either for, such as 2h, or until, an ISO 8601 time.")
    try:
        if silence_request.duration is not None:
            return now_us + round(
                min(parse_duration(silence_request.duration), 2 * _MAX_SILENCE_SECONDS) * MICROSECONDS_PER_SECOND
            )
        moment = parse_iso_time(str(silence_request.until))
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * MICROSECONDS_PER_SECOND)
    except (ValueError, OverflowError) as problem:
        field = "for" if silence_request.duration is not None else "until"
        raise BadDefinition(field, "is invalid", hint=f"{problem}.") from problem


def _create_test_notification(alerts: AlertService) -> Notification:
    now_us = alerts.clock_us()
    fingerprint = uuid4().hex[:24]
    change = StateChange(
        fingerprint, NotifiedState.RESOLVED, {}, "A test of this target: nothing is wrong.", None, now_us, now_us
    )
    return Notification(uuid4().hex, "test", "", Severity.INFO, (change,), now_us, now_us)


# The functions below build the JSON objects in the bodies of responses.


def _alert_list_response(alerts: AlertService) -> Response:
    parts, now_us = alerts.components, alerts.clock_us()
    silences = parts.store.silences() if parts is not None else ()
    listed = [_alert_json(alert, parts, silences, now_us) for alert in alerts.catalog.alerts()]
    return no_store_json_response({"alerts": listed, "targets": _target_list(alerts)})


def _alert_json(alert: Alert, parts: AlertComponents | None, silences: Sequence[Silence], now_us: int) -> JsonObject:
    instances = {} if parts is None else parts.store.group_states(str(alert.id))
    active = [instance for instance in instances.values() if instance.phase is not GroupPhase.QUIET]
    active.sort(key=lambda instance: (instance.phase is not GroupPhase.FIRING, instance.since_us))
    firing = sum(instance.phase is GroupPhase.FIRING for instance in active)
    fields: JsonObject = {
        "name": alert.name,
        "id": str(alert.id),
        "endpoint": alert.endpoint_name,
        "severity": alert.severity,
        "condition": alert.condition.written_text,
        "every": format_duration(alert.every_seconds),
        "for": format_duration(alert.for_seconds),
        "group_by": alert.group_by,
        "send_to": alert.send_to,
        "state": active[0].phase if active else "inactive",
        "firing": firing,
        "pending": len(active) - firing,
        # The number of groups depends on the events that are sent, so a list of all groups could take megabytes.
        "instances": [_group_json(alert, instance, silences, now_us) for instance in active[:_MAX_LISTED_GROUPS]],
    }
    if parts is not None:
        health = parts.evaluator.health_of(alert)
        fields |= {"evaluated_at": _iso_time(health.evaluated_us), "error": health.error, "hint": health.hint}
        fields["notice"] = health.notice
    return fields


def _group_json(alert: Alert, instance: GroupState, silences: Sequence[Silence], now_us: int) -> JsonObject:
    return {
        "fingerprint": instance.fingerprint,
        "state": instance.phase,
        "labels": dict(instance.labels),
        "since": _iso_time(instance.since_us),
        "value": _int_if_whole(instance.value),
        "text": instance.text,
        "silenced": is_silenced(silences, alert.name, instance.labels, now_us),
    }


def _target_list(alerts: AlertService) -> list[JsonObject]:
    parts = alerts.components
    queued = {} if parts is None else parts.store.count_queued_changes_by_target()
    return [
        _target_json(target, parts, queued.get(target.name, 0)) for target in alerts.options.targets_by_name.values()
    ]


def _target_json(target: DeliveryTarget, parts: AlertComponents | None, queued: int) -> JsonObject:
    fields: JsonObject = {"name": target.name, "kind": target.kind, "host": target.host, "queued": queued}
    if parts is not None:
        attempts = parts.sender.delivery_state(target.name)
        fields |= {"failures": attempts.consecutive_failures, "error": attempts.last_error or None}
        fields["next_attempt_at"] = _iso_time(attempts.next_attempt_us) if attempts.consecutive_failures else None
    return fields


def _silence_json(silence: Silence) -> JsonObject:
    return {
        "id": silence.id,
        "alert": silence.alert or None,
        "labels": silence.labels,
        "starts_at": _iso_time(silence.starts_us),
        "ends_at": _iso_time(silence.ends_us),
        "comment": silence.comment,
        "key": silence.created_by,
    }


def _history_json(entry: HistoryEntry) -> JsonObject:
    fields = msgspec.to_builtins(entry)
    del fields["at_us"]
    return {"at": _iso_time(entry.at_us), **fields}


def _int_if_whole(value: float | None) -> float | None:
    """Convert a whole number to an int, so that it is written without a decimal point in JSON."""
    return int(value) if value is not None and value.is_integer() and abs(value) < 2**53 else value


def _iso_time(micros: int | None) -> str | None:
    return None if micros is None else format_timestamp(micros)
