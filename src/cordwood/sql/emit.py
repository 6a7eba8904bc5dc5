"""The last stage of the compiler: lower a resolved tree, print it, and return a statement with its plan and slots."""

from collections.abc import Mapping

from sqlglot import exp

from cordwood.model.definitions import Parameter
from cordwood.sql.budget import copy_tree
from cordwood.sql.datatypes import datatype_of
from cordwood.sql.lowering import optional_predicate_node
from cordwood.sql.nodes import NOW_SLOT_NAME, outermost_select, split_and_conditions
from cordwood.sql.paging import literal_row_count
from cordwood.sql.plan import PartialAnswerPlan, Plan, PlanVariant, SqlSegments
from cordwood.sql.plan_size import check_plan_size
from cordwood.sql.stages import (
    LoweredQuery,
    ParameterSlot,
    PartialAnswerTrees,
    ResolvedQuery,
    Statement,
    Target,
    VariantTree,
)


def emit_statement(resolved: ResolvedQuery, target: Target, parameters: Mapping[str, Parameter]) -> Statement:
    """Lower and print a resolved tree, and return its statement.

    Lowering mutates the tree, so column names, slots and the row limit are read first.
    """
    items = outermost_select(resolved.tree).expressions
    names = tuple(item.alias if isinstance(item, exp.Alias) else item.name for item in items)
    slots = _collect_slots(resolved.tree, parameters)
    row_limit = literal_row_count(resolved.tree.args.get("limit"))
    lowered = target.lower(resolved)
    check_plan_size(lowered.tree, resolved.query_text)
    types = tuple(datatype_of(item) for item in _select_with_typed_columns(lowered.tree).expressions[: len(names)])
    return Statement(
        plan=_print_plan(lowered, target),
        slots=slots,
        sub_queries=resolved.sub_queries,
        streams=resolved.streams,
        unseen_paths=resolved.unseen_paths,
        column_names=names,
        column_types=types,
        redact_mode=resolved.redact_mode,
        unredacted_column_indexes=resolved.unredacted_column_indexes,
        textless_paths=resolved.textless_paths,
        row_limit=row_limit,
        computed_columns=lowered.computed_columns,
        shape_lookups=resolved.shape_lookups,
    )


def _print_plan(lowered: LoweredQuery, target: Target) -> Plan:
    return Plan(
        tuple(
            _print_variant(alternative, target) for alternative in (VariantTree(lowered.tree), *lowered.variant_trees)
        ),
        None
        if lowered.partial_answer_trees is None
        else _print_partial_answer_plan(lowered.partial_answer_trees, target),
    )


def _print_partial_answer_plan(trees: PartialAnswerTrees, target: Target) -> PartialAnswerPlan:
    return PartialAnswerPlan(
        trees.stream,
        trees.merge_aggregates,
        trees.time_bound_comparisons,
        () if trees.bounds_tree is None else _segments_of_tree(trees.bounds_tree, target),
        _segments_of_tree(trees.blocks_tree, target),
        tuple(_print_variant(alternative, target) for alternative in trees.variant_trees),
    )


def _print_variant(alternative: VariantTree, target: Target) -> PlanVariant:
    return PlanVariant(
        _segments_of_tree(alternative.tree, target), alternative.event_range, alternative.has_optimistic_redaction
    )


def _segments_of_tree(tree: exp.Expr, target: Target) -> SqlSegments:
    _replace_optional_predicates(tree)
    return target.print_lowered_tree(tree).segments


def _select_with_typed_columns(tree: exp.Expr) -> exp.Expr:
    """Return the SELECT whose columns have types.

    For an engine whose queries cannot begin with a parenthesis, lowering wraps such a query in `SELECT *`, whose column
    has no type.
    """
    select = outermost_select(tree)
    from_ = select.args.get("from_")
    inner = from_.this if isinstance(from_, exp.From) else None
    is_star = len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star)
    return _select_with_typed_columns(inner.this) if is_star and isinstance(inner, exp.Subquery) else select


def _collect_slots(tree: exp.Expr, parameters: Mapping[str, Parameter]) -> tuple[ParameterSlot, ...]:
    used = {node.name for node in tree.find_all(exp.Parameter)}
    declared = tuple(ParameterSlot(name, parameter, name in used) for name, parameter in parameters.items())
    return (*declared, ParameterSlot(NOW_SLOT_NAME, None)) if NOW_SLOT_NAME in used else declared


def _replace_optional_predicates(tree: exp.Expr) -> None:
    """Replace conditions such as `@p IS NULL OR …` in a lowered tree by optional predicates.

    The SQL of each call then contains only one operand of OR, the one that matters for the value of `@p`. If it
    contained both, an engine would plan both.
    """
    # Begin with the innermost WHERE. Replacing a condition copies the nodes in it, so a WHERE that was found inside the
    # condition would no longer be part of the tree.
    for where in reversed(list(tree.find_all(exp.Where))):
        for condition in list(split_and_conditions(where)):
            parameter = _parameter_compared_with_null(condition.this) if isinstance(condition, exp.Or) else None
            if parameter is not None:
                sides = copy_tree(condition.this), copy_tree(condition.expression)
                condition.replace(optional_predicate_node(parameter, *sides))


def _parameter_compared_with_null(condition: exp.Expr) -> exp.Parameter | None:
    """Return the parameter `@p` of a condition `@p IS NULL`; None for any other condition."""
    test = condition.unnest()
    if not isinstance(test, exp.Is) or not isinstance(test.expression, exp.Null):
        return None
    return test.this if isinstance(test.this, exp.Parameter) else None
