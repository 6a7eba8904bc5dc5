"""Hints of detection stages: if a text does not match the hint, the stage has no match in it and can be skipped."""

import re

import pytest

from cordwood.model.redaction import Detector, NamedPattern, RedactionRules
from cordwood.sql.redaction.patterns import DetectionRules
from tests.unit.redaction.texts import PHONE_TEXTS, SAMPLE_TABLE

DETECTION = DetectionRules(RedactionRules(tuple(Detector), (NamedPattern("customer", "cust_[0-9]+"),)))


@pytest.mark.parametrize("text", [text for text, _ in (*SAMPLE_TABLE, *PHONE_TEXTS)])
def test_a_text_that_a_stage_matches_also_matches_its_hint(text: str) -> None:
    for stage in (*DETECTION.builtin_stages, *DETECTION.configured_stages):
        finds = re.finditer(stage.pattern, text, re.ASCII)
        if any(not any(match.group(number) for number in stage.kept_groups) for match in finds):
            assert re.search(stage.prefilter_pattern, text, re.ASCII)
            assert re.search(DETECTION.combined_prefilter_pattern, text, re.ASCII)
