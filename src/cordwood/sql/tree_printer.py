"""The printer of lowered trees. It works in two steps, so that user text is only written as a quoted name or literal.

First the tree becomes a `TokenizedSql`, in which a token stands for each name, text, bytes literal, slot and segment of
the plan. Then one pass over this text replaces each token by its written form, which is not scanned again. Parentheses,
commas and quotes are therefore counted only in text of the templates, and user text reaches the engine only as a name
or a literal that the engine's `SqlQuoting` wrote.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count, groupby
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.sql.budget import charge_characters, charge_nodes
from cordwood.sql.lowering import (
    BLOCK_SEGMENT_NODE_NAME,
    FRAGMENT_NODE_NAME,
    OPTIONAL_PREDICATE_NODE_NAME,
    VERBATIM_NAME_METADATA_KEY,
    VERBATIM_SQL_NODE_NAME,
    block_segment_of,
    fragment_parts,
    fragment_template,
    is_fragment,
    split_template,
    verbatim_sql_of,
)
from cordwood.sql.nodes import replace_node
from cordwood.sql.plan import (
    BlockFilter,
    OptionalPredicate,
    PartialRowsSelect,
    SqlSegment,
    SqlSegments,
    UncoveredBlocksCondition,
    print_segments,
)

_NAME_PATTERN: Final = r'(?:\w+|"(?:[^"]|"")*")'
_NAME_OR_TEXT_LITERAL_PATTERN: Final = re.compile(rf"{_NAME_PATTERN}(?:\.{_NAME_PATTERN})*|'(?:[^']|'')*'")
_CLOSING_BRACKETS: Final = {"(": ")", "[": "]"}
_NUMBER_PATTERN: Final = re.compile(
    r"-?(?:0[xX][0-9a-fA-F]+|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|inf|nan)", re.ASCII
)
_WORD_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# The prefix of placeholder tokens. It is random, so no template contains it. User texts are not part of the SQL in
# which tokens are searched for.
_PLACEHOLDER_TOKEN_PREFIX: Final = f"_{secrets.token_hex(8)}_"
_PLACEHOLDER_TOKEN_PATTERN: Final = re.compile(rf"{_PLACEHOLDER_TOKEN_PREFIX}(\d+_\d+)_")
_print_serial_number_counter: Final = count()

# The limit on the length of a filled template. A template that repeats a part can double the length with every nesting.
MAX_FILLED_TEMPLATE_CHARACTERS: Final = 1_000_000
_MAX_PRINTED_TREE_CHARACTERS: Final = 4 * MAX_FILLED_TEMPLATE_CHARACTERS

Printer = Callable[[exp.Expr], str]


class SqlQuoting(Protocol):
    """The engine's spelling of names, texts, bytes and slots."""

    # Matches a quoted text, a quoted name or a comment, from beginning to end, as the engine's lexer does.
    quoted_or_comment_pattern: re.Pattern[str]

    def encode_identifier(self, name: str) -> str:
        """Return the identifier that the engine uses for a name; different names have different identifiers."""

    def quote_name(self, name: str) -> str:
        """Return an identifier in quotes; `name` is a result of `encode_identifier`."""

    def quote_text(self, text: str) -> str:
        """Return an SQL expression whose value is the text, usually a literal."""

    def quote_bytes(self, data: bytes) -> str:
        """Return an SQL expression whose value is the bytes."""

    def parameter_placeholder(self, slot: exp.Parameter) -> str:
        """Return the engine's placeholder for the value of a slot. The name of a slot is a plain word."""


class PrintedTree(msgspec.Struct, frozen=True):
    """The SQL of a tree, as segments of a plan, and the names of the slots that occur in it."""

    segments: SqlSegments
    slot_names: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The SQL with each optional predicate in full, as `(null_test OR predicate)`."""
        return print_segments(self.segments)


class _NamePart(msgspec.Struct, frozen=True):
    name: str


class _TextPart(msgspec.Struct, frozen=True):
    text: str


class _SlotPart(msgspec.Struct, frozen=True):
    name: str
    sql: str


class _VerbatimPart(msgspec.Struct, frozen=True):
    sql: str


class _OptionalPredicatePart(msgspec.Struct, frozen=True):
    """An optional predicate: the SQL of its NULL test and of the predicate itself, both with placeholder tokens."""

    parameter: str
    null_test: str
    predicate: str


_TokenPart = (
    _NamePart
    | _TextPart
    | _SlotPart
    | _VerbatimPart
    | _OptionalPredicatePart
    | BlockFilter
    | UncoveredBlocksCondition
    | PartialRowsSelect
    | bytes
)


def print_tree(tree: exp.Expr, printer: Printer, quoting: SqlQuoting) -> PrintedTree:
    """Print a tree: fragments are printed by their templates, all other nodes by `printer`. Mutates the tree."""
    tokenized = TokenizedSql(tree, printer, quoting)
    return tokenized.replace_placeholder_tokens(tokenized.text)


class TokenizedSql:
    """The SQL of a tree in which placeholder tokens stand for names, texts, bytes, slots and segments of the plan.

    Creating a `TokenizedSql` mutates the tree.
    """

    def __init__(self, tree: exp.Expr, printer: Printer, quoting: SqlQuoting) -> None:
        self._print_node = printer
        self._sql_quoting = quoting
        self._print_serial_number = next(_print_serial_number_counter)
        self._token_number_by_part: dict[_TokenPart, int] = {}
        self._printed_slot_names: set[str] = set()
        self._printed_characters = 0
        # The nodes that hold text that is already printed, by object id. This mapping keeps them alive, because Python
        # could otherwise reuse their ids.
        self._printed_nodes_by_id: dict[int, exp.Var] = {}
        self.text = self._print_tokenized(tree)

    def replace_placeholder_tokens(self, text: str) -> PrintedTree:
        """Return `text` as segments, with SQL or a segment of the plan in place of each placeholder token.

        `text` is the tokenized SQL, to which the caller may have added SQL of its own.
        """
        self._printed_slot_names, self._printed_characters = set(), 0
        segments = self._split_segments(text, list(self._token_number_by_part))
        return PrintedTree(segments, frozenset(self._printed_slot_names))

    def _split_segments(self, text: str, parts: Sequence[_TokenPart]) -> SqlSegments:
        self._check_no_token_is_quoted(text)
        segments: list[SqlSegment] = []
        for index, text_or_token in enumerate(_PLACEHOLDER_TOKEN_PATTERN.split(text)):
            segments.append(
                self._part_segment(parts[self._part_number(text_or_token)], parts) if index % 2 else text_or_token
            )
        return _merge_adjacent_texts(segments)

    def _part_segment(self, part: _TokenPart, parts: Sequence[_TokenPart]) -> SqlSegment:
        if isinstance(part, (BlockFilter, UncoveredBlocksCondition, PartialRowsSelect)):
            return part
        if isinstance(part, _OptionalPredicatePart):
            sides = (self._split_segments(side, parts) for side in (part.null_test, part.predicate))
            return OptionalPredicate(part.parameter, *sides)
        if isinstance(part, _SlotPart):
            self._printed_slot_names.add(part.name)
        sql = self._part_sql(part)
        charge_characters(len(sql))
        self._printed_characters += len(sql)
        if self._printed_characters > _MAX_PRINTED_TREE_CHARACTERS:
            raise _too_long_error()
        return sql

    def _part_number(self, token: str) -> int:
        serial, number = map(int, token.split("_"))
        if serial != self._print_serial_number:
            raise ValueError("a tree was printed before")
        return number

    def _check_no_token_is_quoted(self, text: str) -> None:
        """Raise ValueError for a token in quotes or in a comment, where the SQL that replaces it would be wrong."""
        if any(
            _PLACEHOLDER_TOKEN_PREFIX in match[0]
            for match in self._sql_quoting.quoted_or_comment_pattern.finditer(text)
        ):
            raise ValueError("a part is quoted")

    def _part_sql(self, part: _NamePart | _TextPart | _SlotPart | _VerbatimPart | bytes) -> str:
        if isinstance(part, _NamePart):
            return self._sql_quoting.quote_name(part.name)
        if isinstance(part, _TextPart):
            return self._sql_quoting.quote_text(part.text)
        if isinstance(part, (_SlotPart, _VerbatimPart)):
            return part.sql
        return self._sql_quoting.quote_bytes(part)

    def _print_tokenized(self, tree: exp.Expr) -> str:
        """Return the SQL of a tree with placeholder tokens. A node that is a part of two fragments is printed twice."""
        text = self._print_without_sqlglot(tree)
        if text is not None:
            return text
        nodes = list(tree.walk(prune=_prints_own_children))
        charge_nodes(len(nodes))
        for node in nodes:
            special = self._print_without_sqlglot(node)
            if special is not None:
                is_operand = not is_fragment(node) or self._is_single_operand(special)
                printed = exp.Var(this=special if is_operand else f"({special})")
                self._printed_nodes_by_id[id(printed)] = printed
                replace_node(node, printed)
        sql = self._print_node(tree)
        charge_characters(len(sql))
        return sql

    def _print_without_sqlglot(self, node: exp.Expr) -> str | None:
        """Return the SQL of a node that this module prints without sqlglot; None for other nodes."""
        if isinstance(node, exp.Anonymous):
            return self._fill_template(node) if node.this == FRAGMENT_NODE_NAME else self._print_plan_node(node)
        if isinstance(node, exp.Literal) and not node.is_string:
            return _require_number(node)
        if isinstance(node, exp.Var):
            return node.name if id(node) in self._printed_nodes_by_id else _require_word(node.name)
        part = self._tokenized_part(node)
        return None if part is None else self._token_for(part)

    def _tokenized_part(self, node: exp.Expr) -> _TokenPart | None:
        """Return the name, text, slot or bytes that a placeholder token replaces; None for any other node."""
        if isinstance(node, exp.Identifier):
            return _NamePart(
                node.name
                if node.meta_get(VERBATIM_NAME_METADATA_KEY)
                else self._sql_quoting.encode_identifier(node.name)
            )
        if isinstance(node, exp.Literal):
            return _TextPart(node.this)
        if isinstance(node, exp.Parameter):
            return _SlotPart(_require_word(node.name), self._sql_quoting.parameter_placeholder(node))
        return node.this.encode("latin-1") if isinstance(node, exp.ByteString) else None

    def _print_plan_node(self, node: exp.Anonymous) -> str | None:
        """Return the placeholder token for a segment of the plan or for verbatim SQL; None for any other node."""
        if node.this == BLOCK_SEGMENT_NODE_NAME:
            return self._token_for(block_segment_of(node))
        if node.this == VERBATIM_SQL_NODE_NAME:
            return self._token_for(_VerbatimPart(verbatim_sql_of(node)))
        if node.this != OPTIONAL_PREDICATE_NODE_NAME:
            return None
        test, predicate, parameter = node.expressions
        return self._token_for(
            _OptionalPredicatePart(
                _require_word(parameter.name), self._print_condition(test), self._print_condition(predicate)
            )
        )

    def _print_condition(self, condition: exp.Expr) -> str:
        printed = self._print_tokenized(condition)
        return printed if self._is_single_operand(printed) else f"({printed})"

    def _token_for(self, part: _TokenPart) -> str:
        return f"{_PLACEHOLDER_TOKEN_PREFIX}{self._print_serial_number}_{self._token_number_by_part.setdefault(part, len(self._token_number_by_part))}_"

    def _fill_template(self, node: exp.Expr) -> str:
        segments = split_template(fragment_template(node))
        parts = fragment_parts(node)
        texts = [self._print_tokenized(part) for part in parts]
        sql = "".join(
            segment
            if isinstance(segment, str)
            else self._parenthesise_part(texts[segment], parts[segment], segments, index)
            for index, segment in enumerate(segments)
        )
        charge_characters(len(sql))
        if len(sql) > MAX_FILLED_TEMPLATE_CHARACTERS:
            raise _too_long_error()
        return sql

    def _parenthesise_part(self, text: str, part: exp.Expr, segments: Sequence[str | int], index: int) -> str:
        needs_no_parentheses = (
            isinstance(part, exp.Ordered) or _is_placeholder_delimited(segments, index) or self._is_single_operand(text)
        )
        return text if needs_no_parentheses else f"({text})"

    def _is_single_operand(self, text: str) -> bool:
        return is_single_operand(text, self._sql_quoting.quoted_or_comment_pattern)


def _prints_own_children(node: exp.Expr) -> bool:
    """Return whether this module prints the node with its children, so that sqlglot must not visit the children."""
    return isinstance(node, (exp.Parameter, exp.Literal, exp.Identifier)) or (
        isinstance(node, exp.Anonymous)
        and node.this
        in (FRAGMENT_NODE_NAME, OPTIONAL_PREDICATE_NODE_NAME, BLOCK_SEGMENT_NODE_NAME, VERBATIM_SQL_NODE_NAME)
    )


def _merge_adjacent_texts(segments: Sequence[SqlSegment]) -> SqlSegments:
    """Return the segments without empty texts, and with adjacent texts joined."""
    merged: list[SqlSegment] = []
    for is_text, run in groupby(segments, lambda item: isinstance(item, str)):
        parts = list(run)
        merged += [_checked_unicode("".join(map(str, parts)))] if is_text else parts
    return tuple(segment for segment in merged if segment != "")


def _require_number(node: exp.Literal) -> str:
    digits = str(node.this)
    if not _NUMBER_PATTERN.fullmatch(digits):
        raise ValueError("no number")
    return digits


def _require_word(name: str) -> str:
    if not _WORD_PATTERN.fullmatch(name):
        raise ValueError("no word")
    return name


def _checked_unicode(text: str) -> str:
    """Return the text; raise QueryUnsupported if it has a lone surrogate, which is not valid Unicode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QueryUnsupported("A text that is not Unicode is not supported", hint="Remove its surrogates.") from error
    return text


def _too_long_error() -> QueryUnsupported:
    return QueryUnsupported("An expression nested so deeply is not supported", hint="Split it into sub-queries.")


def _is_placeholder_delimited(segments: Sequence[str | int], index: int) -> bool:
    """Return whether commas or brackets surround a placeholder of a template, so that it needs no parentheses.

    `segments` has a text, which may be empty, before and after each placeholder.
    """
    before, after = str(segments[index - 1]).rstrip(), str(segments[index + 1]).lstrip()
    opens = before.endswith(("(", ",", "[")) if before else index == 1
    closes = after.startswith((")", ",", "]")) if after else index == len(segments) - 2
    return opens and closes


def is_single_operand(text: str, quoted: re.Pattern[str]) -> bool:
    """Return whether the SQL is a single operand, which needs no parentheses.

    A single operand is an atom (a name or a literal), possibly with calls and subscripts after it, or it is
    parenthesised as a whole.
    """
    atom = _NAME_OR_TEXT_LITERAL_PATTERN.match(text)
    end = atom.end() if atom else 0
    while end < len(text) and text[end] in _CLOSING_BRACKETS:
        closed = _find_closing_bracket(text, end, quoted)
        if closed < 0:
            return False
        end = closed + 1
    return end == len(text)


def _find_closing_bracket(text: str, opened: int, quoted: re.Pattern[str]) -> int:
    """Return the index of the bracket that closes the one at `opened`; -1 if none does. Quoted text is skipped."""
    stack: list[str] = []
    for delimiter in _bracket_or_quote_pattern(quoted).finditer(text, opened):
        char = delimiter[1]
        if char is None:
            continue
        if char in "'\"`":
            return -1
        if char in _CLOSING_BRACKETS:
            stack.append(_CLOSING_BRACKETS[char])
        elif stack and char == stack[-1]:
            stack.pop()
            if not stack:
                return delimiter.start()
    return -1


@cache
def _bracket_or_quote_pattern(quoted: re.Pattern[str]) -> re.Pattern[str]:
    """Return a pattern that matches a quoted text as a whole, or in its group 1 a bracket or an unterminated quote."""
    return re.compile(rf"(?:{quoted.pattern})|([\[\]()'\"`])", quoted.flags)
