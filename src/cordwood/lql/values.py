"""The parser of a field's value, from the operator on."""

import re
from typing import Final

from cordwood.lql.query import Any, Bare, Field, Levels, Null, Operator, Path, Quoted, Range, Value
from cordwood.lql.scan import Scanner
from cordwood.lql.times import ISO

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_NUMBER: Final = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
NUMBER: Final = re.compile(_NUMBER, re.ASCII)
_NUMBERS: Final = re.compile(rf"{_NUMBER}\.\.{_NUMBER}", re.ASCII)
_HALF: Final = re.compile(rf"{_NUMBER}\.\.|\.\.{_NUMBER}", re.ASCII)
_OPERATOR: Final = re.compile(r">=|<=|@>~|@>|>|<|~")
_LIST: Final = re.compile(r"\[[^\[\]]*\]")
_MOST_VALUES: Final = 50
_TEXTUAL: Final = frozenset({Operator.REGEX, Operator.INCLUDES_REGEX})


def read_operator(scanner: Scanner) -> Operator:
    found = _OPERATOR.match(scanner.text, scanner.at)
    scanner.at += len(found[0]) if found else 0
    return Operator(found[0] if found else "")


def read_value(scanner: Scanner, path: Path) -> Field | Range | Levels | Any:
    """Parse what follows `path:`, from the operator on."""
    operator = read_operator(scanner)
    began = scanner.at
    if scanner.next == '"':
        return Field(path, operator, Quoted(scanner.quoted()), path.at)
    if scanner.next == "(" and (whole := scanner.parenthesised()):
        text = whole if operator in _TEXTUAL else whole[1:-1]
        return Field(path, operator, Quoted(text), path.at)
    text = unescaped_quotes(scanner.run())
    if not text:
        raise scanner.fault("A value is missing.", 'An empty text is written "".', began)
    if operator in _TEXTUAL:
        return Field(path, operator, Quoted(text), path.at)
    if operator is Operator.EQUAL and _LIST.fullmatch(text):
        return _one_of(scanner, path, text, began)
    return _read_bare(scanner, Field(path, operator, Bare(text), path.at), began)


def _one_of(scanner: Scanner, path: Path, text: str, began: int) -> Any:
    """Return the condition of `path:[200,404]`, that the field equals one of the values."""
    values = text[1:-1].split(",")
    if not all(values) or len(values) > _MOST_VALUES:
        raise scanner.fault(
            f"A list has 1 to {_MOST_VALUES} values, and commas between them.",
            "Write it as in m.status:[200,404].",
            began,
        )
    return Any(tuple(Field(path, Operator.EQUAL, Bare(value), path.at) for value in values))


def read_whole(scanner: Scanner) -> str:
    """Parse a literal text, quoted or not."""
    return scanner.quoted() if scanner.next == '"' else unescaped_quotes(scanner.run())


def unescaped_quotes(word: str) -> str:
    r"""Return an unquoted word with `\"` unescaped; other backslashes are literal."""
    return word.replace('\\"', '"')


def _read_bare(scanner: Scanner, field: Field, began: int) -> Field | Range | Levels:
    text = field.value.text if isinstance(field.value, Bare) else ""
    ranged = _read_range(scanner, field.path, text, began)
    if ranged is None:
        return Field(field.path, field.operator, _value(scanner, field.operator, text, began), field.at)
    if field.operator is Operator.INCLUDES:
        return field
    if field.operator is not Operator.EQUAL:
        raise scanner.fault("A range takes no operator.", f"Write the path, a colon and {text}.", began)
    return ranged


def _value(scanner: Scanner, operator: Operator, text: str, began: int) -> Value:
    if text != "NULL":
        return Bare(text)
    if operator is not Operator.EQUAL:
        raise scanner.fault("NULL takes no operator.", 'The text NULL is written "NULL".', began)
    return Null()


def _read_range(scanner: Scanner, path: Path, text: str, began: int) -> Range | Levels | None:
    if _HALF.fullmatch(text):
        raise scanner.fault("A range has two ends.", "For one end use an operator, as in :>=200.", began)
    low, dots, high = text.partition("..")
    if dots and path.last == "level" and (low in LEVELS or high in LEVELS):
        return _levels(scanner, path, (low, high), began)
    is_forwards = _is_forwards(low, high, text)
    if is_forwards is None:
        return None
    _check_forwards(scanner, is_forwards, f"{high}..{low}", began)
    return Range(path, low, high, path.at)


def _is_forwards(low: str, high: str, text: str) -> bool | None:
    """Return whether the range ascends; None if it is not a range of two numbers or two dates."""
    if _NUMBERS.fullmatch(text):
        return float(low) <= float(high)
    return low <= high if ISO.fullmatch(low) and ISO.fullmatch(high) else None


def _levels(scanner: Scanner, path: Path, ends: tuple[str, str], began: int) -> Levels:
    for end in ends:
        if end not in LEVELS:
            raise scanner.fault(f"There is no level called {end[:40]}.", f"Levels are {', '.join(LEVELS)}.", began)
    low, high = ends
    _check_forwards(scanner, LEVELS.index(low) <= LEVELS.index(high), f"{high}..{low}", began)
    return Levels(path, low, high, path.at)


def _check_forwards(scanner: Scanner, is_forwards: bool, turned: str, began: int) -> None:  # noqa: FBT001 # the fact itself
    if not is_forwards:
        raise scanner.fault("The range runs backwards.", f"Write {turned}.", began)
