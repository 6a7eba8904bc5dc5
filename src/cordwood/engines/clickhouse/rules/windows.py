"""Window functions: casts outside of OVER, and NULLs respected by default."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.aggregates import apply_outside_window, cast_aggregate
from cordwood.engines.clickhouse.rules.coercions import read_as
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.aggregates import distribute_window, read_argument
from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_int
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Rule, RuleSet
from cordwood.sql.typing import kind_of


def _window(node: exp.Expr) -> exp.Expr:
    wrap = node.this.meta_get("wrap")
    if wrap is None:
        return distribute_window(node)
    template, parts = wrap
    # A copy, because a node cannot be part of its own replacement.
    return fragment(template, copied(node), *parts)


def _value(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        argument = read_argument(node)
        nulls = "" if argument.ignore_nulls else "_respect_nulls"
        arguments = [node.args[key] for key in ("offset", "default") if node.args.get(key) is not None]
        holes = "".join(f", {{{index}}}" for index in range(1, len(arguments) + 1))
        if name == "nth_value" and argument.ignore_nulls:
            # nth_value has no IGNORE NULLS; groupArray skips NULLs.
            return apply_outside_window(
                node, fragment("groupArray({0})", argument.value), "arrayElementOrNull({0}, {1})", *arguments
            )
        argument.value, arguments = _with_common_type(node, argument.value, arguments)
        if name in ("lag", "lead", "nth_value"):
            return fragment(f"{name}({_nullable(argument.value)}{holes})", argument.value, *arguments)
        return fragment(f"{name}{nulls}({_nullable(argument.value)})", argument.value)

    return rule


def _with_common_type(node: exp.Expr, value: exp.Expr, arguments: list[exp.Expr]) -> tuple[exp.Expr, list[exp.Expr]]:
    """Return the value and its default, if any, converted to their common type."""
    kind = kind_of(node)
    if len(arguments) < 2 or kind is None or kind_of(arguments[1]) is kind_of(value):
        return value, arguments
    return read_as(value, kind), [arguments[0], read_as(arguments[1], kind)]


def _nullable(value: exp.Expr) -> str:
    """Return the value as nullable, because it is NULL beyond the frame, unless its type has no NULL."""
    return "{0}" if kind_of(value) in (Kind.ARRAY, Kind.STRUCT) else "toNullable({0})"


def _rank(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        parts = [node.this] if isinstance(node.this, exp.Expr) else []
        return cast_aggregate(node, fragment(f"{name}({{0}})" if parts else f"{name}()", *parts), "Int64")

    return rule


# A distance beyond the rows of any partition.
_BEYOND: Final = 1_000_000_000


def _frame(node: exp.Expr) -> exp.Expr:
    """Make a frame empty that ends before it begins; ClickHouse rejects it."""
    side = node.args.get("start_side")
    start, end = (_distance(node.args.get(key)) for key in ("start", "end"))
    if start is None or end is None or side != node.args.get("end_side"):
        return node
    if (start < end) if side == "PRECEDING" else (start > end):
        beyond = exp.Literal.number(_BEYOND)
        for key in ("start", "end"):
            node.set(key, copied(beyond))
            node.set(f"{key}_side", "FOLLOWING")
    return node


def _distance(bound: object) -> int | None:
    """Return the literal offset of a frame's bound; UNBOUNDED and CURRENT ROW are texts, not nodes."""
    return constant_int(bound) if isinstance(bound, exp.Expr) else None


RULES = RuleSet(
    nodes={
        exp.WindowSpec: _frame,
        exp.Window: _window,
        exp.FirstValue: _value("first_value"),
        exp.LastValue: _value("last_value"),
        exp.NthValue: _value("nth_value"),
        exp.Lead: _value("lead"),
        exp.Lag: _value("lag"),
        exp.RowNumber: _rank("row_number"),
        exp.Rank: _rank("rank"),
        exp.DenseRank: _rank("dense_rank"),
        exp.Ntile: _rank("ntile"),
        exp.CumeDist: lambda _: fragment("cume_dist()"),
    }
)
