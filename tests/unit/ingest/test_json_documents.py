"""JSON documents are split into items while they are read, in bounded memory."""

import io
import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.errors import BadBody
from cordwood.ingest.items import JsonItemReader

# Hypothesis generates fewer examples, because it is slow on a loaded machine.
FEWER_EXAMPLES = settings(max_examples=60)


def items(text: str, limit: int = 1000, piece: int = 7) -> Sequence[tuple[int, str]]:
    """Return the line number and the text of each item, read in small chunks."""
    source = io.BytesIO(text.encode())
    return [(item.line_number, item.text) for item in JsonItemReader(lambda _: source.read(piece), limit).read_items()]


def test_arrays_and_concatenated_documents_are_split() -> None:
    text = '\ufeff[{"a":\n [1, "],["]},\n "é"]\n\n{"b": 1e400} [] [[2]] 17'
    assert items(text) == [(1, '{"a":\n [1, "],["]}'), (3, '"é"'), (5, '{"b": 1e400}'), (5, "[2]"), (5, "17")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1,", "Line 1: the text is not JSON: the array is not closed"),
        ("[1 2]", "Line 1: the text is not JSON: a comma or a closing bracket is missing"),
        ('[1,\n\n{"a"\n 1}]', "Line 4: the text is not JSON: expecting ':' delimiter"),
        ('{"a": "\n', "Line 1: the text is not JSON: invalid control character"),
        ("[" * 100_000, "nested too deeply"),
        ('[1, "' + "x" * 2000 + '"]', "an item is longer than 1,000 characters"),
    ],
    ids=["open", "comma", "colon", "string", "deep", "long"],
)
def test_broken_text_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadBody, match=message):
        items(text)


def test_items_before_broken_text_are_read() -> None:
    source = io.BytesIO(b'[{"a": 1}, {"b": 2}, nonsense')
    read = JsonItemReader(source.read, 1000).read_items()
    assert [next(read).text, next(read).text] == ['{"a": 1}', '{"b": 2}']
    with pytest.raises(BadBody):
        next(read)


def test_only_one_item_is_held_in_memory() -> None:
    pieces = iter([b"[", *[b'"' + b"x" * 1000 + b'",'] * 5000, b"1]"])
    documents = JsonItemReader(lambda _: next(pieces, b""), 2000)
    assert max(len(documents._buffered_text) for _ in documents.read_items()) < 4000


@FEWER_EXAMPLES
@given(
    values=st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=8,
        )
    ),
    indent=st.sampled_from([None, 2]),
    piece=st.integers(1, 50),
)
def test_the_items_are_those_of_the_array(values: list[object], indent: int | None, piece: int) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=False).encode("utf-8", "replace").decode()
    assert [json.loads(item) for _, item in items(text, 10_000, piece)] == json.loads(text)
