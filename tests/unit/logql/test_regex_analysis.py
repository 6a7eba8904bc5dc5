"""Whether a regular expression may match the empty text, compared with Python's regular expressions."""

import random
import re
import time

import pytest

from cordwood.logql.regex_analysis import may_match_empty_text
from tests.machine_speed import scaled

_ATOMS = ("a", ".", r"\d", r"\.", "[a-z]", "[^]x]", r"[\]]", "é", "^", "$", r"\b", "-")
_QUANTIFIERS = ("", "", "", "*", "+", "?", "{0}", "{2}", "{0,3}", "{1,}", "*?", "+?", "??")
_OPENINGS = ("(", "(?:", "(?i:", "(?P<x%d>")


def random_pattern(chance: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(chance.randint(0, 3)):
        if depth < 3 and chance.random() < 0.4:
            opening = chance.choice(_OPENINGS)
            opening = opening % chance.randrange(10**9) if "%" in opening else opening
            parts.append(opening + random_pattern(chance, depth + 1) + ")" + chance.choice(_QUANTIFIERS))
        else:
            atom = chance.choice(_ATOMS)
            parts.append(atom if atom in ("^", "$", r"\b") else atom + chance.choice(_QUANTIFIERS))
        if chance.random() < 0.2:
            parts.append("|")
    return "".join(parts)


def test_a_pattern_that_matches_the_empty_text_is_always_recognized() -> None:
    chance = random.Random(1)
    unmatched = recognized = 0
    for _ in range(5000):
        pattern = random_pattern(chance)
        if re.search(pattern, ""):
            assert may_match_empty_text(pattern), pattern
        else:
            unmatched += 1
            recognized += not may_match_empty_text(pattern)
    assert recognized > 0.7 * unmatched > 500


@pytest.mark.parametrize(
    "pattern", ["error", "(?i)ERROR", "(?s)a.b", "a|b", "(a|b)+c*", r"\d{3}", "[^]]", r"\[x\]", "{,3}"]
)
def test_a_pattern_that_needs_a_character_is_recognized(pattern: str) -> None:
    assert not may_match_empty_text(pattern)


@pytest.mark.parametrize("pattern", ["", r"\pN*", r"\Qa\E*", r"\x{61}*", r"\C", "(", ")", "[a", "\\", "a{0}", "(?i)"])
def test_a_notation_that_is_not_understood_may_match(pattern: str) -> None:
    assert may_match_empty_text(pattern)


@pytest.mark.parametrize(
    "pattern", ["(" * 16_000, "[" * 16_000, "[[:" * 5_000, "a|" * 8_000, "(?" * 8_000, "\\" * 16_000]
)
def test_a_hostile_pattern_is_analyzed_quickly(pattern: str) -> None:
    started = time.thread_time()
    may_match_empty_text(pattern)
    assert time.thread_time() - started < scaled(0.5)
