"""Endpoint files: SQL whose first block comment contains settings in TOML, with the declared parameters."""

import hashlib
import math
import re
from collections.abc import Mapping
from typing import TypeVar
from uuid import UUID
from zoneinfo import available_timezones

import msgspec

from cordwood.catalog.alert_table import read_alert_table
from cordwood.catalog.toml_document import Document, Path, is_uuid, read_id
from cordwood.errors import BadEndpointFile, BadParameter, Span, did_you_mean
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Dialect, Endpoint, Parameter, TextKind
from cordwood.sql.bind import value_of

# The namespace of ids that are derived from names, so that they are the same in every installation.
NAMESPACE = UUID("c02d0000-0000-5000-8000-000000000e4d")

REDACT_MODES = ("replace", "hash", "truncate")
_SETTINGS = (
    "name", "id", "description", "max_rows", "cache", "warm", "timeout",
    "sandbox", "redact_pii", "redact_mode", "auth", "zone", "dialect", "parameters", "alert",
)  # fmt: skip
_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_LEADING_COMMENTS = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|\#[^\n]*(?:\n|$))*")

Value = TypeVar("Value", str, int, bool)

_PARAMETER_SETTINGS = ("type", "kind", "required", "default", "one_of", "description", "example")
_PARAMETER_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Names that have another meaning in a request.
_RESERVED_NAMES = ("sql", "lql", "api_key")
_UNSUPPORTED_KINDS = (Kind.ARRAY, Kind.STRUCT, Kind.JSON, Kind.INTERVAL, Kind.VARIANT)
_PARAMETER_TYPES = {
    **{kind.value.lower(): kind for kind in Kind if kind not in _UNSUPPORTED_KINDS},
    "int": Kind.INT64,
    "integer": Kind.INT64,
    "float": Kind.FLOAT64,
    "boolean": Kind.BOOL,
    "text": Kind.STRING,
}


def read_endpoint_file(file: str, text: str) -> Endpoint:
    """Parse an endpoint file; raise BadEndpointFile with the position of an error."""
    text = _normalize(text)
    document, head, body = _split(file, text)
    document.check_names(document.tables, _SETTINGS)
    name = _name(document)
    id_text = _value(document, "id", "") if "id" in document.tables else None
    cache, warm = _cache_and_warm(document)
    return Endpoint(
        name=name,
        id=read_id(document, ("id",), id_text, NAMESPACE, name),
        sql=body,
        revision=hashlib.sha256(text.encode()).hexdigest(),
        file=file,
        head=head,
        body_line=head.count("\n") + 1,
        description=_value(document, "description", ""),
        max_rows=_max_rows(document),
        cache_seconds=cache,
        warm_seconds=warm,
        timeout_seconds=_timeout(document),
        sandbox=_value(document, "sandbox", default=False),
        redact_pii=_value(document, "redact_pii", default=False),
        redact_mode=_redact_mode(document),
        auth=_value(document, "auth", default=True),
        zone=_time_zone(document),
        dialect=_dialect(document),
        parameters=_read_parameters(document),
        alert=read_alert_table(document, name),
    )


def settings_document(file: str, text: str) -> Document:
    """Return the unvalidated TOML of the settings."""
    return _split(file, _normalize(text))[0]


def text_of(endpoint: Endpoint) -> str:
    """Return the text of an endpoint's file as it was when the endpoint was read."""
    return endpoint.head + endpoint.sql.lstrip()


def with_id(text: str, endpoint_id: UUID) -> str:
    """Add an id to settings that have none. The settings may move down by one line, but they keep their columns."""
    text = _normalize(text)
    start = _settings_comment("", text).start(1)
    is_line_free = text[start:].lstrip(" \t").startswith("\n")
    rest = text[start:] if is_line_free else "\n" + " " * _column(text, start) + text[start:]
    return f'{text[:start]} id = "{endpoint_id}"{rest}'


def _normalize(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _settings_comment(file: str, text: str) -> re.Match[str]:
    leading = _LEADING_COMMENTS.match(text)
    start = leading.end() if leading else 0
    comment = _COMMENT.match(text, start)
    if comment is None:
        raise BadEndpointFile(
            "The file does not begin with its settings.",
            hint='Begin it with a comment that holds TOML: /* name = "my.endpoint" */',
            span=Span(text.count("\n", 0, start) + 1, 1, file),
        )
    return comment


def _split(file: str, text: str) -> tuple[Document, str, str]:
    """Split a file into the settings, the text before the query, and the query."""
    comment = _settings_comment(file, text)
    body = text[comment.end() :]
    skipped = len(body) - len(body.lstrip())
    head = text[: comment.end() + skipped]
    if not body.strip():
        span = Span(head.count("\n") + 1, 1, file)
        raise BadEndpointFile("The file has settings and no query.", span=span)
    document = _parse_settings(file, text, comment)
    # The first line keeps its indentation, so that columns in the query are columns in the file.
    line_start = body.rfind("\n", 0, skipped) + 1
    indent = body[line_start:skipped] if line_start else " " * _column(text, comment.end() + skipped)
    return document, head, indent + body.lstrip()


def _parse_settings(file: str, text: str, comment: re.Match[str]) -> Document:
    first_line = text.count("\n", 0, comment.start(1)) + 1
    # The first line is indented, so that columns in it are columns in the file.
    settings = " " * _column(text, comment.start(1)) + comment[1]
    try:
        return Document(file, settings, first_line, BadEndpointFile).parse()
    except BadEndpointFile as fault:
        end = Span(text.count("\n", 0, comment.end()) + 1, _column(text, comment.end(1)) + 1, file)
        if fault.span == end:
            fault.hint = "The settings end at the first */: in a text, write *\\u002F."
        raise


def _column(text: str, offset: int) -> int:
    return offset - (text.rfind("\n", 0, offset) + 1)


def _name(document: Document) -> str:
    name = _value(document, "name", "")
    if not name:
        raise document.fault_at("The endpoint has no name.", hint='Write: name = "my.endpoint"')
    if not name.isprintable() or "/" in name or name != name.strip() or len(name) > 200:
        raise document.fault_at(f"{name!r} cannot be a name: it is a part of URLs.", ("name",))
    if is_uuid(name):
        raise document.fault_at("A name that looks like a UUID can never be called by name.", ("name",))
    return name


def _max_rows(document: Document) -> int:
    rows = _value(document, "max_rows", 1000)
    if rows < 1:
        raise document.fault_at(f"max_rows is {rows}, and must be at least 1.", ("max_rows",))
    return rows


def _cache_and_warm(document: Document) -> tuple[float, float | None]:
    cache, warm = _seconds(document, "cache"), _seconds(document, "warm")
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


def _timeout(document: Document) -> float | None:
    timeout = _seconds(document, "timeout")
    if timeout is not None and timeout <= 0:
        raise document.fault_at("timeout must be more than 0.", ("timeout",))
    return timeout


def _seconds(document: Document, key: str) -> float | None:
    value = document.tables.get(key)
    if value is None:
        return None
    seconds = document.seconds_of((key,), value)
    if not math.isfinite(seconds):
        raise document.fault_at(f"{key} is not finite.", (key,))
    return seconds


def _redact_mode(document: Document) -> str:
    mode = _value(document, "redact_mode", REDACT_MODES[0])
    if mode not in REDACT_MODES:
        raise document.fault_at(
            f"{mode!r} is not a redact_mode.", ("redact_mode",), f"There are: {', '.join(REDACT_MODES)}."
        )
    return mode


def _time_zone(document: Document) -> str:
    zone = _value(document, "zone", "UTC")
    # UTC is accepted without listing all zones, which would read a folder of six hundred files.
    if zone != "UTC" and zone not in (known := available_timezones()):
        hint = did_you_mean(zone, known) or 'Write it as in zone = "Europe/Berlin".'
        raise document.fault_at(f"{zone!r} is not a time zone.", ("zone",), hint)
    return zone


def _dialect(document: Document) -> Dialect:
    dialect = _value(document, "dialect", str(Dialect.BIGQUERY))
    known = [str(member) for member in Dialect]
    if dialect not in known:
        raise document.fault_at(f"{dialect!r} is not a dialect.", ("dialect",), f"There are: {', '.join(known)}.")
    return Dialect(dialect)


_TYPE_NAMES: Mapping[type, str] = {str: "a text in quotes", int: "a whole number", bool: "true or false"}


def _value(document: Document, key: str, default: Value) -> Value:
    value = document.tables.get(key, default)
    if isinstance(value, type(default)) and isinstance(value, bool) is isinstance(default, bool):
        return value
    raise document.fault_at(f"{key} must be {_TYPE_NAMES[type(default)]}.", (key,))


def _read_parameters(document: Document) -> tuple[Parameter, ...]:
    """Return the declared parameters in the order of the file."""
    tables = document.tables.get("parameters", {})
    if not isinstance(tables, Mapping):
        raise document.fault_at("parameters must be a table.", ("parameters",), "Write: [parameters.project]")
    _check_distinct_names(document, list(tables))
    return tuple(_parameter(document, name, table) for name, table in tables.items())


def _check_distinct_names(document: Document, names: list[str]) -> None:
    """Refuse names that differ only in case, because BigQuery and some engines do not distinguish them."""
    seen_names: set[str] = set()
    for name in names:
        if name.lower() in seen_names:
            message = f"{name} differs from another parameter's name only in case."
            raise document.fault_at(message, ("parameters", name))
        seen_names.add(name.lower())


def _parameter(document: Document, name: str, table: object) -> Parameter:
    path: Path = ("parameters", name)
    if not isinstance(table, Mapping):
        raise document.fault_at(f"The parameter {name} must be a table.", path, f"Write: [parameters.{name}]")
    if not _PARAMETER_NAME.fullmatch(name) or name.lower() in _RESERVED_NAMES:
        raise document.fault_at(f"{name!r} cannot be a parameter's name.", path)
    document.check_names(table, _PARAMETER_SETTINGS, path)
    parameter = Parameter(
        name=name,
        type=_parameter_type(document, path, table),
        kind=_parameter_kind(document, path, table),
        required=document.value_of(table, path, "required", bool) or False,
        default=_parameter_default(document, path, table),
        one_of=_allowed_values(document, path, table),
        description=document.value_of(table, path, "description", str) or "",
        example=_parameter_example(document, path, table),
    )
    _check_parameter(document, path, parameter)
    _check_parameter_values(document, path, parameter)
    return parameter


def _check_parameter(document: Document, path: Path, parameter: Parameter) -> None:
    if parameter.required and parameter.default is not None:
        raise document.fault_at("A required parameter cannot have a default.", (*path, "default"))
    if parameter.kind is TextKind.REGEX and parameter.type is not Kind.STRING:
        raise document.fault_at('Only a text can be of kind "regex".', (*path, "kind"))
    values = {"default": parameter.default, "example": parameter.example}
    outside = [key for key, value in values.items() if value not in (None, *(parameter.one_of or (value,)))]
    if outside:
        raise document.fault_at(f"The {outside[0]} {values[outside[0]]!r} is not in one_of.", (*path, outside[0]))


def _check_parameter_values(document: Document, path: Path, parameter: Parameter) -> None:
    """Refuse a default, choice or example of another type than that of the parameter."""
    defaults = () if parameter.default is None else (parameter.default,)
    unbounded = msgspec.structs.replace(parameter, one_of=(), description="")
    examples = () if parameter.example is None else (parameter.example,)
    for key, values in (("default", defaults), ("one_of", parameter.one_of), ("example", examples)):
        for value in values:
            try:
                value_of(unbounded, value, lambda _: None)
            except BadParameter as fault:
                raise document.fault_at(fault.message, (*path, key)) from fault


def _parameter_type(document: Document, path: Path, table: Mapping[str, object]) -> Kind:
    text = (document.value_of(table, path, "type", str) or "string").lower()
    if text not in _PARAMETER_TYPES:
        raise document.fault_at(
            f"{text!r} is not a type.", (*path, "type"), f"There are: {', '.join(_PARAMETER_TYPES)}."
        )
    return _PARAMETER_TYPES[text]


def _parameter_kind(document: Document, path: Path, table: Mapping[str, object]) -> TextKind:
    text = document.value_of(table, path, "kind", str) or "plain"
    try:
        return TextKind(text)
    except ValueError as problem:
        kinds = ", ".join(TextKind)
        raise document.fault_at(f"{text!r} is not a kind.", (*path, "kind"), f"There are: {kinds}.") from problem


def _parameter_default(document: Document, path: Path, table: Mapping[str, object]) -> str | None:
    return document.text_of((*path, "default"), table["default"]) if "default" in table else None


def _parameter_example(document: Document, path: Path, table: Mapping[str, object]) -> str | None:
    return document.text_of((*path, "example"), table["example"]) if "example" in table else None


def _allowed_values(document: Document, path: Path, table: Mapping[str, object]) -> tuple[str, ...]:
    values = table.get("one_of", [])
    if not isinstance(values, list) or ("one_of" in table and not values):
        raise document.fault_at("one_of must be a list of values.", (*path, "one_of"))
    return tuple(document.text_of((*path, "one_of"), value) for value in values)
