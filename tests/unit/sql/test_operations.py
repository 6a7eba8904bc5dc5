"""Typed operations are compared, hashed and copied with the nodes that have them."""

import pytest
from sqlglot import exp

from cordwood.sql.budget import copy_tree
from cordwood.sql.lowering import RuleSet, fragment_node, merge_rule_sets, replace_fragment_parts
from cordwood.sql.nodes import (
    EventAsText,
    IsObjectTest,
    Operation,
    PathRead,
    find_operations,
    has_operation,
    is_operation,
    operation_if_of_class,
    operation_node,
)

METADATA_COLUMN = exp.column("metadata", "t", quoted=True)


def read_path(*steps: str) -> exp.Expr:
    return operation_node(PathRead(steps), METADATA_COLUMN.copy())


def test_nodes_are_equal_if_their_operations_are() -> None:
    """Compare nodes with different operations. Keys of paths are case-sensitive, unlike names in sqlglot."""
    assert read_path("request", "path") == read_path("request", "path")
    assert read_path("request", "path") != read_path("request", "Path")
    assert read_path("path") != operation_node(IsObjectTest(), METADATA_COLUMN.copy())
    assert len({read_path("a"), read_path("A"), read_path("a", "b"), read_path("a")}) == 3


def test_a_copy_has_the_same_operation() -> None:
    tree = exp.select(exp.alias_(fragment_node("{0}::VARCHAR", read_path("a"), operation=EventAsText()), "x"))
    copy = copy_tree(tree)
    assert copy == tree
    assert [operation for _, operation in find_operations(copy, Operation)] == [EventAsText(), PathRead(("a",))]


def test_an_operation_is_not_derived_from_the_template() -> None:
    node = fragment_node("{0}::VARCHAR", METADATA_COLUMN.copy(), operation=EventAsText())
    assert not has_operation(replace_fragment_parts(node, [exp.Null()]), EventAsText)


def test_an_operation_is_looked_up_by_its_class() -> None:
    assert operation_if_of_class(read_path("a"), PathRead) == PathRead(("a",))
    assert operation_if_of_class(read_path("a"), Operation) == PathRead(("a",))
    for other in (None, METADATA_COLUMN, exp.Anonymous(this="f"), fragment_node("1")):
        assert operation_if_of_class(other, Operation) is None


def test_rules_are_chosen_by_the_class_of_an_operation_and_applied_once() -> None:
    lowered: list[str] = []

    def path(node: exp.Expr) -> exp.Expr:
        lowered.append("path")
        return fragment_node("{0}.a", node.expressions[0], operation=PathRead(("a",)))

    rules = merge_rule_sets([RuleSet(by_operation_class={PathRead: path})])
    result = rules.lower(exp.select(exp.alias_(read_path("a"), "x"))).expressions[0].this
    assert lowered == ["path"]
    assert has_operation(result, PathRead)
    assert not is_operation(result)


def test_two_rules_for_one_operation_are_an_error() -> None:
    with pytest.raises(ValueError, match="two rules"):
        merge_rule_sets(
            [RuleSet(by_operation_class={PathRead: copy_tree}), RuleSet(by_operation_class={PathRead: copy_tree})]
        )
