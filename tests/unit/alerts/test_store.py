"""The store of alerts: durability, replaced changes, limits and damaged files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cordwood.alerts import store as module
from cordwood.alerts.evaluation import MAX_SILENCES, Silence, end_all_groups
from cordwood.alerts.notification import NotifiedState
from cordwood.alerts.store import AlertStore, AlertSummary, HistoryEntry
from cordwood.errors import DataFolderUnusable, TooManyDefinitions
from cordwood.model.definitions import Severity
from tests.unit.alerts.harness import START_US, AlertGroups, make_alert

FULFILLING_ROWS = [{"n": 1}]
ALERT_FACTS = AlertSummary("id of a", "a", "errors", Severity.ERROR, 60.0)


def apply_rows(groups: AlertGroups, store: AlertStore, seconds: float, rows: Sequence[Mapping[str, object]]) -> None:
    store.store_update(ALERT_FACTS, groups.evaluate_at(seconds, rows), START_US + int(seconds * 1e6))


def test_states_queue_and_history_are_durable(tmp_path: Path) -> None:
    groups = AlertGroups(make_alert(send_to=("x", "y")))
    store = AlertStore(tmp_path / "alerts.db")
    apply_rows(groups, store, 0, FULFILLING_ROWS)
    store.close()
    reopened = AlertStore(tmp_path / "alerts.db")
    assert reopened.group_states(ALERT_FACTS.id) == groups.instances
    assert reopened.alerts_with_groups() == [ALERT_FACTS]
    assert [(item.target, item.alert, item.change.state) for item in reopened.queued_changes()] == [
        ("x", ALERT_FACTS, NotifiedState.FIRING),
        ("y", ALERT_FACTS, NotifiedState.FIRING),
    ]
    assert [item.kind for item in reopened.history(None, 10)] == ["firing"]


def test_a_later_change_replaces_a_queued_one(tmp_path: Path) -> None:
    groups, store = AlertGroups(make_alert(send_to=("x",))), AlertStore(tmp_path / "alerts.db")
    apply_rows(groups, store, 0, FULFILLING_ROWS)
    apply_rows(groups, store, 60, [])
    (queued,) = store.queued_changes()
    assert queued.change.state is NotifiedState.RESOLVED
    assert queued.queued_us == START_US, "the time from which it is given up does not begin again"


def test_finishing_a_delivery_keeps_a_change_queued_meanwhile(tmp_path: Path) -> None:
    groups, store = AlertGroups(make_alert(send_to=("x",))), AlertStore(tmp_path / "alerts.db")
    apply_rows(groups, store, 0, FULFILLING_ROWS)
    sending = store.queued_changes()
    apply_rows(groups, store, 60, [])
    store.remove_queued_changes(sending, HistoryEntry(START_US, "a", "sent", target="x", count=1))
    assert [item.change.state for item in store.queued_changes()] == [NotifiedState.RESOLVED]
    assert store.count_queued_changes_by_target() == {"x": 1}


def test_the_queue_is_read_fairly_across_targets(tmp_path: Path) -> None:
    groups, store = AlertGroups(make_alert(group_by=("n",), send_to=("x", "y"))), AlertStore(tmp_path / "alerts.db")
    apply_rows(groups, store, 0, [{"n": number} for number in range(20)])
    assert [item.target for item in store.queued_changes(3)] == ["x", "y"] * 3


def test_a_removed_alert_leaves_no_states(tmp_path: Path) -> None:
    groups, store = AlertGroups(make_alert(send_to=("x",))), AlertStore(tmp_path / "alerts.db")
    apply_rows(groups, store, 0, FULFILLING_ROWS)
    store.store_update(ALERT_FACTS, end_all_groups(store.group_states(ALERT_FACTS.id), START_US), START_US)
    assert store.alerts_with_groups() == []
    store.close()
    assert AlertStore(tmp_path / "alerts.db").group_states(ALERT_FACTS.id) == {}


def test_an_evaluation_without_changes_writes_nothing(tmp_path: Path) -> None:
    groups, store = AlertGroups(make_alert(send_to=("x",))), AlertStore(tmp_path / "alerts.db")
    apply_rows(groups, store, 0, FULFILLING_ROWS)
    before = (tmp_path / "alerts.db").stat().st_mtime_ns
    for seconds in range(60, 600, 60):
        apply_rows(groups, store, seconds, FULFILLING_ROWS)
    assert (tmp_path / "alerts.db").stat().st_mtime_ns == before


def test_the_history_is_limited_and_paged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HISTORY_ENTRIES", 300)
    store = AlertStore(tmp_path / "alerts.db")
    for number in range(450):
        store.record_in_history(HistoryEntry(number, "a" if number % 2 else "b", "firing"))
    newest = store.history(None, 2)
    assert [item.at_us for item in newest] == [449, 448]
    assert [item.at_us for item in store.history(None, 2, newest[-1].number)] == [447, 446]
    assert [item.at_us for item in store.history("b", 2)] == [448, 446]
    assert len(store.history(None, 10**6)) < 400


def silence(number: int, ends_us: int) -> Silence:
    return Silence(str(number), "a", {}, START_US, ends_us, "", "key")


def test_silences_are_durable_limited_and_removed_when_they_end(tmp_path: Path) -> None:
    store = AlertStore(tmp_path / "alerts.db")
    for number in range(MAX_SILENCES):
        store.add_silence(silence(number, START_US + 10), START_US)
    with pytest.raises(TooManyDefinitions):
        store.add_silence(silence(-1, START_US + 10), START_US)
    store.add_silence(silence(-2, START_US + 100), START_US + 10)
    store.close()
    reopened = AlertStore(tmp_path / "alerts.db")
    assert [kept_silence.id for kept_silence in reopened.silences()] == ["-2"]
    assert reopened.delete_silence("-2")
    assert not reopened.delete_silence("-2")


@pytest.mark.parametrize("body", [b"no database at all, but long enough to be read as one" * 100, b""])
def test_the_error_of_a_damaged_file_names_it(tmp_path: Path, body: bytes) -> None:
    file = tmp_path / "alerts.db"
    file.write_bytes(body)
    if not body:
        AlertStore(file).close()
        return
    with pytest.raises(DataFolderUnusable, match=r"alerts\.db"):
        AlertStore(file)


def test_the_error_of_a_damaged_row_names_the_file(tmp_path: Path) -> None:
    groups, store = AlertGroups(make_alert()), AlertStore(tmp_path / "alerts.db")
    apply_rows(groups, store, 0, FULFILLING_ROWS)
    store._database.execute("update instances set body = '{'")
    store.close()
    with pytest.raises(DataFolderUnusable, match=r"alerts\.db"):
        AlertStore(tmp_path / "alerts.db")
