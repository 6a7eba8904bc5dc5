"""Conditions that ask nothing of a parameter that is absent, `(@p IS NULL OR …)`, as the call at hand needs them.

An engine plans both sides anew for each answer, though the values tell which one is idle.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from sqlglot import exp

from cordwood.sql.fragment import fragment
from cordwood.sql.nodes import conditions
from cordwood.sql.stages import Guard

# Halves of surrogate pairs: `parse` lets no text have them.
_BEGIN, _NAMED, _MIDDLE, _END = "\ud802", "\ud803", "\ud804", "\ud805"
_MARK: Final = re.compile(rf"{_BEGIN}(\w+){_NAMED}|{_MIDDLE}|{_END}")
_OR: Final = " OR "


def mark(tree: exp.Expr) -> None:
    """Let the conditions of the lowered tree be told from its text, once it is printed."""
    # Those within others first: what is marked is copied.
    for where in reversed(list(tree.find_all(exp.Where))):
        for condition in list(conditions(where)):
            parameter = _parameter(condition.this) if isinstance(condition, exp.Or) else None
            if parameter is not None:
                template = f"({_BEGIN}{parameter}{_NAMED}{{0}}{_MIDDLE}{_OR}{{1}}{_END})"
                condition.replace(fragment(template, condition.this.copy(), condition.expression.copy()))


def taken_out(text: str) -> tuple[str, tuple[Guard, ...]]:
    """The text without marks, and where they were."""
    pieces: list[str] = []
    guards: list[Guard] = []
    opened: list[tuple[str, int, int]] = []
    length = read = 0
    for found in _MARK.finditer(text):
        pieces.append(text[read : found.start()])
        length, read = length + len(pieces[-1]), found.end()
        if found[1]:
            opened.append((found[1], length, length))
        elif found[0] == _MIDDLE:
            opened[-1] = (*opened[-1][:2], length)
        else:
            guards.append(Guard(*opened.pop(), length))
    return "".join([*pieces, text[read:]]), tuple(guards)


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
