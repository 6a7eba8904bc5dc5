"""A tool for each endpoint: its parameters as arguments, its description, its rows."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, Final

from cordwood.agents.api import KeyedApi, OfferedEndpoint
from cordwood.agents.asking import ask_endpoint
from cordwood.agents.refusals import RefusedCallError
from cordwood.agents.rows import DEFAULT_ROWS, MOST_ROWS, Bounds
from cordwood.agents.tool import Arguments, Tool, require_known

# Clients take no other characters in a name, and no longer ones.
_LONGEST_NAME: Final = 64
_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_ROWS: Final = "max_rows"


def endpoint_tools(endpoints: Sequence[OfferedEndpoint], taken: Collection[str]) -> list[Tool]:
    """Return the tools of endpoints; none has one of the names in `taken`."""
    slugs = Counter(_slug(endpoint) for endpoint in endpoints)
    return [
        _tool(
            endpoint,
            _slug(endpoint) if slugs[_slug(endpoint)] == 1 and _slug(endpoint) not in taken else _unique(endpoint),
        )
        for endpoint in endpoints
    ]


def _slug(endpoint: OfferedEndpoint) -> str:
    return _OTHER.sub("_", endpoint.name).strip("_")[:_LONGEST_NAME] or "endpoint"


def _unique(endpoint: OfferedEndpoint) -> str:
    """Return a name with a part of the UUID, for names that differ in punctuation alone."""
    return f"{_slug(endpoint)[: _LONGEST_NAME - 9]}_{endpoint.token[:8]}"


def _tool(endpoint: OfferedEndpoint, name: str) -> Tool:
    return Tool(name, endpoint.name, _description(endpoint), _schema(endpoint), partial(_run, endpoint))


def _description(endpoint: OfferedEndpoint) -> str:
    own = f"Runs the saved query {endpoint.name} and returns its rows as JSON."
    sandbox = (
        f"Its tables can also be queried with the tool query, endpoint={endpoint.name}." if endpoint.sandboxable else ""
    )
    return " ".join(sentence for sentence in (endpoint.description, own, sandbox) if sentence)


def _schema(endpoint: OfferedEndpoint) -> dict[str, Any]:
    schema = {**endpoint.parameters, "additionalProperties": False}
    if _MAX_ROWS not in endpoint.parameters["properties"]:
        most = min(MOST_ROWS, endpoint.max_limit)
        schema["properties"] = {
            **endpoint.parameters["properties"],
            _MAX_ROWS: {
                "type": "integer",
                "minimum": 1,
                "maximum": most,
                "default": min(DEFAULT_ROWS, most),
                "description": "How many rows to return at most.",
            },
        }
    return schema


async def _run(endpoint: OfferedEndpoint, api: KeyedApi, arguments: Arguments) -> object:
    schema = _schema(endpoint)
    require_known(arguments, list(schema["properties"]))
    own = endpoint.parameters["properties"]
    most_rows = arguments.get(_MAX_ROWS) if _MAX_ROWS not in own else None
    given = {name: value for name, value in arguments.items() if name in own}
    return await ask_endpoint(api, endpoint, given, Bounds(rows_asked(most_rows, endpoint.max_limit)))


def rows_asked(most_rows: object, limit: int) -> int:
    """Return the number of rows to take; raise RefusedCallError if it is not one from 1 to the limit."""
    most = min(MOST_ROWS, limit)
    if most_rows is None:
        return min(DEFAULT_ROWS, most)
    if isinstance(most_rows, bool) or not isinstance(most_rows, int) or most_rows < 1:
        raise RefusedCallError(f"max_rows must be a whole number from 1 to {most}.")
    return min(most_rows, most)
