"""What an endpoint offers to queries of callers' own, told to people who write one."""

from collections.abc import Mapping

import msgspec

from cordwood.engines.engine import Engine
from cordwood.lql.compile import explain_lql
from cordwood.lql.offered import SubQuery, offered
from cordwood.model.caller import Caller
from cordwood.model.endpoint import Endpoint
from cordwood.model.shape import Shape
from cordwood.serve.prepared import Prepared
from cordwood.serve.redact import Redactions
from cordwood.serve.visible import names_for


class Offers:
    """Compiling takes a moment: call from a thread."""

    def __init__(self, engine: Engine, prepared: Prepared, redactions: Redactions) -> None:
        self._engine = engine
        self._prepared = prepared
        self._redactions = redactions

    def sub_queries(self, endpoint: Endpoint, caller: Caller) -> tuple[SubQuery, ...]:
        """With what the events that the caller may know of have in their columns."""
        program = self._prepared.program(endpoint)
        return offered(program, self._engine.target, self._shapes(endpoint, caller))

    def sql_of(self, endpoint: Endpoint, caller: Caller, lql: str) -> str:
        """The SQL that a query in LQL means, in BigQuery's dialect."""
        program = self._prepared.program(endpoint)
        known = self._shapes(endpoint, caller)
        # How it is run goes by the kinds of all events; it means the same, and tells whether others have arrays.
        own = {stream: msgspec.structs.replace(shape, whole=None) for stream, shape in known.items()}
        return explain_lql(program, lql, self._engine.target, own)

    def _shapes(self, endpoint: Endpoint, caller: Caller) -> Mapping[str, Shape]:
        shapes = names_for(caller, self._engine)
        if not (endpoint.redact_pii or caller.redact_always):
            return shapes
        return self._redactions.by_mode(endpoint.redact_mode).shown(shapes)
