"""What a request reads: the sub-queries of an endpoint, or with a private key every stream."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec

from cordwood.access import may_manage, pinned, require_query
from cordwood.errors import BadParameter
from cordwood.logql.label_names import STREAM_PREFIX
from cordwood.logql.syntax import Comparison, Pipeline
from cordwood.model.endpoint import Dialect, Endpoint
from cordwood.model.key import Caller
from cordwood.model.stream import Stream
from cordwood.web.asgi import Request
from cordwood.web.catalog_lookup import existing_endpoint
from cordwood.web.credentials import KeyPlaces, account_of, key_of_basic, presented
from cordwood.web.lifecycle import Services

PLACES: Final = KeyPlaces(schemes={b"basic": key_of_basic})
# The endpoint of addresses that name none.
DEFAULT_ENDPOINT: Final = "logs.all"
MAX_ROWS: Final = 1000

_STREAMS_ID: Final = UUID("0f7d8f0a-6c53-5c0e-9d53-5a3f1d7e6a10")


class Reader(msgspec.Struct, frozen=True):
    """The caller, the endpoint that it reads, and its account."""

    caller: Caller
    endpoint: Endpoint
    account: str

    def parameters(self, texts: Mapping[str, str], queries: Iterable[Pipeline]) -> dict[str, str]:
        """Return the parameters of the endpoint: those of the key, else those that were sent.

        A parameter may be sent as such, or as a label that a selector compares with =.
        """
        if self.endpoint.id == _STREAMS_ID and "project" in texts:
            raise BadParameter("Streams have no parameter project.", hint='Write {project="…"} in the selector.')
        parameters = pinned(self.caller, self._given(texts, queries), self.endpoint)
        for parameter in self.endpoint.parameters:
            if parameter.required and parameter.default is None and parameter.name not in parameters:
                raise BadParameter(
                    f"{self.endpoint.name} needs the parameter {parameter.name}.",
                    hint=f'Use a key that is pinned to one, or write {{{parameter.name}="…"}} in the selector.',
                )
        return parameters

    def _given(self, texts: Mapping[str, str], queries: Iterable[Pipeline]) -> dict[str, str]:
        declared = {parameter.name for parameter in self.endpoint.parameters}
        given = {name: texts[name] for name in declared if name in texts}
        for matcher in (matcher for query in queries for matcher in query.matchers):
            is_given = matcher.operator is Comparison.EQUAL and matcher.label in declared
            if is_given and given.setdefault(matcher.label, matcher.text) != matcher.text:
                raise BadParameter(f"{matcher.label} was sent with two values.", hint="Send one of them.")
        return given


def read_caller(request: Request, services: Services, query: Mapping[str, str], address: str) -> Reader:
    """Return who reads what, counted against the rate of the key; `address` is the endpoint's, or empty."""
    key = presented(request, query, PLACES)
    found = services.catalog.endpoint(address or DEFAULT_ENDPOINT)
    caller = services.access.visitor(key, found, address)
    request.facts["key"] = caller.key_id
    if not address and may_manage(caller) and not caller.pins:
        endpoint = endpoint_of_streams(services.catalog.streams())
    else:
        require_query(caller, found)
        endpoint = found or existing_endpoint(services, address or DEFAULT_ENDPOINT)
    request.facts["endpoint"] = endpoint.name
    if not endpoint.sandbox:
        raise BadParameter(
            f"{endpoint.name} has no sandbox, and LogQL is a query of your own.",
            hint="Ask the owner to enable the sandbox.",
        )
    if endpoint.dialect is not Dialect.BIGQUERY:
        raise BadParameter(f"{endpoint.name} is asked in ClickHouse SQL, and not in LogQL.", hint="Ask logs.all.")
    account = account_of(request, caller)
    services.answers.admit(caller, account)
    return Reader(caller, endpoint, account)


def endpoint_of_streams(streams: Iterable[Stream]) -> Endpoint:
    """Return an endpoint with a sub-query of each stream, for one call."""
    sub_queries = ",\n".join(_sub_query(stream.name) for stream in streams if "`" not in stream.name)
    sql = f"with {sub_queries}\nselect 1 as one"
    return Endpoint(
        name="streams",
        id=_STREAMS_ID,
        sql=sql,
        revision=f"streams/{sha256(sql.encode()).hexdigest()}",
        max_rows=MAX_ROWS,
        sandbox=True,
    )


def _sub_query(name: str) -> str:
    columns = "t.id, t.timestamp, t.event_message, t.metadata, t.project"
    return f"`{STREAM_PREFIX}{name}` as (select {columns} from `{name}` as t)"  # noqa: S608 - a name of the catalog
