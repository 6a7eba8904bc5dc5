"""The shapes of projects are learnt within limits, and one project cannot use up the room of others."""

import json
from uuid import UUID

import pytest

from cordwood.engines import project_shapes
from cordwood.engines.project_shapes import MAX_PATH_KINDS_PER_PROJECT, ProjectShapes
from cordwood.ingest import event_values, shape_inference
from cordwood.ingest.event_values import MutableKindsByPath
from cordwood.ingest.shape_inference import MAX_PATHS_PER_SHAPE, InferredShapes, ShapeInferrer
from cordwood.model.definitions import Stream
from cordwood.model.event import Event, EventPath, EventShape, ValueKind

STREAM = Stream("s", UUID(int=1), project_at=("ref",))
TEXT, NUMBER, OBJECT, ARRAY = ValueKind.TEXT, ValueKind.NUMBER, ValueKind.OBJECT, ValueKind.ARRAY


def event(project: str | None, metadata: object, extras: object = None) -> Event:
    return Event("a", 1, "m", project, json.dumps(metadata), None if extras is None else json.dumps(extras))


class ShapeStore:
    """The shapes of a stream and its projects, updated as an engine does. It records the events whose paths were
    collected.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shape = EventShape()
        self.projects = ProjectShapes()
        self.inspected: list[Event] = []
        self.reader = ShapeInferrer(lambda: {"s": self.shape}, lambda: {"s": self.projects})
        monkeypatch.setattr(shape_inference, "_MIN_SECONDS_BETWEEN_REBUILDS", 0)
        collect_paths = event_values.collect_paths

        def counted(event: Event, kinds: MutableKindsByPath, objects: list[EventPath]) -> set[EventPath]:
            self.inspected.append(event)
            return collect_paths(event, kinds, objects)

        monkeypatch.setattr(shape_inference, "collect_paths", counted)

    def take(self, *events: Event) -> InferredShapes:
        learnt = self.reader.infer_shapes(STREAM, events)
        self.shape = self.shape.merged_with_kinds(learnt.stream_kinds)
        for project, kinds in learnt.kinds_by_project.items():
            self.projects.add_kinds(project, kinds)
        return learnt

    def names(self, project: str) -> set[tuple[str, ...]]:
        return set(self.projects.shape_of_project(project, self.shape).value_kinds_by_path)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> ShapeStore:
    return ShapeStore(monkeypatch)


OWN_METADATA = {"a": {"b": [1, {"c": "x"}], "n": None}, "t": True}
KINDS_OF_OWN_METADATA = {
    ("metadata",): {OBJECT},
    ("metadata", "a"): {OBJECT},
    ("metadata", "a", "b"): {ARRAY},
    ("metadata", "a", "b", "[]"): {NUMBER, OBJECT},
    ("metadata", "a", "b", "[]", "c"): {TEXT},
    ("metadata", "t"): {ValueKind.BOOL},
    ("project",): {TEXT},
    ("app",): {TEXT},
}


@pytest.mark.parametrize("before", ["nobody", "another with the same", "another with more"])
def test_a_project_has_the_paths_of_its_events_even_if_they_are_known_from_others(
    store: ShapeStore, before: str
) -> None:
    if before != "nobody":
        store.take(event("other", OWN_METADATA | ({"more": [1], "t": "x"} if "more" in before else {}), {"app": "x"}))
    store.take(event("p", OWN_METADATA, {"app": "x"}))
    assert store.projects.shape_of_project("p", store.shape).value_kinds_by_path == KINDS_OF_OWN_METADATA


def test_the_paths_of_an_event_that_fits_the_shape_are_learnt_by_the_decoder(store: ShapeStore) -> None:
    store.take(event("one", {"a": 1, "b": [{"c": 1}]}))
    before = len(store.inspected)
    store.take(event("two", {"b": [{"c": 1}]}), event("two", {"b": []}))
    assert len(store.inspected) == before
    assert store.names("two") == {
        ("metadata",),
        ("metadata", "b"),
        ("metadata", "b", "[]"),
        ("metadata", "b", "[]", "c"),
        ("project",),
    }


def test_paths_are_also_learnt_for_a_project_named_in_metadata(store: ShapeStore) -> None:
    for _ in range(2):
        store.take(event("sender", {"ref": "reader", "x": 1}), event(None, [{"ref": "left"}, {"ref": "right", "y": 1}]))
    assert ("metadata", "x") in store.names("sender") & store.names("reader")
    assert ("metadata", "[]", "y") in store.names("left") & store.names("right")
    assert ("metadata", "x") not in store.names("left")


def test_a_project_has_a_limited_share_of_the_paths_of_a_stream(store: ShapeStore) -> None:
    for number in range(40):
        store.take(event("greedy", {f"k{number}_{index}": {"x": index} for index in range(200)}))
    assert len(store.names("greedy")) <= MAX_PATH_KINDS_PER_PROJECT
    assert len(store.shape.value_kinds_by_path) <= MAX_PATH_KINDS_PER_PROJECT
    learnt = store.take(event("modest", {"path": "/", "list": [1]}))
    assert {("metadata", "path"), ("metadata", "list")} <= learnt.stream_kinds.keys()
    assert {("metadata", "path"), ("metadata", "list")} <= store.names("modest")


def test_new_kinds_at_listed_paths_are_learnt_beyond_the_share_of_a_project(store: ShapeStore) -> None:
    store.take(event("modest", {"path": "/"}))
    for number in range(20):
        store.take(event("greedy", {f"k{number}_{index}": 1 for index in range(200)}))
    assert ARRAY in store.take(event("greedy", {"path": [1]})).stream_kinds["metadata", "path"]


def test_events_that_fit_are_not_collected_again_when_the_list_is_full(store: ShapeStore) -> None:
    modest = [event("modest", {"path": "/", "request": {"method": "GET"}})] * 40
    store.take(*modest)
    for number in range(60):
        store.take(event(None, {f"k{number}": {f"x{index}": 1 for index in range(100)}}))
    assert len(store.shape.value_kinds_by_path) == MAX_PATHS_PER_SHAPE
    before = len(store.inspected)
    store.take(*modest)
    store.take(*modest)
    assert len(store.inspected) == before


def test_the_stored_kinds_of_a_path_that_was_not_listed_are_unknown(store: ShapeStore) -> None:
    store.take(event("p", {"known": {"x": 1}}))
    wide = {f"k{index}": [index] for index in range(600)}
    store.take(event("p", {"known": wide, "beside": 1}))
    unlisted = next(path for key in wide if (path := ("metadata", "known", key)) not in store.shape.value_kinds_by_path)
    assert store.shape.stored_kinds(unlisted) is None
    assert store.shape.stored_kinds(("metadata", "beside", "below")) == frozenset()
    # Now the path is listed, but earlier events may have values of other kinds at this path.
    store.take(event("p", {"known": {unlisted[-1]: "text"}}))
    assert store.shape.value_kinds_by_path[unlisted] == {TEXT}
    assert store.shape.stored_kinds(unlisted) is None


def test_projects_beyond_the_maximum_have_no_shape_of_their_own(
    store: ShapeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_shapes, "MAX_PROJECTS_PER_STREAM", 3)
    for number in range(5):
        store.take(event(f"p{number}", {f"k{number}": 1}))
    assert [len(store.names(f"p{number}")) for number in range(5)] == [3, 3, 3, 0, 0]
    assert store.names("") == set()
    for number in range(40):
        store.take(event(f"q{number}", {f"many{number}_{index}": 1 for index in range(100)}))
    assert len(store.shape.value_kinds_by_path) <= MAX_PATH_KINDS_PER_PROJECT + 20


def test_equal_sets_have_one_version_and_another_set_another() -> None:
    shapes = ProjectShapes()
    for project in ("a", "b"):
        shapes.add_kinds(project, {("x",): frozenset({TEXT})})
    before = shapes.version_of_project("a")
    assert shapes.version_of_project("b") == before
    shapes.add_kinds("b", {("y",): frozenset({TEXT})})
    assert (shapes.version_of_project("a") == before, shapes.version_of_project("b") == before) == (True, False)
