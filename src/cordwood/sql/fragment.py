"""Nodes for engine SQL: templates with holes for trees.

A template contains only text of the rules. Names, texts, bytes and slots are always nodes that fill the holes. `draft`
prints trees with such nodes.
"""

import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from cordwood.bounded_cache import remember_short
from cordwood.sql.operations import Operation, doing
from cordwood.sql.plan import BlockFilter

# sqlglot's compiled classes cannot be subclassed. Admitted queries cannot contain these names.
FRAGMENT: Final = "$fragment"
OPTIONAL: Final = "$optional"
BLOCKS: Final = "$blocks"
VERBATIM: Final = "$verbatim"
# Keys of the arguments of BLOCKS and VERBATIM nodes.
_FILTER: Final = "filter"
_WRITTEN: Final = "written"

AS_IT_IS: Final = "as_it_is"

# A part by its number; in `once` of the engines' rules, a part by its letter.
HOLE: Final = re.compile(r"\{(\d+)\}")
# Constants of the rules that may be literals in a template: without holes, and without characters to escape.
_PLAIN: Final = re.compile(r"[ !%&()*+,./0-9:;<=>?A-Za-z\[\]^_|~'\-]*", re.ASCII)


def fragment(template: str, *parts: exp.Expr, does: Operation | None = None) -> exp.Expr:
    """Return a node for engine SQL in which `{0}` is the first part; parts are parenthesised where needed.

    A part may be used several times. `does` is the operation of the fragment, for passes that need to know it.
    """
    if any(isinstance(piece, int) and piece >= len(parts) for piece in template_pieces(template)):
        raise ValueError(f"a hole without a part: {template}")
    made = exp.Anonymous(this=FRAGMENT, expressions=[exp.Literal.string(template), *parts])
    return made if does is None else doing(made, does)


def spliced(template: str, *parts: exp.Expr) -> exp.Expr:
    """Return such a node; templates of parts that are fragments are merged into it, without parentheses."""
    texts: list[str] = []
    inner: list[exp.Expr] = []
    for part in parts:
        own, its_parts = (template_of(part), parts_of(part)) if is_fragment(part) else ("{0}", [part])
        texts.append(_renumbered(own, len(inner)))
        inner += its_parts
    return fragment(HOLE.sub(lambda hole: texts[int(hole[1])], template), *inner)


def listed(separator: str, parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return one fragment of all parts, with the separator between them."""
    return spliced(separator.join(f"{{{at}}}" for at in range(len(parts))), *parts)


def _renumbered(template: str, first: int) -> str:
    return HOLE.sub(lambda hole: f"{{{int(hole[1]) + first}}}", template)


# Long templates are not cached: they are lists whose length the caller chooses.
@remember_short(longest=512, most=4096)
def template_pieces(template: str) -> tuple[str | int, ...]:
    """Return the template's texts and, at every second index, the number of the part in a hole."""
    return tuple(int(piece) if place % 2 else piece for place, piece in enumerate(HOLE.split(template)))


def holes(count: int, first: int = 0) -> str:
    """Return so many holes of a template, separated by commas."""
    return ", ".join(f"{{{at}}}" for at in range(first, first + count))


def named(name: str, *, as_it_is: bool = False) -> exp.Identifier:
    """Return a name as a part, which is always quoted.

    It is printed as the engine's spelling of it, or unchanged with `as_it_is`, for names that the engine already knows.
    """
    made = exp.Identifier(this=name, quoted=True)
    return keep_name(made) if as_it_is else made


def keep_name(name: exp.Identifier) -> exp.Identifier:
    """Mark a name to be written unchanged."""
    name.meta[AS_IT_IS] = True
    return name


def text_part(text: str) -> exp.Expr:
    """Return a text as a part, which is always written as a literal."""
    return exp.Literal.string(text)


def data_part(data: bytes) -> exp.Expr:
    """Return bytes as a part."""
    return exp.ByteString(this=data.decode("latin-1"))


def own_text(text: str) -> str:
    """Return a constant of the rules as a literal of a template; raise ValueError if it would need escapes."""
    if not _PLAIN.fullmatch(text):
        raise ValueError(f"no constant of the rules: {text!r}")
    return "'" + text.replace("'", "''") + "'"


def optional_predicate(parameter: exp.Parameter, test: exp.Expr, predicate: exp.Expr) -> exp.Expr:
    """Return the condition `(test OR predicate)`, which is printed as an `OptionalPredicate` of the plan."""
    return exp.Anonymous(this=OPTIONAL, expressions=[test, predicate, exp.Var(this=parameter.name)])


def block_filter(which: BlockFilter) -> exp.Expr:
    """Return the condition that restricts a scan to these blocks; it is a segment of its own in the plan."""
    return exp.Anonymous(this=BLOCKS, **{_FILTER: which})


def filter_of(node: exp.Expr) -> BlockFilter:
    which: BlockFilter = node.args[_FILTER]
    return which


def with_parts(node: exp.Expr, parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return the same fragment with other parts."""
    return fragment(template_of(node), *parts)


def verbatim(text: str) -> exp.Expr:
    """Return text of the engine itself, which is written unchanged: its braces are not holes."""
    return exp.Anonymous(this=VERBATIM, **{_WRITTEN: text})


def written_of(node: exp.Expr) -> str:
    text: str = node.args[_WRITTEN]
    return text


def is_fragment(node: object) -> bool:
    return isinstance(node, exp.Anonymous) and node.this == FRAGMENT


def template_of(node: exp.Expr) -> str:
    text: str = node.expressions[0].this
    return text


def parts_of(node: exp.Expr) -> list[exp.Expr]:
    return node.expressions[1:]
