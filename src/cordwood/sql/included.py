"""Endpoints that read other endpoints: find the names in their queries, check them, and join their parameters."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import NOT_COMPILED, Fault, QueryRefused, Span
from cordwood.model.endpoint import Dialect, Endpoint
from cordwood.model.parameter import Parameter
from cordwood.sql.budget import compiling
from cordwood.sql.parse import parse
from cordwood.sql.positions import span_of
from cordwood.sql.program import as_file_error
from cordwood.sql.resolve.tables import written_name

# Endpoints within each other. Each is computed anew by every endpoint that reads it.
MOST_LEVELS: Final = 5


def with_included(endpoints: Sequence[Endpoint], streams: Collection[str], faults: list[Fault]) -> Iterator[Endpoint]:
    """Yield the endpoints, each with those that its query reads by name; append the faults of those that cannot.

    The name of a stream means the stream, even if an endpoint has it as well.
    """
    linker = _Linker({one.name: one for one in endpoints if one.name not in streams})
    for endpoint in endpoints:
        try:
            yield linker.linked(endpoint)
        except Fault as fault:
            faults.append(fault)


def may_name(endpoint: Endpoint, name: str) -> bool:
    """Return False only if the query cannot name a table: its parts may be quoted separately and contain escapes."""
    text = endpoint.sql.casefold()
    return "\\" in text or all(part in text for part in name.casefold().split("."))


class _Linker:
    """Links each endpoint once, those that it reads first."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = endpoints
        self._linked: dict[str, Endpoint] = {}
        self._path: list[str] = []

    def linked(self, endpoint: Endpoint) -> Endpoint:
        if endpoint.name not in self._linked:
            self._path.append(endpoint.name)
            try:
                self._linked[endpoint.name] = self._link(endpoint)
            finally:
                self._path.pop()
        return self._linked[endpoint.name]

    def _link(self, endpoint: Endpoint) -> Endpoint:
        included: list[Endpoint] = []
        for name, span in self._names_read(endpoint).items():
            try:
                self._check_path(name)
                other = self.linked(self._endpoints[name])
                _check_joined([endpoint, *included], other)
            except QueryRefused as fault:
                raise as_file_error(type(fault)(fault.message, hint=fault.hint, span=span), endpoint) from fault
            included.append(other)
        if not included:
            return endpoint
        revisions = [one.revision for one in included]
        return msgspec.structs.replace(
            endpoint,
            included=tuple(included),
            parameters=tuple(_joined(endpoint, included)),
            revision=sha256(repr((endpoint.revision, revisions)).encode()).hexdigest(),
        )

    def _check_path(self, name: str) -> None:
        if name in self._path:
            cycle = " → ".join((*self._path[self._path.index(name) :], name))
            raise QueryRefused(f"The endpoints read each other: {cycle}.", hint="Read streams in one of them.")
        if len(self._path) > MOST_LEVELS:
            told = f"Endpoints that read each other are nested more than {MOST_LEVELS} deep: {' → '.join(self._path)}."
            raise QueryRefused(told, hint="Read the streams instead.")

    def _names_read(self, endpoint: Endpoint) -> dict[str, Span | None]:
        """Return the names of endpoints in the query, each with its first position."""
        if endpoint.dialect is not Dialect.BIGQUERY:
            return {}
        if not any(may_name(endpoint, name) for name in self._endpoints):
            return {}
        tree = _parsed(endpoint)
        if tree is None:
            return {}
        ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        tables = [(written_name(table), table) for table in tree.find_all(exp.Table)]
        found: dict[str, Span | None] = {}
        for name, table in tables:
            if name in self._endpoints and name.lower() not in ctes:
                found.setdefault(name, span_of(table, endpoint.sql))
        return found


def _parsed(endpoint: Endpoint) -> exp.Expr | None:
    """Parse the query; None for a query with an error, which the check of the endpoint reports."""
    try:
        with compiling():
            return parse(endpoint.sql).tree
    except NOT_COMPILED:
        return None


def _check_joined(joined: Sequence[Endpoint], other: Endpoint) -> None:
    """Check an endpoint against the one that reads it, which is the first of `joined`, and others that it reads."""
    endpoint = joined[0]
    if other.dialect is not endpoint.dialect:
        raise QueryRefused(
            f"The endpoint {other.name} is in {other.dialect} SQL and cannot be read here.",
            hint="Read an endpoint of the same dialect.",
        )
    if other.redact_pii and not endpoint.redact_pii:
        raise QueryRefused(
            f"The endpoint {other.name} redacts personal data, and this one does not.",
            hint="Set redact_pii = true here, too.",
        )
    known = {parameter.name.lower(): (one.name, parameter) for one in joined for parameter in one.parameters}
    for parameter in other.parameters:
        owner, same = known.get(parameter.name.lower(), ("", parameter))
        if (same.name, same.type, same.kind) != (parameter.name, parameter.type, parameter.kind):
            raise QueryRefused(
                f"The parameter {same.name} of {owner} and the parameter {parameter.name} of {other.name}"
                " have one value, and differ in type or spelling.",
                hint="Give one of them another name, or both the same name and type.",
            )


def _joined(endpoint: Endpoint, included: Sequence[Endpoint]) -> Iterator[Parameter]:
    """Yield the endpoint's parameters and those of the endpoints that it reads; its own defaults take precedence."""
    names: set[str] = set()
    for parameter in (*endpoint.parameters, *(one for other in included for one in other.parameters)):
        if parameter.name not in names:
            names.add(parameter.name)
            yield parameter
