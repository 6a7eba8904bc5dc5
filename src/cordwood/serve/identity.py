"""Which questions share one kept answer: those of one compiled statement with the same values, in one form.

No text that a caller wrote is compared. Two texts share an answer where the compiler made the same statement of them,
so that no other reading of comments, quotes or line breaks can differ from the parser's.
"""

from decimal import Decimal
from hashlib import sha256

import msgspec

from cordwood.serve.ask import Ask
from cordwood.sql.stages import Question


def identity(ask: Ask, question: Question) -> bytes:
    """Return the key of the answer. The caller's pins are in it as the values that they set."""
    parts = (
        ask.endpoint.id.bytes,
        ask.endpoint.revision,
        question_identity(question),
        ask.redacts,
        ask.format.name,
    )
    return sha256(msgspec.msgpack.encode(parts)).digest()


def question_identity(question: Question) -> bytes:
    """Return a digest of the statement and of every value that it reads but the time of the call."""
    return sha256(msgspec.msgpack.encode((question.statement.digest, _given_values(question)))).digest()


def _given_values(question: Question) -> list[tuple[str, str, str]]:
    """Return every value that the statement reads, with its type, but for the time of the call."""
    given = {slot.name for slot in question.statement.slots if slot.parameter is not None}
    return [(name, *_typed(question.values[name])) for name in sorted(given & question.values.keys())]


def _typed(value: object) -> tuple[str, str]:
    """Return equal texts for equal values of one type, and different texts for different values."""
    return type(value).__name__, _exact(value) if isinstance(value, Decimal) else repr(value)


def _exact(value: Decimal) -> str:
    """Write the number without the zeros at its end. Decimal.normalize() would round it to 28 digits."""
    sign, digits, exponent = value.as_tuple()
    written = "".join(map(str, digits))
    shortened = written.rstrip("0")
    return f"{sign} {shortened} {int(exponent) + len(written) - len(shortened)}"
