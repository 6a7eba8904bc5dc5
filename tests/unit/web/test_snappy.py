"""Decompression of Snappy blocks: blocks that another implementation compressed, and handwritten blocks."""

import random
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import BadBody, BodyTooLarge
from cordwood.web.request_body import OnMemoryGrowth, decompress_snappy, ignore_memory_growth

MAX_BYTES = 2**20


def decompress(block: bytes, limit: int, take: OnMemoryGrowth = ignore_memory_growth) -> bytes:
    return decompress_snappy(block, limit, take)


def compress(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="snappy", asbytes=True))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a",
        b"ab" * 5000,
        b"\0" * 70_000,
        b"".join(b'{"level": "info", "path": "/items/%d"}\n' % (number * 7919) for number in range(5000)),
        random.Random(1).randbytes(100_000),
    ],
    ids=["empty", "a byte", "a pattern", "zeros", "lines", "noise"],
)
def test_blocks_of_another_implementation_are_decompressed(data: bytes) -> None:
    assert decompress(compress(data), MAX_BYTES) == data


def test_each_kind_of_element_is_decompressed() -> None:
    literal, long_literal = b"\x0cabcd", b"\xf0\x02xyz"
    near, middle, far = b"\x01\x04", b"\x0e\x08\x00", b"\x0f\x0c\x00\x00\x00"
    repeated = b"\x0d\x01"
    block = bytes([4 + 3 + 4 + 4 + 4 + 7]) + literal + long_literal + near + middle + far + repeated
    assert decompress(block, MAX_BYTES) == b"abcdxyzdxyzdxyzdxyzzzzzzzz"


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x80",
        b"\xff\xff\xff\xff\xff\x01",
        b"\x05\x0cabc",
        b"\x04\x0cabcde",
        b"\x09\x0cabcd",
        b"\x08\x0cabcd\x01\x05",
        b"\x08\x0cabcd\x01\x00",
        b"\x08\x0cabcd\x01",
        b"\x08\x0cabcd\x0e\x04",
        b"\x08\x0cabcd\x0f\x04\x00\x00",
        b"\x03\x0cabcd",
        b"\x08\xf0",
        b"\x08\xfc\xff\xff\xff\xffabcd",
        b"\xff\x06\x00\x00sNaPpY",
    ],
)
def test_a_broken_block_is_refused(block: bytes) -> None:
    with pytest.raises(BadBody):
        decompress(block, MAX_BYTES)


def test_the_announced_length_is_checked_and_reserved_before_anything_is_decompressed() -> None:
    reserved: list[int] = []
    assert decompress(compress(b"x" * 500), 500, reserved.append) == b"x" * 500
    assert reserved == [500]
    with pytest.raises(BodyTooLarge, match="more than 1 MiB"):
        decompress(b"\xff\xff\xff\xff\x0f", MAX_BYTES, reserved.append)
    assert reserved == [500]


def test_a_block_that_exceeds_its_announced_length_is_refused() -> None:
    bomb = b"\x05\x00a" + b"\xfe\x01\x00" * 1000
    with pytest.raises(BadBody):
        decompress(bomb, MAX_BYTES)


def test_a_block_of_very_many_short_elements_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordwood.web.request_body.MAX_SNAPPY_ELEMENTS", 10)
    assert decompress(b"\x0a" + b"\x00a" * 10, MAX_BYTES) == b"a" * 10
    with pytest.raises(BodyTooLarge, match="compressed elements"):
        decompress(b"\x0b" + b"\x00a" * 11, MAX_BYTES)


@given(st.binary(max_size=200))
def test_any_block_is_decompressed_or_refused(block: bytes) -> None:
    with suppress(BadBody, BodyTooLarge):
        assert len(decompress(block, MAX_BYTES)) <= MAX_BYTES
