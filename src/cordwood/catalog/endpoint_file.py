"""Endpoint files: SQL whose first block comment holds settings in TOML."""

import hashlib
import math
import re
from collections.abc import Mapping
from typing import TypeVar
from uuid import UUID
from zoneinfo import available_timezones

from cordwood.catalog.alert_table import read_alert_table
from cordwood.catalog.ids import is_uuid, read_id
from cordwood.catalog.parameter_table import read_parameters
from cordwood.catalog.toml_document import Document
from cordwood.errors import BadEndpointFile, Span, did_you_mean
from cordwood.model.endpoint import Dialect, Endpoint

# The namespace of ids that are derived from names, so that they are the same everywhere.
NAMESPACE = UUID("c02d0000-0000-5000-8000-000000000e4d")

REDACT_MODES = ("replace", "hash", "truncate")
_SETTINGS = (
    "name", "id", "description", "max_rows", "cache", "warm", "timeout",
    "sandbox", "redact_pii", "redact_mode", "auth", "zone", "dialect", "parameters", "alert",
)  # fmt: skip
_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_LEADING_COMMENTS = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|\#[^\n]*(?:\n|$))*")

Value = TypeVar("Value", str, int, bool)


def read_endpoint_file(file: str, text: str) -> Endpoint:
    """Parse an endpoint file; raise BadEndpointFile with the place of an error."""
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
        zone=_zone(document),
        dialect=_dialect(document),
        parameters=read_parameters(document),
        alert=read_alert_table(document, name),
    )


def settings_document(file: str, text: str) -> Document:
    """Return the unvalidated TOML of the settings."""
    return _split(file, _normalize(text))[0]


def text_of(endpoint: Endpoint) -> str:
    """Return the text of an endpoint's file, as it was when the endpoint was read."""
    return endpoint.head + endpoint.sql.lstrip()


def with_id(text: str, endpoint_id: UUID) -> str:
    """Return a text whose settings lack an id with one. Lines are only added before the settings, and columns stay."""
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
    """Return the settings, the text before the query, and the query."""
    comment = _settings_comment(file, text)
    body = text[comment.end() :]
    skipped = len(body) - len(body.lstrip())
    head = text[: comment.end() + skipped]
    if not body.strip():
        span = Span(head.count("\n") + 1, 1, file)
        raise BadEndpointFile("The file has settings and no query.", span=span)
    document = _parse_settings(file, text, comment)
    # Keep the indentation of the first line, so that columns in the body are columns in the file.
    line_start = body.rfind("\n", 0, skipped) + 1
    indent = body[line_start:skipped] if line_start else " " * _column(text, comment.end() + skipped)
    return document, head, indent + body.lstrip()


def _parse_settings(file: str, text: str, comment: re.Match[str]) -> Document:
    first_line = text.count("\n", 0, comment.start(1)) + 1
    # Columns of the first line are columns of the file.
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
        raise document.fault_at(f"{name!r} cannot be a name: it stands in an address.", ("name",))
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
        raise document.fault_at("warm is 0, which would never rest.", ("warm",), "Leave it out for no warming.")
    if not cache or warm >= cache:
        raise document.fault_at(
            "warm must be shorter than cache: an answer is asked again before it is too old.",
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
            f"{mode!r} is no redact_mode.", ("redact_mode",), f"There are: {', '.join(REDACT_MODES)}."
        )
    return mode


def _zone(document: Document) -> str:
    zone = _value(document, "zone", "UTC")
    # Listing the zones reads a folder of six hundred files.
    if zone != "UTC" and zone not in (known := available_timezones()):
        hint = did_you_mean(zone, known) or 'Write it as in zone = "Europe/Berlin".'
        raise document.fault_at(f"{zone!r} is no time zone.", ("zone",), hint)
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
