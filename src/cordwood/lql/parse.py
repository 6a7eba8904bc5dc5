"""The parser of LQL, written by hand: every character is parsed, or refused with its position."""

from collections.abc import Callable
from typing import Final

from cordwood.lql.commands import COMMANDS, Draft
from cordwood.lql.paths import read_path
from cordwood.lql.query import All, Any, Filter, Message, Not, Operator, Period, Query, Shorthand, Time
from cordwood.lql.scan import Scanner
from cordwood.lql.times import read_when
from cordwood.lql.values import read_operator, read_value, read_whole, unescaped_quotes

MAX_CLAUSES: Final = 100
MAX_DEPTH: Final = 20
MAX_CHARACTERS: Final = 64 * 1024

_TIME_KEYS: Final = frozenset({"t", "timestamp"})
_QUOTE_HINT: Final = "To search the message for it, put it in double quotes."


def parse(text: str) -> Query:
    """Parse the whole text; raise QuerySyntax with the position of what cannot be parsed."""
    reader = _Reader(text)
    found = reader.alternatives()
    if not reader.scanner.is_at_end:
        raise reader.scanner.fault("A parenthesis is closed that was never opened.", _QUOTE_HINT)
    return reader.draft.query(found)


class _Reader:
    """A recursive descent parser of clauses; those that are not filters (source, output) are added to the draft."""

    def __init__(self, text: str) -> None:
        self.scanner = Scanner(text)
        self.draft = Draft(self.scanner)
        self.clauses = 0
        if len(text) > MAX_CHARACTERS:
            raise self.scanner.fault(f"The query is longer than {MAX_CHARACTERS} characters.", at=MAX_CHARACTERS)

    def alternatives(self) -> All:
        """Parse clauses joined by OR, which binds less tightly than juxtaposition."""
        branches = [self._side_by_side()]
        while self._take_or():
            began = self.scanner.at - 2
            branches.append(self._side_by_side())
            if not branches[-2].filters or not branches[-1].filters:
                raise self.scanner.fault("OR stands between two filters.", 'The word itself is written "OR".', began)
        return branches[0] if len(branches) == 1 else All((_any(branches),))

    def _side_by_side(self) -> All:
        filters: list[Filter] = []
        while not self._is_after_clauses():
            clause = self._clause()
            if clause is not None:
                filters.extend(clause.filters if isinstance(clause, All) else (clause,))
            if not self.scanner.is_between_clauses:
                raise self.scanner.fault("A blank is missing between two clauses.", _QUOTE_HINT)
        return All(tuple(filters))

    def _is_after_clauses(self) -> bool:
        self.scanner.skip_blanks()
        return self.scanner.is_at_end or self.scanner.next == ")" or self._is_or()

    def _is_or(self) -> bool:
        scanner = self.scanner
        after = scanner.text[scanner.at + 2 : scanner.at + 3]
        return scanner.text.startswith("OR", scanner.at) and (not after or after.isspace() or after in "()")

    def _take_or(self) -> bool:
        return self._is_or() and self.scanner.take("OR")

    def _clause(self) -> Filter | None:
        scanner, began = self.scanner, self.scanner.at
        self.clauses += 1
        if self.clauses > MAX_CLAUSES:
            raise scanner.fault(f"The query has more than {MAX_CLAUSES} clauses.", "Ask for less at once.")
        following = scanner.text[began + 1 : began + 2]
        is_negated = scanner.next == "-" and bool(following) and not following.isspace() and following != ")"
        scanner.at += is_negated
        clause = self._positive(is_negated=is_negated)
        if not is_negated:
            return clause
        if clause is None:
            raise scanner.fault("Only a filter can be negated.", "Leave the minus out.", began)
        return Not(clause)

    def _positive(self, *, is_negated: bool) -> Filter | None:
        if self.scanner.next == "(":
            return self._group()
        if self.scanner.next == "~":
            return self._regex()
        if self.scanner.next in {"'", "`"}:
            raise self.scanner.fault("A clause cannot begin with this quote.", "Phrases stand in double quotes.")
        path = self.scanner.match_path()
        if path is not None and self._is_key(path):
            return self._keyed(path, is_negated=is_negated)
        return self._message()

    def _is_key(self, path: str) -> bool:
        """Return whether the path is a key, which a colon follows, unless it is the scheme of a URL (`https://`)."""
        after = self.scanner.at + len(path)
        return self.scanner.text.startswith(":", after) and not self.scanner.text.startswith("://", after)

    def _keyed(self, key: str, *, is_negated: bool) -> Filter | None:
        scanner, began = self.scanner, self.scanner.at
        scanner.at += len(key) + 1
        command: Callable[[Draft, int], None] | None = COMMANDS.get(key)
        if command is not None:
            self._check_command(key, began, is_negated=is_negated)
            return command(self.draft, began)
        if key in _TIME_KEYS:
            return self._time(began)
        return read_value(scanner, read_path(key, began))

    def _check_command(self, key: str, began: int, *, is_negated: bool) -> None:
        if is_negated:
            raise self.scanner.fault(f"{key}: cannot be negated: it is no filter.", "Leave the minus out.", began - 1)
        if self.scanner.depth:
            raise self.scanner.fault(f"{key}: cannot stand in parentheses: it is no filter.", "Move it out.", began)

    def _time(self, began: int) -> Time:
        operator = read_operator(self.scanner)
        place = self.scanner.at
        text = read_whole(self.scanner)

        def fault(message: str, hint: str | None) -> Exception:
            return self.scanner.fault(message, hint, place)

        if not text:
            raise fault("A time is missing.", "Write it as in t:today or t:2024-01-31.")
        if operator in {Operator.REGEX, Operator.INCLUDES, Operator.INCLUDES_REGEX}:
            raise fault(f"A time cannot be asked with {operator}.", "Use :, :>, :>=, :< or :<=.")
        if text.startswith(":"):
            raise fault("t:: is a bucket of a chart, not a time.", f"Write c:group_by(t:{text}).")
        when = read_when(text, fault)
        if operator is not Operator.EQUAL and (isinstance(when, Shorthand) or not _is_single(when)):
            raise fault("A shorthand or a range takes no operator.", f"Write t:{text}.")
        return Time(operator, when, began)

    def _group(self) -> Filter:
        scanner, began = self.scanner, self.scanner.at
        scanner.at += 1
        scanner.depth += 1
        if scanner.depth > MAX_DEPTH:
            raise scanner.fault("The query is nested too deeply.")
        found = self.alternatives()
        if not scanner.take(")"):
            raise scanner.fault("A parenthesis is opened here and never closed.", _QUOTE_HINT, began)
        scanner.depth -= 1
        if not found.filters:
            raise scanner.fault("The parentheses are empty.", _QUOTE_HINT, began)
        return found.filters[0] if len(found.filters) == 1 else found

    def _regex(self) -> Message:
        began = self.scanner.at
        self.scanner.at += 1
        pattern = read_whole(self.scanner)
        if not pattern:
            raise self.scanner.fault("A regular expression is missing after ~.", _QUOTE_HINT, began)
        return Message(pattern, is_regex=True, at=began)

    def _message(self) -> Message:
        began = self.scanner.at
        if self.scanner.next == '"':
            return Message(self.scanner.quoted(), at=began)
        word = self.scanner.run()
        if ":" in word and "://" not in word:
            if word.startswith(":"):
                hint = f"Write the path before it, as in m.status:{word.lstrip(':=')[:20]}."
                raise self.scanner.fault("A path is missing before the colon.", hint, began)
            hint = f"Write c:{word[:60]} for a chart." if word.lower().startswith("group_by(") else _QUOTE_HINT
            raise self.scanner.fault(f"What stands before the colon is not a path: {word[:60]}", hint, began)
        return Message(unescaped_quotes(word), at=began)


def _any(branches: list[All]) -> Any:
    """Return the disjunction of the branches, with nested ones flattened."""
    filters: list[Filter] = []
    for branch in branches:
        alone = branch.filters[0] if len(branch.filters) == 1 else branch
        filters.extend(alone.filters if isinstance(alone, Any) else (alone,))
    return Any(tuple(filters))


def _is_single(period: Period) -> bool:
    return period.low == period.high
