"""The messages for each kind of target: format, limits, and hostile texts of events, which must stay plain text."""

import email
import email.policy
import json
import unicodedata
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.alerts.delivery.messages import (
    alertmanager_body,
    mail_message,
    pagerduty_events,
    remove_invisible_characters,
    shorten_text,
    slack_body,
    webhook_body,
)
from cordwood.alerts.delivery.targets import MAX_CHANGES_BY_TARGET_KIND, AlertTargetKind, MailAddress
from cordwood.alerts.notification import Notification, NotifiedState, StateChange
from cordwood.model.definitions import Severity
from tests.unit.alerts.delivery.receivers import change, notification

MAIL_ADDRESS = MailAddress(is_tls=False, sender="cordwood@example.com", recipients=("a@x.test", "b@y.test"))
FORBIDDEN_CATEGORIES = {"Cc", "Cs", "Zl", "Zp"}
HOSTILE_TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "<!channel> <@U1> <https://evil.test|click>",
            "@everyone @here [a](https://evil.test) ```",
            "a\r\nBcc: evil@x.test\r\n\r\nbody",
            "\u202egnp.exe\u2066\u200b\ud800\x1b[2J\x00\u2028\u0085",
            "&lt;!channel&gt;",
            "\U0001f600" * 5000,
            "&" * 30_000,
            '{"a": 1}',
            ".\r\n.\r\nQUIT",
            "",
        ]
    ),
)
CHANGES = st.builds(
    StateChange,
    fingerprint=HOSTILE_TEXTS,
    state=st.sampled_from(NotifiedState),
    labels=st.dictionaries(HOSTILE_TEXTS, HOSTILE_TEXTS, max_size=40),
    text=HOSTILE_TEXTS,
    value=st.none() | st.floats(),
    started_us=st.integers(),
    ended_us=st.none() | st.integers(),
)
NOTIFICATIONS = st.builds(
    Notification,
    id=HOSTILE_TEXTS,
    alert_name=HOSTILE_TEXTS,
    endpoint_name=HOSTILE_TEXTS,
    severity=st.sampled_from(Severity),
    changes=st.lists(CHANGES, max_size=25).map(tuple),
    created_us=st.integers(),
    expires_us=st.integers(),
    omitted_change_count=st.integers(0, 10**9),
    alert_page_url=st.one_of(HOSTILE_TEXTS, HOSTILE_TEXTS.map(lambda text: f"https://logs.test/{text}")),
)
FEWER_EXAMPLES = settings(max_examples=60)


def all_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for pair in value.items() for part in pair for text in all_texts(part)]
    return [text for element in value for text in all_texts(element)] if isinstance(value, list) else []


def is_clean(text: str) -> bool:
    """Return whether the text is one line and has no control or bidirectional characters."""
    return not any(
        unicodedata.category(character) in FORBIDDEN_CATEGORIES or unicodedata.bidirectional(character) in BIDIRECTIONAL
        for character in text
    )


BIDIRECTIONAL = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_the_webhook_body_is_as_documented() -> None:
    firing = change(value=float("nan"))
    resolved = change(fingerprint="f2", state=NotifiedState.RESOLVED, ended_us=1_700_000_050_123_456, labels={})
    assert json.loads(
        webhook_body(
            notification(firing, resolved, omitted_change_count=3, alert_page_url="https://logs.test/alerts/x")
        )
    ) == {
        "version": 1,
        "type": "alert.changed",
        "timestamp": "2023-11-14T22:14:20.000Z",
        "data": {
            "id": "0b5e0f6e-1f0a-7c3b-9d8e-3f1b2a4c5d6e",
            "alert": "too-many-errors",
            "endpoint": "errors.by-project",
            "severity": "critical",
            "url": "https://logs.test/alerts/x",
            "expires": "2023-11-14T22:23:20.000Z",
            "firing": 1,
            "resolved": 1,
            "omitted": 3,
            "changes": [
                {
                    "fingerprint": "f1",
                    "state": "firing",
                    "labels": {"project": "shop"},
                    "labels_omitted": 0,
                    "text": "12 errors",
                    "value": None,
                    "started": "2023-11-14T22:13:20.000Z",
                    "ended": None,
                },
                {
                    "fingerprint": "f2",
                    "state": "resolved",
                    "labels": {},
                    "labels_omitted": 0,
                    "text": "12 errors",
                    "value": 12.0,
                    "started": "2023-11-14T22:13:20.000Z",
                    "ended": "2023-11-14T22:14:10.123Z",
                },
            ],
        },
    }


@FEWER_EXAMPLES
@given(NOTIFICATIONS)
def test_texts_in_a_webhook_are_limited_and_cleaned(outgoing: Notification) -> None:
    body = webhook_body(outgoing)
    read = json.loads(body)
    assert all(map(is_clean, all_texts(read)))
    assert (
        len(read["data"]["changes"]) + read["data"]["omitted"] == len(outgoing.changes) + outgoing.omitted_change_count
    )
    assert all(len(text) <= 2000 for text in all_texts(read))


@FEWER_EXAMPLES
@given(NOTIFICATIONS)
def test_slack_messages_contain_no_foreign_markup_and_respect_the_limits(outgoing: Notification) -> None:
    body = slack_body(outgoing)
    read = json.loads(body)
    assert b"<!" not in body
    assert b"<@" not in body
    blocks = read["blocks"]
    assert 2 <= len(blocks) <= 50
    own_link = f"<{_slack_link(outgoing.alert_page_url)}|Open>"
    for text in all_texts(read):
        assert is_clean(text.replace("\n", ""))
        assert "<" not in text.replace(own_link, "", 1)
        assert "@everyone" not in text
        assert "](" not in text
        assert "`" not in text
    assert all(0 < utf16_units(_block_text(block)) <= 3000 for block in blocks)
    assert utf16_units(_block_text(blocks[0])) <= 150
    assert utf16_units(read["text"]) <= 2000
    assert len(read["text"].splitlines()) <= len(outgoing.changes) + 3


def utf16_units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _block_text(block: Mapping[str, Any]) -> str:
    return str((block.get("text") or block["elements"][0])["text"])


def _slack_link(url: str) -> str:
    outgoing = notification(alert_page_url=url)
    return str(json.loads(webhook_body(outgoing))["data"]["url"]).replace("&", "&amp;")


def test_slack_messages_show_the_first_changes_and_count_the_rest() -> None:
    changes = [change(fingerprint=str(number), text=f"text {number}") for number in range(50)]
    read = json.loads(
        slack_body(notification(*changes, omitted_change_count=7, alert_page_url="https://logs.test/a?b=1&c=2"))
    )
    assert read["blocks"][0]["text"]["text"] == "too-many-errors: 20 firing and 37 more"
    assert read["blocks"][1]["text"]["text"] == "\U0001f534 firing project=shop — text 0"
    assert _block_text(read["blocks"][-1]) == (
        "critical, endpoint errors.by-project · 37 further changes are not shown · <https://logs.test/a?b=1&amp;c=2|Open>"
    )
    lines = read["text"].splitlines()
    assert lines[0] == "too-many-errors: 20 firing and 37 more"
    assert lines[-2:] == [f"and {57 - (len(lines) - 3)} more", "<https://logs.test/a?b=1&amp;c=2|Open>"]


def test_a_long_change_is_in_the_fallback_text_of_slack() -> None:
    long = change(text="x" * 5000, labels={f"label-{number}": "v" * 500 for number in range(20)})
    read = json.loads(slack_body(notification(long)))
    assert "12 more labels — xxx" in read["text"]
    assert "and 1 more" not in read["text"]


def test_a_truncated_text_says_so() -> None:
    read = json.loads(slack_body(notification(change(text="&" * 5000))))
    assert read["blocks"][1]["text"]["text"].endswith("&amp;… (cut from 5000 characters)")
    assert shorten_text("x" * 5000, 100) == "x" * 72 + "… (cut from 5000 characters)"


@FEWER_EXAMPLES
@given(NOTIFICATIONS)
def test_pagerduty_events_respect_the_limits(outgoing: Notification) -> None:
    events = list(pagerduty_events(outgoing, "KEY"))
    assert len(events) == min(len(outgoing.changes), MAX_CHANGES_BY_TARGET_KIND[AlertTargetKind.PAGERDUTY])
    for body, sent_change in zip(events, outgoing.changes, strict=False):
        read = json.loads(body)
        assert len(body) < 512 * 1024
        assert 0 < len(read["dedup_key"]) <= 255
        assert read["routing_key"] == "KEY"
        assert read["event_action"] == ("trigger" if sent_change.state is NotifiedState.FIRING else "resolve")
        assert all(map(is_clean, all_texts(read)))
        if sent_change.state is NotifiedState.FIRING:
            assert 0 < len(read["payload"]["summary"]) <= 1024
            assert read["payload"]["source"]


def test_pagerduty_events_have_the_fingerprint_as_dedup_key() -> None:
    resolved = change(state=NotifiedState.RESOLVED, ended_us=1)
    trigger, resolve = map(
        json.loads, pagerduty_events(notification(change(), resolved, omitted_change_count=2), "KEY")
    )
    assert resolve == {"routing_key": "KEY", "event_action": "resolve", "dedup_key": "f1"}
    assert trigger["payload"] == {
        "summary": "too-many-errors — 12 errors — project=shop",
        "source": "errors.by-project",
        "severity": "critical",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "class": "too-many-errors",
        "custom_details": {
            "labels": {"project": "shop"},
            "text": "12 errors",
            "value": 12.0,
            "further_changes_not_sent": 2,
        },
    }


def test_alertmanager_alerts_have_start_and_end() -> None:
    resolved = change(state=NotifiedState.RESOLVED, ended_us=1_700_000_050_000_000, labels={"zone": "eu"})
    first, second = json.loads(
        alertmanager_body(notification(change(), resolved, alert_page_url="https://logs.test/a"))
    )
    assert first == {
        "labels": {"alertname": "too-many-errors", "severity": "critical", "project": "shop"},
        "annotations": {"summary": "12 errors", "endpoint": "errors.by-project", "value": "12"},
        "startsAt": "2023-11-14T22:13:20.000Z",
        "endsAt": "2023-11-14T22:23:20.000Z",
        "generatorURL": "https://logs.test/a",
    }
    assert (second["labels"]["zone"], second["endsAt"]) == ("eu", "2023-11-14T22:14:10.000Z")


@FEWER_EXAMPLES
@given(NOTIFICATIONS)
def test_alertmanager_alerts_have_valid_labels_and_times(outgoing: Notification) -> None:
    for read in json.loads(alertmanager_body(outgoing)):
        assert all(name.isascii() and name.isidentifier() for name in read["labels"])
        assert read["labels"]["alertname"]
        assert read["labels"]["severity"] == outgoing.severity.value
        assert read["startsAt"] <= read["endsAt"]
        assert all(map(is_clean, all_texts(read)))


def test_label_names_that_become_equal_are_made_unique() -> None:
    labels = {"a.b": "1", "a_b": "2", "9": "3", "severity": "4", "alertname": "5"}
    (read,) = json.loads(alertmanager_body(notification(change(labels=labels))))
    assert read["labels"] == {
        "alertname": "too-many-errors",
        "severity": "critical",
        "_9": "3",
        "a_b": "1",
        "a_b_": "2",
        "severity_": "4",
        "alertname_": "5",
    }


def test_groups_with_equal_truncated_labels_stay_two_alerts() -> None:
    groups = [change(fingerprint=name, labels={"host": "h" * 600 + name}) for name in ("f1", "f2")]
    first, second = json.loads(alertmanager_body(notification(*groups)))
    assert first["labels"]["host"] == second["labels"]["host"]
    assert (first["labels"]["cordwood_group"], second["labels"]["cordwood_group"]) == ("f1", "f2")


@FEWER_EXAMPLES
@given(NOTIFICATIONS)
def test_hostile_texts_add_no_headers_to_an_e_mail(outgoing: Notification) -> None:
    read = parse_mail(mail_message(outgoing, MAIL_ADDRESS).as_bytes())
    assert sorted(read.keys()) == sorted(
        [
            "Subject",
            "From",
            "To",
            "Date",
            "Message-ID",
            "Auto-Submitted",
            "Content-Type",
            "Content-Transfer-Encoding",
            "MIME-Version",
        ]
    )
    assert read["To"] == "a@x.test, b@y.test"
    assert read["From"] == "cordwood <cordwood@example.com>"
    assert len(read["Subject"]) <= 150
    assert is_clean(read["Subject"])
    assert all(map(is_clean, read.get_content().splitlines()))
    assert all(len(line) <= 998 for line in mail_message(outgoing, MAIL_ADDRESS).as_bytes().splitlines())


def test_an_e_mail_lists_the_changes() -> None:
    resolved = change(fingerprint="f2", state=NotifiedState.RESOLVED, ended_us=1_700_000_050_000_000, value=None)
    outgoing = notification(change(), resolved, omitted_change_count=2, alert_page_url="https://logs.test/a")
    read = parse_mail(mail_message(outgoing, MAIL_ADDRESS, ("b@y.test",)).as_bytes())
    assert read["Subject"] == "[critical] too-many-errors: 1 firing, 1 resolved and 2 more"
    assert read.get_content().splitlines() == [
        "too-many-errors: 1 firing, 1 resolved and 2 more",
        "Severity critical, endpoint errors.by-project",
        "",
        "FIRING project=shop",
        "  12 errors",
        "  value 12, since 2023-11-14T22:13:20.000Z",
        "",
        "RESOLVED project=shop",
        "  12 errors",
        "  since 2023-11-14T22:13:20.000Z, until 2023-11-14T22:14:10.000Z",
        "",
        "And 2 more.",
        "",
        "https://logs.test/a",
        "",
        "The server did not accept these recipients: b@y.test",
    ]


def test_a_resent_e_mail_has_the_same_message_id() -> None:
    assert (
        mail_message(notification(), MAIL_ADDRESS)["Message-ID"]
        == mail_message(notification(), MAIL_ADDRESS)["Message-ID"]
    )
    assert (
        mail_message(notification(), MAIL_ADDRESS)["Message-ID"]
        != mail_message(notification(id="other"), MAIL_ADDRESS)["Message-ID"]
    )


def parse_mail(text: bytes) -> EmailMessage:
    read = email.message_from_bytes(text, policy=email.policy.default)
    assert isinstance(read, EmailMessage)
    return read


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "ftp://x.test", "https://", "https://[", "x", "https://x/" + "y" * 2000]
)
def test_urls_that_are_not_http_are_left_out(url: str) -> None:
    assert json.loads(webhook_body(notification(alert_page_url=url)))["data"]["url"] == ""


def test_a_url_cannot_break_out_of_its_slack_link() -> None:
    read = json.loads(slack_body(notification(alert_page_url="https://logs.test/a|b> <!channel>")))
    assert _block_text(read["blocks"][-1]).endswith("<https://logs.test/a%7Cb%3E%20%3C%21channel%3E|Open>")


@given(st.text())
def test_cleaning_is_idempotent(text: str) -> None:
    assert remove_invisible_characters(remove_invisible_characters(text)) == remove_invisible_characters(text)
    assert is_clean(remove_invisible_characters(text))


def test_scripts_and_emoji_keep_their_joiners() -> None:
    family = "\U0001f468\u200d\U0001f469"
    assert remove_invisible_characters(f" می\u200cخواهم \t {family}\u00a0!\u202e") == f"می\u200cخواهم {family} !"
