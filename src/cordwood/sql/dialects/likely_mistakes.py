"""Detection of likely mistakes in valid queries: column names in double quotes, and comparisons with NULL.

The query is run; a notice in the receipt says what may have been meant.
"""

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Final

from cordwood.sql.dialects.explain import MAX_CHARACTERS
from cordwood.sql.dialects.source import Source

_MAX_NOTICES: Final = 5
_NULL_TESTS: Final = {"=": "IS NULL", "!=": "IS NOT NULL", "<>": "IS NOT NULL"}


def find_likely_mistakes(text: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return notices for the receipt; `columns` are the visible column names in lower case."""
    if len(text) > MAX_CHARACTERS or not ('"' in text or "null" in text.lower()):
        return ()
    source = Source(text)
    return tuple(dict.fromkeys([*_find_quoted_columns(source, columns), *_find_null_comparisons(source)]))[
        :_MAX_NOTICES
    ]


def _find_quoted_columns(source: Source, columns: Collection[str]) -> Iterator[str]:
    for word in source.words:
        source_text = source.text[word.start : word.end]
        name = source_text[1:-1]
        if word.is_text and source_text.startswith('"') and name.lower() in columns:
            yield f"{source_text} is a text, not a column: write {name}, without quotes, for the column"


def _find_null_comparisons(source: Source) -> Iterator[str]:
    for operator, word in pairwise(source.words):
        if word.text == "NULL" and operator.text in _NULL_TESTS:
            yield f"{operator.text} NULL is never true: write {_NULL_TESTS[operator.text]}"
