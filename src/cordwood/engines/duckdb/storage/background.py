"""The scheduler of the storage's background jobs: flushes, compaction, and filling the recent cache.

All threads of the storage run the loop in this module. A job decides what to do next, and how long to pause. The
scheduler starts the threads, makes them pause, reports failures, and stops the threads.
"""

import threading
import time
from collections.abc import Callable

from cordwood.observe.observation import ReportOperatorMessage

_FAILED_STEP_RETRY_SECONDS = 1.0
_FAILURE_REPORT_INTERVAL_SECONDS = 60.0


class BackgroundJob:
    """A job whose function `step` is called again and again, in one or several threads.

    `step` returns how many seconds to pause before the next call. `wake` ends the pause early in one of the threads.
    """

    def __init__(self, name: str, step: Callable[[], float], *, threads: int = 1, first_pause: float = 0.0) -> None:
        self.name = name
        self.run_step = step
        self.thread_count = threads
        self.first_pause_seconds = first_pause
        self._wake_condition = threading.Condition()
        self._is_woken = False

    def wake(self) -> None:
        with self._wake_condition:
            self._is_woken = True
            self._wake_condition.notify()

    def wake_all(self) -> None:
        with self._wake_condition:
            self._is_woken = True
            self._wake_condition.notify_all()

    def wait_until_woken(self, seconds: float, stopping: threading.Event) -> None:
        """Wait until `seconds` have passed, the job is woken, or `stopping` is set."""
        with self._wake_condition:
            self._wake_condition.wait_for(lambda: self._is_woken or stopping.is_set(), seconds)
            self._is_woken = False


class BackgroundScheduler:
    """Runs the background jobs of a storage in threads.

    `stop_event` is set when the jobs must end. A long step must wait on `stop_event` instead of sleeping, so that it
    ends soon.
    """

    def __init__(self, report: ReportOperatorMessage) -> None:
        self.stop_event = threading.Event()
        self._report_message = report
        self._jobs: list[BackgroundJob] = []
        self._threads: list[threading.Thread] = []
        self._failure_reported_at_by_job: dict[str, float] = {}

    def start(self, job: BackgroundJob) -> None:
        """Start the threads of a job."""
        self._jobs.append(job)
        for number in range(job.thread_count):
            thread = threading.Thread(
                target=self._run_repeatedly, args=(job,), name=f"{job.name}-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def close(self, *, before_join: Callable[[], None]) -> None:
        """Stop all jobs, and wait until the running steps have ended.

        `before_join` is called before waiting, and may interrupt the running steps.
        """
        self.stop_event.set()
        for job in self._jobs:
            job.wake_all()
        before_join()
        for thread in self._threads:
            thread.join()

    def _run_repeatedly(self, job: BackgroundJob) -> None:
        pause_seconds = job.first_pause_seconds
        while True:
            if pause_seconds > 0:
                job.wait_until_woken(pause_seconds, self.stop_event)
            if self.stop_event.is_set():
                return
            pause_seconds = self._run_once(job)

    def _run_once(self, job: BackgroundJob) -> float:
        """Run the job's next step, and return the pause after it; a failure is reported and does not end the thread."""
        try:
            return job.run_step()
        except Exception as problem:  # noqa: BLE001 - the last catch-all of the thread
            if not self.stop_event.is_set():
                self._report_failure_at_intervals(job, problem)
            return _FAILED_STEP_RETRY_SECONDS

    def _report_failure_at_intervals(self, job: BackgroundJob, problem: Exception) -> None:
        now = time.monotonic()
        if (
            now - self._failure_reported_at_by_job.get(job.name, -_FAILURE_REPORT_INTERVAL_SECONDS)
            >= _FAILURE_REPORT_INTERVAL_SECONDS
        ):
            self._failure_reported_at_by_job[job.name] = now
            self._report_message(
                f"The background job {job.name!r} failed and is tried again: {problem!r}".splitlines()[0]
            )
