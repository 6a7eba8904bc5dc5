"""Texts of faults, and suggestions of similar names."""

from collections.abc import Callable

import pytest

from cordwood.errors import MAX_COMPARED_LENGTH, QuerySyntax, Span, closest
from cordwood.sql.diagnostics import nearest
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
    assert QuerySyntax(message, hint=hint, span=Span(2, 3)).in_one_line() == expected


def test_the_closest_name_is_found_in_any_case() -> None:
    assert closest("Timestmp", ["id", "timestamp", "TIME"]) == "timestamp"
    assert closest("x", ["id", "timestamp"]) is None


@pytest.mark.parametrize("find", [closest, nearest])
def test_long_names_are_not_compared(find: Callable[[str, list[str]], str | None]) -> None:
    name = "n" * MAX_COMPARED_LENGTH
    assert find(f"{name[1:]}m", [name]) == name
    assert find(f"{name}m", [name]) is None
    assert find(name, [f"{name}m"]) is None


def test_only_these_modules_compare_names() -> None:
    modules_that_compare = [
        module.name for module in modules() if "get_close_matches" in module.text or "SequenceMatcher" in module.text
    ]
    assert modules_that_compare == ["errors.py", "sql/diagnostics.py"]
