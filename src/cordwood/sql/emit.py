"""The last stage of the compiler, from a resolved tree to a statement: plan, slots and row limit."""

from collections.abc import Mapping

from sqlglot import exp

from cordwood.model.endpoint import Parameter
from cordwood.sql.nodes import NOW, outermost_select
from cordwood.sql.optional_predicates import mark_optional_predicates
from cordwood.sql.paging import literal_rows
from cordwood.sql.plan import Plan, Variant
from cordwood.sql.plan_size import check_plan
from cordwood.sql.stages import Alternative, Lowered, Resolved, Slot, Statement
from cordwood.sql.target import Target
from cordwood.sql.typing import datatype_of


def emit(resolved: Resolved, target: Target, parameters: Mapping[str, Parameter]) -> Statement:
    """Return the statement of a resolved tree. Mutates the tree: what a step would change is read before it."""
    items = outermost_select(resolved.tree).expressions
    names = tuple(item.alias if isinstance(item, exp.Alias) else item.name for item in items)
    slots = _slots(resolved.tree, parameters)
    row_limit = literal_rows(resolved.tree.args.get("limit"))
    lowered = target.lower(resolved)
    check_plan(lowered.tree, resolved.text)
    types = tuple(datatype_of(item) for item in _typed_select(lowered.tree).expressions[: len(names)])
    return Statement(
        plan=_plan(lowered, target),
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


def _plan(lowered: Lowered, target: Target) -> Plan:
    return Plan(
        tuple(_variant(alternative, target) for alternative in (Alternative(lowered.tree), *lowered.alternatives))
    )


def _variant(alternative: Alternative, target: Target) -> Variant:
    mark_optional_predicates(alternative.tree)
    return Variant(target.print(alternative.tree).segments, alternative.reads, alternative.is_optimistic)


def _typed_select(tree: exp.Expr) -> exp.Expr:
    """Return the SELECT whose columns have types.

    An engine whose queries cannot begin with a parenthesis wraps it in a SELECT of a star.
    """
    select = outermost_select(tree)
    from_ = select.args.get("from_")
    inner = from_.this if isinstance(from_, exp.From) else None
    is_star = len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star)
    return _typed_select(inner.this) if is_star and isinstance(inner, exp.Subquery) else select


def _slots(tree: exp.Expr, parameters: Mapping[str, Parameter]) -> tuple[Slot, ...]:
    used = {node.name for node in tree.find_all(exp.Parameter)}
    declared = tuple(Slot(name, parameter, name in used) for name, parameter in parameters.items())
    return (*declared, Slot(NOW, None)) if NOW in used else declared
