"""Convert the JSON fields of an endpoint, which have the names of Logflare's API, to an endpoint file."""

from collections.abc import Mapping
from typing import Final

import msgspec

from cordwood.catalog.field_values import (
    Fields,
    Settings,
    apply_fields,
    check_known,
    field_of_setting,
    flag,
    number,
    refuse_not_offered,
    require_toml_value,
    required_text,
    seconds,
    setting_of_field,
    table,
    text,
)
from cordwood.catalog.toml_document import assignments, table_header
from cordwood.errors import COMPILE_FAULTS, BadDefinition
from cordwood.model.endpoint import Dialect
from cordwood.sql.budget import compiling
from cordwood.sql.compile import parameter_names

# The names of dialects in Logflare's API.
LANGUAGES: Final[Mapping[Dialect, str]] = {Dialect.BIGQUERY: "bq_sql", Dialect.CLICKHOUSE: "ch_sql"}


def _dialect(field: str, value: object) -> str | None:
    """Convert a language to a dialect; return None for BigQuery's, which is the default of the file."""
    dialects = {language: dialect for dialect, language in LANGUAGES.items()}
    if value is not None and (not isinstance(value, str) or value not in dialects):
        hint = "Write bq_sql for BigQuery's dialect, or ch_sql for ClickHouse's."
        raise BadDefinition(field, "is invalid", hint=hint)
    dialect = Dialect.BIGQUERY if value is None else dialects[value]
    return None if dialect is Dialect.BIGQUERY else dialect.value


_FIELDS: Final[Settings] = {
    "name": ("name", required_text),
    "description": ("description", text),
    "language": ("dialect", _dialect),
    "max_limit": ("max_rows", number),
    "cache_duration_seconds": ("cache", seconds),
    "proactive_requerying_seconds": ("warm", seconds),
    "timeout_seconds": ("timeout", seconds),
    "sandboxable": ("sandbox", flag),
    "redact_pii": ("redact_pii", flag),
    "redact_mode": ("redact_mode", text),
    "enable_auth": ("auth", flag),
    "zone": ("zone", text),
    "alert": ("alert", table),
}
_SEPARATE_FIELDS: Final = ("token", "query", "parameters")
# Read-only fields of answers, and fields of Logflare that have no meaning here.
_IGNORED_FIELDS: Final = (
    "id",
    "revision",
    "origin",
    "labels",
    "enable_dynamic_reservation",
    "source_mapping",
    "inserted_at",
    "updated_at",
)
_NOT_OFFERED: Final = {"backend_id": "There is one engine: leave it out."}
# These names have another meaning in the path of a URL.
_RESERVED_NAMES: Final = (".", "..", "query", "name", "tail")


class EndpointContent(msgspec.Struct, frozen=True):
    """The settings and the query of an endpoint file."""

    settings: Mapping[str, object]
    query: str

    @property
    def head(self) -> str:
        """The comment with the settings at the beginning of the file."""
        parameters, alert = self.settings.get("parameters"), self.settings.get("alert")
        flat = {name: value for name, value in self.settings.items() if name not in ("parameters", "alert")}
        lines = [*assignments(flat)]
        for name, settings in parameters.items() if isinstance(parameters, Mapping) else ():
            lines += ["", table_header("parameters", name), *assignments(settings)]
        if isinstance(alert, Mapping):
            lines += ["", table_header("alert"), *assignments(alert)]
        return "/*\n" + "\n".join(lines) + "\n*/\n"

    @property
    def text(self) -> str:
        """The text of the file."""
        return self.head + self.query + ("" if self.query.endswith("\n") else "\n")


def new_endpoint(fields: Fields) -> EndpointContent:
    """Convert the fields of a new endpoint; raise BadDefinition for an invalid field."""
    for name in ("name", "query"):
        if fields.get(name) in (None, ""):
            raise BadDefinition(name, "can't be blank")
    return changed_endpoint(EndpointContent({}, ""), fields)


def changed_endpoint(before: EndpointContent, fields: Fields) -> EndpointContent:
    """Apply fields to a definition. Fields that were not sent are unchanged."""
    check_known(fields, (*_FIELDS, *_SEPARATE_FIELDS), (*_IGNORED_FIELDS, *_NOT_OFFERED))
    refuse_not_offered(fields, _NOT_OFFERED)
    settings = apply_fields(before.settings, fields, _FIELDS)
    check_name(settings.get("name"))
    query = required_text("query", fields["query"]) if "query" in fields else before.query
    return EndpointContent(_with_parameters(settings, fields, query), query)


def field_of(path: tuple[str | int, ...]) -> str:
    """Return the JSON field for the path of a setting."""
    return field_of_setting(path[0] if path else "query", _FIELDS)


def setting_of(field: str) -> str:
    """Return the setting of a JSON field."""
    return setting_of_field(field, _FIELDS)


def check_name(name: object) -> None:
    """Raise BadDefinition for a name that has another meaning in a URL."""
    if isinstance(name, str) and (name.lower() in _RESERVED_NAMES or name.startswith("_")):
        raise BadDefinition("name", "is reserved", hint="Choose another: this one means something else in an address.")


def _with_parameters(settings: Mapping[str, object], fields: Fields, query: str) -> Mapping[str, object]:
    """Set the declared parameters. If none are, declare new @names of the query as optional texts, as Logflare does."""
    tables: Mapping[str, object]
    if fields.get("parameters") is not None:
        tables = _parameter_tables(fields["parameters"])
    else:
        known = settings.get("parameters", {})
        declared: Mapping[str, object] = known if isinstance(known, Mapping) else {}
        lower_names = {name.lower() for name in declared}
        tables = {**declared, **{name: {} for name in _parameter_names(query) if name.lower() not in lower_names}}
    others = {name: value for name, value in settings.items() if name != "parameters"}
    return {**others, "parameters": tables} if tables else others


def _parameter_names(query: str) -> tuple[str, ...]:
    """Return the names of a query's parameters, or none if it cannot be parsed, which compiling reports later."""
    try:
        with compiling():
            return parameter_names(query)
    except COMPILE_FAULTS:
        return ()


def _parameter_tables(definitions: object) -> Mapping[str, Mapping[str, object]]:
    if not isinstance(definitions, list) or not all(isinstance(definition, dict) for definition in definitions):
        raise BadDefinition(
            "parameters", "is invalid", hint='It is a list such as [{"name": "project", "required": true}].'
        )
    tables: dict[str, Mapping[str, object]] = {}
    for definition in definitions:
        name = required_text("parameters", definition.get("name"))
        if name in tables:
            raise BadDefinition("parameters", "has a name twice", hint=f"Declare {name[:40]} once.")
        settings = {key: value for key, value in definition.items() if key != "name" and value not in (None, "", [])}
        tables[name] = {key: require_toml_value("parameters", value) for key, value in settings.items()}
    return tables
