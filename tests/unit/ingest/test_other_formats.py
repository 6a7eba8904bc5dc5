"""Events from Vector, Logpush, plain JSON, browser reports, CloudEvents, forms and syslog."""

import json
from urllib.parse import urlencode

import pytest

from cordwood.errors import BadBody
from cordwood.ingest.build_events import build_events
from cordwood.ingest.formats import BodyFormat, read_body
from cordwood.ingest.parsed_body import Body, ParsedBody
from cordwood.model.event import Event

NOW_US = 1_700_000_000_000_000
EVENT_TIME = "2023-07-22T04:26:40Z"
EVENT_TIME_US = 1_690_000_000_000_000


def read_format(form: BodyFormat, text: str, media: str = "application/json", **headers: str) -> ParsedBody:
    return read_body(
        form, Body(text.encode(), media, {name.replace("_", "-"): value for name, value in headers.items()})
    )


def events(form: BodyFormat, text: str, media: str = "application/json", **headers: str) -> list[Event]:
    return build_events(read_format(form, text, media, **headers), NOW_US)


def metadata(event: Event) -> dict[str, object]:
    decoded = json.loads(event.metadata or "null")
    assert isinstance(decoded, dict)
    return decoded


@pytest.mark.parametrize("form", [BodyFormat.JSON, BodyFormat.BROWSER_REPORTS])
def test_a_whole_object_is_both_message_and_metadata(form: BodyFormat) -> None:
    (event,) = events(form, '{"id": "x", "timestamp": "2020-01-01T00:00:00Z", "message": "m"}')
    assert (event.timestamp_us, event.timestamp_inferred) == (NOW_US, True)
    assert event.event_message == event.metadata == '{"id": "x", "timestamp": "2020-01-01T00:00:00Z", "message": "m"}'


def test_vectors_message_and_timestamp_are_not_in_the_metadata() -> None:
    (event,) = events(
        BodyFormat.VECTOR, f'[{{"message": "m", "timestamp": "{EVENT_TIME}", "project": "p", "host": "h"}}]'
    )
    assert (event.event_message, event.timestamp_us, event.project) == ("m", EVENT_TIME_US, "p")
    assert metadata(event) == {"project": "p", "host": "h"}


def test_vector_events_need_no_message_or_timestamp() -> None:
    (event,) = events(BodyFormat.VECTOR, '{"project": "p"}\n', "application/x-ndjson")
    assert (event.event_message, event.project, event.timestamp_inferred) == ('{"project":"p"}', "p", True)


@pytest.mark.parametrize("media", ["application/json", "text/plain; charset=utf-8", "application/x-ndjson"])
def test_a_logpush_line_is_an_event_at_its_edge_start_timestamp(media: str) -> None:
    line = '{"EdgeStartTimestamp":1690000000000000000,"RayID":"r"}'
    first, second = events(BodyFormat.LOGPUSH, f"{line}\n{line}\n", media)
    assert first.event_message == first.metadata == line
    assert first.timestamp_us == second.timestamp_us == EVENT_TIME_US


def test_bad_lines_of_logpush_are_quarantined() -> None:
    parsed = read_format(BodyFormat.LOGPUSH, '{"RayID":"r"}\nnonsense\n[1]\n', "text/plain")
    assert len(parsed.events) == 1
    assert [item.index for item in parsed.refused_items] == [1, 2]


def test_a_cloud_event_has_the_attributes_and_time_of_its_headers() -> None:
    (event,) = events(BodyFormat.CLOUD_EVENT, '{"a": 1}', ce_time=EVENT_TIME, ce_type="t.x", ce_spec_version="1.0")
    assert event.timestamp_us == EVENT_TIME_US
    assert json.loads(event.extras or "") == {
        "a": 1,
        "cloud_event": {"time": EVENT_TIME, "type": "t.x", "spec_version": "1.0"},
    }


def test_a_structured_cloud_event_has_its_own_time() -> None:
    (event,) = events(
        BodyFormat.CLOUD_EVENT, json.dumps({"id": "i", "time": EVENT_TIME}), "application/cloudevents+json"
    )
    assert (event.id, event.timestamp_us) == ("i", EVENT_TIME_US)


SYSLOG_LINE = (
    '<165>1 2023-07-22T04:26:40.5Z host app 42 ID47 [ex@1 k="a\\"b" e="x"][two@2] \x1b[31mhello\x1b[0m {"n": 1}'
)


def test_a_syslog_line_is_parsed() -> None:
    (event,) = events(BodyFormat.SYSLOG, SYSLOG_LINE + "\n", "application/logplex-1")
    assert (event.event_message, event.timestamp_us) == ('hello {"n": 1}', EVENT_TIME_US + 500_000)
    decoded = metadata(event)
    assert decoded.pop("message_raw") == SYSLOG_LINE
    assert decoded == {
        "priority": 165,
        "facility": "local4",
        "severity": "notice",
        "level": "notice",
        "message_text": 'hello {"n": 1}',
        "hostname": "host",
        "appname": "app",
        "process_id": "42",
        "message_id": "ID47",
        "sd": [{"id": "ex@1", "k": 'a"b', "e": "x"}, {"id": "two@2"}, {"id": "json", "n": 1}],
    }


def test_pairs_of_logfmt_are_read_from_a_message_of_heroku() -> None:
    message = 'at=info path="/a \\"b\\" c" x.y@z#1/-=2"k=3 é= =v a=b=c word "q=1" u="open w=5'
    (event,) = events(BodyFormat.SYSLOG, f"<13>1 2020-01-01T00:00:00Z host heroku router - {message}\n", "text/plain")
    assert metadata(event)["logfmt"] == {
        "at": "info",
        "path": '/a \\"b\\" c',
        "x.y@z#1/-": '2"k=3',
        "é": "",
        "a": "b=c",
        "q": "1",
        "u": "open",
        "w": "5",
    }


def test_many_elements_of_structured_data_are_read() -> None:
    line = "<13>1 2020-01-01T00:00:00Z h a p m " + '[e k="v"]' * 3 + " text"
    (event,) = events(BodyFormat.SYSLOG, line + "\n", "text/plain")
    assert event.event_message == "text"
    assert metadata(event)["sd"] == [{"id": "e", "k": "v"}] * 3


def test_syslog_with_octet_counting_is_split() -> None:
    lines = ["<13>1 - h a - - - one\ntwo", "<13>1 - h a - - - zwölf"]
    framed = "".join(f"{len(line.encode())} {line}" for line in lines)
    assert [event.event_message for event in events(BodyFormat.SYSLOG, framed, "text/plain")] == ["one\ntwo", "zwölf"]


@pytest.mark.parametrize("line_end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_octet_counts_count_bytes_that_are_not_utf_8(mark: bytes, line_end: bytes) -> None:
    lines = [b"<13>1 - h a - - - " + text + line_end for text in (b"one \xff\nmore", b"two", b"three")]
    body = mark + b"".join(b"%d %s" % (len(line), line) for line in lines)
    parsed = read_body(BodyFormat.SYSLOG, Body(body, "application/syslog"))
    assert [event.event_message for event in parsed.events] == ["one \ufffd\nmore", "two", "three"]
    assert json.loads(bytes(parsed.events[1].metadata))["message_raw"] == "<13>1 - h a - - - two"


@pytest.mark.parametrize("off", [-1, 1, 3, 500], ids=["one short", "one long", "into the next", "beyond the end"])
def test_with_wrong_octet_counts_each_line_is_a_message(off: int) -> None:
    lines = [f"<13>1 - h a - - - {text}" for text in ("zwölf", "two", "three")]
    counted = "\n".join(f"{len(line.encode()) + off + 1} {line}" for line in lines) + "\n"
    parsed = read_format(BodyFormat.SYSLOG, counted, "text/plain")
    assert [event.event_message for event in parsed.events] == ["zwölf", "two", "three"]
    assert parsed.refused_items == []


def test_octet_counts_may_exclude_the_line_end() -> None:
    lines = ["<13>1 - h a - - - one", "<13>1 - h a - - - two"]
    counted = "\n".join(f"{len(line)} {line}" for line in lines)
    assert [event.event_message for event in events(BodyFormat.SYSLOG, counted, "text/plain")] == ["one", "two"]


def test_logplex_lines_and_rfc_3164_lines_are_parsed() -> None:
    text = (
        "<40>1 2012-11-30T06:45:29+00:00 host app web.3 - State changed\n<34>Oct 11 22:14:15 mymachine su[12]: failed"
    )
    first, second = events(BodyFormat.SYSLOG, text, "application/logplex-1")
    assert first.event_message == "State changed"
    assert metadata(first)["message_id"] is None
    assert (second.event_message, metadata(second)["process_id"], second.timestamp_inferred) == ("failed", "12", True)


def test_an_invalid_syslog_line_is_quarantined() -> None:
    parsed = read_format(BodyFormat.SYSLOG, "<13>1 - h a - - - one\nodd\n<999>1 - h a - - - x", "text/plain")
    assert (len(parsed.events), [item.index for item in parsed.refused_items]) == (1, [1, 2])


def test_a_body_without_syslog_is_refused() -> None:
    with pytest.raises(BadBody):
        read_format(BodyFormat.SYSLOG, "odd", "text/plain")


def test_a_form_is_one_event_with_optional_json_metadata() -> None:
    sent = b"event_message=caf%C3%A9+au+lait&timestamp=1690000000.5&tag=a&tag=b&empty=&metadata=%7B%22n%22%3A1%7D"
    (event,) = build_events(read_body(BodyFormat.EVENTS, Body(sent, "application/x-www-form-urlencoded")), NOW_US)
    assert (event.event_message, event.timestamp_us) == ("caf\u00e9 au lait", 1_690_000_000_500_000)
    assert (event.metadata, event.extras) == ('{"n":1}', '{"tag":["a","b"],"empty":""}')


@pytest.mark.parametrize("metadata", ["{not json", "7", "[1]", '"x"'])
def test_form_metadata_that_is_not_an_object_stays_text(metadata: str) -> None:
    sent = urlencode({"metadata": metadata}).encode()
    (event,) = build_events(read_body(BodyFormat.EVENTS, Body(sent, "application/x-www-form-urlencoded")), NOW_US)
    assert json.loads(event.metadata or "") == metadata


@pytest.mark.parametrize("sent", [b"", b"&".join([b"a=1"] * 10_001)])
def test_a_form_with_no_or_too_many_fields_is_refused(sent: bytes) -> None:
    with pytest.raises(BadBody, match="The form"):
        read_body(BodyFormat.EVENTS, Body(sent, "application/x-www-form-urlencoded"))


@pytest.mark.parametrize(
    ("message", "structured_data"),
    [
        ('took {3 ms}: {"a": {"b": [1]}} in all', {"a": {"b": [1]}}),
        ('{"id": "mine", "a": 1}', {"a": 1}),
        ("{" * 20 + '{"a": 1}', None),
        ('{"a": NaN} {"a": 2}', {"a": 2}),
        ('{"a": ' + "[" * 100_000, None),
        ("no {json} here", None),
    ],
)
def test_json_in_a_syslog_message_becomes_structured_data(
    message: str, structured_data: dict[str, object] | None
) -> None:
    (event,) = events(BodyFormat.SYSLOG, f"<13>1 2023-07-22T04:26:40Z h a 1 2 - {message}", "text/plain")
    assert event.event_message == message
    assert metadata(event)["sd"] == ([] if structured_data is None else [{**structured_data, "id": "json"}])
