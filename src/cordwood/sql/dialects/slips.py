"""Detection of likely mistakes in valid queries: column names in double quotes, and comparisons with NULL.

The query is run; a notice in the receipt says what may have been meant.
"""

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Final

from cordwood.sql.dialects.explain import MOST_CHARACTERS
from cordwood.sql.dialects.source import Source

_MOST: Final = 5
_EQUALS: Final = {"=": "IS NULL", "!=": "IS NOT NULL", "<>": "IS NOT NULL"}


def slips(text: str, columns: Collection[str]) -> tuple[str, ...]:
    """Return notices for the receipt; `columns` are the visible column names in lower case."""
    if len(text) > MOST_CHARACTERS or not ('"' in text or "null" in text.lower()):
        return ()
    source = Source(text)
    return tuple(dict.fromkeys([*_quoted_names(source, columns), *_compared_with_null(source)]))[:_MOST]


def _quoted_names(source: Source, columns: Collection[str]) -> Iterator[str]:
    for word in source.words:
        spelled = source.text[word.start : word.end]
        name = spelled[1:-1]
        if word.is_text and spelled.startswith('"') and name.lower() in columns:
            yield f"{spelled} is a text, not a column: write {name}, without quotes, for the column"


def _compared_with_null(source: Source) -> Iterator[str]:
    for before, word in pairwise(source.words):
        if word.text == "NULL" and before.text in _EQUALS:
            yield f"{before.text} NULL is never true: write {_EQUALS[before.text]}"
