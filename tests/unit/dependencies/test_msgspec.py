"""What is used of msgspec beyond what it documents: how it complains, and what it refuses as JSON."""

import msgspec
import pytest

_any = msgspec.json.Decoder(msgspec.Raw)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1', "[1, 2", '"abc'])
def test_a_text_that_ends_early_is_called_truncated(text: str) -> None:
    with pytest.raises(msgspec.DecodeError, match="truncated"):
        msgspec.json.decode(text)


@pytest.mark.parametrize("text", ['"\\ud800"', '"\\udfff"', '"\\ud800\\ud800"', b'"\xff"', b'"\xed\xa0\x80"'])
def test_no_text_that_it_makes_has_half_a_letter(text: str | bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        msgspec.json.decode(text)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "01", "1.", "+1", "'a'", "\ufeff1", "[1,]", "1 2"])
def test_it_reads_strict_json(text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(text)


def test_what_is_too_deep_is_a_recursion_error() -> None:
    with pytest.raises(RecursionError):
        msgspec.json.decode("[" * 100_000 + "]" * 100_000)


def test_what_is_not_of_the_type_is_told_from_what_is_no_json() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode("[]", type=dict[str, msgspec.Raw])
    assert issubclass(msgspec.ValidationError, msgspec.DecodeError)


def test_values_that_are_taken_as_they_lie_keep_their_bytes() -> None:
    found = msgspec.json.decode(b'{"a": [1,  2.50, "\\u00e9"]}', type=dict[str, msgspec.Raw])
    assert bytes(found["a"]) == b'[1,  2.50, "\\u00e9"]'


def test_a_digest_of_a_struct_does_not_depend_on_the_order_of_a_mapping() -> None:
    one, other = ({"a": 1, "b": (2, None)}, {"b": (2, None), "a": 1})
    assert msgspec.msgpack.encode(one, order="deterministic") == msgspec.msgpack.encode(other, order="deterministic")
    assert msgspec.msgpack.encode(("1",)) != msgspec.msgpack.encode((1,)) != msgspec.msgpack.encode((None,))
