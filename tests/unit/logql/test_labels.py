"""Labels of LogQL: the fields that the name of a label reads, and the labels of entries in answers."""

from cordwood.logql.labels import (
    MAX_LABELS_PER_SERIES,
    EventLabels,
    FormatBudget,
    PipelineState,
    choose_label_names,
    label_column_name,
    label_name_of_column,
    read_entry,
)
from cordwood.logql.syntax import ParserKind, ParserStage
from cordwood.lql.columns import KeyPath, SubQueryInfo
from cordwood.model.datatype import Kind

COLUMN_KINDS = {
    "timestamp": Kind.TIMESTAMP,
    "event_message": Kind.STRING,
    "metadata": Kind.VARIANT,
    "project": Kind.STRING,
}
LISTED_KEYS: dict[KeyPath, KeyPath] = {
    ("metadata",): ("a", "a-b", "a_b", "labels", "level"),
    ("metadata", "a"): ("b",),
    ("metadata", "labels"): ("app", "job"),
}
PARSER_STATE = PipelineState()


def labels_of_events(paths_by_parent: dict[KeyPath, KeyPath], *, is_complete: bool = True) -> EventLabels:
    info = SubQueryInfo(
        "edge_logs", COLUMN_KINDS, lambda _: not is_complete, "", child_keys=lambda keys: paths_by_parent.get(keys, ())
    )
    return EventLabels(info)


def label_sql(event_labels: EventLabels, name: str) -> str:
    value = event_labels.label_value(name, PARSER_STATE, 0)
    return "" if value is None else value.text_expression.sql("bigquery")


def test_a_label_reads_every_field_with_that_label_name() -> None:
    paths = label_sql(labels_of_events(LISTED_KEYS), "a_b")
    assert paths.count("attribute") == 3
    assert all(path in paths for path in ("metadata.`a`.`b`", "metadata.`a-b`", "metadata.`a_b`"))
    assert label_sql(labels_of_events(LISTED_KEYS), "nothing") == ""
    assert "project" in label_sql(labels_of_events(LISTED_KEYS), "project")


def test_a_label_reads_an_unlisted_field_if_the_list_is_incomplete() -> None:
    assert "metadata.`nothing`" in label_sql(labels_of_events(LISTED_KEYS, is_complete=False), "nothing")


def test_labels_of_streams_are_the_same_in_queries_and_answers() -> None:
    metadata = [{"a": [{"b": 1}], "labels": [{"app": "x", "job": "y"}], "level": "WARN", "list": [1, 2], "none": None}]
    state = PipelineState((ParserStage(ParserKind.LOGFMT),))
    entry, _ = read_entry("edge_logs", metadata, "k=v", state, FormatBudget(0))
    assert labels_of_events(LISTED_KEYS).stream_label_names() == sorted(entry.stream_labels)
    assert entry.stream_labels == {
        "app": "x",
        "job": "y",
        "level": "warn",
        "service_name": "x",
        "source_name": "edge_logs",
    }
    assert entry.field_labels == {"a_b": "1"}
    assert entry.parsed_labels == {"k": "v"}


def test_labels_that_differ_by_case_have_different_columns() -> None:
    names = ("app", "App", "aPP", "_a", "A_")
    columns = [label_column_name(name) for name in names]
    assert len({column.lower() for column in columns}) == len(names)
    assert [label_name_of_column(column) for column in columns] == list(names)


def test_the_number_of_labels_is_limited_and_stream_labels_are_kept() -> None:
    names = [*(f"a{number}" for number in range(1000)), "level", "service_name", "source_name"]
    limited_labels = choose_label_names(names)
    assert len(limited_labels) == MAX_LABELS_PER_SERIES
    assert {"level", "service_name", "source_name"} <= set(limited_labels)
    assert limited_labels == sorted(limited_labels)
