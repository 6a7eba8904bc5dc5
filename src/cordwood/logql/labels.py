"""Labels of LogQL: their names, their values as SQL expressions, and the labels of each log entry in an answer.

An event's labels are the name of its sub-query or stream (`source_name`, `service_name`), its `level`, and the labels
that Loki's senders push. All other fields of the event are what Loki calls structured metadata: queries can use them in
filters and groups.

Queries filter and group by the SQL expressions. For the entries of an answer, `read_entry` computes the same names
and values in Python, from the entry's metadata and line.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

import msgspec
from sqlglot import exp

from cordwood.bounded_cache import memoize_short_texts
from cordwood.errors import AnswerTooLarge, QueryUnsupported
from cordwood.logql.syntax import (
    LabelExtraction,
    LabelOrLineStage,
    LabelSelection,
    LineFormat,
    NumberKind,
    ParserKind,
    ParserStage,
    Pipeline,
    TemplatePlaceholder,
)
from cordwood.lql.columns import KeyPath, SubQueryInfo
from cordwood.lql.query import EventFieldPath
from cordwood.model.datatype import Kind
from cordwood.model.event import SERVICE_NAME_LABELS
from cordwood.sql.budget import charge_nodes
from cordwood.sql.nodes import internal_call
from cordwood.sql.query_templates import column_node, fill_query_template, text_literal
from cordwood.sql.sub_query_schema import SubQuerySchema

# A label's name may come from a path whose keys are joined by underscores: `a_b` is `a_b` or `a.b`. At most this number
# of underscores in a name are tried as such separators, because each of them doubles the number of paths.
MAX_LABEL_NAME_SPLITS: Final = 3

_UNQUOTED_JSON_KEY_PATTERN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The text before a key in a logfmt line: any number of whole `key=value` pairs, so that a key inside a quoted value is
# not found.
_PRECEDING_PAIRS_PATTERN: Final = r'^\s*(?:[^\s="]+(?:=(?:"(?:[^"\\]|\\.)*"|[^\s"]*))?\s+)*?'


class PipelineState(msgspec.Struct):
    """The stages of a pipeline that affect labels or lines, in their order: parsers, `drop`, `keep`, `line_format`.

    A stage affects only what comes from the stages before it. So a parser extracts a label again that `drop` removed,
    and `line_format` reads labels that are removed after it.
    """

    stages: tuple[LabelOrLineStage, ...] = ()

    @property
    def has_line_format(self) -> bool:
        return any(isinstance(stage, LineFormat) for stage in self.stages)

    def with_stage(self, stage: LabelOrLineStage) -> "PipelineState":
        return PipelineState((*self.stages, stage))

    def is_event_label_removed(self, name: str) -> bool:
        """Return whether `drop` or `keep` removes the label `name` that an event has before the first stage."""
        return any(isinstance(stage, LabelSelection) and stage.removes_label(name) for stage in self.stages)

    def parsers_of_label(self, name: str) -> list[ParserStage]:
        """Return the parsers whose label `name` is not removed by a later stage."""
        found: list[ParserStage] = []
        for stage in self.stages:
            if isinstance(stage, ParserStage):
                found.append(stage)
            elif isinstance(stage, LabelSelection) and stage.removes_label(name):
                found = []
        return found


def final_pipeline_state(pipeline: Pipeline) -> PipelineState:
    """Return the PipelineState after the last stage of a pipeline."""
    return PipelineState(tuple(stage for stage in pipeline.stages if isinstance(stage, LabelOrLineStage)))


def _extracted_values(parser: ParserStage, name: str, line: exp.Expr) -> Iterator[exp.Expr]:
    named = next((extraction for extraction in parser.extractions if extraction.label == name), None)
    if parser.extractions and named is None:
        return
    if parser.kind is ParserKind.LOGFMT:
        yield _logfmt_value(str(named.path_steps[0]) if named else name, line, is_exact=named is not None)
    elif named is not None:
        yield _scalar_or_json_text(named, line)
    else:
        for steps in _paths_for_label(name):
            yield fill_query_template("JSON_VALUE(@line, @path)", 0, line=line, path=_json_path(steps))


def _scalar_or_json_text(extraction: LabelExtraction, line: exp.Expr) -> exp.Expr:
    """Return an expression for the text of a scalar, or for the JSON text of an array or an object."""
    template = "COALESCE(JSON_VALUE(@line, @path), JSON_QUERY(@line, @path))"
    return fill_query_template(template, 0, line=line, path=_json_path(extraction.path_steps))


def _json_path(steps: tuple[str | int, ...]) -> str:
    """Return a path in BigQuery's notation.

    Keys need no escaping, because the LogQL parser accepts no quotes in keys.
    """
    return "$" + "".join(_json_step(step) for step in steps)


def _json_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _UNQUOTED_JSON_KEY_PATTERN.fullmatch(step) else f'["{step}"]'


def _paths_for_label(name: str) -> Iterator[tuple[str, ...]]:
    """Yield the paths whose keys, joined by underscores, give a label's name; first the path of a single key.

    Each of the first `MAX_LABEL_NAME_SPLITS` underscores may separate two keys or belong to a key; all combinations are
    yielded. If there are further underscores, they belong to the last key, and the path that is split at all
    underscores is yielded as well.
    """
    parts = name.split("_")
    places = min(len(parts) - 1, MAX_LABEL_NAME_SPLITS)
    for separators in product("_.", repeat=places):
        joined = parts[0] + "".join(
            f"{separator}{part}" for separator, part in zip(separators, parts[1:], strict=False)
        )
        steps = "_".join([joined, *parts[places + 1 :]]).split(".")
        if all(steps):
            yield tuple(steps)
    if len(parts) - 1 > MAX_LABEL_NAME_SPLITS and all(parts):
        yield tuple(parts)


def _logfmt_value(key: str, line: exp.Expr, *, is_exact: bool) -> exp.Expr:
    """Return an expression for the first value of a key in a logfmt line that is not empty.

    Unless `is_exact`, `key` is a label's name, in which an underscore may replace any character that label names cannot
    have.
    """
    key_pattern = re.escape(key) if is_exact else key.replace("_", r'[^A-Za-z0-9\s="]')
    pattern = rf'{_PRECEDING_PAIRS_PATTERN}{key_pattern}=("(?:[^"\\]|\\.)+"|[^\s"]+)'
    written = fill_query_template("REGEXP_EXTRACT(@line, @pattern)", 0, line=line, pattern=pattern)
    return internal_call("logfmt_text", written)


_MAX_PATH_STEPS: Final = 8
# The maximum number of fields of an event that are read for one label, if the paths of several fields give the label's
# name.
_MAX_FIELDS_PER_LABEL: Final = 4


class LabelValue(msgspec.Struct, frozen=True):
    """An SQL expression for a label's value as text; it is NULL for events without the label.

    `constant_text` is the value itself if all events have the same value.
    """

    text_expression: exp.Expr
    constant_text: str | None = None


class EventLabels:
    """The labels of the events of one sub-query, as SQL expressions.

    In this class, a *stream* is what Loki calls so: the entries that have the same values of certain labels.
    """

    def __init__(self, info: SubQueryInfo) -> None:
        self.sub_query_info = info
        self.source_name = source_name_of(info.sub_query)
        self._child_keys_by_path: dict[KeyPath, KeyPath] = {}
        pushed = {_label_name(key): key for key in reversed(self._child_keys_at(_PUSHED_LABELS_PATH))}
        self._pushed_service_name_keys = [pushed[name] for name in SERVICE_NAME_LABELS if name in pushed]

    def stream_label_names(self) -> list[str]:
        """Return the sorted names of the labels whose values identify a stream."""
        names = {SOURCE_NAME_LABEL, _SERVICE_NAME_LABEL, *map(_label_name, self._child_keys_at(_PUSHED_LABELS_PATH))}
        return sorted(names | {_LEVEL_LABEL} if self._level_paths() else names)

    def message_column(self) -> exp.Expr:
        return column_node((MESSAGE_COLUMN,))

    def timestamp_value(self) -> exp.Expr:
        time = column_node((TIMESTAMP_COLUMN,))
        return (
            time
            if self.sub_query_info.kind_of_path(EventFieldPath((TIMESTAMP_COLUMN,))) is Kind.TIMESTAMP
            else fill_query_template("TIMESTAMP(@value)", 0, value=time)
        )

    def stream_label_value(self, name: str) -> LabelValue | None:
        """Return the value of one of the labels that identify an event's stream; None if no event has the label."""
        return _first_non_empty(self._stream_label_values(name))

    def label_value(self, name: str, state: PipelineState, offset: int) -> LabelValue | None:
        """Return the value of a label for a filter or a group after the stages in `state`; None if no event has it."""
        values = [] if state.is_event_label_removed(name) else self._stream_label_values(name)
        if values and isinstance(values[-1], exp.Literal):
            return _first_non_empty(values)
        if not state.is_event_label_removed(name):
            values += self._fields_for_label_name(name)
        parsers = state.parsers_of_label(name)
        if parsers:
            if name.endswith("_extracted") and not values:
                raise QueryUnsupported(
                    "Labels with the suffix _extracted are not supported.",
                    hint='Extract the field under another name, as in | json other="level".',
                    span=self.sub_query_info.query_text_span(offset),
                )
            line = self.message_column()
            values += [value for parser in parsers for value in _extracted_values(parser, name, line)]
        return _first_non_empty(values)

    def _stream_label_values(self, name: str) -> list[exp.Expr]:
        """Return expressions for the values of a stream's label, of which the first that is not empty counts.

        If the last one is a literal, every event has the label.
        """
        if name == SOURCE_NAME_LABEL:
            return [text_literal(self.source_name)]
        if name == _SERVICE_NAME_LABEL:
            pushed = [self._text_at((*_PUSHED_LABELS_PATH, key)) for key in self._pushed_service_name_keys]
            return [*pushed, text_literal(self.source_name)]
        if name == _LEVEL_LABEL:
            return self._level_values()
        if name == _DETECTED_LEVEL_LABEL:
            return [*self._level_values(), text_literal(_UNKNOWN_LEVEL)]
        return [self._text_at(path) for path in self._paths_for_label_name(_PUSHED_LABELS_PATH, name)]

    def _level_paths(self) -> list[KeyPath]:
        return [path for path in _LEVEL_PATHS if path[-1] in self._child_keys_at(path[:-1])]

    def _level_values(self) -> list[exp.Expr]:
        return [fill_query_template("LOWER(@level)", 0, level=self._text_at(path)) for path in self._level_paths()]

    def _paths_for_label_name(self, root: KeyPath, name: str) -> list[KeyPath]:
        """Return the seen paths below `root` whose keys, joined with underscores, give the label's name."""
        return sorted(self._find_label_paths_below(root, name, _MAX_PATH_STEPS))[:_MAX_FIELDS_PER_LABEL]

    def _find_label_paths_below(self, base: KeyPath, rest: str, steps: int) -> Iterator[KeyPath]:
        for key in self._child_keys_at(base):
            name = _label_name(key)
            if name == rest:
                yield (*base, key)
            elif steps and rest.startswith(f"{name}_"):
                yield from self._find_label_paths_below((*base, key), rest[len(name) + 1 :], steps - 1)

    def _fields_for_label_name(self, name: str) -> list[exp.Expr]:
        """Return expressions for all fields and top-level columns whose label has this name."""
        values = [self._text_at(path) for root in _LABEL_FIELD_ROOTS for path in self._paths_for_label_name(root, name)]
        if not values and self._may_be_unlisted((METADATA_COLUMN, name)):
            values = [self._text_at((METADATA_COLUMN, name))]
        if name not in _NON_LABEL_COLUMNS and self.sub_query_info.has_column(name):
            values.append(_as_text(column_node((name,))))
        return values

    def _may_be_unlisted(self, path: KeyPath) -> bool:
        """Return whether events may have a field at a path that the stream's shape does not list.

        This is known from `may_have_array`, which returns True for a path that is not listed.
        """
        return self.sub_query_info.has_column(METADATA_COLUMN) and self.sub_query_info.may_have_array(path)

    def _child_keys_at(self, base: KeyPath) -> KeyPath:
        if base not in self._child_keys_by_path:
            found = self.sub_query_info.child_keys(base) if self.sub_query_info.has_column(base[0]) else ()
            charge_nodes(len(found))
            self._child_keys_by_path[base] = found
        return self._child_keys_by_path[base]

    def _text_at(self, keys: KeyPath) -> exp.Expr:
        """Return an expression for the value at a path as text: JSON for an array, and NULL for an object."""
        node = column_node(keys[:1])
        for key in keys[1:]:
            node = exp.Dot(this=node, expression=exp.to_identifier(key, quoted=True))
        return internal_call("attribute", node)


def _first_non_empty(values: Sequence[exp.Expr]) -> LabelValue | None:
    """Return an expression for the first value that is neither NULL nor empty; return None if `values` is empty.

    A missing label equals the empty text. So if all values are NULL or empty, it does not matter which is returned.
    """
    if not values:
        return None
    *earlier, found = values
    if not earlier and isinstance(found, exp.Literal):
        return LabelValue(found, found.name)
    for value in reversed(earlier):
        found = fill_query_template("COALESCE(NULLIF(@value, ''), @next)", 0, value=value, next=found)
    return LabelValue(found)


def _as_text(value: exp.Expr) -> exp.Expr:
    return fill_query_template("CAST(@value AS STRING)", 0, value=value)


def null_text() -> exp.Expr:
    return fill_query_template("CAST(NULL AS STRING)")


def label_reference(name: str, relation: str | None = None) -> exp.Expr:
    return column_node((label_column_name(name),) if relation is None else (relation, label_column_name(name)))


def as_number(text: exp.Expr, measure: NumberKind, offset: int) -> exp.Expr:
    """Return an expression that converts a text to a number, and to NULL if that is not possible.

    The text is a number, a duration (converted to seconds) or a size (converted to bytes), depending on `measure`.
    """
    if measure is NumberKind.DURATION:
        return internal_call("duration_seconds", text)
    if measure is NumberKind.BYTES:
        return internal_call("size_bytes", text)
    return fill_query_template("SAFE_CAST(@text AS FLOAT64)", offset, text=text)


SOURCE_NAME_LABEL: Final = "source_name"
_SERVICE_NAME_LABEL: Final = "service_name"
_LEVEL_LABEL: Final = "level"
# Loki's own name for the level. Every entry has this label: `unknown` if the event has no level.
_DETECTED_LEVEL_LABEL: Final = "detected_level"
_UNKNOWN_LEVEL: Final = "unknown"

METADATA_COLUMN: Final = "metadata"
MESSAGE_COLUMN: Final = "event_message"
TIMESTAMP_COLUMN: Final = "timestamp"

# The path at which the labels that Loki's senders push are stored.
_PUSHED_LABELS_PATH: Final = (METADATA_COLUMN, "labels")
# Paths of the level, in order of precedence.
_LEVEL_PATHS: Final = ((METADATA_COLUMN, "level"), (METADATA_COLUMN, "severity_text"), (METADATA_COLUMN, "severity"))
# Paths below which all other labels of an event are looked up, in order of precedence.
_LABEL_FIELD_ROOTS: Final = (
    (METADATA_COLUMN, "structured_metadata"),
    (METADATA_COLUMN, "attributes"),
    (METADATA_COLUMN, "resource"),
    (METADATA_COLUMN,),
)
# The columns whose values are not labels.
_NON_LABEL_COLUMNS: Final = frozenset({"id", TIMESTAMP_COLUMN, MESSAGE_COLUMN, METADATA_COLUMN})

# The name of a sub-query that contains a whole stream is this prefix and the stream's name, because a sub-query cannot
# have the stream's own name.
WHOLE_STREAM_PREFIX: Final = "stream "

# The maximum number of labels of one stream or series.
MAX_LABELS_PER_SERIES: Final = 60

# The prefix of the names of SQL columns that contain labels.
_LABEL_COLUMN_PREFIX: Final = "label_"
_CAPITAL_LETTER_PATTERN: Final = re.compile("[A-Z]")
_ESCAPED_CAPITAL_PATTERN: Final = re.compile(r"\$(.)")

_NON_LABEL_CHARACTER_PATTERN: Final = re.compile(r"[^A-Za-z0-9_]")


@memoize_short_texts(max_length=128, max_entries=4096)
def _label_name(key: str) -> str:
    """Convert a field's key to a label name: special characters become underscores."""
    name = _NON_LABEL_CHARACTER_PATTERN.sub("_", key)
    return f"_{name}" if name[:1].isdigit() else name


def source_name_of(sub_query: str) -> str:
    """Return the value of the label `source_name` for a sub-query.

    It is the sub-query's name or, if the sub-query contains a whole stream, the stream's name.
    """
    return sub_query.removeprefix(WHOLE_STREAM_PREFIX)


def label_column_name(name: str) -> str:
    """Return the name of the SQL column for a label.

    Capital letters are escaped, because the names of two labels may differ only in case, but those of two columns may
    not.
    """
    return _LABEL_COLUMN_PREFIX + _CAPITAL_LETTER_PATTERN.sub(lambda match: f"${match[0].lower()}", name)


def label_name_of_column(column: str) -> str:
    """Return the label whose column has this name."""
    return _ESCAPED_CAPITAL_PATTERN.sub(lambda match: match[1].upper(), column.removeprefix(_LABEL_COLUMN_PREFIX))


def choose_label_names(names: Iterable[str]) -> list[str]:
    """Return the first `MAX_LABELS_PER_SERIES` label names in alphabetical order.

    `source_name`, `service_name` and `level` are always kept, and other names are left out instead.
    """
    own = (SOURCE_NAME_LABEL, _SERVICE_NAME_LABEL, _LEVEL_LABEL)
    ordered = sorted(set(names), key=lambda name: (name not in own, name))
    return sorted(ordered[:MAX_LABELS_PER_SERIES])


def stream_label_names(sub_queries: Iterable[SubQuerySchema]) -> list[str]:
    """Return the sorted names of the labels that identify Loki's streams, over all sub-queries that LogQL can read."""
    return sorted(
        {name for sub_query in sub_queries if _has_log_columns(sub_query) for name in _label_names(sub_query)}
    )


def _has_log_columns(sub_query: SubQuerySchema) -> bool:
    return {MESSAGE_COLUMN, TIMESTAMP_COLUMN} <= {column.name.lower() for column in sub_query.columns}


def _label_names(sub_query: SubQuerySchema) -> Iterator[str]:
    yield SOURCE_NAME_LABEL
    yield _SERVICE_NAME_LABEL
    for result_column in sub_query.columns:
        if result_column.name.lower() != METADATA_COLUMN:
            continue
        for path in result_column.value_kinds_by_path:
            if (METADATA_COLUMN, *path) in _LEVEL_PATHS:
                yield _LEVEL_LABEL
            elif path[:1] == _PUSHED_LABELS_PATH[1:] and len(path) == 2:
                yield _label_name(path[1])


# `_MAX_METADATA_STEPS` is the maximum number of steps of the path to a field that is read as a label.
# `MAX_FIELDS_PER_ENTRY` is the maximum number of labels that are read from an entry's metadata, and also of those that
# are read from its line.
_MAX_METADATA_STEPS: Final = 8
MAX_FIELDS_PER_ENTRY: Final = 500

# A name is tried only at its first character, so that a long word without `=` is read once.
_LOGFMT_PAIR_PATTERN: Final = re.compile(r'(?<![^\s="])([^\s="]++)=("(?:[^"\\]|\\.)*+"|[^\s"]*+)')
_EMPTY_LOGFMT_VALUES: Final = ("", '""')

LabelTexts = dict[str, str]


class EntryLabels(msgspec.Struct, frozen=True):
    """The labels of an entry in three groups: labels of its stream, labels from its other fields, and parsed labels."""

    stream_labels: LabelTexts
    field_labels: LabelTexts
    parsed_labels: LabelTexts

    def all_labels(self) -> LabelTexts:
        return {**self.parsed_labels, **self.field_labels, **self.stream_labels}

    def add_parsed_labels(self, found: Iterable[tuple[str, str]]) -> None:
        """Add the labels that a parser extracts; a label that the entry has already keeps its value."""
        parsed = self.parsed_labels
        for name, value in found:
            is_label = name in self.stream_labels or name in self.field_labels or parsed.get(name)
            if not is_label and (name in parsed or len(parsed) < MAX_FIELDS_PER_ENTRY):
                parsed[name] = value

    def after_selection(self, selection: LabelSelection) -> "EntryLabels":
        """Return the labels that `drop` or `keep` does not remove."""
        groups = (self.stream_labels, self.field_labels, self.parsed_labels)
        kept = [{name: text for name, text in one.items() if not selection.removes_label(name)} for one in groups]
        return EntryLabels(*kept)


class FormatBudget(msgspec.Struct):
    """The number of characters that the stages `line_format` may still write for an answer.

    A template may repeat the line. So without this limit, a query of 30 stages could write billions of characters.
    """

    remaining_characters: int

    def spend(self, characters: int) -> None:
        self.remaining_characters -= characters
        if self.remaining_characters < 0:
            raise AnswerTooLarge(
                "The stages line_format write too much text.", hint="Send a smaller limit, or shorten the templates."
            )


def read_entry(
    source: str, metadata: object, line: str, state: PipelineState, budget: FormatBudget
) -> tuple[EntryLabels, str]:
    """Return the labels and the line of an entry after the stages of a query. `metadata` is the decoded metadata."""
    # If several fields have the same label name, the first in this order counts, as in `_paths_for_label_name`.
    values = sorted(_scalar_texts(_unwrap_record(metadata), ("metadata",), _unwrap_record))
    stream = _stream_labels(source, values)
    labels = EntryLabels(stream, _field_labels(values, stream), {})
    for stage in state.stages:
        if isinstance(stage, ParserStage):
            labels.add_parsed_labels(_parse_line(stage, line))
        elif isinstance(stage, LabelSelection):
            labels = labels.after_selection(stage)
        else:
            all_labels = labels.all_labels()
            texts = [_fill_template_part(part, line, all_labels) for part in stage.template_parts]
            budget.spend(sum(map(len, texts)))
            line = "".join(texts)
    return labels, line


def _fill_template_part(part: str | TemplatePlaceholder, line: str, labels: LabelTexts) -> str:
    if isinstance(part, str):
        return part
    return line if part.label_name is None else labels.get(part.label_name, "")


def parse_fields(line: str, kind: ParserKind) -> list[tuple[str, str]]:
    """Return every field that a parser stage of this kind extracts from the line, as pairs of name and value."""
    return list(_parse_line(ParserStage(kind), line))


def json_label_paths(line: str) -> list[tuple[str, KeyPath]]:
    """Return the name of each label that the JSON parser extracts from a line, with the keys that lead to the value."""
    document = _parse_json_object(line)
    leaves = _scalar_texts(_object_or_empty(document), (), _object_or_empty)
    return [("_".join(map(_label_name, path)), path) for path, _ in leaves]


def _stream_labels(source: str, values: list[tuple[KeyPath, str]]) -> LabelTexts:
    pushed: LabelTexts = {}
    for path, text in values:
        if path[:2] == _PUSHED_LABELS_PATH and text:
            pushed.setdefault("_".join(map(_label_name, path[2:])), text)
    pushed[_SERVICE_NAME_LABEL] = next((pushed[name] for name in SERVICE_NAME_LABELS if name in pushed), source)
    by_path = dict(values)
    level = next((by_path[path] for path in _LEVEL_PATHS if by_path.get(path)), None)
    if level is not None:
        pushed[_LEVEL_LABEL] = level.lower()
    return {**pushed, SOURCE_NAME_LABEL: source}


def _field_labels(values: list[tuple[KeyPath, str]], stream: LabelTexts) -> LabelTexts:
    found: LabelTexts = {}
    for root in _LABEL_FIELD_ROOTS:
        for path, text in values:
            is_here = path[: len(root)] == root and (root != ("metadata",) or not _is_path_of_other_label(path))
            name = "_".join(map(_label_name, path[len(root) :]))
            if is_here and text and name not in stream and len(found) < MAX_FIELDS_PER_ENTRY:
                found.setdefault(name, text)
    return found


def _is_path_of_other_label(path: KeyPath) -> bool:
    return (
        path[:2] == _PUSHED_LABELS_PATH or path in _LEVEL_PATHS or any(path[:2] == root for root in _LABEL_FIELD_ROOTS)
    )


def _object_or_empty(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, and an empty object otherwise."""
    return value if isinstance(value, dict) else {}


def _unwrap_record(value: object) -> Mapping[str, Any]:
    """Return a nested object of an event. Answers represent such an object as an array with one record."""
    return _object_or_empty(value[0] if isinstance(value, list) and len(value) == 1 else value)


def _scalar_texts(
    value: Mapping[str, Any], path: KeyPath, read: Callable[[object], Mapping[str, Any]]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield the path and the text of each scalar in an object and in its nested objects; skip arrays.

    `read` returns the object that a value represents, or an empty object if it represents none.
    """
    for key, child in value.items():
        here = (*path, str(key))
        record = read(child)
        if record and len(here) <= _MAX_METADATA_STEPS:
            yield from _scalar_texts(record, here, read)
        elif not isinstance(child, list | dict) and child is not None:
            yield here, _text_of_scalar(child)


def _parse_line(parser: ParserStage, line: str) -> Iterator[tuple[str, str]]:
    if parser.kind is ParserKind.LOGFMT:
        yield from _parse_logfmt(parser, line)
        return
    document = _parse_json_object(line)
    if parser.extractions:
        for extraction in parser.extractions:
            text = _extracted_text(document, extraction)
            if text is not None:
                yield extraction.label, text
    else:
        for path, text in _scalar_texts(_object_or_empty(document), (), _object_or_empty):
            yield "_".join(map(_label_name, path)), text


def _parse_json_object(line: str) -> object:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None


def _extracted_text(document: Any, extraction: LabelExtraction) -> str | None:
    for step in extraction.path_steps:
        try:
            document = document[step]
        except (TypeError, KeyError, IndexError):
            return None
    if document is None:
        return None
    return msgspec.json.encode(document).decode() if isinstance(document, list | dict) else _text_of_scalar(document)


def _parse_logfmt(parser: ParserStage, line: str) -> Iterator[tuple[str, str]]:
    """Yield the labels of a logfmt line. The first value of a label that is not empty counts, as in `_logfmt_value`."""
    labels_by_key: dict[str, list[str]] = {}
    for extraction in parser.extractions:
        labels_by_key.setdefault(str(extraction.path_steps[0]), []).append(extraction.label)
    found: set[str] = set()
    for match in _LOGFMT_PAIR_PATTERN.finditer(line):
        if match[2] in _EMPTY_LOGFMT_VALUES:
            continue
        for name in labels_by_key.get(match[1], ()) if parser.extractions else (_label_name(match[1]),):
            text = _text_of_logfmt_value(match[2]) if name not in found else None
            found.add(name)
            if text:
                yield name, text


def _text_of_logfmt_value(written: str) -> str | None:
    """Return a value without its quotes, with the escapes of JSON decoded; None if it has other escapes."""
    if not written.startswith('"'):
        return written
    if "\\" not in written:
        return written[1:-1]
    try:
        return msgspec.json.decode(written, type=str)
    except msgspec.DecodeError:
        return None


def _text_of_scalar(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
