"""Check the limits for the size and complexity of functions and the size of files."""

import ast

from tests.architecture.tree import modules

MAX_FUNCTION_LENGTH = 60
MAX_CYCLOMATIC = 12
MAX_NESTING = 4
MAX_PARAMETERS = 7
MAX_FILE_LENGTH = 700

# Files that consist of one table of data, for which the limits do not apply.
TABLES_OF_DATA = {"sql/permitted_syntax.py"}

NESTING_STATEMENTS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match)
BRANCHING_NODES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.match_case,
)
FUNCTION_AND_CLASS_NODES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_every_function_is_within_the_size_limits() -> None:
    assert not [
        (module.name, fault) for module in modules() for function in module.functions for fault in size_faults(function)
    ]


def test_every_file_except_tables_of_data_is_within_the_line_limit() -> None:
    lengths = {module.name: len([line for line in module.text.splitlines() if line.strip()]) for module in modules()}
    assert {name for name, length in lengths.items() if length > MAX_FILE_LENGTH} <= TABLES_OF_DATA


def size_faults(function: Function) -> list[str]:
    measures = [
        ("lines", length(function), MAX_FUNCTION_LENGTH),
        ("forks", cyclomatic_complexity(function), MAX_CYCLOMATIC),
        ("levels", nesting(function), MAX_NESTING),
        ("parameters", parameters(function), MAX_PARAMETERS),
    ]
    return [
        f"{function.name}: {value} {measure}, at most {limit}" for measure, value, limit in measures if value > limit
    ]


def length(function: Function) -> int:
    first = function.body[0]
    has_docstring = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def cyclomatic_complexity(function: Function) -> int:
    count = 1
    for node in ast.walk(function):
        if isinstance(node, BRANCHING_NODES):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
    return count


def nesting(node: ast.AST, depth: int = 0) -> int:
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTION_AND_CLASS_NODES):
            continue
        deepest = max(
            deepest, nesting(child, depth + (isinstance(child, NESTING_STATEMENTS) and not is_elif(node, child)))
        )
    return deepest


def is_elif(parent: ast.AST, child: ast.AST) -> bool:
    return isinstance(parent, ast.If) and isinstance(child, ast.If) and parent.orelse == [child]


def parameters(function: Function) -> int:
    named = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len([argument for argument in named if argument.arg not in {"self", "cls"}])
