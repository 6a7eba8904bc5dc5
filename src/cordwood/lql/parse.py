"""A hand-written recursive descent parser of LQL, which reports the position of a text that it cannot parse.

A query consists of clauses: filters, and commands for the source (`f:`), the output (`s:`, `c:`), order and limit.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from cordwood.lql.query import (
    Aggregate,
    And,
    Command,
    Dimension,
    EventFieldPath,
    Filter,
    FilterOperator,
    Limit,
    LqlQuery,
    MessageFilter,
    Not,
    Or,
    Period,
    RelativeTime,
    SelectedColumn,
    SortKey,
    SubQuerySource,
    TimeBucket,
    TimeCondition,
    TimeUnit,
)
from cordwood.lql.values import (
    TIME_UNIT_HINT,
    LqlTextScanner,
    parse_field_path,
    parse_time_expression,
    parse_time_unit,
    read_field_filter,
    read_operator,
    read_value_text,
    unescape_quotes,
)

MAX_QUERY_CLAUSES: Final = 100
MAX_NESTING_DEPTH: Final = 20
MAX_QUERY_CHARACTERS: Final = 64 * 1024

_TIME_KEYS: Final = frozenset({"t", "timestamp"})
_QUOTE_HINT: Final = "To search the message for it, put it in double quotes."


def parse_lql(text: str) -> LqlQuery:
    """Parse a whole LQL query; raise BadQuerySyntax with the position of the first syntax error."""
    parser = _Parser(text)
    condition = parser.parse_disjunction()
    if not parser.scanner.is_at_end:
        raise parser.scanner.syntax_error("A parenthesis is closed that was never opened.", _QUOTE_HINT)
    return parser.builder.build(condition)


class _Parser:
    """A recursive descent parser of clauses.

    It returns filters, and adds commands such as `f:` (sub-query) and `s:` (column) to a query builder.
    """

    def __init__(self, text: str) -> None:
        self.scanner = LqlTextScanner(text)
        self.builder = _QueryBuilder(self.scanner)
        self.clause_count = 0
        if len(text) > MAX_QUERY_CHARACTERS:
            raise self.scanner.syntax_error(
                f"The query is longer than {MAX_QUERY_CHARACTERS} characters.", offset=MAX_QUERY_CHARACTERS
            )

    def parse_disjunction(self) -> And:
        """Parse clauses joined by OR. Clauses without OR between them are joined by AND, which binds more tightly."""
        branches = [self._parse_conjunction()]
        while self._accept_or_operator():
            start = self.scanner.offset - 2
            branches.append(self._parse_conjunction())
            if not branches[-2].filters or not branches[-1].filters:
                raise self.scanner.syntax_error(
                    "OR stands between two filters.", 'The word itself is written "OR".', start
                )
        return branches[0] if len(branches) == 1 else And((_disjunction(branches),))

    def _parse_conjunction(self) -> And:
        filters: list[Filter] = []
        while not self._is_at_conjunction_end():
            clause = self._parse_clause()
            if clause is not None:
                filters.extend(clause.filters if isinstance(clause, And) else (clause,))
            if not self.scanner.is_at_clause_boundary:
                raise self.scanner.syntax_error("A blank is missing between two clauses.", _QUOTE_HINT)
        return And(tuple(filters))

    def _is_at_conjunction_end(self) -> bool:
        self.scanner.skip_blanks()
        return self.scanner.is_at_end or self.scanner.next_character == ")" or self._is_at_or_operator()

    def _is_at_or_operator(self) -> bool:
        scanner = self.scanner
        after = scanner.text[scanner.offset + 2 : scanner.offset + 3]
        return scanner.text.startswith("OR", scanner.offset) and (not after or after.isspace() or after in "()")

    def _accept_or_operator(self) -> bool:
        return self._is_at_or_operator() and self.scanner.accept_literal("OR")

    def _parse_clause(self) -> Filter | None:
        scanner, start = self.scanner, self.scanner.offset
        self.clause_count += 1
        if self.clause_count > MAX_QUERY_CLAUSES:
            raise scanner.syntax_error(f"The query has more than {MAX_QUERY_CLAUSES} clauses.", "Ask for less at once.")
        following = scanner.text[start + 1 : start + 2]
        is_negated = scanner.next_character == "-" and bool(following) and not following.isspace() and following != ")"
        scanner.offset += is_negated
        clause = self._parse_filter(is_negated=is_negated)
        if not is_negated:
            return clause
        if clause is None:
            raise scanner.syntax_error("Only a filter can be negated.", "Leave the minus out.", start)
        return Not(clause)

    def _parse_filter(self, *, is_negated: bool) -> Filter | None:
        if self.scanner.next_character == "(":
            return self._parse_parenthesized_filter()
        if self.scanner.next_character == "~":
            return self._parse_regex()
        if self.scanner.next_character in {"'", "`"}:
            raise self.scanner.syntax_error("A clause cannot begin with this quote.", "Phrases stand in double quotes.")
        path = self.scanner.peek_path()
        if path is not None and self._is_at_key(path):
            return self._parse_key_clause(path, is_negated=is_negated)
        return self._parse_message()

    def _is_at_key(self, path: str) -> bool:
        """Return whether the path at the position is a clause's key: a colon follows it, but not `://` as in a URL."""
        key_end = self.scanner.offset + len(path)
        return self.scanner.text.startswith(":", key_end) and not self.scanner.text.startswith("://", key_end)

    def _parse_key_clause(self, key: str, *, is_negated: bool) -> Filter | None:
        scanner, start = self.scanner, self.scanner.offset
        scanner.offset += len(key) + 1
        command: Callable[[_QueryBuilder, int], None] | None = _COMMAND_PARSERS.get(key)
        if command is not None:
            self._check_command_position(key, start, is_negated=is_negated)
            return command(self.builder, start)
        if key in _TIME_KEYS:
            return self._parse_time(start)
        return read_field_filter(scanner, parse_field_path(key, start))

    def _check_command_position(self, key: str, start: int, *, is_negated: bool) -> None:
        if is_negated:
            raise self.scanner.syntax_error(
                f"{key}: cannot be negated: it is not a filter.", "Leave the minus out.", start - 1
            )
        if self.scanner.parenthesis_depth:
            raise self.scanner.syntax_error(
                f"{key}: cannot be in parentheses: it is not a filter.", "Move it out.", start
            )

    def _parse_time(self, start: int) -> TimeCondition:
        operator = read_operator(self.scanner)
        operand_start = self.scanner.offset
        text = read_value_text(self.scanner)

        def make_syntax_error(message: str, hint: str | None) -> Exception:
            return self.scanner.syntax_error(message, hint, operand_start)

        if not text:
            raise make_syntax_error("A time is missing.", "Write it as in t:today or t:2024-01-31.")
        if operator in {FilterOperator.REGEX, FilterOperator.INCLUDES, FilterOperator.INCLUDES_REGEX}:
            raise make_syntax_error(f"A time cannot be compared with {operator}.", "Use :, :>, :>=, :< or :<=.")
        if text.startswith(":"):
            raise make_syntax_error("t:: is a bucket of a chart, not a time.", f"Write c:group_by(t:{text}).")
        when = parse_time_expression(text, make_syntax_error)
        if operator is not FilterOperator.EQUAL and (isinstance(when, RelativeTime) or not _is_single_moment(when)):
            raise make_syntax_error("A shorthand or a range cannot have an operator.", f"Write t:{text}.")
        return TimeCondition(operator, when, start)

    def _parse_parenthesized_filter(self) -> Filter:
        scanner, start = self.scanner, self.scanner.offset
        scanner.offset += 1
        scanner.parenthesis_depth += 1
        if scanner.parenthesis_depth > MAX_NESTING_DEPTH:
            raise scanner.syntax_error("The query is nested too deeply.")
        condition = self.parse_disjunction()
        if not scanner.accept_literal(")"):
            raise scanner.syntax_error("A parenthesis is opened here and never closed.", _QUOTE_HINT, start)
        scanner.parenthesis_depth -= 1
        if not condition.filters:
            raise scanner.syntax_error("The parentheses are empty.", _QUOTE_HINT, start)
        return condition.filters[0] if len(condition.filters) == 1 else condition

    def _parse_regex(self) -> MessageFilter:
        start = self.scanner.offset
        self.scanner.offset += 1
        pattern = read_value_text(self.scanner)
        if not pattern:
            raise self.scanner.syntax_error("A regular expression is missing after ~.", _QUOTE_HINT, start)
        return MessageFilter(pattern, is_regex=True, text_offset=start)

    def _parse_message(self) -> MessageFilter:
        start = self.scanner.offset
        if self.scanner.next_character == '"':
            return MessageFilter(self.scanner.scan_quoted_text(), text_offset=start)
        word = self.scanner.scan_word()
        if ":" in word and "://" not in word:
            if word.startswith(":"):
                hint = f"Write the path before it, as in m.status:{word.lstrip(':=')[:20]}."
                raise self.scanner.syntax_error("A path is missing before the colon.", hint, start)
            hint = f"Write c:{word[:60]} for a chart." if word.lower().startswith("group_by(") else _QUOTE_HINT
            raise self.scanner.syntax_error(f"What stands before the colon is not a path: {word[:60]}", hint, start)
        return MessageFilter(unescape_quotes(word), text_offset=start)


def _disjunction(branches: list[And]) -> Or:
    """Join the branches by OR; the operands of an OR inside a branch become operands of the result."""
    filters: list[Filter] = []
    for branch in branches:
        flattened = branch.filters[0] if len(branch.filters) == 1 else branch
        filters.extend(flattened.filters if isinstance(flattened, Or) else (flattened,))
    return Or(tuple(filters))


def _is_single_moment(period: Period) -> bool:
    return period.first_moment == period.last_moment


_AnyCommand = TypeVar("_AnyCommand", bound=Command)

AGGREGATE_FUNCTIONS: Final = ("count", "countd", "avg", "sum", "min", "max", "p50", "p95", "p99")
# The name of the function for a percentile, with or without a decimal place: p90, p99.9.
PERCENTILE_NAME_PATTERN: Final = re.compile(r"p(\d{1,2})(?:\.(\d))?", re.ASCII)

_FUNCTION_CALL_PATTERN: Final = re.compile(r"([a-z_0-9.]+)\((.*)\)", re.DOTALL)
_TIME_BUCKET_PATTERN: Final = re.compile(r"(?:t|timestamp)::(\d{0,4})([a-z]+)", re.ASCII)
# Units of constant length. Only for these units can a time bucket be several units long.
_FIXED_LENGTH_UNITS: Final = frozenset({TimeUnit.SECOND, TimeUnit.MINUTE, TimeUnit.HOUR, TimeUnit.DAY})
_ALIAS_PATTERN: Final = re.compile(r"\w+")
_ROW_COUNT_PATTERN: Final = re.compile(r"\d{1,9}", re.ASCII)
_FUNCTION_CALL_HINT: Final = f"Write it as in c:avg(m.latency) or c:group_by(t::hour); functions are {', '.join(AGGREGATE_FUNCTIONS[:6])} and p with a percentile, as in p95."


class _QueryBuilder:
    """A builder that collects a query's commands during parsing, and then builds the query from them."""

    def __init__(self, scanner: LqlTextScanner) -> None:
        self.scanner = scanner
        self.commands: list[Command] = []

    def build(self, condition: And) -> LqlQuery:
        sources, limits = self._commands_of(SubQuerySource), self._commands_of(Limit)
        self._check_at_most_one("f:", sources)
        self._check_at_most_one("limit:", limits)
        self._check_at_most_one("c:group_by(t::…)", buckets := self._commands_of(TimeBucket))
        return LqlQuery(
            filter=condition,
            source=sources[0] if sources else None,
            columns=self._commands_of(SelectedColumn),
            aggregates=self._commands_of(Aggregate),
            time_buckets=buckets,
            dimensions=self._commands_of(Dimension),
            sort_keys=self._commands_of(SortKey),
            limit=limits[0] if limits else None,
        )

    def read_path_text(self, text: str, offset: int) -> EventFieldPath:
        """Convert a text to a path; raise BadQuerySyntax if it is not a path as a whole."""
        inner = LqlTextScanner(text)
        if not text:
            raise self.scanner.syntax_error("A path is missing here.", "Write it as in m.status.", offset)
        if inner.peek_path() != text:
            raise self.scanner.syntax_error(
                f"A path cannot be read here: {text[:60]}", "Write it as in m.status.", offset
            )
        return parse_field_path(text, offset)

    def _commands_of(self, kind: type[_AnyCommand]) -> tuple[_AnyCommand, ...]:
        return tuple(command for command in self.commands if isinstance(command, kind))

    def _check_at_most_one(self, clause: str, commands: tuple[Command, ...]) -> None:
        if len(commands) > 1:
            raise self.scanner.syntax_error(
                f"{clause} may occur only once.", "Leave one of them.", commands[1].text_offset
            )


def _add_source(builder: _QueryBuilder, start: int) -> None:
    name = read_value_text(builder.scanner)
    if not name:
        raise builder.scanner.syntax_error("The name of a sub-query is missing.", "Write it as in f:edge_logs.", start)
    builder.commands.append(SubQuerySource(name, start))


def _add_column(builder: _QueryBuilder, start: int) -> None:
    text, argument_start = _read_argument(builder)
    if text == "*":
        builder.commands.append(SelectedColumn(None, None, start))
        return
    path = LqlTextScanner(text).peek_path() or ""
    alias = text[len(path) :]
    if alias.startswith(","):
        columns = " ".join(f"s:{name.strip()}" for name in text.split(",") if name.strip())
        raise builder.scanner.syntax_error("A clause s: has one column.", f"Write {columns[:200]}.", argument_start)
    if alias and (alias[0] != "@" or not _ALIAS_PATTERN.fullmatch(alias[1:])):
        raise builder.scanner.syntax_error(
            "A column's name after @ is one word of letters, digits and _.", None, argument_start
        )
    builder.commands.append(SelectedColumn(builder.read_path_text(path, argument_start), alias[1:] or None, start))


def _add_aggregate_or_grouping(builder: _QueryBuilder, start: int) -> None:
    text, argument_start = _read_argument(builder)
    call = _FUNCTION_CALL_PATTERN.fullmatch(text)
    if call is None and (text in AGGREGATE_FUNCTIONS or text == "group_by"):
        hint = f"Write c:{text}(*)." if text == "count" else f"Write c:{text}(m.path)."
        raise builder.scanner.syntax_error(f"{text} is written with brackets.", hint, argument_start)
    if call is None:
        raise builder.scanner.syntax_error(
            f"A chart cannot be read here: {text[:60]}", _FUNCTION_CALL_HINT, argument_start
        )
    function, argument = call[1], call[2].strip()
    argument_start += len(function) + 1
    if function == "group_by":
        builder.commands.append(_read_grouping(builder, argument, argument_start))
    elif function not in AGGREGATE_FUNCTIONS and not PERCENTILE_NAME_PATTERN.fullmatch(function):
        raise builder.scanner.syntax_error(f"There is no function called {function[:40]}.", _FUNCTION_CALL_HINT, start)
    elif argument == "*" and function != "count":
        raise builder.scanner.syntax_error(
            f"{function} needs a path: only count takes *.", _FUNCTION_CALL_HINT, argument_start
        )
    else:
        path = None if argument == "*" else builder.read_path_text(argument, argument_start)
        builder.commands.append(Aggregate(function, path, start))


def _read_grouping(builder: _QueryBuilder, argument: str, argument_start: int) -> TimeBucket | Dimension:
    bucket = _TIME_BUCKET_PATTERN.fullmatch(argument)
    if bucket is None:
        return Dimension(builder.read_path_text(argument, argument_start), argument_start)
    unit, count = parse_time_unit(bucket[2]), int(bucket[1] or 1)
    if unit is None:
        raise builder.scanner.syntax_error(
            f"There is no unit of time called {bucket[2][:40]}.", TIME_UNIT_HINT, argument_start
        )
    if count != 1 and (unit not in _FIXED_LENGTH_UNITS or not count):
        raise builder.scanner.syntax_error(
            "Several units make a bucket from seconds to days.", "Write it as in t::5m.", argument_start
        )
    return TimeBucket(unit, argument_start, count)


def _add_order(builder: _QueryBuilder, start: int) -> None:
    text, argument_start = _read_argument(builder)
    path = LqlTextScanner(text).peek_path() or ""
    direction = text[len(path) :]
    if direction not in {"", "@asc", "@desc"}:
        raise builder.scanner.syntax_error(
            "An order is @asc or @desc.", "Write it as in order:timestamp@desc.", argument_start
        )
    builder.commands.append(SortKey(builder.read_path_text(path, argument_start), direction == "@desc", start))


def _add_limit(builder: _QueryBuilder, start: int) -> None:
    text, argument_start = _read_argument(builder)
    if not _ROW_COUNT_PATTERN.fullmatch(text):
        raise builder.scanner.syntax_error("A limit is a number of rows.", "Write it as in limit:100.", argument_start)
    builder.commands.append(Limit(int(text), start))


def _read_argument(builder: _QueryBuilder) -> tuple[str, int]:
    argument_start = builder.scanner.offset
    return builder.scanner.scan_word(with_quotes=True), argument_start


_COMMAND_PARSERS: Final[Mapping[str, Callable[[_QueryBuilder, int], None]]] = {
    "f": _add_source,
    "from": _add_source,
    "s": _add_column,
    "select": _add_column,
    "c": _add_aggregate_or_grouping,
    "chart": _add_aggregate_or_grouping,
    "order": _add_order,
    "limit": _add_limit,
}
