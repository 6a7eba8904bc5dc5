"""What a caller may see: the shapes restricted to its project, and whether its answers are redacted."""

from collections.abc import Iterator, Mapping

from cordwood.engines.engine import Engine
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.model.key import Caller
from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.model.shape import Shape
from cordwood.serve.query_request import QueryRequest
from cordwood.sql.redaction.redaction import Redaction


class ProjectView(Mapping[str, Shape]):
    """The shapes of all streams, restricted to one project's events; to no names at all if `project` is None."""

    def __init__(self, shapes: Mapping[str, Shape], projects: Mapping[str, ProjectShapes], project: str | None) -> None:
        self._shapes = shapes
        self._projects = projects
        self._project = project

    def __getitem__(self, stream: str) -> Shape:
        stream_shape = self._shapes[stream]
        project_shapes = self._projects.get(stream)
        return (
            Shape(whole=stream_shape) if project_shapes is None else project_shapes.shape(self._project, stream_shape)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def visible_shapes(caller: Caller, engine: Engine) -> Mapping[str, Shape]:
    """Return all shapes for a key without pins, its project's for a key pinned to one project, otherwise none."""
    if not caller.pins:
        return engine.shapes()
    return ProjectView(engine.shapes(), engine.projects(), project_of(caller))


def shapes_without_names(engine: Engine) -> Mapping[str, Shape]:
    return ProjectView(engine.shapes(), {}, None)


def project_of(caller: Caller) -> str | None:
    """Return the one project that the key is pinned to; None if it has other pins or none."""
    return caller.pins["project"] if caller.pins.keys() == {"project"} else None


class Redactions:
    """One Redaction for each mode.

    They live as long as the process, because each caches the names it has classified.
    """

    def __init__(self, rules: RedactionRules) -> None:
        self._by_mode = {mode: Redaction(mode, rules) for mode in RedactMode}

    def of(self, request: QueryRequest) -> Redaction | None:
        """Return the redaction of a request; None if it is answered as stored."""
        return self.by_mode(request.endpoint.redact_mode) if request.redacts else None

    def by_mode(self, mode: str) -> Redaction:
        return self._by_mode[RedactMode(mode)]
