"""Check that only printers emit SQL of engines, and that passes recognise nodes by class and operation, not by text."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.tree import Module, modules

# Names of functions and constants that read or return the template of a fragment.
TEMPLATE_READERS = {"fragment_template", "split_template", "FRAGMENT_NODE_NAME", "PLACEHOLDER_PATTERN"}
PRINTER_MODULES = {"sql/lowering.py", "sql/tree_printer.py"}
# Modules that may read PLACEHOLDER_PATTERN, because rules renumber the placeholders of new templates.
TEMPLATE_AUTHORS = {
    "engines/duckdb/rules/building_blocks.py": {"PLACEHOLDER_PATTERN"},
    "engines/clickhouse/rules/building_blocks.py": {"PLACEHOLDER_PATTERN"},
}
# Modules that print the segments of a statement, either to run the statement or to show it.
MODULES_THAT_PRINT_SEGMENTS = {
    "sql/plan.py",
    "sql/tree_printer.py",
    "engines/duckdb/query/query_runner.py",
    "engines/duckdb/query/partial_answers.py",
    "engines/clickhouse/clickhouse_engine.py",
}
# A rule or pass may print SQL in the author's dialect, for messages, but not in the engine's dialect.
AUTHORS_DIALECT = "bigquery"


def imported_and_read_names(module: Module) -> set[str]:
    """Return the names that a module imports from other modules, and the names of all attributes in its code."""
    imported = {
        alias.name for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    return imported | {node.attr for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)}


def printed_for_engines(tree: ast.AST) -> Iterator[int]:
    """Yield the numbers of the lines that print a tree in another dialect than the author's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sql":
            dialect = node.args[0] if node.args else None
            if not (isinstance(dialect, ast.Constant) and dialect.value == AUTHORS_DIALECT):
                yield node.lineno


def compiler_modules() -> list[Module]:
    return [module for module in modules() if re.match(r"(?:sql|lql|engines)/", module.name)]


def test_only_printer_modules_read_templates() -> None:
    readers_by_module = {
        module.name: TEMPLATE_READERS & imported_and_read_names(module)
        for module in compiler_modules()
        if module.name not in PRINTER_MODULES
    }
    assert {name: readers for name, readers in readers_by_module.items() if readers} == TEMPLATE_AUTHORS


def test_no_pass_prints_a_tree_in_the_engine_s_dialect() -> None:
    assert {
        module.name: lines for module in compiler_modules() if (lines := list(printed_for_engines(module.tree)))
    } == {}


def test_only_listed_modules_print_segments() -> None:
    assert {module.name for module in modules() if "print_segments" in module.text} == MODULES_THAT_PRINT_SEGMENTS


@pytest.mark.parametrize("text", ["node.sql()", "str(width.sql('duckdb'))", "tree.sql(dialect=name)"])
def test_each_way_to_print_a_tree_is_detected(text: str) -> None:
    assert list(printed_for_engines(ast.parse(text))) == [1]
