"""The states of the groups of an alert, from one evaluation to the next."""

from hypothesis import given
from hypothesis import strategies as st

from cordwood.alerts.states import FORGET_SECONDS, withdraw
from tests.unit.alerts.made import START_US, Groups, alert

HOLDS = [{"n": 1}]
BY_SERVICE = [{"service": "a"}, {"service": "b"}]


def test_it_fires_when_the_condition_has_held_for_long_enough() -> None:
    groups = Groups(alert(for_seconds=120.0, send_to=("x",)))
    assert groups.told(0, HOLDS) == []
    assert groups.phases == ["pending"]
    assert groups.told(60, HOLDS) == []
    assert groups.told(120, HOLDS) == [("x", "firing")]
    assert groups.phases == ["firing"]
    assert groups.told(180, HOLDS) == []
    assert groups.told(240, []) == [("x", "resolved")]
    assert groups.phases == []


def test_without_for_it_fires_at_once() -> None:
    assert Groups(alert(send_to=("x", "y"))).told(0, HOLDS) == [("x", "firing"), ("y", "firing")]


def test_what_was_pending_begins_again_after_a_gap_and_is_never_told() -> None:
    groups = Groups(alert(for_seconds=120.0, send_to=("x",)))
    told = [groups.told(at, rows) for at, rows in ((0, HOLDS), (60, []), (120, HOLDS), (180, HOLDS), (240, HOLDS))]
    assert told == [[], [], [], [], [("x", "firing")]]


def test_the_start_and_the_fingerprint_stay_the_same_from_firing_to_resolved() -> None:
    groups = Groups(alert(for_seconds=60.0, send_to=("x",)))
    groups.at(0, HOLDS)
    ((_, firing),) = groups.at(60, HOLDS).outgoing
    ((_, resolved),) = groups.at(90, []).outgoing
    assert firing.started_us == resolved.started_us == START_US
    assert firing.fingerprint == resolved.fingerprint
    assert (firing.ended_us, resolved.ended_us) == (None, START_US + 90_000_000)


def test_a_firing_state_is_repeated_as_the_alert_or_the_target_asks() -> None:
    groups = Groups(alert(repeat_seconds=300.0, send_to=("x", "every")), {"every": 60.0})
    told = [groups.told(at, HOLDS) for at in range(0, 361, 60)]
    assert [[target for target, _ in step] for step in told] == [
        ["x", "every"], ["every"], ["every"], ["every"], ["every"], ["x", "every"], ["every"],
    ]  # fmt: skip


def test_a_target_that_is_added_is_told_and_one_that_was_removed_hears_of_the_end() -> None:
    groups = Groups(alert(send_to=("old",)))
    groups.at(0, HOLDS)
    groups.alert = alert(send_to=("new",))
    assert groups.told(60, HOLDS) == [("new", "firing")]
    assert sorted(groups.told(120, [])) == [("new", "resolved"), ("old", "resolved")]


def test_what_is_silenced_is_told_when_the_silence_ends_if_it_still_fires() -> None:
    groups = Groups(alert(send_to=("x",)))
    groups.silenced = True
    assert groups.told(0, HOLDS) == []
    assert groups.phases == ["firing"]
    groups.silenced = False
    assert groups.told(60, HOLDS) == [("x", "firing")]
    groups.silenced = True
    assert groups.told(120, []) == [("x", "resolved")], "who was told that it fires is told that it does not"


def test_what_fired_and_ended_in_silence_is_never_told() -> None:
    groups = Groups(alert(send_to=("x",)))
    groups.silenced = True
    groups.at(0, HOLDS)
    groups.silenced = False
    assert groups.told(60, []) == []


def test_groups_beyond_the_end_of_a_cut_answer_stay_as_they_are() -> None:
    groups = Groups(alert(group_by=("service",), send_to=("x",)))
    groups.at(0, BY_SERVICE)
    assert groups.told(60, BY_SERVICE[:1], is_cut=True) == []
    assert groups.phases == ["firing", "firing"]
    assert groups.told(120, BY_SERVICE[:1]) == [("x", "resolved")]


def test_a_missing_group_fires_until_it_is_back_or_forgotten() -> None:
    groups = Groups(alert("missing", group_by=("service",), send_to=("x",)))
    assert groups.told(0, BY_SERVICE) == []
    assert groups.told(60, BY_SERVICE[:1]) == [("x", "firing")]
    assert groups.told(120, BY_SERVICE) == [("x", "resolved")]
    assert groups.told(180, BY_SERVICE[:1]) == [("x", "firing")]
    late = 180 + FORGET_SECONDS
    assert groups.told(late - 60, BY_SERVICE[:1]) == []
    assert groups.told(late + 60, BY_SERVICE[:1]) == [("x", "resolved")]
    assert groups.told(late + 120, BY_SERVICE[:1]) == [], "a group that was forgotten does not fire again"
    assert len(groups.instances) == 1


def test_a_quiet_group_is_written_once_an_hour_and_not_at_each_evaluation() -> None:
    groups = Groups(alert("missing", group_by=("service",)))
    written = [len(groups.at(at, BY_SERVICE).changed) for at in range(0, 7_300, 60)]
    assert written[0] == 2
    assert sum(written) == 6


def test_an_alert_that_was_removed_resolves_what_fires() -> None:
    groups = Groups(alert(group_by=("service",), send_to=("x",)))
    groups.at(0, BY_SERVICE)
    step = withdraw(groups.instances, START_US)
    assert [(target, str(change.state)) for target, change in step.outgoing] == [("x", "resolved"), ("x", "resolved")]
    assert step.instances == {}


@given(
    st.lists(st.tuples(st.integers(0, 200), st.booleans(), st.booleans()), max_size=40),
    st.sampled_from([0.0, 60.0, 300.0]),
)
def test_targets_hear_firing_and_resolved_in_turn_and_the_last_is_the_state(
    turns: list[tuple[int, bool, bool]], for_seconds: float
) -> None:
    groups = Groups(alert(for_seconds=for_seconds, send_to=("x",)))
    now, heard = 0, []
    for seconds, holds, groups.silenced in turns:
        now += seconds
        heard += [state for _, state in groups.told(now, HOLDS if holds else [])]
    assert heard == [("firing", "resolved")[number % 2] for number in range(len(heard))]
    groups.silenced = False
    heard += [state for _, state in groups.told(now, HOLDS if groups.instances else [])]
    assert (heard[-1:] == ["firing"]) == ("firing" in groups.phases)
