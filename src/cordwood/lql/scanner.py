"""The scanner of LQL: words, quoted texts, texts in parentheses, and paths such as `m.status`."""

import re
from typing import Final

from cordwood.errors import QuerySyntax
from cordwood.lql.query import Path
from cordwood.sql.positions import span_at

# A key of a path, unquoted or quoted.
_KEY_PATTERN: Final = r'(?:@?[\w$-]+|"(?:[^"\\]|\\.)*")'
_PATH_PATTERN: Final = re.compile(rf"{_KEY_PATTERN}(?:\.{_KEY_PATTERN})*")
# The limit on steps: resolving a path doubles in time with each step that was never seen in events.
MAX_STEPS: Final = 32
_ESCAPED_CHARACTER: Final = re.compile(r'\\(["\\])')


_STEP_PATTERN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^.]+)')


class Scanner:
    """A position in an LQL text. `depth` counts the open groups; inside a group, an unmatched `)` closes it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0
        self.depth = 0

    def fault(self, message: str, hint: str | None = None, offset: int | None = None) -> QuerySyntax:
        return QuerySyntax(message, hint=hint, span=span_at(self.text, self.offset if offset is None else offset))

    @property
    def next(self) -> str:
        return self.text[self.offset : self.offset + 1]

    @property
    def is_at_end(self) -> bool:
        return self.offset >= len(self.text)

    @property
    def is_between_clauses(self) -> bool:
        return self.is_at_end or self.next.isspace() or (self.depth > 0 and self.next == ")")

    def skip_blanks(self) -> None:
        while self.next.isspace():
            self.offset += 1

    def accept(self, literal: str) -> bool:
        matches = self.text.startswith(literal, self.offset)
        if matches:
            self.offset += len(literal)
        return matches

    def match_path(self) -> str | None:
        """Return the path at the current position, without advancing."""
        match = _PATH_PATTERN.match(self.text, self.offset)
        if match and match[0].count(".") >= MAX_STEPS:
            raise self.fault(f"A path has more than {MAX_STEPS} steps.")
        return match[0] if match else None

    def scan_quoted(self) -> str:
        """Scan a text in double quotes, in which a backslash escapes a quote or a backslash."""
        opened = self.offset
        closing = self._find_closing_quote(opened)
        if closing < 0:
            raise self.fault("A quote is opened and never closed.", 'Close it with ", or write \\" for a quote itself.')
        self.offset = closing + 1
        return unescape(self.text[opened + 1 : closing])

    def scan_word(self, *, with_quotes: bool = False) -> str:
        """Scan up to the next blank, or up to the parenthesis that closes the enclosing group.

        Quotes must be escaped, unless `with_quotes` is set, for paths with quoted keys.
        """
        start, opened = self.offset, 0
        while not self.is_at_end and not self.next.isspace():
            if self.next == '"':
                self._skip_quote(start, is_allowed=with_quotes)
                continue
            if self.next == ")" and opened == 0 and self.depth > 0:
                break
            opened = max(opened + (self.next == "(") - (self.next == ")"), 0)
            self.offset += 2 if self.text.startswith('\\"', self.offset) else 1
        return self.text[start : self.offset]

    def scan_parenthesised(self) -> str | None:
        """Scan a whole `( … )` that a blank follows, including blanks inside.

        Return None without advancing if the parentheses are only a part of a word.
        """
        start = self.offset
        closing = self._find_closing_parenthesis()
        if closing is not None:
            self.offset = closing + 1
            if self.is_between_clauses:
                return self.text[start : self.offset]
            self.offset = start
            if not any(map(str.isspace, self.text[start:closing])):
                return None
        raise self.fault("A parenthesis is opened here, and what it holds does not end with a value.", _QUOTE_OR_ESCAPE)

    def _find_closing_parenthesis(self) -> int | None:
        """Return where the parenthesis here closes, skipping escaped characters; None if it does not close."""
        opened, offset = 0, self.offset
        while offset < len(self.text):
            opened += (self.text[offset] == "(") - (self.text[offset] == ")")
            if opened == 0:
                return offset
            offset += 2 if self.text[offset] == "\\" else 1
        return None

    def _skip_quote(self, start: int, *, is_allowed: bool) -> None:
        if not is_allowed:
            word = self.text[start : self.offset]
            raise self.fault(f"A quote stands inside the word {word[:40]}.", 'Put a blank before it, or write \\".')
        closing = self._find_closing_quote(self.offset)
        if closing < 0:
            raise self.fault("A quote is opened and never closed.")
        self.offset = closing + 1

    def _find_closing_quote(self, opened: int) -> int:
        offset = opened + 1
        while offset < len(self.text) and self.text[offset] != '"':
            offset += 2 if self.text.startswith(('\\"', "\\\\"), offset) else 1
        return offset if offset < len(self.text) else -1


_QUOTE_OR_ESCAPE: Final = "Put a text with blanks or parentheses in quotes."


def unescape(text: str) -> str:
    return _ESCAPED_CHARACTER.sub(r"\1", text)


def read_path(text: str, offset: int) -> Path:
    """Return the path of a text that the scanner has matched as a path; `m.` is short for `metadata.`."""
    steps = [unescape(quoted) if unquoted is None else unquoted for quoted, unquoted in _path_steps(text)]
    if len(steps) > 1 and text.startswith("m."):
        steps[0] = "metadata"
    return Path(tuple(steps), offset)


def _path_steps(text: str) -> list[tuple[str, str | None]]:
    return [(step[1] or "", step[2]) for step in _STEP_PATTERN.finditer(text)]
