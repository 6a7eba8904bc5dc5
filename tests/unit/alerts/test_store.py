"""The store of alerts: what is durable, and what takes the place of what."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cordwood.alerts import store as module
from cordwood.alerts.notification import State
from cordwood.alerts.silences import MAX_SILENCES, Silence
from cordwood.alerts.states import withdraw
from cordwood.alerts.store import AlertFacts, AlertStore, HistoryEntry
from cordwood.errors import DataFolderUnusable, TooManyDefinitions
from cordwood.model.alert import Severity
from tests.unit.alerts.made import START_US, Groups, alert

HOLDS = [{"n": 1}]
FACTS = AlertFacts("id of a", "a", "errors", Severity.ERROR, 60.0)


def sent(groups: Groups, store: AlertStore, seconds: float, rows: Sequence[Mapping[str, object]]) -> None:
    store.apply(FACTS, groups.at(seconds, rows), START_US + int(seconds * 1e6))


def test_states_and_what_is_to_be_sent_are_there_after_a_restart(tmp_path: Path) -> None:
    groups = Groups(alert(send_to=("x", "y")))
    store = AlertStore(tmp_path / "alerts.db")
    sent(groups, store, 0, HOLDS)
    store.close()
    again = AlertStore(tmp_path / "alerts.db")
    assert again.instances(FACTS.id) == groups.instances
    assert again.alerts_with_instances() == [FACTS]
    assert [(item.target, item.alert, item.change.state) for item in again.queued()] == [
        ("x", FACTS, State.FIRING),
        ("y", FACTS, State.FIRING),
    ]
    assert [item.kind for item in again.history(None, 10)] == ["firing"]


def test_a_later_change_takes_the_place_of_one_that_was_not_sent(tmp_path: Path) -> None:
    groups, store = Groups(alert(send_to=("x",))), AlertStore(tmp_path / "alerts.db")
    sent(groups, store, 0, HOLDS)
    sent(groups, store, 60, [])
    (waiting,) = store.queued()
    assert waiting.change.state is State.RESOLVED
    assert waiting.queued_us == START_US, "the time from which it is given up does not begin again"


def test_a_change_that_came_while_the_one_before_was_sent_is_not_removed_with_it(tmp_path: Path) -> None:
    groups, store = Groups(alert(send_to=("x",))), AlertStore(tmp_path / "alerts.db")
    sent(groups, store, 0, HOLDS)
    sending = store.queued()
    sent(groups, store, 60, [])
    store.finish(sending, HistoryEntry(START_US, "a", "sent", target="x", count=1))
    assert [item.change.state for item in store.queued()] == [State.RESOLVED]
    assert store.queued_counts() == {"x": 1}


def test_one_target_that_takes_nothing_does_not_hide_what_others_are_to_be_sent(tmp_path: Path) -> None:
    groups, store = Groups(alert(group_by=("n",), send_to=("x", "y"))), AlertStore(tmp_path / "alerts.db")
    sent(groups, store, 0, [{"n": number} for number in range(20)])
    assert [item.target for item in store.queued(3)] == ["x", "y"] * 3


def test_a_removed_alert_leaves_nothing_behind(tmp_path: Path) -> None:
    groups, store = Groups(alert(send_to=("x",))), AlertStore(tmp_path / "alerts.db")
    sent(groups, store, 0, HOLDS)
    store.apply(FACTS, withdraw(store.instances(FACTS.id), START_US), START_US)
    assert store.alerts_with_instances() == []
    store.close()
    assert AlertStore(tmp_path / "alerts.db").instances(FACTS.id) == {}


def test_an_evaluation_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    groups, store = Groups(alert(send_to=("x",))), AlertStore(tmp_path / "alerts.db")
    sent(groups, store, 0, HOLDS)
    before = (tmp_path / "alerts.db").stat().st_mtime_ns
    for seconds in range(60, 600, 60):
        sent(groups, store, seconds, HOLDS)
    assert (tmp_path / "alerts.db").stat().st_mtime_ns == before


def test_the_history_is_bounded_and_read_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HISTORY", 300)
    store = AlertStore(tmp_path / "alerts.db")
    for number in range(450):
        store.record(HistoryEntry(number, "a" if number % 2 else "b", "firing"))
    newest = store.history(None, 2)
    assert [item.at_us for item in newest] == [449, 448]
    assert [item.at_us for item in store.history(None, 2, newest[-1].number)] == [447, 446]
    assert [item.at_us for item in store.history("b", 2)] == [448, 446]
    assert len(store.history(None, 10**6)) < 400


def silence(number: int, ends_us: int) -> Silence:
    return Silence(str(number), "a", {}, START_US, ends_us, "", "key")


def test_silences_are_durable_bounded_and_forgotten_when_they_have_ended(tmp_path: Path) -> None:
    store = AlertStore(tmp_path / "alerts.db")
    for number in range(MAX_SILENCES):
        store.add_silence(silence(number, START_US + 10), START_US)
    with pytest.raises(TooManyDefinitions):
        store.add_silence(silence(-1, START_US + 10), START_US)
    store.add_silence(silence(-2, START_US + 100), START_US + 10)
    store.close()
    again = AlertStore(tmp_path / "alerts.db")
    assert [found.id for found in again.silences()] == ["-2"]
    assert again.delete_silence("-2")
    assert not again.delete_silence("-2")


@pytest.mark.parametrize("body", [b"no database at all, but long enough to be read as one" * 100, b""])
def test_a_damaged_file_is_named(tmp_path: Path, body: bytes) -> None:
    file = tmp_path / "alerts.db"
    file.write_bytes(body)
    if not body:
        AlertStore(file).close()
        return
    with pytest.raises(DataFolderUnusable, match=r"alerts\.db"):
        AlertStore(file)


def test_a_damaged_row_is_named_too(tmp_path: Path) -> None:
    groups, store = Groups(alert()), AlertStore(tmp_path / "alerts.db")
    sent(groups, store, 0, HOLDS)
    store._database.execute("update instances set body = '{'")
    store.close()
    with pytest.raises(DataFolderUnusable, match=r"alerts\.db"):
        AlertStore(tmp_path / "alerts.db")
