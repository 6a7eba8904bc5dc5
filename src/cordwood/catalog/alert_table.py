"""The parser of alerts: the `[alert]` table in an endpoint's settings, and TOML files that end in `.alert.toml`."""

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Final
from uuid import UUID, uuid5

import msgspec

from cordwood.catalog.toml_document import TomlDocument, TomlPath
from cordwood.errors import BadEndpointFile, Span
from cordwood.model.definitions import (
    MAX_ALERT_TEXT_CHARACTERS,
    Alert,
    AlertCondition,
    ComparedValue,
    Comparison,
    Severity,
)
from cordwood.settings.quantities import format_duration

ALERT_FILE_SUFFIX: Final = ".alert.toml"
# The namespace of alert ids, each of which is derived from the alert's name. The state and the silences of an alert are
# stored under its id.
ALERT_ID_NAMESPACE: Final = UUID("c02d0000-0000-5000-8000-00000000a1e7")

_ALERT_SETTING_NAMES: Final = (
    "name", "every", "for", "condition", "before", "repeat", "group_by", "severity", "text", "send_to",
    "parameters", "sql", "lql", "redact",
)  # fmt: skip
_ALERT_FILE_SETTING_NAMES: Final = ("endpoint", *_ALERT_SETTING_NAMES)
MIN_EVALUATION_INTERVAL_SECONDS: Final = 1.0
_MAX_ALERT_DURATION_SECONDS: Final = 366 * 86_400.0
_MAX_GROUP_BY_COLUMNS: Final = 16
_MAX_ALERT_NAME_LENGTH: Final = 200

_COLUMN_NAME_PATTERN: Final = r"(?:[A-Za-z_]\w*|`[^`]+`)"
_COMPARISON_PATTERN: Final = re.compile(
    rf"(?:change\s*\(\s*(?P<changed>{_COLUMN_NAME_PATTERN})\s*\)|(?P<name>{_COLUMN_NAME_PATTERN}))"
    r"\s*(?P<comparison>>=|<=|==|!=|>|<)\s*(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<percent>%)?"
)
_CONDITION_HINT: Final = (
    "Write one of: rows, rows > 10, missing, COLUMN > 10, change(COLUMN) > 50%, change(rows) < -100."
    " A column whose name is not a word, or is `rows`, is written in backquotes."
)


def read_alert_file(file: str, text: str) -> Alert:
    """Parse an alert file; raise BadEndpointFile with the position of the first error."""
    document = TomlDocument(file, text.removeprefix("\ufeff").replace("\r\n", "\n"), 1, BadEndpointFile).parse()
    document.check_setting_names(document.root_table, _ALERT_FILE_SETTING_NAMES)
    endpoint = document.read_value(document.root_table, (), "endpoint", str)
    if not endpoint:
        raise document.fault_at("The alert names no endpoint.", hint='Write: endpoint = "logs.all"')
    return _read_alert(
        document,
        (),
        document.root_table,
        endpoint,
        file.replace("\\", "/").rpartition("/")[2][: -len(ALERT_FILE_SUFFIX)],
    )


def read_alert_toml_table(document: TomlDocument, endpoint: str) -> Alert | None:
    """Return the alert in an endpoint's settings; None if they have no table `[alert]`.

    Unless the table has a name for the alert, the alert has the endpoint's name.
    """
    table = document.root_table.get("alert")
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise document.fault_at("alert must be a table.", ("alert",), "Write: [alert]")
    document.check_setting_names(table, _ALERT_SETTING_NAMES, ("alert",))
    return _read_alert(document, ("alert",), table, endpoint, endpoint)


def _read_alert(
    document: TomlDocument, path: TomlPath, table: Mapping[str, object], endpoint: str, default_name: str
) -> Alert:
    name = document.read_value(table, path, "name", str) or default_name
    if not name.isprintable() or "/" in name or name != name.strip() or not 0 < len(name) <= _MAX_ALERT_NAME_LENGTH:
        raise document.fault_at(f"{name!r} cannot be the name of an alert: it is a part of URLs.", (*path, "name"))
    condition = _read_condition_setting(document, path, table)
    alert = Alert(
        name=name,
        id=uuid5(ALERT_ID_NAMESPACE, name),
        endpoint_name=endpoint,
        condition=condition,
        every_seconds=_read_evaluation_interval_seconds(document, path, table),
        revision=hashlib.sha256(msgspec.json.encode((endpoint, table), enc_hook=str)).hexdigest(),
        file=document.file,
        line=document.line_of(path),
        for_seconds=_read_duration_seconds(document, path, table, "for") or 0.0,
        before_seconds=_read_comparison_offset_seconds(document, path, table, condition),
        repeat_seconds=_read_duration_seconds(document, path, table, "repeat"),
        group_by=_read_distinct_names(document, path, table, "group_by"),
        severity=_read_severity(document, path, table),
        notification_text=_read_notification_text(document, path, table),
        send_to=_read_distinct_names(document, path, table, "send_to"),
        parameters=_read_parameters(document, path, table),
        sandbox_language_and_text=_read_sandbox_query(document, path, table),
        redact=document.read_value(table, path, "redact", bool),
    )
    if len(alert.group_by) > _MAX_GROUP_BY_COLUMNS:
        raise document.fault_at(f"group_by has more than {_MAX_GROUP_BY_COLUMNS} columns.", (*path, "group_by"))
    return alert


def read_condition(text: str) -> AlertCondition | None:
    """Parse an alert's condition, such as `rows > 10`; return None if the text is not a condition."""
    written = text.strip()
    if written == "rows":
        return AlertCondition(written, ComparedValue.ROWS)
    if written == "missing":
        return AlertCondition(written, ComparedValue.MISSING_ROWS)
    found = _COMPARISON_PATTERN.fullmatch(written)
    if found is None or (found["percent"] and not found["changed"]):
        return None
    name = found["changed"] or found["name"]
    column = "" if name == "rows" else name.strip("`")
    measure = ComparedValue.CHANGE if found["changed"] else ComparedValue.COLUMN if column else ComparedValue.ROWS
    number = float(found["number"])
    if not math.isfinite(number):
        return None
    comparison = Comparison(found["comparison"])
    return AlertCondition(written, measure, column, comparison, number, is_percent=bool(found["percent"]))


def _read_condition_setting(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> AlertCondition:
    text = document.read_value(table, path, "condition", str)
    if text is None:
        raise document.fault_at("The alert has no condition.", path, _CONDITION_HINT)
    condition = read_condition(text)
    if condition is None:
        raise document.fault_at(f"{text!r} is not a condition.", (*path, "condition"), _CONDITION_HINT)
    return condition


def _read_evaluation_interval_seconds(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> float:
    seconds = _read_duration_seconds(document, path, table, "every")
    if seconds is None:
        raise document.fault_at("The alert does not say how often it is evaluated.", path, 'Write: every = "1m"')
    if seconds < MIN_EVALUATION_INTERVAL_SECONDS:
        raise document.fault_at(f"every must be at least {MIN_EVALUATION_INTERVAL_SECONDS:g} s.", (*path, "every"))
    return seconds


def _read_comparison_offset_seconds(
    document: TomlDocument, path: TomlPath, table: Mapping[str, object], condition: AlertCondition
) -> float | None:
    seconds = _read_duration_seconds(document, path, table, "before")
    if condition.compared_value is ComparedValue.CHANGE and not seconds:
        hint = 'Write how long before the period lies with which it is compared, such as: before = "1h"'
        raise document.fault_at("A condition about a change needs `before`.", (*path, "condition"), hint)
    if condition.compared_value is not ComparedValue.CHANGE and seconds is not None:
        raise document.fault_at("Only a condition about a change has a use for `before`.", (*path, "before"))
    return seconds


def _read_duration_seconds(
    document: TomlDocument, path: TomlPath, table: Mapping[str, object], key: str
) -> float | None:
    text = document.read_value(table, path, key, str)
    if text is None:
        return None
    seconds = document.value_as_seconds((*path, key), text)
    if not 0 <= seconds <= _MAX_ALERT_DURATION_SECONDS:
        raise document.fault_at(f"{key} must be at most a year.", (*path, key))
    if key == "repeat" and seconds < MIN_EVALUATION_INTERVAL_SECONDS:
        raise document.fault_at(f"repeat must be at least {MIN_EVALUATION_INTERVAL_SECONDS:g} s.", (*path, key))
    return seconds


def _read_severity(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> Severity:
    text = document.read_value(table, path, "severity", str) or Severity.WARNING
    try:
        return Severity(text)
    except ValueError as problem:
        hint = f"There are: {', '.join(Severity)}."
        raise document.fault_at(f"{text!r} is not a severity.", (*path, "severity"), hint) from problem


def _read_notification_text(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> str:
    text = document.read_value(table, path, "text", str) or ""
    if len(text) > MAX_ALERT_TEXT_CHARACTERS:
        raise document.fault_at(f"text has more than {MAX_ALERT_TEXT_CHARACTERS} characters.", (*path, "text"))
    return text


def _read_distinct_names(
    document: TomlDocument, path: TomlPath, table: Mapping[str, object], key: str
) -> tuple[str, ...]:
    names = table.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise document.fault_at(f"{key} must be a list of texts.", (*path, key), f'Write it as in {key} = ["a", "b"].')
    if len(set(names)) < len(names):
        raise document.fault_at(f"{key} has a name twice.", (*path, key))
    return tuple(names)


def _read_parameters(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> Mapping[str, str]:
    values = table.get("parameters", {})
    if not isinstance(values, Mapping):
        raise document.fault_at(
            "parameters must be a table.", (*path, "parameters"), 'Write: parameters = {project = "default"}'
        )
    return {name: document.value_as_text((*path, "parameters", name), value) for name, value in values.items()}


def _read_sandbox_query(document: TomlDocument, path: TomlPath, table: Mapping[str, object]) -> tuple[str, str] | None:
    texts = {language: document.read_value(table, path, language, str) for language in ("sql", "lql")}
    written = [(language, text) for language, text in texts.items() if text is not None]
    if len(written) > 1:
        raise document.fault_at("An alert has either sql or lql.", (*path, "lql"))
    return written[0] if written else None


def alert_to_toml_table(alert: Alert) -> dict[str, object]:
    """Return those settings of an alert that are not empty, as a table for an endpoint file."""
    durations = {
        "every": alert.every_seconds,
        "for": alert.for_seconds or None,
        "before": alert.before_seconds,
        "repeat": alert.repeat_seconds,
    }
    table: dict[str, object] = {
        "condition": alert.condition.written_text,
        **{key: format_duration(seconds) for key, seconds in durations.items() if seconds is not None},
        "severity": str(alert.severity),
        "text": alert.notification_text,
        "group_by": list(alert.group_by),
        "send_to": list(alert.send_to),
        "parameters": dict(alert.parameters),
        "redact": alert.redact,
    }
    if alert.sandbox_language_and_text is not None:
        table[alert.sandbox_language_and_text[0]] = alert.sandbox_language_and_text[1]
    if alert.name != alert.endpoint_name:
        table["name"] = alert.name
    return {key: value for key, value in table.items() if value not in ("", [], {}, None)}


def alert_fault(alert: Alert, message: str, hint: str | None = None) -> BadEndpointFile:
    """Return an error about an alert, with the position of the alert's table in its file."""
    fault = BadEndpointFile(f"The alert {alert.name}: {message}", hint=hint, span=Span(alert.line, 1, alert.file))
    fault.setting_path = ("alert",)
    return fault
