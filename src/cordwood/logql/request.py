"""A LogQL request: the queries, and the times and limits that a client sends with them."""

from enum import StrEnum
from typing import Final

import msgspec

from cordwood.errors import BadParameter

# The maximum number of steps of one series, as in Loki.
MAX_STEPS: Final = 11_000
# The maximum number of samples of one answer, over all series.
MAX_SAMPLES: Final = 300_000


class ResultKind(StrEnum):
    """What the answer contains: entries, samples, values of a label, label sets of streams, or counts."""

    ENTRIES = "entries"
    SAMPLES = "samples"
    VALUES = "values"
    STREAMS = "streams"
    COUNTS = "counts"


class Steps(msgspec.Struct, frozen=True):
    """The times at which samples are computed: `count` of them, `step_us` apart."""

    start_us: int
    step_us: int
    count: int


class LogqlRequest(msgspec.Struct, frozen=True, array_like=True):
    """A request. Entries are those from `start_us` (inclusive) to `end_us` (exclusive).

    Samples are computed at `start_us` and every `step_us` after it up to `end_us`; `label` is the one whose values are
    requested. `given` are labels whose equality the parameters of the endpoint ensure.
    """

    wanted: ResultKind
    queries: tuple[str, ...]
    start_us: int
    end_us: int
    step_us: int = 1
    limit: int = 100
    is_forward: bool = False
    label: str = ""
    given: tuple[str, ...] = ()

    @property
    def steps(self) -> Steps:
        return Steps(self.start_us, self.step_us, max(0, self.end_us - self.start_us) // self.step_us + 1)

    @property
    def text(self) -> str:
        """The request as a text, which identifies it in caches."""
        return msgspec.json.encode(self).decode()


_decode_request = msgspec.json.Decoder(LogqlRequest).decode


def read_request(text: str) -> LogqlRequest:
    return _decode_request(text)


def max_series(steps: Steps) -> int:
    """Return the maximum number of series in an answer."""
    return max(1, MAX_SAMPLES // steps.count)


def check_steps(steps: Steps) -> None:
    if steps.count > MAX_STEPS:
        raise BadParameter(
            f"The range has more than {MAX_STEPS:,} steps.", hint="Send a larger step, or a shorter range."
        )
