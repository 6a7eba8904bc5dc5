"""Check names of modules and classes, docstrings of modules, TODO comments and imports."""

import ast
import re

from tests.architecture.tree import modules

VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "base", "core", "types", "models", "shared"}
EMPTY_WORDS = re.compile(r"(Impl|Helper|Util|Utils)$|^(Base|Abstract)[A-Z]")
TODO_WITHOUT_ISSUE = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?! ?\(#\d+\))")


def test_no_module_has_a_vague_name() -> None:
    assert not [part.name for part in modules() if VAGUE_NAMES & set(part.name.removesuffix(".py").split("/"))]


def test_no_class_has_an_empty_word_in_its_name() -> None:
    assert not [
        (module.name, node.name)
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and EMPTY_WORDS.search(node.name)
    ]


def test_every_module_has_a_docstring() -> None:
    docstrings = {module.name: ast.get_docstring(module.tree) for module in modules()}
    assert not [
        name for name, text in docstrings.items() if not text or text.split("\n\n")[0].rstrip()[-1] not in ".:!?"
    ]


def test_a_todo_names_its_issue() -> None:
    assert not [module.name for module in modules() if TODO_WITHOUT_ISSUE.search(module.text)]


def test_no_function_contains_an_import() -> None:
    assert not [
        (module.name, statement.lineno)
        for module in modules()
        for function in module.functions
        for statement in ast.walk(function)
        if isinstance(statement, ast.Import | ast.ImportFrom)
    ]
