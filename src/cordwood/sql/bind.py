"""Parameter binding: parse a request's raw parameter texts into values of the types that the endpoint declares."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Final

from cordwood.errors import BadParameter
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Parameter, TextParameterKind
from cordwood.model.timestamps import datetime_from_micros, parse_iso_time
from cordwood.sql.nodes import NOW_SLOT_NAME
from cordwood.sql.stages import BoundStatement, ParameterSlot, Statement

_INT64_RANGE: Final = range(-(2**63), 2**63)
_BOOL_BY_TEXT: Final = {"true": True, "false": False}
_INTEGER_PATTERN: Final = re.compile(r"\s*[+-]?[0-9]{1,40}\s*", re.ASCII)
_NUMBER_PATTERN: Final = re.compile(r"\s*+[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?\s*+", re.ASCII)
_NON_FINITE_TEXTS: Final = frozenset(
    {f"{sign}{word}" for sign in ("", "+", "-") for word in ("nan", "inf", "infinity")}
)
# BigQuery's limits on the digits of a NUMERIC and a BIGNUMERIC before the decimal point. After the point, both types
# have at most 38 digits, so values below 1e-39 are rounded to zero.
_MAX_NUMERIC_INTEGER_DIGITS: Final = 29
_MAX_BIGNUMERIC_INTEGER_DIGITS: Final = 39
_DECIMAL_EXPONENT_ROUNDED_TO_ZERO: Final = -40

RegexErrorFinder = Callable[[str], str | None]


def bind_parameters(
    statement: Statement, raw: Mapping[str, str], now_us: int, find_regex_error: RegexErrorFinder
) -> BoundStatement:
    """Return the statement with typed values for its slots; raise BadParameter if a value is invalid.

    The error names the parameter, its value and the allowed values. `find_regex_error` checks a regular expression: it
    returns an error message, or None if the expression is valid.
    """
    values = {slot.name: _bind_slot(slot, raw, now_us, find_regex_error) for slot in statement.slots}
    return BoundStatement(statement, {slot.name: values[slot.name] for slot in statement.slots if slot.is_read})


def _bind_slot(slot: ParameterSlot, raw: Mapping[str, str], now_us: int, find_regex_error: RegexErrorFinder) -> object:
    if slot.parameter is None:
        return datetime_from_micros(now_us)
    return parse_parameter_value(slot.parameter, raw.get(slot.name), find_regex_error)


def parse_parameter_value(parameter: Parameter, raw: str | None, find_regex_error: RegexErrorFinder) -> object:
    """Return the typed value of a parameter; None for a missing optional parameter."""
    text = parameter.default if raw is None else raw
    if text is None:
        if parameter.required:
            raise BadParameter(f"The parameter {parameter.name} is required.", hint=_allowed_values_hint(parameter))
        return None
    if parameter.one_of and text not in parameter.one_of:
        raise _bad_value_error(parameter, text, f"it must be one of {', '.join(parameter.one_of)}")
    if parameter.kind is TextParameterKind.REGEX:
        problem = find_regex_error(text)
        if problem is not None:
            raise _bad_value_error(parameter, text, f"it must be a regular expression (RE2): {problem}")
    return _parse_typed_value(parameter, text)


def _parse_typed_value(parameter: Parameter, text: str) -> object:
    if parameter.type in (Kind.STRING, Kind.JSON):
        return text
    if text == "":
        if parameter.required:
            raise _bad_value_error(parameter, text, f"it must be {_EXPECTED_FORM_BY_KIND[parameter.type]}")
        return None
    try:
        return _PARSER_BY_KIND[parameter.type](text)
    except (ValueError, InvalidOperation, OverflowError) as error:
        raise _bad_value_error(parameter, text, f"it must be {_EXPECTED_FORM_BY_KIND[parameter.type]}") from error


def _bad_value_error(parameter: Parameter, text: str, expectation: str) -> BadParameter:
    shown = text if len(text) <= 100 else text[:100] + "…"
    return BadParameter(
        f'The parameter {parameter.name} is "{shown}": {expectation}.', hint=_allowed_values_hint(parameter)
    )


def _allowed_values_hint(parameter: Parameter) -> str | None:
    if parameter.one_of:
        return f"Send one of {', '.join(parameter.one_of)}."
    return parameter.description or None


def _parse_int(text: str) -> int:
    # Python's int() accepts "1_000" and non-ASCII digits; a CAST in a query accepts neither.
    if not _INTEGER_PATTERN.fullmatch(text):
        raise ValueError(text)
    value = int(text)
    if value not in _INT64_RANGE:
        raise ValueError(text)
    return value


def _parse_float(text: str) -> float:
    if not _NUMBER_PATTERN.fullmatch(text) and text.strip().lower() not in _NON_FINITE_TEXTS:
        raise ValueError(text)
    value = float(text)
    if math.isinf(value) and _NUMBER_PATTERN.fullmatch(text):
        raise OverflowError(text)
    return value


def _parse_decimal(text: str, max_digits: int) -> Decimal:
    """Parse a decimal number; raise OverflowError if it has more digits before the decimal point than the type allows.

    Without this limit, an engine would write out every zero of a number with a large exponent, such as 1e1000000.
    """
    if not _NUMBER_PATTERN.fullmatch(text):
        raise ValueError(text)
    value = Decimal(text.strip())
    if not value or value.adjusted() <= _DECIMAL_EXPONENT_ROUNDED_TO_ZERO:
        return Decimal(0)
    if value.adjusted() >= max_digits:
        raise OverflowError(text)
    return value


def _parse_timestamp(text: str) -> datetime:
    """Parse an ISO 8601 time with any UTC offset; a time without an offset is in UTC."""
    # A "+" that the client did not percent-encode is decoded as a space, so restore it.
    repaired = text[:-6] + "+" + text[-5:] if len(text) > 16 and text[-6] == " " and text[-3] == ":" else text
    # RFC 3339 also allows the letters t and z in lower case.
    value = parse_iso_time(_truncate_fraction_to_microseconds(repaired.strip().upper()))
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _truncate_fraction_to_microseconds(text: str) -> str:
    """Truncate a fraction of a second to microseconds, because Python parses at most six digits."""
    head, dot, tail = text.partition(".")
    digits = len(tail) - len(tail.lstrip("0123456789"))
    return head + dot + tail[: min(digits, 6)] + tail[digits:]


def _parse_bool(text: str) -> bool:
    if text.lower() not in _BOOL_BY_TEXT:
        raise ValueError(text)
    return _BOOL_BY_TEXT[text.lower()]


_PARSER_BY_KIND: Final[Mapping[Kind, Callable[[str], object]]] = {
    Kind.INT64: _parse_int,
    Kind.FLOAT64: _parse_float,
    Kind.NUMERIC: partial(_parse_decimal, max_digits=_MAX_NUMERIC_INTEGER_DIGITS),
    Kind.BIGNUMERIC: partial(_parse_decimal, max_digits=_MAX_BIGNUMERIC_INTEGER_DIGITS),
    Kind.BOOL: _parse_bool,
    Kind.TIMESTAMP: _parse_timestamp,
    Kind.DATETIME: lambda text: _parse_timestamp(text).replace(tzinfo=None),
    Kind.DATE: date.fromisoformat,
    Kind.TIME: time.fromisoformat,
    Kind.BYTES: lambda text: text.encode(),
}

_EXPECTED_FORM_BY_KIND: Final[Mapping[Kind, str]] = {
    Kind.INT64: "a whole number of 64 bits",
    Kind.FLOAT64: "a number",
    Kind.NUMERIC: f"a number of at most {_MAX_NUMERIC_INTEGER_DIGITS} digits before the point",
    Kind.BIGNUMERIC: f"a number of at most {_MAX_BIGNUMERIC_INTEGER_DIGITS} digits before the point",
    Kind.BOOL: "true or false",
    Kind.TIMESTAMP: "an ISO 8601 time, such as 2026-01-31T09:00:00Z",
    Kind.DATETIME: "an ISO 8601 time, such as 2026-01-31T09:00:00",
    Kind.DATE: "an ISO 8601 date, such as 2026-01-31",
    Kind.TIME: "a time of day, such as 09:00:00",
    Kind.BYTES: "text",
}

__all__ = ["NOW_SLOT_NAME", "bind_parameters", "parse_parameter_value"]
