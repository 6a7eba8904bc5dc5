"""Parse the `[[stream.transform]]` tables of a streams file, and the files for enrichment."""

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath

import msgspec

from cordwood.catalog.toml_document import Document, Path
from cordwood.errors import NOT_COMPILED
from cordwood.lql.matching import matcher
from cordwood.model.stream import Action, FieldPath, Transform

MOST_TRANSFORMS = 50
_MOST_FIELDS = 100
_MOST_TEMPLATE = 2000
_MOST_FILE_BYTES = 16 * 2**20
_HOLE = re.compile(r"\{([^{}]*)\}")
# Fields that identify an event cannot be changed by transforms.
_FIXED = frozenset({"id", "timestamp", "ingested_at", "timestamp_inferred", "metadata", "message"})
_ENRICH = ("file", "from", "to")


def read_transforms(document: Document, path: Path, given: object) -> tuple[Transform, ...]:
    """Return the transforms in order."""
    if not isinstance(given, list) or len(given) > MOST_TRANSFORMS:
        told = f"Transforms are at most {MOST_TRANSFORMS} tables of an array."
        raise document.wrong(told, path, "Write: [[stream.transform]]")
    return tuple(_transform(document, (*path, number), table) for number, table in enumerate(given))


def _transform(document: Document, path: Path, table: object) -> Transform:
    if not isinstance(table, Mapping):
        raise document.wrong("A transform must be a table.", path, "Write: [[stream.transform]]")
    document.check_names(table, (*Action, "where"), path)
    actions = [action for action in Action if action in table]
    if len(actions) != 1:
        raise document.wrong("A transform has one action.", path, f"There are: {', '.join(Action)}.")
    (action,) = actions
    place, given = (*path, action.value), table[action]
    if action is Action.DROP:
        if "where" in table:
            raise document.wrong("drop contains its filter.", (*path, "where"), 'Write: drop = "m.level:debug"')
        return Transform(Action.DROP, _filter(document, place, given))
    where = _filter(document, (*path, "where"), table["where"]) if "where" in table else ""
    return msgspec.structs.replace(_READERS[action](document, place, given), action=action, where=where)


def _filter(document: Document, path: Path, given: object) -> str:
    if not isinstance(given, str):
        raise document.wrong(f"{path[-1]} must be a filter in LQL.", path, 'Write: "m.level:debug"')
    try:
        matcher(given)
    except NOT_COMPILED as fault:
        place = f" (at character {fault.span.column})" if fault.span else ""
        raise document.wrong(f"{path[-1]}: {fault.message}{place}", path, fault.hint) from fault
    return given


def _sample(document: Document, path: Path, given: object) -> Transform:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 1:
        raise document.wrong("sample must be a share from 0 to 1.", path, "Write: sample = 0.1")
    return Transform(Action.SAMPLE, rate=float(given))


def _fields(document: Document, path: Path, given: object) -> Transform:
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_FIELDS:
        raise document.wrong(
            f"{path[-1]} must be a list of at most {_MOST_FIELDS} fields.",
            path,
            f'Write: {path[-1]} = ["metadata.email"]',
        )
    return Transform(Action.REMOVE, fields=tuple(_field(document, path, one) for one in given))


def _moves(document: Document, path: Path, given: object) -> Transform:
    if not isinstance(given, Mapping) or not 0 < len(given) <= _MOST_FIELDS:
        raise document.wrong(
            f"{path[-1]} must be a table of at most {_MOST_FIELDS} fields, from and to.",
            path,
            f'Write: {path[-1]} = {{"metadata.uid" = "metadata.user_id"}}',
        )
    moves = []
    for source, target in given.items():
        pair = _field(document, path, source), _field(document, path, target)
        if pair[0][: len(pair[1])] == pair[1] or pair[1][: len(pair[0])] == pair[0]:
            raise document.wrong(f"{source} and {target} contain one another.", path)
        moves.append(pair)
    return Transform(Action.COPY, moves=tuple(moves))


def _message(document: Document, path: Path, given: object) -> Transform:
    if not isinstance(given, str) or not 0 < len(given) <= _MOST_TEMPLATE:
        raise document.wrong(
            "message must be a template.", path, 'Write: message = "{metadata.method} {metadata.path}"'
        )
    if set("{}") & set(_HOLE.sub("", given)):
        raise document.wrong("The template has a brace without a field.", path)
    for name in _HOLE.findall(given):
        _steps(document, path, name)
    return Transform(Action.MESSAGE, template=given)


def _enrich(document: Document, path: Path, given: object) -> Transform:
    if not isinstance(given, Mapping) or set(given) != set(_ENRICH):
        hint = 'Write: enrich = {file = "users.json", from = "metadata.user_id", to = "metadata.user"}'
        raise document.wrong("enrich must be a table of file, from and to.", path, hint)
    source, target = (_field(document, path, given[name]) for name in ("from", "to"))
    return Transform(Action.ENRICH, moves=((source, target),), entries=_entries(document, path, given["file"]))


_READERS: Mapping[Action, Callable[[Document, Path, object], Transform]] = {
    Action.SAMPLE: _sample,
    Action.REMOVE: _fields,
    Action.HASH: _fields,
    Action.COPY: _moves,
    Action.RENAME: _moves,
    Action.MESSAGE: _message,
    Action.ENRICH: _enrich,
}


def _field(document: Document, path: Path, given: object) -> FieldPath:
    steps = _steps(document, path, given)
    if len(steps) == 1 and steps[0] in _FIXED:
        raise document.wrong(f"{steps[0]} cannot be changed by a transform.", path)
    return steps


def _steps(document: Document, path: Path, given: object) -> FieldPath:
    steps = tuple(given.split(".")) if isinstance(given, str) else ()
    if not all(steps) or not steps or (len(steps) > 1 and steps[0] in _FIXED - {"metadata"}):
        raise document.wrong(f"{given!r} is not the path of a field.", path, 'Write: "metadata.user.id", or "project"')
    return steps


def _entries(document: Document, path: Path, given: object) -> Mapping[str, str]:
    """Parse a key-value file: a JSON object, or CSV whose first column has the keys."""
    file = FilePath(document.file).parent / str(given)
    try:
        if file.stat().st_size > _MOST_FILE_BYTES:
            raise document.wrong(f"{file} is larger than {_MOST_FILE_BYTES // 2**20} MiB.", path)
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            return {key: bytes(value).decode() for key, value in found.items()}
        if file.suffix == ".csv":
            head, *rows = csv.reader(text.splitlines())
            return {
                row[0]: msgspec.json.encode(dict(zip(head[1:], row[1:], strict=True))).decode() for row in rows if row
            }
    except (OSError, ValueError, csv.Error) as problem:
        raise document.wrong(f"{file} cannot be read: {problem}.", path) from problem
    raise document.wrong(f"{file} is neither JSON nor CSV.", path, "Name a file that ends in .json or .csv.")
