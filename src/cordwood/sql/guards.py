"""Conditions that ask nothing of a parameter that is absent, `(@p IS NULL OR …)`, as the call at hand needs them.

An engine plans both sides anew for each answer, though the values tell which one is idle.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.draft import Printed
from cordwood.sql.fragment import fragment, mark_part
from cordwood.sql.nodes import conditions
from cordwood.sql.stages import Guard

_BEGIN: Final = "guard begins"
_MIDDLE: Final = "guard asks"
_END: Final = "guard ends"
_OR: Final = " OR "


def mark(tree: exp.Expr) -> None:
    """Let printing tell where the conditions of the lowered tree stand in its text."""
    # Those within others first: what is marked is copied.
    for where in reversed(list(tree.find_all(exp.Where))):
        for condition in list(conditions(where)):
            parameter = _parameter(condition.this) if isinstance(condition, exp.Or) else None
            if parameter is not None:
                marks = mark_part(_BEGIN, parameter), mark_part(_MIDDLE), mark_part(_END)
                sides = copied(condition.this), copied(condition.expression)
                condition.replace(fragment(f"({{2}}{{0}}{{3}}{_OR}{{1}}{{4}})", *sides, *marks))


def guards_of(printed: Printed) -> tuple[Guard, ...]:
    """The conditions that were marked."""
    guards: list[Guard] = []
    opened: list[tuple[str, int, int]] = []
    for place, mark in printed.marks:
        if mark.kind == _BEGIN:
            opened.append((mark.name, place, place))
        elif mark.kind == _MIDDLE:
            opened[-1] = (*opened[-1][:2], place)
        elif mark.kind == _END:
            guards.append(Guard(*opened.pop(), place))
    return tuple(guards)


def decided(text: str, guards: Sequence[Guard], values: Mapping[str, object]) -> str:
    """The text without what these values leave idle."""
    kept = [0]
    for start, end in sorted(_idle(guard, values) for guard in guards):
        if start >= kept[-1]:
            kept += [start, end]
    return "".join(text[start:end] for start, end in list(pairwise([*kept, len(text)]))[::2])


def _idle(guard: Guard, values: Mapping[str, object]) -> tuple[int, int]:
    if values[guard.parameter] is None:
        return guard.middle, guard.end
    return guard.start, guard.middle + len(_OR)


def _parameter(condition: exp.Expr) -> str | None:
    """The one that it asks whether it is absent."""
    asked = condition.unnest()
    if not isinstance(asked, exp.Is) or not isinstance(asked.expression, exp.Null):
        return None
    return asked.this.name if isinstance(asked.this, exp.Parameter) else None
