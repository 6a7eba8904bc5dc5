"""The parser of a field's value, from its operator to its end."""

import re
from typing import Final

from cordwood.lql.query import Field, LevelRange, Null, Operator, Or, Path, Quoted, Range, Unquoted, Value
from cordwood.lql.scanner import Scanner
from cordwood.lql.times import ISO_TIME

SEVERITY_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_NUMBER_PATTERN: Final = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
NUMBER_TEXT: Final = re.compile(_NUMBER_PATTERN, re.ASCII)
_NUMBER_RANGE: Final = re.compile(rf"{_NUMBER_PATTERN}\.\.{_NUMBER_PATTERN}", re.ASCII)
_OPEN_RANGE_PATTERN: Final = re.compile(rf"{_NUMBER_PATTERN}\.\.|\.\.{_NUMBER_PATTERN}", re.ASCII)
_OPERATOR_PATTERN: Final = re.compile(r">=|<=|@>~|@>|>|<|~")
_LIST_PATTERN: Final = re.compile(r"\[[^\[\]]*\]")
_MAX_VALUES: Final = 50
_REGEX_OPERATORS: Final = frozenset({Operator.REGEX, Operator.INCLUDES_REGEX})


def read_operator(scanner: Scanner) -> Operator:
    match = _OPERATOR_PATTERN.match(scanner.text, scanner.offset)
    scanner.offset += len(match[0]) if match else 0
    return Operator(match[0] if match else "")


def read_value(scanner: Scanner, path: Path) -> Field | Range | LevelRange | Or:
    """Parse the operator and value after `path:`."""
    operator = read_operator(scanner)
    start = scanner.offset
    if scanner.next == '"':
        return Field(path, operator, Quoted(scanner.scan_quoted()), path.offset)
    if scanner.next == "(" and (parenthesised := scanner.scan_parenthesised()):
        text = parenthesised if operator in _REGEX_OPERATORS else parenthesised[1:-1]
        return Field(path, operator, Quoted(text), path.offset)
    text = unescape_quotes(scanner.scan_word())
    if not text:
        raise scanner.fault("A value is missing.", 'An empty text is written "".', start)
    if operator in _REGEX_OPERATORS:
        return Field(path, operator, Quoted(text), path.offset)
    if operator is Operator.EQUAL and _LIST_PATTERN.fullmatch(text):
        return _read_list(scanner, path, text, start)
    return _read_unquoted(scanner, Field(path, operator, Unquoted(text), path.offset), start)


def _read_list(scanner: Scanner, path: Path, text: str, start: int) -> Or:
    """Return the condition of `path:[200,404]`: the field equals one of the values."""
    values = text[1:-1].split(",")
    if not all(values) or len(values) > _MAX_VALUES:
        raise scanner.fault(
            f"A list has 1 to {_MAX_VALUES} values, and commas between them.",
            "Write it as in m.status:[200,404].",
            start,
        )
    return Or(tuple(Field(path, Operator.EQUAL, Unquoted(value), path.offset) for value in values))


def read_text(scanner: Scanner) -> str:
    """Parse a literal text, quoted or not."""
    return scanner.scan_quoted() if scanner.next == '"' else unescape_quotes(scanner.scan_word())


def unescape_quotes(word: str) -> str:
    r"""Return an unquoted word with `\"` unescaped; other backslashes are literal."""
    return word.replace('\\"', '"')


def _read_unquoted(scanner: Scanner, field: Field, start: int) -> Field | Range | LevelRange:
    text = field.value.text if isinstance(field.value, Unquoted) else ""
    ranged = _read_range(scanner, field.path, text, start)
    if ranged is None:
        return Field(
            field.path, field.operator, _read_unquoted_value(scanner, field.operator, text, start), field.offset
        )
    if field.operator is Operator.INCLUDES:
        return field
    if field.operator is not Operator.EQUAL:
        raise scanner.fault("A range takes no operator.", f"Write the path, a colon and {text}.", start)
    return ranged


def _read_unquoted_value(scanner: Scanner, operator: Operator, text: str, start: int) -> Value:
    if text != "NULL":
        return Unquoted(text)
    if operator is not Operator.EQUAL:
        raise scanner.fault("NULL takes no operator.", 'The text NULL is written "NULL".', start)
    return Null()


def _read_range(scanner: Scanner, path: Path, text: str, start: int) -> Range | LevelRange | None:
    if _OPEN_RANGE_PATTERN.fullmatch(text):
        raise scanner.fault("A range has two ends.", "For one end use an operator, as in :>=200.", start)
    low, dots, high = text.partition("..")
    if dots and path.last == "level" and (low in SEVERITY_LEVELS or high in SEVERITY_LEVELS):
        return _read_level_range(scanner, path, (low, high), start)
    is_forwards = _is_ascending(low, high, text)
    if is_forwards is None:
        return None
    _check_ascending(scanner, is_forwards, f"{high}..{low}", start)
    return Range(path, low, high, path.offset)


def _is_ascending(low: str, high: str, text: str) -> bool | None:
    """Return whether the range ascends; None if it is not a range of two numbers or two dates."""
    if _NUMBER_RANGE.fullmatch(text):
        return float(low) <= float(high)
    return low <= high if ISO_TIME.fullmatch(low) and ISO_TIME.fullmatch(high) else None


def _read_level_range(scanner: Scanner, path: Path, bounds: tuple[str, str], start: int) -> LevelRange:
    for bound in bounds:
        if bound not in SEVERITY_LEVELS:
            raise scanner.fault(
                f"There is no level called {bound[:40]}.", f"Levels are {', '.join(SEVERITY_LEVELS)}.", start
            )
    low, high = bounds
    _check_ascending(scanner, SEVERITY_LEVELS.index(low) <= SEVERITY_LEVELS.index(high), f"{high}..{low}", start)
    return LevelRange(path, low, high, path.offset)


def _check_ascending(scanner: Scanner, is_forwards: bool, reversed_range: str, start: int) -> None:  # noqa: FBT001 # the fact itself
    if not is_forwards:
        raise scanner.fault("The range runs backwards.", f"Write {reversed_range}.", start)
