"""What a stream's events look like is learnt from every one of them, at little cost for those that are alike."""

import json

import pytest

from cordwood.ingest.fitting import Fitting
from cordwood.ingest.shape import MAX_PATHS, ShapeReader
from cordwood.model.event import Event, written_paths
from cordwood.model.shape import Kinds, Shape, ValueKind

OBJECT, ARRAY, TEXT, NUMBER, BOOL = (frozenset({kind}) for kind in ValueKind)


def event(metadata: object = None, project: str | None = None, extras: object = None) -> Event:
    texts = [None if value is None else json.dumps(value) for value in (metadata, extras)]
    return Event("a", 1, project=project, metadata=texts[0], extras=texts[1])


class Stream:
    """A stream that remembers, as an engine does."""

    def __init__(self) -> None:
        self.shape = Shape()
        self._reader = ShapeReader(lambda: {"s": self.shape})

    def learn(self, *events: Event) -> Kinds:
        _, learnt = self._reader.learn("s", events)
        self.shape = self.shape.with_learnt(learnt)
        return learnt


def test_paths_and_kinds_are_learnt_through_objects_and_arrays() -> None:
    learnt = Stream().learn(event({"a": {"b": [1, {"c": True}, [None]]}, "d": None}, "p", {"app": "x"}))
    assert learnt == {
        ("metadata",): OBJECT,
        ("metadata", "a"): OBJECT,
        ("metadata", "a", "b"): ARRAY,
        ("metadata", "a", "b", "[]"): NUMBER | OBJECT | ARRAY,
        ("metadata", "a", "b", "[]", "c"): BOOL,
        ("project",): TEXT,
        ("app",): TEXT,
    }


def test_the_same_again_teaches_nothing() -> None:
    stream = Stream()
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
def test_one_new_thing_among_many_alike_is_learnt(metadata: object, learnt: Kinds) -> None:
    stream = Stream()
    stream.learn(event({"a": 1}))
    assert stream.learn(*[event({"a": 1})] * 50, event(metadata)) == learnt


def test_past_the_most_paths_only_new_kinds_are_learnt() -> None:
    stream = Stream()
    stream.learn(event({f"key{number}": 1 for number in range(2 * MAX_PATHS)}))
    assert len(stream.shape.kinds) == MAX_PATHS
    assert stream.learn(event({"one more": 1})) == {}
    assert stream.learn(event({"key0": "text"})) == {("metadata", "key0"): TEXT}


def test_a_fitting_passes_what_is_known_and_nothing_else() -> None:
    shape = Shape({("metadata",): OBJECT, ("metadata", "a"): NUMBER | TEXT, ("project",): TEXT})
    fitting = Fitting(shape, 0.0, is_full=False)
    values: list[object] = [1, "x", None, 2.5]
    assert all(fitting.object_paths(event({"a": value}, "p")) is not None for value in values)
    unlike: list[object] = [{"a": True}, {"b": 1}, {"a": {}}, [], "x"]
    assert not any(fitting.object_paths(event(metadata)) for metadata in unlike)
    assert fitting.object_paths(event(extras={"app": 1})) is None


def test_the_paths_of_objects_are_told_whether_the_event_is_new_or_known() -> None:
    shape = Shape()
    reader = ShapeReader(lambda: {"s": shape})
    sent = [
        event({"a": {"b": {}}, "c": [{"d": {}}], "e": None, "f": 1}, extras={"ctx": {}, "n": 1}),
        event({}),
        event("x"),
    ]
    told = [one.object_paths for one in reader.learn("s", sent)[0]]
    expected = [
        written_paths([("metadata",), ("metadata", "a"), ("metadata", "a", "b"), ("ctx",)]),
        written_paths([("metadata",)]),
        "",
    ]
    assert told == expected
    shape = shape.with_learnt(reader.learn("s", sent)[1])
    fitting = Fitting(shape, 0.0, [("metadata", "e")], is_full=False)
    assert [fitting.object_paths(one) for one in sent] == expected
