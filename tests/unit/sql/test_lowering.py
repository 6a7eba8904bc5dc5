"""Lowering applies the rule of each node exactly once, to children first."""

import pytest
from sqlglot import exp, parse_one

from cordwood.errors import QueryUnsupported, Span
from cordwood.sql.lowering import RuleSet, mark_null_on_error, merge_rule_sets, raise_unsupported, returns_null_on_error
from cordwood.sql.rules.json_functions import canonical_json_text


def test_children_are_lowered_before_their_parent() -> None:
    visited: list[str] = []

    def note(node: exp.Expr) -> exp.Expr:
        visited.append(node.sql())
        return node

    merge_rule_sets([RuleSet(by_node_class={exp.Add: note, exp.Column: note})]).lower(parse_one("a + b"))
    assert visited == ["a", "b", "a + b"]


def test_a_function_without_a_class_is_found_by_its_name_in_any_case() -> None:
    rules = merge_rule_sets([RuleSet(by_function_name={"MY_FUNCTION": lambda _: exp.column("found")})])
    assert rules.lower(parse_one("select my_Function(1)")).sql() == "SELECT found"


def test_a_replacement_keeps_the_type_and_position() -> None:
    tree = parse_one("a + b")
    tree.meta["datatype"] = "anything"
    lowered = merge_rule_sets([RuleSet(by_node_class={exp.Add: lambda _: exp.column("sum")})]).lower(tree)
    assert lowered.meta["datatype"] == "anything"


def test_two_rules_for_one_node_are_an_error() -> None:
    with pytest.raises(ValueError, match="two rules"):
        merge_rule_sets(
            [RuleSet(by_node_class={exp.Add: lambda node: node}), RuleSet(by_node_class={exp.Add: lambda node: node})]
        )


def test_an_unsupported_node_is_reported_with_its_position() -> None:
    tree = parse_one("select\n  soundex(x)", read="bigquery")
    with pytest.raises(QueryUnsupported, match="SOUNDEX is not supported") as caught:
        raise_unsupported(tree.expressions[0], "SOUNDEX")
    assert caught.value.span == Span(2, 3)


def test_a_node_is_safe_once_it_is_marked() -> None:
    node = exp.column("a")
    assert not returns_null_on_error(node)
    assert returns_null_on_error(mark_null_on_error(node))


@pytest.mark.parametrize(
    ("exponent", "canonical"), [("-99999999999999999999", "[0.0]"), ("99999999999999999999", None), ("2", "[1e2]")]
)
def test_a_number_in_json_may_have_a_long_exponent(exponent: str, canonical: str | None) -> None:
    assert canonical_json_text(f"[1e{exponent}]", rounds=True) == canonical
