"""LogQL requests, and the syntax tree of their queries: immutable nodes, most with their position (`text_offset`)."""

from enum import StrEnum
from typing import Final

import msgspec

from cordwood.errors import BadParameter


class ComparisonOperator(StrEnum):
    """The operator of a matcher, a label filter or a comparison of samples."""

    EQUAL = "=="
    NOT_EQUAL = "!="
    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="
    REGEX = "=~"
    NOT_REGEX = "!~"


NEGATED_COMPARISONS = frozenset({ComparisonOperator.NOT_EQUAL, ComparisonOperator.NOT_REGEX})
REGEX_COMPARISONS = frozenset({ComparisonOperator.REGEX, ComparisonOperator.NOT_REGEX})


class NumberKind(StrEnum):
    """The kind of quantity that a number in a label filter or in the samples of `unwrap` represents."""

    NUMBER = "number"
    DURATION = "duration"
    BYTES = "bytes"


class TextMatch(msgspec.Struct, frozen=True):
    """A comparison of a label with a text, as a matcher of a selector or as a label filter."""

    label: str
    operator: ComparisonOperator
    text: str
    text_offset: int = 0


class NumberMatch(msgspec.Struct, frozen=True):
    """A comparison of a label with a number, a duration in seconds, or a size in bytes."""

    label: str
    operator: ComparisonOperator
    number: float
    number_kind: NumberKind
    text_offset: int = 0


class MatchConjunction(msgspec.Struct, frozen=True):
    """Two label filters joined by `and`, a comma or a blank."""

    left: "LabelMatch"
    right: "LabelMatch"


class MatchDisjunction(msgspec.Struct, frozen=True):
    """Two label filters joined by `or`."""

    left: "LabelMatch"
    right: "LabelMatch"


LabelMatch = TextMatch | NumberMatch | MatchConjunction | MatchDisjunction


class LineFilter(msgspec.Struct, frozen=True):
    """A filter of lines: it keeps lines that contain any of `texts` or, if negated, none of them.

    If `is_regex` is set, `texts` are regular expressions.
    """

    texts: tuple[str, ...]
    is_regex: bool
    is_negated: bool
    text_offset: int = 0


class LabelExtraction(msgspec.Struct, frozen=True):
    """A label to extract from a line, and the path of its value.

    In JSON, the steps of the path are keys and array indexes; in logfmt, the path is a single key.
    """

    label: str
    path_steps: tuple[str | int, ...]
    text_offset: int = 0


class ParserKind(StrEnum):
    JSON = "json"
    LOGFMT = "logfmt"


class ParserStage(msgspec.Struct, frozen=True):
    """A stage that parses the line and extracts the fields in `extractions` or, if there are none, every field."""

    kind: ParserKind
    extractions: tuple[LabelExtraction, ...] = ()
    text_offset: int = 0


class LabelFilter(msgspec.Struct, frozen=True):
    label_match: LabelMatch


class LabelSelection(msgspec.Struct, frozen=True):
    """The stage `drop`, with the labels to remove, or the stage `keep`, with the labels to keep."""

    labels: tuple[str, ...]
    keeps_listed: bool = False
    text_offset: int = 0

    def removes_label(self, name: str) -> bool:
        return (name in self.labels) != self.keeps_listed


class TemplatePlaceholder(msgspec.Struct, frozen=True):
    """A placeholder in a template: the value of the label `label_name`, or the line if `label_name` is None."""

    label_name: str | None


class LineFormat(msgspec.Struct, frozen=True):
    """The stage `line_format`: a template of texts and placeholders. The filled template replaces the line."""

    template_parts: tuple[str | TemplatePlaceholder, ...]
    text_offset: int = 0


# A stage that affects labels or lines, and one of any kind.
LabelOrLineStage = ParserStage | LabelSelection | LineFormat
Stage = LineFilter | LabelFilter | LabelOrLineStage


class Pipeline(msgspec.Struct, frozen=True):
    """A log query: the stream selector and the stages after it."""

    matchers: tuple[TextMatch, ...]
    stages: tuple[Stage, ...] = ()
    text_offset: int = 0


class UnwrapStage(msgspec.Struct, frozen=True):
    """The stage `unwrap`, which makes the values of `label` the samples of the range."""

    label: str
    number_kind: NumberKind
    text_offset: int = 0


class Grouping(msgspec.Struct, frozen=True):
    """The clause `by`, with the labels to keep, or the clause `without`, with the labels to remove."""

    labels: tuple[str, ...] = ()
    excludes_labels: bool = False
    text_offset: int = 0


class RangeAggregate(msgspec.Struct, frozen=True):
    """A function over the entries in a time range that ends at each step.

    `offset_modifier_us` is the value of LogQL's modifier `offset`, which moves the range back in time. The field
    `text_offset` is the position of the function in the query's text.
    """

    function_name: str
    pipeline: Pipeline
    range_us: int
    offset_modifier_us: int = 0
    unwrap_stage: UnwrapStage | None = None
    quantile: float | None = None
    grouping: Grouping | None = None
    text_offset: int = 0


class VectorAggregate(msgspec.Struct, frozen=True):
    """An aggregate of series in groups of equal labels.

    For `topk` and `bottomk`, `max_series_per_group` is the number of series to keep.
    """

    function_name: str
    operand: "MetricQuery"
    grouping: Grouping = Grouping()
    max_series_per_group: int | None = None
    text_offset: int = 0


class NumberLiteral(msgspec.Struct, frozen=True):
    """A number in a query. `is_vector` is set for a number written as `vector(1)`, which is a series without labels."""

    value: float
    is_vector: bool = False
    text_offset: int = 0


class BinaryOperation(msgspec.Struct, frozen=True):
    """An operation on two operands.

    If `has_bool_modifier` is set, a comparison yields 0 or 1 for every sample instead of filtering samples.
    """

    operator: str
    left: "MetricQuery"
    right: "MetricQuery"
    has_bool_modifier: bool = False
    text_offset: int = 0


MetricQuery = RangeAggregate | VectorAggregate | BinaryOperation | NumberLiteral
Query = Pipeline | MetricQuery


def pipelines_of(query: Query) -> list[Pipeline]:
    """Return the pipelines (log queries) that a query contains."""
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


# The maximum number of steps of one series; Loki has the same limit.
MAX_SAMPLE_STEPS: Final = 11_000
# The maximum number of samples in one answer, summed over all series.
MAX_SAMPLES: Final = 300_000


class ResultKind(StrEnum):
    """The kind of results in an answer: entries, samples, values of a label, label sets of streams, or counts."""

    ENTRIES = "entries"
    SAMPLES = "samples"
    LABEL_VALUES = "values"
    STREAMS = "streams"
    STREAM_AND_ENTRY_COUNTS = "counts"


class SampleSteps(msgspec.Struct, frozen=True):
    """The times at which samples are computed: `count` times, which begin at `start_us` and are `step_us` apart."""

    start_us: int
    step_us: int
    count: int


class LogqlRequest(msgspec.Struct, frozen=True, array_like=True):
    """A LogQL request: its queries, its time range, and the kind of its results.

    Entries are requested from `start_us` (inclusive) to `end_us` (exclusive). Samples are computed at `start_us` and
    every `step_us` after it, up to `end_us`. `requested_label` is the label whose values are requested.
    `labels_matched_by_parameters` are labels that a matcher compares with `=` and that are also parameters of the
    endpoint. With these parameters, the endpoint's query returns only events whose labels are equal, so that the
    matchers need not be translated.
    """

    result_kind: ResultKind
    queries: tuple[str, ...]
    start_us: int
    end_us: int
    step_us: int = 1
    limit: int = 100
    is_oldest_first: bool = False
    requested_label: str = ""
    labels_matched_by_parameters: tuple[str, ...] = ()

    @property
    def sample_steps(self) -> SampleSteps:
        return SampleSteps(self.start_us, self.step_us, max(0, self.end_us - self.start_us) // self.step_us + 1)

    @property
    def json_text(self) -> str:
        """The request as JSON. Caches use this text as the request's key."""
        return msgspec.json.encode(self).decode()


_decode_request_json = msgspec.json.Decoder(LogqlRequest).decode


def decode_request(text: str) -> LogqlRequest:
    return _decode_request_json(text)


def max_series_count(steps: SampleSteps) -> int:
    """Return the maximum number of series in an answer whose series have these steps."""
    return max(1, MAX_SAMPLES // steps.count)


def check_step_count(steps: SampleSteps) -> None:
    if steps.count > MAX_SAMPLE_STEPS:
        raise BadParameter(
            f"The range has more than {MAX_SAMPLE_STEPS:,} steps.", hint="Send a larger step, or a shorter range."
        )
