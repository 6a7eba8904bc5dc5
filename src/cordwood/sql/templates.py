"""Properties of fragments that follow from the text of their templates: with `fragment` and `draft` the only readers of it.

They bound the plan, or forbid a change that would alter the meaning. Which operation a fragment is, no text tells:
that is `operations`.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.sql.fragment import HOLE, template_of

# Engines write these as comparisons of the same value.
_TWICE: Final = re.compile(r"\{(\d+)\} (?:NOT )?BETWEEN|\bnullif\(\{(\d+)\}", re.IGNORECASE)
_LAMBDA: Final = "lambda "
_KEYWORD: Final = re.compile(r"\b(SELECT|FROM|OVER|DISTINCT|UNION)\b")
# What DuckDB's TRY cannot hold.
_VOLATILE: Final = ("error(", "random()", "uuid()")


class Measure(msgspec.Struct, frozen=True):
    """The characters of a template, the keywords in it that cost, and how often each hole is planned."""

    characters: int
    keywords: Mapping[str, int]
    holes: Mapping[int, int]


@lru_cache(maxsize=4096)
def _measure(template: str) -> Measure:
    holes = Counter(int(found[1]) for found in HOLE.finditer(template))
    body = template.find(_LAMBDA)
    if body >= 0:
        # DuckDB binds the body of a lambda twice.
        holes += Counter(int(found[1]) for found in HOLE.finditer(template, body))
    holes += Counter(int(found[1] or found[2]) for found in _TWICE.finditer(template))
    return Measure(len(template), Counter(_KEYWORD.findall(template)), holes)


def measure(node: exp.Expr) -> Measure:
    return _measure(template_of(node))


def has_calls(node: exp.Expr) -> bool:
    """Return whether the template has brackets: without, it is an operator, a cast or a path."""
    return "(" in template_of(node)


def is_volatile(node: exp.Expr) -> bool:
    """Return whether the template calls what always fails, or what has another value each time."""
    template = template_of(node)
    return any(call in template for call in _VOLATILE)


def catches_failures(node: exp.Expr) -> bool:
    """Return whether the template makes a failure of its parts a NULL."""
    return "try(" in template_of(node)
