"""Cache keys: two requests share a cached answer if their statement, values and format are equal.

The texts that callers wrote are not compared: two texts share an answer if they compile to the same statement. So
comments, quotes and line breaks are read by the parser alone.
"""

from decimal import Decimal
from hashlib import sha256

import msgspec

from cordwood.serve.ask import Ask
from cordwood.sql.stages import Question


def identity(ask: Ask, question: Question) -> bytes:
    """Return the cache key of an answer. It includes the caller's pins, as the values that they set."""
    parts = (
        ask.endpoint.id.bytes,
        ask.endpoint.revision,
        question_identity(question),
        ask.redacts,
        ask.format.name,
    )
    return sha256(msgspec.msgpack.encode(parts)).digest()


def question_identity(question: Question) -> bytes:
    """Return a digest of the statement and its values, without the time of the call."""
    return sha256(msgspec.msgpack.encode((question.statement.digest, _given_values(question)))).digest()


def _given_values(question: Question) -> list[tuple[str, str, str]]:
    """Return every value of the statement with its type, without the time of the call."""
    given = {slot.name for slot in question.statement.slots if slot.parameter is not None}
    return [(name, *_typed(question.values[name])) for name in sorted(given & question.values.keys())]


def _typed(value: object) -> tuple[str, str]:
    """Return equal strings for equal values of one type, and different strings for different values."""
    return type(value).__name__, _exact(value) if isinstance(value, Decimal) else repr(value)


def _exact(value: Decimal) -> str:
    """Write the number without trailing zeros. Decimal.normalize() would round it to 28 digits."""
    sign, digits, exponent = value.as_tuple()
    written = "".join(map(str, digits))
    shortened = written.rstrip("0")
    return f"{sign} {shortened} {int(exponent) + len(written) - len(shortened)}"
