"""The mapping from labels in a body to streams."""

import pytest

from cordwood.errors import BadSetting, BodyTooLarge, UnknownStream
from cordwood.ingest.parsed_body import MAX_LABEL_SETS_PER_BODY, LabelledBody
from cordwood.ingest.stream_mapping import read_stream_mapping

STREAM_NAMES = {"edge.logs", "nginx"}


def mapped_stream(rules: str, *labels: str, default: str = "") -> str:
    return read_stream_mapping(rules, default).stream_name_for_labels(labels, STREAM_NAMES.__contains__)


@pytest.mark.parametrize(
    ("pattern", "label", "matches"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("a*", "a", True),
        ("*a", "ba", True),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("a*bc*bc", "abc", False),
        ("*", "", True),
        ("*x*", "axb", True),
        ("a.c", "abc", False),
        ("[a]", "[a]", True),
        ("A", "a", False),
    ],
)
def test_a_star_matches_any_text_and_other_characters_themselves(pattern: str, label: str, *, matches: bool) -> None:
    assert (mapped_stream(f"{pattern}=edge.logs", label, default="other") == "edge.logs") is matches


def test_many_stars_do_not_backtrack() -> None:
    assert mapped_stream("*a" * 2000 + "=edge.logs", "a" * 1999 + "b", default="other") == "other"


def test_the_first_rule_wins_whichever_label_it_matches() -> None:
    assert mapped_stream("nginx=x, main=y", "main", "nginx") == "x"
    assert mapped_stream("main=y, nginx=x", "main", "nginx") == "y"


def test_a_rule_precedes_a_stream_of_the_label_s_name_which_precedes_the_default() -> None:
    assert mapped_stream("nginx=x", "nginx", default="d") == "x"
    assert mapped_stream("", "main", "nginx", default="d") == "nginx"
    assert mapped_stream("", "main", default="d") == "d"


def test_without_a_stream_the_refusal_names_the_label_and_the_setting() -> None:
    with pytest.raises(UnknownStream, match="'main' or 'access'") as caught:
        mapped_stream("", "main", "access")
    assert "ingest.stream_map" in str(caught.value.hint)
    with pytest.raises(UnknownStream, match=r"'x{60}…'"):
        mapped_stream("", "x" * 10**6)
    with pytest.raises(UnknownStream, match="do not say"):
        mapped_stream("")


@pytest.mark.parametrize("rules", ["a", "=b", "a=", "a=b,c"])
def test_an_incomplete_rule_is_a_bad_setting(rules: str) -> None:
    with pytest.raises(BadSetting, match=r"ingest\.stream_map"):
        read_stream_mapping(rules, "")


def test_a_body_has_a_bounded_number_of_labels() -> None:
    body = LabelledBody()
    for number in range(MAX_LABEL_SETS_PER_BODY):
        assert body.part_for_labels(str(number)) is body.part_for_labels(str(number))
    with pytest.raises(BodyTooLarge):
        body.part_for_labels("one more")
