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


class Offers:
    """Compiling takes a moment: call from a thread."""

    def __init__(self, engine: Engine, prepared: Prepared, redactions: Redactions) -> None:
        self._engine = engine
        self._prepared = prepared
        self._redactions = redactions

    def sub_queries(self, endpoint: Endpoint, caller: Caller) -> tuple[SubQuery, ...]:
        """What events hold is learnt from everybody's: a key that sees only some of them is told the columns alone."""
        program = self._prepared.program(endpoint)
        told = offered(program, self._engine.target, self._shapes(endpoint, caller))
        return tuple(_without_fields(one) for one in told) if caller.pins else told

    def sql_of(self, endpoint: Endpoint, caller: Caller, lql: str) -> str:
        """The SQL that a query in LQL means, in BigQuery's dialect."""
        program = self._prepared.program(endpoint)
        return explain_lql(program, lql, self._engine.target, self._shapes(endpoint, caller))

    def _shapes(self, endpoint: Endpoint, caller: Caller) -> Mapping[str, Shape]:
        shapes = self._engine.shapes()
        if not (endpoint.redact_pii or caller.redact_always):
            return shapes
        return self._redactions.by_mode(endpoint.redact_mode).shown(shapes)


def _without_fields(one: SubQuery) -> SubQuery:
    return msgspec.structs.replace(
        one, columns=tuple(msgspec.structs.replace(column, fields={}) for column in one.columns)
    )
