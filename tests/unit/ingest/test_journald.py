"""The journal export format is decoded into events, in chunks of any size."""

import json
import struct

import pytest

from cordwood.errors import BadBody, BodyTooLarge
from cordwood.ingest.build_events import build_events
from cordwood.ingest.formats import BodyFormat, read_body
from cordwood.ingest.formats.journald import JOURNAL_MEDIA_TYPE, JournalDecoder, JournalEntry
from cordwood.ingest.parsed_body import Body, ParsedBody
from cordwood.ingest.quarantine import QuarantinedItem, decode_quarantined_item

AT_US = 1_690_000_000_123_456
MAX_ITEMS = 20_000


def binary_field(name: str, value: bytes) -> bytes:
    return name.encode() + b"\n" + struct.pack("<Q", len(value)) + value + b"\n"


def journal_entry(number: int, *more: bytes) -> bytes:
    head = f"__CURSOR=s=1;i={number:x}\n__REALTIME_TIMESTAMP={AT_US + number}\nPRIORITY=3\n_HOSTNAME=web1\n"
    return head.encode() + b"".join(more) + b"\n"


ENTRIES = (
    journal_entry(0, b"MESSAGE=a=b\n", b"SYSLOG_IDENTIFIER=sshd\n")
    + journal_entry(1, binary_field("MESSAGE", b"two\nlines\n\nand\xffmore"), b"_SYSTEMD_UNIT=cron.service\n")
    + journal_entry(2, b"MESSAGE=last\n", b"TAG=x\n", b"OTHER=1\n", b"TAG=y\n", b"TAG=z\n")
)


def read_journal(data: bytes, form: BodyFormat = BodyFormat.EVENTS) -> ParsedBody:
    return read_body(form, Body(data, JOURNAL_MEDIA_TYPE, max_item_bytes=MAX_ITEMS))


def decode_in_chunks(data: bytes, size: int) -> list[JournalEntry]:
    decoder = JournalDecoder(MAX_ITEMS)
    items = [entry for at in range(0, len(data), size) for entry in decoder.feed(data[at : at + size])]
    return items + decoder.finish()


def test_an_entry_is_an_event_with_its_cursor_time_and_message() -> None:
    first, second, third = build_events(read_journal(ENTRIES), 0)
    assert (first.id, first.timestamp_us, first.event_message) == ("s=1;i=0", AT_US, "a=b")
    assert json.loads(first.metadata or "") == {
        "PRIORITY": "3",
        "_HOSTNAME": "web1",
        "SYSLOG_IDENTIFIER": "sshd",
        "level": "error",
    }
    assert second.event_message == "two\nlines\n\nand\ufffdmore"
    metadata = json.loads(third.metadata or "")
    assert (metadata["TAG"], metadata["OTHER"]) == (["x", "y", "z"], "1")


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000])
def test_entries_are_the_same_for_any_chunk_size(size: int) -> None:
    assert decode_in_chunks(ENTRIES, size) == decode_in_chunks(ENTRIES, len(ENTRIES))
    assert [entry.sender_name for entry in decode_in_chunks(ENTRIES, size)] == ["sshd", "cron.service", ""]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (b"no field at all\n", "neither NAME=value"),
        (b"lower=x\n", "name of a field"),
        (b"=x\n", "name of a field"),
        (binary_field("MESSAGE", b"x")[:-1] + b"y\n", "does not end with a line end"),
        (b"".join(b"F%d=x\n" % number for number in range(1100)), "more than 1024 fields"),
        (b"MESSAGE=" + b"x" * 3 * MAX_ITEMS + b"\n", "larger than"),
        (binary_field("MESSAGE", b"\n\n" * 3 * MAX_ITEMS), "larger than"),
        (b"MESSAGE=x\n" * MAX_ITEMS, "larger than|more than 1024"),
    ],
)
@pytest.mark.parametrize("size", [100, 10**6])
def test_a_broken_entry_is_quarantined_and_the_others_are_events(broken: bytes, reason: str, size: int) -> None:
    parsed = ParsedBody(item_indexes=[])
    for index, entry in enumerate(
        decode_in_chunks(journal_entry(0) + journal_entry(1, broken) + journal_entry(2), size)
    ):
        entry.add_to_body(parsed, index)
    assert [event.id for event in parsed.events] == ["s=1;i=0", "s=1;i=2"]
    ((index, actual_reason),) = [(item.index, item.reason) for item in parsed.refused_items]
    assert index == 1
    assert any(part in actual_reason for part in reason.split("|"))
    assert len(parsed.refused_items[0].text) <= 2 * MAX_ITEMS


def test_a_too_large_entry_is_held_within_a_limit() -> None:
    decoder = JournalDecoder(MAX_ITEMS)
    decoder.feed(b"MESSAGE\n" + struct.pack("<Q", 2**62))
    for _ in range(100):
        assert decoder.feed(b"\n\n" * 50_000) == []
        assert decoder.buffered_bytes <= 2 * MAX_ITEMS


def test_a_truncated_entry_is_quarantined() -> None:
    parsed = read_journal(journal_entry(0) + journal_entry(1, binary_field("MESSAGE", b"x" * 100))[:-50])
    assert [event.id for event in parsed.events] == ["s=1;i=0"]
    assert [item.reason for item in parsed.refused_items] == ["The data ends within a field."]


def test_a_body_without_a_valid_entry_is_refused() -> None:
    with pytest.raises(BadBody):
        read_journal(b"GET / HTTP/1.1\n\n")


def test_the_number_of_entries_is_limited() -> None:
    with pytest.raises(BodyTooLarge):
        read_body(BodyFormat.EVENTS, Body(journal_entry(0) * 11, JOURNAL_MEDIA_TYPE, max_items=10))


def test_a_quarantined_entry_is_decoded_as_it_was_sent() -> None:
    item = QuarantinedItem("q", 0, "s", BodyFormat.JOURNALD, journal_entry(4, b"MESSAGE=m\n").decode())
    (event,) = decode_quarantined_item(item).events
    assert (event.id, event.event_message) == ("s=1;i=4", "m")
