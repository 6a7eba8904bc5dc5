"""Properties of fragments that are derived from the text of their templates.

Besides `fragment` and `tree_printer`, only this module reads templates. These properties limit the plan's size or
prevent a rewrite that would change the result. The operation of a fragment is never derived from text: see
`operations`.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.sql.fragment import HOLE, template_of

# Engines expand these to comparisons that repeat the value.
_REPEATED_HOLE: Final = re.compile(r"\{(\d+)\} (?:NOT )?BETWEEN|\bnullif\(\{(\d+)\}", re.IGNORECASE)
_LAMBDA_KEYWORD: Final = "lambda "
_KEYWORD: Final = re.compile(r"\b(SELECT|FROM|OVER|DISTINCT|UNION)\b")
# Calls that DuckDB does not allow inside of TRY.
_VOLATILE: Final = ("error(", "random()", "uuid()")


class Measure(msgspec.Struct, frozen=True):
    """The length of a template, its expensive keywords, and how often each hole is planned."""

    characters: int
    keywords: Mapping[str, int]
    holes: Mapping[int, int]


@lru_cache(maxsize=4096)
def _measure(template: str) -> Measure:
    holes = Counter(int(match[1]) for match in HOLE.finditer(template))
    lambda_start = template.find(_LAMBDA_KEYWORD)
    if lambda_start >= 0:
        # DuckDB binds the body of a lambda twice.
        holes += Counter(int(match[1]) for match in HOLE.finditer(template, lambda_start))
    holes += Counter(int(match[1] or match[2]) for match in _REPEATED_HOLE.finditer(template))
    return Measure(len(template), Counter(_KEYWORD.findall(template)), holes)


def measure(node: exp.Expr) -> Measure:
    return _measure(template_of(node))


def has_calls(node: exp.Expr) -> bool:
    """Return whether the template has parentheses: without any, it is an operator, a cast or a path."""
    return "(" in template_of(node)


def is_volatile(node: exp.Expr) -> bool:
    """Return whether the template calls a function that always fails, or whose value varies."""
    template = template_of(node)
    return any(call in template for call in _VOLATILE)


def catches_failures(node: exp.Expr) -> bool:
    """Return whether the template turns errors of its parts into NULL."""
    return "try(" in template_of(node)
