"""Each stage's type is made by its own stage alone: no room may forge a guard it did not pass."""

import ast

import pytest

from tests.architecture.tree import modules

MAKERS = {
    "Parsed": ("sql/parse.py", "lql/", "logql/", "clickhouse_sql/"),
    "Admitted": ("sql/admit.py",),
    "Resolved": ("sql/resolve",),
    # The compiler's stand-in for an engine, where only names matter, lowers nothing and says so.
    "Lowered": ("engines/", "sql/resolve/entry.py"),
    "Question": ("sql/bind.py",),
}


@pytest.mark.parametrize("stage", MAKERS)
def test_a_stage_is_made_only_where_it_is_earned(stage: str) -> None:
    makers = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == stage
    }
    assert not {maker for maker in makers if not maker.startswith(MAKERS[stage])}
