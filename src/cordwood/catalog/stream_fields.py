"""Convert between the JSON fields of a stream, which have the names of Logflare's API, and tables of a streams file."""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from cordwood.catalog.field_values import (
    Fields,
    Settings,
    apply_fields,
    check_known,
    duration,
    field_of_setting,
    refuse_not_offered,
    require_toml_value,
    required_text,
    setting_of_field,
    text,
)
from cordwood.errors import BadDefinition
from cordwood.model.stream import Action, ClockPolicy, Stream, Transform
from cordwood.settings.quantities import show_duration, show_rate

_DAY_SECONDS: Final = 86_400


def _days(field: str, value: object) -> str | None:
    return duration(field, value, "d")


def check_transforms(field: str, value: object) -> None:
    """Raise BadDefinition for a transform that reads a file of the server."""
    if isinstance(value, list) and any(isinstance(transform, dict) and "enrich" in transform for transform in value):
        hint = "enrich reads a file of the server: only the streams file that the service is given may name one."
        raise BadDefinition(field, "has an action that is not offered over HTTP", hint=hint)


def _transforms(field: str, value: object) -> object:
    check_transforms(field, value)
    return require_toml_value(field, value) if value else None


def _table_value(field: str, value: object) -> object:
    return require_toml_value(field, value) if value else None


_FIELDS: Final[Settings] = {
    "name": ("name", required_text),
    "description": ("description", text),
    "retention_days": ("retention", _days),
    "derive": ("derive", _table_value),
    "late": ("late", _table_value),
    "future": ("future", _table_value),
    "rate": ("rate", text),
    "project": ("project", text),
    "transform": ("transform", _transforms),
}
# Read-only fields of answers, and fields that affect only Logflare's web pages.
_IGNORED_FIELDS: Final = (
    "id", "token", "revision", "origin", "events", "oldest", "newest", "service_name", "favorite", "api_quota", "bigquery_table_ttl",
    "public_token", "bq_table_id", "has_rejected_events", "metrics", "notifications", "notifications_every", "labels",
    "bigquery_clustering_fields", "default_ingest_backend_enabled?", "lock_schema", "validate_schema", "default_search_lql",
    "suggested_keys", "disable_tailing", "bq_storage_write_api", "inserted_at", "updated_at",
)  # fmt: skip
_NOT_OFFERED: Final = {
    "backends": "There is one engine: leave it out.",
    "transform_copy_fields": 'Write it as transform: [{"copy": {"from": "to"}}].',
    "transform_drop_fields": 'Write it as transform: [{"remove": ["metadata.field"]}].',
    "transform_key_values": "Name the file in a streams file of the operator's.",
    "drop_lql_string": 'Write it as transform: [{"drop": "m.level:debug"}].',
    "custom_event_message_keys": 'Write it as transform: [{"message": "{metadata.path}"}].',
    "webhook_notification_url": "Events are not announced: query the stream.",
    "slack_hook_url": "Events are not announced: query the stream.",
}


def new_stream(fields: Fields) -> Mapping[str, object]:
    """Convert the fields of a new stream to a table; raise BadDefinition for an invalid field."""
    if fields.get("name") in (None, ""):
        raise BadDefinition("name", "can't be blank")
    return changed_stream({}, fields)


def changed_stream(before: Mapping[str, object], fields: Fields) -> Mapping[str, object]:
    """Apply fields to a table. Fields that were not sent are unchanged."""
    check_known(fields, tuple(_FIELDS), (*_IGNORED_FIELDS, *_NOT_OFFERED))
    refuse_not_offered(fields, _NOT_OFFERED)
    return apply_fields(before, fields, _FIELDS)


def field_of(path: tuple[str | int, ...]) -> str:
    """Return the JSON field for the path of a setting in the streams file."""
    return field_of_setting(path[2] if len(path) > 2 else "name", _FIELDS)


def setting_of(field: str) -> str:
    """Return the setting of a JSON field."""
    return setting_of_field(field, _FIELDS)


def fields_of(stream: Stream) -> dict[str, object]:
    """Return the JSON fields of a stream. The file name of an `enrich` transform is left out."""
    retention = stream.retention_seconds
    days = None if retention is None else retention / _DAY_SECONDS
    return {
        "name": stream.name,
        "description": stream.description,
        "retention_days": int(days) if days is not None and days == int(days) else days,
        "derive": dict(stream.derive),
        "late": _policy(stream.late, stream.late_seconds),
        "future": _policy(stream.future, stream.future_seconds),
        "rate": None if stream.events_per_second is None else show_rate(stream.events_per_second),
        "project": ".".join(("metadata", *stream.project_at)) if stream.project_at else None,
        "transform": [_transform(transform) for transform in stream.transforms],
    }


def table_of(stream: Stream) -> Mapping[str, object]:
    """Return the table of a stream from outside the data folder, without the file name of an `enrich` transform."""
    settings = {**_FIELDS, "transform": ("transform", _table_value)}
    table = apply_fields({"id": str(stream.id)}, fields_of(stream), settings)
    if stream.retention_seconds is not None:
        table["retention"] = show_duration(stream.retention_seconds)
    return table


def stream_revision(stream: Stream) -> str:
    """Return a digest of a stream's fields."""
    return hashlib.sha256(msgspec.json.encode(fields_of(stream))).hexdigest()


def _policy(policy: ClockPolicy, after_seconds: float | None) -> dict[str, str] | None:
    if policy is ClockPolicy.ACCEPT and after_seconds is None:
        return None
    after = {} if after_seconds is None else {"after": show_duration(after_seconds)}
    return {**after, "policy": policy.value}


def _transform(transform: Transform) -> dict[str, object]:
    values: Mapping[Action, object] = {
        Action.DROP: transform.where,
        Action.SAMPLE: transform.rate,
        Action.REMOVE: [".".join(field) for field in transform.fields],
        Action.HASH: [".".join(field) for field in transform.fields],
        Action.COPY: {".".join(source): ".".join(target) for source, target in transform.moves},
        Action.RENAME: {".".join(source): ".".join(target) for source, target in transform.moves},
        Action.MESSAGE: transform.template,
        Action.ENRICH: {".".join(source): ".".join(target) for source, target in transform.moves},
    }
    where = {"where": transform.where} if transform.where and transform.action is not Action.DROP else {}
    return {transform.action.value: values[transform.action], **where}
