"""Create the message of a notification in the format of each kind of target.

Names, labels and texts may come from untrusted senders of events, so they are cleaned, escaped and limited in length.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from cordwood.alerts.delivery.targets import MAX_CHANGES_BY_TARGET_KIND, AlertTargetKind, MailAddress
from cordwood.alerts.notification import Notification, NotifiedState, StateChange

# The following constants limit the lengths in characters of the parts of a message, such as the name of the alert.
# `_MAX_LABELS` limits the number of labels of a change.
_MAX_ALERT_NAME_LENGTH: Final = 200
_MAX_CHANGE_TEXT_LENGTH: Final = 2000
_MAX_LABEL_NAME_LENGTH: Final = 100
_MAX_LABEL_VALUE_LENGTH: Final = 500
_MAX_LABELS: Final = 30
_MAX_URL_LENGTH: Final = 2000

# Slack allows 3,000 characters per block, 150 per header, and 50 blocks. The following limits keep messages below that.
_MAX_SLACK_HEADER_LENGTH: Final = 150
_MAX_SLACK_LABELS: Final = 8
_MAX_SLACK_LABEL_NAME_LENGTH: Final = 60
_MAX_SLACK_CHANGE_TEXT_LENGTH: Final = 1200
# The maximum length of the fallback text, as Discord limits it. Mattermost and Discord show this text, and not the
# blocks.
_MAX_SLACK_FALLBACK_LENGTH: Final = 2000
_MAX_FALLBACK_CHANGE_TEXT_LENGTH: Final = 300
_MAX_SLACK_LINK_LENGTH: Final = 300
_MAX_PAGERDUTY_SUMMARY_LENGTH: Final = 1024
_MAX_PAGERDUTY_DEDUP_KEY_LENGTH: Final = 255
_MAX_MAIL_SUBJECT_LENGTH: Final = 150

_STATE_EMOJI: Final = {NotifiedState.FIRING: "\U0001f534", NotifiedState.RESOLVED: "\U0001f7e2"}

# Only this many characters of a text are processed; the others are cut off.
_MAX_PROCESSED_TEXT_CHARACTERS: Final = 20_000
# Most invisible characters are removed. Zero-width joiners are kept, because they are part of emoji and of several
# scripts. Private and unassigned characters are kept as well: at worst they are shown as a box.
_ALLOWED_FORMAT_CHARACTERS: Final = {"\u200c", "\u200d"}
_KEPT_UNICODE_CATEGORIES: Final = {"Cn", "Co"}
_CATEGORIES_REPLACED_BY_SPACE: Final = {"Cc", "Zl", "Zp", "Zs"}
_SLACK_ESCAPES: Final = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    # Mattermost and Discord accept Slack's format, but also interpret @all and [text](address). An invisible space
    # prevents that.
    "@": "@\u200b",
    "]": "]\u200b",
    # A backquote is replaced, because it could end a code span, or begin one that extends over the rest of the text.
    "`": "'",
}


class _IncludedChanges(msgspec.Struct, frozen=True):
    """The changes of a notification that a message includes, and the number of changes that it leaves out."""

    changes: tuple[StateChange, ...]
    omitted_count: int

    def count_in_state(self, state: NotifiedState) -> int:
        return sum(change.state is state for change in self.changes)

    def change_counts_text(self) -> str:
        """Return the numbers of changes as a text, such as "3 firing, 1 resolved and 37 more"."""
        numbers = [
            f"{self.count_in_state(state)} {state.value}" for state in NotifiedState if self.count_in_state(state)
        ]
        counted = ", ".join(numbers) or "0 changes"
        return f"{counted} and {self.omitted_count} more" if self.omitted_count else counted


def webhook_body(notification: Notification) -> bytes:
    """Return the JSON body of a webhook, in the format that the guide documents.

    Receivers depend on this format: while `version` stays the same, fields may be added, but not changed or removed.
    """
    part = _select_included_changes(notification, AlertTargetKind.WEBHOOK)
    return msgspec.json.encode(
        {
            "version": 1,
            "type": "alert.changed",
            "timestamp": _format_iso_time(notification.created_us),
            "data": {
                "id": shorten_text(notification.id, _MAX_ALERT_NAME_LENGTH),
                "alert": shorten_text(notification.alert_name, _MAX_ALERT_NAME_LENGTH),
                "endpoint": shorten_text(notification.endpoint_name, _MAX_ALERT_NAME_LENGTH),
                "severity": notification.severity.value,
                "url": _encode_url(notification.alert_page_url),
                "expires": _format_iso_time(notification.expires_us),
                "firing": part.count_in_state(NotifiedState.FIRING),
                "resolved": part.count_in_state(NotifiedState.RESOLVED),
                "omitted": part.omitted_count,
                "changes": [_webhook_change(change) for change in part.changes],
            },
        }
    )


def _webhook_change(change: StateChange) -> Mapping[str, Any]:
    return {
        "fingerprint": shorten_text(change.fingerprint, _MAX_ALERT_NAME_LENGTH),
        "state": change.state.value,
        "labels": dict(_shortened_labels(change)),
        "labels_omitted": max(0, len(change.labels) - _MAX_LABELS),
        "text": shorten_text(change.text, _MAX_CHANGE_TEXT_LENGTH),
        "value": _finite_or_none(change.value),
        "started": _format_iso_time(change.started_us),
        "ended": None if change.ended_us is None else _format_iso_time(change.ended_us),
    }


def slack_body(notification: Notification) -> bytes:
    """Return a message in the format of Slack's incoming webhooks."""
    part = _select_included_changes(notification, AlertTargetKind.SLACK)
    title = escape_for_slack(f"{notification.alert_name}: {part.change_counts_text()}", _MAX_SLACK_HEADER_LENGTH)
    lines = [_slack_change_line(change, _MAX_SLACK_CHANGE_TEXT_LENGTH) for change in part.changes]
    short_lines = [_slack_change_line(change, _MAX_FALLBACK_CHANGE_TEXT_LENGTH) for change in part.changes]
    origin = f"{notification.severity.value}, endpoint {escape_for_slack(notification.endpoint_name, _MAX_ALERT_NAME_LENGTH)}"
    url = _encode_url(notification.alert_page_url)
    # Slack's notation of a link. The URL is percent-encoded, so it contains none of the delimiters.
    link = f"<{url.replace('&', '&amp;')}|Open>" if url else ""
    further = [f"{part.omitted_count} further changes are not shown"] if part.omitted_count else []
    fallback = [
        _slack_fallback_text(title, short_lines, part.omitted_count),
        *([link] if 0 < len(link) <= _MAX_SLACK_LINK_LENGTH else []),
    ]
    return msgspec.json.encode(
        {
            "text": "\n".join(fallback),
            "blocks": [
                # A text of the type plain_text has no markup, but Slack decodes entities such as &amp; in it. So it is
                # escaped, too.
                {"type": "header", "text": {"type": "plain_text", "text": title, "emoji": False}},
                *({"type": "section", "text": _slack_text_object(line)} for line in lines),
                {
                    "type": "context",
                    "elements": [_slack_text_object(" · ".join(filter(None, [origin, *further, link])))],
                },
            ],
        }
    )


def _slack_change_line(change: StateChange, limit: int) -> str:
    """Return a change in one line, with escaped labels and text; the text has at most `limit` UTF-16 units."""
    labels = [
        f"{escape_for_slack(name, _MAX_SLACK_LABEL_NAME_LENGTH)}={escape_for_slack(value, max(40, limit // 10))}"
        for name, value in _shortened_labels(change)[:_MAX_SLACK_LABELS]
    ]
    more = [f"{len(change.labels) - _MAX_SLACK_LABELS} more labels"] if len(change.labels) > _MAX_SLACK_LABELS else []
    parts = [", ".join([*labels, *more]), escape_for_slack(change.text, limit)]
    words = " — ".join(filter(None, parts))
    return f"{_STATE_EMOJI[change.state]} {change.state.value} {words}".rstrip()


def _slack_fallback_text(title: str, lines: list[str], omitted: int) -> str:
    """Return the fallback text: the title, and as many whole lines as fit into the limit."""
    shown = [title]
    room = _MAX_SLACK_FALLBACK_LENGTH - _MAX_SLACK_LINK_LENGTH - utf16_length(title) - len("\nand 1000000000 more\n")
    for line in lines:
        room -= utf16_length(line) + 1
        if room < 0:
            break
        shown.append(line)
    left = len(lines) - len(shown) + 1 + omitted
    return "\n".join([*shown, f"and {left} more"] if left else shown)


def _slack_text_object(text: str) -> Mapping[str, Any]:
    # `verbatim` prevents names of channels and people from becoming links.
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def pagerduty_events(notification: Notification, routing_key: str) -> Iterator[bytes]:
    """Yield an event in the format of PagerDuty's Events API v2 for each change."""
    part = _select_included_changes(notification, AlertTargetKind.PAGERDUTY)
    for change in part.changes:
        event: dict[str, Any] = {
            "routing_key": routing_key,
            "event_action": "trigger" if change.state is NotifiedState.FIRING else "resolve",
            "dedup_key": _pagerduty_dedup_key(change.fingerprint),
        }
        if change.state is NotifiedState.FIRING:
            event |= _pagerduty_trigger(notification, change, part.omitted_count)
        yield msgspec.json.encode(event)


def _pagerduty_trigger(notification: Notification, change: StateChange, omitted: int) -> Mapping[str, Any]:
    labels = _shortened_labels(change)
    words = ", ".join(f"{name}={value}" for name, value in labels)
    summary = " — ".join(filter(None, [notification.alert_name, change.text, words]))
    url = _encode_url(notification.alert_page_url)
    links = {"client_url": url, "links": [{"href": url, "text": "The alert in cordwood"}]} if url else {}
    return {
        "payload": {
            "summary": shorten_text(summary, _MAX_PAGERDUTY_SUMMARY_LENGTH) or "alert",
            "source": shorten_text(notification.endpoint_name, _MAX_ALERT_NAME_LENGTH) or "cordwood",
            "severity": notification.severity.value,
            "timestamp": _format_iso_time(change.started_us),
            "class": shorten_text(notification.alert_name, _MAX_ALERT_NAME_LENGTH),
            "custom_details": {
                "labels": dict(labels),
                "text": shorten_text(change.text, _MAX_CHANGE_TEXT_LENGTH),
                "value": _finite_or_none(change.value),
                "further_changes_not_sent": omitted,
            },
        },
        "client": "cordwood",
        **links,
    }


def _pagerduty_dedup_key(fingerprint: str) -> str:
    clean = remove_invisible_characters(fingerprint)
    is_usable = clean == fingerprint and 0 < len(fingerprint) <= _MAX_PAGERDUTY_DEDUP_KEY_LENGTH
    return fingerprint if is_usable else sha256(fingerprint.encode("utf-8", "replace")).hexdigest()


def alertmanager_body(notification: Notification) -> bytes:
    """Return the changes as alerts in the JSON format of Alertmanager's API v2."""
    part = _select_included_changes(notification, AlertTargetKind.ALERTMANAGER)
    return msgspec.json.encode(
        [_alertmanager_alert(notification, change, part.omitted_count) for change in part.changes]
    )


def _alertmanager_alert(notification: Notification, change: StateChange, omitted: int) -> Mapping[str, Any]:
    ended = (
        notification.expires_us
        if change.state is NotifiedState.FIRING
        else (change.ended_us or notification.created_us)
    )
    url = _encode_url(notification.alert_page_url)
    annotations = {
        "summary": shorten_text(change.text, _MAX_CHANGE_TEXT_LENGTH),
        "endpoint": shorten_text(notification.endpoint_name, _MAX_ALERT_NAME_LENGTH),
        "value": _format_number(change.value),
        "further_changes_not_sent": str(omitted) if omitted else "",
    }
    return {
        "labels": _alertmanager_labels(notification, change),
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": _format_iso_time(change.started_us),
        # If an alert ended before it started, Alertmanager would refuse all alerts of the request.
        "endsAt": _format_iso_time(max(ended, change.started_us)),
        **({"generatorURL": url} if url else {}),
    }


def _alertmanager_labels(notification: Notification, change: StateChange) -> Mapping[str, str]:
    """Return the labels of an alert for Alertmanager, with names that Alertmanager accepts.

    A group has the same labels in every notification, because Alertmanager identifies an alert by its labels.
    """
    made = {
        "alertname": shorten_text(notification.alert_name, _MAX_ALERT_NAME_LENGTH) or "unnamed",
        "severity": notification.severity.value,
    }
    shown = _shortened_labels(change)
    for name, value in shown:
        valid = re.sub(r"[^A-Za-z0-9_]", "_", name)
        valid = f"_{valid}" if valid[:1].isdigit() or not valid else valid
        while valid in made:
            valid += "_"
        made[valid] = value
    # Labels identify an alert. If cleaning or shortening has changed the labels, two groups could have equal labels. So
    # the fingerprint of the group is added to them.
    if shown != sorted(change.labels.items()):
        made["cordwood_group"] = shorten_text(change.fingerprint, _MAX_ALERT_NAME_LENGTH)
    return made


def mail_message(notification: Notification, address: MailAddress, refused: tuple[str, ...] = ()) -> EmailMessage:
    """Return an e-mail in plain text, which lists the recipients in `refused` that the server did not accept."""
    part = _select_included_changes(notification, AlertTargetKind.EMAIL)
    message = EmailMessage(policy=SMTP)
    message["Subject"] = shorten_text(
        f"[{notification.severity.value}] {shorten_text(notification.alert_name, _MAX_ALERT_NAME_LENGTH)}: {part.change_counts_text()}",
        _MAX_MAIL_SUBJECT_LENGTH,
    )
    message["From"] = Address("cordwood", addr_spec=address.sender)
    message["To"] = tuple(Address(addr_spec=recipient) for recipient in address.recipients)
    message["Date"] = format_datetime(_datetime_from_microseconds(notification.created_us))
    # The id is the same when the mail is sent again, so that mail programs can recognize the duplicate.
    identity = sha256(notification.id.encode("utf-8", "replace")).hexdigest()[:32]
    message["Message-ID"] = f"<{identity}.cordwood@{address.sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n".join(_mail_body_lines(notification, part, refused)) + "\n", cte="quoted-printable")
    return message


def _mail_body_lines(notification: Notification, part: _IncludedChanges, refused: tuple[str, ...]) -> Iterator[str]:
    yield f"{shorten_text(notification.alert_name, _MAX_ALERT_NAME_LENGTH)}: {part.change_counts_text()}"
    yield f"Severity {notification.severity.value}, endpoint {shorten_text(notification.endpoint_name, _MAX_ALERT_NAME_LENGTH)}"
    for change in part.changes:
        yield ""
        labels = ", ".join(f"{name}={value}" for name, value in _shortened_labels(change))
        yield f"{change.state.value.upper()} {labels}".rstrip()
        if change.text:
            yield f"  {shorten_text(change.text, _MAX_CHANGE_TEXT_LENGTH)}"
        value = f"value {_format_number(change.value)}, " if _finite_or_none(change.value) is not None else ""
        ended = "" if change.ended_us is None else f", until {_format_iso_time(change.ended_us)}"
        yield f"  {value}since {_format_iso_time(change.started_us)}{ended}"
    if part.omitted_count:
        yield ""
        yield f"And {part.omitted_count} more."
    url = _encode_url(notification.alert_page_url)
    if url:
        yield ""
        yield url
    if refused:
        yield ""
        yield f"The server did not accept these recipients: {', '.join(refused)}"


def _select_included_changes(notification: Notification, kind: AlertTargetKind) -> _IncludedChanges:
    maximum = MAX_CHANGES_BY_TARGET_KIND[kind]
    left = max(0, len(notification.changes) - maximum)
    return _IncludedChanges(notification.changes[:maximum], left + notification.omitted_change_count)


def _shortened_labels(change: StateChange) -> list[tuple[str, str]]:
    """Return the labels of a change sorted by name, with cleaned texts, and limited in number and length."""
    ordered = sorted(change.labels.items())[:_MAX_LABELS]
    return [
        (shorten_text(name, _MAX_LABEL_NAME_LENGTH), shorten_text(value, _MAX_LABEL_VALUE_LENGTH))
        for name, value in ordered
    ]


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _format_number(value: float | None) -> str:
    number = _finite_or_none(value)
    return "" if number is None else f"{number:.15g}"


def _encode_url(url: str) -> str:
    """Return an HTTP URL in ASCII, in which every character that could end a link is percent-encoded.

    Return an empty text if the URL is not an HTTP URL or is too long.
    """
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return ""
    quoted = quote(url.encode("utf-8", "replace"), safe="%/:?#[]$&+,;=~")
    return quoted if is_http and len(quoted) <= _MAX_URL_LENGTH else ""


def _format_iso_time(microseconds: int) -> str:
    return _datetime_from_microseconds(microseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _datetime_from_microseconds(microseconds: int) -> datetime:
    # Replace times after the year 9999, which a datetime cannot express, by the end of that year.
    return datetime.fromtimestamp(min(max(microseconds, 0) // 1000, 253_402_300_799_000) / 1000, UTC)


def remove_invisible_characters(text: str) -> str:
    """Return the text in one line, without control, bidirectional and other invisible characters."""
    return " ".join("".join(map(_replace_invisible_character, text[:_MAX_PROCESSED_TEXT_CHARACTERS])).split())


def shorten_text(text: str, limit: int) -> str:
    """Return the cleaned text with at most `limit` characters; if it was cut, it ends with a note that says so."""
    clean = remove_invisible_characters(text)
    if len(clean) <= limit and len(text) <= _MAX_PROCESSED_TEXT_CHARACTERS:
        return clean
    note = _truncation_note(text)
    return clean[: max(0, limit - len(note))] + note


def escape_for_slack(text: str, limit: int) -> str:
    """Return the cleaned text with the characters of Slack's markup escaped.

    The escaped text has at most `limit` UTF-16 units. If it was cut, it ends with a note that says so.
    """
    pieces = [_SLACK_ESCAPES.get(character, character) for character in remove_invisible_characters(text)]
    if sum(map(utf16_length, pieces)) <= limit and len(text) <= _MAX_PROCESSED_TEXT_CHARACTERS:
        return "".join(pieces)
    note = _truncation_note(text)
    room = limit - len(note)
    count = 0
    for piece in pieces:
        room -= utf16_length(piece)
        if room < 0:
            break
        count += 1
    return "".join(pieces[:count]) + note


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 units, which most chat services use for their limits."""
    return len(text) + sum(character > "\uffff" for character in text)


def _truncation_note(text: str) -> str:
    return f"… (cut from {len(text)} characters)"


def _replace_invisible_character(character: str) -> str:
    if character.isprintable() or character in _ALLOWED_FORMAT_CHARACTERS:
        return character
    category = unicodedata.category(character)
    if category in _KEPT_UNICODE_CATEGORIES:
        return character
    return " " if category in _CATEGORIES_REPLACED_BY_SPACE else ""
