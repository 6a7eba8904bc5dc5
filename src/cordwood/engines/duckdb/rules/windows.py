"""Window functions: casts outside of OVER, and frames that end before they begin."""

from sqlglot import exp

from cordwood.engines.duckdb.rules.coercions import read_as
from cordwood.sql.bigquery.aggregates import distribute_window, read_argument
from cordwood.sql.budget import copied
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet
from cordwood.sql.typing import kind_of


def _window(node: exp.Expr) -> exp.Expr:
    cast = node.this.meta_get("cast")
    # A copy, because a node cannot be part of its own replacement.
    return fragment(f"{{0}}::{cast}", copied(node)) if cast else distribute_window(node)


def _value(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_argument(node)
        nulls = " IGNORE NULLS" if argument.ignore_nulls else ""
        arguments = [node.args[key] for key in ("offset", "default") if node.args.get(key) is not None]
        kind = kind_of(node)
        if len(arguments) > 1 and kind is not None and kind_of(arguments[1]) is not kind_of(argument.value):
            argument.value, arguments[1] = read_as(argument.value, kind), read_as(arguments[1], kind)
        holes = "".join(f", {{{index + 1}}}" for index in range(len(arguments)))
        return fragment(f"{name}({{0}}{holes}{nulls})", argument.value, *arguments)

    return rule


RULES = RuleSet(
    nodes={
        exp.Window: _window,
        exp.Filter: _window,
        exp.FirstValue: _value("first_value"),
        exp.LastValue: _value("last_value"),
        exp.NthValue: _value("nth_value"),
        exp.Lead: _value("lead"),
        exp.Lag: _value("lag"),
    }
)
