"""Limits for the size and complexity of functions and the size of files."""

import ast

from tests.architecture.tree import modules

MAX_FUNCTION_LENGTH = 60
MAX_CYCLOMATIC = 12
DEEPEST_NESTING = 4
MAX_PARAMETERS = 7
MAX_FILE_LENGTH = 700

# Files that consist of one table of data.
TABLES_OF_DATA = {"sql/permitted.py"}

BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
FORKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension, ast.match_case)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_every_function_is_within_the_limits() -> None:
    assert not [
        (module.name, fault) for module in modules() for function in module.functions for fault in size_faults(function)
    ]


def test_every_file_but_tables_is_within_the_limit() -> None:
    lengths = {module.name: len([line for line in module.text.splitlines() if line.strip()]) for module in modules()}
    assert {name for name, length in lengths.items() if length > MAX_FILE_LENGTH} <= TABLES_OF_DATA


def size_faults(function: Function) -> list[str]:
    measures = [
        ("lines", length(function), MAX_FUNCTION_LENGTH),
        ("forks", cyclomatic_complexity(function), MAX_CYCLOMATIC),
        ("levels", nesting(function), DEEPEST_NESTING),
        ("parameters", parameters(function), MAX_PARAMETERS),
    ]
    return [f"{function.name}: {seen} {measure}, at most {limit}" for measure, seen, limit in measures if seen > limit]


def length(function: Function) -> int:
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def cyclomatic_complexity(function: Function) -> int:
    count = 1
    for node in ast.walk(function):
        if isinstance(node, FORKS):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def nesting(node: ast.AST, depth: int = 0) -> int:
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, SCOPES):
            continue
        deepest = max(deepest, nesting(child, depth + (isinstance(child, BLOCKS) and not is_elif(node, child))))
    return deepest


def is_elif(parent: ast.AST, child: ast.AST) -> bool:
    return isinstance(parent, ast.If) and isinstance(child, ast.If) and parent.orelse == [child]


def parameters(function: Function) -> int:
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len([argument for argument in named if argument.arg not in {"self", "cls"}])
