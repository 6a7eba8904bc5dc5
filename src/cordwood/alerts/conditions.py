"""Evaluate the condition of an alert for each group of rows in an answer, and fill the alert's text from the rows."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from cordwood.model.alert import MAX_TEXT_CHARACTERS, Alert, Comparison, Condition, Measure

Row = Mapping[str, object]
Labels = tuple[tuple[str, str], ...]

# The maximum number of groups in one evaluation. Further groups are left out, which a notice says.
MAX_GROUPS: Final = 1_000

_COMPARE: Final[Mapping[Comparison, Callable[[float, float], bool]]] = {
    Comparison.MORE: operator.gt,
    Comparison.AT_LEAST: operator.ge,
    Comparison.LESS: operator.lt,
    Comparison.AT_MOST: operator.le,
    Comparison.EQUAL: operator.eq,
    Comparison.UNEQUAL: operator.ne,
}

# The maximum length of a value: rows contain what senders of events wrote.
_MAX_VALUE: Final = 200
_TEMPLATE_PART: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class MissingColumn(Exception):
    """Raised if the rows of the answer lack a column."""


class Verdict(msgspec.Struct, frozen=True):
    """Whether the condition holds for a group. `value` is the compared value, `is_present` whether the group has rows."""

    fingerprint: str
    labels: Labels
    holds: bool
    value: float | None
    text: str
    is_present: bool


def remembers_groups(condition: Condition) -> bool:
    """Return whether the condition may hold for a group without rows, so that groups must be remembered."""
    if condition.measure is Measure.MISSING:
        return True
    return condition.measure is Measure.ROWS and _compare(condition, 0.0)


def evaluate_groups(
    alert: Alert, rows: Sequence[Row], earlier: Sequence[Row] = (), known_groups: Mapping[str, Labels] | None = None
) -> list[Verdict]:
    """Return a verdict for each group of the rows, of the earlier rows, and of the known groups.

    Without `group_by`, all rows are one group, which exists without rows as well. `earlier` are the rows of the period
    before. `known_groups` has the labels of groups that had rows, by fingerprint.
    """
    now, before = _grouped(alert, rows), _grouped(alert, earlier)
    labels = {fingerprint: group.labels for groups in (before, now) for fingerprint, group in groups.items()}
    labels |= {fingerprint: found for fingerprint, found in (known_groups or {}).items() if fingerprint not in labels}
    if not alert.group_by:
        labels.setdefault(fingerprint_of(alert, ()), ())
    empty = _Group()
    return [
        _verdict(alert, fingerprint, labels[fingerprint], now.get(fingerprint, empty), before.get(fingerprint, empty))
        for fingerprint in labels
    ]


def fingerprint_of(alert: Alert, values: Iterable[object]) -> str:
    """Return the identity of a group: a digest of its whole values, of which labels show only a beginning."""
    digest = blake2b(alert.id.bytes, digest_size=12)
    digest.update(msgspec.json.encode(list(values)))
    return digest.hexdigest()


class _Group(msgspec.Struct):
    labels: Labels = ()
    rows: list[Row] = []


def _grouped(alert: Alert, rows: Sequence[Row]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for row in rows:
        values = [_value(row, name) for name in alert.group_by]
        fingerprint = fingerprint_of(alert, values)
        group = groups.get(fingerprint)
        if group is None:
            if len(groups) >= MAX_GROUPS:
                continue
            shown = zip(alert.group_by, map(_format_value, values), strict=True)
            group = groups[fingerprint] = _Group(tuple(shown), [])
        group.rows.append(row)
    return groups


def _verdict(alert: Alert, fingerprint: str, labels: Labels, now: _Group, before: _Group) -> Verdict:
    condition = alert.condition
    row: Row = now.rows[0] if now.rows else dict(labels)
    value: float | None
    match condition.measure:
        case Measure.MISSING:
            holds, value = not now.rows, float(len(now.rows))
        case Measure.ROWS:
            value = float(len(now.rows))
            holds = _compare(condition, value)
        case Measure.COLUMN:
            holds, value, row = _holds_for_row(condition, now.rows, row)
        case Measure.CHANGE:
            value = _change(condition, _total(condition, now.rows), _total(condition, before.rows))
            holds = _compare(condition, value)
    text = _fill_template(alert.text or _default_text(alert), {"value": value, **row})
    return Verdict(fingerprint, labels, holds, value, text, is_present=bool(now.rows))


def _default_text(alert: Alert) -> str:
    condition = alert.condition.written.replace("{", "{{").replace("}", "}}")
    return f"{alert.endpoint}: {condition}" + ("" if alert.condition.measure is Measure.MISSING else " (is {value})")


def _holds_for_row(condition: Condition, rows: Sequence[Row], row: Row) -> tuple[bool, float | None, Row]:
    values = [(_number(_value(candidate, condition.column)), candidate) for candidate in rows]
    for value, candidate in values:
        if value is not None and _compare(condition, value):
            return True, value, candidate
    return False, values[0][0] if values else None, row


def _total(condition: Condition, rows: Sequence[Row]) -> float:
    if not condition.column:
        return float(len(rows))
    return math.fsum(value for row in rows if (value := _number(_value(row, condition.column))) is not None)


def _change(condition: Condition, now: float, before: float) -> float:
    """Return the difference, or its percentage: infinite from zero to a value, 0 from zero to zero."""
    difference = now - before
    if not condition.is_percent or difference == 0:
        return difference
    return 100.0 * difference / abs(before) if before else math.copysign(math.inf, difference)


def _compare(condition: Condition, value: float) -> bool:
    return _COMPARE[condition.comparison](value, condition.number)


def _value(row: Row, name: str) -> object:
    if name not in row:
        raise MissingColumn(name)
    return row[name]


def _number(value: object) -> float | None:
    """Return a number, also from a text, because answers have large decimals as texts; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def template_columns(template: str) -> tuple[str, ...]:
    """Return the columns that a template names."""
    return tuple(found[1] for found in _TEMPLATE_PART.finditer(template) if found[1] is not None)


def template_problem(template: str) -> str | None:
    """Return the error in a template, or None."""
    for found in _TEMPLATE_PART.finditer(template):
        if found[0] in ("{", "}"):
            return f"the brace at character {found.start() + 1} has no other."
        if found[1] == "":
            return f"the braces at character {found.start() + 1} name no column."
    return None


def _fill_template(template: str, values: Mapping[str, object]) -> str:
    """Return the text with each `{column}` replaced by the value of the row; `{{` and `}}` are braces.

    A column that the row lacks is an empty text.
    """

    def value(found: "re.Match[str]") -> str:
        if found[1] is None:
            return found[0][0]
        return _format_value(values.get(found[1]))

    return _cut(_TEMPLATE_PART.sub(value, template), MAX_TEXT_CHARACTERS)


def _format_value(value: object) -> str:
    """Return a value in one line of limited length."""
    if value is None:
        return ""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        text = str(int(value))
    else:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return _cut(_CONTROLS.sub(" ", text[: 2 * _MAX_VALUE]), _MAX_VALUE)


def _cut(text: str, length: int) -> str:
    """Return the text, or its beginning with an ellipsis if it is too long."""
    return text if len(text) <= length else text[: length - 1] + "…"
