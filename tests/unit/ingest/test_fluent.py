"""The Fluent Forward protocol: messages of each mode, and invalid messages."""

import json
import struct
from typing import Any

import msgspec
import pytest

from cordwood.ingest.build_events import build_events
from cordwood.ingest.formats import fluent
from cordwood.ingest.formats.fluent import (
    ForwardMessage,
    MessagePackValueScanner,
    NotForwardProtocolError,
    read_entries,
    read_message,
)
from cordwood.ingest.parsed_body import ParsedBody
from cordwood.model.event import Event

pack = msgspec.msgpack.Encoder().encode
Ext = msgspec.msgpack.Ext

EVENT_SECONDS = 1_690_000_000
EVENT_TIME = Ext(0, struct.pack(">II", EVENT_SECONDS, 123_456_789))
MAX_ITEMS = 10_000


def message(*elements: Any) -> ForwardMessage:
    parsed_message = read_message(pack(list(elements)))
    assert parsed_message is not None
    return parsed_message


def read_slices(*elements: Any) -> list[ParsedBody]:
    return list(read_entries(message(*elements), MAX_ITEMS))


def events(*elements: Any) -> list[Event]:
    return [event for parsed in read_slices(*elements) for event in build_events(parsed, 0)]


def record(number: int) -> dict[str, Any]:
    return {"message": f"line {number}\n", "n": number, "nested": {"list": [1, None, True]}}


@pytest.mark.parametrize(
    "elements",
    [
        ("app", EVENT_TIME, record(0)),
        ("app", EVENT_TIME, record(0), {"chunk": "c"}),
        ("app", [[EVENT_TIME, record(0)]]),
        ("app", [[EVENT_TIME, record(0)]], {"chunk": "c", "size": 1}),
        ("app", pack([EVENT_TIME, record(0)]), {"chunk": "c"}),
        ("app", pack([EVENT_TIME, record(0)]), None),
        ("app", [[[EVENT_TIME, {}], record(0)]]),
    ],
    ids=["message", "message with options", "forward", "forward with chunk", "packed", "packed with nil", "fluent bit"],
)
def test_each_mode_gives_the_same_events(elements: tuple[Any, ...]) -> None:
    (event,) = events(*elements)
    assert (event.event_message, event.timestamp_us) == ("line 0", EVENT_SECONDS * 10**6 + 123_456)
    assert json.loads(event.metadata or "") == {"n": 0, "nested": {"list": [1, None, True]}, "tag": "app"}


def test_chunk_and_compression_are_read_from_the_options() -> None:
    parsed_message = message("app", b"\x1f\x8b", {"chunk": "c1", "compressed": "gzip"})
    assert (parsed_message.chunk_id, parsed_message.compression, parsed_message.packed_entries) == (
        "c1",
        "gzip",
        b"\x1f\x8b",
    )
    assert message("app", b"", {"compressed": "text"}).compression == ""
    assert read_message(b"\xc0") is None


def test_the_ids_of_a_chunk_are_stable_and_unique() -> None:
    entries = [[EVENT_SECONDS, record(0)], [EVENT_SECONDS, record(0)], [EVENT_SECONDS, record(1)]]
    ids = [event.id for event in events("app", entries, {"chunk": "c1"})]
    packed = b"".join(map(pack, entries))
    assert ids == [event.id for event in events("app", packed, {"chunk": "c1"})]
    assert len({*ids, *(event.id for event in events("app", entries, {"chunk": "c2"}))}) == 6
    assert events("app", [entries[0]])[0].id != events("app", [entries[0]])[0].id


@pytest.mark.parametrize(
    ("time", "timestamp_us"),
    [
        (EVENT_SECONDS, EVENT_SECONDS * 10**6),
        (EVENT_SECONDS + 0.5, EVENT_SECONDS * 10**6 + 500_000),
        (Ext(0, struct.pack(">II", 5, 500_000_000)), 5_500_000),
        (Ext(0, struct.pack(">II", 5, 0)), 5_000_000),
        (Ext(7, b"12345678"), 7),
        (None, 7),
        (float("nan"), 7),
        (True, 7),
    ],
)
def test_event_times_are_decoded(time: Any, timestamp_us: int) -> None:
    (event,) = (item for parsed in read_slices("t", time, {"log": "x"}) for item in build_events(parsed, 7))
    assert event.timestamp_us == timestamp_us


def test_values_that_json_lacks_are_stored_as_text() -> None:
    raw = b"\x92\x01\x84\xa2a\xff\xa3b\xfec" + pack(1) + pack("x") + pack("b") + pack(b"\xffz") + pack(None) + pack(0)
    packed = pack("t")
    (event,) = (
        item
        for parsed in read_entries(read_message(b"\x92" + packed + b"\x91" + raw) or ForwardMessage("", b""), MAX_ITEMS)
        for item in build_events(parsed, 0)
    )
    assert json.loads(event.metadata or "") == {"a\ufffd": "b\ufffdc", "1": "x", "b": "\ufffdz", "null": 0, "tag": "t"}


@pytest.mark.parametrize(
    "value",
    ["Ж" * 50, b"\xffz", {"a": {"b": [b"x"]}}, Ext(0, b"12345678"), Ext(9, b"\xff"), Ext(-1, b"1234"), 2**64 - 1, -0.0],
)
def test_both_decoders_give_the_same_record(value: object) -> None:
    """Compare two records. In one, a key is not a text, so that the decoder in Python reads this record."""
    record_with_text_keys = pack([EVENT_SECONDS, {"message": "m", "value": value, "1": 2}])
    record_with_other_key = pack([EVENT_SECONDS, {"message": "m", "value": value, 1: 2}])
    assert fluent._read_entry(record_with_text_keys, "t") == fluent._read_entry(record_with_other_key, "t")


@pytest.mark.parametrize("size", [2, 1, 3, -1, 2**40, True, "2", None])
def test_the_size_in_the_options_is_ignored(size: object) -> None:
    packed = b"".join(pack([EVENT_SECONDS, {"n": number}]) for number in range(2))
    assert len(events("t", packed, {"size": size})) == 2


def test_numbers_and_texts_of_every_width_are_decoded() -> None:
    values = [
        0,
        127,
        -1,
        -32,
        200,
        70_000,
        2**40,
        2**63,
        -200,
        -70_000,
        -(2**40),
        1.5,
        "",
        "x" * 40,
        "x" * 300,
        "x" * 70_000,
    ]
    values += [list(range(20)), {str(n): n for n in range(20)}, b"x" * 300, False]
    decoded_values = fluent._MessagePackDecoder(pack(values)).read_value()
    assert decoded_values[:-2] == values[:-2]
    assert decoded_values[-2:] == ["x" * 300, False]


def test_an_invalid_record_is_quarantined_and_the_others_are_events() -> None:
    deep = pack([EVENT_SECONDS, {"deep": 0}])[:-1] + b"\x91" * 2000 + b"\x00"
    invalid_entries = [[EVENT_SECONDS, "no record"], [EVENT_SECONDS], 7, [EVENT_SECONDS, {"x": "y" * MAX_ITEMS}]]
    entries = [pack([EVENT_SECONDS, {"n": 1}]), *map(pack, invalid_entries), deep, pack([EVENT_SECONDS, {"n": 2}])]
    (parsed,) = read_slices("app", b"".join(entries), {"chunk": "c"})
    assert [json.loads(bytes(event.metadata))["n"] for event in parsed.events] == [1, 2]
    assert [item.index for item in parsed.refused_items] == [1, 2, 3, 4, 5]
    assert parsed.item_indexes == [0, 6]


@pytest.mark.parametrize("broken", [b"\xc1" * 10, b"\x92\x01", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"])
def test_the_rest_after_a_broken_entry_is_quarantined_as_one_item(broken: bytes) -> None:
    (parsed,) = read_slices("app", pack([EVENT_SECONDS, {"n": 1}]) + broken, {"chunk": "c"})
    assert (len(parsed.events), [item.index for item in parsed.refused_items]) == (1, [1])


def test_many_entries_are_read_in_slices_with_positions_in_the_whole_chunk() -> None:
    slices = read_slices("app", [[EVENT_SECONDS, {"n": number}] for number in range(5000)], {"chunk": "c"})
    assert [len(parsed.events) for parsed in slices] == [2000, 2000, 1000]
    assert [parsed.item_index(0) for parsed in slices] == [0, 2000, 4000]
    assert len(read_slices("app", [[EVENT_SECONDS, {"m": "x" * 9000}] for _ in range(300)])) == 3


@pytest.mark.parametrize(
    "sent",
    [
        pack([]),
        pack(["t"]),
        pack(["t", 1]),
        pack([1, []]),
        pack(["t", [], 7]),
        pack(["t", 1, {}, 7]),
        pack(["t", [], {}, {}]),
        pack(["t", 1, {}, {}, {}]),
        pack(["x" * 2000, []]),
        pack(["t", [], {"x": "y" * 100_000}]),
        pack({"a": 1}),
        b"[1,2]",
        b"GET / HTTP/1.1",
        b"\x92\xa1t",
        b"\x92\xa1t\xdd\xff\xff\xff\xff",
        b"\x93\xa1t\x90\xdf\xff\xff\xff\xff",
    ],
)
def test_an_invalid_message_is_refused(sent: bytes) -> None:
    with pytest.raises(NotForwardProtocolError):
        read_message(sent)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_the_end_of_a_message_is_found_for_any_chunk_size(size: int) -> None:
    first = pack(["app", [[EVENT_TIME, record(n)] for n in range(3)], {"chunk": "x" * 300}])
    data = first + pack(["b", 1, {}])
    scanner, grown, end = MessagePackValueScanner(), bytearray(), None
    for at in range(0, len(data), size):
        if end is None:
            grown += data[at : at + size]
            end = scanner.find_end(grown)
    assert end == len(first)


def test_a_scanner_reads_each_byte_once() -> None:
    """Pass the bytes one by one, and check that the number of steps is linear and not quadratic."""
    sent = pack(["t", list(range(20_000))])
    scanner, grown, steps = MessagePackValueScanner(), bytearray(), 0
    skipped = fluent._read_value_head

    def counted(data: bytes | bytearray, at: int) -> tuple[int, int]:
        nonlocal steps
        steps += 1
        return skipped(data, at)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fluent, "_read_value_head", counted)
        for byte in sent:
            grown.append(byte)
            scanner.find_end(grown)
    assert steps < 2 * len(sent)


def test_an_invalid_first_byte_ends_the_scan() -> None:
    with pytest.raises(NotForwardProtocolError):
        MessagePackValueScanner().find_end(b"\x92\xc1")
