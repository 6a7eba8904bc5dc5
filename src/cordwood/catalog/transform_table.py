"""Parse the `[[stream.transform]]` tables of a streams file, and the files for enrichment."""

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath

import msgspec

from cordwood.catalog.toml_document import Document, Path
from cordwood.errors import NOT_COMPILED
from cordwood.lql.matching import compile_matcher
from cordwood.model.stream import Action, FieldPath, Transform

MAX_TRANSFORMS = 50
_MAX_FIELDS = 100
_MAX_TEMPLATE_LENGTH = 2000
_MAX_FILE_BYTES = 16 * 2**20
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
# Fields that identify an event cannot be changed by transforms.
_UNCHANGEABLE_FIELDS = frozenset({"id", "timestamp", "ingested_at", "timestamp_inferred", "metadata", "message"})
_ENRICH_SETTINGS = ("file", "from", "to")


def read_transforms(document: Document, path: Path, value: object) -> tuple[Transform, ...]:
    """Return the transforms in order."""
    if not isinstance(value, list) or len(value) > MAX_TRANSFORMS:
        message = f"Transforms are at most {MAX_TRANSFORMS} tables of an array."
        raise document.fault_at(message, path, "Write: [[stream.transform]]")
    return tuple(_parse_transform(document, (*path, number), table) for number, table in enumerate(value))


def _parse_transform(document: Document, path: Path, table: object) -> Transform:
    if not isinstance(table, Mapping):
        raise document.fault_at("A transform must be a table.", path, "Write: [[stream.transform]]")
    document.check_names(table, (*Action, "where"), path)
    actions = [action for action in Action if action in table]
    if len(actions) != 1:
        raise document.fault_at("A transform has one action.", path, f"There are: {', '.join(Action)}.")
    (action,) = actions
    value_path, value = (*path, action.value), table[action]
    if action is Action.DROP:
        if "where" in table:
            raise document.fault_at("drop contains its filter.", (*path, "where"), 'Write: drop = "m.level:debug"')
        return Transform(Action.DROP, _filter(document, value_path, value))
    where = _filter(document, (*path, "where"), table["where"]) if "where" in table else ""
    return msgspec.structs.replace(_READERS[action](document, value_path, value), action=action, where=where)


def _filter(document: Document, path: Path, value: object) -> str:
    if not isinstance(value, str):
        raise document.fault_at(f"{path[-1]} must be a filter in LQL.", path, 'Write: "m.level:debug"')
    try:
        compile_matcher(value)
    except NOT_COMPILED as fault:
        position = f" (at character {fault.span.column})" if fault.span else ""
        raise document.fault_at(f"{path[-1]}: {fault.message}{position}", path, fault.hint) from fault
    return value


def _sample(document: Document, path: Path, value: object) -> Transform:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise document.fault_at("sample must be a share from 0 to 1.", path, "Write: sample = 0.1")
    return Transform(Action.SAMPLE, rate=float(value))


def _fields(document: Document, path: Path, value: object) -> Transform:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_FIELDS:
        raise document.fault_at(
            f"{path[-1]} must be a list of at most {_MAX_FIELDS} fields.",
            path,
            f'Write: {path[-1]} = ["metadata.email"]',
        )
    return Transform(Action.REMOVE, fields=tuple(_field(document, path, field_name) for field_name in value))


def _copy_fields(document: Document, path: Path, value: object) -> Transform:
    if not isinstance(value, Mapping) or not 0 < len(value) <= _MAX_FIELDS:
        raise document.fault_at(
            f"{path[-1]} must be a table of at most {_MAX_FIELDS} fields, from and to.",
            path,
            f'Write: {path[-1]} = {{"metadata.uid" = "metadata.user_id"}}',
        )
    moves = []
    for source, target in value.items():
        pair = _field(document, path, source), _field(document, path, target)
        if pair[0][: len(pair[1])] == pair[1] or pair[1][: len(pair[0])] == pair[0]:
            raise document.fault_at(f"{source} and {target} contain one another.", path)
        moves.append(pair)
    return Transform(Action.COPY, moves=tuple(moves))


def _message(document: Document, path: Path, value: object) -> Transform:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_TEMPLATE_LENGTH:
        raise document.fault_at(
            "message must be a template.", path, 'Write: message = "{metadata.method} {metadata.path}"'
        )
    if set("{}") & set(_PLACEHOLDER.sub("", value)):
        raise document.fault_at("The template has a brace without a field.", path)
    for name in _PLACEHOLDER.findall(value):
        _steps(document, path, name)
    return Transform(Action.MESSAGE, template=value)


def _enrich(document: Document, path: Path, value: object) -> Transform:
    if not isinstance(value, Mapping) or set(value) != set(_ENRICH_SETTINGS):
        hint = 'Write: enrich = {file = "users.json", from = "metadata.user_id", to = "metadata.user"}'
        raise document.fault_at("enrich must be a table of file, from and to.", path, hint)
    source, target = (_field(document, path, value[name]) for name in ("from", "to"))
    return Transform(Action.ENRICH, moves=((source, target),), entries=_entries(document, path, value["file"]))


_READERS: Mapping[Action, Callable[[Document, Path, object], Transform]] = {
    Action.SAMPLE: _sample,
    Action.REMOVE: _fields,
    Action.HASH: _fields,
    Action.COPY: _copy_fields,
    Action.RENAME: _copy_fields,
    Action.MESSAGE: _message,
    Action.ENRICH: _enrich,
}


def _field(document: Document, path: Path, value: object) -> FieldPath:
    steps = _steps(document, path, value)
    if len(steps) == 1 and steps[0] in _UNCHANGEABLE_FIELDS:
        raise document.fault_at(f"{steps[0]} cannot be changed by a transform.", path)
    return steps


def _steps(document: Document, path: Path, value: object) -> FieldPath:
    steps = tuple(value.split(".")) if isinstance(value, str) else ()
    if not all(steps) or not steps or (len(steps) > 1 and steps[0] in _UNCHANGEABLE_FIELDS - {"metadata"}):
        raise document.fault_at(
            f"{value!r} is not the path of a field.", path, 'Write: "metadata.user.id", or "project"'
        )
    return steps


def _entries(document: Document, path: Path, value: object) -> Mapping[str, str]:
    """Parse a key-value file: a JSON object, or CSV whose first column has the keys."""
    file = FilePath(document.file).parent / str(value)
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise document.fault_at(f"{file} is larger than {_MAX_FILE_BYTES // 2**20} MiB.", path)
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            entries = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            return {key: bytes(value).decode() for key, value in entries.items()}
        if file.suffix == ".csv":
            header, *rows = csv.reader(text.splitlines())
            return {
                row[0]: msgspec.json.encode(dict(zip(header[1:], row[1:], strict=True))).decode() for row in rows if row
            }
    except (OSError, ValueError, csv.Error) as problem:
        raise document.fault_at(f"{file} cannot be read: {problem}.", path) from problem
    raise document.fault_at(f"{file} is neither JSON nor CSV.", path, "Name a file that ends in .json or .csv.")
