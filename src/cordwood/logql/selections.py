"""Translation of log queries, and of what clients ask beside them: values of a label, streams, and counts."""

from collections.abc import Callable, Sequence
from typing import Final

from sqlglot import exp

from cordwood.logql.entries import Branch, Sources, Window, from_relation, select_entries, source_columns, union_of
from cordwood.logql.label_names import first_labels, label_column
from cordwood.logql.labels import label_reference
from cordwood.logql.request import LogqlRequest
from cordwood.logql.syntax import Pipeline
from cordwood.sql.query_templates import alias, column, fill, literal, number, ordered

_TIME: Final = "timestamp"

Columns = Callable[[Branch], Sequence[exp.Expr]]


def select_log_lines(pipeline: Pipeline, sources: Sources, request: LogqlRequest) -> exp.Select:
    """Return the entries of a log query, newest or oldest first."""
    window = _window(request)
    selects = []
    for branch in sources.branches(pipeline):
        select = branch.select(source_columns(branch), window)
        selects.append(_page(select, request))
    if len(selects) == 1:
        return selects[0]
    return _page(from_relation([exp.Star()], union_of(selects), "entries"), request)


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


def _of_all(pipelines: Sequence[Pipeline], sources: Sources, columns: Columns, request: LogqlRequest) -> exp.Select:
    branches = [branch for pipeline in pipelines for branch in sources.branches(pipeline)]
    return select_entries(branches, columns, _window(request))


def _page(select: exp.Select, request: LogqlRequest) -> exp.Select:
    select.order_by(ordered(column((_TIME,)), not request.is_forward), copy=False)
    return select.limit(number(str(request.limit)), copy=False)


def _window(request: LogqlRequest) -> Window:
    return Window(request.start_us, request.end_us)
