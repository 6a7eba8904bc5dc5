"""A program: an endpoint's parsed and admitted SQL, with its sub-queries by name, final query and parameters."""

from collections.abc import Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import BadEndpointFile, Fault, QueryRefused, Span
from cordwood.model.definitions import Endpoint, Parameter
from cordwood.sql.admit import admit_query
from cordwood.sql.budget import copy_tree
from cordwood.sql.nodes import NOW_SLOT_NAME, WHOLE_EXTRAS_METADATA_KEY
from cordwood.sql.paging import FIRST_PAGE, Page
from cordwood.sql.parse import parse_sql

# The keys of node metadata that are kept when positions are removed from the trees.
_METADATA_KEYS_KEPT_WITHOUT_POSITIONS: Final = ("bigquery_name", "quoted_table", WHOLE_EXTRAS_METADATA_KEY)


class SubQueryStreamSource(msgspec.Struct, frozen=True):
    """The stream that a sub-query reads.

    `has_top_level_project` is set if the events of the stream have the key `project` at the top level.
    """

    sub_query: str
    stream: str
    has_top_level_project: bool = True


class EndpointProgram(msgspec.Struct, frozen=True):
    """An endpoint's parsed query. Its trees are immutable; each compilation copies them.

    For an endpoint in another dialect, `dialect_text` is the query in that dialect. Such an endpoint has one table;
    `sub_query_sources` has the streams whose events this table contains, by the names that callers see.
    `included_programs` has the programs of the endpoints that the query reads, by name. `page` is the part of the
    answer for which a statement is compiled.
    """

    endpoint: Endpoint
    tree: exp.Expr
    sub_queries: Mapping[str, exp.Expr]
    final_query: exp.Expr
    is_recursive: bool
    parameters: Mapping[str, Parameter]
    dialect_text: str | None = None
    sub_query_sources: Mapping[str, SubQueryStreamSource] = msgspec.field(default_factory=dict)
    included_programs: "Mapping[str, EndpointProgram]" = msgspec.field(default_factory=dict)
    page: Page = FIRST_PAGE

    @property
    def sub_query_names(self) -> tuple[str, ...]:
        return tuple(cte.alias for cte in self.sub_queries.values())


def parse_endpoint(endpoint: Endpoint) -> EndpointProgram:
    """Parse and check an endpoint's SQL; for invalid SQL, raise QueryFault with the position in `endpoint.sql`."""
    for parameter in endpoint.parameters:
        if parameter.name.lower() == NOW_SLOT_NAME:
            raise QueryRefused(f'A parameter cannot be named "{NOW_SLOT_NAME}".', span=Span(1, 1))
    included = {
        included_endpoint.name: parse_endpoint(included_endpoint) for included_endpoint in endpoint.included_endpoints
    }
    return msgspec.structs.replace(
        program_of_tree(endpoint, admit_query(parse_sql(endpoint.sql)).tree), included_programs=included
    )


def program_of_tree(endpoint: Endpoint, tree: exp.Expr) -> EndpointProgram:
    """Return the program of an endpoint whose query is the syntax tree `tree`, which has been checked already."""
    return _build_program(endpoint, tree)


def program_with_positions(program: EndpointProgram) -> EndpointProgram:
    """Return the same program with positions in its trees. It is slower to compile, but needed to report errors."""
    positioned = _build_program(program.endpoint, program.tree, has_positions=True)
    return msgspec.structs.replace(
        positioned,
        dialect_text=program.dialect_text,
        sub_query_sources=program.sub_query_sources,
        included_programs=program.included_programs,
        page=program.page,
    )


def _remove_positions(tree: exp.Expr) -> None:
    """Remove positions from a tree in place.

    Positions double the time of copying a tree. Besides, an error in a sandbox query must not point into saved SQL.
    """
    for node in tree.walk():
        metadata = {
            key: node.meta_get(key) for key in _METADATA_KEYS_KEPT_WITHOUT_POSITIONS if node.meta_get(key) is not None
        }
        node._meta = metadata or None  # noqa: SLF001 - to ask for `meta` would make one


def _build_program(endpoint: Endpoint, tree: exp.Expr, *, has_positions: bool = False) -> EndpointProgram:
    final = copy_tree(tree)
    if not has_positions:
        _remove_positions(final)
    with_ = final.args.get("with_")
    final.set("with_", None)
    ctes = with_.expressions if with_ is not None else []
    return EndpointProgram(
        endpoint=endpoint,
        tree=tree,
        sub_queries={cte.alias.lower(): cte for cte in ctes},
        final_query=final,
        is_recursive=bool(with_ is not None and with_.args.get("recursive")),
        parameters={parameter.name: parameter for parameter in endpoint.parameters},
    )


def as_file_error(fault: Fault, endpoint: Endpoint) -> BadEndpointFile:
    """Return the error as a BadEndpointFile, with its position in the endpoint's file instead of the query."""
    span = fault.span or Span(1, 1)
    file_span = Span(span.line + endpoint.query_first_line - 1, span.column, endpoint.file or None)
    return BadEndpointFile(fault.message, hint=fault.hint, span=file_span)
