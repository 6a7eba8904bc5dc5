"""JSON paths such as `$.a.b[0]['c']`, as lists of keys and array indexes."""

import re
from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from cordwood.sql.constants import constant_text
from cordwood.sql.literals import parse_digits
from cordwood.sql.lowering import unsupported

# A key, or an array index from zero.
Steps = list[str | int]

# `[0]`, `['key']`, `["key"]`, `[key]`, `."key"` or `.key`. Wildcards, slices and indexes from the end do not match.
_STEP: Final = re.compile(r"""\[(\d+)\]|\['(.*?)'\]|\["(.*?)"\]|\[([^\]'"*-][^\]'"*]*)\]|\."([^"]*)"|\.([^."\[*]+)""")


def steps_of(node: exp.Expr | None, call: exp.Expr) -> Steps:
    """Return the steps of a JSON path; no path refers to the whole document."""
    if node is None:
        return []
    if isinstance(node, exp.JSONPath):
        return [_step(step, call) for step in node.expressions[1:]]
    path = constant_text(node)
    if path is None:
        unsupported(call, "A JSON path that is no literal")
    return list(_parse_path(path.strip(), call))


def _step(step: exp.Expr, call: exp.Expr) -> str | int:
    if isinstance(step, exp.JSONPathKey) and isinstance(step.this, str):
        return step.this
    if isinstance(step, exp.JSONPathSubscript) and isinstance(step.this, (int, str)):
        return parse_digits(str(step.this)) if str(step.this).isdecimal() else str(step.this)
    return unsupported(call, "This JSON path")


def _parse_path(path: str, call: exp.Expr) -> Iterator[str | int]:
    """Parse paths that sqlglot leaves as text: `$[a]`, `$['a.b']`, and unquoted keys with dashes."""
    if not path.startswith("$"):
        unsupported(call, f"The JSON path '{path}'")
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            unsupported(call, "This JSON path")
        array_index, *names = match.groups()
        yield parse_digits(array_index) if array_index is not None else next(name for name in names if name is not None)
        position = match.end()
