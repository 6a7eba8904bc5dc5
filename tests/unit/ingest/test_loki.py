"""Loki's push requests: events and ids from both encodings, quarantined entries, and limits."""

import json
import tracemalloc
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cordwood.errors import BadBody, BodyTooLarge
from cordwood.ingest.build_events import build_events
from cordwood.ingest.formats.loki import read_json_push, read_protobuf_push, read_quarantined_streams
from cordwood.ingest.formats.protobuf import encode_bytes_field, encode_varint
from cordwood.ingest.parsed_body import Body, LabelledBody
from cordwood.model.event import Event

NOW_US = 1_800_000_000_000_000
ENTRY_NS = 1_764_100_000_123_456_789
LABELS = {"app": "shop", "namespace": "prod"}


def push_body(*streams: object) -> bytes:
    return json.dumps({"streams": streams}).encode()


def stream_of_entries(*values: object, labels: object = LABELS) -> object:
    return {"stream": labels, "values": values}


def json_body(*values: object, labels: object = LABELS, body: Body | None = None) -> LabelledBody:
    return read_json_push(
        msgspec.structs.replace(body or Body(b""), data=push_body(stream_of_entries(*values, labels=labels)))
    )


def text_field(number: int, value: str) -> bytes:
    return encode_bytes_field(number, value.encode())


def varint_field(number: int, value: int) -> bytes:
    return encode_varint(number << 3) + encode_varint(value)


def protobuf_entry(time_ns: int, line: str, **metadata: str) -> bytes:
    seconds, nanoseconds = divmod(time_ns, 10**9)
    timestamp = encode_bytes_field(1, varint_field(1, seconds) + varint_field(2, nanoseconds))
    pairs = b"".join(
        encode_bytes_field(3, text_field(1, name) + text_field(2, value)) for name, value in metadata.items()
    )
    return encode_bytes_field(2, timestamp + text_field(2, line) + pairs)


def protobuf_stream(labels: str, *entries: bytes) -> bytes:
    return encode_bytes_field(1, text_field(1, labels) + b"".join(entries))


def events(labelled: LabelledBody) -> list[Event]:
    return [event for part in labelled.parts_by_labels.values() for event in build_events(part, NOW_US)]


def metadata(event: Event) -> Mapping[str, object]:
    decoded = json.loads(event.metadata or "")
    assert isinstance(decoded, dict)
    return decoded


def test_an_entry_becomes_an_event_with_its_line_time_and_labels() -> None:
    line = '{"level": "error", "n": 1}'
    (event,) = events(json_body([str(ENTRY_NS), line]))
    assert (event.event_message, event.timestamp_us, event.timestamp_inferred) == (line, ENTRY_NS // 1000, False)
    assert metadata(event) == {"labels": LABELS}


def test_both_encodings_give_the_same_event() -> None:
    values = [str(ENTRY_NS), "a line", {"trace_id": "abc", "level": "WARN"}]
    (of_json,) = events(json_body(values))
    body = protobuf_stream(
        '{app="shop", namespace="prod"}', protobuf_entry(ENTRY_NS, "a line", trace_id="abc", level="WARN")
    )
    (of_protobuf,) = events(read_protobuf_push(Body(body)))
    for event in (of_json, of_protobuf):
        assert event.timestamp_us == ENTRY_NS // 1000
        assert metadata(event) == {
            "labels": LABELS,
            "structured_metadata": {"trace_id": "abc", "level": "WARN"},
            "level": "warn",
        }


def test_project_and_level_come_from_labels_unless_the_entry_has_a_level() -> None:
    labels = {"project": "acme", "detected_level": "Info"}
    plain, own = events(
        json_body(["1764100000000000000", "a"], ["1764100000000000000", "b", {"level": "error"}], labels=labels)
    )
    assert (plain.project, own.project) == ("acme", "acme")
    assert (metadata(plain)["level"], metadata(own)["level"]) == ("info", "error")


def test_a_repeated_push_has_the_same_ids() -> None:
    body = push_body(
        stream_of_entries(["1764100000000000000", "a"], ["1764100000000000001", "a"]),
        stream_of_entries(["1764100000000000000", "b"]),
    )
    first, second = (events(read_json_push(Body(body))) for _ in range(2))
    assert [event.id for event in first] == [event.id for event in second]
    assert len({event.id for event in first}) == 3


def test_equal_entries_of_one_push_have_distinct_ids() -> None:
    ids = [event.id for event in events(json_body(*[[str(ENTRY_NS), "same"]] * 3))]
    assert len(set(ids)) == 3
    assert ids == [event.id for event in events(json_body(*[[str(ENTRY_NS), "same"]] * 3))]


@pytest.mark.parametrize(
    "other",
    [
        {"labels": {"app": "shop", "namespace": "test"}},
        {"body": Body(b"", headers={"x-scope-orgid": "other"})},
        {"body": Body(b"", pinned_project="other")},
    ],
    ids=["labels", "tenant", "pinned project"],
)
def test_equal_entries_of_other_senders_have_other_ids(other: Mapping[str, object]) -> None:
    (mine,) = events(json_body([str(ENTRY_NS), "same"]))
    (theirs,) = events(json_body([str(ENTRY_NS), "same"], **other))  # type: ignore[arg-type] # one of them at a time
    assert mine.id != theirs.id


@pytest.mark.parametrize("time", ["0", "", "yesterday", 0])
def test_an_entry_without_a_time_has_the_time_of_receipt_and_a_random_id(time: object) -> None:
    first, second = events(json_body([time, "same"])) + events(json_body([time, "same"]))
    assert (first.timestamp_us, first.timestamp_inferred) == (NOW_US, True)
    assert first.id != second.id


def test_tenant_and_service_are_the_labels_that_choose_the_stream() -> None:
    labelled = read_json_push(
        Body(
            push_body(
                stream_of_entries(["1", "a"], labels={"job": "j", "app": "shop"}),
                stream_of_entries(["1", "b"], labels={"job": "j"}),
                stream_of_entries(["1", "c"], labels={"filename": "/var/log/syslog"}),
                stream_of_entries(["1", "d"], labels={"app": "shop", "pod": "2"}),
            ),
            headers={"x-scope-orgid": "acme"},
        )
    )
    messages_by_labels = {
        labels: [event.event_message for event in part.events] for labels, part in labelled.parts_by_labels.items()
    }
    assert messages_by_labels == {("acme", "shop"): ["a", "d"], ("acme", "j"): ["b"], ("acme",): ["c"]}
    assert labelled.parts_by_labels["acme", "shop"].item_indexes == [0, 3]


@pytest.mark.parametrize(
    "entry",
    [
        7,
        [],
        ["1764100000000000000"],
        ["1764100000000000000", 7],
        [1.5, "line"],
        {"ts": "1", "line": "x"},
        ["1764100000000000000", "line", "no object"],
    ],
)
def test_a_broken_entry_is_quarantined_with_its_labels_and_the_others_are_read(entry: object) -> None:
    labelled = json_body([str(ENTRY_NS), "good"], entry, [str(ENTRY_NS + 1), "good, too", None])
    ((_, part),) = labelled.parts_by_labels.items()
    assert [event.event_message for event in part.events] == ["good", "good, too"]
    assert part.item_indexes == [0, 2]
    (item,) = part.refused_items
    assert item.index == 1
    reread = read_quarantined_streams(Body(f"[{item.text}]".encode()))
    assert [refused.reason for part in reread.parts_by_labels.values() for refused in part.refused_items] == [
        item.reason
    ]
    assert json.loads(item.text)["stream"] == LABELS


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"streams": 7}',
        b'{"streams": [7]}',
        b'{"streams": [{"values": []}]}',
        b'{"streams": [{"stream": {"a": 1}, "values": []}]}',
        b'{"streams": [{"stream": {}, "values": {}}]}',
        b"[" * 100_000,
    ],
)
def test_a_body_that_is_not_a_push_is_refused(body: bytes) -> None:
    with pytest.raises(BadBody):
        read_json_push(Body(body))


@pytest.mark.parametrize(
    ("notation", "labels"),
    [
        ("{}", {}),
        (' { a = "1" , b="2", } ', {"a": "1", "b": "2"}),
        (r'{a="x\"y\\z\n\t\u00e9\U0001F600\x41\101"}', {"a": 'x"y\\z\n\t\u00e9\U0001f600AA'}),
        ("{a=`raw \\n`}", {"a": "raw \\n"}),
        ('{"dotted.name"="v"}', {"dotted.name": "v"}),
        (r'{a="\ud800\U00110000"}', {"a": "\ufffd\ufffd"}),
    ],
)
def test_labels_in_the_notation_of_prometheus_are_parsed(notation: str, labels: Mapping[str, str]) -> None:
    (event,) = events(read_protobuf_push(Body(protobuf_stream(notation, protobuf_entry(ENTRY_NS, "x")))))
    assert metadata(event)["labels"] == labels


@pytest.mark.parametrize("notation", ["", "a", '{a="1"', '{a="1"} x', "{a=1}", '{a="1" b="2"}', '{a="' + "\\" * 30_001])
def test_malformed_labels_are_refused(notation: str) -> None:
    with pytest.raises(BadBody, match="labels must be written"):
        read_protobuf_push(Body(protobuf_stream(notation, protobuf_entry(ENTRY_NS, "x"))))


@pytest.mark.parametrize("body", [b"\xff\xff", encode_bytes_field(1, b"\x0a\x05ab"), b"\x0a" * 3, b"\0" * 9])
def test_a_body_that_is_not_protobuf_is_refused(body: bytes) -> None:
    with pytest.raises(BadBody, match="not a valid Loki push request"):
        read_protobuf_push(Body(body, max_items=2))


def many_streams(count: int) -> bytes:
    return push_body(*[stream_of_entries(labels={}) for _ in range(count)])


@pytest.mark.parametrize(
    "body",
    [
        Body(push_body(stream_of_entries(*[["1", "x"]] * 6)), max_items=5),
        Body(many_streams(20), max_items=5),
        Body(push_body(stream_of_entries(["1", "x", {str(number): {} for number in range(20)}])), max_items=5),
        Body(
            push_body(stream_of_entries(*[["1764100000000000000", "x"]] * 20, labels={"a": "b" * 500})),
            max_metadata_bytes=10_000,
        ),
        Body(push_body(stream_of_entries(*[7] * 20, labels={"a": "b" * 500})), max_metadata_bytes=10_000),
        Body(push_body(stream_of_entries(labels={"a": "b" * 70_000}))),
        Body(push_body(*[stream_of_entries(labels={"app": str(number)}) for number in range(300)])),
    ],
    ids=["entries", "streams", "objects", "copies of labels", "quarantined copies", "labels", "services"],
)
def test_a_body_above_a_limit_is_refused_as_a_whole(body: Body) -> None:
    with pytest.raises(BodyTooLarge):
        read_json_push(body)


def test_brackets_in_lines_do_not_count_as_entries() -> None:
    labelled = json_body(*[[str(ENTRY_NS + number), "[{" * 100] for number in range(5)], body=Body(b"", max_items=5))
    assert len(events(labelled)) == 5


@pytest.mark.parametrize(
    "body",
    [
        protobuf_stream("{}", *[protobuf_entry(ENTRY_NS, "x")] * 6),
        protobuf_stream("{}") * 6,
        varint_field(2, 1) * 6,
        encode_bytes_field(1, varint_field(9, 1) * 9),
    ],
    ids=["entries", "streams", "unknown fields", "unknown fields of a stream"],
)
def test_streams_and_entries_of_protobuf_are_limited(body: bytes) -> None:
    with pytest.raises(BodyTooLarge):
        read_protobuf_push(Body(body, max_items=5))


def test_entries_are_counted_before_they_are_decoded() -> None:
    values = b'["",""],' * 200_000 + b'["",""]'
    body = Body(b'{"streams": [{"stream": {}, "values": [%b]}]}' % values, max_items=1000)
    tracemalloc.start()
    try:
        with pytest.raises(BodyTooLarge):
            read_json_push(body)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_unpaired_surrogates_and_invalid_utf_8_are_replaced() -> None:
    body = rb'{"streams": [{"stream": {"a": "\ud800"}, "values": [["1764100000000000000", "\ud800' + b'\xff"]]}]}'
    (event,) = events(read_json_push(Body(body)))
    assert event.event_message == "\ufffd\ufffd"
    assert metadata(event)["labels"] == {"a": "\ufffd"}


@pytest.mark.parametrize(
    ("level", "stored_level"), [("30", "30"), ("null", None), ('""', None), ('"Warn"', "warn"), (r'"\ud800"', "\ufffd")]
)
def test_a_level_of_any_type_is_accepted(level: str, stored_level: str | None) -> None:
    body = '{"streams": [{"stream": {}, "values": [["1764100000000000000", "x", {"level": LEVEL}], ["1", "y"]]}]}'
    ((_, part),) = read_json_push(Body(body.replace("LEVEL", level).encode())).parts_by_labels.items()
    first, _ = build_events(part, NOW_US)
    assert metadata(first).get("level") == stored_level


READERS = st.sampled_from([read_json_push, read_protobuf_push])
RANDOM_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["streams", "stream", "values", "level"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=60)
@given(READERS, st.binary(max_size=60) | RANDOM_VALUES.map(lambda value: json.dumps(value).encode()))
@example(read_json_push, b'{"streams": [{"stream": {}, "values": [["1", "x", {"level": [}]]}]}')
def test_any_body_is_decoded_or_refused(read: Callable[[Body], LabelledBody], body: bytes) -> None:
    with suppress(BadBody, BodyTooLarge):
        for part in read(Body(body)).parts_by_labels.values():
            build_events(part, NOW_US)
