"""The parser of streams files, in which `[[stream]]` tables have the names and settings of streams."""

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path as FilePath
from uuid import UUID

import msgspec

from cordwood.catalog.toml_document import TomlDocument, TomlPath, is_uuid, read_or_derive_id
from cordwood.errors import COMPILE_FAULTS, BadStreamFile
from cordwood.lql.matching import compile_event_predicate
from cordwood.model.definitions import EventTimePolicy, FieldPath, Stream, Transform, TransformAction
from cordwood.settings.quantities import parse_rate

# The namespace of stream ids. Ids are derived from names, so that a stream has the same id in every installation.
STREAM_ID_NAMESPACE = UUID("c02d0000-0000-5000-8000-000000000573")

_DERIVE_PLACEHOLDER_PATTERN = re.compile(r"\{\w+\}")
_STREAM_SETTING_NAMES = (
    "name",
    "id",
    "description",
    "retention",
    "derive",
    "late",
    "future",
    "rate",
    "project",
    "transform",
)
_EVENT_TIME_POLICY_SETTING_NAMES = ("after", "policy")
# Names cannot contain backquotes, because SQL encloses names in backquotes.
_STREAM_NAME_PATTERN = re.compile(r"[^\s`](?:[^`]{0,198}[^\s`])?")
_MAX_SHOWN_NAME_CHARACTERS = 200

_MAX_TRANSFORMS = 50
_MAX_TRANSFORM_FIELDS = 100
_MAX_MESSAGE_TEMPLATE_LENGTH = 2000
_MAX_ENRICH_FILE_BYTES = 16 * 2**20
_MESSAGE_PLACEHOLDER_PATTERN = re.compile(r"\{([^{}]*)\}")
# Top-level fields that transforms cannot change as a whole. Fields inside `metadata` can be changed.
_UNCHANGEABLE_EVENT_FIELDS = frozenset({"id", "timestamp", "ingested_at", "timestamp_inferred", "metadata", "message"})
_ENRICH_SETTING_NAMES = ("file", "from", "to")


def read_stream_file(file: str, text: str) -> tuple[Stream, ...]:
    """Parse a streams file; raise BadStreamFile with the position of the first error."""
    document, tables = parse_streams_document(file, text)
    streams = tuple(_read_stream(document, ("stream", number), table) for number, table in enumerate(tables))
    _check_distinct_streams(document, streams)
    return streams


def parse_stream_toml_tables(file: str, text: str) -> list[Mapping[str, object]]:
    """Return the tables of a streams file, without checking their settings."""
    return parse_streams_document(file, text)[1]


def parse_streams_document(file: str, text: str) -> tuple[TomlDocument, list[Mapping[str, object]]]:
    """Parse the TOML of a streams file, and return it with its tables of streams, without checking their settings."""
    document = TomlDocument(file, text.removeprefix("\ufeff"), 1, BadStreamFile).parse()
    document.check_setting_names(document.root_table, ("stream",))
    tables = document.root_table.get("stream", [])
    if not isinstance(tables, list):
        raise document.fault_at("Streams are written as tables of an array.", ("stream",), "Write: [[stream]]")
    return document, tables


def _read_stream(document: TomlDocument, path: TomlPath, table: object) -> Stream:
    if not isinstance(table, Mapping):
        raise document.fault_at("A stream must be a table.", path, "Write: [[stream]]")
    document.check_setting_names(table, _STREAM_SETTING_NAMES, path)
    name = _read_name(document, path, table)
    late, late_seconds = _read_event_time_policy(document, path, table, "late")
    future, future_seconds = _read_event_time_policy(document, path, table, "future")
    return Stream(
        name=name,
        id=read_or_derive_id(document, (*path, "id"), table.get("id"), STREAM_ID_NAMESPACE, name),
        retention_seconds=_read_seconds(document, (*path, "retention"), table.get("retention")),
        derive_templates=_read_derived_fields(document, path, table),
        late_policy=late,
        late_seconds=late_seconds,
        future_policy=future,
        future_seconds=future_seconds,
        events_per_second=_read_rate_per_second(document, (*path, "rate"), table.get("rate")),
        project_at=_read_project_path(document, (*path, "project"), table.get("project")),
        transforms=_read_transforms(document, (*path, "transform"), table.get("transform", [])),
        description=_read_description(document, (*path, "description"), table.get("description", "")),
    )


def _read_name(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> str:
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise document.fault_at("The stream has no name.", path, 'Write: name = "my.stream"')
    problem = stream_name_problem(name)
    if problem is not None:
        raise document.fault_at(f"{problem}.", (*path, "name"))
    return name


def stream_name_problem(name: str) -> str | None:
    """Return the reason why a text cannot be the name of a stream; None if it can."""
    if not _STREAM_NAME_PATTERN.fullmatch(name) or not name.isprintable() or is_uuid(name):
        return f"{name[:_MAX_SHOWN_NAME_CHARACTERS]!r} cannot be a stream's name"
    return "Names that begin with _ are reserved" if name.startswith("_") else None


def new_stream_name_problem(name: str) -> str | None:
    """Return the reason why a new stream cannot have this name; None if it can.

    Existing streams may have names that end in a dot, because earlier versions permitted them. `.` and `..` have
    another meaning in the path of a URL, and the last part of a name is its implicit alias in SQL.
    """
    return stream_name_problem(name) or ("Names of new streams do not end in a dot" if name.endswith(".") else None)


def _read_description(document: TomlDocument, path: TomlPath, value: object) -> str:
    if isinstance(value, str):
        return value
    raise document.fault_at("description must be a text in quotes.", path)


def _read_seconds(document: TomlDocument, path: TomlPath, value: object) -> float | None:
    if value is None:
        return None
    seconds = document.value_as_seconds(path, value)
    if not 0 < seconds < math.inf:
        raise document.fault_at(f"{path[-1]} must be more than 0.", path, "Omit it for no limit.")
    return seconds


def _read_rate_per_second(document: TomlDocument, path: TomlPath, value: object) -> float | None:
    if value is None:
        return None
    try:
        return parse_rate(str(value))
    except ValueError as problem:
        raise document.fault_at(f"rate: {problem}.", path) from problem


def _read_derived_fields(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> Mapping[str, str]:
    derive = table.get("derive", {})
    if not isinstance(derive, Mapping) or not all(isinstance(template, str) for template in derive.values()):
        raise document.fault_at(
            "derive must be a table of paths and templates.",
            (*path, "derive"),
            'Write: derive = {"metadata.request.url" = "https://{project}"}',
        )
    for name, template in derive.items():
        _check_derived_field(document, (*path, "derive", name), name, template)
    return dict(derive)


def _check_derived_field(document: TomlDocument, path: TomlPath, name: str, template: str) -> None:
    """Raise an error if a derived field is not inside `metadata`, or if a brace in its template encloses no name."""
    _read_metadata_path(document, path, name, 'Write: "metadata.request.url"')
    if set("{}") & set(_DERIVE_PLACEHOLDER_PATTERN.sub("", template)):
        raise document.fault_at("The template has a brace without a name.", path, 'Write: "https://{project}"')


def _read_project_path(document: TomlDocument, path: TomlPath, value: object) -> tuple[str, ...]:
    return () if value is None else _read_metadata_path(document, path, str(value), 'Write: "metadata.project_ref"')


def _read_metadata_path(document: TomlDocument, path: TomlPath, name: str, hint: str) -> tuple[str, ...]:
    first, *steps = name.split(".")
    if first != "metadata" or not steps or not all(steps):
        raise document.fault_at(f"{name!r} is not a path inside metadata.", path, hint)
    return tuple(steps)


def _read_event_time_policy(
    document: TomlDocument, path: TomlPath, table: Mapping[str, object], key: str
) -> tuple[EventTimePolicy, float | None]:
    value = table.get(key)
    if value is None:
        return EventTimePolicy.ACCEPT, None
    if not isinstance(value, Mapping):
        raise document.fault_at(
            f"{key} must be a table.", (*path, key), f'Write: {key} = {{after = "7d", policy = "quarantine"}}'
        )
    document.check_setting_names(value, _EVENT_TIME_POLICY_SETTING_NAMES, (*path, key))
    try:
        policy = EventTimePolicy(str(value.get("policy", "accept")))
    except ValueError as problem:
        policies = ", ".join(EventTimePolicy)
        raise document.fault_at(f"{key}: {problem}.", (*path, key), f"There are: {policies}.") from problem
    return policy, _read_seconds(document, (*path, key), value.get("after"))


def _check_distinct_streams(document: TomlDocument, streams: tuple[Stream, ...]) -> None:
    for number, key, value in _find_repeated_names_and_ids(streams):
        raise document.fault_at(f"Two streams have the {key} {value}.", ("stream", number, key))
    # Tables in the engine have the names of streams, and the engine ignores case. Therefore, the names of two streams
    # must not differ only in case.
    for number, key, value in _find_repeated_names_and_ids(streams, str.casefold):
        message = f"{value} differs from another stream's name only in case."
        raise document.fault_at(message, ("stream", number, key))


def _find_repeated_names_and_ids(
    streams: tuple[Stream, ...], normalize: Callable[[str], str] = str
) -> Iterator[tuple[int, str, str]]:
    for key in ("name", "id"):
        seen_names: set[str] = set()
        for number, stream in enumerate(streams):
            value = str(getattr(stream, key))
            if normalize(value) in seen_names:
                yield number, key, value
            seen_names.add(normalize(value))


def _read_transforms(document: TomlDocument, path: TomlPath, value: object) -> tuple[Transform, ...]:
    """Parse the transforms of a stream, in the order of the file."""
    if not isinstance(value, list) or len(value) > _MAX_TRANSFORMS:
        message = f"Transforms are at most {_MAX_TRANSFORMS} tables of an array."
        raise document.fault_at(message, path, "Write: [[stream.transform]]")
    return tuple(_read_transform(document, (*path, number), table) for number, table in enumerate(value))


def _read_transform(document: TomlDocument, path: TomlPath, table: object) -> Transform:
    if not isinstance(table, Mapping):
        raise document.fault_at("A transform must be a table.", path, "Write: [[stream.transform]]")
    document.check_setting_names(table, (*TransformAction, "where"), path)
    actions = [action for action in TransformAction if action in table]
    if len(actions) != 1:
        raise document.fault_at("A transform has one action.", path, f"There are: {', '.join(TransformAction)}.")
    (action,) = actions
    value_path, value = (*path, action.value), table[action]
    if action is TransformAction.DROP_EVENT:
        if "where" in table:
            raise document.fault_at("drop contains its filter.", (*path, "where"), 'Write: drop = "m.level:debug"')
        return Transform(TransformAction.DROP_EVENT, _read_where_filter(document, value_path, value))
    where = _read_where_filter(document, (*path, "where"), table["where"]) if "where" in table else ""
    return msgspec.structs.replace(
        _TRANSFORM_READERS[action](document, value_path, value), action=action, lql_filter=where
    )


def _read_where_filter(document: TomlDocument, path: TomlPath, value: object) -> str:
    if not isinstance(value, str):
        raise document.fault_at(f"{path[-1]} must be a filter in LQL.", path, 'Write: "m.level:debug"')
    try:
        compile_event_predicate(value)
    except COMPILE_FAULTS as fault:
        position = f" (at character {fault.span.column})" if fault.span else ""
        raise document.fault_at(f"{path[-1]}: {fault.message}{position}", path, fault.hint) from fault
    return value


def _read_sample_transform(document: TomlDocument, path: TomlPath, value: object) -> Transform:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise document.fault_at("sample must be a share from 0 to 1.", path, "Write: sample = 0.1")
    return Transform(TransformAction.SAMPLE, sampled_fraction=float(value))


def _read_field_list_transform(document: TomlDocument, path: TomlPath, value: object) -> Transform:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_TRANSFORM_FIELDS:
        raise document.fault_at(
            f"{path[-1]} must be a list of at most {_MAX_TRANSFORM_FIELDS} fields.",
            path,
            f'Write: {path[-1]} = ["metadata.email"]',
        )
    return Transform(
        TransformAction.REMOVE_FIELDS,
        removed_or_hashed_fields=tuple(_read_changeable_field(document, path, field_name) for field_name in value),
    )


def _read_field_moves_transform(document: TomlDocument, path: TomlPath, value: object) -> Transform:
    if not isinstance(value, Mapping) or not 0 < len(value) <= _MAX_TRANSFORM_FIELDS:
        raise document.fault_at(
            f"{path[-1]} must be a table of at most {_MAX_TRANSFORM_FIELDS} fields, from and to.",
            path,
            f'Write: {path[-1]} = {{"metadata.uid" = "metadata.user_id"}}',
        )
    moves = []
    for source, target in value.items():
        pair = _read_changeable_field(document, path, source), _read_changeable_field(document, path, target)
        if pair[0][: len(pair[1])] == pair[1] or pair[1][: len(pair[0])] == pair[0]:
            raise document.fault_at(f"{source} and {target} contain one another.", path)
        moves.append(pair)
    return Transform(TransformAction.COPY, source_and_target_fields=tuple(moves))


def _read_message_transform(document: TomlDocument, path: TomlPath, value: object) -> Transform:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_MESSAGE_TEMPLATE_LENGTH:
        raise document.fault_at(
            "message must be a template.", path, 'Write: message = "{metadata.method} {metadata.path}"'
        )
    if set("{}") & set(_MESSAGE_PLACEHOLDER_PATTERN.sub("", value)):
        raise document.fault_at("The template has a brace without a field.", path)
    for name in _MESSAGE_PLACEHOLDER_PATTERN.findall(value):
        _read_field_path(document, path, name)
    return Transform(TransformAction.SET_MESSAGE, message_template=value)


def _read_enrich_transform(document: TomlDocument, path: TomlPath, value: object) -> Transform:
    if not isinstance(value, Mapping) or set(value) != set(_ENRICH_SETTING_NAMES):
        hint = 'Write: enrich = {file = "users.json", from = "metadata.user_id", to = "metadata.user"}'
        raise document.fault_at("enrich must be a table of file, from and to.", path, hint)
    source, target = (_read_changeable_field(document, path, value[name]) for name in ("from", "to"))
    return Transform(
        TransformAction.ENRICH,
        source_and_target_fields=((source, target),),
        target_json_by_source_value=_read_key_value_file(document, path, value["file"]),
    )


_TRANSFORM_READERS: Mapping[TransformAction, Callable[[TomlDocument, TomlPath, object], Transform]] = {
    TransformAction.SAMPLE: _read_sample_transform,
    TransformAction.REMOVE_FIELDS: _read_field_list_transform,
    TransformAction.HASH: _read_field_list_transform,
    TransformAction.COPY: _read_field_moves_transform,
    TransformAction.RENAME: _read_field_moves_transform,
    TransformAction.SET_MESSAGE: _read_message_transform,
    TransformAction.ENRICH: _read_enrich_transform,
}


def _read_changeable_field(document: TomlDocument, path: TomlPath, value: object) -> FieldPath:
    steps = _read_field_path(document, path, value)
    if len(steps) == 1 and steps[0] in _UNCHANGEABLE_EVENT_FIELDS:
        raise document.fault_at(f"{steps[0]} cannot be changed by a transform.", path)
    return steps


def _read_field_path(document: TomlDocument, path: TomlPath, value: object) -> FieldPath:
    steps = tuple(value.split(".")) if isinstance(value, str) else ()
    if not all(steps) or not steps or (len(steps) > 1 and steps[0] in _UNCHANGEABLE_EVENT_FIELDS - {"metadata"}):
        raise document.fault_at(
            f"{value!r} is not the path of a field.", path, 'Write: "metadata.user.id", or "project"'
        )
    return steps


def _read_key_value_file(document: TomlDocument, path: TomlPath, value: object) -> Mapping[str, str]:
    """Parse the file of an `enrich` transform: a JSON object, or CSV whose first column has the keys."""
    file = FilePath(document.file).parent / str(value)
    try:
        if file.stat().st_size > _MAX_ENRICH_FILE_BYTES:
            raise document.fault_at(f"{file} is larger than {_MAX_ENRICH_FILE_BYTES // 2**20} MiB.", path)
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
