"""Nodes for engine SQL: templates with holes for trees.

A template contains only text of the rules. Names, texts, bytes and slots are always nodes that fill the holes.
`tree_printer` prints trees with such nodes.

Besides the printer, only this module reads templates. The properties that it derives from their text limit the plan's
size, or prevent a rewrite that would change the result. The operation of a fragment is never derived from text: see
`operations`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.bounded_cache import remember_short
from cordwood.sql.operations import Operation, with_operation
from cordwood.sql.plan import BlockFilter

# sqlglot's compiled classes cannot be subclassed. Admitted queries cannot contain these names.
FRAGMENT: Final = "$fragment"
OPTIONAL: Final = "$optional"
BLOCKS: Final = "$blocks"
VERBATIM: Final = "$verbatim"
# Keys of the arguments of BLOCKS and VERBATIM nodes.
_FILTER: Final = "filter"
_VERBATIM_TEXT: Final = "written"

VERBATIM_NAME: Final = "verbatim_name"

# A part by its number; in `once` of the engines' rules, a part by its letter.
HOLE: Final = re.compile(r"\{(\d+)\}")
# Constants of the rules that may be literals in a template: without holes, and without characters to escape.
_UNESCAPED: Final = re.compile(r"[ !%&()*+,./0-9:;<=>?A-Za-z\[\]^_|~'\-]*", re.ASCII)


def fragment(template: str, *parts: exp.Expr, operation: Operation | None = None) -> exp.Expr:
    """Return a node for engine SQL in which `{0}` is the first part; parts are parenthesised where needed.

    A part may be used several times. `operation` is the operation of the fragment, for passes that need to know it.
    """
    if any(isinstance(segment, int) and segment >= len(parts) for segment in split_template(template)):
        raise ValueError(f"a hole without a part: {template}")
    node = exp.Anonymous(this=FRAGMENT, expressions=[exp.Literal.string(template), *parts])
    return node if operation is None else with_operation(node, operation)


def merge_fragments(template: str, *parts: exp.Expr) -> exp.Expr:
    """Return a fragment; templates of parts that are fragments are merged into it, without parentheses."""
    texts: list[str] = []
    merged_parts: list[exp.Expr] = []
    for part in parts:
        inner_template, inner_parts = (template_of(part), parts_of(part)) if is_fragment(part) else ("{0}", [part])
        texts.append(_renumber_holes(inner_template, len(merged_parts)))
        merged_parts += inner_parts
    return fragment(HOLE.sub(lambda hole: texts[int(hole[1])], template), *merged_parts)


def join_fragments(separator: str, parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return one fragment of all parts, with the separator between them."""
    return merge_fragments(separator.join(f"{{{index}}}" for index in range(len(parts))), *parts)


def _renumber_holes(template: str, first: int) -> str:
    return HOLE.sub(lambda hole: f"{{{int(hole[1]) + first}}}", template)


# Long templates are not cached: they are lists whose length the caller chooses.
@remember_short(max_length=512, max_entries=4096)
def split_template(template: str) -> tuple[str | int, ...]:
    """Return the template's texts and, at every second index, the number of the part in a hole."""
    return tuple(int(segment) if index % 2 else segment for index, segment in enumerate(HOLE.split(template)))


def holes(count: int, first: int = 0) -> str:
    """Return so many holes of a template, separated by commas."""
    return ", ".join(f"{{{index}}}" for index in range(first, first + count))


def name_part(name: str, *, is_verbatim: bool = False) -> exp.Identifier:
    """Return a name as a part, which is always quoted.

    It is printed as the engine's spelling of it, or unchanged with `is_verbatim`, for names that the engine already
    knows.
    """
    identifier = exp.Identifier(this=name, quoted=True)
    return mark_verbatim_name(identifier) if is_verbatim else identifier


def mark_verbatim_name(name: exp.Identifier) -> exp.Identifier:
    """Mark a name to be written unchanged."""
    name.meta[VERBATIM_NAME] = True
    return name


def text_part(text: str) -> exp.Expr:
    """Return a text as a part, which is always written as a literal."""
    return exp.Literal.string(text)


def data_part(data: bytes) -> exp.Expr:
    """Return bytes as a part."""
    return exp.ByteString(this=data.decode("latin-1"))


def quoted_constant(text: str) -> str:
    """Return a constant of the rules as a literal of a template; raise ValueError if it would need escapes."""
    if not _UNESCAPED.fullmatch(text):
        raise ValueError(f"no constant of the rules: {text!r}")
    return "'" + text.replace("'", "''") + "'"


def optional_predicate(parameter: exp.Parameter, test: exp.Expr, predicate: exp.Expr) -> exp.Expr:
    """Return the condition `(test OR predicate)`, which is printed as an `OptionalPredicate` of the plan."""
    return exp.Anonymous(this=OPTIONAL, expressions=[test, predicate, exp.Var(this=parameter.name)])


def block_filter(filter_: BlockFilter) -> exp.Expr:
    """Return the condition that restricts a scan to these blocks; it is a segment of its own in the plan."""
    return exp.Anonymous(this=BLOCKS, **{_FILTER: filter_})


def block_filter_of(node: exp.Expr) -> BlockFilter:
    filter_: BlockFilter = node.args[_FILTER]
    return filter_


def with_parts(node: exp.Expr, parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return the same fragment with other parts."""
    return fragment(template_of(node), *parts)


def verbatim(text: str) -> exp.Expr:
    """Return text of the engine itself, which is written unchanged: its braces are not holes."""
    return exp.Anonymous(this=VERBATIM, **{_VERBATIM_TEXT: text})


def verbatim_text(node: exp.Expr) -> str:
    text: str = node.args[_VERBATIM_TEXT]
    return text


def is_fragment(node: object) -> bool:
    return isinstance(node, exp.Anonymous) and node.this == FRAGMENT


def template_of(node: exp.Expr) -> str:
    text: str = node.expressions[0].this
    return text


def parts_of(node: exp.Expr) -> list[exp.Expr]:
    return node.expressions[1:]


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
    hole_counts = Counter(int(match[1]) for match in HOLE.finditer(template))
    lambda_start = template.find(_LAMBDA_KEYWORD)
    if lambda_start >= 0:
        # DuckDB binds the body of a lambda twice.
        hole_counts += Counter(int(match[1]) for match in HOLE.finditer(template, lambda_start))
    hole_counts += Counter(int(match[1] or match[2]) for match in _REPEATED_HOLE.finditer(template))
    return Measure(len(template), Counter(_KEYWORD.findall(template)), hole_counts)


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
