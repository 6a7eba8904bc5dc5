"""JSON paths such as `$.a.b[0]['c']`, as lists of keys and array indexes."""

import re
from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.sql.constants import constant_text
from cordwood.sql.digits import parse_digits
from cordwood.sql.lowering import unsupported

# A key, or an array index from zero.
Steps = list[str | int]

# `[0]`, `['key']`, `["key"]`, `[key]`, `."key"` or `.key`. Wildcards, slices and indexes from the end do not match.
_STEP: Final = re.compile(r"""\[(\d+)\]|\['(.*?)'\]|\["(.*?)"\]|\[([^\]'"*-][^\]'"*]*)\]|\."([^"]*)"|\.([^."\[*]+)""")


def steps_of(node: exp.Expr | None, where: exp.Expr) -> Steps:
    """Return the steps of a JSON path; no path refers to the whole document."""
    if node is None:
        return []
    if isinstance(node, exp.JSONPath):
        return [_step(step, where) for step in node.expressions[1:]]
    spelled = constant_text(node)
    if spelled is None:
        unsupported(where, "A JSON path that is no literal")
    return list(_parsed(spelled.strip(), where))


def _step(step: exp.Expr, where: exp.Expr) -> str | int:
    if isinstance(step, exp.JSONPathKey) and isinstance(step.this, str):
        return step.this
    if isinstance(step, exp.JSONPathSubscript) and isinstance(step.this, (int, str)):
        return parse_digits(str(step.this)) if str(step.this).isdecimal() else str(step.this)
    return unsupported(where, "This JSON path")


def _parsed(spelled: str, where: exp.Expr) -> Iterator[str | int]:
    """Parse paths that sqlglot leaves as text: `$[a]`, `$['a.b']`, and unquoted keys with dashes."""
    if not spelled.startswith("$"):
        unsupported(where, f"The JSON path '{spelled}'")
    at = 1
    while at < len(spelled):
        match = _STEP.match(spelled, at)
        if match is None:
            unsupported(where, "This JSON path")
        place, *names = match.groups()
        yield parse_digits(place) if place is not None else next(name for name in names if name is not None)
        at = match.end()
