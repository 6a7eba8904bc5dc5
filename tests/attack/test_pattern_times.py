"""Matching a regular expression takes time that grows with the length of the text, not with its square.

Python's `re` module backtracks, and no other thread of the process runs while it matches. A text of a caller that takes
seconds to match would stop the service for all callers.
"""

import re
from collections.abc import Callable
from contextlib import suppress

import pytest

from cordwood.clickhouse_sql.parse import parse_clickhouse_sql
from cordwood.engines.clickhouse.faults import _reword_sentence
from cordwood.engines.clickhouse.session import _has_placeholder
from cordwood.engines.clickhouse.target import ClickHouseTarget
from cordwood.engines.duckdb.faults import reword_message
from cordwood.errors import BadQuerySyntax, Fault, QueryUnsupported
from cordwood.ingest.build_events import parse_timestamp_us
from cordwood.ingest.formats.syslog import read_syslog_line
from cordwood.ingest.items import split_items, split_objects
from cordwood.model.event import MAX_LISTED_PATH_CHARACTERS, EventShape, ValueKind
from cordwood.model.redaction import Detector, RedactionRules, RedactMode
from cordwood.sql.compile import compile_standalone_query
from cordwood.sql.parse import parse_sql
from cordwood.sql.redaction.patterns import RedactionPolicy
from tests.attack.pattern_times import (
    LENGTH_RATIO,
    MAX_TIME_RATIO,
    AppliedPattern,
    hostile_units,
    program_patterns,
    slow_texts,
    time_ratio,
)

# Patterns whose time may grow faster, by the end of their place, with the reason why no text of a caller is long.
EXEMPT = {
    "faults:_REWORDING_BY_PATTERN": "messages are shortened to 1,000 characters",
    "faults:_UNTRUSTED_CERTIFICATE_PATTERN": "messages are shortened to 1,000 characters",
    "index_pruning:_INNERMOST_GROUP_PATTERN": "regular expressions have up to 1,000 characters",
    "index_pruning:_CHARACTER_CLASS_PATTERN": "regular expressions have up to 1,000 characters",
    "index_pruning:_OPTIONAL_LETTER_PATTERN": "regular expressions have up to 1,000 characters",
    "duckdb/target:_QUOTED_OR_COMMENT_PATTERN": "it is applied to templates, which contain no texts of callers",
    "logql/lexer:_DURATION_PART_PATTERN": "it is applied to valid durations, of which each part has a unit",
    "settings/quantities:_DURATION_PART_PATTERN": "it is applied to valid durations, of which each part has a unit",
}


def test_the_time_of_every_pattern_grows_linearly() -> None:
    patterns = program_patterns()
    assert len(patterns) > 300
    slow = [
        f"{pattern.place} {pattern.compiled.pattern!r}: {text}"
        for pattern in patterns
        if not pattern.place.endswith(tuple(EXEMPT))
        for text in slow_texts(pattern.apply_all, hostile_units(pattern.compiled))
    ]
    assert not slow, "\n".join(slow)


def test_every_exempt_pattern_exists() -> None:
    places = [pattern.place for pattern in program_patterns()]
    assert not [name for name in EXEMPT if not any(place.endswith(name) for place in places)]


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"a*b", "search"),
        (r"/\*.*?\*/", "sub"),
        (r'"(?:[^"\\]|\\.)*"', "finditer"),
        (r"\s*Z$", "sub"),
        (r"\s*[0-9]+\.?[0-9]*\s*", "fullmatch"),
        (r"(.*) to (.*)", "fullmatch"),
    ],
)
def test_a_quadratic_pattern_is_found(pattern: str, method: str) -> None:
    compiled = re.compile(pattern)
    applied = AppliedPattern("", compiled, frozenset({method}))
    assert next(slow_texts(applied.apply_all, hostile_units(compiled)), None) is not None


def _ignore_faults(call: Callable[[str], object]) -> Callable[[str], None]:
    def apply(text: str) -> None:
        with suppress(Fault):
            call(text)

    return apply


@pytest.mark.parametrize(
    ("call", "unit"),
    [
        (lambda text: split_items("[" * 3_000 + '"' + text, 1_000), '\\"'),
        (lambda text: list(split_objects('{"message":"' + text, 1_000)), '\\"'),
        (lambda text: read_syslog_line("<13>1 2020-01-01T00:00:00Z host heroku router - " + text), "a"),
        (lambda text: parse_timestamp_us(f"2020-01-01{text}+0"), " "),
        (lambda text: reword_message(f"Conversion Error: Cannot mix values of type {text}"), " and  in x"),
        (lambda text: _reword_sentence(f"Illegal types {text}"), " and  of arguments of function"),
    ],
    ids=["array", "object", "heroku", "time", "duckdb", "clickhouse"],
)
def test_reading_a_hostile_text_takes_linear_time(call: Callable[[str], object], unit: str) -> None:
    apply, count = _ignore_faults(call), 20_000 // len(unit)
    ratio = time_ratio(lambda: apply(unit * count), lambda: apply(unit * count * LENGTH_RATIO))
    assert ratio < MAX_TIME_RATIO


@pytest.mark.parametrize("parse", [parse_sql, parse_clickhouse_sql])
@pytest.mark.parametrize("template", ["interval '{}' day", "interval '1' day '{}' hour", "interval '1' '{}' '{}' hour"])
def test_a_long_text_in_an_interval_is_refused(parse: Callable[[str], object], template: str) -> None:
    with pytest.raises(BadQuerySyntax, match="more than 100 characters"):
        parse("select " + template.replace("{}", "1" * 100_000))
    with suppress(Fault):
        parse("select " + template.replace("{}", "1" * 100))


@pytest.mark.parametrize("text", ["1" * 5_000 + "-1 1 1:1:1", "1-1 1 1:1:" + "1" * 5_000, "P" + "1" * 5_000 + "Y"])
def test_a_long_text_is_not_cast_to_an_interval(text: str) -> None:
    with pytest.raises(QueryUnsupported):
        compile_standalone_query(f"select cast('{text}' as interval)", ClickHouseTarget())


_POLICY = RedactionPolicy(RedactMode.REPLACE, RedactionRules(tuple(Detector)))
# The time of a long name that is matched by the hint alone is about 0.5 ms, that of all patterns was up to 100 ms.
_MAX_NAME_SECONDS = 0.02


@pytest.mark.parametrize(
    "unit", ["Secret", "\\", "a@", "1:", "%31", "1.", "://:", "eyj", "%25", "4111 ", "a.", "secret=", "+1 "]
)
@pytest.mark.parametrize("length", [128, MAX_LISTED_PATH_CHARACTERS])
def test_a_field_name_is_matched_in_little_time(unit: str, length: int) -> None:
    name = (unit * length)[: length - 1] + '"'
    _POLICY._contains_personal_data(name)
    ratio = time_ratio(_busy_for_a_millisecond, lambda: _POLICY._contains_personal_data(name))
    assert ratio < _MAX_NAME_SECONDS * 1000


def _busy_for_a_millisecond() -> int:
    """Take about a millisecond on a usual machine, and longer on a slow one."""
    return sum(number % 7 for number in range(15_000))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT {a:String}", True),
        ("SELECT '{a:x{b:y}'", True),
        ("SELECT '{a:}}'", False),
        ("SELECT '}{a:String'", False),
        ("SELECT '{a:b", False),
        ("SELECT '{a b:c}'", False),
    ],
)
def test_a_placeholder_of_clickhouse_is_found(sql: str, expected: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert _has_placeholder(sql) is expected


def test_a_longer_name_than_shapes_list_is_hidden() -> None:
    assert not _POLICY.is_hidden_name("k" * MAX_LISTED_PATH_CHARACTERS)
    assert _POLICY.is_hidden_name("k" * (MAX_LISTED_PATH_CHARACTERS + 1))


def test_names_of_other_projects_are_not_matched_unless_the_query_has_them() -> None:
    policy = RedactionPolicy(RedactMode.REPLACE)
    text = frozenset({ValueKind.TEXT})
    mail, foreign = ("metadata", "ann@example.com"), ("metadata", "k" * 900)
    whole = EventShape({("metadata", "own"): text, mail: text, foreign: text})
    visible = policy.visible_shapes({"s": EventShape({("metadata", "own"): text}, whole_shape=whole)})["s"]
    assert visible.stored_kinds(("metadata", "own")) == text
    assert policy._hidden_names_cache.get("own") is False
    assert policy._hidden_names_cache.get("ann@example.com") is None
    assert visible.stored_kinds(mail) == frozenset()
    assert list(visible.value_kinds_by_path) == [("metadata", "own")]
    assert visible.whole_shape is not None
    assert list(visible.whole_shape.value_kinds_by_path) == [("metadata", "own"), foreign]
