"""Faults as a terminal or a log tells them."""

import pytest

from cordwood.errors import QuerySyntax, Span


@pytest.mark.parametrize(
    ("message", "hint", "told"),
    [
        ("It is broken.", "Mend it.", "2:3: It is broken. Mend it."),
        ("A time cannot be read here: foo", "Write a day.", "2:3: A time cannot be read here: foo. Write a day."),
        ("What is this?", "Say it.", "2:3: What is this? Say it."),
        ("It ends with foo", None, "2:3: It ends with foo"),
    ],
)
def test_sentence_and_hint_are_two_sentences(message: str, hint: str | None, told: str) -> None:
    assert QuerySyntax(message, hint=hint, span=Span(2, 3)).told() == told
