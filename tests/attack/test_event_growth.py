"""The work for an event, measured in calls of Python functions, grows at most polynomially with its nesting."""

import sys
from collections.abc import Callable
from types import FrameType
from uuid import UUID

import pytest

from cordwood.engines.project_shapes import ProjectShapes
from cordwood.ingest import shape_inference
from cordwood.ingest.shape_inference import ShapeInferrer
from cordwood.model.definitions import Stream
from cordwood.model.event import Event, EventShape

STREAM = Stream("s", UUID(int=1), project_at=("ref",))
# Templates of a nesting level; `%s` is the previous level. At one path there may be objects and arrays, or nulls. Some
# keys differ only in case, or equal `[]`, which in a path is the step into an array.
LEVEL_TEMPLATES = (
    '{"a":%s}',
    "[%s]",
    '[{"x":1},%s]',
    "[[],%s]",
    "[null,%s]",
    '{"a":%s,"b":[{"c":1}]}',
    '{"a":[%s,{"x":null}]}',
    '{"[]":%s}',
    '[{"a":null},%s,{"a":1}]',
    '{"a":[1,%s],"A":{"b":1}}',
)
# Doubling the levels quadruples quadratic work. If the work doubles with each level, it becomes 64 times as much.
FEW, MANY, MAX_GROWTH = 6, 12, 10


def nest(around: tuple[str, str], levels: int) -> str:
    text = "1"
    for level in range(levels):
        text = around[level % len(around)].replace("%s", text)
    return text


def count_python_calls(run: Callable[[], None]) -> int:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def count_calls(outer: str, inner: str, levels: int) -> int:
    return count_python_calls(lambda: learn_shape(nest((outer, inner), levels)))


def learn_shape(text: str) -> None:
    """Learn a shape from an event, in the way in which an engine does until projects have decoders of their own."""
    shape, projects = EventShape(), ProjectShapes()
    reader = ShapeInferrer(lambda: {"s": shape}, lambda: {"s": projects})
    extras = text if text.startswith("{") else None
    for batch in range(4):
        events = [Event(f"{batch}.{n}", 1, "m", f"p{n % 2}", text, extras) for n in range(40)]
        learnt = reader.infer_shapes(STREAM, events)
        shape = shape.merged_with_kinds(learnt.stream_kinds)
        for project, kinds in learnt.kinds_by_project.items():
            projects.add_kinds(project, kinds)


@pytest.mark.parametrize("outer", LEVEL_TEMPLATES)
def test_the_shape_of_a_nested_event_is_learnt_with_bounded_work(monkeypatch: pytest.MonkeyPatch, outer: str) -> None:
    monkeypatch.setattr(shape_inference, "_MIN_SECONDS_BETWEEN_REBUILDS", 0)
    growth = {inner: count_calls(outer, inner, MANY) / count_calls(outer, inner, FEW) for inner in LEVEL_TEMPLATES}
    assert {inner: factor for inner, factor in growth.items() if factor >= MAX_GROWTH} == {}
