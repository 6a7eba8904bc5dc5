"""Check that each type of a compiler stage is constructed only by that stage, so that no check can be bypassed."""

import ast

import pytest

from tests.architecture.tree import modules

MODULES_BY_STAGE_TYPE = {
    # `sub_query_schema.py` constructs a ParsedQuery to describe the columns of a sub-query.
    "ParsedQuery": ("sql/parse.py", "sql/sub_query_schema.py", "lql/", "logql/", "clickhouse_sql/"),
    "AdmittedTree": ("sql/admit.py",),
    "ResolvedQuery": ("sql/resolve",),
    # `sql/resolve/queries.py` has a target without an engine, which constructs LoweredQuery without lowering.
    "LoweredQuery": ("engines/", "sql/resolve/queries.py"),
    "BoundStatement": ("sql/bind.py",),
}


@pytest.mark.parametrize("stage", MODULES_BY_STAGE_TYPE)
def test_a_stage_type_is_constructed_only_by_its_stage(stage: str) -> None:
    makers = {
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == stage
    }
    assert makers
    assert not {maker for maker in makers if not maker.startswith(MODULES_BY_STAGE_TYPE[stage])}
