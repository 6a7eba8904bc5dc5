"""Detection of optional predicates, conditions such as `@p IS NULL OR …`.

An engine would plan both sides for each call, although the call's values determine which side is needed.
"""

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.fragment import optional_predicate
from cordwood.sql.nodes import conditions


def mark_optional_predicates(tree: exp.Expr) -> None:
    """Replace each optional predicate in a lowered tree by a node with two alternatives, of which each run uses one."""
    # Innermost first, because replacing a condition copies what is inside it.
    for where in reversed(list(tree.find_all(exp.Where))):
        for condition in list(conditions(where)):
            parameter = _parameter(condition.this) if isinstance(condition, exp.Or) else None
            if parameter is not None:
                sides = copied(condition.this), copied(condition.expression)
                condition.replace(optional_predicate(parameter, *sides))


def _parameter(condition: exp.Expr) -> exp.Parameter | None:
    """Return the parameter that is compared with NULL; None for other conditions."""
    test = condition.unnest()
    if not isinstance(test, exp.Is) or not isinstance(test.expression, exp.Null):
        return None
    return test.this if isinstance(test.this, exp.Parameter) else None
