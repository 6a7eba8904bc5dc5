"""Translation of log queries: SELECTs of the entries that a pipeline matches, and what clients ask beside them.

Of each sub-query that a pipeline matches there is a SELECT of its events. Clients also ask for values of a label, for
streams, and for counts.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.logql.conditions import Conditions, may_equal
from cordwood.logql.label_names import METADATA, SOURCE_NAME, first_labels, label_column, source_of
from cordwood.logql.labels import EventLabels, ParserState, label_reference, missing
from cordwood.logql.request import LogqlRequest
from cordwood.logql.syntax import Pipeline
from cordwood.lql.columns import SubQueryInfo
from cordwood.sql.query_templates import alias, column, fill, literal, number, ordered, table


class Window(msgspec.Struct, frozen=True):
    """A range of time in microseconds since 1970: `low_us` is inclusive, `high_us` exclusive."""

    low_us: int
    high_us: int


# Sub-queries that one selector may match: each is compiled and scanned by itself.
MAX_SOURCES: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


class Branch(msgspec.Struct, frozen=True):
    """The entries of one sub-query: its labels, the conditions, and the parsers after the last stage."""

    labels: EventLabels
    conditions: list[exp.Expr]
    state: ParserState

    def select(self, columns: Sequence[exp.Expr], window: Window) -> exp.Select:
        """Return the SELECT of columns that were made with `labels`."""
        info = self.labels.info
        tree = exp.Select(expressions=[*columns]).from_(table(info.sub_query), copy=False)
        time = self.labels.timestamp()
        within = [
            fill("@time >= CAST(@low AS TIMESTAMP)", 0, time=time, low=_moment(window.low_us)),
            fill("@time < CAST(@high AS TIMESTAMP)", 0, time=time, high=_moment(window.high_us)),
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
        return found or [self._nothing()]

    def _nothing(self) -> Branch:
        return Branch(EventLabels(self.infos[0]), [fill("FALSE")], ParserState())


def may_match_source(sub_query: str, pipelines: Iterable[Pipeline]) -> bool:
    """Return whether a log query may read a sub-query, by its name alone: describing a sub-query costs time."""
    return any(
        all(may_equal(matcher, source_of(sub_query)) for matcher in pipeline.matchers if matcher.label == SOURCE_NAME)
        for pipeline in pipelines
    )


def select_entries(
    branches: Iterable[Branch], columns: Callable[[Branch], Sequence[exp.Expr]], window: Window
) -> exp.Select:
    """Return the entries of all branches, as one relation."""
    return united([branch.select(columns(branch), window) for branch in branches])


def united(selects: Sequence[exp.Select]) -> exp.Select:
    """Return the rows of all SELECTs, which have the same columns."""
    if len(selects) == 1:
        return selects[0]
    return from_relation([exp.Star()], _union_of(selects), "entries")


def _union_of(selects: Sequence[exp.Select]) -> exp.Expr:
    parts: list[exp.Expr] = [select.subquery(copy=False) for select in selects]
    return reduce(_union, parts)


def _union(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.Union(this=left, expression=right, distinct=False)


def from_relation(columns: Sequence[exp.Expr], relation: exp.Expr, name: str) -> exp.Select:
    """Return a SELECT from a derived table; the name is prefixed, so that it hides no sub-query."""
    derived = exp.Subquery(this=relation, alias=exp.TableAlias(this=exp.to_identifier(f"logql_{name}")))
    return exp.Select(expressions=[*columns]).from_(derived, copy=False)


def _source_columns(branch: Branch) -> list[exp.Expr]:
    """Return the columns from which entries are answered."""
    labels = branch.labels
    has_metadata = labels.info.has_column(METADATA)
    return [
        alias(fill("@name", 0, name=labels.source), "source_name"),
        alias(labels.timestamp(), "timestamp"),
        alias(labels.message(), "event_message"),
        column((METADATA,)) if has_metadata else alias(missing(), METADATA),
    ]


def _moment(us: int) -> str:
    """Return a time as BigQuery reads it, within the calendar."""
    try:
        time = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        time = _LAST if us > 0 else datetime(1, 1, 1, tzinfo=UTC)
    return time.isoformat(" ")


_TIME: Final = "timestamp"
_Columns = Callable[[Branch], Sequence[exp.Expr]]


def select_log_lines(pipeline: Pipeline, sources: Sources, request: LogqlRequest) -> exp.Select:
    """Return the entries of a log query, newest or oldest first."""
    window = _window(request)
    selects = []
    for branch in sources.branches(pipeline):
        select = branch.select(_source_columns(branch), window)
        selects.append(_page(select, request))
    if len(selects) == 1:
        return selects[0]
    return _page(from_relation([exp.Star()], _union_of(selects), "entries"), request)


def select_values(pipelines: Sequence[Pipeline], sources: Sources, request: LogqlRequest) -> exp.Select:
    """Return the values of a label."""

    def value(branch: Branch) -> list[exp.Expr]:
        found = branch.labels.label(request.label, branch.state, 0)
        return [alias(literal("") if found is None else found.text, "value")]

    entries = _of_all(pipelines, sources, value, request)
    tree = from_relation([column(("value",))], entries, "values").where(fill("IFNULL(value, '') != ''"), copy=False)
    tree.group_by(column(("value",)), copy=False)
    tree.order_by(ordered(column(("value",)), is_descending=False), copy=False)
    return tree.limit(number(str(request.limit)), copy=False)


def select_streams(pipelines: Sequence[Pipeline], sources: Sources, request: LogqlRequest) -> exp.Select:
    """Return the label sets of streams."""
    labels = _stream_labels(pipelines, sources)
    entries = _of_all(pipelines, sources, lambda branch: _label_values(branch, labels), request)
    tree = from_relation([label_reference(name) for name in labels], entries, "streams")
    tree.group_by(*[label_reference(name) for name in labels], copy=False)
    return tree.limit(number(str(request.limit)), copy=False)


def select_counts(pipelines: Sequence[Pipeline], sources: Sources, request: LogqlRequest) -> exp.Select:
    """Return the number of streams, of entries, and of bytes of their lines."""
    labels = _stream_labels(pipelines, sources)

    def columns(branch: Branch) -> list[exp.Expr]:
        size = fill("IFNULL(BYTE_LENGTH(@line), 0)", 0, line=branch.labels.message())
        return [*_label_values(branch, labels), alias(size, "bytes")]

    grouped = [label_reference(name) for name in labels]
    entries = _of_all(pipelines, sources, columns, request)
    counted = [alias(fill("COUNT(*)"), "entries"), alias(fill("SUM(bytes)"), "bytes")]
    streams = from_relation([*grouped, *counted], entries, "entries")
    streams.group_by(*[label_reference(name) for name in labels], copy=False)
    totals = [("COUNT(*)", "streams"), ("IFNULL(SUM(entries), 0)", "entries"), ("IFNULL(SUM(bytes), 0)", "bytes")]
    return from_relation([alias(fill(template), name) for template, name in totals], streams, "streams")


def _stream_labels(pipelines: Sequence[Pipeline], sources: Sources) -> list[str]:
    branches = [branch for pipeline in pipelines for branch in sources.branches(pipeline)]
    return first_labels(name for branch in branches for name in branch.labels.stream_label_names())


def _label_values(branch: Branch, labels: Sequence[str]) -> list[exp.Expr]:
    values = [branch.labels.stream_label(name) for name in labels]
    texts = [literal("") if value is None else fill("IFNULL(@value, '')", 0, value=value.text) for value in values]
    return [alias(text, label_column(name)) for name, text in zip(labels, texts, strict=True)]


def _of_all(pipelines: Sequence[Pipeline], sources: Sources, columns: _Columns, request: LogqlRequest) -> exp.Select:
    branches = [branch for pipeline in pipelines for branch in sources.branches(pipeline)]
    return select_entries(branches, columns, _window(request))


def _page(select: exp.Select, request: LogqlRequest) -> exp.Select:
    select.order_by(ordered(column((_TIME,)), not request.is_forward), copy=False)
    return select.limit(number(str(request.limit)), copy=False)


def _window(request: LogqlRequest) -> Window:
    return Window(request.start_us, request.end_us)
