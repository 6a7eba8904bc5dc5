"""The shape of a stream is learnt from every event, at little cost for events that fit the shape."""

import json
from typing import Any

import msgspec
import pytest

from cordwood.ingest import event_values, shape_inference
from cordwood.ingest.shape_decoder import ShapeDecoder
from cordwood.ingest.shape_inference import (
    MAX_NEW_PATHS_PER_EVENT,
    MAX_PATHS_BELOW_PARENT,
    MAX_PATHS_PER_SHAPE,
    ShapeInferrer,
)
from cordwood.model.event import (
    MAX_LISTED_PATH_CHARACTERS,
    MAX_LISTED_PATH_STEPS,
    Event,
    EventPath,
    EventShape,
    ValueKind,
    ValueKindsByPath,
    format_paths,
)

OBJECT, ARRAY, TEXT, NUMBER, BOOL = (frozenset({kind}) for kind in list(ValueKind)[:5])


def event(metadata: object = None, project: str | None = None, extras: object = None) -> Event:
    texts = [None if value is None else json.dumps(value) for value in (metadata, extras)]
    return Event("a", 1, project=project, metadata=texts[0], extras=texts[1])


class LearningStream:
    """A stream whose shape is updated as an engine updates it."""

    def __init__(self) -> None:
        self.shape = EventShape()
        self._reader = ShapeInferrer(lambda: {"s": self.shape})

    def learn(self, *events: Event) -> ValueKindsByPath:
        _, learnt = self._reader.infer_stream_shape("s", events)
        self.shape = self.shape.merged_with_kinds(learnt)
        return learnt


def test_paths_and_kinds_are_learnt_through_objects_and_arrays() -> None:
    learnt = LearningStream().learn(event({"a": {"b": [1, {"c": True}, [None]]}, "d": None}, "p", {"app": "x"}))
    assert learnt == {
        ("metadata",): OBJECT,
        ("metadata", "a"): OBJECT,
        ("metadata", "a", "b"): ARRAY,
        ("metadata", "a", "b", "[]"): NUMBER | OBJECT | ARRAY,
        ("metadata", "a", "b", "[]", "c"): BOOL,
        ("project",): TEXT,
        ("app",): TEXT,
    }


def test_an_event_that_fits_teaches_nothing() -> None:
    stream = LearningStream()
    stream.learn(event({"a": 1}))
    version = stream.shape.version
    assert stream.learn(event({"a": 2.5}), event({"a": None}), event({})) == {}
    assert stream.shape.version == version


@pytest.mark.parametrize(
    ("metadata", "learnt"),
    [
        ({"a": "text"}, {("metadata", "a"): TEXT}),
        ({"a": {"z": 1}}, {("metadata", "a"): OBJECT, ("metadata", "a", "z"): NUMBER}),
        ({"a": [1]}, {("metadata", "a"): ARRAY, ("metadata", "a", "[]"): NUMBER}),
        ({"b": 1}, {("metadata", "b"): NUMBER}),
        ([{"a": 1}], {("metadata",): ARRAY, ("metadata", "[]"): OBJECT, ("metadata", "[]", "a"): NUMBER}),
        ({'quo"te': 1}, {("metadata", 'quo"te'): NUMBER}),
    ],
)
def test_one_new_path_or_kind_among_many_equal_events_is_learnt(metadata: object, learnt: ValueKindsByPath) -> None:
    stream = LearningStream()
    stream.learn(event({"a": 1}))
    assert stream.learn(*[event({"a": 1})] * 50, event(metadata)) == learnt


def test_beyond_the_maximum_of_paths_only_new_kinds_are_learnt() -> None:
    stream = LearningStream()
    for group in range(2 * MAX_PATHS_PER_SHAPE // 400):
        stream.learn(event({f"group{group}": {f"key{number}": 1 for number in range(400)}}))
    assert len(stream.shape.value_kinds_by_path) == MAX_PATHS_PER_SHAPE
    assert stream.learn(event({"one more": 1})) == {}
    assert stream.learn(event({"group0": {"key0": "text"}})) == {("metadata", "group0", "key0"): TEXT}


def test_one_event_can_add_only_a_limited_number_of_paths() -> None:
    stream = LearningStream()
    mismatches = event({"odd": {f"key{number}": {"x": 1} for number in range(20_000)}})
    assert len(stream.learn(mismatches)) == MAX_NEW_PATHS_PER_EVENT
    assert stream.learn(event({"path": "/"}, "p")) == {("metadata", "path"): TEXT, ("project",): TEXT}


def test_the_number_of_keys_below_one_path_is_limited() -> None:
    stream = LearningStream()
    for number in range(0, 30_000, 300):
        stream.learn(event({"by_id": {f"id{number + index}": {"n": index} for index in range(300)}}))
    ids = {path for path in stream.shape.value_kinds_by_path if path[:2] == ("metadata", "by_id") and len(path) == 3}
    assert len(ids) == MAX_PATHS_BELOW_PARENT
    assert {path[:3] for path in stream.shape.value_kinds_by_path if len(path) == 4} <= ids
    assert len(stream.shape.value_kinds_by_path) < MAX_PATHS_PER_SHAPE
    assert stream.learn(event({"path": "/"})) == {("metadata", "path"): TEXT}


def test_the_nearest_listed_ancestor_of_a_path_that_is_too_long_is_marked() -> None:
    stream = LearningStream()
    stream.learn(event({"short": {"a": 1}}))
    learnt = stream.learn(event({"short": {"k" * (MAX_LISTED_PATH_CHARACTERS + 1): 1, "b": 2}}))
    assert learnt[("metadata", "short")] == {ValueKind.UNLISTED_DESCENDANTS}
    deepest: object = {"too": "deep"}
    for _ in range(MAX_LISTED_PATH_STEPS - 1):
        deepest = {"a": deepest}
    learnt = stream.learn(event(deepest))
    assert learnt["metadata", *"a" * (MAX_LISTED_PATH_STEPS - 1)] == OBJECT | {ValueKind.UNLISTED_DESCENDANTS}
    assert stream.learn(event(deepest)) == {}


def test_a_wide_event_is_learnt_completely_over_several_batches() -> None:
    stream = LearningStream()
    wide = event({f"group{group}": {f"key{number}": 1 for number in range(100)} for group in range(8)})
    for _ in range(2):
        stream.learn(wide)
    assert stream.learn(wide) == {}
    assert len(stream.shape.value_kinds_by_path) == 809


LARGE_NUMBER = "123456789012345678901234567890"


@pytest.mark.parametrize(
    ("posted", "stored"),
    [
        (LARGE_NUMBER, f'"{LARGE_NUMBER}"'),
        (f"-{LARGE_NUMBER}", f'"-{LARGE_NUMBER}"'),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", '"18446744073709551616"'),
        ("-9223372036854775808", "-9223372036854775808"),
        ("-9223372036854775809", '"-9223372036854775809"'),
        ("1e400", '"1e400"'),
        ("-1.5E+999", '"-1.5E+999"'),
        ("1e308", "1e308"),
        ("1e-400", "1e-400"),
        ("1" * 5000, '"' + "1" * 5000 + '"'),
        ("0.12345678901234567890123", "0.12345678901234567890123"),
        (f'"{LARGE_NUMBER} and \\" 1e400"', f'"{LARGE_NUMBER} and \\" 1e400"'),
    ],
)
@pytest.mark.parametrize("known", [{}, {("metadata",): OBJECT, ("metadata", "n"): NUMBER, ("x",): NUMBER}])
def test_a_number_beyond_all_types_is_stored_as_text(posted: str, stored: str, known: ValueKindsByPath) -> None:
    reader = ShapeInferrer(lambda: {"s": EventShape(known)})
    (stored_event,), learnt = reader.infer_stream_shape(
        "s", [Event("a", 1, metadata=f'{{"n":{posted}}}', extras=f'{{"x": {posted}}}')]
    )
    assert (stored_event.metadata, stored_event.extras) == (f'{{"n":{stored}}}', f'{{"x": {stored}}}')
    kinds = TEXT if stored.startswith('"') else NUMBER
    assert learnt.get(("metadata", "n"), NUMBER) == kinds


def test_the_decoder_accepts_only_known_paths_and_kinds() -> None:
    shape = EventShape({("metadata",): OBJECT, ("metadata", "a"): NUMBER | TEXT, ("project",): TEXT})
    decoder = ShapeDecoder(shape, 0.0)
    values: list[object] = [1, "x", None, 2.5]
    assert all(decoder.object_paths(event({"a": value}, "p")) is not None for value in values)
    mismatching_values: list[object] = [{"a": True}, {"b": 1}, {"a": {}}, [], "x"]
    assert not any(decoder.object_paths(event(metadata)) for metadata in mismatching_values)
    assert decoder.object_paths(event(extras={"app": 1})) is None


def test_a_decoder_has_one_type_for_each_record_below_nested_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the types of a decoder.

    Regression: their number doubled with each array whose elements are records or arrays.
    """
    stream = LearningStream()
    metadata: object = {"x": 1}
    for _ in range(12):
        metadata = [metadata, {"x": 1}]
    stream.learn(event(metadata))
    struct_names: list[str] = []
    defstruct = msgspec.defstruct

    def counted(name: str, *arguments: Any, **options: Any) -> type[msgspec.Struct]:
        struct_names.append(name)
        return defstruct(name, *arguments, **options)

    monkeypatch.setattr(msgspec, "defstruct", counted)
    decoder = ShapeDecoder(stream.shape, 0)
    assert len(struct_names) == 2 + 12 - 1
    assert decoder.decode(event(metadata)) is not None


def test_an_event_with_the_name_of_the_step_to_elements_as_key_is_stored_with_its_paths() -> None:
    stream = LearningStream()
    for _ in range(2):
        stream.learn(event([{"[]": {"x": 1}}]), event({"[]": [1], "ids[]": 2}))
    assert ShapeDecoder(stream.shape, 0).object_paths(event({"ids[]": 3})) == format_paths([("metadata",)])
    assert ShapeDecoder(stream.shape, 0).object_paths(event({"[]": [1]})) is None


def test_the_object_paths_are_the_same_for_new_and_known_events() -> None:
    shape = EventShape()
    reader = ShapeInferrer(lambda: {"s": shape})
    sent = [
        event({"a": {"b": {}}, "c": [{"d": {}}], "e": None, "f": 1}, extras={"ctx": {}, "n": 1}),
        event({}),
        event("x"),
    ]
    paths_of_objects = [item.object_paths for item in reader.infer_stream_shape("s", sent)[0]]
    expected = [
        format_paths([("metadata",), ("metadata", "a"), ("metadata", "a", "b"), ("ctx",)]),
        format_paths([("metadata",)]),
        "",
    ]
    assert paths_of_objects == expected
    shape = shape.merged_with_kinds(reader.infer_stream_shape("s", sent)[1])
    decoder = ShapeDecoder(shape, 0.0, [("metadata", "e")])
    assert [decoder.object_paths(item) for item in sent] == expected


def test_paths_learnt_from_a_batch_apply_to_the_rest_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    inspected: list[Event] = []
    collect_paths = event_values.collect_paths

    def noted(event: Event, kinds: event_values.MutableKindsByPath, objects: list[EventPath]) -> set[EventPath]:
        inspected.append(event)
        return collect_paths(event, kinds, objects)

    monkeypatch.setattr(shape_inference, "collect_paths", noted)
    alike = [event({"a": {"b": number}, "c": None}) for number in range(3000)]
    later_event = event({"a": {"b": "text"}, "d": True})
    learnt = LearningStream().learn(*alike, later_event, *alike)
    assert len(inspected) == 17
    assert learnt == {
        ("metadata",): OBJECT,
        ("metadata", "a"): OBJECT,
        ("metadata", "a", "b"): NUMBER | TEXT,
        ("metadata", "d"): BOOL,
    }
