"""Ad hoc SQL of an operator over whole streams, wrapped as an endpoint for one call with the parameters it names."""

from collections.abc import Collection
from hashlib import sha256
from typing import Final
from uuid import UUID

from sqlglot import exp

from cordwood.model.endpoint import Endpoint, Parameter
from cordwood.sql.budget import compiling
from cordwood.sql.dialects.explain import explaining
from cordwood.sql.parse import parse
from cordwood.sql.program import parse_endpoint, with_positions
from cordwood.sql.resolve.entry import check_endpoint

MAX_ROWS: Final = 1000

_ID: Final = UUID("5d1a4e0f-6c6d-5b0c-8f5e-0c5d3f1b7a04")


def ad_hoc_endpoint(text: str, streams: Collection[str]) -> Endpoint:
    """Return the endpoint of an ad hoc query.

    Raise QueryFault with its position for a text that cannot be parsed, or resolved over these streams.
    """
    with explaining(text), compiling():
        endpoint = Endpoint(
            name="query",
            id=_ID,
            sql=text,
            revision=f"query/{sha256(text.encode()).hexdigest()}",
            max_rows=MAX_ROWS,
            parameters=tuple(Parameter(name) for name in parameter_names(text)),
        )
        check_endpoint(with_positions(parse_endpoint(endpoint)), streams)
    return endpoint


def parameter_names(text: str) -> tuple[str, ...]:
    """Return the names of the query's @parameters, each once and as first spelled."""
    names: dict[str, str] = {}
    for node in parse(text).tree.find_all(exp.Parameter, bfs=False):
        names.setdefault(node.name.lower(), node.name)
    return tuple(names.values())
