"""Nodes for engine SQL: templates with holes for trees.

A template contains only text of the rules. Names, texts, bytes and slots are always nodes that fill the holes.
`tree_printer` prints trees with such nodes.
"""

import re
from collections.abc import Sequence
from typing import Final

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
    """Return such a node; templates of parts that are fragments are merged into it, without parentheses."""
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
