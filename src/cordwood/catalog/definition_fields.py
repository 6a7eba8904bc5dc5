"""Convert and check definitions sent over HTTP, as JSON fields with the names of Logflare's API or as texts of files.

Texts are checked as strictly as fields. All values must be representable in TOML, because definitions are stored in
TOML.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from cordwood.catalog.catalog import JsonFields
from cordwood.catalog.endpoint_file import parse_settings_document
from cordwood.catalog.stream_file import parse_streams_document
from cordwood.catalog.toml_document import TomlDocument, TomlPath, format_toml_assignments, format_toml_table_header
from cordwood.errors import COMPILE_FAULTS, BadDefinition, SetupFault, did_you_mean
from cordwood.model.definitions import (
    Dialect,
    Endpoint,
    EventTimePolicy,
    Parameter,
    Stream,
    Transform,
    TransformAction,
)
from cordwood.settings.quantities import format_duration, format_rate
from cordwood.sql.budget import compilation_scope
from cordwood.sql.compile import parameter_names

FieldReader = Callable[[str, object], object]
# For each JSON field: the name of the setting in the file, and the function that checks and converts the value.
_SettingsByField = Mapping[str, tuple[str, FieldReader]]

_MAX_NUMBER_FIELD_VALUE: Final = 2**53
_MAX_TOML_NESTING_DEPTH: Final = 6


def _check_field_names(fields: JsonFields, known_names: Collection[str], ignored: Collection[str]) -> None:
    """Raise BadDefinition for an unknown field: if it were ignored, the sender's data would be lost without notice."""
    for name in fields:
        if name not in known_names and name not in ignored:
            hint = did_you_mean(name, known_names) or f"There are: {', '.join(known_names)}."
            raise BadDefinition(name[:40], "is not a field", hint=hint)


def _refuse_unsupported_fields(fields: JsonFields, hints: Mapping[str, str]) -> None:
    """Raise BadDefinition for a field of Logflare's API that cordwood does not support, unless its value is empty."""
    for name, hint in hints.items():
        if fields.get(name) not in (None, False, "", 0, [], {}):
            raise BadDefinition(name, "is not offered", hint=hint)


def _apply_fields(before: Mapping[str, object], fields: JsonFields, settings: _SettingsByField) -> dict[str, object]:
    """Return a copy of the settings in `before`, changed by the sent fields.

    A field with an empty value removes its setting. `settings` has the name of the setting for each field.
    """
    table = dict(before)
    for name, (setting, read) in settings.items():
        if name not in fields:
            continue
        value = read(name, fields[name])
        table.pop(setting, None)
        if value is not None:
            table[setting] = value
    return put_keys_first(table, ("name", "id", *(setting for setting, _ in settings.values())))


def _field_of_setting(setting: object, settings: _SettingsByField) -> str:
    """Return the name of the JSON field that corresponds to a setting in the file; if there is none, `setting`."""
    fields_by_setting = {setting_name: name for name, (setting_name, _) in settings.items()} | {"id": "token"}
    return fields_by_setting.get(str(setting), str(setting))


def _setting_of_field(field: str, settings: _SettingsByField) -> str:
    """Return the name of the setting in the file that corresponds to a JSON field."""
    return "id" if field == "token" else settings[field][0] if field in settings else field


def _read_text(field: str, value: object) -> str | None:
    """Check that a field's value is a text; return None if it is empty or null."""
    if value is None or isinstance(value, str):
        return value or None
    raise BadDefinition(field, "is invalid", hint="It is a text.")


def _read_required_text(field: str, value: object) -> str:
    """Check that a field's value is a text that is not empty."""
    value_text = _read_text(field, value)
    if value_text is None:
        raise BadDefinition(field, "can't be blank")
    return value_text


def _read_boolean(field: str, value: object) -> bool | None:
    """Check that a field's value is a boolean; return None, which selects the default, if it is null."""
    if value is None or isinstance(value, bool):
        return value
    raise BadDefinition(field, "is invalid", hint="It is true or false.")


def _read_whole_number(field: str, value: object) -> int | None:
    """Check that a field's value is a whole number; return None, which selects the default, if it is null."""
    if value is None or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER_FIELD_VALUE
    ):
        return value
    raise BadDefinition(field, "is invalid", hint="It is a whole number.")


def _read_object(field: str, value: object) -> Mapping[str, object] | None:
    """Check that a field's value is an object that TOML can represent; return None if it is empty or null."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise BadDefinition(field, "is invalid", hint="It is an object.")
    return {str(name): _require_toml_value(field, item) for name, item in value.items()} or None


def _format_seconds_setting(field: str, value: object) -> str | None:
    """Convert a number of seconds to a duration such as `30s`; return None for 0 or null."""
    return _format_duration_setting(field, value, "s")


def _format_duration_setting(field: str, value: object, unit: str) -> str | None:
    """Convert a number to a duration in the given unit, such as `30s`; return None for 0 or null."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_NUMBER_FIELD_VALUE:
        raise BadDefinition(field, "is invalid", hint="It is a number that is not negative.")
    return f"{value:.6f}".rstrip("0").rstrip(".") + unit if value else None


def _require_toml_value(field: str, value: object, depth: int = 0) -> object:
    """Return a value unchanged if TOML can represent it.

    Raise BadDefinition for null, for too deep nesting and for numbers that are too large.
    """
    if value is None or depth > _MAX_TOML_NESTING_DEPTH:
        raise BadDefinition(field, "is invalid", hint="It has null, or lists and objects that are nested too deeply.")
    if isinstance(value, int | float) and not abs(value) < _MAX_NUMBER_FIELD_VALUE:
        raise BadDefinition(field, "is invalid", hint="It has a number that is too large.")
    if isinstance(value, Mapping):
        return {str(name): _require_toml_value(field, item, depth + 1) for name, item in value.items()}
    return [_require_toml_value(field, item, depth + 1) for item in value] if isinstance(value, list) else value


def put_keys_first(table: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    """Return the table with the keys `names` first and in this order.

    The order of keys in a file then does not depend on the order of earlier changes.
    """
    return {
        name: table[name]
        for name in (*(name for name in names if name in table), *(name for name in table if name not in names))
    }


# The names of SQL dialects in the field `language` of Logflare's API.
LOGFLARE_LANGUAGE_BY_DIALECT: Final[Mapping[Dialect, str]] = {Dialect.BIGQUERY: "bq_sql", Dialect.CLICKHOUSE: "ch_sql"}


def _read_dialect(field: str, value: object) -> str | None:
    """Convert the field `language` to a dialect's name; return None for BigQuery's dialect, which is the default."""
    dialects = {language: dialect for dialect, language in LOGFLARE_LANGUAGE_BY_DIALECT.items()}
    if value is not None and (not isinstance(value, str) or value not in dialects):
        hint = "Write bq_sql for BigQuery's dialect, or ch_sql for ClickHouse's."
        raise BadDefinition(field, "is invalid", hint=hint)
    dialect = Dialect.BIGQUERY if value is None else dialects[value]
    return None if dialect is Dialect.BIGQUERY else dialect.value


_ENDPOINT_SETTINGS_BY_FIELD: Final[_SettingsByField] = {
    "name": ("name", _read_required_text),
    "description": ("description", _read_text),
    "language": ("dialect", _read_dialect),
    "max_limit": ("max_rows", _read_whole_number),
    "cache_duration_seconds": ("cache", _format_seconds_setting),
    "proactive_requerying_seconds": ("warm", _format_seconds_setting),
    "timeout_seconds": ("timeout", _format_seconds_setting),
    "sandboxable": ("sandbox", _read_boolean),
    "redact_pii": ("redact_pii", _read_boolean),
    "redact_mode": ("redact_mode", _read_text),
    "enable_auth": ("auth", _read_boolean),
    "zone": ("zone", _read_text),
    "alert": ("alert", _read_object),
}
_ENDPOINT_FIELDS_WITHOUT_SETTING: Final = ("token", "query", "parameters")
# Fields of requests that are ignored: read-only fields of cordwood's answers, and fields that only Logflare uses.
_IGNORED_ENDPOINT_FIELDS: Final = (
    "id",
    "revision",
    "origin",
    "labels",
    "enable_dynamic_reservation",
    "source_mapping",
    "inserted_at",
    "updated_at",
)
_UNSUPPORTED_ENDPOINT_FIELDS: Final = {"backend_id": "There is one engine: leave it out."}
# Names that endpoints cannot have, because they have another meaning in the path of a URL.
_RESERVED_ENDPOINT_NAMES: Final = (".", "..", "query", "name", "tail")


class EndpointFileContent(msgspec.Struct, frozen=True):
    """The content of an endpoint file: the settings as a table, and the query."""

    settings: Mapping[str, object]
    query: str

    @property
    def settings_comment(self) -> str:
        """The comment at the beginning of the file, which contains the settings as TOML."""
        parameters, alert = self.settings.get("parameters"), self.settings.get("alert")
        flat = {name: value for name, value in self.settings.items() if name not in ("parameters", "alert")}
        lines = [*format_toml_assignments(flat)]
        for name, settings in parameters.items() if isinstance(parameters, Mapping) else ():
            lines += ["", format_toml_table_header("parameters", name), *format_toml_assignments(settings)]
        if isinstance(alert, Mapping):
            lines += ["", format_toml_table_header("alert"), *format_toml_assignments(alert)]
        return "/*\n" + "\n".join(lines) + "\n*/\n"

    @property
    def file_text(self) -> str:
        """The whole text of the file: the comment with the settings, and the query."""
        return self.settings_comment + self.query + ("" if self.query.endswith("\n") else "\n")


def endpoint_content_from_fields(fields: JsonFields) -> EndpointFileContent:
    """Convert the fields of a new endpoint to the content of its file; raise BadDefinition for an invalid field."""
    for name in ("name", "query"):
        if fields.get(name) in (None, ""):
            raise BadDefinition(name, "can't be blank")
    return apply_endpoint_fields(EndpointFileContent({}, ""), fields)


def apply_endpoint_fields(before: EndpointFileContent, fields: JsonFields) -> EndpointFileContent:
    """Return an endpoint's file content, changed by the sent fields. All other settings remain unchanged."""
    _check_field_names(
        fields,
        (*_ENDPOINT_SETTINGS_BY_FIELD, *_ENDPOINT_FIELDS_WITHOUT_SETTING),
        (*_IGNORED_ENDPOINT_FIELDS, *_UNSUPPORTED_ENDPOINT_FIELDS),
    )
    _refuse_unsupported_fields(fields, _UNSUPPORTED_ENDPOINT_FIELDS)
    settings = _apply_fields(before.settings, fields, _ENDPOINT_SETTINGS_BY_FIELD)
    _check_endpoint_name(settings.get("name"))
    query = _read_required_text("query", fields["query"]) if "query" in fields else before.query
    new_query = query if query.strip() != before.query.strip() else ""
    return EndpointFileContent(_settings_with_declared_parameters(settings, fields, new_query), query)


def endpoint_field_of_toml_path(path: tuple[str | int, ...]) -> str:
    """Return the name of the JSON field to which a path in an endpoint's settings belongs."""
    return _field_of_setting(path[0] if path else "query", _ENDPOINT_SETTINGS_BY_FIELD)


def endpoint_setting_of_field(field: str) -> str:
    """Return the name of the endpoint setting that corresponds to a JSON field."""
    return _setting_of_field(field, _ENDPOINT_SETTINGS_BY_FIELD)


def without_inherited_parameters(
    fields: JsonFields, changed: Endpoint, inherited: Collection[Parameter], new_query: str
) -> JsonFields:
    """Return the fields without parameters that come from endpoints which the endpoint reads.

    An endpoint's JSON lists these parameters, too. If a client sent them back and they were stored, a later change of
    the other endpoint would conflict with the copies. `changed` is the endpoint as all fields together define it. A
    parameter is kept if the client changed it, or if `new_query`, which is empty if the query does not change, names
    it.
    """
    named = {name.lower() for name in _parameter_names(new_query)}
    copied = {one.name for one in changed.parameters if one in inherited and one.name.lower() not in named}
    sent = fields.get("parameters")
    if not copied or not isinstance(sent, list):
        return fields
    return {**fields, "parameters": [one for one in sent if one["name"] not in copied]}


def _check_endpoint_name(name: object) -> None:
    """Raise BadDefinition for a name that has another meaning in URLs."""
    if isinstance(name, str) and (name.lower() in _RESERVED_ENDPOINT_NAMES or name.startswith("_")):
        raise BadDefinition("name", "is reserved", hint="Choose another name: this one has another meaning in URLs.")


def _settings_with_declared_parameters(
    settings: Mapping[str, object], fields: JsonFields, new_query: str
) -> Mapping[str, object]:
    """Return the settings with the sent parameters; if none were sent, declare the parameters `@name` of a new query.

    As in Logflare, parameters that are declared in this way are optional texts. `new_query` is empty if the query does
    not change. Then all its parameters are known: they are declared here or in an endpoint that the query reads.
    """
    tables: Mapping[str, object]
    if fields.get("parameters") is not None:
        tables = _read_parameter_tables(fields["parameters"])
    else:
        known = settings.get("parameters", {})
        declared: Mapping[str, object] = known if isinstance(known, Mapping) else {}
        lower_names = {name.lower() for name in declared}
        tables = {**declared, **{name: {} for name in _parameter_names(new_query) if name.lower() not in lower_names}}
    others = {name: value for name, value in settings.items() if name != "parameters"}
    return {**others, "parameters": tables} if tables else others


def _parameter_names(query: str) -> tuple[str, ...]:
    """Return the names of a query's parameters.

    For an invalid query, return no names: the compiler reports the error later.
    """
    try:
        with compilation_scope():
            return parameter_names(query)
    except COMPILE_FAULTS:
        return ()


def _read_parameter_tables(definitions: object) -> Mapping[str, Mapping[str, object]]:
    if not isinstance(definitions, list) or not all(isinstance(definition, dict) for definition in definitions):
        raise BadDefinition(
            "parameters", "is invalid", hint='It is a list such as [{"name": "project", "required": true}].'
        )
    tables: dict[str, Mapping[str, object]] = {}
    for definition in definitions:
        name = _read_required_text("parameters", definition.get("name"))
        if name in tables:
            raise BadDefinition("parameters", "has a name twice", hint=f"Declare {name[:40]} once.")
        settings = {key: value for key, value in definition.items() if key != "name" and value not in (None, "", [])}
        tables[name] = {key: _require_toml_value("parameters", value) for key, value in settings.items()}
    return tables


_SECONDS_PER_DAY: Final = 86_400


def _format_days_setting(field: str, value: object) -> str | None:
    return _format_duration_setting(field, value, "d")


def _refuse_enrich_transforms(field: str, value: object) -> None:
    """Raise BadDefinition if a transform is of the kind `enrich`, because it would read a file of the server."""
    if isinstance(value, list) and any(isinstance(transform, dict) and "enrich" in transform for transform in value):
        hint = "enrich reads a file of the server: only the streams file that the service is given may name one."
        raise BadDefinition(field, "has an action that is not offered over HTTP", hint=hint)


def _read_transforms(field: str, value: object) -> object:
    _refuse_enrich_transforms(field, value)
    return _require_toml_value(field, value) if value else None


def _read_toml_value(field: str, value: object) -> object:
    return _require_toml_value(field, value) if value else None


_STREAM_SETTINGS_BY_FIELD: Final[_SettingsByField] = {
    "name": ("name", _read_required_text),
    "description": ("description", _read_text),
    "retention_days": ("retention", _format_days_setting),
    "derive": ("derive", _read_toml_value),
    "late": ("late", _read_toml_value),
    "future": ("future", _read_toml_value),
    "rate": ("rate", _read_text),
    "project": ("project", _read_text),
    "transform": ("transform", _read_transforms),
}
# Fields of requests that are ignored: read-only fields of cordwood's answers, and fields that affect only Logflare.
_IGNORED_STREAM_FIELDS: Final = (
    "id", "token", "revision", "origin", "events", "oldest", "newest", "service_name", "favorite", "api_quota", "bigquery_table_ttl",
    "public_token", "bq_table_id", "has_rejected_events", "metrics", "notifications", "notifications_every", "labels",
    "bigquery_clustering_fields", "default_ingest_backend_enabled?", "lock_schema", "validate_schema", "default_search_lql",
    "suggested_keys", "disable_tailing", "bq_storage_write_api", "inserted_at", "updated_at",
)  # fmt: skip
_UNSUPPORTED_STREAM_FIELDS: Final = {
    "backends": "There is one engine: leave it out.",
    "transform_copy_fields": 'Write it as transform: [{"copy": {"from": "to"}}].',
    "transform_drop_fields": 'Write it as transform: [{"remove": ["metadata.field"]}].',
    "transform_key_values": "Name the file in a streams file of the operator's.",
    "drop_lql_string": 'Write it as transform: [{"drop": "m.level:debug"}].',
    "custom_event_message_keys": 'Write it as transform: [{"message": "{metadata.path}"}].',
    "webhook_notification_url": "Events are not announced: query the stream.",
    "slack_hook_url": "Events are not announced: query the stream.",
}


def stream_toml_table_from_fields(fields: JsonFields) -> Mapping[str, object]:
    """Convert the fields of a new stream to its table in a streams file; raise BadDefinition for an invalid field."""
    if fields.get("name") in (None, ""):
        raise BadDefinition("name", "can't be blank")
    return apply_stream_fields({}, fields)


def apply_stream_fields(before: Mapping[str, object], fields: JsonFields) -> Mapping[str, object]:
    """Return a stream's table, changed by the sent fields. All other settings remain unchanged."""
    _check_field_names(fields, tuple(_STREAM_SETTINGS_BY_FIELD), (*_IGNORED_STREAM_FIELDS, *_UNSUPPORTED_STREAM_FIELDS))
    _refuse_unsupported_fields(fields, _UNSUPPORTED_STREAM_FIELDS)
    return _apply_fields(before, fields, _STREAM_SETTINGS_BY_FIELD)


def stream_field_of_toml_path(path: tuple[str | int, ...]) -> str:
    """Return the name of the JSON field to which a path in a streams file belongs."""
    return _field_of_setting(path[2] if len(path) > 2 else "name", _STREAM_SETTINGS_BY_FIELD)


def stream_setting_of_field(field: str) -> str:
    """Return the name of the stream setting that corresponds to a JSON field."""
    return _setting_of_field(field, _STREAM_SETTINGS_BY_FIELD)


def stream_to_fields(stream: Stream) -> dict[str, object]:
    """Convert a stream to JSON fields. For an `enrich` transform, the name of the file is left out."""
    retention = stream.retention_seconds
    days = None if retention is None else retention / _SECONDS_PER_DAY
    return {
        "name": stream.name,
        "description": stream.description,
        "retention_days": int(days) if days is not None and days == int(days) else days,
        "derive": dict(stream.derive_templates),
        "late": _time_policy_to_toml_table(stream.late_policy, stream.late_seconds),
        "future": _time_policy_to_toml_table(stream.future_policy, stream.future_seconds),
        "rate": None if stream.events_per_second is None else format_rate(stream.events_per_second),
        "project": ".".join(("metadata", *stream.project_at)) if stream.project_at else None,
        "transform": [_transform_to_toml_table(transform) for transform in stream.transforms],
    }


def stream_to_toml_table(stream: Stream) -> Mapping[str, object]:
    """Convert a stream to a table of a streams file. For an `enrich` transform, the name of the file is left out.

    The result is used for a stream that has no table in the data folder.
    """
    settings = {**_STREAM_SETTINGS_BY_FIELD, "transform": ("transform", _read_toml_value)}
    table = _apply_fields({"id": str(stream.id)}, stream_to_fields(stream), settings)
    if stream.retention_seconds is not None:
        table["retention"] = format_duration(stream.retention_seconds)
    return table


def stream_revision(stream: Stream) -> str:
    """Return a digest of a stream's JSON fields, which changes whenever the stream's settings change."""
    return hashlib.sha256(msgspec.json.encode(stream_to_fields(stream))).hexdigest()


def _time_policy_to_toml_table(policy: EventTimePolicy, after_seconds: float | None) -> dict[str, str] | None:
    if policy is EventTimePolicy.ACCEPT and after_seconds is None:
        return None
    after = {} if after_seconds is None else {"after": format_duration(after_seconds)}
    return {**after, "policy": policy.value}


def _transform_to_toml_table(transform: Transform) -> dict[str, object]:
    values: Mapping[TransformAction, object] = {
        TransformAction.DROP_EVENT: transform.lql_filter,
        TransformAction.SAMPLE: transform.sampled_fraction,
        TransformAction.REMOVE_FIELDS: [".".join(field) for field in transform.removed_or_hashed_fields],
        TransformAction.HASH: [".".join(field) for field in transform.removed_or_hashed_fields],
        TransformAction.COPY: {
            ".".join(source): ".".join(target) for source, target in transform.source_and_target_fields
        },
        TransformAction.RENAME: {
            ".".join(source): ".".join(target) for source, target in transform.source_and_target_fields
        },
        TransformAction.SET_MESSAGE: transform.message_template,
        TransformAction.ENRICH: {
            ".".join(source): ".".join(target) for source, target in transform.source_and_target_fields
        },
    }
    where = (
        {"where": transform.lql_filter}
        if transform.lql_filter and transform.action is not TransformAction.DROP_EVENT
        else {}
    )
    return {transform.action.value: values[transform.action], **where}


def read_endpoint_settings(text: str) -> TomlDocument:
    """Return the settings in an endpoint's text; raise BadEndpointFile for a value that may not be sent over HTTP."""
    document = parse_settings_document("", text)
    _check_setting_values(document, document.root_table, ())
    _check_setting_value(
        document, ("name",), lambda _, name: _check_endpoint_name(name), document.root_table.get("name")
    )
    return document


def read_stream_toml_table(text: str) -> tuple[TomlDocument, Mapping[str, object]]:
    """Return the `[[stream]]` table in `text`; raise BadStreamFile if there are several tables, or none.

    Also raise BadStreamFile if a setting has a value that is refused over HTTP, such as an `enrich` transform.
    """
    document, tables = parse_streams_document("", text)
    if len(tables) != 1 or not isinstance(tables[0], Mapping):
        second: TomlPath = ("stream", 1) if len(tables) > 1 else ()
        raise document.fault_at("The text must have one stream.", second, "Write one table: [[stream]]")
    _check_setting_values(document, tables[0], ("stream", 0))
    transforms = tables[0].get("transform")
    for number, transform in enumerate(transforms if isinstance(transforms, list) else ()):
        path = ("stream", 0, "transform", number)
        _check_setting_value(document, path, lambda _, one: _refuse_enrich_transforms("transform", [one]), transform)
    return document, tables[0]


def unchangeable_setting_fault(document: TomlDocument, path: TomlPath, hint: str) -> SetupFault:
    """Return the error for an attempt to change a setting that cannot be changed."""
    return document.fault_at(f"{path[-1]} cannot be changed.", path, hint)


def _check_setting_values(document: TomlDocument, table: Mapping[str, object], path: TomlPath) -> None:
    for name, value in table.items():
        _check_setting_value(document, (*path, name), _require_toml_value, value)


def _check_setting_value(
    document: TomlDocument, path: TomlPath, check: Callable[[str, object], object], value: object
) -> None:
    """Call `check` with a setting's value; if the value is refused, raise an error with the position of the setting."""
    try:
        check(str(path[-1]), value)
    except BadDefinition as fault:
        raise document.fault_at(fault.message, path, fault.hint) from fault
