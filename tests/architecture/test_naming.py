"""Rooms and classes are named for what they do; every module says what it is; nothing is left for later unsaid."""

import ast
import re

import pytest

from tests.architecture.tree import Module, modules

DRAWERS = {"util", "utils", "helper", "helpers", "common", "misc", "base", "core", "types", "models", "shared"}
PATTERN_WORDS = re.compile(r"(Manager|Service|Handler|Impl|Helper|Util|Utils)$|^(Base|Abstract)[A-Z]")
LEFT_OVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?! ?\(#\d+\))")

EVERY_MODULE = pytest.mark.parametrize("module", modules(), ids=lambda module: module.name)


@EVERY_MODULE
def test_no_module_is_a_drawer(module: Module) -> None:
    assert not DRAWERS & set(module.name.removesuffix(".py").split("/"))


@EVERY_MODULE
def test_no_class_is_named_after_a_pattern(module: Module) -> None:
    classes = [node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    assert not [name for name in classes if PATTERN_WORDS.search(name)]


@EVERY_MODULE
def test_every_module_begins_with_a_sentence(module: Module) -> None:
    docstring = ast.get_docstring(module.tree)
    assert docstring
    assert docstring.split("\n\n")[0].rstrip()[-1] in ".:!?"


@EVERY_MODULE
def test_what_is_left_for_later_names_its_issue(module: Module) -> None:
    assert not LEFT_OVER.findall(module.text)


@EVERY_MODULE
def test_imports_stand_at_the_top_unless_they_load_a_command(module: Module) -> None:
    hidden = [
        statement.lineno
        for function in module.functions
        for statement in ast.walk(function)
        if isinstance(statement, ast.Import | ast.ImportFrom)
    ]
    assert not hidden
