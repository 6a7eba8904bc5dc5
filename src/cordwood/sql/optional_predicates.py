"""Find conditions that ask nothing of a parameter that is NULL: `@p IS NULL OR …`.

An engine plans both sides anew for each answer, though the values of the call tell which one decides.
"""

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.fragment import optional_predicate
from cordwood.sql.nodes import conditions


def mark_optional_predicates(tree: exp.Expr) -> None:
    """Replace them in the lowered tree by nodes that the plan can print in part."""
    # Those within others first: what is replaced is copied.
    for where in reversed(list(tree.find_all(exp.Where))):
        for condition in list(conditions(where)):
            parameter = _parameter(condition.this) if isinstance(condition, exp.Or) else None
            if parameter is not None:
                sides = copied(condition.this), copied(condition.expression)
                condition.replace(optional_predicate(parameter, *sides))


def _parameter(condition: exp.Expr) -> exp.Parameter | None:
    """Return the parameter that is compared with NULL."""
    asked = condition.unnest()
    if not isinstance(asked, exp.Is) or not isinstance(asked.expression, exp.Null):
        return None
    return asked.this if isinstance(asked.this, exp.Parameter) else None
