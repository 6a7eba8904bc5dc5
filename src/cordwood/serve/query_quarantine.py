"""The query quarantine: refuse killed queries for a while, and all ad hoc queries of keys with two killed ones.

For the key that sent it, a killed query is refused with any literals. For other keys it is refused only with the same
literals and values: otherwise a caller could block a common query of all others by running it with a literal that makes
the engine slow.
"""

import re
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, Generic, TypeVar

from cordwood.errors import QuarantinedQuery
from cordwood.observe.observation import Observer, QuarantineRefused, QueryQuarantined
from cordwood.serve.cache_keys import question_digest
from cordwood.serve.jobs import Job

QUARANTINE_SECONDS: Final = 600.0
# After this many kills within the quarantine time, the ad hoc and sandbox queries of the key are refused.
MAX_KILLS_PER_KEY: Final = 2
# The maximum number of remembered queries and keys, of about 200 bytes each; the oldest are forgotten first.
_MAX_REMEMBERED: Final = 2_000

# Matches strings and numbers, which become one placeholder each; names in double quotes do not match.
_LITERALS: Final = re.compile(r"""("(?:[^"]|"")*")|'(?:[^']|'')*'|\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b""")
_LISTS: Final = re.compile(r"\?(?:\s*,\s*\?)+")

K = TypeVar("K")


def fingerprint(sql: str) -> str:
    """Return a digest that is equal for compiled queries which differ only in literals."""
    without_literals = _LITERALS.sub(lambda match: match[1] or "?", sql)
    return blake2b(_LISTS.sub("?", without_literals).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class QueryQuarantine:
    """The quarantined queries and keys. Use it on the event loop only. `clock` returns seconds."""

    def __init__(self, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self._observer = observer
        self._clock = clock
        self._kills_by_form: _KillTimes[tuple[str, str]] = _KillTimes()
        self._kills_by_question: _KillTimes[bytes] = _KillTimes()
        self._kills_by_key: _KillTimes[str] = _KillTimes()

    def check(self, job: Job) -> None:
        """Raise QuarantinedQuery for a caller's own query if the query or its key is quarantined. Saved queries pass."""
        if not job.request.is_callers_own or not self._kills_by_question.has_recent(self._since()):
            return
        account, since = job.request.account, self._since()
        kills = self._kills_by_key.times(account, since)
        if len(kills) >= MAX_KILLS_PER_KEY:
            self._refuse(job, "key", kills[-MAX_KILLS_PER_KEY])
        form = (account, fingerprint(job.question.statement.sql))
        kills = self._kills_by_form.times(form, since) or self._kills_by_question.times(
            question_digest(job.question), since
        )
        if kills:
            self._refuse(job, "query", kills[-1])

    def note_kill(self, job: Job) -> None:
        """Record that the engine's process was killed because of this job."""
        if not job.request.is_callers_own:
            return
        now, form = self._clock(), fingerprint(job.question.statement.sql)
        self._kills_by_question.add(question_digest(job.question), now)
        self._kills_by_form.add((job.request.account, form), now)
        self._kills_by_key.add(job.request.account, now)
        self._observer.note(
            QueryQuarantined(endpoint=job.request.endpoint.name, key=job.request.caller.key_id, fingerprint=form)
        )

    def count(self) -> int:
        """Return the number of queries that are quarantined now."""
        return self._kills_by_question.count(self._since())

    def _since(self) -> float:
        return self._clock() - QUARANTINE_SECONDS

    def _refuse(self, job: Job, by: str, killed_at: float) -> None:
        self._observer.note(QuarantineRefused(endpoint=job.request.endpoint.name, key=job.request.caller.key_id, by=by))
        remaining = max(1.0, killed_at - self._since())
        messages = {
            "query": "The query is refused: the engine's process had to be killed when it last ran.",
            "key": "Queries of this key's own are refused: the engine's process had to be killed with several of them.",
        }
        hint = "Change what the query does, not only its literals; saved queries are not refused."
        raise QuarantinedQuery(messages[by], hint=hint, retry_after=remaining)


class _KillTimes(Generic[K]):
    """The times of the latest kills by fingerprint or key, the last one at the end."""

    def __init__(self) -> None:
        self._times: dict[K, list[float]] = {}

    def add(self, key: K, now: float) -> None:
        self._times[key] = [*self._times.pop(key, []), now][-MAX_KILLS_PER_KEY:]
        if len(self._times) > _MAX_REMEMBERED:
            del self._times[next(iter(self._times))]

    def times(self, key: K, since: float) -> list[float]:
        return [time for time in self._times.get(key, ()) if time > since]

    def has_recent(self, since: float) -> bool:
        """Return whether anything was killed since a time; forget everything if not."""
        if self._times and next(reversed(self._times.values()))[-1] <= since:
            self._times.clear()
        return bool(self._times)

    def count(self, since: float) -> int:
        return sum(times[-1] > since for times in self._times.values())
