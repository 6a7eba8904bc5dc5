"""Static analysis of RE2 patterns: their groups, and whether they can match the empty text."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.bounded_cache import compiled_pattern
from cordwood.errors import QueryValue
from cordwood.sql.constants import constant_text
from cordwood.sql.lowering import is_safe, span_in_text

# RE2 syntax that Python's `re` lacks, removed before a pattern is compiled with it.
_PYTHON: Final = re.compile(r"\\[pPzQECA](\{\w+\}|\w)?|\[\[:\^?\w+:\]\]|\(\?[a-zA-Z-]+\)|(?<=\(\?)[UimsR-]+:")
# Patterns of anchors only, whose empty matches all engines find alike: they consume no character, and match only once
# at the start.
_PLACES: Final = re.compile(r"(?:[\^$|()]|\\[bAz]|\(\?[a-zA-Z-]*:)*|\^[^|]*")
_LINES: Final = "(?m"
_ESCAPED: Final = re.compile(r"\\(.?)", re.DOTALL)


def count_groups(pattern: str) -> int:
    return sum(_captures(pattern, at) for at in _marks(pattern))


def group_is_optional(pattern: str) -> bool:
    """Return whether the pattern may match without one of its groups.

    That is so if the group, or a group around it, is one of several alternatives or is optional.
    """
    opened = [_Bracket(captures=False)]
    for at in _marks(pattern):
        if pattern[at] == "(":
            opened.append(_Bracket(captures=_captures(pattern, at)))
        elif pattern[at] == "|":
            opened[-1].has_choice = True
        elif len(opened) > 1:
            closed = opened.pop()
            opened[-1].take_in(closed, can_be_left_out=pattern[at + 1 : at + 2] in tuple("?*{"))
    return opened[0].is_optional


class _Bracket(msgspec.Struct):
    captures: bool
    has_group: bool = False
    has_choice: bool = False
    has_optional: bool = False

    @property
    def is_optional(self) -> bool:
        return self.has_optional or (self.has_group and self.has_choice)

    def take_in(self, inner: "_Bracket", *, can_be_left_out: bool) -> None:
        has_group = inner.captures or inner.has_group
        self.has_group = self.has_group or has_group
        self.has_optional = self.has_optional or inner.is_optional or (has_group and can_be_left_out)


def _captures(pattern: str, at: int) -> bool:
    if pattern[at] != "(":
        return False
    named = pattern.startswith("?P<", at + 1) or pattern.startswith("?<", at + 1)
    return named or not pattern.startswith("?", at + 1)


def _marks(pattern: str) -> Iterator[int]:
    """Yield the positions of unescaped `(`, `)` and `|` outside of character classes."""
    at, in_class = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            at += pattern[at + 1 : at + 2] == "^"
            at += pattern[at + 1 : at + 2] == "]"
        elif char in "()|":
            yield at
        at += 1


def told_wrong(pattern: str) -> tuple[str, str | None] | None:
    """Return an error of the pattern and a hint; None if it has no error that RE2 is known to report."""
    foreign = _NOT_IN_RE2.search(_ESCAPED_BACKSLASH.sub("  ", pattern))
    if foreign is not None:
        what, hint = _FOREIGN[next(name for name, found in foreign.groupdict().items() if found)]
        return f"{what}: {foreign[0]}", hint
    try:
        compiled_pattern(_PYTHON.sub("", pattern))
    except re.error as error:
        said = next((words for begin, words in _BROKEN.items() if error.msg.startswith(begin)), None)
        return (said, None) if said else None
    return None


_ESCAPED_BACKSLASH: Final = re.compile(r"\\\\")
_NOT_IN_RE2: Final = re.compile(r"(?P<look>\(\?<?[=!])|(?P<again>(?<!\\)\\[1-9])|(?P<atomic>\(\?>)")
_FOREIGN: Final = {
    "look": (
        "RE2 has no lookahead or lookbehind",
        "Match what is wanted with one REGEXP_CONTAINS, and exclude the rest with AND NOT REGEXP_CONTAINS(…).",
    ),
    "again": ("RE2 has no references back to a group", "Extract the group with REGEXP_EXTRACT, and compare it."),
    "atomic": ("RE2 has no atomic groups", "Write (?:…)."),
}
# Errors of Python's `re` that RE2 reports as well.
_BROKEN: Final = {
    "missing ), unterminated": "a bracket ( is never closed",
    "unbalanced parenthesis": "a bracket ) was never opened",
    "nothing to repeat": "nothing stands before a sign of repetition",
    "unterminated character set": "a bracket [ is never closed",
    "bad character range": "a range of characters runs backwards",
    "bad escape (end of pattern)": "a backslash stands at the end",
}


def is_broken(pattern: str) -> bool:
    return _compiled(pattern) is None


def may_be_empty(pattern: str) -> bool:
    """Return whether the pattern may match the empty text somewhere."""
    asked = _compiled(pattern)
    return asked is not None and any(asked.fullmatch(text, len(text)) for text in ("", "a", " "))


def finds_places_alone(pattern: str) -> bool:
    """Return whether the pattern's empty matches are only at the text's start, its end or the ends of words."""
    return bool(_PLACES.fullmatch(pattern)) and _LINES not in pattern


def has_bad_rewrite(node: exp.Expr) -> bool:
    """Return whether REGEXP_REPLACE's rewrite has an invalid backslash; raise QueryValue unless the call is SAFE.

    A backslash must be followed by the number of a group or by another backslash.
    """
    rewrite, pattern = constant_text(node.args["replacement"]), constant_text(node.expression)
    if rewrite is None or pattern is None:
        return False
    known = {"\\", *map(str, range(min(count_groups(pattern), 9) + 1))}
    bad = any(escape[1] not in known for escape in _ESCAPED.finditer(rewrite))
    if bad and not is_safe(node):
        raise QueryValue("Invalid REGEXP_REPLACE rewrite: a backslash before no group", span=span_in_text(node))
    return bad


def group_may_be_empty(pattern: str) -> bool:
    """Return whether the pattern's only capturing group may match the empty text."""
    opened = next(at for at in _marks(pattern) if _captures(pattern, at))
    depth = 0
    for at in _marks(pattern):
        depth += (at >= opened) * ((pattern[at] == "(") - (pattern[at] == ")"))
        if at > opened and depth == 0:
            return may_be_empty(pattern[opened : at + 1])
    return True


def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return compiled_pattern(_PYTHON.sub("", pattern))
    except re.error:
        return None
