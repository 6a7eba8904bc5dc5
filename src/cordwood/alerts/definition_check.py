"""Check an alert when it is loaded: compile its query, and check its columns and its parameters."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.alerts.conditions import template_columns, template_problem
from cordwood.catalog.alert_table import fault_of_alert
from cordwood.dialects import compile_lql_query, compile_saved, compile_sql, read_endpoint
from cordwood.errors import COMPILE_FAULTS, BadParameter, Fault, did_you_mean
from cordwood.model.alert import Alert, Measure
from cordwood.model.datatype import Kind
from cordwood.model.endpoint import Endpoint, Parameter
from cordwood.model.timestamps import datetime_of, now_us
from cordwood.settings.quantities import read_duration
from cordwood.sql.bind import value_of
from cordwood.sql.stages import Statement, Target

_TIME_KINDS: Final = (Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE)
_RELATIVE: Final = re.compile(r"now(?:\s*-\s*(.+))?")
# A star outside COUNT(*), for which the columns are those of the events.
_SELECT_STAR: Final = re.compile(r"(?<!\()\*(?!\))")


def check_alert(alert: Alert, endpoint: Endpoint, target: Target) -> None:
    """Raise BadEndpointFile for an alert that cannot be evaluated."""
    _check_template(alert)
    _check_parameters(alert, endpoint)
    statement = _compiled(alert, endpoint, target)
    text = endpoint.sql if alert.sandbox is None else alert.sandbox[1]
    if not _SELECT_STAR.search(text):
        _check_columns(alert, statement.column_names[: statement.answered_columns])


def _check_template(alert: Alert) -> None:
    problem = template_problem(alert.text)
    if problem is not None:
        raise fault_of_alert(alert, f"text: {problem}", "Write {column} for a value, and {{ or }} for a brace.")


def _check_parameters(alert: Alert, endpoint: Endpoint) -> None:
    declared = {parameter.name: parameter for parameter in endpoint.parameters}
    for name in alert.parameters:
        if name not in declared:
            hint = did_you_mean(name, declared) or f"There are: {', '.join(declared) or 'none'}."
            raise fault_of_alert(alert, f"{endpoint.name} has no parameter {name}.", hint)
    values = resolve_times(alert.parameters, endpoint.parameters, now_us())
    for parameter in endpoint.parameters:
        try:
            value_of(parameter, values.get(parameter.name), lambda _: None)
        except BadParameter as fault:
            raise fault_of_alert(alert, fault.message, fault.hint) from fault


def _compiled(alert: Alert, endpoint: Endpoint, target: Target) -> Statement:
    program = read_endpoint(endpoint)
    try:
        if alert.sandbox is None:
            return compile_saved(program, target, {})
        language, text = alert.sandbox
        compile_text = compile_sql if language == "sql" else compile_lql_query
        return compile_text(program, text, target, {})
    except COMPILE_FAULTS as fault:
        raise fault_of_alert(alert, _fault_message(alert, fault), fault.hint) from fault


def _fault_message(alert: Alert, fault: Fault) -> str:
    if alert.sandbox is None:
        return fault.message
    position = f" at {fault.span.line}:{fault.span.column}" if fault.span else ""
    return f"{alert.sandbox[0]}{position}: {fault.message}"


def _check_columns(alert: Alert, names: Sequence[str]) -> None:
    condition = alert.condition
    read = [condition.column] if condition.measure in (Measure.COLUMN, Measure.CHANGE) and condition.column else []
    for name in [*read, *alert.group_by, *(column for column in template_columns(alert.text) if column != "value")]:
        if name not in names:
            hint = did_you_mean(name, names) or f"There are: {', '.join(names)}."
            raise fault_of_alert(alert, f"the answer has no column {name}.", hint)


def resolve_times(values: Mapping[str, str], parameters: Sequence[Parameter], at_us: int) -> Mapping[str, str]:
    """Replace relative times (`now`, `now-5m`) in parameter values by times.

    Other texts are unchanged; binding refuses invalid ones.
    """
    kinds = {parameter.name: parameter.type for parameter in parameters}
    return {name: _resolved_time(value, kinds.get(name), at_us) for name, value in values.items()}


def _resolved_time(value: str, kind: Kind | None, at_us: int) -> str:
    found = _RELATIVE.fullmatch(value.strip())
    if found is None or kind not in _TIME_KINDS:
        return value
    try:
        moment = datetime_of(at_us - round(read_duration(found[1] or "0") * 1e6))
    except (ValueError, OverflowError):
        return value
    if kind is Kind.DATE:
        return moment.date().isoformat()
    return moment.isoformat() if kind is Kind.TIMESTAMP else moment.replace(tzinfo=None).isoformat()
