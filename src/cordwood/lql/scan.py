"""The scanner of LQL: words, quoted texts, and texts in parentheses."""

import re
from typing import Final

from cordwood.errors import QuerySyntax
from cordwood.sql.positions import span_at

# An unquoted key of a path, or a quoted one.
_KEY: Final = r'(?:@?[\w$-]+|"(?:[^"\\]|\\.)*")'
_PATH: Final = re.compile(rf"{_KEY}(?:\.{_KEY})*")
# Resolving a path doubles in time with each step that was never seen in events.
MAX_STEPS: Final = 32
_ESCAPE: Final = re.compile(r'\\(["\\])')


class Scanner:
    """A position in an LQL text. `depth` counts the open groups; in one, an unmatched `)` closes it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def fault(self, message: str, hint: str | None = None, at: int | None = None) -> QuerySyntax:
        return QuerySyntax(message, hint=hint, span=span_at(self.text, self.at if at is None else at))

    @property
    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.text)

    @property
    def is_between_clauses(self) -> bool:
        return self.is_at_end or self.next.isspace() or (self.depth > 0 and self.next == ")")

    def skip_blanks(self) -> None:
        while self.next.isspace():
            self.at += 1

    def take(self, literal: str) -> bool:
        found = self.text.startswith(literal, self.at)
        if found:
            self.at += len(literal)
        return found

    def match_path(self) -> str | None:
        """Return the path that begins here, without advancing."""
        found = _PATH.match(self.text, self.at)
        if found and found[0].count(".") >= MAX_STEPS:
            raise self.fault(f"A path has more than {MAX_STEPS} steps.")
        return found[0] if found else None

    def quoted(self) -> str:
        """Scan a text in double quotes, in which a backslash escapes a quote or a backslash."""
        opened = self.at
        closing = self._closing_quote(opened)
        if closing < 0:
            raise self.fault("A quote is opened and never closed.", 'Close it with ", or write \\" for a quote itself.')
        self.at = closing + 1
        return unescaped(self.text[opened + 1 : closing])

    def run(self, *, with_quotes: bool = False) -> str:
        """Scan up to the next blank, or up to the parenthesis that closes the enclosing group.

        Quotes must be escaped, except `with_quotes`, for paths with quoted keys.
        """
        began, opened = self.at, 0
        while not self.is_at_end and not self.next.isspace():
            if self.next == '"':
                self._pass_quote(began, may=with_quotes)
                continue
            if self.next == ")" and opened == 0 and self.depth > 0:
                break
            opened = max(opened + (self.next == "(") - (self.next == ")"), 0)
            self.at += 2 if self.text.startswith('\\"', self.at) else 1
        return self.text[began : self.at]

    def parenthesised(self) -> str | None:
        """Scan a whole `( … )` that a blank follows, blanks included.

        Return None without advancing if it is only a part of a word.
        """
        began = self.at
        closing = self._closing_parenthesis()
        if closing is not None:
            self.at = closing + 1
            if self.is_between_clauses:
                return self.text[began : self.at]
            self.at = began
            if not any(map(str.isspace, self.text[began:closing])):
                return None
        raise self.fault("A parenthesis is opened here, and what it holds does not end with a value.", _QUOTE)

    def _closing_parenthesis(self) -> int | None:
        """Return where the parenthesis here closes, skipping escaped characters; None if it does not."""
        opened, at = 0, self.at
        while at < len(self.text):
            opened += (self.text[at] == "(") - (self.text[at] == ")")
            if opened == 0:
                return at
            at += 2 if self.text[at] == "\\" else 1
        return None

    def _pass_quote(self, began: int, *, may: bool) -> None:
        if not may:
            word = self.text[began : self.at]
            raise self.fault(f"A quote stands inside the word {word[:40]}.", 'Put a blank before it, or write \\".')
        closing = self._closing_quote(self.at)
        if closing < 0:
            raise self.fault("A quote is opened and never closed.")
        self.at = closing + 1

    def _closing_quote(self, opened: int) -> int:
        at = opened + 1
        while at < len(self.text) and self.text[at] != '"':
            at += 2 if self.text.startswith(('\\"', "\\\\"), at) else 1
        return at if at < len(self.text) else -1


_QUOTE: Final = "Put a text with blanks or parentheses in quotes."


def unescaped(text: str) -> str:
    return _ESCAPE.sub(r"\1", text)
