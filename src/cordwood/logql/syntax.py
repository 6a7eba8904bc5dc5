"""The syntax tree of LogQL: queries as values, each node with its position in the text."""

from enum import StrEnum

import msgspec


class Comparison(StrEnum):
    """The operator of a matcher, a label filter or a comparison of samples."""

    EQUAL = "=="
    NOT_EQUAL = "!="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    REGEX = "=~"
    NOT_REGEX = "!~"


NEGATED_COMPARISONS = frozenset({Comparison.NOT_EQUAL, Comparison.NOT_REGEX})
REGEX_COMPARISONS = frozenset({Comparison.REGEX, Comparison.NOT_REGEX})


class Measure(StrEnum):
    """The unit of a number: of a number that a label is compared with, or of the samples of `unwrap`."""

    NUMBER = "number"
    DURATION = "duration"
    BYTES = "bytes"


class TextMatch(msgspec.Struct, frozen=True):
    """A comparison of a label with a text: in a selector, or as a label filter."""

    label: str
    operator: Comparison
    text: str
    offset: int = 0


class NumberMatch(msgspec.Struct, frozen=True):
    """A comparison of a label with a number, a duration in seconds, or a size in bytes."""

    label: str
    operator: Comparison
    number: float
    measure: Measure
    offset: int = 0


class BothMatch(msgspec.Struct, frozen=True):
    """The conjunction of two label filters."""

    left: "LabelMatch"
    right: "LabelMatch"


class EitherMatch(msgspec.Struct, frozen=True):
    """The disjunction of two label filters."""

    left: "LabelMatch"
    right: "LabelMatch"


LabelMatch = TextMatch | NumberMatch | BothMatch | EitherMatch


class LineFilter(msgspec.Struct, frozen=True):
    """A search in the line for any of the texts or patterns."""

    texts: tuple[str, ...]
    is_regex: bool
    is_negated: bool
    offset: int = 0


class Extraction(msgspec.Struct, frozen=True):
    """A label to extract, and the steps to it: keys and array indexes in JSON, one key in logfmt."""

    label: str
    steps: tuple[str | int, ...]
    offset: int = 0


class ParserKind(StrEnum):
    JSON = "json"
    LOGFMT = "logfmt"


class Parser(msgspec.Struct, frozen=True):
    """A parser of the line. Without extractions it extracts every field."""

    kind: ParserKind
    extractions: tuple[Extraction, ...] = ()
    offset: int = 0


class LabelFilter(msgspec.Struct, frozen=True):
    match: LabelMatch


class LabelRemoval(msgspec.Struct, frozen=True):
    """A stage `drop`, with the labels to remove, or `keep`, with the labels to keep."""

    labels: tuple[str, ...]
    keeps: bool = False
    offset: int = 0


class TemplateLabel(msgspec.Struct, frozen=True):
    """A label in a template, which its value replaces; without a name, the line itself."""

    name: str | None


class LineFormat(msgspec.Struct, frozen=True):
    """A template that replaces the line: texts and labels."""

    parts: tuple[str | TemplateLabel, ...]
    offset: int = 0


Stage = LineFilter | Parser | LabelFilter | LabelRemoval | LineFormat


class Pipeline(msgspec.Struct, frozen=True):
    """A log query: the stream selector and the stages after it."""

    matchers: tuple[TextMatch, ...]
    stages: tuple[Stage, ...] = ()
    offset: int = 0


class Unwrap(msgspec.Struct, frozen=True):
    """The label whose values are the samples of a range."""

    label: str
    measure: Measure
    offset: int = 0


class Grouping(msgspec.Struct, frozen=True):
    """The labels of a clause `by` or `without`."""

    labels: tuple[str, ...] = ()
    is_without: bool = False
    offset: int = 0


class RangeAggregate(msgspec.Struct, frozen=True):
    """A function over the entries of a time range before each step, moved back by `shift_us`."""

    function: str
    pipeline: Pipeline
    range_us: int
    shift_us: int = 0
    unwrap: Unwrap | None = None
    parameter: float | None = None
    grouping: Grouping | None = None
    offset: int = 0


class VectorAggregate(msgspec.Struct, frozen=True):
    """An aggregate of the series of a vector, in groups of labels; `parameter` is the number of `topk`."""

    function: str
    operand: "Metric"
    grouping: Grouping = Grouping()
    parameter: int | None = None
    offset: int = 0


class NumberLiteral(msgspec.Struct, frozen=True):
    """A number; `is_vector` is set if it is written `vector(1)`, a series without labels."""

    value: float
    is_vector: bool = False
    offset: int = 0


class BinaryOperation(msgspec.Struct, frozen=True):
    """An operation on two operands; with `is_bool` a comparison yields 0 or 1 instead of filtering."""

    operator: str
    left: "Metric"
    right: "Metric"
    is_bool: bool = False
    offset: int = 0


Metric = RangeAggregate | VectorAggregate | BinaryOperation | NumberLiteral
Query = Pipeline | Metric


def pipelines_of(query: Query) -> list[Pipeline]:
    """Return the log queries in a query."""
    match query:
        case Pipeline():
            return [query]
        case RangeAggregate(_, pipeline):
            return [pipeline]
        case VectorAggregate(_, operand):
            return pipelines_of(operand)
        case BinaryOperation(_, left, right):
            return [*pipelines_of(left), *pipelines_of(right)]
        case _:
            return []
