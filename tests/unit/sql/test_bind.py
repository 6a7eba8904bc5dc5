"""Binding of raw parameter texts to typed values: requirements, allowed values and parsing."""

import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from cordwood.errors import BadParameter
from cordwood.model.datatype import Kind
from cordwood.model.definitions import Parameter, TextParameterKind
from cordwood.sql.bind import bind_parameters
from cordwood.sql.plan import plan_without_placeholders
from cordwood.sql.stages import ParameterSlot, Statement

NOW_US = 1_767_225_600_123_456


def accept_any(_: str) -> str | None:
    return None


def bind_value(parameter: Parameter, raw: str | None, *, is_read: bool = True) -> object:
    statement = Statement(plan_without_placeholders(""), (ParameterSlot(parameter.name, parameter, is_read),), (), ())
    values = bind_parameters(statement, {} if raw is None else {parameter.name: raw}, NOW_US, accept_any).values
    return values.get(parameter.name, "not bound")


def test_the_time_of_the_call_is_exact_to_the_microsecond() -> None:
    question = bind_parameters(
        Statement(plan_without_placeholders(""), (ParameterSlot("now", None),), (), ()), {}, NOW_US, accept_any
    )
    assert question.values == {"now": datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)}


def test_a_missing_required_parameter_is_named_even_when_the_query_does_not_read_it() -> None:
    with pytest.raises(BadParameter, match="project is required"):
        bind_value(Parameter("project", required=True), None, is_read=False)


def test_unread_parameters_are_not_bound() -> None:
    assert bind_value(Parameter("project"), "x", is_read=False) == "not bound"


def test_a_default_replaces_a_missing_value() -> None:
    assert bind_value(Parameter("n", Kind.INT64, default="7"), None) == 7


def test_an_empty_text_is_a_string_and_null_for_other_types() -> None:
    assert bind_value(Parameter("a"), "") == ""
    assert bind_value(Parameter("a", Kind.TIMESTAMP), "") is None


def test_an_error_of_one_of_names_the_parameter_its_value_and_the_allowed_values() -> None:
    with pytest.raises(BadParameter, match='interval is "weekly": it must be one of hourly, daily'):
        bind_value(Parameter("interval", one_of=("hourly", "daily")), "weekly")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05.123456Z", datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("2026-01-02T03:04:05.123456789Z", datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=UTC)),
        ("2026-01-02T03:04:05+02:00", datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05 02:00", datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05-0530", datetime(2026, 1, 2, 8, 34, 5, tzinfo=UTC)),
        ("2026-01-02T03:04:05", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02 03:04:05", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02t03:04:05.5z", datetime(2026, 1, 2, 3, 4, 5, 500000, tzinfo=UTC)),
        ("2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
        ("20260102T030405Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ],
)
def test_iso_times_are_parsed_with_any_offset(text: str, expected: datetime) -> None:
    assert bind_value(Parameter("t", Kind.TIMESTAMP), text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "2026-13-01",
        "2026-01-02T25:00:00Z",
        "1767225600",
        "1796010112345",
        "0000-00-00",
        "0001-01-01T00:00:00+10:00",
    ],
)
def test_invalid_times_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadParameter, match=r"t is .*ISO 8601"):
        bind_value(Parameter("t", Kind.TIMESTAMP), text)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Kind.INT64, "-5", -5),
        (Kind.INT64, " +07 ", 7),
        (Kind.FLOAT64, "1.5", 1.5),
        (Kind.FLOAT64, "-.5e1", -5.0),
        (Kind.FLOAT64, "-Infinity", -math.inf),
        (Kind.NUMERIC, "1.10", Decimal("1.10")),
        (Kind.NUMERIC, "9" * 29, Decimal("9" * 29)),
        (Kind.NUMERIC, "1e-999999999", Decimal(0)),
        (Kind.BIGNUMERIC, "0e999999999", Decimal(0)),
        (Kind.BIGNUMERIC, "-5e38", Decimal("-5e38")),
        (Kind.BOOL, "TRUE", True),
    ],
)
def test_values_of_other_types_are_parsed(kind: Kind, text: str, expected: object) -> None:
    assert bind_value(Parameter("v", kind), text) == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.INT64, "9223372036854775808"),
        (Kind.INT64, "x"),
        (Kind.INT64, "1_000"),
        (Kind.INT64, "\u0663"),
        (Kind.INT64, "9" * 10_000),
        (Kind.FLOAT64, "1_0"),
        (Kind.FLOAT64, "1e400"),
        (Kind.NUMERIC, "nan"),
        (Kind.NUMERIC, "1_0"),
        (Kind.NUMERIC, "1e29"),
        (Kind.NUMERIC, "-1e999999999"),
        (Kind.BIGNUMERIC, "1e39"),
        (Kind.BIGNUMERIC, "1e99999999999999999999"),
        (Kind.BOOL, "1"),
        (Kind.DATE, "2026-02-30"),
    ],
)
def test_values_that_are_not_of_their_type_are_refused(kind: Kind, text: str) -> None:
    with pytest.raises(BadParameter, match="v is"):
        bind_value(Parameter("v", kind), text)


def test_an_invalid_regular_expression_is_refused_with_its_error() -> None:
    parameter = Parameter("project", kind=TextParameterKind.REGEX)
    statement = Statement(plan_without_placeholders(""), (ParameterSlot("project", parameter),), (), ())
    with pytest.raises(BadParameter, match=r'project is "\(": .*missing \)'):
        bind_parameters(statement, {"project": "("}, NOW_US, lambda _: "missing )")


def test_a_long_value_is_truncated_in_the_message() -> None:
    with pytest.raises(BadParameter) as raised:
        bind_value(Parameter("n", Kind.INT64), "x" * 10_000)
    assert len(raised.value.message) < 300
