"""The schema of an endpoint for authors of sandbox queries."""

from collections.abc import Mapping

import msgspec

from cordwood.dialects import explain_lql_query, list_sub_queries
from cordwood.engines.engine import Engine
from cordwood.model.endpoint import Endpoint
from cordwood.model.key import Caller
from cordwood.model.shape import Shape
from cordwood.serve.statement_cache import StatementCache
from cordwood.serve.visibility import Redactions, visible_shapes
from cordwood.sql.sub_query_schema import SubQuery


class SandboxSchema:
    """Describes sub-queries and translates LQL. Compiles on the calling thread, so call it from a worker thread."""

    def __init__(self, engine: Engine, statements: StatementCache, redactions: Redactions) -> None:
        self._engine = engine
        self._statements = statements
        self._redactions = redactions

    def sub_queries(self, endpoint: Endpoint, caller: Caller) -> tuple[SubQuery, ...]:
        """Return the sub-queries, with the columns and paths of those events that the caller may see."""
        program = self._statements.program(endpoint)
        return list_sub_queries(program, self._engine.target, self._shapes(endpoint, caller))

    def sql_of(self, endpoint: Endpoint, caller: Caller, lql: str) -> str:
        """Return the SQL, in BigQuery's dialect, that a query in LQL compiles to."""
        program = self._statements.program(endpoint)
        visible = self._shapes(endpoint, caller)
        # A real run depends on the kinds of all events. The translation leaves them out: it has the same meaning, and
        # does not reveal whether other projects' events hold arrays.
        projects_only = {stream: msgspec.structs.replace(shape, whole=None) for stream, shape in visible.items()}
        return explain_lql_query(program, lql, self._engine.target, projects_only)

    def _shapes(self, endpoint: Endpoint, caller: Caller) -> Mapping[str, Shape]:
        shapes = visible_shapes(caller, self._engine)
        if not (endpoint.redact_pii or caller.redact_always):
            return shapes
        return self._redactions.by_mode(endpoint.redact_mode).visible_shapes(shapes)
