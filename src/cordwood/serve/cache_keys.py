"""Cache keys: requests share a cached answer if their compiled statement, values and format are equal.

The texts of queries are not compared: two texts share an answer if they compile to the same statement, so only the
parser interprets comments, quotes and line breaks. An index from request digests to cache keys finds the answer to a
repeated request without compiling it again.
"""

from collections import OrderedDict
from decimal import Decimal
from hashlib import sha256

import msgspec

from cordwood.serve.query_request import QueryRequest
from cordwood.serve.statement_cache import StatementKey
from cordwood.sql.stages import Question


def cache_key(request: QueryRequest, question: Question) -> bytes:
    """Return the cache key of an answer, which includes the values that the caller's pins set."""
    parts = (
        request.endpoint.id.bytes,
        request.endpoint.revision,
        question_digest(question),
        request.redacts,
        request.format.name,
        request.max_rows,
        request.position,
    )
    return sha256(msgspec.msgpack.encode(parts)).digest()


def question_digest(question: Question) -> bytes:
    """Return a digest of a statement and its values, without the time of the call."""
    return sha256(msgspec.msgpack.encode((question.statement.digest, _parameter_values(question)))).digest()


def _parameter_values(question: Question) -> list[tuple[str, str, str]]:
    """Return every value of a statement with its type, without the time of the call."""
    names = {slot.name for slot in question.statement.slots if slot.parameter is not None}
    return [(name, *_type_and_text(question.values[name])) for name in sorted(names & question.values.keys())]


def _type_and_text(value: object) -> tuple[str, str]:
    """Return a string that is equal for equal values of one type, and differs for different values."""
    return type(value).__name__, _exact(value) if isinstance(value, Decimal) else repr(value)


def _exact(value: Decimal) -> str:
    """Format the number without trailing zeros. Decimal.normalize() would round it to 28 digits."""
    sign, digits, exponent = value.as_tuple()
    digits_text = "".join(map(str, digits))
    shortened = digits_text.rstrip("0")
    return f"{sign} {shortened} {int(exponent) + len(digits_text) - len(shortened)}"


MAX_DIGESTS = 20_000


def request_digest(request: QueryRequest, compiled_from: StatementKey) -> bytes:
    """Return a digest of everything on which an answer depends: compilation inputs, raw values, pins and format."""
    endpoint = request.endpoint
    values = [request.parameters.get(parameter.name) for parameter in endpoint.parameters]
    inputs = (endpoint.id.bytes, compiled_from, values, request.format.name, request.pin_items)
    return sha256(msgspec.msgpack.encode(inputs)).digest()


class CacheKeyIndex:
    """The cache key for each request digest, until its answer expires.

    The cache key also depends on the shapes of the streams, so the same request may get another key later. Its cached
    answer remains valid until it expires; after that, the request is compiled again.
    """

    def __init__(self) -> None:
        self._keys: OrderedDict[bytes, tuple[bytes, int]] = OrderedDict()

    def find(self, digest: bytes, now_us: int) -> bytes | None:
        """Return the cache key, or None if the request was not compiled or its answer has expired."""
        entry = self._keys.get(digest)
        return None if entry is None or now_us >= entry[1] else entry[0]

    def add(self, digest: bytes, key: bytes, until_us: int) -> None:
        self._keys[digest] = (key, until_us)
        self._keys.move_to_end(digest)
        if len(self._keys) > MAX_DIGESTS:
            self._keys.popitem(last=False)
