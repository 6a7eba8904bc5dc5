"""The texts of faults, and suggestions of similar names."""

from collections.abc import Callable

import pytest

from cordwood.errors import MAX_COMPARED_NAME_LENGTH, BadQuerySyntax, Span, find_closest_name
from cordwood.sql.diagnostics import most_similar_name
from tests.architecture.tree import modules


@pytest.mark.parametrize(
    ("message", "hint", "expected"),
    [
        ("It is broken.", "Mend it.", "2:3: It is broken. Mend it."),
        ("A time cannot be read here: foo", "Write a day.", "2:3: A time cannot be read here: foo. Write a day."),
        ("What is this?", "Say it.", "2:3: What is this? Say it."),
        ("It ends with foo", None, "2:3: It ends with foo"),
    ],
)
def test_message_and_hint_are_joined_as_sentences(message: str, hint: str | None, expected: str) -> None:
    assert BadQuerySyntax(message, hint=hint, span=Span(2, 3)).one_line_text() == expected


def test_the_closest_name_is_found_in_any_case() -> None:
    assert find_closest_name("Timestmp", ["id", "timestamp", "TIME"]) == "timestamp"
    assert find_closest_name("x", ["id", "timestamp"]) is None


@pytest.mark.parametrize("find", [find_closest_name, most_similar_name])
def test_long_names_are_not_compared(find: Callable[[str, list[str]], str | None]) -> None:
    name = "n" * MAX_COMPARED_NAME_LENGTH
    assert find(f"{name[1:]}m", [name]) == name
    assert find(f"{name}m", [name]) is None
    assert find(name, [f"{name}m"]) is None


def test_only_these_modules_compare_names() -> None:
    modules_that_compare = [
        module.name for module in modules() if "get_close_matches" in module.text or "SequenceMatcher" in module.text
    ]
    assert modules_that_compare == ["errors.py", "sql/diagnostics.py"]
