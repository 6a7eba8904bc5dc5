"""Convert and check definitions sent over HTTP: JSON fields with the names of Logflare's API, or texts of files.

Texts are checked as strictly as fields. Every value must be representable in TOML.
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
from cordwood.model.definitions import ClockPolicy, Dialect, Stream, Transform, TransformAction
from cordwood.settings.quantities import format_duration, format_rate
from cordwood.sql.budget import compilation_scope
from cordwood.sql.compile import parameter_names

FieldReader = Callable[[str, object], object]
# The setting of each JSON field, and the function that validates and converts the value.
_SettingsByField = Mapping[str, tuple[str, FieldReader]]

_MAX_FIELD_NUMBER: Final = 2**53
_MAX_TOML_NESTING_DEPTH: Final = 6


def _check_field_names(fields: JsonFields, known_names: Collection[str], ignored: Collection[str]) -> None:
    """Refuse unknown fields, because ignoring them could lose data without notice."""
    for name in fields:
        if name not in known_names and name not in ignored:
            hint = did_you_mean(name, known_names) or f"There are: {', '.join(known_names)}."
            raise BadDefinition(name[:40], "is not a field", hint=hint)


def _refuse_unsupported_fields(fields: JsonFields, hints: Mapping[str, str]) -> None:
    """Refuse fields of Logflare's API that cordwood does not support, unless their value is empty."""
    for name, hint in hints.items():
        if fields.get(name) not in (None, False, "", 0, [], {}):
            raise BadDefinition(name, "is not offered", hint=hint)


def _apply_fields(before: Mapping[str, object], fields: JsonFields, settings: _SettingsByField) -> dict[str, object]:
    """Return the table, changed by the fields that were sent. A field with an empty value removes its setting."""
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
    """Return the JSON field of a setting."""
    fields_by_setting = {setting_name: name for name, (setting_name, _) in settings.items()} | {"id": "token"}
    return fields_by_setting.get(str(setting), str(setting))


def _setting_of_field(field: str, settings: _SettingsByField) -> str:
    """Return the setting of a JSON field."""
    return "id" if field == "token" else settings[field][0] if field in settings else field


def _read_text(field: str, value: object) -> str | None:
    """Return a text, or None if it is empty."""
    if value is None or isinstance(value, str):
        return value or None
    raise BadDefinition(field, "is invalid", hint="It is a text.")


def _read_required_text(field: str, value: object) -> str:
    """Return a text that is not empty."""
    value_text = _read_text(field, value)
    if value_text is None:
        raise BadDefinition(field, "can't be blank")
    return value_text


def _read_flag(field: str, value: object) -> bool | None:
    """Return a boolean, or None for the default."""
    if value is None or isinstance(value, bool):
        return value
    raise BadDefinition(field, "is invalid", hint="It is true or false.")


def _read_whole_number(field: str, value: object) -> int | None:
    """Return a whole number, or None for the default."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_FIELD_NUMBER):
        return value
    raise BadDefinition(field, "is invalid", hint="It is a whole number.")


def _read_table(field: str, value: object) -> Mapping[str, object] | None:
    """Return an object whose values TOML can represent, or None if it is empty or null."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise BadDefinition(field, "is invalid", hint="It is an object.")
    return {str(name): _require_toml_value(field, item) for name, item in value.items()} or None


def _format_seconds_setting(field: str, value: object) -> str | None:
    """Convert a number of seconds to a duration, or to None if it is 0 or null."""
    return _format_duration_setting(field, value, "s")


def _format_duration_setting(field: str, value: object, unit: str) -> str | None:
    """Convert a number to a duration with a unit, or to None if it is 0 or null."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_FIELD_NUMBER:
        raise BadDefinition(field, "is invalid", hint="It is a number that is not negative.")
    return f"{value:.6f}".rstrip("0").rstrip(".") + unit if value else None


def _require_toml_value(field: str, value: object, depth: int = 0) -> object:
    """Return a value that TOML can represent; raise BadDefinition for null, deep nesting and large numbers."""
    if value is None or depth > _MAX_TOML_NESTING_DEPTH:
        raise BadDefinition(field, "is invalid", hint="It has null, or lists and objects that are nested too deeply.")
    if isinstance(value, int | float) and not abs(value) < _MAX_FIELD_NUMBER:
        raise BadDefinition(field, "is invalid", hint="It has a number that is too large.")
    if isinstance(value, Mapping):
        return {str(name): _require_toml_value(field, item, depth + 1) for name, item in value.items()}
    return [_require_toml_value(field, item, depth + 1) for item in value] if isinstance(value, list) else value


def put_keys_first(table: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    """Return the table with these keys first, so that a file does not depend on the order of earlier changes."""
    return {
        name: table[name]
        for name in (*(name for name in names if name in table), *(name for name in table if name not in names))
    }


# The names of dialects in Logflare's API.
LOGFLARE_LANGUAGES: Final[Mapping[Dialect, str]] = {Dialect.BIGQUERY: "bq_sql", Dialect.CLICKHOUSE: "ch_sql"}


def _read_dialect(field: str, value: object) -> str | None:
    """Convert a language of Logflare's API to a dialect; return None for BigQuery's dialect, the default in files."""
    dialects = {language: dialect for dialect, language in LOGFLARE_LANGUAGES.items()}
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
    "sandboxable": ("sandbox", _read_flag),
    "redact_pii": ("redact_pii", _read_flag),
    "redact_mode": ("redact_mode", _read_text),
    "enable_auth": ("auth", _read_flag),
    "zone": ("zone", _read_text),
    "alert": ("alert", _read_table),
}
_SEPARATE_ENDPOINT_FIELDS: Final = ("token", "query", "parameters")
# Read-only fields of answers, and fields of Logflare that have no meaning here.
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
# Names that endpoints cannot have, because these names have another meaning in the path of a URL.
_RESERVED_ENDPOINT_NAMES: Final = (".", "..", "query", "name", "tail")


class EndpointFileContent(msgspec.Struct, frozen=True):
    """The settings and the query of an endpoint file."""

    settings: Mapping[str, object]
    query: str

    @property
    def settings_comment(self) -> str:
        """The comment with the settings at the beginning of the file."""
        parameters, alert = self.settings.get("parameters"), self.settings.get("alert")
        flat = {name: value for name, value in self.settings.items() if name not in ("parameters", "alert")}
        lines = [*format_toml_assignments(flat)]
        for name, settings in parameters.items() if isinstance(parameters, Mapping) else ():
            lines += ["", format_toml_table_header("parameters", name), *format_toml_assignments(settings)]
        if isinstance(alert, Mapping):
            lines += ["", format_toml_table_header("alert"), *format_toml_assignments(alert)]
        return "/*\n" + "\n".join(lines) + "\n*/\n"

    @property
    def text(self) -> str:
        """The text of the file."""
        return self.settings_comment + self.query + ("" if self.query.endswith("\n") else "\n")


def endpoint_from_fields(fields: JsonFields) -> EndpointFileContent:
    """Convert the fields of a new endpoint; raise BadDefinition for an invalid field."""
    for name in ("name", "query"):
        if fields.get(name) in (None, ""):
            raise BadDefinition(name, "can't be blank")
    return apply_endpoint_fields(EndpointFileContent({}, ""), fields)


def apply_endpoint_fields(before: EndpointFileContent, fields: JsonFields) -> EndpointFileContent:
    """Apply the fields that were sent to an endpoint's definition. All other fields remain unchanged."""
    _check_field_names(
        fields,
        (*_ENDPOINT_SETTINGS_BY_FIELD, *_SEPARATE_ENDPOINT_FIELDS),
        (*_IGNORED_ENDPOINT_FIELDS, *_UNSUPPORTED_ENDPOINT_FIELDS),
    )
    _refuse_unsupported_fields(fields, _UNSUPPORTED_ENDPOINT_FIELDS)
    settings = _apply_fields(before.settings, fields, _ENDPOINT_SETTINGS_BY_FIELD)
    _check_endpoint_name(settings.get("name"))
    query = _read_required_text("query", fields["query"]) if "query" in fields else before.query
    return EndpointFileContent(_set_parameters(settings, fields, query), query)


def endpoint_field_of_path(path: tuple[str | int, ...]) -> str:
    """Return the JSON field for the path of a setting."""
    return _field_of_setting(path[0] if path else "query", _ENDPOINT_SETTINGS_BY_FIELD)


def endpoint_setting_of_field(field: str) -> str:
    """Return the setting of a JSON field."""
    return _setting_of_field(field, _ENDPOINT_SETTINGS_BY_FIELD)


def _check_endpoint_name(name: object) -> None:
    """Raise BadDefinition for a name that has another meaning in a URL."""
    if isinstance(name, str) and (name.lower() in _RESERVED_ENDPOINT_NAMES or name.startswith("_")):
        raise BadDefinition("name", "is reserved", hint="Choose another name: this one has another meaning in URLs.")


def _set_parameters(settings: Mapping[str, object], fields: JsonFields, query: str) -> Mapping[str, object]:
    """Set the parameters that were sent; if none were sent, declare the new `@name` parameters of the query.

    Like in Logflare, these parameters are optional texts.
    """
    tables: Mapping[str, object]
    if fields.get("parameters") is not None:
        tables = _read_parameter_tables(fields["parameters"])
    else:
        known = settings.get("parameters", {})
        declared: Mapping[str, object] = known if isinstance(known, Mapping) else {}
        lower_names = {name.lower() for name in declared}
        tables = {**declared, **{name: {} for name in _parameter_names(query) if name.lower() not in lower_names}}
    others = {name: value for name, value in settings.items() if name != "parameters"}
    return {**others, "parameters": tables} if tables else others


def _parameter_names(query: str) -> tuple[str, ...]:
    """Return the names of a query's parameters; no names if the query is invalid, which the compiler reports later."""
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


def _check_transforms(field: str, value: object) -> None:
    """Raise BadDefinition for a transform that reads a file of the server."""
    if isinstance(value, list) and any(isinstance(transform, dict) and "enrich" in transform for transform in value):
        hint = "enrich reads a file of the server: only the streams file that the service is given may name one."
        raise BadDefinition(field, "has an action that is not offered over HTTP", hint=hint)


def _read_transforms(field: str, value: object) -> object:
    _check_transforms(field, value)
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
# Read-only fields of answers, and fields that affect only Logflare's web pages.
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


def stream_table_from_fields(fields: JsonFields) -> Mapping[str, object]:
    """Convert the fields of a new stream to a table; raise BadDefinition for an invalid field."""
    if fields.get("name") in (None, ""):
        raise BadDefinition("name", "can't be blank")
    return apply_stream_fields({}, fields)


def apply_stream_fields(before: Mapping[str, object], fields: JsonFields) -> Mapping[str, object]:
    """Apply the fields that were sent to a stream's table. All other fields remain unchanged."""
    _check_field_names(fields, tuple(_STREAM_SETTINGS_BY_FIELD), (*_IGNORED_STREAM_FIELDS, *_UNSUPPORTED_STREAM_FIELDS))
    _refuse_unsupported_fields(fields, _UNSUPPORTED_STREAM_FIELDS)
    return _apply_fields(before, fields, _STREAM_SETTINGS_BY_FIELD)


def stream_field_of_path(path: tuple[str | int, ...]) -> str:
    """Return the JSON field for the path of a setting in the streams file."""
    return _field_of_setting(path[2] if len(path) > 2 else "name", _STREAM_SETTINGS_BY_FIELD)


def stream_setting_of_field(field: str) -> str:
    """Return the setting of a JSON field."""
    return _setting_of_field(field, _STREAM_SETTINGS_BY_FIELD)


def stream_to_fields(stream: Stream) -> dict[str, object]:
    """Return the JSON fields of a stream, without the file name of an `enrich` transform."""
    retention = stream.retention_seconds
    days = None if retention is None else retention / _SECONDS_PER_DAY
    return {
        "name": stream.name,
        "description": stream.description,
        "retention_days": int(days) if days is not None and days == int(days) else days,
        "derive": dict(stream.derive_templates),
        "late": _policy_to_table(stream.late_policy, stream.late_seconds),
        "future": _policy_to_table(stream.future_policy, stream.future_seconds),
        "rate": None if stream.events_per_second is None else format_rate(stream.events_per_second),
        "project": ".".join(("metadata", *stream.project_at)) if stream.project_at else None,
        "transform": [_transform_to_table(transform) for transform in stream.transforms],
    }


def stream_to_table(stream: Stream) -> Mapping[str, object]:
    """Return a stream that is not in the data folder as a table, without the file name of an `enrich` transform."""
    settings = {**_STREAM_SETTINGS_BY_FIELD, "transform": ("transform", _read_toml_value)}
    table = _apply_fields({"id": str(stream.id)}, stream_to_fields(stream), settings)
    if stream.retention_seconds is not None:
        table["retention"] = format_duration(stream.retention_seconds)
    return table


def stream_revision(stream: Stream) -> str:
    """Return a digest of a stream's fields."""
    return hashlib.sha256(msgspec.json.encode(stream_to_fields(stream))).hexdigest()


def _policy_to_table(policy: ClockPolicy, after_seconds: float | None) -> dict[str, str] | None:
    if policy is ClockPolicy.ACCEPT and after_seconds is None:
        return None
    after = {} if after_seconds is None else {"after": format_duration(after_seconds)}
    return {**after, "policy": policy.value}


def _transform_to_table(transform: Transform) -> dict[str, object]:
    values: Mapping[TransformAction, object] = {
        TransformAction.DROP: transform.where,
        TransformAction.SAMPLE: transform.rate,
        TransformAction.REMOVE: [".".join(field) for field in transform.fields],
        TransformAction.HASH: [".".join(field) for field in transform.fields],
        TransformAction.COPY: {".".join(source): ".".join(target) for source, target in transform.moves},
        TransformAction.RENAME: {".".join(source): ".".join(target) for source, target in transform.moves},
        TransformAction.MESSAGE: transform.template,
        TransformAction.ENRICH: {".".join(source): ".".join(target) for source, target in transform.moves},
    }
    where = {"where": transform.where} if transform.where and transform.action is not TransformAction.DROP else {}
    return {transform.action.value: values[transform.action], **where}


def read_endpoint_settings(text: str) -> TomlDocument:
    """Return the settings in an endpoint's text; raise BadEndpointFile for settings that may not be sent over HTTP."""
    document = parse_settings_document("", text)
    _check_setting_values(document, document.tables, ())
    _check_setting_value(document, ("name",), lambda _, name: _check_endpoint_name(name), document.tables.get("name"))
    return document


def read_stream_table(text: str) -> tuple[TomlDocument, Mapping[str, object]]:
    """Return the only table in a stream's text; raise BadStreamFile for settings that may not be sent over HTTP."""
    document, tables = parse_streams_document("", text)
    if len(tables) != 1 or not isinstance(tables[0], Mapping):
        second: TomlPath = ("stream", 1) if len(tables) > 1 else ()
        raise document.fault_at("The text must have one stream.", second, "Write one table: [[stream]]")
    _check_setting_values(document, tables[0], ("stream", 0))
    transforms = tables[0].get("transform")
    for number, transform in enumerate(transforms if isinstance(transforms, list) else ()):
        path = ("stream", 0, "transform", number)
        _check_setting_value(document, path, lambda _, one: _check_transforms("transform", [one]), transform)
    return document, tables[0]


def unchangeable_setting_fault(document: TomlDocument, path: TomlPath, hint: str) -> SetupFault:
    """Return the error for a change of a setting that must keep its value."""
    return document.fault_at(f"{path[-1]} cannot be changed.", path, hint)


def _check_setting_values(document: TomlDocument, table: Mapping[str, object], path: TomlPath) -> None:
    for name, value in table.items():
        _check_setting_value(document, (*path, name), _require_toml_value, value)


def _check_setting_value(
    document: TomlDocument, path: TomlPath, check: Callable[[str, object], object], value: object
) -> None:
    """Check a value; if `check` refuses it, raise an error with the position of the setting."""
    try:
        check(str(path[-1]), value)
    except BadDefinition as fault:
        raise document.fault_at(fault.message, path, fault.hint) from fault
