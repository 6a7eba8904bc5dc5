"""The states of an alert's groups over several evaluations, and the notifications that they cause."""

from hypothesis import given
from hypothesis import strategies as st

from cordwood.alerts.evaluation import MISSING_GROUP_RETENTION_SECONDS, end_all_groups
from tests.unit.alerts.harness import START_US, AlertGroups, make_alert

FULFILLING_ROWS = [{"n": 1}]
ROWS_OF_TWO_SERVICES = [{"service": "a"}, {"service": "b"}]


def test_an_alert_fires_when_its_condition_has_been_true_for_the_required_time() -> None:
    groups = AlertGroups(make_alert(for_seconds=120.0, send_to=("x",)))
    assert groups.notified(0, FULFILLING_ROWS) == []
    assert groups.phases == ["pending"]
    assert groups.notified(60, FULFILLING_ROWS) == []
    assert groups.notified(120, FULFILLING_ROWS) == [("x", "firing")]
    assert groups.phases == ["firing"]
    assert groups.notified(180, FULFILLING_ROWS) == []
    assert groups.notified(240, []) == [("x", "resolved")]
    assert groups.phases == []


def test_an_alert_without_a_required_time_fires_at_once() -> None:
    assert AlertGroups(make_alert(send_to=("x", "y"))).notified(0, FULFILLING_ROWS) == [
        ("x", "firing"),
        ("y", "firing"),
    ]


def test_a_pending_group_restarts_after_a_gap_and_is_not_sent() -> None:
    groups = AlertGroups(make_alert(for_seconds=120.0, send_to=("x",)))
    notified = [
        groups.notified(at, rows)
        for at, rows in (
            (0, FULFILLING_ROWS),
            (60, []),
            (120, FULFILLING_ROWS),
            (180, FULFILLING_ROWS),
            (240, FULFILLING_ROWS),
        )
    ]
    assert notified == [[], [], [], [], [("x", "firing")]]


def test_start_and_fingerprint_are_the_same_when_firing_and_resolved() -> None:
    groups = AlertGroups(make_alert(for_seconds=60.0, send_to=("x",)))
    groups.evaluate_at(0, FULFILLING_ROWS)
    ((_, firing),) = groups.evaluate_at(60, FULFILLING_ROWS).outgoing_changes
    ((_, resolved),) = groups.evaluate_at(90, []).outgoing_changes
    assert firing.started_us == resolved.started_us == START_US
    assert firing.fingerprint == resolved.fingerprint
    assert (firing.ended_us, resolved.ended_us) == (None, START_US + 90_000_000)


def test_firing_is_repeated_at_the_interval_of_the_alert_or_target() -> None:
    groups = AlertGroups(make_alert(repeat_seconds=300.0, send_to=("x", "every")), {"every": 60.0})
    notified = [groups.notified(at, FULFILLING_ROWS) for at in range(0, 361, 60)]
    assert [[target for target, _ in step] for step in notified] == [
        ["x", "every"], ["every"], ["every"], ["every"], ["every"], ["x", "every"], ["every"],
    ]  # fmt: skip


def test_an_added_target_gets_firing_and_a_removed_one_gets_resolved() -> None:
    groups = AlertGroups(make_alert(send_to=("old",)))
    groups.evaluate_at(0, FULFILLING_ROWS)
    groups.alert = make_alert(send_to=("new",))
    assert groups.notified(60, FULFILLING_ROWS) == [("new", "firing")]
    assert sorted(groups.notified(120, [])) == [("new", "resolved"), ("old", "resolved")]


def test_a_silenced_group_is_sent_after_the_silence_if_it_still_fires() -> None:
    groups = AlertGroups(make_alert(send_to=("x",)))
    groups.silenced = True
    assert groups.notified(0, FULFILLING_ROWS) == []
    assert groups.phases == ["firing"]
    groups.silenced = False
    assert groups.notified(60, FULFILLING_ROWS) == [("x", "firing")]
    groups.silenced = True
    assert groups.notified(120, []) == [("x", "resolved")], "who was told that it fires is told that it does not"


def test_a_group_that_fired_and_resolved_while_silenced_is_not_sent() -> None:
    groups = AlertGroups(make_alert(send_to=("x",)))
    groups.silenced = True
    groups.evaluate_at(0, FULFILLING_ROWS)
    groups.silenced = False
    assert groups.notified(60, []) == []


def test_groups_absent_from_a_truncated_answer_keep_their_state() -> None:
    groups = AlertGroups(make_alert(group_by=("service",), send_to=("x",)))
    groups.evaluate_at(0, ROWS_OF_TWO_SERVICES)
    assert groups.notified(60, ROWS_OF_TWO_SERVICES[:1], is_cut=True) == []
    assert groups.phases == ["firing", "firing"]
    assert groups.notified(120, ROWS_OF_TWO_SERVICES[:1]) == [("x", "resolved")]


def test_a_missing_group_fires_until_it_returns_or_is_forgotten() -> None:
    groups = AlertGroups(make_alert("missing", group_by=("service",), send_to=("x",)))
    assert groups.notified(0, ROWS_OF_TWO_SERVICES) == []
    assert groups.notified(60, ROWS_OF_TWO_SERVICES[:1]) == [("x", "firing")]
    assert groups.notified(120, ROWS_OF_TWO_SERVICES) == [("x", "resolved")]
    assert groups.notified(180, ROWS_OF_TWO_SERVICES[:1]) == [("x", "firing")]
    late = 180 + MISSING_GROUP_RETENTION_SECONDS
    assert groups.notified(late - 60, ROWS_OF_TWO_SERVICES[:1]) == []
    assert groups.notified(late + 60, ROWS_OF_TWO_SERVICES[:1]) == [("x", "resolved")]
    assert groups.notified(late + 120, ROWS_OF_TWO_SERVICES[:1]) == [], "a group that was forgotten does not fire again"
    assert len(groups.instances) == 1


def test_an_unchanged_group_is_stored_once_an_hour() -> None:
    groups = AlertGroups(make_alert("missing", group_by=("service",)))
    written = [len(groups.evaluate_at(at, ROWS_OF_TWO_SERVICES).changed_groups) for at in range(0, 7_300, 60)]
    assert written[0] == 2
    assert sum(written) == 6


def test_removing_an_alert_resolves_its_firing_groups() -> None:
    groups = AlertGroups(make_alert(group_by=("service",), send_to=("x",)))
    groups.evaluate_at(0, ROWS_OF_TWO_SERVICES)
    step = end_all_groups(groups.instances, START_US)
    assert [(target, str(change.state)) for target, change in step.outgoing_changes] == [
        ("x", "resolved"),
        ("x", "resolved"),
    ]
    assert step.states_by_fingerprint == {}


@given(
    st.lists(st.tuples(st.integers(0, 200), st.booleans(), st.booleans()), max_size=40),
    st.sampled_from([0.0, 60.0, 300.0]),
)
def test_notifications_alternate_between_firing_and_resolved_and_end_with_the_current_state(
    turns: list[tuple[int, bool, bool]], for_seconds: float
) -> None:
    groups = AlertGroups(make_alert(for_seconds=for_seconds, send_to=("x",)))
    now, received = 0, []
    for seconds, holds, groups.silenced in turns:
        now += seconds
        received += [state for _, state in groups.notified(now, FULFILLING_ROWS if holds else [])]
    assert received == [("firing", "resolved")[number % 2] for number in range(len(received))]
    groups.silenced = False
    received += [state for _, state in groups.notified(now, FULFILLING_ROWS if groups.instances else [])]
    assert (received[-1:] == ["firing"]) == ("firing" in groups.phases)
