"""Rules for names of modules and classes, docstrings of modules, TODO comments and imports."""

import ast
import re

import pytest

from tests.architecture.tree import Module, modules

VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "base", "core", "types", "models", "shared"}
PATTERN_WORDS = re.compile(r"(Manager|Service|Handler|Impl|Helper|Util|Utils)$|^(Base|Abstract)[A-Z]")
TODO_WITHOUT_ISSUE = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?! ?\(#\d+\))")

EVERY_MODULE = pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)


@EVERY_MODULE
def test_no_module_has_a_vague_name(module: Module) -> None:
    assert not VAGUE_NAMES & set(module.name.removesuffix(".py").split("/"))


@EVERY_MODULE
def test_no_class_is_named_after_a_pattern(module: Module) -> None:
    classes = [node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    assert not [name for name in classes if PATTERN_WORDS.search(name)]


@EVERY_MODULE
def test_every_module_has_a_docstring(module: Module) -> None:
    docstring = ast.get_docstring(module.tree)
    assert docstring
    assert docstring.split("\n\n")[0].rstrip()[-1] in ".:!?"


@EVERY_MODULE
def test_a_todo_names_its_issue(module: Module) -> None:
    assert not TODO_WITHOUT_ISSUE.findall(module.text)


@EVERY_MODULE
def test_no_function_contains_an_import(module: Module) -> None:
    hidden = [
        statement.lineno
        for function in module.functions
        for statement in ast.walk(function)
        if isinstance(statement, ast.Import | ast.ImportFrom)
    ]
    assert not hidden
