"""The parser of LQL, written by hand: every character is parsed, or refused with its position."""

from collections.abc import Callable
from typing import Final

from cordwood.lql.commands import COMMANDS, QueryBuilder
from cordwood.lql.paths import read_path
from cordwood.lql.query import And, Filter, Message, Not, Operator, Or, Period, Query, Shorthand, Time
from cordwood.lql.scanner import Scanner
from cordwood.lql.times import read_when
from cordwood.lql.values import read_operator, read_text, read_value, unescape_quotes

MAX_CLAUSES: Final = 100
MAX_DEPTH: Final = 20
MAX_CHARACTERS: Final = 64 * 1024

_TIME_KEYS: Final = frozenset({"t", "timestamp"})
_QUOTE_HINT: Final = "To search the message for it, put it in double quotes."


def parse(text: str) -> Query:
    """Parse the whole text; raise QuerySyntax with the position of what cannot be parsed."""
    parser = _Parser(text)
    condition = parser.parse_alternatives()
    if not parser.scanner.is_at_end:
        raise parser.scanner.fault("A parenthesis is closed that was never opened.", _QUOTE_HINT)
    return parser.builder.build(condition)


class _Parser:
    """A recursive descent parser of clauses; those that are not filters (source, output) are added to the draft."""

    def __init__(self, text: str) -> None:
        self.scanner = Scanner(text)
        self.builder = QueryBuilder(self.scanner)
        self.clauses = 0
        if len(text) > MAX_CHARACTERS:
            raise self.scanner.fault(f"The query is longer than {MAX_CHARACTERS} characters.", offset=MAX_CHARACTERS)

    def parse_alternatives(self) -> And:
        """Parse clauses joined by OR, which binds less tightly than juxtaposition."""
        branches = [self._parse_conjunction()]
        while self._accept_or():
            start = self.scanner.offset - 2
            branches.append(self._parse_conjunction())
            if not branches[-2].filters or not branches[-1].filters:
                raise self.scanner.fault("OR stands between two filters.", 'The word itself is written "OR".', start)
        return branches[0] if len(branches) == 1 else And((_disjunction(branches),))

    def _parse_conjunction(self) -> And:
        filters: list[Filter] = []
        while not self._is_at_conjunction_end():
            clause = self._parse_clause()
            if clause is not None:
                filters.extend(clause.filters if isinstance(clause, And) else (clause,))
            if not self.scanner.is_between_clauses:
                raise self.scanner.fault("A blank is missing between two clauses.", _QUOTE_HINT)
        return And(tuple(filters))

    def _is_at_conjunction_end(self) -> bool:
        self.scanner.skip_blanks()
        return self.scanner.is_at_end or self.scanner.next == ")" or self._is_or()

    def _is_or(self) -> bool:
        scanner = self.scanner
        after = scanner.text[scanner.offset + 2 : scanner.offset + 3]
        return scanner.text.startswith("OR", scanner.offset) and (not after or after.isspace() or after in "()")

    def _accept_or(self) -> bool:
        return self._is_or() and self.scanner.accept("OR")

    def _parse_clause(self) -> Filter | None:
        scanner, start = self.scanner, self.scanner.offset
        self.clauses += 1
        if self.clauses > MAX_CLAUSES:
            raise scanner.fault(f"The query has more than {MAX_CLAUSES} clauses.", "Ask for less at once.")
        following = scanner.text[start + 1 : start + 2]
        is_negated = scanner.next == "-" and bool(following) and not following.isspace() and following != ")"
        scanner.offset += is_negated
        clause = self._parse_positive(is_negated=is_negated)
        if not is_negated:
            return clause
        if clause is None:
            raise scanner.fault("Only a filter can be negated.", "Leave the minus out.", start)
        return Not(clause)

    def _parse_positive(self, *, is_negated: bool) -> Filter | None:
        if self.scanner.next == "(":
            return self._parse_group()
        if self.scanner.next == "~":
            return self._parse_regex()
        if self.scanner.next in {"'", "`"}:
            raise self.scanner.fault("A clause cannot begin with this quote.", "Phrases stand in double quotes.")
        path = self.scanner.match_path()
        if path is not None and self._is_key(path):
            return self._parse_keyed(path, is_negated=is_negated)
        return self._parse_message()

    def _is_key(self, path: str) -> bool:
        """Return whether the path is a key, which a colon follows, unless it is the scheme of a URL (`https://`)."""
        key_end = self.scanner.offset + len(path)
        return self.scanner.text.startswith(":", key_end) and not self.scanner.text.startswith("://", key_end)

    def _parse_keyed(self, key: str, *, is_negated: bool) -> Filter | None:
        scanner, start = self.scanner, self.scanner.offset
        scanner.offset += len(key) + 1
        command: Callable[[QueryBuilder, int], None] | None = COMMANDS.get(key)
        if command is not None:
            self._check_command(key, start, is_negated=is_negated)
            return command(self.builder, start)
        if key in _TIME_KEYS:
            return self._parse_time(start)
        return read_value(scanner, read_path(key, start))

    def _check_command(self, key: str, start: int, *, is_negated: bool) -> None:
        if is_negated:
            raise self.scanner.fault(f"{key}: cannot be negated: it is no filter.", "Leave the minus out.", start - 1)
        if self.scanner.depth:
            raise self.scanner.fault(f"{key}: cannot stand in parentheses: it is no filter.", "Move it out.", start)

    def _parse_time(self, start: int) -> Time:
        operator = read_operator(self.scanner)
        operand_start = self.scanner.offset
        text = read_text(self.scanner)

        def fault(message: str, hint: str | None) -> Exception:
            return self.scanner.fault(message, hint, operand_start)

        if not text:
            raise fault("A time is missing.", "Write it as in t:today or t:2024-01-31.")
        if operator in {Operator.REGEX, Operator.INCLUDES, Operator.INCLUDES_REGEX}:
            raise fault(f"A time cannot be asked with {operator}.", "Use :, :>, :>=, :< or :<=.")
        if text.startswith(":"):
            raise fault("t:: is a bucket of a chart, not a time.", f"Write c:group_by(t:{text}).")
        when = read_when(text, fault)
        if operator is not Operator.EQUAL and (isinstance(when, Shorthand) or not _is_single(when)):
            raise fault("A shorthand or a range takes no operator.", f"Write t:{text}.")
        return Time(operator, when, start)

    def _parse_group(self) -> Filter:
        scanner, start = self.scanner, self.scanner.offset
        scanner.offset += 1
        scanner.depth += 1
        if scanner.depth > MAX_DEPTH:
            raise scanner.fault("The query is nested too deeply.")
        condition = self.parse_alternatives()
        if not scanner.accept(")"):
            raise scanner.fault("A parenthesis is opened here and never closed.", _QUOTE_HINT, start)
        scanner.depth -= 1
        if not condition.filters:
            raise scanner.fault("The parentheses are empty.", _QUOTE_HINT, start)
        return condition.filters[0] if len(condition.filters) == 1 else condition

    def _parse_regex(self) -> Message:
        start = self.scanner.offset
        self.scanner.offset += 1
        pattern = read_text(self.scanner)
        if not pattern:
            raise self.scanner.fault("A regular expression is missing after ~.", _QUOTE_HINT, start)
        return Message(pattern, is_regex=True, offset=start)

    def _parse_message(self) -> Message:
        start = self.scanner.offset
        if self.scanner.next == '"':
            return Message(self.scanner.scan_quoted(), offset=start)
        word = self.scanner.scan_word()
        if ":" in word and "://" not in word:
            if word.startswith(":"):
                hint = f"Write the path before it, as in m.status:{word.lstrip(':=')[:20]}."
                raise self.scanner.fault("A path is missing before the colon.", hint, start)
            hint = f"Write c:{word[:60]} for a chart." if word.lower().startswith("group_by(") else _QUOTE_HINT
            raise self.scanner.fault(f"What stands before the colon is not a path: {word[:60]}", hint, start)
        return Message(unescape_quotes(word), offset=start)


def _disjunction(branches: list[And]) -> Or:
    """Return the disjunction of the branches, with nested ones flattened."""
    filters: list[Filter] = []
    for branch in branches:
        flattened = branch.filters[0] if len(branch.filters) == 1 else branch
        filters.extend(flattened.filters if isinstance(flattened, Or) else (flattened,))
    return Or(tuple(filters))


def _is_single(period: Period) -> bool:
    return period.low == period.high
