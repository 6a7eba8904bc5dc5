"""The fields of a sample of entries: their types, how many values they have, and which parsers extract them."""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from cordwood.logql.entry_labels import MAX_FIELDS, json_paths, parsed_fields
from cordwood.logql.parsed_labels import ParserState
from cordwood.logql.quantities import read_bytes, read_duration
from cordwood.logql.syntax import ParserKind
from cordwood.model.rows import Rows
from cordwood.web.loki_api.answers import Entry, read_entries

_INTEGER: Final = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_BOOLEANS: Final = frozenset({"true", "false"})
_LONGEST_QUANTITY: Final = 40


class _Field(msgspec.Struct):
    kind: str
    values: set[str] = msgspec.field(default_factory=set)
    parsers: set[str] = msgspec.field(default_factory=set)
    path: tuple[str, ...] = ()


def encode_detected_fields(rows: Rows, limit: int) -> Iterator[bytes]:
    fields: dict[str, _Field] = {}
    for entry in read_entries(rows, ParserState()):
        for name, text, parser in _fields_of(entry):
            if name not in fields and len(fields) >= min(limit, MAX_FIELDS):
                continue
            field = fields.setdefault(name, _Field(_kind(text)))
            field.values.add(text)
            field.parsers.update([parser] if parser else ())
            if field.kind != _kind(text):
                field.kind = "string"
        _note_paths(fields, entry.line)
    described = [_described(name, field) for name, field in sorted(fields.items())]
    yield msgspec.json.encode({"fields": described, "limit": limit})


def _fields_of(entry: Entry) -> Iterator[tuple[str, str, str | None]]:
    for name, text in entry.labels.fields.items():
        yield name, text, None
    for kind in ParserKind:
        for name, text in parsed_fields(entry.line, kind):
            if name not in entry.labels.fields and name not in entry.labels.stream:
                yield name, text, kind.value


def _note_paths(fields: dict[str, _Field], line: str) -> None:
    for name, path in json_paths(line):
        field = fields.get(name)
        if field is not None and not field.path and ParserKind.JSON.value in field.parsers:
            field.path = path


def _described(name: str, field: _Field) -> dict[str, Any]:
    path = {"jsonPath": list(field.path)} if field.path else {}
    return {
        "label": name,
        "type": field.kind,
        "cardinality": len(field.values),
        "parsers": sorted(field.parsers) or None,
        **path,
    }


def _kind(text: str) -> str:
    if _INTEGER.fullmatch(text):
        return "int"
    if _FLOAT.fullmatch(text):
        return "float"
    if text in _BOOLEANS:
        return "boolean"
    if len(text) > _LONGEST_QUANTITY:
        return "string"
    if read_duration(text) is not None:
        return "duration"
    return "bytes" if read_bytes(text) is not None else "string"
