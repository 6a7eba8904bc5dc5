"""The store of alerts: states of groups, queued changes, silences and history, in a SQLite file in the data folder.

A change of state and the entries that queue it for targets are written in one transaction. So a restart neither loses a
change nor queues it twice.
"""

import sqlite3
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from cordwood.alerts.evaluation import MAX_SILENCES, GroupPhase, GroupState, Silence, StateUpdate
from cordwood.alerts.notification import StateChange
from cordwood.errors import DataFolderUnusable, OutOfDisk, TooManyDefinitions
from cordwood.model.definitions import Severity

MAX_HISTORY_ENTRIES: Final = 10_000
_HISTORY_INSERTS_PER_PRUNE: Final = 100
_CREATE_TABLES_SQL: Final = """
create table if not exists instances (
  alert text not null, facts text not null, fingerprint text not null, body text not null,
  primary key (alert, fingerprint)
);
create table if not exists outbox (
  id integer primary key autoincrement,
  target text not null, fingerprint text not null, body text not null,
  unique (target, fingerprint)
);
create table if not exists silences (id text primary key, body text not null);
create table if not exists history (id integer primary key autoincrement, alert text not null, body text not null);
"""
_DAMAGED_STORE_HINT: Final = (
    "Restore it from a backup, or move it away: then alerts begin without states, silences and history."
)


class AlertSummary(msgspec.Struct, frozen=True):
    """The facts about an alert that are needed to send its changes, even after the alert was removed."""

    id: str
    name: str
    endpoint: str
    severity: Severity
    every_seconds: float


class QueuedChange(msgspec.Struct, frozen=True):
    """A change that is queued for a target.

    `number` is its place in the order in which changes were queued, or 0 until the change is stored.
    """

    target: str
    alert: AlertSummary
    change: StateChange
    queued_us: int
    number: int = 0


class HistoryEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the history: a change of state, a notification that was sent or given up, or an error.

    `kind` is pending, firing, resolved, sent, failed, given_up, error or recovered.
    """

    at_us: int
    alert: str
    kind: str
    labels: Mapping[str, str] = {}
    text: str = ""
    value: float | None = None
    target: str = ""
    count: int = 0
    reason: str = ""
    number: int = 0


class AlertStore:
    """The store of alerts. Thread-safe. The states of all groups, and all silences, are also held in memory."""

    def __init__(self, file: Path) -> None:
        self._database_file = file
        self._lock = threading.RLock()
        self._history_insert_count = 0
        try:
            # Transactions are begun explicitly, hence no isolation level. SQLite's default (synchronous = FULL) makes
            # each commit durable.
            self._database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
            self._database.executescript(_CREATE_TABLES_SQL)
            self._group_states_by_alert_id: dict[str, Mapping[str, GroupState]] = {}
            self._group_counts_by_alert_id: dict[str, Mapping[GroupPhase, int]] = {}
            instances, self._facts = self._load_groups()
            for alert_id, found in instances.items():
                self._cache_group_states(alert_id, found)
            self._silences_by_id = self._load_silences()
        except (sqlite3.Error, msgspec.DecodeError, OSError) as problem:
            message = f"The store of alerts {file} cannot be used: {problem}."
            raise DataFolderUnusable(message, hint=_DAMAGED_STORE_HINT) from problem

    # The following methods store and read the states of groups.

    def group_states(self, alert_id: str) -> Mapping[str, GroupState]:
        """Return the states of an alert's groups by fingerprint."""
        with self._lock:
            return self._group_states_by_alert_id.get(alert_id, {})

    def alerts_with_groups(self) -> Sequence[AlertSummary]:
        """Return the alerts that have groups, whether or not they are still defined."""
        with self._lock:
            return [self._facts[alert_id] for alert_id, found in self._group_states_by_alert_id.items() if found]

    def count_groups(self, alert_id: str, phase: GroupPhase) -> int:
        """Return how many groups of an alert are in a phase."""
        with self._lock:
            return self._group_counts_by_alert_id.get(alert_id, {}).get(phase, 0)

    def store_update(self, alert: AlertSummary, update: StateUpdate, now_us: int) -> int:
        """Store the result of an evaluation; return the number of changes that were queued."""
        with self._lock:
            if update.changed_groups or update.removed_fingerprints or update.outgoing_changes or update.history_events:
                with self._transaction() as database:
                    self._write_update(database, alert, update, now_us)
            self._cache_group_states(alert.id, update.states_by_fingerprint)
            self._facts[alert.id] = alert
            return len(update.outgoing_changes)

    def _cache_group_states(self, alert_id: str, instances: Mapping[str, GroupState]) -> None:
        self._group_states_by_alert_id[alert_id] = instances
        # Count the groups by phase here, so that reading the metrics does not have to count them.
        self._group_counts_by_alert_id[alert_id] = Counter(instance.phase for instance in instances.values())

    def _write_update(
        self, database: sqlite3.Connection, alert: AlertSummary, update: StateUpdate, now_us: int
    ) -> None:
        database.executemany(
            "delete from instances where alert = ? and fingerprint = ?",
            [(alert.id, fingerprint) for fingerprint in update.removed_fingerprints],
        )
        database.executemany(
            "insert or replace into instances (alert, facts, fingerprint, body) values (?, ?, ?, ?)",
            [
                (alert.id, _encode_json(alert), instance.fingerprint, _encode_json(instance))
                for instance in update.changed_groups
            ],
        )
        for target, change in update.outgoing_changes:
            self._queue_change(database, QueuedChange(target, alert, change, now_us))
        for kind, instance in update.history_events:
            entry = HistoryEntry(now_us, alert.name, kind, dict(instance.labels), instance.text, instance.value)
            self._insert_history_entry(database, entry)

    # The following methods queue state changes until they are sent.

    def _queue_change(self, database: sqlite3.Connection, outgoing: QueuedChange) -> None:
        """Queue a change. It replaces a queued change of the same group for the same target."""
        earlier = database.execute(
            "select body from outbox where target = ? and fingerprint = ?",
            (outgoing.target, outgoing.change.fingerprint),
        ).fetchone()
        if earlier is not None:
            first_us = msgspec.json.decode(earlier[0], type=QueuedChange).queued_us
            outgoing = msgspec.structs.replace(outgoing, queued_us=first_us)
        database.execute(
            "insert or replace into outbox (target, fingerprint, body) values (?, ?, ?)",
            (outgoing.target, outgoing.change.fingerprint, _encode_json(outgoing)),
        )

    def queued_changes(self, limit: int = 1_000, excluded_targets: Collection[str] = ()) -> list[QueuedChange]:
        """Return queued changes in the order in which they were queued, at most `limit` for each target.

        Changes for targets in `excluded_targets` are left out.
        """
        with self._lock:
            rows = self._database.execute(
                "select id, body from (select id, body, row_number() over (partition by target order by id) as place"
                " from outbox where target not in (select value from json_each(?))) where place <= ? order by id",
                (msgspec.json.encode(list(excluded_targets)).decode(), limit),
            ).fetchall()
        return [
            msgspec.structs.replace(msgspec.json.decode(body, type=QueuedChange), number=number)
            for number, body in rows
        ]

    def count_queued_changes_by_target(self) -> Mapping[str, int]:
        """Return the number of queued changes by target."""
        with self._lock:
            return dict(self._database.execute("select target, count(*) from outbox group by target").fetchall())

    def remove_queued_changes(self, outgoing: Sequence[QueuedChange], entry: HistoryEntry) -> None:
        """Remove changes that were sent or given up, and record the outcome.

        If a later change of the same group has replaced one of them, the later change stays queued.
        """
        with self._lock, self._transaction() as database:
            database.executemany("delete from outbox where id = ?", [(item.number,) for item in outgoing])
            self._insert_history_entry(database, entry)

    # The following methods store and read silences.

    def silences(self) -> Sequence[Silence]:
        with self._lock:
            return tuple(self._silences_by_id.values())

    def add_silence(self, silence: Silence, now_us: int) -> None:
        """Store a silence, and remove silences that have ended."""
        with self._lock:
            ended = [found.id for found in self._silences_by_id.values() if found.ends_us <= now_us]
            if len(self._silences_by_id) - len(ended) >= MAX_SILENCES:
                raise TooManyDefinitions(f"There are {MAX_SILENCES} silences.", hint="Delete some.")
            with self._transaction() as database:
                database.executemany("delete from silences where id = ?", [(found,) for found in ended])
                database.execute("insert into silences (id, body) values (?, ?)", (silence.id, _encode_json(silence)))
            for found in ended:
                del self._silences_by_id[found]
            self._silences_by_id[silence.id] = silence

    def delete_silence(self, silence_id: str) -> bool:
        """Delete a silence; return whether it existed."""
        with self._lock:
            if silence_id not in self._silences_by_id:
                return False
            with self._transaction() as database:
                database.execute("delete from silences where id = ?", (silence_id,))
            del self._silences_by_id[silence_id]
            return True

    # The following methods store and read the history.

    def record_in_history(self, entry: HistoryEntry) -> None:
        with self._lock, self._transaction() as database:
            self._insert_history_entry(database, entry)

    def history(self, alert: str | None, limit: int, before: int | None = None) -> list[HistoryEntry]:
        """Return the latest history entries of one alert, or of all alerts if `alert` is None, newest first.

        If `before` is given, only entries with a smaller number are returned.
        """
        with self._lock:
            rows = self._database.execute(
                "select id, body from history where id < ? and (? is null or alert = ?) order by id desc limit ?",
                (before or 2**62, alert, alert, limit),
            ).fetchall()
        return [
            msgspec.structs.replace(msgspec.json.decode(body, type=HistoryEntry), number=number)
            for number, body in rows
        ]

    def _insert_history_entry(self, database: sqlite3.Connection, entry: HistoryEntry) -> None:
        database.execute("insert into history (alert, body) values (?, ?)", (entry.alert, _encode_json(entry)))
        self._history_insert_count += 1
        if self._history_insert_count % _HISTORY_INSERTS_PER_PRUNE == 0:
            database.execute(
                "delete from history where id <= (select max(id) from history) - ?", (MAX_HISTORY_ENTRIES,)
            )

    # The following methods copy and close the file, write transactions to it, and load its content.

    def copy_database(self) -> bytes:
        """Return a consistent copy of the database file."""
        with self._lock, closing(sqlite3.connect(":memory:")) as copy:
            self._database.backup(copy)
            return copy.serialize()

    def close(self) -> None:
        with self._lock:
            self._database.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        try:
            self._database.execute("begin immediate")
            try:
                yield self._database
            except BaseException:
                self._database.execute("rollback")
                raise
            self._database.execute("commit")
        except sqlite3.OperationalError as problem:
            raise OutOfDisk(
                f"The store of alerts cannot be written: {problem}.",
                hint="Free space on the disk of the data folder, or make it writable again.",
                retry_after=30,
            ) from problem

    def _load_groups(self) -> tuple[dict[str, Mapping[str, GroupState]], dict[str, AlertSummary]]:
        found: dict[str, dict[str, GroupState]] = {}
        facts: dict[str, AlertSummary] = {}
        for alert_id, text, body in self._database.execute("select alert, facts, body from instances"):
            instance = msgspec.json.decode(body, type=GroupState)
            found.setdefault(alert_id, {})[instance.fingerprint] = instance
            facts[alert_id] = msgspec.json.decode(text, type=AlertSummary)
        return dict(found), facts

    def _load_silences(self) -> dict[str, Silence]:
        rows = self._database.execute("select body from silences").fetchall()
        silences = [msgspec.json.decode(body, type=Silence) for (body,) in rows]
        return {silence.id: silence for silence in silences}


def _encode_json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
