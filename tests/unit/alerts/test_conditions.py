"""The condition of an alert, evaluated over the rows of an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.alerts.evaluation import MAX_GROUPS_PER_ANSWER, MissingColumn, evaluate_groups
from cordwood.catalog.alert_table import read_condition
from cordwood.model.definitions import MAX_ALERT_TEXT_CHARACTERS
from tests.unit.alerts.harness import firing_groups, make_alert

ROWS = [{"service": "a", "errors": 3}, {"service": "b", "errors": 12}, {"service": "a", "errors": 20}]


@pytest.mark.parametrize(
    ("condition", "rows", "expected"),
    [
        ("rows", ROWS, [({}, 3.0)]),
        ("rows", [], []),
        ("rows > 3", ROWS, []),
        ("rows >= 3", ROWS, [({}, 3.0)]),
        # Without `group_by`, all rows form one group, which exists even if there are no rows.
        ("rows < 1", [], [({}, 0.0)]),
        ("missing", [], [({}, 0.0)]),
        ("missing", ROWS, []),
        ("errors > 10", ROWS, [({}, 12.0)]),
        ("errors > 20", ROWS, []),
        ("errors == 3", ROWS, [({}, 3.0)]),
        ("errors != 3", ROWS, [({}, 12.0)]),
        ("errors <= 3", ROWS, [({}, 3.0)]),
        ("errors < -1e2", ROWS, []),
        ("`errors` >= .5", ROWS, [({}, 3.0)]),
    ],
)
def test_a_condition_without_groups_is_evaluated_over_all_rows(
    condition: str, rows: list[dict[str, object]], expected: list[tuple[dict[str, str], float]]
) -> None:
    assert firing_groups(make_alert(condition), rows) == expected


def test_the_condition_is_evaluated_for_each_group() -> None:
    assert firing_groups(make_alert("rows > 1", group_by=("service",)), ROWS) == [({"service": "a"}, 2.0)]
    assert firing_groups(make_alert("errors > 10", group_by=("service",)), ROWS) == [
        ({"service": "a"}, 20.0),
        ({"service": "b"}, 12.0),
    ]


def test_a_known_group_without_rows_is_missing() -> None:
    definition = make_alert("missing", group_by=("service",))
    known = {verdict.fingerprint: verdict.labels for verdict in evaluate_groups(definition, ROWS)}
    assert firing_groups(definition, [], (), known) == [({"service": "a"}, 0.0), ({"service": "b"}, 0.0)]
    assert firing_groups(definition, ROWS[:1], (), known) == [({"service": "b"}, 0.0)]
    previous_groups = make_alert("rows < 2", group_by=("service",))
    assert firing_groups(previous_groups, [], (), known) == [({"service": "a"}, 0.0), ({"service": "b"}, 0.0)]


@pytest.mark.parametrize(
    ("condition", "before", "expected"),
    [
        ("change(errors) > 100%", 10, [20.0, 100.0]),
        ("change(errors) > 10", 10, [20.0]),
        ("change(errors) < -50%", 50, [20.0]),
        ("change(errors) <= 0", 20, [20.0]),
    ],
)
def test_a_change_is_computed_from_the_previous_period(condition: str, before: int, expected: list[float]) -> None:
    rows = [{"errors": value} for value in expected]
    is_fulfilled = [
        bool(firing_groups(make_alert(condition, before_seconds=60.0), [row], [{"errors": before}])) for row in rows
    ]
    first = {"change(errors) > 100%": [False, True], "change(errors) > 10": [False], "change(errors) < -50%": [True]}
    assert is_fulfilled == first.get(condition, [True])


def test_a_change_from_no_rows_is_infinite() -> None:
    definition = make_alert("change(errors) > 1000%", before_seconds=60.0)
    assert [value for _, value in firing_groups(definition, [{"errors": 1}], [])] == [float("inf")]
    assert firing_groups(definition, [], []) == []
    assert firing_groups(make_alert("change(rows) < -50%", group_by=("service",), before_seconds=60.0), [], ROWS) == [
        ({"service": "a"}, -100.0),
        ({"service": "b"}, -100.0),
    ]


@pytest.mark.parametrize("value", [None, True, "many", "nan", [1], {"a": 1}, ""])
def test_a_value_that_is_not_a_number_never_fulfils_a_condition(value: object) -> None:
    assert firing_groups(make_alert("errors != 5"), [{"errors": value}]) == []


def test_decimals_that_are_encoded_as_text_are_compared_as_numbers() -> None:
    assert firing_groups(make_alert("errors > 10"), [{"errors": "12345678901234567890.5"}]) == [
        ({}, 12345678901234567890.5)
    ]


def test_a_missing_column_is_an_error() -> None:
    with pytest.raises(MissingColumn, match="errors"):
        evaluate_groups(make_alert("errors > 1"), [{"n": 1}])
    with pytest.raises(MissingColumn, match="service"):
        evaluate_groups(make_alert("rows", group_by=("service",)), [{"n": 1}])


def test_groups_with_equal_truncated_labels_stay_distinct() -> None:
    definition = make_alert("rows", group_by=("m",))
    verdicts = evaluate_groups(definition, [{"m": "x" * 5_000 + end} for end in "ab"])
    assert len({verdict.fingerprint for verdict in verdicts}) == 2
    assert {len(dict(verdict.labels)["m"]) for verdict in verdicts} == {200}
    kinds = evaluate_groups(definition, [{"m": 1}, {"m": "1"}, {"m": None}, {"m": ""}])
    assert len({verdict.fingerprint for verdict in kinds}) == 4


def test_the_number_of_groups_is_limited() -> None:
    rows = [{"m": number} for number in range(MAX_GROUPS_PER_ANSWER + 50)]
    assert len(evaluate_groups(make_alert("rows", group_by=("m",)), rows)) == MAX_GROUPS_PER_ANSWER


def test_the_text_has_the_values_of_the_row_that_fulfils_the_condition() -> None:
    definition = make_alert("errors > 10", notification_text="{service}: {errors} of {{all}} is {value}, {gone}!")
    (verdict,) = evaluate_groups(definition, ROWS)
    assert verdict.alert_text == "b: 12 of {all} is 12, !"
    (verdict,) = evaluate_groups(make_alert("errors > 10"), ROWS)
    assert verdict.alert_text == "errors: errors > 10 (is 12)"


@given(st.text(max_size=20_000), st.text(max_size=50))
def test_text_and_labels_are_limited_in_length_and_have_no_control_characters(value: str, template: str) -> None:
    definition = make_alert(
        "rows", notification_text=template.replace("{", "").replace("}", "") + "{m}", group_by=("m",)
    )
    (verdict,) = evaluate_groups(definition, [{"m": value}])
    assert len(verdict.alert_text) <= MAX_ALERT_TEXT_CHARACTERS
    label = dict(verdict.labels)["m"]
    assert len(label) <= 200
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in label)


@pytest.mark.parametrize(
    "text",
    ["", "errors", "errors >", "> 1", "errors > 10%", "change(errors)", "rows > nan", "errors => 1", "a b > 1", "1 > 0",
     "errors > 1; drop", "change() > 1", "errors > 1e999"],
)  # fmt: skip
def test_invalid_conditions_are_not_parsed(text: str) -> None:
    assert read_condition(text) is None
