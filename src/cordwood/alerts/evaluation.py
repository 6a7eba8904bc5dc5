"""Evaluate an alert: its condition for each group of rows, the states of the groups, state changes, and silences."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Final

import msgspec

from cordwood.alerts.notification import NotifiedState, StateChange
from cordwood.catalog.alert_table import alert_fault
from cordwood.dialects import compile_lql_query, compile_saved_query, compile_sql_query, read_endpoint
from cordwood.errors import COMPILE_FAULTS, BadParameter, Fault, did_you_mean
from cordwood.model.datatype import Kind
from cordwood.model.definitions import (
    MAX_ALERT_TEXT_CHARACTERS,
    Alert,
    AlertCondition,
    ComparedValue,
    Comparison,
    Endpoint,
    Parameter,
)
from cordwood.model.timestamps import datetime_from_micros, now_us
from cordwood.settings.quantities import parse_duration
from cordwood.sql.bind import parse_parameter_value
from cordwood.sql.budget import allow_saved_query_cpu_time
from cordwood.sql.stages import Statement, Target

AnswerRow = Mapping[str, object]
GroupLabels = tuple[tuple[str, str], ...]

# The maximum number of groups in an answer. If an answer has more groups, the others are not evaluated, and a notice
# reports this.
MAX_GROUPS_PER_ANSWER: Final = 1_000

_COMPARISON_FUNCTIONS: Final[Mapping[Comparison, Callable[[float, float], bool]]] = {
    Comparison.GREATER_THAN: operator.gt,
    Comparison.AT_LEAST: operator.ge,
    Comparison.LESS_THAN: operator.lt,
    Comparison.AT_MOST: operator.le,
    Comparison.EQUAL: operator.eq,
    Comparison.NOT_EQUAL: operator.ne,
}

# The maximum length of a formatted value. It is limited, because rows contain texts of any length from senders of
# events.
_MAX_FORMATTED_VALUE_CHARACTERS: Final = 200
_TEMPLATE_TOKEN_PATTERN: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_CONTROL_CHARACTERS_PATTERN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class MissingColumn(Exception):
    """Raised if the rows of the answer lack a column that the alert reads."""


class ConditionResult(msgspec.Struct, frozen=True):
    """The result of the condition for one group of rows.

    `value` is the value that the condition compared. `has_rows` is true if the group has rows in the current answer.
    """

    fingerprint: str
    labels: GroupLabels
    condition_holds: bool
    value: float | None
    alert_text: str
    has_rows: bool


def can_hold_without_rows(condition: AlertCondition) -> bool:
    """Return whether the condition can hold for a group without rows.

    If so, groups must be remembered, because the answer does not name groups without rows.
    """
    if condition.compared_value is ComparedValue.MISSING_ROWS:
        return True
    return condition.compared_value is ComparedValue.ROWS and _satisfies_comparison(condition, 0.0)


def evaluate_groups(
    alert: Alert,
    rows: Sequence[AnswerRow],
    earlier: Sequence[AnswerRow] = (),
    known_groups: Mapping[str, GroupLabels] | None = None,
) -> list[ConditionResult]:
    """Return the result of the alert's condition for each group that occurs in `rows`, `earlier` or `known_groups`.

    `earlier` has the rows of the period before, if the alert compares two periods. `known_groups` has, by fingerprint,
    the labels of groups that had rows in earlier evaluations. Without `group_by`, all rows form one group, which exists
    even if there are no rows.
    """
    now, before = _group_rows(alert, rows), _group_rows(alert, earlier)
    labels = {fingerprint: group.labels for groups in (before, now) for fingerprint, group in groups.items()}
    labels |= {fingerprint: found for fingerprint, found in (known_groups or {}).items() if fingerprint not in labels}
    if not alert.group_by:
        labels.setdefault(group_fingerprint(alert, ()), ())
    empty = _GroupedRows()
    return [
        _evaluate_group(
            alert, fingerprint, labels[fingerprint], now.get(fingerprint, empty), before.get(fingerprint, empty)
        )
        for fingerprint in labels
    ]


def group_fingerprint(alert: Alert, values: Iterable[object]) -> str:
    """Return the fingerprint of a group, which is a digest of the values by which its rows are grouped.

    The labels of the group do not identify it, because long values are shortened in them.
    """
    digest = blake2b(alert.id.bytes, digest_size=12)
    digest.update(msgspec.json.encode(list(values)))
    return digest.hexdigest()


class _GroupedRows(msgspec.Struct):
    labels: GroupLabels = ()
    rows: list[AnswerRow] = []


def _group_rows(alert: Alert, rows: Sequence[AnswerRow]) -> dict[str, _GroupedRows]:
    groups: dict[str, _GroupedRows] = {}
    for row in rows:
        values = [_column_value(row, name) for name in alert.group_by]
        fingerprint = group_fingerprint(alert, values)
        group = groups.get(fingerprint)
        if group is None:
            if len(groups) >= MAX_GROUPS_PER_ANSWER:
                continue
            shown = zip(alert.group_by, map(_format_value, values), strict=True)
            group = groups[fingerprint] = _GroupedRows(tuple(shown), [])
        group.rows.append(row)
    return groups


def _evaluate_group(
    alert: Alert, fingerprint: str, labels: GroupLabels, now: _GroupedRows, before: _GroupedRows
) -> ConditionResult:
    condition = alert.condition
    row: AnswerRow = now.rows[0] if now.rows else dict(labels)
    value: float | None
    match condition.compared_value:
        case ComparedValue.MISSING_ROWS:
            holds, value = not now.rows, float(len(now.rows))
        case ComparedValue.ROWS:
            value = float(len(now.rows))
            holds = _satisfies_comparison(condition, value)
        case ComparedValue.COLUMN:
            holds, value, row = _evaluate_column(condition, now.rows, row)
        case ComparedValue.CHANGE:
            value = _absolute_or_percentage_difference(
                condition, _total_of_column(condition, now.rows), _total_of_column(condition, before.rows)
            )
            holds = _satisfies_comparison(condition, value)
    text = _fill_template(alert.notification_text or _default_notification_template(alert), {"value": value, **row})
    return ConditionResult(fingerprint, labels, holds, value, text, has_rows=bool(now.rows))


def _default_notification_template(alert: Alert) -> str:
    condition = alert.condition.written_text.replace("{", "{{").replace("}", "}}")
    return f"{alert.endpoint_name}: {condition}" + (
        "" if alert.condition.compared_value is ComparedValue.MISSING_ROWS else " (is {value})"
    )


def _evaluate_column(
    condition: AlertCondition, rows: Sequence[AnswerRow], fallback_row: AnswerRow
) -> tuple[bool, float | None, AnswerRow]:
    values = [(_to_number(_column_value(candidate, condition.column)), candidate) for candidate in rows]
    for value, candidate in values:
        if value is not None and _satisfies_comparison(condition, value):
            return True, value, candidate
    return False, values[0][0] if values else None, fallback_row


def _total_of_column(condition: AlertCondition, rows: Sequence[AnswerRow]) -> float:
    if not condition.column:
        return float(len(rows))
    return math.fsum(value for row in rows if (value := _to_number(_column_value(row, condition.column))) is not None)


def _absolute_or_percentage_difference(condition: AlertCondition, now: float, before: float) -> float:
    """Return the difference of two values; if the condition is in percent, return it as a percentage of `before`.

    The percentage is infinite if only `before` is zero, and 0 if both values are zero.
    """
    difference = now - before
    if not condition.is_percent or difference == 0:
        return difference
    return 100.0 * difference / abs(before) if before else math.copysign(math.inf, difference)


def _satisfies_comparison(condition: AlertCondition, value: float) -> bool:
    return _COMPARISON_FUNCTIONS[condition.comparison](value, condition.threshold)


def _column_value(row: AnswerRow, name: str) -> object:
    if name not in row:
        raise MissingColumn(name)
    return row[name]


def _to_number(value: object) -> float | None:
    """Return a value as a number, or None if it is not a number.

    Texts are parsed, because answers contain large decimals as texts.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _template_columns(template: str) -> tuple[str, ...]:
    """Return the names of the columns that a template contains in braces."""
    return tuple(found[1] for found in _TEMPLATE_TOKEN_PATTERN.finditer(template) if found[1] is not None)


def _template_problem(template: str) -> str | None:
    """Return a description of the first error in a template, or None if the template is valid."""
    for found in _TEMPLATE_TOKEN_PATTERN.finditer(template):
        if found[0] in ("{", "}"):
            return f"the brace at character {found.start() + 1} has no other."
        if found[1] == "":
            return f"the braces at character {found.start() + 1} name no column."
    return None


def _fill_template(template: str, values: Mapping[str, object]) -> str:
    """Return a template with each `{column}` replaced by the value in `values`. `{{` and `}}` stand for braces.

    If a column has no value, an empty text is inserted.
    """

    def replace_token(found: "re.Match[str]") -> str:
        if found[1] is None:
            return found[0][0]
        return _format_value(values.get(found[1]))

    return _truncate(_TEMPLATE_TOKEN_PATTERN.sub(replace_token, template), MAX_ALERT_TEXT_CHARACTERS)


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
    return _truncate(
        _CONTROL_CHARACTERS_PATTERN.sub(" ", text[: 2 * _MAX_FORMATTED_VALUE_CHARACTERS]),
        _MAX_FORMATTED_VALUE_CHARACTERS,
    )


def _truncate(text: str, length: int) -> str:
    """Return the text, or its beginning and an ellipsis if the text is too long."""
    return text if len(text) <= length else text[: length - 1] + "…"


_TIME_PARAMETER_KINDS: Final = (Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE)
_RELATIVE_TIME_PATTERN: Final = re.compile(r"now(?:\s*+-\s*+(.+))?")
# Matches every star except that of COUNT(*). A query with such a star may be SELECT *, whose columns depend on the
# stored events, so its columns cannot be checked before it runs.
_SELECT_STAR_PATTERN: Final = re.compile(r"(?<!\()\*(?!\))")


def check_alert(alert: Alert, endpoint: Endpoint, target: Target) -> None:
    """Raise BadEndpointFile if an alert cannot be evaluated, for example because it names an unknown column."""
    _check_template(alert)
    _check_parameters(alert, endpoint)
    statement = _compile_query(alert, endpoint, target)
    text = endpoint.sql if alert.sandbox_language_and_text is None else alert.sandbox_language_and_text[1]
    if not _SELECT_STAR_PATTERN.search(text):
        _check_columns(alert, statement.column_names[: statement.answer_column_count])


def _check_template(alert: Alert) -> None:
    problem = _template_problem(alert.notification_text)
    if problem is not None:
        raise alert_fault(alert, f"text: {problem}", "Write {column} for a value, and {{ or }} for a brace.")


def _check_parameters(alert: Alert, endpoint: Endpoint) -> None:
    declared = {parameter.name: parameter for parameter in endpoint.parameters}
    for name in alert.parameters:
        if name not in declared:
            hint = did_you_mean(name, declared) or f"There are: {', '.join(declared) or 'none'}."
            raise alert_fault(alert, f"{endpoint.name} has no parameter {name}.", hint)
    values = resolve_relative_times(alert.parameters, endpoint.parameters, now_us())
    for parameter in endpoint.parameters:
        try:
            parse_parameter_value(parameter, values.get(parameter.name), lambda _: None)
        except BadParameter as fault:
            raise alert_fault(alert, fault.message, fault.hint) from fault


@allow_saved_query_cpu_time()
def _compile_query(alert: Alert, endpoint: Endpoint, target: Target) -> Statement:
    program = read_endpoint(endpoint)
    try:
        if alert.sandbox_language_and_text is None:
            return compile_saved_query(program, target, {})
        language, text = alert.sandbox_language_and_text
        compile_text = compile_sql_query if language == "sql" else compile_lql_query
        return compile_text(program, text, target, {})
    except COMPILE_FAULTS as fault:
        raise alert_fault(alert, _compile_error_message(alert, fault), fault.hint) from fault


def _compile_error_message(alert: Alert, fault: Fault) -> str:
    if alert.sandbox_language_and_text is None:
        return fault.message
    position = f" at {fault.span.line}:{fault.span.column}" if fault.span else ""
    return f"{alert.sandbox_language_and_text[0]}{position}: {fault.message}"


def _check_columns(alert: Alert, names: Sequence[str]) -> None:
    condition = alert.condition
    read = (
        [condition.column]
        if condition.compared_value in (ComparedValue.COLUMN, ComparedValue.CHANGE) and condition.column
        else []
    )
    for name in [
        *read,
        *alert.group_by,
        *(column for column in _template_columns(alert.notification_text) if column != "value"),
    ]:
        if name not in names:
            hint = did_you_mean(name, names) or f"There are: {', '.join(names)}."
            raise alert_fault(alert, f"the answer has no column {name}.", hint)


def resolve_relative_times(values: Mapping[str, str], parameters: Sequence[Parameter], at_us: int) -> Mapping[str, str]:
    """Replace relative times (`now`, `now-5m`) in the values of time parameters by absolute times.

    Other values are unchanged. Invalid values are refused later, when the parameters are bound.
    """
    kinds = {parameter.name: parameter.type for parameter in parameters}
    return {name: _resolve_relative_time(value, kinds.get(name), at_us) for name, value in values.items()}


def _resolve_relative_time(value: str, kind: Kind | None, at_us: int) -> str:
    found = _RELATIVE_TIME_PATTERN.fullmatch(value.strip())
    if found is None or kind not in _TIME_PARAMETER_KINDS:
        return value
    try:
        moment = datetime_from_micros(at_us - round(parse_duration(found[1] or "0") * 1e6))
    except (ValueError, OverflowError):
        return value
    if kind is Kind.DATE:
        return moment.date().isoformat()
    return moment.isoformat() if kind is Kind.TIMESTAMP else moment.replace(tzinfo=None).isoformat()


MICROSECONDS_PER_SECOND: Final = 1_000_000
# If a remembered group has had no rows for this long, it is forgotten. If the alert fires for it, the alert is then
# resolved for this group.
MISSING_GROUP_RETENTION_SECONDS: Final = 7 * 86_400.0
# The time at which a quiet group last had rows is updated only if it has grown by an hour, so that most evaluations
# write nothing to the store.
_LAST_SEEN_UPDATE_INTERVAL_US: Final = 3_600 * MICROSECONDS_PER_SECOND
MAX_SILENCES: Final = 500


class GroupPhase(StrEnum):
    """The phase of a group. PENDING means that the condition holds, but not yet for long enough to fire.

    QUIET means that it does not hold. Quiet groups are kept only for alerts that can fire when a group has no rows.
    """

    QUIET = "quiet"
    PENDING = "pending"
    FIRING = "firing"


class GroupState(msgspec.Struct, frozen=True):
    """The state of an alert for one group of rows.

    `since_us` is the time at which the condition began to hold or, for a quiet group, the time at which the state was
    stored. `seen_us` is the time at which the group last had rows. `sent_us` has, by target, the time of the last
    notification that reported the group as firing.
    """

    fingerprint: str
    labels: GroupLabels
    phase: GroupPhase
    since_us: int
    seen_us: int
    value: float | None = None
    text: str = ""
    sent_us: Mapping[str, int] = msgspec.field(default_factory=dict)


class StateUpdate(msgspec.Struct):
    """The result of an evaluation: the states of all groups, which of them changed, and what to send to targets."""

    states_by_fingerprint: dict[str, GroupState]
    changed_groups: list[GroupState] = []
    removed_fingerprints: list[str] = []
    outgoing_changes: list[tuple[str, StateChange]] = []
    # The entries to add to the history, for groups that became pending or firing, or were resolved. Each entry has a
    # kind, such as `firing`, and the state of the group.
    history_events: list[tuple[str, GroupState]] = []


class EvaluationResult(msgspec.Struct, frozen=True):
    """The results of an alert's condition in one evaluation.

    If `is_answer_truncated` is true, a limit has cut off rows of the answer. Then groups without a result stay
    unchanged.
    """

    condition_results: Sequence[ConditionResult]
    now_us: int
    is_answer_truncated: bool = False

    def condition_results_by_fingerprint(self) -> Mapping[str, ConditionResult]:
        """Return the condition's results by the fingerprint of their group.

        A group that had rows before and has none now also has a result. If the answer was cut off, the results of such
        groups are left out, because the missing rows may be among those that were cut off. The only exception is the
        group without labels, which an alert without `group_by` has.
        """
        return {
            verdict.fingerprint: verdict
            for verdict in self.condition_results
            if verdict.has_rows or not (self.is_answer_truncated and verdict.labels)
        }


# A function that returns after how many seconds a target is told again that an alert fires, or None for never.
GetRepeatSeconds = Callable[[str], float | None]


def update_group_states(
    alert: Alert,
    instances: Mapping[str, GroupState],
    evaluation: EvaluationResult,
    repeat_after: GetRepeatSeconds,
    is_silenced: Callable[[GroupLabels], bool],
) -> StateUpdate:
    """Return the states of the groups after an evaluation, and the changes to send.

    `instances` has the states of the groups before, by fingerprint. `repeat_after` returns after how many seconds a
    target is told again that an alert fires. If a firing group is silenced, its change is sent once the silence has
    ended.
    """
    update = StateUpdate(dict(instances))
    verdicts_by_fingerprint = evaluation.condition_results_by_fingerprint()
    for fingerprint, verdict in verdicts_by_fingerprint.items():
        if verdict.condition_holds and not _has_missing_group_expired(
            instances.get(fingerprint), verdict, evaluation.now_us
        ):
            _update_group_with_met_condition(alert, update, verdict, evaluation.now_us)
        else:
            _update_group_with_unmet_condition(alert, update, verdict, evaluation.now_us)
    for fingerprint, instance in instances.items():
        if fingerprint not in verdicts_by_fingerprint and not evaluation.is_answer_truncated:
            _end_group(update, instance, evaluation.now_us)
    for instance in list(update.states_by_fingerprint.values()):
        if instance.phase is GroupPhase.FIRING and not is_silenced(instance.labels):
            _queue_due_firing_changes(update, alert, instance, evaluation.now_us, repeat_after)
    return update


def end_all_groups(instances: Mapping[str, GroupState], now_us: int) -> StateUpdate:
    """Return the states after an alert was removed: all its groups end, and those that fire are resolved."""
    update = StateUpdate(dict(instances))
    for instance in instances.values():
        _end_group(update, instance, now_us)
    return update


def _has_missing_group_expired(before: GroupState | None, verdict: ConditionResult, now_us: int) -> bool:
    """Return whether a group has had no rows for so long that it is to be forgotten. `before` is its previous state."""
    if before is None or verdict.has_rows or not verdict.labels:
        return False
    return now_us - before.seen_us > MISSING_GROUP_RETENTION_SECONDS * MICROSECONDS_PER_SECOND


def _update_group_with_met_condition(alert: Alert, update: StateUpdate, verdict: ConditionResult, now_us: int) -> None:
    """Update the state of a group for which the condition holds."""
    before = update.states_by_fingerprint.get(verdict.fingerprint)
    if before is None or before.phase is GroupPhase.QUIET:
        since_us, phase, sent_us = now_us, GroupPhase.PENDING, before.sent_us if before else {}
    else:
        since_us, phase, sent_us = before.since_us, before.phase, before.sent_us
    if now_us - since_us >= alert.for_seconds * MICROSECONDS_PER_SECOND:
        phase = GroupPhase.FIRING
    seen_us = now_us if verdict.has_rows or before is None else before.seen_us
    after = GroupState(
        verdict.fingerprint, verdict.labels, phase, since_us, seen_us, verdict.value, verdict.alert_text, sent_us
    )
    update.states_by_fingerprint[after.fingerprint] = after
    if before is None or phase is not before.phase:
        update.history_events.append((str(phase), after))
        update.changed_groups.append(after)


def _update_group_with_unmet_condition(
    alert: Alert, update: StateUpdate, verdict: ConditionResult, now_us: int
) -> None:
    """Update the state of a group for which the condition does not hold."""
    before = update.states_by_fingerprint.get(verdict.fingerprint)
    if before is not None and before.phase is not GroupPhase.QUIET:
        _end_group(update, before, now_us)
    if not (verdict.labels and can_hold_without_rows(alert.condition)):
        return
    if _has_missing_group_expired(before, verdict, now_us):
        if before is not None:
            _remove_group(update, before)
        return
    seen_us = now_us if verdict.has_rows or before is None else before.seen_us
    if (
        before is not None
        and before.phase is GroupPhase.QUIET
        and seen_us - before.seen_us < _LAST_SEEN_UPDATE_INTERVAL_US
    ):
        return
    quiet = GroupState(verdict.fingerprint, verdict.labels, GroupPhase.QUIET, now_us, seen_us)
    update.states_by_fingerprint[quiet.fingerprint] = quiet
    update.changed_groups.append(quiet)


def _end_group(update: StateUpdate, instance: GroupState, now_us: int) -> None:
    """End a group; if it fired, add a resolved change for each target that was notified of the firing."""
    _remove_group(update, instance)
    if instance.phase is not GroupPhase.FIRING:
        return
    update.history_events.append((str(NotifiedState.RESOLVED), instance))
    for target in instance.sent_us:
        update.outgoing_changes.append((target, make_state_change(instance, NotifiedState.RESOLVED, now_us)))


def _remove_group(update: StateUpdate, instance: GroupState) -> None:
    if update.states_by_fingerprint.pop(instance.fingerprint, None) is not None:
        update.removed_fingerprints.append(instance.fingerprint)


def _queue_due_firing_changes(
    update: StateUpdate, alert: Alert, instance: GroupState, now_us: int, repeat_after: GetRepeatSeconds
) -> None:
    due = [
        target
        for target in alert.send_to
        if _is_notification_due(instance.sent_us.get(target), repeat_after(target), now_us)
    ]
    if not due:
        return
    for target in due:
        update.outgoing_changes.append((target, make_state_change(instance, NotifiedState.FIRING, None)))
    sent = msgspec.structs.replace(instance, sent_us={**instance.sent_us, **dict.fromkeys(due, now_us)})
    update.states_by_fingerprint[sent.fingerprint] = sent
    update.changed_groups = [
        changed for changed in update.changed_groups if changed.fingerprint != sent.fingerprint
    ] + [sent]


def _is_notification_due(sent_us: int | None, repeat_seconds: float | None, now_us: int) -> bool:
    if sent_us is None:
        return True
    return repeat_seconds is not None and now_us - sent_us >= repeat_seconds * MICROSECONDS_PER_SECOND


def make_state_change(instance: GroupState, state: NotifiedState, ended_us: int | None) -> StateChange:
    return StateChange(
        instance.fingerprint,
        state,
        dict(instance.labels),
        instance.text,
        instance.value,
        instance.since_us,
        ended_us,
    )


class Silence(msgspec.Struct, frozen=True):
    """A silence, which holds back firing notifications of each group whose labels include all of `labels`.

    It applies to one alert, or to all alerts if `alert` is empty.
    """

    id: str
    alert: str
    labels: Mapping[str, str]
    starts_us: int
    ends_us: int
    comment: str
    created_by: str

    def covers(self, alert: str, labels: GroupLabels, now_us: int) -> bool:
        if not self.starts_us <= now_us < self.ends_us or self.alert not in ("", alert):
            return False
        values = dict(labels)
        return all(values.get(name) == value for name, value in self.labels.items())


def is_silenced(silences: Sequence[Silence], alert: str, labels: GroupLabels, now_us: int) -> bool:
    return any(silence.covers(alert, labels, now_us) for silence in silences)
