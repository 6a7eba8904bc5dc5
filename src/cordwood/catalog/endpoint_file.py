"""The parser of endpoint files: SQL whose first block comment contains the settings and parameters in TOML."""

import hashlib
import math
import re
from collections.abc import Mapping
from typing import TypeVar
from uuid import UUID
from zoneinfo import available_timezones

import msgspec

from cordwood.catalog.alert_table import read_alert_toml_table
from cordwood.catalog.toml_document import TomlDocument, TomlPath, is_uuid, read_or_derive_id
from cordwood.errors import BadEndpointFile, BadParameter, Span, did_you_mean
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Dialect, Endpoint, Parameter, TextParameterKind
from cordwood.sql.bind import parse_parameter_value

# The namespace of endpoint ids. Ids are derived from names, so that an endpoint has the same id in every installation.
ENDPOINT_ID_NAMESPACE = UUID("c02d0000-0000-5000-8000-000000000e4d")

REDACT_MODES = ("replace", "hash", "truncate")
_ENDPOINT_SETTING_NAMES = (
    "name", "id", "description", "max_rows", "cache", "warm", "timeout",
    "sandbox", "redact_pii", "redact_mode", "auth", "zone", "dialect", "parameters", "alert",
)  # fmt: skip
_BLOCK_COMMENT_PATTERN = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_LEADING_LINE_COMMENTS_PATTERN = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|\#[^\n]*(?:\n|$))*")

SettingValue = TypeVar("SettingValue", str, int, bool)

_PARAMETER_SETTING_NAMES = ("type", "kind", "required", "default", "one_of", "description", "example")
_PARAMETER_NAME_PATTERN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Names that parameters cannot have, because a request uses them for other purposes.
_RESERVED_PARAMETER_NAMES = ("sql", "lql", "api_key")
_UNSUPPORTED_PARAMETER_KINDS = (Kind.ARRAY, Kind.STRUCT, Kind.JSON, Kind.INTERVAL, Kind.VARIANT)
_KIND_BY_PARAMETER_TYPE = {
    **{kind.value.lower(): kind for kind in Kind if kind not in _UNSUPPORTED_PARAMETER_KINDS},
    "int": Kind.INT64,
    "integer": Kind.INT64,
    "float": Kind.FLOAT64,
    "boolean": Kind.BOOL,
    "text": Kind.STRING,
}


def read_endpoint_file(file: str, text: str) -> Endpoint:
    """Parse an endpoint file; raise BadEndpointFile with the position of the first error."""
    text = _normalize_line_ends(text)
    document, head, body = _split_settings_and_query(file, text)
    document.check_setting_names(document.root_table, _ENDPOINT_SETTING_NAMES)
    name = _read_name(document)
    id_text = _read_setting(document, "id", "") if "id" in document.root_table else None
    cache, warm = _read_cache_and_warm_seconds(document)
    return Endpoint(
        name=name,
        id=read_or_derive_id(document, ("id",), id_text, ENDPOINT_ID_NAMESPACE, name),
        sql=body,
        revision=hashlib.sha256(text.encode()).hexdigest(),
        file=file,
        text_before_query=head,
        query_first_line=head.count("\n") + 1,
        description=_read_setting(document, "description", ""),
        max_rows=_read_max_rows(document),
        cache_seconds=cache,
        warm_seconds=warm,
        timeout_seconds=_read_timeout_seconds(document),
        accepts_sandbox_queries=_read_setting(document, "sandbox", default=False),
        redact_pii=_read_setting(document, "redact_pii", default=False),
        redact_mode=_read_redact_mode(document),
        requires_key=_read_setting(document, "auth", default=True),
        time_zone=_read_time_zone(document),
        dialect=_read_dialect(document),
        parameters=_read_parameters(document),
        alert=read_alert_toml_table(document, name),
    )


def parse_settings_document(file: str, text: str) -> TomlDocument:
    """Parse the TOML of an endpoint file's settings, without checking the settings."""
    return _split_settings_and_query(file, _normalize_line_ends(text))[0]


def endpoint_text(endpoint: Endpoint) -> str:
    """Return the text of an endpoint's file as it was when the file was read."""
    return endpoint.text_before_query + endpoint.sql.lstrip()


def add_endpoint_id(text: str, endpoint_id: UUID) -> str:
    """Add a UUID to the text of an endpoint whose settings have none.

    The existing settings may move down by one line, but keep their columns, so that positions of errors remain
    meaningful.
    """
    text = _normalize_line_ends(text)
    start = _find_settings_comment("", text).start(1)
    is_line_free = text[start:].lstrip(" \t").startswith("\n")
    rest = text[start:] if is_line_free else "\n" + " " * _column_of_offset(text, start) + text[start:]
    return f'{text[:start]} id = "{endpoint_id}"{rest}'


def _normalize_line_ends(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _find_settings_comment(file: str, text: str) -> re.Match[str]:
    leading = _LEADING_LINE_COMMENTS_PATTERN.match(text)
    start = leading.end() if leading else 0
    comment = _BLOCK_COMMENT_PATTERN.match(text, start)
    if comment is None:
        raise BadEndpointFile(
            "The file does not begin with its settings.",
            hint='Begin it with a comment that holds TOML: /* name = "my.endpoint" */',
            span=Span(text.count("\n", 0, start) + 1, 1, file),
        )
    return comment


def _split_settings_and_query(file: str, text: str) -> tuple[TomlDocument, str, str]:
    """Split a file; return its settings, the whole text before the query, and the query."""
    comment = _find_settings_comment(file, text)
    body = text[comment.end() :]
    skipped = len(body) - len(body.lstrip())
    head = text[: comment.end() + skipped]
    if not body.strip():
        span = Span(head.count("\n") + 1, 1, file)
        raise BadEndpointFile("The file has settings and no query.", span=span)
    document = _parse_settings(file, text, comment)
    # Keep the indentation of the query's first line, so that the columns in errors are those of the file.
    line_start = body.rfind("\n", 0, skipped) + 1
    indent = body[line_start:skipped] if line_start else " " * _column_of_offset(text, comment.end() + skipped)
    return document, head, indent + body.lstrip()


def _parse_settings(file: str, text: str, comment: re.Match[str]) -> TomlDocument:
    first_line = text.count("\n", 0, comment.start(1)) + 1
    # Indent the first line of the settings as in the file, so that the columns in errors are those of the file.
    settings = " " * _column_of_offset(text, comment.start(1)) + comment[1]
    try:
        return TomlDocument(file, settings, first_line, BadEndpointFile).parse()
    except BadEndpointFile as fault:
        end = Span(text.count("\n", 0, comment.end()) + 1, _column_of_offset(text, comment.end(1)) + 1, file)
        if fault.span == end:
            fault.hint = "The settings end at the first */: in a text, write *\\u002F."
        raise


def _column_of_offset(text: str, offset: int) -> int:
    return offset - (text.rfind("\n", 0, offset) + 1)


def _read_name(document: TomlDocument) -> str:
    name = _read_setting(document, "name", "")
    if not name:
        raise document.fault_at("The endpoint has no name.", hint='Write: name = "my.endpoint"')
    if not name.isprintable() or "/" in name or name != name.strip() or len(name) > 200:
        raise document.fault_at(f"{name!r} cannot be a name: it is a part of URLs.", ("name",))
    if is_uuid(name):
        raise document.fault_at("A name that looks like a UUID can never be called by name.", ("name",))
    return name


def _read_max_rows(document: TomlDocument) -> int:
    rows = _read_setting(document, "max_rows", 1000)
    if rows < 1:
        raise document.fault_at(f"max_rows is {rows}, and must be at least 1.", ("max_rows",))
    return rows


def _read_cache_and_warm_seconds(document: TomlDocument) -> tuple[float, float | None]:
    cache, warm = _read_seconds(document, "cache"), _read_seconds(document, "warm")
    if warm is None:
        return cache or 0.0, None
    if warm <= 0:
        raise document.fault_at("warm must be more than 0.", ("warm",), "Leave it out for no warming.")
    if not cache or warm >= cache:
        raise document.fault_at(
            "warm must be shorter than cache: answers are renewed before they expire.",
            ("warm",),
            'For example: cache = "900s" and warm = "300s".',
        )
    return cache, warm


def _read_timeout_seconds(document: TomlDocument) -> float | None:
    timeout = _read_seconds(document, "timeout")
    if timeout is not None and timeout <= 0:
        raise document.fault_at("timeout must be more than 0.", ("timeout",))
    return timeout


def _read_seconds(document: TomlDocument, key: str) -> float | None:
    value = document.root_table.get(key)
    if value is None:
        return None
    seconds = document.value_as_seconds((key,), value)
    if not math.isfinite(seconds):
        raise document.fault_at(f"{key} is not finite.", (key,))
    return seconds


def _read_redact_mode(document: TomlDocument) -> str:
    mode = _read_setting(document, "redact_mode", REDACT_MODES[0])
    if mode not in REDACT_MODES:
        raise document.fault_at(
            f"{mode!r} is not a redact_mode.", ("redact_mode",), f"There are: {', '.join(REDACT_MODES)}."
        )
    return mode


def _read_time_zone(document: TomlDocument) -> str:
    zone = _read_setting(document, "zone", "UTC")
    # For UTC, do not list the known time zones: this would read a folder of six hundred files.
    if zone != "UTC" and zone not in (known := available_timezones()):
        hint = did_you_mean(zone, known) or 'Write it as in zone = "Europe/Berlin".'
        raise document.fault_at(f"{zone!r} is not a time zone.", ("zone",), hint)
    return zone


def _read_dialect(document: TomlDocument) -> Dialect:
    dialect = _read_setting(document, "dialect", str(Dialect.BIGQUERY))
    known = [str(member) for member in Dialect]
    if dialect not in known:
        raise document.fault_at(f"{dialect!r} is not a dialect.", ("dialect",), f"There are: {', '.join(known)}.")
    return Dialect(dialect)


_VALUE_DESCRIPTION_BY_TYPE: Mapping[type, str] = {str: "a text in quotes", int: "a whole number", bool: "true or false"}


def _read_setting(document: TomlDocument, key: str, default: SettingValue) -> SettingValue:
    value = document.root_table.get(key, default)
    if isinstance(value, type(default)) and isinstance(value, bool) is isinstance(default, bool):
        return value
    raise document.fault_at(f"{key} must be {_VALUE_DESCRIPTION_BY_TYPE[type(default)]}.", (key,))


def _read_parameters(document: TomlDocument) -> tuple[Parameter, ...]:
    """Return the parameters that the settings declare, in the order of the file."""
    tables = document.root_table.get("parameters", {})
    if not isinstance(tables, Mapping):
        raise document.fault_at("parameters must be a table.", ("parameters",), "Write: [parameters.project]")
    _check_distinct_names(document, list(tables))
    return tuple(_read_parameter(document, name, table) for name, table in tables.items())


def _check_distinct_names(document: TomlDocument, names: list[str]) -> None:
    """Refuse parameters whose names differ only in case, because BigQuery and some engines ignore case."""
    seen_names: set[str] = set()
    for name in names:
        if name.lower() in seen_names:
            message = f"{name} differs from another parameter's name only in case."
            raise document.fault_at(message, ("parameters", name))
        seen_names.add(name.lower())


def _read_parameter(document: TomlDocument, name: str, table: object) -> Parameter:
    path: TomlPath = ("parameters", name)
    if not isinstance(table, Mapping):
        raise document.fault_at(f"The parameter {name} must be a table.", path, f"Write: [parameters.{name}]")
    if not _PARAMETER_NAME_PATTERN.fullmatch(name) or name.lower() in _RESERVED_PARAMETER_NAMES:
        raise document.fault_at(f"{name!r} cannot be a parameter's name.", path)
    document.check_setting_names(table, _PARAMETER_SETTING_NAMES, path)
    parameter = Parameter(
        name=name,
        type=_read_parameter_type(document, path, table),
        kind=_read_parameter_kind(document, path, table),
        required=document.read_value(table, path, "required", bool) or False,
        default=_read_parameter_default(document, path, table),
        one_of=_read_allowed_values(document, path, table),
        description=document.read_value(table, path, "description", str) or "",
        example=_read_parameter_example(document, path, table),
    )
    _check_parameter(document, path, parameter)
    _check_parameter_values(document, path, parameter)
    return parameter


def _check_parameter(document: TomlDocument, path: TomlPath, parameter: Parameter) -> None:
    if parameter.required and parameter.default is not None:
        raise document.fault_at("A required parameter cannot have a default.", (*path, "default"))
    if parameter.kind is TextParameterKind.REGEX and parameter.type is not Kind.STRING:
        raise document.fault_at('Only a text can be of kind "regex".', (*path, "kind"))
    values = {"default": parameter.default, "example": parameter.example}
    outside = [key for key, value in values.items() if value not in (None, *(parameter.one_of or (value,)))]
    if outside:
        raise document.fault_at(f"The {outside[0]} {values[outside[0]]!r} is not in one_of.", (*path, outside[0]))


def _check_parameter_values(document: TomlDocument, path: TomlPath, parameter: Parameter) -> None:
    """Raise an error if the default, an allowed value or the example does not have the parameter's type."""
    defaults = () if parameter.default is None else (parameter.default,)
    unbounded = msgspec.structs.replace(parameter, one_of=(), description="")
    examples = () if parameter.example is None else (parameter.example,)
    for key, values in (("default", defaults), ("one_of", parameter.one_of), ("example", examples)):
        for value in values:
            try:
                parse_parameter_value(unbounded, value, lambda _: None)
            except BadParameter as fault:
                raise document.fault_at(fault.message, (*path, key)) from fault


def _read_parameter_type(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> Kind:
    text = (document.read_value(table, path, "type", str) or "string").lower()
    if text not in _KIND_BY_PARAMETER_TYPE:
        raise document.fault_at(
            f"{text!r} is not a type.", (*path, "type"), f"There are: {', '.join(_KIND_BY_PARAMETER_TYPE)}."
        )
    return _KIND_BY_PARAMETER_TYPE[text]


def _read_parameter_kind(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> TextParameterKind:
    text = document.read_value(table, path, "kind", str) or "plain"
    try:
        return TextParameterKind(text)
    except ValueError as problem:
        kinds = ", ".join(TextParameterKind)
        raise document.fault_at(f"{text!r} is not a kind.", (*path, "kind"), f"There are: {kinds}.") from problem


def _read_parameter_default(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> str | None:
    return document.value_as_text((*path, "default"), table["default"]) if "default" in table else None


def _read_parameter_example(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> str | None:
    return document.value_as_text((*path, "example"), table["example"]) if "example" in table else None


def _read_allowed_values(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> tuple[str, ...]:
    values = table.get("one_of", [])
    if not isinstance(values, list) or ("one_of" in table and not values):
        raise document.fault_at("one_of must be a list of values.", (*path, "one_of"))
    return tuple(document.value_as_text((*path, "one_of"), value) for value in values)
