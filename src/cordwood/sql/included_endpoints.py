"""Endpoints that read other endpoints: find their names in queries, check compatibility, and merge parameters."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.bounded_cache import BoundedCache, estimate_memory_bytes
from cordwood.errors import COMPILE_FAULTS, Fault, QueryRefused, Span
from cordwood.model.definitions import Dialect, Endpoint, Parameter
from cordwood.sql.budget import compilation_scope
from cordwood.sql.diagnostics import span_of
from cordwood.sql.parse import parse_sql
from cordwood.sql.program import as_file_error
from cordwood.sql.resolve.tables import written_table_name

# Maximum nesting of endpoints that read other endpoints. An endpoint is computed anew for each endpoint that reads it.
MAX_INCLUSION_DEPTH: Final = 5


def link_included_endpoints(
    endpoints: Sequence[Endpoint], streams: Collection[str], faults: list[Fault]
) -> Iterator[Endpoint]:
    """Yield each endpoint with the endpoints that its query reads by name; append errors to `faults`.

    If a stream and an endpoint have the same name, the name refers to the stream.
    """
    linker = _EndpointLinker({candidate.name: candidate for candidate in endpoints if candidate.name not in streams})
    for endpoint in endpoints:
        try:
            yield linker.link(endpoint)
        except Fault as fault:
            faults.append(fault)


def may_read_any_table(endpoint: Endpoint, *names: str) -> bool:
    """Return whether the query may read a table with one of the names; False only if it certainly reads none.

    The parts of a name may be quoted separately, so each part is searched for by itself. Quoted names may contain
    escapes, so a query with a backslash may contain any name.
    """
    return any(True for _ in _possibly_read_names_in(endpoint.sql, names))


def possibly_read_table_names(endpoint: Endpoint, names: Collection[str]) -> set[str]:
    """Return those of the given table names to which the query, or an endpoint that it reads, may refer."""
    found = set(_possibly_read_names_in(endpoint.sql, names))
    return found.union(*(possibly_read_table_names(included, names) for included in endpoint.included_endpoints))


def _possibly_read_names_in(sql: str, names: Iterable[str]) -> Iterator[str]:
    text = sql.casefold()
    has_escapes = "\\" in text
    return (name for name in names if has_escapes or all(part in text for part in name.casefold().split(".")))


class _EndpointLinker:
    """Linker of endpoints to the endpoints that they read. Each endpoint is linked once, after those it reads."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints_by_name = endpoints
        self._linked_endpoint_by_name: dict[str, Endpoint] = {}
        self._names_being_linked: list[str] = []

    def link(self, endpoint: Endpoint) -> Endpoint:
        if endpoint.name not in self._linked_endpoint_by_name:
            self._names_being_linked.append(endpoint.name)
            try:
                self._linked_endpoint_by_name[endpoint.name] = self._link_included_endpoints(endpoint)
            finally:
                self._names_being_linked.pop()
        return self._linked_endpoint_by_name[endpoint.name]

    def _link_included_endpoints(self, endpoint: Endpoint) -> Endpoint:
        included: list[Endpoint] = []
        for name, span in self._find_included_names(endpoint).items():
            try:
                self._check_inclusion_depth(name)
                included_endpoint = self.link(self._endpoints_by_name[name])
                _check_inclusion_compatibility([endpoint, *included], included_endpoint)
            except QueryRefused as fault:
                raise as_file_error(type(fault)(fault.message, hint=fault.hint, span=span), endpoint) from fault
            included.append(included_endpoint)
        if not included:
            return endpoint
        revisions = [linked_endpoint.revision for linked_endpoint in included]
        return msgspec.structs.replace(
            endpoint,
            included_endpoints=tuple(included),
            parameters=tuple(_merge_parameters(endpoint, included)),
            revision=sha256(repr((endpoint.revision, revisions)).encode()).hexdigest(),
        )

    def _check_inclusion_depth(self, name: str) -> None:
        if name in self._names_being_linked:
            cycle = " → ".join((*self._names_being_linked[self._names_being_linked.index(name) :], name))
            raise QueryRefused(f"The endpoints read each other: {cycle}.", hint="Read streams in one of them.")
        if len(self._names_being_linked) > MAX_INCLUSION_DEPTH:
            message = f"Endpoints that read each other are nested more than {MAX_INCLUSION_DEPTH} deep: {' → '.join(self._names_being_linked)}."
            raise QueryRefused(message, hint="Read the streams instead.")

    def _find_included_names(self, endpoint: Endpoint) -> dict[str, Span | None]:
        """Return the names of the endpoints that the query reads, each with the position of its first use."""
        if endpoint.dialect is not Dialect.BIGQUERY:
            return {}
        if not may_read_any_table(endpoint, *self._endpoints_by_name):
            return {}
        return {name: span for name, span in _table_names(endpoint.sql).items() if name in self._endpoints_by_name}


# The table names in each query, cached because all endpoints are linked again when any endpoint or stream changes.
_TABLE_NAMES_CACHE: Final[BoundedCache[str, Mapping[str, Span | None]]] = BoundedCache(
    4 * 2**20, lambda sql, tables: estimate_memory_bytes((sql, tables))
)


def _table_names(sql: str) -> Mapping[str, Span | None]:
    """Return the names of the tables in a query, except CTEs, each with the position of its first use.

    If the query has an error, return no tables: the check of the endpoint reports the error.
    """
    tables = _TABLE_NAMES_CACHE.get(sql)
    if tables is None:
        tables = _parse_table_names(sql)
        _TABLE_NAMES_CACHE.put(sql, tables)
    return tables


def _parse_table_names(sql: str) -> Mapping[str, Span | None]:
    try:
        with compilation_scope():
            tree = parse_sql(sql).tree
    except COMPILE_FAULTS:
        return {}
    ctes = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    positions: dict[str, Span | None] = {}
    for table in tree.find_all(exp.Table):
        name = written_table_name(table)
        if name.lower() not in ctes:
            positions.setdefault(name, span_of(table, sql))
    return positions


def _check_inclusion_compatibility(endpoints: Sequence[Endpoint], included: Endpoint) -> None:
    """Raise QueryRefused if the first of `endpoints` cannot read `included`.

    The other `endpoints` are endpoints that the first one reads, too. If several of all these endpoints have a
    parameter of the same name, the parameter gets one value, so it must have the same type in each of them.
    """
    endpoint = endpoints[0]
    if included.dialect is not endpoint.dialect:
        raise QueryRefused(
            f"The endpoint {included.name} is in {included.dialect} SQL and cannot be read here.",
            hint="Read an endpoint of the same dialect.",
        )
    if included.redact_pii and not endpoint.redact_pii:
        raise QueryRefused(
            f"The endpoint {included.name} redacts personal data, and this one does not.",
            hint="Set redact_pii = true here, too.",
        )
    declared = {
        parameter.name.lower(): (owner_endpoint.name, parameter)
        for owner_endpoint in endpoints
        for parameter in owner_endpoint.parameters
    }
    for parameter in included.parameters:
        owner, earlier = declared.get(parameter.name.lower(), ("", parameter))
        if (earlier.name, earlier.type, earlier.kind) != (parameter.name, parameter.type, parameter.kind):
            raise QueryRefused(
                f"The parameter {earlier.name} of {owner} and the parameter {parameter.name} of {included.name}"
                " have one value, and differ in type or spelling.",
                hint="Give one of them another name, or both the same name and type.",
            )


def _merge_parameters(endpoint: Endpoint, included: Sequence[Endpoint]) -> Iterator[Parameter]:
    """Yield the parameters of an endpoint and of the endpoints that it reads; its own declarations take precedence."""
    names: set[str] = set()
    for parameter in (
        *endpoint.parameters,
        *(included_parameter for included_endpoint in included for included_parameter in included_endpoint.parameters),
    ):
        if parameter.name not in names:
            names.add(parameter.name)
            yield parameter
