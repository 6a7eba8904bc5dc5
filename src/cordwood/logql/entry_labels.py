"""The labels of an entry in an answer, read from its metadata and its line.

They have the names and values that `labels.py` gives them in SQL.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from cordwood.logql.labels import (
    FIELD_ROOTS,
    LEVEL_LABEL,
    LEVEL_PATHS,
    PUSHED_LABELS_PATH,
    SERVICE_NAME,
    SOURCE_NAME,
    ParserState,
    label_name,
)
from cordwood.logql.syntax import Extraction, Parser, ParserKind, TemplateLabel
from cordwood.model.service_labels import SERVICE_LABELS

# Limits: deeper objects are not labels, and an entry has at most this many labels from its metadata and from its line.
_MAX_STEPS: Final = 8
MAX_FIELDS: Final = 500

_LOGFMT_PAIR: Final = re.compile(r'([^\s="]++)=(?:"((?:[^"\\]|\\.)*+)"|([^\s"]*+))')

Path = tuple[str, ...]
LabelTexts = dict[str, str]


class EntryLabels(msgspec.Struct, frozen=True):
    """The labels of an entry: those of its stream, its other fields, and those that parsers extract."""

    stream: LabelTexts
    fields: LabelTexts
    parsed: LabelTexts

    def all(self) -> LabelTexts:
        return {**self.parsed, **self.fields, **self.stream}


def read_labels(source: str, metadata: object, line: str, state: ParserState) -> EntryLabels:
    """Return the labels of an entry, without those that the query drops. `metadata` is the decoded JSON."""
    values = list(_scalars(_record(metadata), ("metadata",), _record))
    stream = _stream_labels(source, values)
    fields = _field_labels(values, stream)
    parsed: LabelTexts = {}
    for parser in state.parsers:
        for name, value in _parse_line(parser, line):
            if name not in stream and name not in fields and len(parsed) < MAX_FIELDS:
                parsed.setdefault(name, value)
    return EntryLabels(
        *({name: text for name, text in one.items() if not state.is_removed(name)} for one in (stream, fields, parsed))
    )


def format_line(line: str, labels: LabelTexts, state: ParserState) -> str:
    """Return the line that the templates of a query produce."""
    for line_format in state.formats:
        line = "".join(_template_part(part, line, labels) for part in line_format.parts)
    return line


def _template_part(part: str | TemplateLabel, line: str, labels: LabelTexts) -> str:
    if isinstance(part, str):
        return part
    return line if part.name is None else labels.get(part.name, "")


def parsed_fields(line: str, kind: ParserKind) -> list[tuple[str, str]]:
    """Return every field that a parser extracts from the line."""
    return list(_parse_line(Parser(kind), line))


def json_paths(line: str) -> list[tuple[str, Path]]:
    """Return the labels of a JSON line, each with the keys that lead to its value."""
    document = _parse_json_object(line)
    leaves = _scalars(_object_or_empty(document), (), _object_or_empty)
    return [("_".join(map(label_name, path)), path) for path, _ in leaves]


def _stream_labels(source: str, values: list[tuple[Path, str]]) -> LabelTexts:
    pushed: LabelTexts = {}
    for path, text in values:
        if path[:2] == PUSHED_LABELS_PATH and text:
            pushed.setdefault("_".join(map(label_name, path[2:])), text)
    pushed[SERVICE_NAME] = next((pushed[name] for name in SERVICE_LABELS if name in pushed), source)
    by_path = dict(values)
    level = next((by_path[path] for path in LEVEL_PATHS if by_path.get(path)), None)
    if level is not None:
        pushed[LEVEL_LABEL] = level.lower()
    return {**pushed, SOURCE_NAME: source}


def _field_labels(values: list[tuple[Path, str]], stream: LabelTexts) -> LabelTexts:
    found: LabelTexts = {}
    for root in FIELD_ROOTS:
        for path, text in values:
            is_here = path[: len(root)] == root and (root != ("metadata",) or not _is_other_label(path))
            name = "_".join(map(label_name, path[len(root) :]))
            if is_here and text and name not in stream and len(found) < MAX_FIELDS:
                found.setdefault(name, text)
    return found


def _is_other_label(path: Path) -> bool:
    return path[:2] == PUSHED_LABELS_PATH or path in LEVEL_PATHS or any(path[:2] == root for root in FIELD_ROOTS)


def _object_or_empty(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, and an empty object otherwise."""
    return value if isinstance(value, dict) else {}


def _record(value: object) -> Mapping[str, Any]:
    """Return an object of an event; answers have it as an array of one record."""
    return _object_or_empty(value[0] if isinstance(value, list) and len(value) == 1 else value)


def _scalars(
    value: Mapping[str, Any], path: Path, read: Callable[[object], Mapping[str, Any]]
) -> Iterator[tuple[Path, str]]:
    """Yield the scalars of an object as texts, each with its path; `read` finds nested objects. Arrays are skipped."""
    for key, child in value.items():
        here = (*path, str(key))
        record = read(child)
        if record and len(here) <= _MAX_STEPS:
            yield from _scalars(record, here, read)
        elif not isinstance(child, list | dict) and child is not None:
            yield here, _text_of(child)


def _parse_line(parser: Parser, line: str) -> Iterator[tuple[str, str]]:
    if parser.kind is ParserKind.LOGFMT:
        yield from _parse_logfmt(parser, line)
        return
    document = _parse_json_object(line)
    if parser.extractions:
        for extraction in parser.extractions:
            text = _value_at(document, extraction)
            if text is not None:
                yield extraction.label, text
    else:
        for path, text in _scalars(_object_or_empty(document), (), _object_or_empty):
            yield "_".join(map(label_name, path)), text


def _parse_json_object(line: str) -> object:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return None


def _value_at(document: Any, extraction: Extraction) -> str | None:
    for step in extraction.steps:
        try:
            document = document[step]
        except (TypeError, KeyError, IndexError):
            return None
    if document is None:
        return None
    return msgspec.json.encode(document).decode() if isinstance(document, list | dict) else _text_of(document)


def _parse_logfmt(parser: Parser, line: str) -> Iterator[tuple[str, str]]:
    wanted = {str(extraction.steps[0]): extraction.label for extraction in parser.extractions}
    for match in _LOGFMT_PAIR.finditer(line):
        name = wanted.get(match[1]) if parser.extractions else label_name(match[1])
        text = match[3] if match[2] is None else match[2].replace('\\"', '"')
        if name is not None and text:
            yield name, text


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
