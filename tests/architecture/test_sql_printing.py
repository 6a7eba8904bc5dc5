"""The text of engines is written by printers alone: passes recognise nodes by their classes and operations."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.tree import Module, modules

# What reads the template of a fragment, or gives it out.
READERS = {"template_of", "template_pieces", "FRAGMENT", "HOLE"}
PRINTERS = {"sql/fragment.py", "sql/tree_printer.py", "sql/template_analysis.py"}
# Rules renumber the holes of templates that they are about to make.
WRITERS = {"engines/duckdb/rules/building_blocks.py": {"HOLE"}, "engines/clickhouse/rules/building_blocks.py": {"HOLE"}}
# Which modules print a statement's segments: what they return goes to an engine, or to whoever looks at it.
PRINTING = {
    "sql/plan.py",
    "sql/tree_printer.py",
    "engines/duckdb/query/answers.py",
    "engines/clickhouse/clickhouse_engine.py",
}
# A rule or pass may say what an author wrote, never what an engine is sent.
AUTHORS_DIALECT = "bigquery"


def names(module: Module) -> set[str]:
    """All names that a module imports or reads."""
    imported = {
        alias.name for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    return imported | {node.attr for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)}


def printed_for_engines(tree: ast.AST) -> Iterator[int]:
    """Lines on which a tree is printed in another dialect than the author's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sql":
            said = node.args[0] if node.args else None
            if not (isinstance(said, ast.Constant) and said.value == AUTHORS_DIALECT):
                yield node.lineno


def compiler() -> list[Module]:
    return [module for module in modules() if re.match(r"(?:sql|lql|engines)/", module.name)]


def test_templates_are_read_by_the_printers_alone() -> None:
    found = {module.name: READERS & names(module) for module in compiler() if module.name not in PRINTERS}
    assert {name: readers for name, readers in found.items() if readers} == WRITERS


def test_no_pass_prints_a_tree_to_look_at_it() -> None:
    assert {module.name: lines for module in compiler() if (lines := list(printed_for_engines(module.tree)))} == {}


def test_segments_are_printed_where_a_statement_is_run() -> None:
    assert {module.name for module in modules() if "print_segments" in module.text} == PRINTING


@pytest.mark.parametrize("text", ["node.sql()", "str(width.sql('duckdb'))", "tree.sql(dialect=name)"])
def test_each_way_to_print_a_tree_is_seen(text: str) -> None:
    assert list(printed_for_engines(ast.parse(text))) == [1]
