"""The service that evaluates alerts periodically. It opens their store when the first alert is defined.

An evaluation runs the query, evaluates the condition, and stores new states and notifications.
"""

import asyncio
import threading
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

import msgspec

from cordwood.alerts.evaluation import (
    MAX_GROUPS_PER_ANSWER,
    MICROSECONDS_PER_SECOND,
    AnswerRow,
    ConditionResult,
    EvaluationResult,
    GroupPhase,
    MissingColumn,
    StateUpdate,
    end_all_groups,
    evaluate_groups,
    is_silenced,
    resolve_relative_times,
    update_group_states,
)
from cordwood.alerts.notification import Notification
from cordwood.alerts.sender import NotificationSender, SendLimits
from cordwood.alerts.store import AlertStore, AlertSummary, HistoryEntry
from cordwood.catalog.catalog import Catalog
from cordwood.errors import AnswerTooLarge, BadQueryValue, Fault, UnknownEndpoint
from cordwood.model.definitions import Alert
from cordwood.model.key import Caller
from cordwood.observe.observation import AlertEvaluated, BugFound, OperatorMessage, RecordObservation
from cordwood.serve.jobs import CompleteAnswer
from cordwood.serve.query_request import AnswerFormat, QueryLanguage, QueryRequest, SandboxQuery

EVALUATION_TICK_SECONDS: Final = 0.5
# After the start of the service, the first evaluations are spread over this time, so that they do not all run at once.
_FIRST_EVALUATIONS_SPREAD_SECONDS: Final = 5.0
# The maximum size of an answer that is evaluated. Its rows take about ten times as much memory during the evaluation.
MAX_EVALUATED_ANSWER_BYTES: Final = 4 * 2**20


class _QueryRunner(Protocol):
    """The interface through which alerts run their queries."""

    async def answer_in_background(self, request: QueryRequest, as_of_us: int | None = None) -> CompleteAnswer: ...


class AlertHealth(msgspec.Struct):
    """The outcome of the last evaluation of an alert: its time, its error with a hint, and a notice for the user."""

    evaluated_us: int | None = None
    error: str | None = None
    hint: str | None = None
    notice: str | None = None


class _AnswerBody(msgspec.Struct):
    result: list[dict[str, object]]


class _EvaluationOptions(msgspec.Struct, frozen=True):
    """How alerts are evaluated.

    `answer_format` is the JSON format of callers' answers, so that alerts and callers share cached answers.
    `wake_sender` is called when there are changes to send. `repeat_seconds_by_target` has, for some targets, the
    number of seconds after which the target is told again that an alert fires. For these targets, this number takes
    precedence over the setting of the alert.
    """

    answer_format: AnswerFormat
    wake_sender: Callable[[], None]
    repeat_seconds_by_target: Mapping[str, float]


class _AlertEvaluator:
    """Evaluates each alert when it is due. No two evaluations of the same alert run at the same time."""

    def __init__(
        self,
        catalog: Catalog,
        queries: _QueryRunner,
        store: AlertStore,
        clock_us: Callable[[], int],
        note: RecordObservation,
        options: _EvaluationOptions,
    ) -> None:
        self._catalog = catalog
        self._query_runner = queries
        self._alert_store = store
        self._clock_us = clock_us
        self._record_observation = note
        self._evaluation_options = options
        self._next_evaluation_us_by_alert_id: dict[str, int] = {}
        self._tasks_by_alert_id: dict[str, asyncio.Task[None]] = {}
        self._health_by_alert_id: dict[str, AlertHealth] = {}

    def health_of(self, alert: Alert) -> AlertHealth:
        return self._health_by_alert_id.get(str(alert.id), AlertHealth())

    async def run(self) -> None:
        """Evaluate alerts until cancelled."""
        try:
            while True:
                try:
                    self.start_due_evaluations()
                except Exception:  # noqa: BLE001 - a defect must not end the evaluation of all alerts
                    self._record_observation(BugFound(incident=uuid4().hex, trace=traceback.format_exc()))
                await asyncio.sleep(EVALUATION_TICK_SECONDS)
        finally:
            tasks = list(self._tasks_by_alert_id.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def start_due_evaluations(self) -> list["asyncio.Task[None]"]:
        """Start the evaluations that are due, and end the groups of removed alerts; return the tasks."""
        now_us = self._clock_us()
        alerts = {str(alert.id): alert for alert in self._catalog.alerts()}
        started: list[asyncio.Task[None]] = []
        for alert_id, alert in alerts.items():
            every_us = round(alert.every_seconds * MICROSECONDS_PER_SECOND)
            due_us = self._next_evaluation_us_by_alert_id.setdefault(
                alert_id, now_us + _first_evaluation_delay_us(alert)
            )
            # A due time more than one interval ahead is wrong, so the alert is evaluated now. Either the clock was set
            # back, or the interval was shortened.
            if not now_us < due_us <= now_us + every_us and alert_id not in self._tasks_by_alert_id:
                self._next_evaluation_us_by_alert_id[alert_id] = now_us + every_us
                started.append(self._start_task(alert_id, self.evaluate(alert)))
        removed = [facts for facts in self._alert_store.alerts_with_groups() if facts.id not in alerts]
        started += [
            self._start_task(facts.id, self._resolve_removed_alert(facts))
            for facts in removed
            if facts.id not in self._tasks_by_alert_id
        ]
        for forgotten in self._next_evaluation_us_by_alert_id.keys() - alerts.keys():
            del self._next_evaluation_us_by_alert_id[forgotten]
            self._health_by_alert_id.pop(forgotten, None)
        return started

    def _start_task(self, alert_id: str, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        async def run() -> None:
            try:
                await work
            finally:
                del self._tasks_by_alert_id[alert_id]

        task = asyncio.ensure_future(run())
        self._tasks_by_alert_id[alert_id] = task
        return task

    async def evaluate(self, alert: Alert) -> None:
        """Evaluate an alert once. An error leaves the states of its groups unchanged, and is recorded in its health."""
        now_us = self._clock_us()
        try:
            health = await self._query_and_evaluate(alert, now_us)
        except Fault as fault:
            health = AlertHealth(now_us, fault.message, fault.hint)
        except Exception:  # noqa: BLE001 - a defect in one alert must not end the others
            incident = uuid4().hex
            self._record_observation(BugFound(incident=incident, trace=traceback.format_exc()))
            health = AlertHealth(now_us, "The evaluation failed.", f"The log has the cause under {incident}.")
        await self._record_health(alert, health)

    async def _query_and_evaluate(self, alert: Alert, now_us: int) -> AlertHealth:
        answer, earlier = await self._run_current_and_earlier_queries(alert, now_us)
        is_cut = answer.receipt.truncated_by is not None
        step = await asyncio.to_thread(self._evaluate_and_store, alert, answer, earlier, now_us, is_cut=is_cut)
        if step.outgoing_changes:
            self._evaluation_options.wake_sender()
        return AlertHealth(now_us, notice=_truncation_notice(answer, len(step.states_by_fingerprint)))

    async def _run_current_and_earlier_queries(
        self, alert: Alert, now_us: int
    ) -> tuple[CompleteAnswer, CompleteAnswer | None]:
        """Return the current answer, and the answer for an earlier period if the alert compares the two."""
        answer = await self._run_query(alert, now_us)
        if alert.before_seconds is None:
            return answer, None
        before_us = now_us - round(alert.before_seconds * MICROSECONDS_PER_SECOND)
        return answer, await self._run_query(alert, before_us, as_of_us=before_us)

    async def preview(self, alert: Alert) -> tuple[list[ConditionResult], str | None]:
        """Evaluate an alert without storing or sending anything; return the condition's results, and a notice or None.

        The notice says that not all groups were evaluated, because a limit was reached.
        """
        now_us = self._clock_us()
        answer, earlier = await self._run_current_and_earlier_queries(alert, now_us)
        verdicts = await asyncio.to_thread(self._evaluate_rows, alert, answer, earlier)
        return verdicts, _truncation_notice(answer, len(verdicts))

    def _evaluate_rows(
        self, alert: Alert, answer: CompleteAnswer, earlier: CompleteAnswer | None
    ) -> list[ConditionResult]:
        instances = self._alert_store.group_states(str(alert.id))
        known = {fingerprint: instance.labels for fingerprint, instance in instances.items()}
        try:
            return evaluate_groups(alert, _decode_rows(answer), () if earlier is None else _decode_rows(earlier), known)
        except MissingColumn as missing:
            raise BadQueryValue(f"The answer has no column {missing}.") from missing

    def _evaluate_and_store(
        self, alert: Alert, answer: CompleteAnswer, earlier: CompleteAnswer | None, now_us: int, *, is_cut: bool
    ) -> StateUpdate:
        verdicts = self._evaluate_rows(alert, answer, earlier)
        instances = self._alert_store.group_states(str(alert.id))
        silences = self._alert_store.silences()
        step = update_group_states(
            alert,
            instances,
            EvaluationResult(verdicts, now_us, is_cut),
            lambda target: self._evaluation_options.repeat_seconds_by_target.get(target, alert.repeat_seconds),
            lambda labels: is_silenced(silences, alert.name, labels, now_us),
        )
        self._alert_store.store_update(make_alert_summary(alert), step, now_us)
        return step

    async def _run_query(self, alert: Alert, now_us: int, as_of_us: int | None = None) -> CompleteAnswer:
        endpoint = self._catalog.endpoint(alert.endpoint_name)
        if endpoint is None:
            raise UnknownEndpoint(f"There is no endpoint {alert.endpoint_name!r}.")
        sandbox = (
            None
            if alert.sandbox_language_and_text is None
            else SandboxQuery(QueryLanguage(alert.sandbox_language_and_text[0]), alert.sandbox_language_and_text[1])
        )
        # Each alert has an account of its own. If a query of one alert had to be killed, queries of other alerts are
        # still accepted.
        account = f"alert {alert.name}"
        request = QueryRequest(
            endpoint,
            Caller(account, frozenset({"private"})),
            self._evaluation_options.answer_format,
            resolve_relative_times(alert.parameters, endpoint.parameters, now_us),
            sandbox,
            alert.redact,
            # Include a cursor for the next page. Alerts do not need it, but the answer is cached, and a caller who gets
            # it from the cache may need the cursor.
            returns_next_cursor=True,
        )
        return await self._query_runner.answer_in_background(request, as_of_us)

    async def _resolve_removed_alert(self, facts: AlertSummary) -> None:
        """End the groups of an alert that is no longer defined, so that its firing groups are resolved."""
        now_us = self._clock_us()
        step = end_all_groups(self._alert_store.group_states(facts.id), now_us)
        try:
            await asyncio.to_thread(self._alert_store.store_update, facts, step, now_us)
        except Fault as fault:
            self._record_error_observation(facts.name, fault.message)
            return
        self._evaluation_options.wake_sender()

    async def _record_health(self, alert: Alert, health: AlertHealth) -> None:
        """Record the health of an alert; add an entry to the history when an error begins or ends."""
        was_well, is_well = self.health_of(alert).error is None, health.error is None
        self._health_by_alert_id[str(alert.id)] = health
        if was_well == is_well:
            self._record_observation(AlertEvaluated(alert=alert.name, outcome="ok" if is_well else "error"))
            return
        error = health.error or ""
        kind = "recovered" if is_well else "error"
        if is_well:
            self._record_observation(AlertEvaluated(alert=alert.name, outcome="ok"))
        else:
            self._record_error_observation(alert.name, error)
        try:
            entry = HistoryEntry(health.evaluated_us or 0, alert.name, kind, reason=error)
            await asyncio.to_thread(self._alert_store.record_in_history, entry)
        except Fault as fault:
            self._record_error_observation(alert.name, fault.message)

    def _record_error_observation(self, alert: str, message: str) -> None:
        self._record_observation(AlertEvaluated(alert=alert, outcome="error", message=message, level="warning"))


def make_alert_summary(alert: Alert) -> AlertSummary:
    return AlertSummary(str(alert.id), alert.name, alert.endpoint_name, alert.severity, alert.every_seconds)


def _decode_rows(answer: CompleteAnswer) -> Sequence[AnswerRow]:
    if len(answer.body) > MAX_EVALUATED_ANSWER_BYTES:
        raise AnswerTooLarge(
            f"The answer has more than {MAX_EVALUATED_ANSWER_BYTES // 2**20} MiB.",
            hint="Have the query of the alert group its rows, or answer fewer columns.",
        )
    return msgspec.json.decode(answer.body, type=_AnswerBody).result


def _truncation_notice(answer: CompleteAnswer, groups: int) -> str | None:
    if groups >= MAX_GROUPS_PER_ANSWER:
        return f"Only the first {MAX_GROUPS_PER_ANSWER:,} groups are watched."
    if answer.receipt.truncated_by is not None:
        return f"The answer was cut ({answer.receipt.truncated_by}): groups beyond it are not watched."
    return None


def _first_evaluation_delay_us(alert: Alert) -> int:
    """Return the delay of an alert's first evaluation, which depends only on the id and the interval of the alert."""
    return round(
        min(alert.every_seconds, _FIRST_EVALUATIONS_SPREAD_SECONDS)
        * (alert.id.int % 1000)
        / 1000
        * MICROSECONDS_PER_SECOND
    )


_FIRST_ALERT_POLL_SECONDS: Final = 1.0
# The maximum number of threads that send notifications to targets.
_MAX_SENDING_THREADS: Final = 32


class DeliveryTarget(msgspec.Struct, frozen=True):
    """What the alert service knows of a target, which does not include its secrets.

    After `repeat_seconds`, the target must be told again that an alert fires. `max_changes_per_notification` is the
    maximum number of changes in one notification.
    """

    name: str
    kind: str
    host: str
    repeat_seconds: float | None
    max_changes_per_notification: int
    deliver: Callable[[Notification], None]


class AlertOptions(msgspec.Struct, frozen=True):
    """The options of the alert service: its store file, targets, limits, external URL, and the format of rows."""

    store_file: Path
    targets_by_name: Mapping[str, DeliveryTarget]
    send_limits: SendLimits
    external_url: str
    answer_format: AnswerFormat


class AlertComponents(msgspec.Struct, frozen=True):
    """The store, the evaluator and the sender of alerts, which are created together when they are first needed."""

    store: AlertStore
    evaluator: _AlertEvaluator
    sender: NotificationSender


class AlertService:
    """The alerts of the service. The store is opened only if alerts are defined now or were defined earlier."""

    def __init__(
        self,
        catalog: Catalog,
        queries: _QueryRunner,
        options: AlertOptions,
        clock_us: Callable[[], int],
        note: RecordObservation,
    ) -> None:
        self.catalog = catalog
        self.options = options
        self.clock_us = clock_us
        self._query_runner = queries
        self._record_observation = note
        self._components: AlertComponents | None = None
        self._last_store_opening_error = ""
        # A lock for opening the store, because a backup may open it in another thread.
        self._store_opening_lock = threading.Lock()
        # A separate thread pool for sending, because targets may take long to answer.
        self._sending_threads = ThreadPoolExecutor(
            min(len(options.targets_by_name) + 1, _MAX_SENDING_THREADS), thread_name_prefix="alerts-send"
        )

    @property
    def components(self) -> AlertComponents | None:
        return self._components

    async def run(self) -> None:
        """Wait until there is an alert; then evaluate alerts and send notifications until cancelled."""
        while (parts := self._open_if_needed()) is None:  # noqa: ASYNC110 - a reload of the definition files sets no event
            await asyncio.sleep(_FIRST_ALERT_POLL_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(parts.evaluator.run())
            tasks.create_task(parts.sender.run())

    def _open_if_needed(self) -> AlertComponents | None:
        try:
            return self.open_store() if self.is_store_needed() else None
        except Fault as fault:
            # The store could not be opened, for example after a reload added the first alert. The service continues
            # without alerts, tries again, and logs the same error only once.
            if fault.one_line_text() != self._last_store_opening_error:
                self._last_store_opening_error = fault.one_line_text()
                self._record_observation(OperatorMessage(message=self._last_store_opening_error, level="error"))
            return None

    def is_store_needed(self) -> bool:
        """Return whether alerts are defined, or an existing store may have groups of removed alerts, which must end."""
        return self._components is not None or bool(self.catalog.alerts()) or self.options.store_file.exists()

    def open_store(self) -> AlertComponents:
        """Open the store unless it is open already; return the store with the evaluator and the sender.

        Raise DataFolderUnusable if the store is damaged.
        """
        with self._store_opening_lock:
            if self._components is None:
                self._components = self._create_components()
            return self._components

    def _create_components(self) -> AlertComponents:
        options = self.options
        store = AlertStore(options.store_file)
        receivers = {
            name: (target.max_changes_per_notification, partial(self.deliver, target))
            for name, target in options.targets_by_name.items()
        }
        sender = NotificationSender(
            store, receivers, options.send_limits, self.clock_us, self._record_observation, options.external_url
        )
        repeats = {
            name: target.repeat_seconds
            for name, target in options.targets_by_name.items()
            if target.repeat_seconds is not None
        }
        evaluation = _EvaluationOptions(options.answer_format, sender.wake, repeats)
        evaluator = _AlertEvaluator(
            self.catalog, self._query_runner, store, self.clock_us, self._record_observation, evaluation
        )
        return AlertComponents(store, evaluator, sender)

    async def deliver(self, target: DeliveryTarget, notification: Notification) -> None:
        """Send a notification in a thread; raise DeliveryFailed if the target refuses it."""
        await asyncio.get_running_loop().run_in_executor(self._sending_threads, target.deliver, notification)

    def count_groups(self, phase: GroupPhase) -> int:
        """Return how many groups of all defined alerts are in a phase."""
        if self._components is None:
            return 0
        store = self._components.store
        return sum(store.count_groups(str(alert.id), phase) for alert in self.catalog.alerts())

    def copy_database(self) -> bytes | None:
        """Return a copy of the store's database, or None if there is no store."""
        return self.open_store().store.copy_database() if self.is_store_needed() else None

    def close(self) -> None:
        self._sending_threads.shutdown()
        if self._components is not None:
            self._components.store.close()
