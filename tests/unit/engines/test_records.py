"""`wrap_objects_as_records` wraps every object of an event in an array of one element, except elements of arrays."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.engines.records import wrap_objects_as_records

# Texts that contain parts of JSON syntax.
_TEXTS = st.lists(st.sampled_from(['"', ":", "{", "}", "[", ",", "\\", '":{', "a", " ", "NaN"]), max_size=4).map(
    "".join
)
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.integers(-5, 5), st.booleans(), st.none()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=12,
)


def as_record(value: Any, *, is_element: bool = False) -> Any:
    if isinstance(value, dict):
        record = {key: as_record(element) for key, element in value.items()}
        return record if is_element else [record]
    return [as_record(element, is_element=True) for element in value] if isinstance(value, list) else value


@given(_VALUES)
def test_objects_are_wrapped_whatever_the_texts_contain(value: Any) -> None:
    for text in (json.dumps(value), msgspec.json.encode(value).decode()):
        assert msgspec.json.decode(wrap_objects_as_records(text)) == as_record(value)


@pytest.mark.parametrize(
    "text", ['{"a":":{b}"}', '{"a,":{"b":"}"}}', '{"a":{":{b":1}}', '":{}"', '{"a":"x{","b":{"c":"}"}}']
)
def test_braces_in_texts_are_not_structure(text: str) -> None:
    assert msgspec.json.decode(wrap_objects_as_records(text)) == as_record(msgspec.json.decode(text))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks_become_texts(number: str) -> None:
    """Check NaN and infinite numbers in a record and in an array."""
    text = f'{{"a":{{"b":{number}}},"c":[{number},1]}}'
    assert msgspec.json.decode(wrap_objects_as_records(text)) == [{"a": [{"b": number}], "c": [number, 1]}]
