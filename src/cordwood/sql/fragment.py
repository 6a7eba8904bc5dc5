"""A node that is an engine's own text with holes for trees, printed as it stands."""

import re
from collections.abc import Callable
from typing import Final

from sqlglot import exp

from cordwood.errors import QueryUnsupported

# sqlglot's compiled nodes cannot be subclassed; no text can spell this name past `admit`.
FRAGMENT: Final = "$fragment"

_HOLE: Final = re.compile(r"\{(\d+)\}")
_NAME: Final = r'(?:\w+|"(?:[^"]|"")*")'
_ATOM: Final = re.compile(rf"{_NAME}(?:\.{_NAME})*|'(?:[^']|'')*'")
_CLOSERS: Final = {"(": ")", "[": "]"}

# What a template writes for these where they are text and no hole: `literal_text` sees to it. Halves of
# surrogate pairs: `parse` lets no text have them.
OPEN_BRACE: Final = "\ud800"
AT_SIGN: Final = "\ud801"

# Parts that are said twice double with every nesting; this is where it ends.
LONGEST: Final = 1_000_000

Printer = Callable[[exp.Expr], str]


def fragment(template: str, *parts: exp.Expr) -> exp.Expr:
    """`{0}` stands for the first part, as often as it is written; parts are set in parentheses where needed."""
    return exp.Anonymous(this=FRAGMENT, expressions=[exp.Literal.string(template), *parts])


def holes(count: int, first: int = 0) -> str:
    """So many holes of a template, with commas between."""
    return ", ".join(f"{{{at}}}" for at in range(first, first + count))


def literal_text(value: str) -> str:
    """A text as a literal inside a template."""
    return "'" + _plain(value.replace("'", "''")) + "'"


def literal_name(value: str) -> str:
    """A quoted name inside a template."""
    return '"' + _plain(value.replace('"', '""')) + '"'


def _plain(value: str) -> str:
    return value.replace("{", OPEN_BRACE).replace("@", AT_SIGN)


def is_fragment(node: object) -> bool:
    return isinstance(node, exp.Anonymous) and node.this == FRAGMENT


def template_of(node: exp.Expr) -> str:
    text: str = node.expressions[0].this
    return text


def print_tree(tree: exp.Expr, printer: Printer) -> str:
    """Print with the dialect's printer, every fragment by its own text. Uses up the tree."""
    if is_fragment(tree):
        return _print_fragment(tree, printer)
    for node in _outermost(tree):
        text = _print_fragment(node, printer)
        node.replace(exp.Var(this=text if is_closed(text) else f"({text})"))
    return printer(tree)


def _outermost(tree: exp.Expr) -> list[exp.Expr]:
    """The fragments that stand in no other fragment."""
    return list(filter(is_fragment, tree.walk(prune=is_fragment)))


def _print_fragment(node: exp.Expr, printer: Printer) -> str:
    template = template_of(node)
    parts = node.expressions[1:]
    texts = [print_tree(part, printer) for part in parts]

    def fill(hole: re.Match[str]) -> str:
        at = int(hole[1])
        if at >= len(texts):
            return hole[0]  # a count in a regular expression
        text = texts[at]
        alone = isinstance(parts[at], exp.Ordered) or _stands_alone(template, hole) or is_closed(text)
        return text if alone else f"({text})"

    filled = _HOLE.sub(fill, template).replace(OPEN_BRACE, "{").replace(AT_SIGN, "@")
    if len(filled) > LONGEST:
        raise QueryUnsupported("An expression nested so deeply is not supported", hint="Split it into sub-queries.")
    return filled


def _stands_alone(template: str, hole: re.Match[str]) -> bool:
    """Whether commas or brackets on both sides keep the hole apart."""
    before = template[: hole.start()].rstrip()[-1:]
    after = template[hole.end() :].lstrip()[:1]
    return before in ("(", ",", "[", "") and after in (")", ",", "]", "")


def is_closed(text: str) -> bool:
    """Whether the text is one atom, called or subscripted, or one bracketed whole: no operator can reach into it."""
    atom = _ATOM.match(text)
    at = atom.end() if atom else 0
    if at == len(text):
        return True
    while at < len(text) and text[at] in _CLOSERS:
        closed = _closing(text, at)
        if closed < 0:
            return False
        at = closed + 1
    return at == len(text)


def _closing(text: str, opened: int) -> int:
    """Where the bracket at `opened` closes, quotes skipped; -1 when it never does."""
    stack: list[str] = []
    at = opened
    while at < len(text):
        char = text[at]
        if char in "'\"":
            at = text.index(char, at + 1)
        elif char in _CLOSERS:
            stack.append(_CLOSERS[char])
        elif stack and char == stack[-1]:
            stack.pop()
            if not stack:
                return at
        at += 1
    return -1
