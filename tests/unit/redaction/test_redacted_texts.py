"""Redaction of sample texts on each engine: plain, in JSON, and in each redaction mode."""

import json
import re
from collections.abc import Sequence

import pytest

from cordwood.model.redaction import Detector, NamedPattern, RedactionRules
from tests.unit.redaction.conftest import Redact, RedactEach
from tests.unit.redaction.texts import IPV4_TEXTS, IPV6_TEXTS, OTHER_NUMBERS, PHONE_TEXTS, SAMPLE_TABLE

CONTROL_CHARACTERS = "\x01\x02\x03"


# Texts without control characters. One query redacts all of them, because a query for each would take a minute.
TEXTS_FOR_JSON = [pair for pair in SAMPLE_TABLE if not set(CONTROL_CHARACTERS) & set(pair[0])]


def test_private_parts_of_a_text_are_redacted(redact_each: RedactEach) -> None:
    assert unexpected_results(SAMPLE_TABLE, redact_each([text for text, _ in SAMPLE_TABLE])) == []


def test_texts_in_json_are_redacted_and_numbers_are_not(redact_each: RedactEach) -> None:
    def event(text: str) -> dict[str, object]:
        return {"k": text, "list": [text, 4111111111111111], "n": 4111111111111111, "b": True, "none": None}

    texts = [json.dumps(event(text), ensure_ascii=False, separators=(",", ":")) for text, _ in TEXTS_FOR_JSON]
    redacted = [json.loads(text) for text in redact_each(texts, kind="json")]
    assert unexpected_results([(text, event(expected)) for text, expected in TEXTS_FOR_JSON], redacted) == []


def test_json_in_a_text_stays_json(redact_each: RedactEach) -> None:
    texts = [json.dumps({"msg": text, "then": "x"}, separators=(",", ":")) for text, _ in TEXTS_FOR_JSON]
    redacted = [json.loads(text)["then"] for text in redact_each(texts)]
    assert unexpected_results([(text, "x") for text in texts], redacted) == []


def test_hash_mode_replaces_with_a_digest(redact_each: RedactEach) -> None:
    redacted = redact_each([text for text, _ in SAMPLE_TABLE], mode="hash")
    assert unexpected_results(SAMPLE_TABLE, [re.sub("REDACTED-[g-v]{16}", "REDACTED", text) for text in redacted]) == []


def test_truncate_mode_replaces_everything_except_addresses_like_the_default_mode(redact_each: RedactEach) -> None:
    pairs = [pair for pair in SAMPLE_TABLE if pair not in (*IPV4_TEXTS, *IPV6_TEXTS)]
    assert unexpected_results(pairs, redact_each([text for text, _ in pairs], mode="truncate")) == []


def unexpected_results(
    expected: Sequence[tuple[str, object]], redacted: Sequence[object]
) -> list[tuple[str, object, object]]:
    """Return each text that is not redacted as expected, with the expected and the actual result."""
    return [
        (text, expected_text, result)
        for (text, expected_text), result in zip(expected, redacted, strict=True)
        if result != expected_text
    ]


@pytest.mark.parametrize(("text", "expected"), PHONE_TEXTS)
def test_telephone_numbers_are_redacted_on_request(redact: Redact, text: str, expected: str) -> None:
    assert redact(text) == text
    assert redact(text, rules=RedactionRules(tuple(Detector))) == expected


@pytest.mark.parametrize("text", OTHER_NUMBERS)
def test_other_numbers_are_kept_when_telephone_numbers_are_redacted(redact: Redact, text: str) -> None:
    assert redact(text, rules=RedactionRules(tuple(Detector))) == text


def test_only_the_chosen_detectors_are_applied(redact: Redact) -> None:
    rules = RedactionRules((Detector.EMAIL,))
    assert redact("a@b.io from 10.0.0.1", rules=rules) == "REDACTED from 10.0.0.1"


def test_operator_patterns_are_case_sensitive_and_match_the_unescaped_text(redact: Redact) -> None:
    rules = RedactionRules((), (NamedPattern("customer", r"cust_\S+"), NamedPattern("lines", r"one\ntwo")))
    assert redact("x cust_1 CUST_2", rules=rules) == "x REDACTED CUST_2"
    redacted = redact('{"a":"cust_1\\"x","b":"one\\ntwo"}', kind="json", rules=rules)
    assert json.loads(redacted) == {"a": "REDACTED", "b": "REDACTED"}


def test_an_event_that_is_a_number_or_boolean_is_unchanged(redact: Redact) -> None:
    assert redact("4111111111111111", kind="event") == "4111111111111111"
    assert redact("true", kind="event") == "true"


@pytest.mark.parametrize("kind", ["text", "json", "event"])
def test_a_digest_is_the_same_for_the_same_value(redact: Redact, kind: str) -> None:
    text = json.dumps("1.2.3.4 a@b.io 1.2.3.4 1.2.3.5")
    first, mail, repeated_mail, other_mail = redact(text, mode="hash", kind=kind).strip('"').split()
    assert first == repeated_mail
    assert len({first, mail, other_mail}) == 3
    assert all(digest.startswith("REDACTED-") for digest in (first, mail, other_mail))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("203.0.113.7", "203.0.113.0/24"),
        ("203.0.113.7:80", "203.0.113.0/24:80"),
        ("2001:db8:1:2::5", "2001:db8:1::/48"),
        ("2001:DB8::5", "2001:db8::/48"),
        ("::1", "::/48"),
        ("::ffff:203.0.113.7", "::ffff:203.0.113.0/24"),
        ("a@b.io", "REDACTED"),
        ("Chrome/113.0.0.0", "Chrome/113.0.0.0"),
    ],
)
def test_truncate_mode_keeps_the_network_of_an_address(redact: Redact, text: str, expected: str) -> None:
    assert redact(text, mode="truncate") == expected
