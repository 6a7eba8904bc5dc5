"""Validate endpoints by compiling them before any event exists: an error here would fail every call."""

from collections.abc import Sequence

from cordwood.errors import NOT_COMPILED, Span
from cordwood.ingest.quarantine import QUARANTINE
from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream
from cordwood.sql.compile import compile_sandbox, compile_saved, read_endpoint
from cordwood.sql.program import Program, in_file, with_places
from cordwood.sql.target import Target


def check(endpoint: Endpoint, streams: Sequence[Stream], target: Target) -> None:
    """Compile the endpoint; raise BadEndpointFile with the place of an error."""
    program = with_places(read_endpoint(endpoint, [stream.name for stream in (*streams, QUARANTINE)]))
    try:
        compile_saved(program, target, {})
        for name in program.names if endpoint.sandbox else ():
            _check_sub_query(program, name, target)
    except NOT_COMPILED as fault:
        raise in_file(fault, endpoint) from fault


def _check_sub_query(program: Program, name: str, target: Target) -> None:
    """Compile a query over a sub-query, because callers may use one that the endpoint's own query does not."""
    try:
        compile_sandbox(program, f"select * from `{name}`", target, {})  # noqa: S608 - its own name
    except NOT_COMPILED as fault:
        cte = program.sub_queries[name.lower()]
        place = Span(cte.meta.get("line", 1), cte.meta.get("col", 1))
        raise type(fault)(
            f"The sub-query {name}: {fault.message}", hint=fault.hint, span=fault.span or place
        ) from fault
