"""Erlang's external terms are decoded into JSON values; functions, deep, long and truncated terms are refused."""

import json
import random
import struct

import pytest

from cordwood.errors import BadBody, TooLarge
from cordwood.ingest.build_events import build_events
from cordwood.ingest.formats import Form, read_body
from cordwood.ingest.formats.erlang import BadTerm, read_term
from cordwood.ingest.parsed_body import Body


def binary(text: str) -> bytes:
    data = text.encode()
    return b"m" + len(data).to_bytes(4, "big") + data


def atom(name: str) -> bytes:
    return b"w" + bytes([len(name)]) + name.encode()


def items(*terms: bytes) -> bytes:
    return b"l" + len(terms).to_bytes(4, "big") + b"".join(terms) + b"j"


def pairs(**terms: bytes) -> bytes:
    return b"t" + len(terms).to_bytes(4, "big") + b"".join(atom(name) + term for name, term in terms.items())


def term(data: bytes, limit: int = 10_000) -> object:
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
        (atom("true"), True),
        (atom("nil"), None),
        (atom("info"), "info"),
        (b"d\x00\x05error", "error"),
        (binary("nil"), "nil"),
        (binary("é"), "é"),
        (b"k\x00\x02hi", "hi"),
        (b"k\x00\x02\x01\x02", [1, 2]),
        (b"j", []),
        (items(b"a\x01", binary("x")), [1, "x"]),
        (b"h\x02" + atom("a") + atom("undefined"), ["a", None]),
        (b"h\x02" + atom("bert") + atom("nil"), None),
        (b"h\x03" + atom("bert") + atom("dict") + items(b"h\x02" + atom("k") + b"a\x01"), {"k": 1}),
        (pairs(a=b"a\x01", b=pairs(c=atom("false"))), {"a": 1, "b": {"c": False}}),
    ],
)
def test_data_terms_are_decoded(data: bytes, value: object) -> None:
    assert term(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b"p\x00\x00\x00\x10" + bytes(40),  # a function
        b"q" + atom("erlang") + atom("halt") + b"a\x00",  # a function by its name
        b"g" + atom("node") + bytes(9),  # a process
        b"P\x00\x00\x00\x05abc",  # a compressed term inside another
        b"",
        b"m\xff\xff\xff\xffshort",
        b"l\xff\xff\xff\xffj",
        b"t\xff\xff\xff\xff",
        b"i\xff\xff\xff\xff",
        b"o\x00\x10\x00\x00\x00" + bytes(100),
        b"o\x00\x00\x10\x00\x00" + bytes(5000),  # an integer of 4096 bytes
        b"h\x01" * 101 + b"j",
        b"a\x01a\x01",  # two terms
        b"c" + b"one".ljust(31, b"\0"),
        b"t\x00\x00\x00\x01" + items(b"a\x01") + b"a\x01",  # a map whose key is a list
    ],
)
def test_other_and_truncated_terms_are_refused(data: bytes) -> None:
    with pytest.raises(BadTerm):
        term(data)


def test_the_number_of_terms_is_limited() -> None:
    assert term(items(*[b"a\x01"] * 98), 100) == [1] * 98
    with pytest.raises(BadTerm, match="too many"):
        term(items(*[b"a\x01"] * 99), 100)


def test_a_damaged_body_is_decoded_or_refused() -> None:
    whole = bytearray(b"\x83" + pairs(batch=items(*[pairs(message=binary("m"), n=b"F" + struct.pack(">d", 2.0))] * 5)))
    chance = random.Random(1)
    for _ in range(2000):
        broken = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        try:
            parsed = read_body(
                Form.ERLANG, Body(bytes(broken[: chance.randrange(len(broken) + 1)]), "application/bert")
            )
        except BadBody:
            continue
        build_events(parsed, 1)


def test_a_batch_becomes_events() -> None:
    event = pairs(message=binary("started"), metadata=pairs(level=atom("info"), pid=binary("<0.1.0>")))
    body = b"\x83" + pairs(batch=items(event, b"a\x01"))
    parsed = read_body(Form.ERLANG, Body(body, "application/bert"))
    (stored,) = build_events(parsed, 1)
    assert (stored.event_message, json.loads(stored.metadata or "")) == ("started", {"level": "info", "pid": "<0.1.0>"})
    assert [(item.index, item.reason) for item in parsed.refused] == [(1, "The item is not an object.")]
    with pytest.raises(TooLarge):
        read_body(Form.ERLANG, Body(body, "application/bert", max_items=1))
