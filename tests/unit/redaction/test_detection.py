"""Hints of detection stages: if a text does not match the hint, the stage has no match in it and can be skipped."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.model.redaction import Detector, NamedPattern, RedactionRules, RedactMode
from cordwood.sql.redaction.patterns import DetectionRules, RedactionPolicy
from tests.unit.redaction.texts import PHONE_TEXTS, SAMPLE_TABLE

DETECTION = DetectionRules(RedactionRules(tuple(Detector), (NamedPattern("customer", "cust_[0-9]+"),)))


@pytest.mark.parametrize("text", [text for text, _ in (*SAMPLE_TABLE, *PHONE_TEXTS)])
def test_a_text_that_a_stage_matches_also_matches_its_hint(text: str) -> None:
    for stage in (*DETECTION.builtin_stages, *DETECTION.configured_stages):
        finds = re.finditer(stage.pattern, text, re.ASCII)
        if any(not any(match.group(number) for number in stage.kept_groups) for match in finds):
            assert re.search(stage.prefilter_pattern, text, re.ASCII)
            assert re.search(DETECTION.combined_prefilter_pattern, text, re.ASCII)


FRAGMENTS = ("\\", "u0041", "@", "a", ".", "b", '"', "%40", "%2e", "é", "1", "'", "+", " ", "%2525", "\\n", "-")


@pytest.mark.parametrize("text", [text for text, _ in (*SAMPLE_TABLE, *PHONE_TEXTS)])
def test_the_pattern_of_occurrences_matches_the_same_texts(text: str) -> None:
    _check_occurrences(text)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=16).map("".join))
def test_the_pattern_of_occurrences_matches_the_same_random_texts(text: str) -> None:
    _check_occurrences(text)


def _check_occurrences(text: str) -> None:
    for stage in (*DETECTION.builtin_stages, *DETECTION.configured_stages):
        found = [
            any(not any(match.group(number) for number in stage.kept_groups) for match in finds)
            for finds in (re.finditer(pattern, text, re.ASCII) for pattern in (stage.pattern, stage.occurrence_pattern))
        ]
        assert found[0] == found[1], stage.pattern


def test_a_long_name_is_hidden_if_it_may_contain_a_private_text() -> None:
    policy = RedactionPolicy(
        RedactMode.REPLACE, RedactionRules((Detector.EMAIL,), (NamedPattern("c", "(?P<n>x)_[0-9]"),))
    )
    assert not policy.is_hidden_name("a@" + "b" * 100)
    assert policy.is_hidden_name("a@" + "b" * 200)
    assert not policy.is_hidden_name("a" * 200)
    assert policy.is_hidden_name("a" * 200 + "x_1")
