"""JSON bodies: one event, an array, a batch, and malformed bodies."""

import json

import pytest

from cordwood.errors import BadBody, UnsupportedMediaType
from cordwood.ingest.build_events import build_events
from cordwood.ingest.formats import BodyFormat, read_body
from cordwood.ingest.parsed_body import Body, ParsedBody
from cordwood.model.event import Event

NOW_US = 1_700_000_000_000_000


def parse_body(text: str | bytes, media: str = "application/json") -> ParsedBody:
    data = text.encode() if isinstance(text, str) else text
    return read_body(BodyFormat.EVENTS, Body(data, media))


def events(text: str | bytes, media: str = "application/json") -> list[Event]:
    return build_events(parse_body(text, media), NOW_US)


@pytest.mark.parametrize(
    "text",
    [
        '{"id": "a", "metadata": {"x": 1}}',
        '[{"id": "a", "metadata": {"x": 1}}]',
        '{"batch": [{"id": "a", "metadata": {"x": 1}}]}',
        '{"batch": [{"id": "a", "metadata": {"x": 1}}], "other": 1}',
        ' \n[{"id": "a", "metadata": {"x": 1}}] ',
        '\ufeff[{"id": "a", "metadata": {"x": 1}}]',
    ],
)
def test_one_event_is_read_from_each_form(text: str) -> None:
    (event,) = events(text)
    assert event.id == "a"
    assert json.loads(event.metadata or "") == {"x": 1}


def test_a_batch_that_is_not_an_array_is_a_field() -> None:
    (event,) = events('{"batch": 7}')
    assert event.extras == '{"batch":7}'


def test_an_empty_batch_holds_nothing() -> None:
    assert events('{"batch": []}') == events("[]") == []


def test_other_top_level_keys_are_stored_unchanged() -> None:
    (event,) = events('{"a-b": null, "n": 1.50, "deep": {"x": []}, "source_name": "elsewhere"}')
    assert event.extras == '{"a-b":null,"n":1.50,"deep":{"x": []},"source_name":"elsewhere"}'


@pytest.mark.parametrize(
    "text",
    [
        '{"ID": "a", "TimeStamp": 1690000000, "Message": "m", "Project": "p", "METADATA": {"x": 1}, "Level": "l"}',
        '{"Level": "l", "Id": "a", "timestamp": 1690000000, "Event_Message": "m", "project": "p", "metadata": {"x": 1}}',
    ],
)
@pytest.mark.parametrize("media", ["application/json", "application/x-ndjson"])
def test_fields_whose_names_differ_in_case_are_recognised(text: str, media: str) -> None:
    (event,) = events(text, media)
    assert (event.id, event.timestamp_us, event.event_message, event.project) == ("a", 1_690_000_000_000_000, "m", "p")
    assert (event.metadata, event.extras) == ('{"x": 1}', '{"Level":"l"}')


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"timestamp": "2026-01-01", "Timestamp": "x"}', {"Timestamp": "x"}),
        ('{"Metadata": {"a": 1}, "METADATA": {"b": 2}}', {"METADATA": {"b": 2}}),
        ('{"event_message": "m", "Message": "other"}', {"Message": "other"}),
        ('{"Event_Message": "m", "Message": "other"}', {"Message": "other"}),
        ('{"Id": 4624}', {"Id": 4624}),
        ('{"Id": "4624"}', {"Id": "4624"}),
        ('{"Level": "A", "level": "b"}', {"Level": "A", "level": "b"}),
    ],
)
def test_keys_that_are_no_field_in_another_case_keep_their_names(text: str, kept: dict[str, object]) -> None:
    (event,) = events(text)
    assert json.loads(event.extras or "{}") == kept


def test_events_with_equal_numbers_as_id_in_another_case_get_ids_of_their_own() -> None:
    first, second = events('[{"Id": 4624}, {"Id": 4624}]')
    assert first.id != second.id


def test_a_single_event_keeps_its_id_and_time() -> None:
    (event,) = events('{"id": "mine", "timestamp": "2023-07-22T04:26:40Z"}')
    assert (event.id, event.timestamp_us, event.timestamp_inferred) == ("mine", 1_690_000_000_000_000, False)


def test_an_event_without_a_timestamp_has_the_time_of_receipt_and_is_marked() -> None:
    (event,) = events('{"timestamp": "soon"}')
    assert (event.timestamp_us, event.timestamp_inferred) == (NOW_US, True)


@pytest.mark.parametrize("sent", ["{}", '{"id": null}', '{"id": ""}'])
def test_an_event_without_an_id_is_given_one(sent: str) -> None:
    assert len(events(sent)[0].id) == 36


@pytest.mark.parametrize(
    ("sent", "message", "extras"),
    [
        ('{"message": "m"}', "m", None),
        ('{"event_message": "e"}', "e", None),
        ('{"message": "m", "event_message": "m"}', "m", None),
        ('{"message": "m", "event_message": "e"}', "e", '{"message":"m"}'),
        ('{"message": null, "event_message": "e"}', "e", None),
        ('{"message": {"a": 1}}', '{"a": 1}', None),
        ('{"event_message": 5}', "5", None),
        ("{}", None, None),
    ],
)
def test_message_and_event_message_are_merged(sent: str, message: str | None, extras: str | None) -> None:
    (event,) = events(sent)
    assert (event.event_message, event.extras) == (message, extras)


@pytest.mark.parametrize(
    ("sent", "stored"), [('{"id": 7}', "7"), ('{"id": true}', "true"), ('{"id": {"a":1}}', '{"a":1}')]
)
def test_an_id_of_another_type_is_converted_to_text(sent: str, stored: str) -> None:
    assert events(sent)[0].id == stored


def test_items_that_are_not_objects_are_quarantined_with_their_index() -> None:
    parsed = parse_body('[{"id": "a"}, 7, null, "x", [1], {"id": "b"}]')
    assert [event.id for event in parsed.events] == ["a", "b"]
    assert [item.index for item in parsed.refused_items] == [1, 2, 3, 4]
    assert parsed.item_indexes == [0, 5]


@pytest.mark.parametrize("text", ["", "nonsense", '[{"a": 1}', '{"a": 1,}', '[{"a": NaN}]', '{"a": 1} {"b": 2}'])
def test_broken_json_is_refused_with_its_position(text: str) -> None:
    with pytest.raises(BadBody, match=r"\(byte \d+\)|it is empty"):
        parse_body(text)


def test_an_unpaired_surrogate_is_replaced() -> None:
    metadata = [event.metadata for event in events(r'[{"metadata": {"a": "\ud83d\ude00 \ud83d x \\ud83d"}}, {}]')]
    assert json.loads(metadata[0] or "") == {"a": "😀 \ufffd x \\ud83d"}


def test_invalid_utf_8_is_replaced() -> None:
    assert events(b'{"event_message": "caf\xe9"}')[0].event_message == "caf\ufffd"


def test_a_too_deep_event_of_an_array_is_quarantined() -> None:
    deep = '{"a":' * 3000 + "1" + "}" * 3000
    parsed = parse_body(f'[{{"id": "a"}}, {deep}, {{"id": "b, ]"}}]')
    assert [event.id for event in parsed.events] == ["a", "b, ]"]
    assert [item.index for item in parsed.refused_items] == [1]


@pytest.mark.parametrize(
    "body_template", ['{"batch": [%s]}', ' {"n": {"batch": [1]}, "batch" :[%s], "more": ["batch", 7]} ']
)
def test_a_too_deep_event_of_a_batch_is_quarantined(body_template: str) -> None:
    deep = '{"a":' * 3000 + "[1, 2]" + "}" * 3000
    parsed = parse_body(body_template % f'{{"id": "a"}}, {deep}, {{"id": "b, ]"}}')
    assert [event.id for event in parsed.events] == ["a", "b, ]"]
    assert [(item.index, item.text) for item in parsed.refused_items] == [(1, deep)]


@pytest.mark.parametrize(
    "text", ['{"a":' * 3000 + "1" + "}" * 3000, '{"batch": {"a": ' + "[" * 3000 + "]" * 3000 + "}}"]
)
def test_a_single_too_deep_event_is_quarantined(text: str) -> None:
    parsed = parse_body(text)
    assert parsed.events == []
    assert [(item.index, item.reason, item.text) for item in parsed.refused_items] == [
        (0, "The item is nested too deeply.", text)
    ]


def test_a_huge_deep_body_is_refused_as_a_whole() -> None:
    with pytest.raises(BadBody, match="nested too deeply"):
        parse_body("[" * 2**23 + "]" * 2**23)


@pytest.mark.parametrize("text", ["[" * 5000, '[{"id": "a"},' + "[" * 3000, "[" * 3000 + "]" * 3000 + "x"])
def test_a_deep_body_that_is_not_closed_is_refused(text: str) -> None:
    with pytest.raises(BadBody, match="not closed"):
        parse_body(text)


def test_nul_characters_duplicate_keys_and_large_numbers_are_accepted() -> None:
    (event,) = events(r'{"metadata": {"a\u0000": "x\u0000y", "k": 1, "k": 2, "n": 123456789012345678901234567890}}')
    assert event.metadata is not None


def test_a_bad_line_is_quarantined_and_the_others_are_read() -> None:
    parsed = parse_body('{"id": "a"}\n{"id": \n\n{"id": "c"}\r\n7\n', "application/x-ndjson")
    assert [event.id for event in parsed.events] == ["a", "c"]
    assert [item.index for item in parsed.refused_items] == [1, 4]


def test_a_body_of_only_bad_lines_is_refused() -> None:
    with pytest.raises(BadBody, match="Line 1"):
        parse_body("nonsense\nmore\n", "application/x-ndjson")


@pytest.mark.parametrize("media", ["", "text/html", "application/xml"])
def test_other_content_types_are_refused_with_the_supported_ones(media: str) -> None:
    with pytest.raises(UnsupportedMediaType) as refusal:
        parse_body("{}", media)
    assert "application/json" in (refusal.value.hint or "")


@pytest.mark.parametrize("media", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/vnd.x+json"])
def test_parameters_of_a_content_type_are_ignored(media: str) -> None:
    assert len(events("{}", media)) == 1
