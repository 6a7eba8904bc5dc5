"""An endpoint over two streams, and fixtures that show resolved queries before an engine's rules lower them."""

from collections.abc import Callable, Mapping
from uuid import UUID

import msgspec
import pytest
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.model.definitions import Endpoint, Parameter
from cordwood.model.event import EventShape, ValueKind
from cordwood.sql.admit import admit_query
from cordwood.sql.compile import parse_and_check_endpoint
from cordwood.sql.nodes import EventValueElements, IsObjectTest, Operation, PathRead, operation_if_of_class
from cordwood.sql.parse import parse_sql
from cordwood.sql.program import EndpointProgram
from cordwood.sql.resolve.queries import resolve_sandbox_query, resolve_saved_query
from cordwood.sql.stages import LoweredQuery, ResolvedQuery, StreamTable
from cordwood.sql.tree_printer import PrintedTree

OBJECT, ARRAY, TEXT, NUMBER = ValueKind.OBJECT, ValueKind.ARRAY, ValueKind.TEXT, ValueKind.NUMBER


class PlainTarget:
    """A target that prints resolved trees with sqlglot's own syntax."""

    name = "plain"

    def stream_table(self, stream: str) -> StreamTable:
        columns = {
            "id": Kind.STRING,
            "timestamp": Kind.TIMESTAMP,
            "event_message": Kind.STRING,
            "project": Kind.STRING,
            "metadata": Kind.VARIANT,
        }
        return StreamTable(stream, columns, "extras")

    def lower(self, resolved: ResolvedQuery) -> LoweredQuery:
        return LoweredQuery(resolved.tree, resolved)

    def print_lowered_tree(self, tree: object) -> PrintedTree:
        return PrintedTree((tree.sql("duckdb", identify=False),))  # type: ignore[attr-defined]


def make_shape(paths: Mapping[str, ValueKind | set[ValueKind]]) -> EventShape:
    """Return a shape with these paths, written with dots, and their kinds."""
    return EventShape(
        {
            tuple(path.split(".")): frozenset(kinds if isinstance(kinds, set) else {kinds})
            for path, kinds in paths.items()
        },
        1,
    )


EDGE_SHAPE = make_shape({
    "id": TEXT, "event_message": TEXT, "project": TEXT, "tenant": TEXT,
    "metadata": OBJECT, "metadata.status": NUMBER,
    "metadata.request": OBJECT, "metadata.request.path": TEXT, "metadata.request.method": TEXT,
    "metadata.request.headers": OBJECT, "metadata.request.headers.user-agent": TEXT,
    "metadata.request.headers.Host": TEXT,
    "metadata.response": OBJECT, "metadata.response.status_code": NUMBER, "metadata.response.method": TEXT,
    "metadata.tags": ARRAY, "metadata.tags.[]": TEXT,
    "metadata.steps": ARRAY, "metadata.steps.[]": OBJECT, "metadata.steps.[].name": TEXT,
    "metadata.parsed": {OBJECT, ARRAY}, "metadata.parsed.code": TEXT, "metadata.parsed.[]": OBJECT,
    "metadata.parsed.[].detail": TEXT,
})  # fmt: skip
AUTH_SHAPE = make_shape({"id": TEXT, "metadata": OBJECT, "metadata.level": TEXT, "metadata.id": TEXT})
SHAPES = {"edge.stream": EDGE_SHAPE, "auth": AUTH_SHAPE}

ENDPOINT_SQL = """
with
  edge_logs as (select id, timestamp, event_message, metadata from `edge.stream` where project = @project),
  auth_logs as (select id, timestamp, event_message, metadata from `auth` where project = @project),
  silent_logs as (select id, timestamp, event_message, metadata from `silent`)
select id from edge_logs limit 100
"""


def make_endpoint(sql: str = ENDPOINT_SQL, *parameters: Parameter) -> Endpoint:
    declared = parameters or (Parameter("project", required=True), Parameter("since", Kind.TIMESTAMP))
    return Endpoint(
        name="test",
        id=UUID(int=1),
        sql=sql,
        revision="1",
        file="test.sql",
        max_rows=1000,
        accepts_sandbox_queries=True,
        parameters=declared,
    )


@pytest.fixture(scope="session")
def program() -> EndpointProgram:
    return parse_and_check_endpoint(make_endpoint())


@pytest.fixture
def target() -> PlainTarget:
    return PlainTarget()


def operations_as_functions(tree: exp.Expr) -> exp.Expr:
    """Return a copy of the tree in which operations are readable function calls."""
    tree = tree.copy()
    for node in list(tree.find_all(exp.Anonymous)):
        match operation_if_of_class(node, Operation):
            case PathRead(steps):
                node.set("this", "PATH")
                node.set("expressions", [*node.expressions, *map(exp.Literal.string, steps)])
            case EventValueElements(only_arrays):
                node.set("this", "ARRAY_ELEMENTS" if only_arrays else "ELEMENTS")
            case IsObjectTest():
                node.set("this", "IS_RECORD")
    return tree


@pytest.fixture
def resolve(program: EndpointProgram, target: PlainTarget) -> Callable[[str], ResolvedQuery]:
    return lambda text: resolve_sandbox_query(program, admit_query(parse_sql(text)), target, SHAPES)


@pytest.fixture
def resolve_body(resolve: Callable[[str], ResolvedQuery]) -> Callable[[str], str]:
    """Return a function that resolves a sandbox query, and prints it without quotes and without the endpoint's
    sub-queries.
    """

    def read(text: str) -> str:
        tree = resolve(text).tree.copy()
        own = (
            [cte for cte in tree.args["with_"].expressions if cte.alias not in SUB_QUERY_NAMES]
            if "with_" in tree.args
            else []
        )
        if "with_" in tree.args:
            tree.args["with_"].set("expressions", own)
            if not own:
                tree.set("with_", None)
        return str(operations_as_functions(tree).sql("duckdb")).replace('"', "")

    return read


SUB_QUERY_NAMES = {"edge_logs", "auth_logs", "silent_logs"}


@pytest.fixture
def resolve_owner(target: PlainTarget) -> Callable[[str], str]:
    """Return a function that resolves a saved query and prints it without quotes."""

    def read(sql: str) -> str:
        resolved = resolve_saved_query(
            parse_and_check_endpoint(msgspec.structs.replace(make_endpoint(), sql=sql)), target, SHAPES
        )
        return str(operations_as_functions(resolved.tree).sql("duckdb")).replace('"', "")

    return read
