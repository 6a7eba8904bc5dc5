"""Paging of answers that are cut off: cursors for the next page, and the total order of rows that they require.

A cursor is valid only with the request of the previous page: the same endpoint, parameters and sandbox query. A cursor
is signed. It contains the time as of which the query runs, and a caller who could change this time could read older
events than the endpoint permits. A cursor is also encrypted, because it contains the time and the id of a row, which
the answer may not show. The signature is also the initialization vector, as in SIV (RFC 5297), so that equal positions
have equal cursors.

If the rows of a query have no ids, as with groups and unions, the first run does not put them in a total order. If the
answer is cut off at the row limit, the query is run again, with its rows ordered by the columns of the answer. This
ordered run may cost far more than the run that stopped at the limit. It may also fail at a row that the first run did
not reach. If the last answer of a query was ordered in this way, the first run of the next request is ordered at once.
"""

import base64
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from cordwood.errors import BadParameter
from cordwood.serve.jobs import QueryJob
from cordwood.serve.query_request import PagePosition, QueryRequest

_SIGNATURE_BYTES = 16
_SIGNING, _ENCRYPTING = b"cursor signature", b"cursor content"
_MAX_CURSOR_CHARACTERS = 1000
_FIRST_PAGE_HINT = "or begin with the first page: without cursor=."


class CursorCodec:
    """Encodes and decodes cursors. Services that have the same secret accept each other's cursors."""

    def __init__(self, secret: bytes) -> None:
        self._signing_key = blake2b(secret, person=_SIGNING).digest()
        self._encryption_key = blake2b(secret, person=_ENCRYPTING).digest()

    def encode(self, request: QueryRequest, position: PagePosition) -> str:
        content = msgspec.msgpack.encode(position)
        signature = self._sign(request, content)
        return base64.urlsafe_b64encode(signature + self._encrypt_or_decrypt(content, signature)).decode().rstrip("=")

    def decode(self, text: str, request: QueryRequest) -> PagePosition:
        """Return the position in a cursor; raise BadParameter if the cursor is invalid or of another request."""
        try:
            data = base64.b64decode(
                text[:_MAX_CURSOR_CHARACTERS] + "=" * (-len(text) % 4), altchars=b"-_", validate=True
            )
        except ValueError:
            data = b""
        signature, encrypted = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES:]
        content = self._encrypt_or_decrypt(encrypted, signature)
        if not hmac.compare_digest(signature, self._sign(request, content)):
            raise BadParameter(
                "The cursor was changed or belongs to another query, or the endpoint was changed.",
                hint=f"Send the Cordwood-Next of the page before with the same parameters and query, {_FIRST_PAGE_HINT}",
            )
        return msgspec.msgpack.decode(content, type=PagePosition)

    def _sign(self, request: QueryRequest, content: bytes) -> bytes:
        endpoint = request.endpoint
        parameters = [request.parameters.get(parameter.name) for parameter in endpoint.parameters]
        parts = (endpoint.id.bytes, endpoint.revision, parameters, request.sandbox, request.is_redacted, content)
        encoded = msgspec.msgpack.encode(parts)
        return blake2b(encoded, key=self._signing_key, digest_size=_SIGNATURE_BYTES).digest()

    def _encrypt_or_decrypt(self, content: bytes, signature: bytes) -> bytes:
        """Encrypt or decrypt `content`: XOR it with keyed hashes of the signature and a counter."""
        blocks = range(-(-len(content) // blake2b.MAX_DIGEST_SIZE))
        hashed = (signature + number.to_bytes(4, "big") for number in blocks)
        stream = b"".join(blake2b(block, key=self._encryption_key).digest() for block in hashed)
        return bytes(byte ^ mask for byte, mask in zip(content, stream, strict=False))


# The time limit of an ordered run is `_ORDERED_RUN_TIMEOUT_FACTOR` times the duration of the previous run, but at least
# this number of seconds.
_MIN_ORDERED_RUN_TIMEOUT_SECONDS: Final = 1.0
_ORDERED_RUN_TIMEOUT_FACTOR: Final = 2.0
# After an ordered run of a query has failed, no second, ordered run of this query is tried for this number of seconds.
ORDERED_RUN_RETRY_SECONDS: Final = 600.0
_MAX_REMEMBERED_ORDERED_RUNS: Final = 2_000


class _OrderedRun(NamedTuple):
    """The outcome of a query's last run that ordered rows for paging; `duration_seconds` is None if it failed."""

    recorded_at: float
    duration_seconds: float | None


class OrderedRunHistory:
    """Remembers how long the last ordered run of each query took, or that the run failed.

    An ordered run orders the rows by the columns of the answer, so that the next page can be requested. Only the latest
    two thousand queries with such a run are remembered. `clock` returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_run_by_key: OrderedDict[bytes, _OrderedRun] = OrderedDict()

    def ordered_first_run_timeout_seconds(self, job: QueryJob) -> float | None:
        """Return the time limit of the job's first run if it should be ordered, or None if it should not.

        The first run is ordered only if the last ordered run of the query succeeded.
        """
        outcome = self._last_run_by_key.get(_ordered_run_key(job))
        if outcome is None or outcome.duration_seconds is None:
            return None
        return min(
            job.limits.timeout_seconds,
            max(_MIN_ORDERED_RUN_TIMEOUT_SECONDS, _ORDERED_RUN_TIMEOUT_FACTOR * outcome.duration_seconds),
        )

    def ordered_rerun_timeout_seconds(self, job: QueryJob, engine_seconds: float) -> float | None:
        """Return the time limit of a second, ordered run of the job, or None if no such run should be tried.

        `engine_seconds` is the duration of the first run. No second run is tried if an ordered run of the query failed
        in the last `ORDERED_RUN_RETRY_SECONDS`.
        """
        outcome = self._last_run_by_key.get(_ordered_run_key(job))
        if (
            outcome is not None
            and outcome.duration_seconds is None
            and self._clock() - outcome.recorded_at < ORDERED_RUN_RETRY_SECONDS
        ):
            return None
        return min(
            job.limits.timeout_seconds - engine_seconds,
            max(_MIN_ORDERED_RUN_TIMEOUT_SECONDS, _ORDERED_RUN_TIMEOUT_FACTOR * engine_seconds),
        )

    def record_run(self, job: QueryJob, seconds: float | None) -> None:
        """Record how long an ordered run of the job's query took; `seconds` is None if the run failed."""
        key = _ordered_run_key(job)
        self._last_run_by_key[key] = _OrderedRun(self._clock(), seconds)
        self._last_run_by_key.move_to_end(key)
        if len(self._last_run_by_key) > _MAX_REMEMBERED_ORDERED_RUNS:
            self._last_run_by_key.popitem(last=False)

    def forget_run(self, job: QueryJob) -> None:
        """Forget the ordered run of a query, because the query's answer is no longer cut off.

        Therefore the first run of the next request is not ordered.
        """
        self._last_run_by_key.pop(_ordered_run_key(job), None)


def _ordered_run_key(job: QueryJob) -> bytes:
    """Return a digest of the statement, the account and the pins of a job.

    The account is included, so that the runs of one account do not change the order of rows in another account's
    answers.
    """
    request = job.request
    return blake2b(
        msgspec.msgpack.encode((job.bound_statement.statement.digest, request.account, request.sorted_pins))
    ).digest()
