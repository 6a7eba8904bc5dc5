"""Nodes that are engine text with holes for trees.

A template is text of the rules alone. Names, texts, bytes and slots, whoever chose them, are nodes: parts that stand
in holes. `draft` prints trees with such nodes.
"""

import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from cordwood.bounded_cache import remember_short
from cordwood.sql.operations import Operation, doing
from cordwood.sql.plan import BlockFilter

# sqlglot's compiled nodes cannot be subclassed; no text can spell these names past `admit`.
FRAGMENT: Final = "$fragment"
OPTIONAL: Final = "$optional"
BLOCKS: Final = "$blocks"
VERBATIM: Final = "$verbatim"
# The arguments that a node of BLOCKS and one of VERBATIM have.
_FILTER: Final = "filter"
_WRITTEN: Final = "written"

AS_IT_IS: Final = "as_it_is"

# A part by its number; in `once` of the engines' rules, a part by its letter.
HOLE: Final = re.compile(r"\{(\d+)\}")
# Constants of the rules that may be literals inside a template: they end no quote, open no hole, escape nothing.
_PLAIN: Final = re.compile(r"[ !%&()*+,./0-9:;<=>?A-Za-z\[\]^_|~'\-]*", re.ASCII)


def fragment(template: str, *parts: exp.Expr, does: Operation | None = None) -> exp.Expr:
    """`{0}` stands for the first part, as often as it is written; parts are set in parentheses where needed.

    `does` is what the fragment does, where a later pass has to know.
    """
    if any(isinstance(piece, int) and piece >= len(parts) for piece in template_pieces(template)):
        raise ValueError(f"a hole without a part: {template}")
    made = exp.Anonymous(this=FRAGMENT, expressions=[exp.Literal.string(template), *parts])
    return made if does is None else doing(made, does)


def spliced(template: str, *parts: exp.Expr) -> exp.Expr:
    """The same, where the text of parts that are fragments becomes text of the template, in no parentheses."""
    texts: list[str] = []
    inner: list[exp.Expr] = []
    for part in parts:
        own, its_parts = (template_of(part), parts_of(part)) if is_fragment(part) else ("{0}", [part])
        texts.append(_renumbered(own, len(inner)))
        inner += its_parts
    return fragment(HOLE.sub(lambda hole: texts[int(hole[1])], template), *inner)


def listed(separator: str, parts: Sequence[exp.Expr]) -> exp.Expr:
    """All of them in one fragment, with the separator between."""
    return spliced(separator.join(f"{{{at}}}" for at in range(len(parts))), *parts)


def _renumbered(template: str, first: int) -> str:
    return HOLE.sub(lambda hole: f"{{{int(hole[1]) + first}}}", template)


# Long ones are lists, whose length a caller chooses.
@remember_short(longest=512, most=4096)
def template_pieces(template: str) -> tuple[str | int, ...]:
    """The template's text and, at every second place, the number of the part that stands in its hole."""
    return tuple(int(piece) if place % 2 else piece for place, piece in enumerate(HOLE.split(template)))


def holes(count: int, first: int = 0) -> str:
    """So many holes of a template, with commas between."""
    return ", ".join(f"{{{at}}}" for at in range(first, first + count))


def named(name: str, *, as_it_is: bool = False) -> exp.Identifier:
    """Return a name as a part: it is quoted, whatever it says.

    One that the engine cannot be given is spelled, unless it is of something that the engine knows by it already.
    """
    made = exp.Identifier(this=name, quoted=True)
    return keep_name(made) if as_it_is else made


def keep_name(name: exp.Identifier) -> exp.Identifier:
    """Let the name be written as it is."""
    name.meta[AS_IT_IS] = True
    return name


def text_part(text: str) -> exp.Expr:
    """Return a text as a part: it is a literal, whatever it says."""
    return exp.Literal.string(text)


def data_part(data: bytes) -> exp.Expr:
    """Return bytes as a part."""
    return exp.ByteString(this=data.decode("latin-1"))


def own_text(text: str) -> str:
    """Write a constant of the rules as a literal inside a template. Raises ValueError where it needs escapes."""
    if not _PLAIN.fullmatch(text):
        raise ValueError(f"no constant of the rules: {text!r}")
    return "'" + text.replace("'", "''") + "'"


def optional_predicate(parameter: exp.Parameter, test: exp.Expr, predicate: exp.Expr) -> exp.Expr:
    """Return the condition `(test OR predicate)`, which is printed as an `OptionalPredicate` of the plan."""
    return exp.Anonymous(this=OPTIONAL, expressions=[test, predicate, exp.Var(this=parameter.name)])


def block_filter(which: BlockFilter) -> exp.Expr:
    """Return the condition that a scan reads only these blocks; it stays a segment of its own in the plan."""
    return exp.Anonymous(this=BLOCKS, **{_FILTER: which})


def filter_of(node: exp.Expr) -> BlockFilter:
    which: BlockFilter = node.args[_FILTER]
    return which


def with_parts(node: exp.Expr, parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return the same fragment of other parts."""
    return fragment(template_of(node), *parts)


def verbatim(text: str) -> exp.Expr:
    """Return text of the engine's own, which is written as it is: braces in it are no holes."""
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
