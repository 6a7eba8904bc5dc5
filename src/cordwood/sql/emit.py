"""The last stage of the compiler: lower a resolved tree, print it, and return a statement with its plan and slots."""

from collections.abc import Mapping

from sqlglot import exp

from cordwood.model.definitions import Parameter
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import datatype_of
from cordwood.sql.lowering import optional_predicate
from cordwood.sql.nodes import NOW, conditions, outermost_select
from cordwood.sql.paging import literal_rows
from cordwood.sql.plan import PartialPlan, Plan, Segments, Variant
from cordwood.sql.plan_size import check_plan
from cordwood.sql.stages import Alternative, Lowered, PartialTrees, Resolved, Slot, Statement, Target


def emit(resolved: Resolved, target: Target, parameters: Mapping[str, Parameter]) -> Statement:
    """Lower and print a resolved tree, and return its statement.

    Lowering mutates the tree, so column names, slots and the row limit are read before it.
    """
    items = outermost_select(resolved.tree).expressions
    names = tuple(item.alias if isinstance(item, exp.Alias) else item.name for item in items)
    slots = _collect_slots(resolved.tree, parameters)
    row_limit = literal_rows(resolved.tree.args.get("limit"))
    lowered = target.lower(resolved)
    check_plan(lowered.tree, resolved.text)
    types = tuple(datatype_of(item) for item in _typed_select(lowered.tree).expressions[: len(names)])
    return Statement(
        plan=_print_plan(lowered, target),
        slots=slots,
        sub_queries=resolved.sub_queries,
        streams=resolved.streams,
        unseen_paths=resolved.unseen_paths,
        column_names=names,
        column_types=types,
        redaction=resolved.redaction,
        raw_columns=resolved.raw_columns,
        textless_paths=resolved.textless_paths,
        row_limit=row_limit,
        completions=lowered.completions,
        shape_lookups=resolved.shape_lookups,
    )


def _print_plan(lowered: Lowered, target: Target) -> Plan:
    return Plan(
        tuple(
            _print_variant(alternative, target) for alternative in (Alternative(lowered.tree), *lowered.alternatives)
        ),
        None if lowered.partial is None else _print_partial_plan(lowered.partial, target),
    )


def _print_partial_plan(trees: PartialTrees, target: Target) -> PartialPlan:
    return PartialPlan(
        trees.stream,
        trees.merges,
        trees.comparisons,
        () if trees.bounds is None else _printed_segments(trees.bounds, target),
        _printed_segments(trees.blocks, target),
        tuple(_print_variant(alternative, target) for alternative in trees.variants),
    )


def _print_variant(alternative: Alternative, target: Target) -> Variant:
    return Variant(_printed_segments(alternative.tree, target), alternative.reads, alternative.is_optimistic)


def _printed_segments(tree: exp.Expr, target: Target) -> Segments:
    _mark_optional_predicates(tree)
    return target.print(tree).segments


def _typed_select(tree: exp.Expr) -> exp.Expr:
    """Return the SELECT whose columns have types.

    For an engine whose queries cannot begin with a parenthesis, lowering wraps such a query in `SELECT *`, whose column
    has no type.
    """
    select = outermost_select(tree)
    from_ = select.args.get("from_")
    inner = from_.this if isinstance(from_, exp.From) else None
    is_star = len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star)
    return _typed_select(inner.this) if is_star and isinstance(inner, exp.Subquery) else select


def _collect_slots(tree: exp.Expr, parameters: Mapping[str, Parameter]) -> tuple[Slot, ...]:
    used = {node.name for node in tree.find_all(exp.Parameter)}
    declared = tuple(Slot(name, parameter, name in used) for name, parameter in parameters.items())
    return (*declared, Slot(NOW, None)) if NOW in used else declared


def _mark_optional_predicates(tree: exp.Expr) -> None:
    """Replace conditions such as `@p IS NULL OR …` in a lowered tree by optional predicates.

    The SQL of each call then contains only the operand of OR that the value of `@p` needs. If it contained both, an
    engine would plan both.
    """
    # Innermost first, because replacing a condition copies the nodes in it.
    for where in reversed(list(tree.find_all(exp.Where))):
        for condition in list(conditions(where)):
            parameter = _parameter_compared_with_null(condition.this) if isinstance(condition, exp.Or) else None
            if parameter is not None:
                sides = copied(condition.this), copied(condition.expression)
                condition.replace(optional_predicate(parameter, *sides))


def _parameter_compared_with_null(condition: exp.Expr) -> exp.Parameter | None:
    """Return the parameter `@p` of a condition `@p IS NULL`; None for any other condition."""
    test = condition.unnest()
    if not isinstance(test, exp.Is) or not isinstance(test.expression, exp.Null):
        return None
    return test.this if isinstance(test.this, exp.Parameter) else None
