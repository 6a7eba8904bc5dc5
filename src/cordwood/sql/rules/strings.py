"""String functions: constant folding, checks of arguments, and static analysis of RE2 patterns."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.bounded_cache import compile_pattern
from cordwood.errors import BadQueryValue
from cordwood.sql.datatypes import inherit_metadata
from cordwood.sql.lowering import LoweringRule, raise_unsupported, returns_null_on_error, span_of_node_or_descendant
from cordwood.sql.nodes import constant_text, is_null

# The maximum length of a constant text that is computed at compile time. Longer texts are computed by the engine.
_MAX_FOLDED_TEXT_CHARACTERS: Final = 10_000
# The metadata key that marks a call as known not to be constant. Without it, a long chain of calls would be traversed
# again for each of its calls.
_NOT_CONSTANT_METADATA_KEY: Final = "is_open"


def _fold_constant(node: exp.Expr) -> exp.Expr:
    text = _constant_text_of_concatenation(node)
    return node if text is None else inherit_metadata(exp.Literal.string(text), node)


def _constant_text_of_concatenation(node: exp.Expr) -> str | None:
    """Return the constant text of a literal or a concatenation; None if it is not constant, or is too long."""
    if isinstance(node, exp.Paren):
        return _constant_text_of_concatenation(node.this)
    if not isinstance(node, (exp.Concat, exp.DPipe, exp.Trim)):
        return constant_text(node)
    if node.meta_get(_NOT_CONSTANT_METADATA_KEY) or (
        isinstance(node, exp.Trim) and any(map(node.args.get, ("expression", "position")))
    ):
        return None
    texts: list[str] = []
    for part in _concatenated_operands(node):
        text = _constant_text_of_concatenation(part)
        if text is None or sum(map(len, texts)) + len(text) > _MAX_FOLDED_TEXT_CHARACTERS:
            node.meta[_NOT_CONSTANT_METADATA_KEY] = True
            return None
        texts.append(text)
    return texts[0].strip() if isinstance(node, exp.Trim) else "".join(texts)


def _concatenated_operands(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Concat):
        return list(node.expressions)
    return [node.this, node.expression] if isinstance(node, exp.DPipe) else [node.this]


# Rules that are applied before the arguments of a call are lowered.
CONSTANT_FOLDING_RULES: Final[Mapping[type[exp.Expr], LoweringRule]] = dict.fromkeys(
    (exp.Concat, exp.DPipe, exp.Trim), _fold_constant
)


def strip_contains_substr_lower_calls(node: exp.Expr) -> exp.Expr:
    """Remove the LOWER calls that sqlglot puts around both arguments of CONTAINS_SUBSTR; refuse to search for NULL."""
    if node.args.get("json_scope") is not None:
        raise_unsupported(node, "CONTAINS_SUBSTR with a json_scope")
    for name in ("this", "expression"):
        part = node.args[name]
        node.set(name, part.this if isinstance(part, exp.Lower) else part)
    if is_null(node.expression):
        raise BadQueryValue(
            "The value that CONTAINS_SUBSTR looks for must not be NULL.", span=span_of_node_or_descendant(node)
        )
    return node


DUPLICATE_CHARACTER_MESSAGE: Final = "Duplicate character in TRANSLATE source characters"


def read_translate_arguments(node: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    source, target = node.args.get("from_") or node.args.get("from"), node.args.get("to")
    if source is None or target is None:
        raise_unsupported(node, "TRANSLATE with these arguments")
    return source, target


def has_duplicate_characters(node: exp.Expr, source: exp.Expr) -> bool:
    """Return whether the source characters of TRANSLATE are constant and repeat a character, which is an error.

    Return True only if the call is inside SAFE. Otherwise, raise BadQueryValue for such an error.
    """
    characters = constant_text(source) or ""
    has_duplicate = len(set(characters)) < len(characters)
    if has_duplicate and not returns_null_on_error(node):
        raise BadQueryValue(DUPLICATE_CHARACTER_MESSAGE, span=span_of_node_or_descendant(node))
    return has_duplicate


_NET_FUNCTION_BY_NODE_CLASS: Final[dict[type[exp.Expr], str]] = {exp.Host: "HOST", exp.RegDomain: "REG_DOMAIN"}


def as_net_call(node: exp.Expr) -> exp.Expr:
    """Return the call `NET.X(…)` as an Anonymous node named `NET.X`, whatever its class in sqlglot."""
    inner = node.this
    if isinstance(inner, exp.Anonymous):
        return inherit_metadata(
            exp.Anonymous(this=f"NET.{str(inner.this).upper()}", expressions=inner.expressions), node
        )
    name = _NET_FUNCTION_BY_NODE_CLASS.get(type(inner))
    if name is None:
        raise_unsupported(node, "This NET function")
    return inherit_metadata(exp.Anonymous(this=f"NET.{name}", expressions=[inner.this]), inner)


def refuse_public_suffix_function(node: exp.Expr) -> exp.Expr:
    """Refuse a function that needs the list of public suffixes, which changes every week."""
    return raise_unsupported(node, f"{node.this}, which needs the list of public suffixes,")


# Syntax that RE2 has but Python's `re` lacks. It is removed from a pattern before Python compiles the pattern.
_NON_PYTHON_REGEX_PATTERN: Final = re.compile(
    r"\\[pPzQECA](\{\w+\}|\w)?|\[\[:\^?\w+:\]\]|\(\?[a-zA-Z-]+\)|(?<=\(\?)[UimsR-]+:"
)
# Patterns whose empty matches are at the same positions on all engines. Such a pattern consists of anchors, or begins
# with `^` and so matches only once, at the start.
_ANCHORED_EMPTY_MATCH_PATTERN: Final = re.compile(r"(?:[\^$|()]|\\[bAz]|\(\?[a-zA-Z-]*:)*|\^[^|]*")
_MULTI_LINE_FLAG: Final = "(?m"
_BACKSLASH_ESCAPE_PATTERN: Final = re.compile(r"\\(.?)", re.DOTALL)


def count_capturing_groups(pattern: str) -> int:
    return sum(_is_capturing_group_start(pattern, index) for index in _find_group_delimiters(pattern))


def may_capturing_group_be_unmatched(pattern: str) -> bool:
    """Return whether the pattern may match while one of its capturing groups does not.

    This is possible if the group, or a group around it, is optional or is one of several alternatives.
    """
    opened = [_GroupAnalysis(is_capturing=False)]
    for index in _find_group_delimiters(pattern):
        if pattern[index] == "(":
            opened.append(_GroupAnalysis(is_capturing=_is_capturing_group_start(pattern, index)))
        elif pattern[index] == "|":
            opened[-1].has_alternatives = True
        elif len(opened) > 1:
            closed = opened.pop()
            opened[-1].add_nested_group(closed, can_be_left_out=pattern[index + 1 : index + 2] in tuple("?*{"))
    return opened[0].may_match_without_group


class _GroupAnalysis(msgspec.Struct):
    is_capturing: bool
    has_group: bool = False
    has_alternatives: bool = False
    has_optional_group: bool = False

    @property
    def may_match_without_group(self) -> bool:
        return self.has_optional_group or (self.has_group and self.has_alternatives)

    def add_nested_group(self, closed: "_GroupAnalysis", *, can_be_left_out: bool) -> None:
        has_group = closed.is_capturing or closed.has_group
        self.has_group = self.has_group or has_group
        self.has_optional_group = (
            self.has_optional_group or closed.may_match_without_group or (has_group and can_be_left_out)
        )


def _is_capturing_group_start(pattern: str, index: int) -> bool:
    if pattern[index] != "(":
        return False
    named = pattern.startswith("?P<", index + 1) or pattern.startswith("?<", index + 1)
    return named or not pattern.startswith("?", index + 1)


def _find_group_delimiters(pattern: str) -> Iterator[int]:
    """Yield the positions of unescaped `(`, `)` and `|` outside of character classes."""
    index, in_class = 0, False
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            index += pattern[index + 1 : index + 2] == "^"
            index += pattern[index + 1 : index + 2] == "]"
        elif char in "()|":
            yield index
        index += 1


def find_re2_pattern_error(pattern: str) -> tuple[str, str | None] | None:
    """Return the message and hint of an error that RE2 would report in the pattern; None if no such error is found."""
    unsupported = _NON_RE2_REGEX_PATTERN.search(_ESCAPED_BACKSLASH_PATTERN.sub("  ", pattern))
    if unsupported is not None:
        subject, hint = _UNSUPPORTED_SYNTAX_ERROR_BY_GROUP[
            next(name for name, matched in unsupported.groupdict().items() if matched)
        ]
        return f"{subject}: {unsupported[0]}", hint
    try:
        compile_pattern(_NON_PYTHON_REGEX_PATTERN.sub("", pattern))
    except re.error as error:
        message = next(
            (
                description
                for message_start, description in _RE2_ERROR_BY_PYTHON_ERROR.items()
                if error.msg.startswith(message_start)
            ),
            None,
        )
        return (message, None) if message else None
    return None


_ESCAPED_BACKSLASH_PATTERN: Final = re.compile(r"\\\\")
_NON_RE2_REGEX_PATTERN: Final = re.compile(r"(?P<look>\(\?<?[=!])|(?P<again>(?<!\\)\\[1-9])|(?P<atomic>\(\?>)")
_UNSUPPORTED_SYNTAX_ERROR_BY_GROUP: Final = {
    "look": (
        "RE2 has no lookahead or lookbehind",
        "Match what is wanted with one REGEXP_CONTAINS, and exclude the rest with AND NOT REGEXP_CONTAINS(…).",
    ),
    "again": ("RE2 has no references back to a group", "Extract the group with REGEXP_EXTRACT, and compare it."),
    "atomic": ("RE2 has no atomic groups", "Write (?:…)."),
}
# The messages of Python's `re` for errors that RE2 reports as well, with RE2's messages.
_RE2_ERROR_BY_PYTHON_ERROR: Final = {
    "missing ), unterminated": "a bracket ( is never closed",
    "unbalanced parenthesis": "a bracket ) was never opened",
    "nothing to repeat": "nothing stands before a sign of repetition",
    "unterminated character set": "a bracket [ is never closed",
    "bad character range": "a range of characters runs backwards",
    "bad escape (end of pattern)": "a backslash stands at the end",
}


def is_invalid_pattern(pattern: str) -> bool:
    return _compile_or_none(pattern) is None


def may_match_empty_text(pattern: str) -> bool:
    """Return whether the pattern may match the empty text somewhere."""
    compiled = _compile_or_none(pattern)
    return compiled is not None and any(compiled.fullmatch(text, len(text)) for text in ("", "a", " "))


def has_only_anchored_empty_matches(pattern: str) -> bool:
    """Return whether the pattern matches the empty text only at the start or end of the text or at word boundaries."""
    return bool(_ANCHORED_EMPTY_MATCH_PATTERN.fullmatch(pattern)) and _MULTI_LINE_FLAG not in pattern


def has_invalid_regexp_rewrite(node: exp.Expr) -> bool:
    """Return whether the replacement in REGEXP_REPLACE has an invalid backslash.

    A backslash must be followed by the number of a group or by another backslash. Return True only if the call is
    inside SAFE. Otherwise, raise BadQueryValue for an invalid backslash.
    """
    rewrite, pattern = constant_text(node.args["replacement"]), constant_text(node.expression)
    if rewrite is None or pattern is None:
        return False
    valid_escapes = {"\\", *map(str, range(min(count_capturing_groups(pattern), 9) + 1))}
    is_bad = any(escape[1] not in valid_escapes for escape in _BACKSLASH_ESCAPE_PATTERN.finditer(rewrite))
    if is_bad and not returns_null_on_error(node):
        raise BadQueryValue(
            "Invalid REGEXP_REPLACE rewrite: a backslash before no group", span=span_of_node_or_descendant(node)
        )
    return is_bad


def may_group_match_empty_text(pattern: str) -> bool:
    """Return whether the pattern's only capturing group may match the empty text."""
    opened = next(index for index in _find_group_delimiters(pattern) if _is_capturing_group_start(pattern, index))
    depth = 0
    for index in _find_group_delimiters(pattern):
        depth += (index >= opened) * ((pattern[index] == "(") - (pattern[index] == ")"))
        if index > opened and depth == 0:
            return may_match_empty_text(pattern[opened : index + 1])
    return True


def _compile_or_none(pattern: str) -> re.Pattern[str] | None:
    try:
        return compile_pattern(_NON_PYTHON_REGEX_PATTERN.sub("", pattern))
    except re.error:
        return None
