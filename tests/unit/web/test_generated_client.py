"""The client that is generated from the API's description.

Hostile texts do not become code, and equal descriptions give equal files.
"""

import ast
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest

from cordwood.model.datatype import Kind
from cordwood.model.definitions import Endpoint, Parameter
from cordwood.web.describe import client as generator
from cordwood.web.describe.client import generate_client
from cordwood.web.describe.openapi import EndpointWithColumns, openapi_document

HOSTILE_TEXTS = (
    'x"""\nimport os; os.abort()\n"""',
    "x'''; raise SystemExit #",
    'x\\"""',
    "x\\",
    "x\\N{BELL}{0}{__class__}%s",
    "x\r\n    def stolen(self): ...",
    "x\u2028import os\u2029\x0cimport os\x85",
    "x\u202e\u2066\x00\x1b[2J",
    "class",
    "__init__",
    "ſelf",
    "😀" * 40,
    "{name}/{value}",
    "    # The operations of the service.\n",
    "from typing import Any, NamedTuple\n",
)


def client_text(*endpoints: Endpoint) -> str:
    return generate_client(openapi_document([EndpointWithColumns(item, []) for item in endpoints], []))[1].decode()


def endpoint(name: str, *parameters: Parameter, description: str = "", auth: bool = True) -> Endpoint:
    id_ = uuid5(NAMESPACE_DNS, ascii(name))
    return Endpoint(name, id_, "select 1", "1", description=description, requires_key=auth, parameters=parameters)


def statement_outline(text: str) -> list[str]:
    """Return the types of the statements in the module and in its class, without texts and names."""
    tree = ast.parse(text)
    class_ = methods_of(tree)
    return [type(node).__name__ for node in (*tree.body, *class_.body)]


def methods_of(tree: ast.Module) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Client")


def imported_modules(text: str) -> list[str]:
    return [ast.unparse(node) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]


def method_definition(text: str, name: str) -> ast.FunctionDef:
    return next(
        node for node in methods_of(ast.parse(text)).body if isinstance(node, ast.FunctionDef) and node.name == name
    )


def string_constants(function: ast.FunctionDef) -> set[Any]:
    return {node.value for node in ast.walk(function) if isinstance(node, ast.Constant)}


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=ascii)
def test_no_text_of_an_operator_becomes_code(text: str) -> None:
    choice = Parameter("q", one_of=("a", "b"))
    plain = client_text(endpoint("plain", Parameter("p", one_of=("a", "b")), choice, description="d"))
    parameter = Parameter("p", one_of=(text, "b"), description=text, example=text)
    hostile = client_text(endpoint(text, parameter, choice, description=text))
    assert statement_outline(hostile) == statement_outline(plain)
    assert imported_modules(hostile) == imported_modules(plain)
    assert not [character for character in hostile if not character.isprintable() and character != "\n"]


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=ascii)
def test_a_hostile_parameter_is_sent_by_its_own_name(text: str) -> None:
    client_source = client_text(
        endpoint("e", Parameter(text), Parameter("self"), Parameter("from"), Parameter("from_"))
    )
    function = method_definition(client_source, "query_e")
    names = [argument.arg for argument in function.args.kwonlyargs]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() and name.isascii() for name in names)
    assert {text, "self", "from", "from_"} <= string_constants(function)


def test_names_that_become_equal_get_a_number() -> None:
    text = client_text(endpoint("a.b"), endpoint("a-b"), endpoint("a_c"))
    names = [node.name for node in methods_of(ast.parse(text)).body if isinstance(node, ast.FunctionDef)]
    assert len(names) == len(set(names))
    assert len([name for name in names if name.startswith("query_a_b_")]) == 2
    assert "query_a_c" in names


def test_the_types_are_those_of_the_parameters() -> None:
    text = client_text(
        endpoint(
            "e",
            Parameter("n", Kind.INT64, required=True),
            Parameter("f", Kind.FLOAT64),
            Parameter("b", Kind.BOOL),
            Parameter("c", one_of=("x", "y"), required=True),
        )
    )
    arguments = {
        argument.arg: ast.unparse(argument.annotation or ast.Constant(0))
        for argument in method_definition(text, "query_e").args.kwonlyargs
    }
    assert arguments["n"] == "int"
    assert arguments["f"] == "float | None"
    assert arguments["b"] == "bool | None"
    assert arguments["c"] == "Literal['x', 'y']"


def test_a_public_endpoint_is_called_by_its_id_without_the_key() -> None:
    public = endpoint("open", auth=False)
    function = method_definition(client_text(public), "query_open")
    assert f"/api/endpoints/query/{public.id}" in string_constants(function)
    assert "keyed=False" in ast.unparse(function)


def test_the_same_description_gives_the_same_file() -> None:
    first = generate_client(openapi_document([EndpointWithColumns(endpoint("a"), [])], []))
    other = generate_client(openapi_document([EndpointWithColumns(endpoint("b"), [])], []))
    assert generate_client(openapi_document([EndpointWithColumns(endpoint("a"), [])], [])) == first
    assert other[0] != first[0]


def test_a_file_of_many_endpoints_is_cached_too() -> None:
    parameters = tuple(Parameter(f"p{number}", description="words " * 20) for number in range(5))
    endpoints = [EndpointWithColumns(endpoint(f"many.{number}", *parameters), []) for number in range(400)]
    tag, text = generate_client(openapi_document(endpoints, []))
    assert len(text) > 1_500_000
    assert generator._client_cache.peek(bytes.fromhex(tag)) is not None
    assert generate_client(openapi_document(endpoints, [])) == (tag, text)
