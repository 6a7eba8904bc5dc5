"""Erlang's external terms are decoded into JSON values. Functions, deep, long and truncated terms are refused."""

import json
import random
import struct

import pytest

from cordwood.errors import BadBody, BodyTooLarge
from cordwood.ingest.build_events import build_events
from cordwood.ingest.formats import BodyFormat, read_body
from cordwood.ingest.formats.erlang import BadTerm, read_term
from cordwood.ingest.parsed_body import Body


def binary_term(text: str) -> bytes:
    data = text.encode()
    return b"m" + len(data).to_bytes(4, "big") + data


def atom_term(name: str) -> bytes:
    return b"w" + bytes([len(name)]) + name.encode()


def list_term(*terms: bytes) -> bytes:
    return b"l" + len(terms).to_bytes(4, "big") + b"".join(terms) + b"j"


def map_term(**terms: bytes) -> bytes:
    return b"t" + len(terms).to_bytes(4, "big") + b"".join(atom_term(name) + term for name, term in terms.items())


def decode_term(data: bytes, limit: int = 10_000) -> object:
    return read_term(b"\x83" + data, limit)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"a\xff", 255),
        (b"b\xff\xff\xff\xfe", -2),
        (b"n\x08\x00" + (2**63).to_bytes(8, "little"), 2**63),
        (b"n\x09\x01" + (2**70).to_bytes(9, "little"), str(-(2**70))),
        (b"F" + struct.pack(">d", 1.5), 1.5),
        (b"c" + b"1.50000000000000000000e+00".ljust(31, b"\0"), 1.5),
        (atom_term("true"), True),
        (atom_term("nil"), None),
        (atom_term("info"), "info"),
        (b"d\x00\x05error", "error"),
        (binary_term("nil"), "nil"),
        (binary_term("é"), "é"),
        (b"k\x00\x02hi", "hi"),
        (b"k\x00\x02\x01\x02", [1, 2]),
        (b"j", []),
        (list_term(b"a\x01", binary_term("x")), [1, "x"]),
        (b"h\x02" + atom_term("a") + atom_term("undefined"), ["a", None]),
        (b"h\x02" + atom_term("bert") + atom_term("nil"), None),
        (b"h\x03" + atom_term("bert") + atom_term("dict") + list_term(b"h\x02" + atom_term("k") + b"a\x01"), {"k": 1}),
        (map_term(a=b"a\x01", b=map_term(c=atom_term("false"))), {"a": 1, "b": {"c": False}}),
    ],
)
def test_data_terms_are_decoded(data: bytes, value: object) -> None:
    assert decode_term(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"p\x00\x00\x00\x10" + bytes(40),  # a function
        b"q" + atom_term("erlang") + atom_term("halt") + b"a\x00",  # a function by its name
        b"g" + atom_term("node") + bytes(9),  # a process
        b"P\x00\x00\x00\x05abc",  # a compressed term inside another
        b"",
        b"m\xff\xff\xff\xffshort",
        b"l\xff\xff\xff\xffj",
        b"t\xff\xff\xff\xff",
        b"i\xff\xff\xff\xff",
        b"o\x00\x10\x00\x00\x00" + bytes(100),
        b"o\x00\x00\x10\x00\x00" + bytes(5000),  # an integer of 4,096 bytes
        b"h\x01" * 101 + b"j",
        b"a\x01a\x01",  # two terms
        b"c" + b"one".ljust(31, b"\0"),
        b"t\x00\x00\x00\x01" + list_term(b"a\x01") + b"a\x01",  # a map whose key is a list
    ],
)
def test_other_and_truncated_terms_are_refused(data: bytes) -> None:
    with pytest.raises(BadTerm):
        decode_term(data)


def test_the_number_of_terms_is_limited() -> None:
    assert decode_term(list_term(*[b"a\x01"] * 98), 100) == [1] * 98
    with pytest.raises(BadTerm, match="too many"):
        decode_term(list_term(*[b"a\x01"] * 99), 100)


def test_a_damaged_body_is_decoded_or_refused() -> None:
    encoded_batch = bytearray(
        b"\x83" + map_term(batch=list_term(*[map_term(message=binary_term("m"), n=b"F" + struct.pack(">d", 2.0))] * 5))
    )
    chance = random.Random(1)
    for _ in range(2000):
        broken = bytearray(encoded_batch)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            parsed = read_body(
                BodyFormat.ERLANG, Body(bytes(broken[: chance.randrange(len(broken) + 1)]), "application/bert")
            )
        except BadBody:
            continue
        build_events(parsed, 1)


def test_a_batch_becomes_events() -> None:
    event = map_term(
        message=binary_term("started"), metadata=map_term(level=atom_term("info"), pid=binary_term("<0.1.0>"))
    )
    body = b"\x83" + map_term(batch=list_term(event, b"a\x01"))
    parsed = read_body(BodyFormat.ERLANG, Body(body, "application/bert"))
    (stored,) = build_events(parsed, 1)
    assert (stored.event_message, json.loads(stored.metadata or "")) == ("started", {"level": "info", "pid": "<0.1.0>"})
    assert [(item.index, item.reason) for item in parsed.refused_items] == [(1, "The item is not an object.")]
    with pytest.raises(BodyTooLarge):
        read_body(BodyFormat.ERLANG, Body(body, "application/bert", max_items=1))
