"""Translation of log queries: the SELECTs of the entries that a pipeline matches, and other queries of Loki's API.

Each sub-query that a pipeline matches is read by a SELECT of its own. The other queries return the values of a label,
streams, or counts.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.logql.conditions import Conditions, may_equal
from cordwood.logql.label_names import METADATA_COLUMN, SOURCE_NAME, first_labels, label_column, source_of
from cordwood.logql.labels import EventLabels, ParserState, label_reference, null_text
from cordwood.logql.request import LogqlRequest
from cordwood.logql.syntax import Pipeline
from cordwood.lql.columns import SubQueryInfo
from cordwood.sql.query_templates import alias, column, fill, literal, number, ordered, table


class Window(msgspec.Struct, frozen=True):
    """A range of time in microseconds since 1970: `low_us` is inclusive, `high_us` exclusive."""

    low_us: int
    high_us: int


# The limit on sub-queries that one selector may match: each is compiled and scanned separately.
MAX_SOURCES: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_TIME: Final = datetime.max.replace(tzinfo=UTC)


class Branch(msgspec.Struct, frozen=True):
    """The entries of one sub-query: its labels, the conditions, and the parsers after the last stage."""

    labels: EventLabels
    conditions: list[exp.Expr]
    state: ParserState

    def select(self, columns: Sequence[exp.Expr], window: Window) -> exp.Select:
        """Return a SELECT of these columns, which are expressions over the sub-query's labels."""
        info = self.labels.info
        tree = exp.Select(expressions=[*columns]).from_(table(info.sub_query), copy=False)
        time = self.labels.timestamp()
        within = [
            fill("@time >= CAST(@low AS TIMESTAMP)", 0, time=time, low=_timestamp_text(window.low_us)),
            fill("@time < CAST(@high AS TIMESTAMP)", 0, time=time, high=_timestamp_text(window.high_us)),
        ]
        return tree.where(*within, *self.conditions, copy=False)


class Sources(msgspec.Struct, frozen=True):
    """The sub-queries that a query may read, with their metadata."""

    infos: Sequence[SubQueryInfo]
    given: frozenset[str] = frozenset()

    def branches(self, pipeline: Pipeline) -> list[Branch]:
        """Return a branch for every sub-query that may have entries of the pipeline."""
        found: list[Branch] = []
        for info in self.infos:
            translation = Conditions(EventLabels(info), self.given)
            conditions = translation.of_pipeline(pipeline)
            if conditions is not None:
                found.append(Branch(translation.labels, conditions, translation.state))
        if len(found) > MAX_SOURCES:
            raise QueryUnsupported(
                f"The selector matches {len(found)} sources; at most {MAX_SOURCES} can be read at once.",
                hint='Select some of them, as in {source_name=~"app.+"}.',
                span=found[0].labels.info.span(pipeline.offset),
            )
        return found or [self._empty_branch()]

    def _empty_branch(self) -> Branch:
        return Branch(EventLabels(self.infos[0]), [fill("FALSE")], ParserState())


def may_match_source(sub_query: str, pipelines: Iterable[Pipeline]) -> bool:
    """Return whether a log query may read a sub-query.

    This is decided by the sub-query's name alone, because describing a sub-query costs time.
    """
    return any(
        all(may_equal(matcher, source_of(sub_query)) for matcher in pipeline.matchers if matcher.label == SOURCE_NAME)
        for pipeline in pipelines
    )


def select_entries(
    branches: Iterable[Branch], columns: Callable[[Branch], Sequence[exp.Expr]], window: Window
) -> exp.Select:
    """Return the entries of all branches, as one relation."""
    return union_all([branch.select(columns(branch), window) for branch in branches])


def union_all(selects: Sequence[exp.Select]) -> exp.Select:
    """Return the rows of all SELECTs, which have the same columns."""
    if len(selects) == 1:
        return selects[0]
    return from_relation([exp.Star()], _union_tree(selects), "entries")


def _union_tree(selects: Sequence[exp.Select]) -> exp.Expr:
    parts: list[exp.Expr] = [select.subquery(copy=False) for select in selects]
    return reduce(_union, parts)


def _union(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.Union(this=left, expression=right, distinct=False)


def from_relation(columns: Sequence[exp.Expr], relation: exp.Expr, name: str) -> exp.Select:
    """Return a SELECT from a derived table.

    The table's name gets a prefix, so that it cannot hide a sub-query of the same name.
    """
    derived = exp.Subquery(this=relation, alias=exp.TableAlias(this=exp.to_identifier(f"logql_{name}")))
    return exp.Select(expressions=[*columns]).from_(derived, copy=False)


def _source_columns(branch: Branch) -> list[exp.Expr]:
    """Return the columns that an answer's entries are made from."""
    labels = branch.labels
    has_metadata = labels.info.has_column(METADATA_COLUMN)
    return [
        alias(fill("@name", 0, name=labels.source), "source_name"),
        alias(labels.timestamp(), "timestamp"),
        alias(labels.message(), "event_message"),
        column((METADATA_COLUMN,)) if has_metadata else alias(null_text(), METADATA_COLUMN),
    ]


def _timestamp_text(us: int) -> str:
    """Return a time in BigQuery's notation; times outside of the calendar become its first or last moment."""
    try:
        time = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        time = _LATEST_TIME if us > 0 else datetime(1, 1, 1, tzinfo=UTC)
    return time.isoformat(" ")


_TIME_COLUMN: Final = "timestamp"
_ColumnsOfBranch = Callable[[Branch], Sequence[exp.Expr]]


def select_log_lines(pipeline: Pipeline, sources: Sources, request: LogqlRequest) -> exp.Select:
    """Return the entries of a log query, newest or oldest first."""
    window = _request_window(request)
    selects = []
    for branch in sources.branches(pipeline):
        select = branch.select(_source_columns(branch), window)
        selects.append(_order_and_limit(select, request))
    if len(selects) == 1:
        return selects[0]
    return _order_and_limit(from_relation([exp.Star()], _union_tree(selects), "entries"), request)


def select_values(pipelines: Sequence[Pipeline], sources: Sources, request: LogqlRequest) -> exp.Select:
    """Return a SELECT of the distinct values of a label."""

    def value(branch: Branch) -> list[exp.Expr]:
        found = branch.labels.label(request.label, branch.state, 0)
        return [alias(literal("") if found is None else found.text, "value")]

    entries = _select_from_all(pipelines, sources, value, request)
    tree = from_relation([column(("value",))], entries, "values").where(fill("IFNULL(value, '') != ''"), copy=False)
    tree.group_by(column(("value",)), copy=False)
    tree.order_by(ordered(column(("value",)), is_descending=False), copy=False)
    return tree.limit(number(str(request.limit)), copy=False)


def select_streams(pipelines: Sequence[Pipeline], sources: Sources, request: LogqlRequest) -> exp.Select:
    """Return a SELECT of the distinct label sets of streams."""
    labels = _stream_labels(pipelines, sources)
    entries = _select_from_all(pipelines, sources, lambda branch: _stream_label_columns(branch, labels), request)
    tree = from_relation([label_reference(name) for name in labels], entries, "streams")
    tree.group_by(*[label_reference(name) for name in labels], copy=False)
    return tree.limit(number(str(request.limit)), copy=False)


def select_counts(pipelines: Sequence[Pipeline], sources: Sources, request: LogqlRequest) -> exp.Select:
    """Return the number of streams, of entries, and of bytes of their lines."""
    labels = _stream_labels(pipelines, sources)

    def columns(branch: Branch) -> list[exp.Expr]:
        size = fill("IFNULL(BYTE_LENGTH(@line), 0)", 0, line=branch.labels.message())
        return [*_stream_label_columns(branch, labels), alias(size, "bytes")]

    grouped = [label_reference(name) for name in labels]
    entries = _select_from_all(pipelines, sources, columns, request)
    counted = [alias(fill("COUNT(*)"), "entries"), alias(fill("SUM(bytes)"), "bytes")]
    streams = from_relation([*grouped, *counted], entries, "entries")
    streams.group_by(*[label_reference(name) for name in labels], copy=False)
    totals = [("COUNT(*)", "streams"), ("IFNULL(SUM(entries), 0)", "entries"), ("IFNULL(SUM(bytes), 0)", "bytes")]
    return from_relation([alias(fill(template), name) for template, name in totals], streams, "streams")


def _stream_labels(pipelines: Sequence[Pipeline], sources: Sources) -> list[str]:
    branches = [branch for pipeline in pipelines for branch in sources.branches(pipeline)]
    return first_labels(name for branch in branches for name in branch.labels.stream_label_names())


def _stream_label_columns(branch: Branch, labels: Sequence[str]) -> list[exp.Expr]:
    values = [branch.labels.stream_label(name) for name in labels]
    texts = [literal("") if value is None else fill("IFNULL(@value, '')", 0, value=value.text) for value in values]
    return [alias(text, label_column(name)) for name, text in zip(labels, texts, strict=True)]


def _select_from_all(
    pipelines: Sequence[Pipeline], sources: Sources, columns: _ColumnsOfBranch, request: LogqlRequest
) -> exp.Select:
    branches = [branch for pipeline in pipelines for branch in sources.branches(pipeline)]
    return select_entries(branches, columns, _request_window(request))


def _order_and_limit(select: exp.Select, request: LogqlRequest) -> exp.Select:
    select.order_by(ordered(column((_TIME_COLUMN,)), not request.is_forward), copy=False)
    return select.limit(number(str(request.limit)), copy=False)


def _request_window(request: LogqlRequest) -> Window:
    return Window(request.start_us, request.end_us)
