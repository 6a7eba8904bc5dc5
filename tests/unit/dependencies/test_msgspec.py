"""Undocumented behaviour of msgspec on which the code relies: its errors, and which texts it refuses as JSON."""

import msgspec
import pytest

_raw_decoder = msgspec.json.Decoder(msgspec.Raw)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1', "[1, 2", '"abc'])
def test_the_error_of_an_incomplete_text_says_truncated(text: str) -> None:
    with pytest.raises(msgspec.DecodeError, match="truncated"):
        msgspec.json.decode(text)


@pytest.mark.parametrize("text", ['"\\ud800"', '"\\udfff"', '"\\ud800\\ud800"', b'"\xff"', b'"\xed\xa0\x80"'])
def test_lone_surrogates_and_invalid_utf_8_are_refused(text: str | bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        msgspec.json.decode(text)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "01", "1.", "+1", "'a'", "\ufeff1", "[1,]", "1 2"])
def test_texts_that_are_not_strict_json_are_refused(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(text)


def test_too_deep_nesting_raises_recursion_error() -> None:
    with pytest.raises(RecursionError):
        msgspec.json.decode("[" * 100_000 + "]" * 100_000)


def test_a_value_of_another_type_raises_validation_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode("[]", type=dict[str, msgspec.Raw])
    assert issubclass(msgspec.ValidationError, msgspec.DecodeError)


def test_raw_values_keep_their_bytes() -> None:
    decoded = msgspec.json.decode(b'{"a": [1,  2.50, "\\u00e9"]}', type=dict[str, msgspec.Raw])
    assert bytes(decoded["a"]) == b'[1,  2.50, "\\u00e9"]'


def test_deterministic_encoding_does_not_depend_on_the_order_of_keys() -> None:
    first_encoding, second_encoding = ({"a": 1, "b": (2, None)}, {"b": (2, None), "a": 1})
    assert msgspec.msgpack.encode(first_encoding, order="deterministic") == msgspec.msgpack.encode(
        second_encoding, order="deterministic"
    )
    assert msgspec.msgpack.encode(("1",)) != msgspec.msgpack.encode((1,)) != msgspec.msgpack.encode((None,))
