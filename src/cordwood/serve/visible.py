"""What a caller may know of the shapes of streams: a pinned key that which its own project's events have."""

from collections.abc import Iterator, Mapping

from cordwood.engines.engine import Engine
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.model.caller import Caller
from cordwood.model.shape import Shape


class NamesOfProject(Mapping[str, Shape]):
    """The streams with the names that one project's events have; with None no names at all."""

    def __init__(self, shapes: Mapping[str, Shape], projects: Mapping[str, ProjectShapes], project: str | None) -> None:
        self._shapes = shapes
        self._projects = projects
        self._project = project

    def __getitem__(self, stream: str) -> Shape:
        whole = self._shapes[stream]
        of_stream = self._projects.get(stream)
        return Shape(whole=whole) if of_stream is None else of_stream.shape(self._project, whole)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def names_for(caller: Caller, engine: Engine) -> Mapping[str, Shape]:
    """A key without pins sees the whole. Of a pin that is not one project, nothing is known of what it lets through."""
    if not caller.pins:
        return engine.shapes()
    return NamesOfProject(engine.shapes(), engine.projects(), project_of(caller))


def no_names(engine: Engine) -> Mapping[str, Shape]:
    return NamesOfProject(engine.shapes(), {}, None)


def project_of(caller: Caller) -> str | None:
    """The one project whose events the key reads; None where that cannot be said."""
    return caller.pins["project"] if caller.pins.keys() == {"project"} else None
