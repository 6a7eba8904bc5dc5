"""What a caller may see: the shapes of its project, the schema of an endpoint, and redaction of its answers."""

from collections.abc import Iterator, Mapping

import msgspec

from cordwood.dialects import explain_lql_query, list_sub_queries
from cordwood.engines.engine import Engine
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.model.endpoint import Endpoint
from cordwood.model.key import Caller
from cordwood.model.redaction import RedactionRules, RedactMode
from cordwood.model.shape import Shape
from cordwood.serve.compilation import StatementCache
from cordwood.serve.query_request import QueryRequest
from cordwood.sql.redaction.patterns import Redaction
from cordwood.sql.sub_query_schema import SubQuery


class ProjectView(Mapping[str, Shape]):
    """The shapes of all streams, restricted to the events of one project; without any names if `project` is None."""

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
    """Return the project to which the key is pinned, or None if it has other pins or no pins."""
    return caller.pins["project"] if caller.pins.keys() == {"project"} else None


class Redactions:
    """The `Redaction` of each redaction mode.

    They live as long as the process, because each caches the names that it has classified.
    """

    def __init__(self, rules: RedactionRules) -> None:
        self._by_mode = {mode: Redaction(mode, rules) for mode in RedactMode}

    def of(self, request: QueryRequest) -> Redaction | None:
        """Return the redaction for a request, or None if its answer is not redacted."""
        return self.by_mode(request.endpoint.redact_mode) if request.redacts else None

    def by_mode(self, mode: str) -> Redaction:
        return self._by_mode[RedactMode(mode)]


class SandboxSchema:
    """Describes sub-queries and translates LQL. It compiles on the calling thread, so use it in a worker thread."""

    def __init__(self, engine: Engine, statements: StatementCache, redactions: Redactions) -> None:
        self._engine = engine
        self._statements = statements
        self._redactions = redactions

    def sub_queries(self, endpoint: Endpoint, caller: Caller) -> tuple[SubQuery, ...]:
        """Return the sub-queries, with the columns and paths of the events that the caller may see."""
        program = self._statements.program(endpoint)
        return list_sub_queries(program, self._engine.target, self._shapes(endpoint, caller))

    def sql_of(self, endpoint: Endpoint, caller: Caller, lql: str) -> str:
        """Return the SQL, in BigQuery's dialect, to which a query in LQL compiles."""
        program = self._statements.program(endpoint)
        visible = self._shapes(endpoint, caller)
        # A run takes the kinds of values in all events into account. The translation does not: its meaning is the same,
        # and it does not reveal whether events of other projects contain arrays.
        projects_only = {stream: msgspec.structs.replace(shape, whole=None) for stream, shape in visible.items()}
        return explain_lql_query(program, lql, self._engine.target, projects_only)

    def _shapes(self, endpoint: Endpoint, caller: Caller) -> Mapping[str, Shape]:
        shapes = visible_shapes(caller, self._engine)
        if not (endpoint.redact_pii or caller.redact_always):
            return shapes
        return self._redactions.by_mode(endpoint.redact_mode).visible_shapes(shapes)
