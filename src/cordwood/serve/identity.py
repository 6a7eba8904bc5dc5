"""When two requests ask the same question: exactly what can change the answer, and nothing else."""

import re
from decimal import Decimal
from hashlib import sha256

import msgspec

from cordwood.serve.ask import Ask, Language
from cordwood.sql.stages import Question

# Strings and quoted names stay as they are; what stands between them loses its comments and its layout.
_TOKENS = re.compile(
    r"""
      (?P<kept> (?P<triple>\"\"\"|''') (?:\\.|(?!(?P=triple)).)* (?P=triple)
      | (?P<quote>["'`]) (?:\\.|(?!(?P=quote)).)* (?P=quote) )
    | (?P<gap> (?: \s | --[^\n]* | \#[^\n]* | /\*.*?\*/ )+ )
    """,
    re.VERBOSE | re.DOTALL,
)


def identity(ask: Ask, question: Question) -> bytes:
    """The key of the answer. The caller's pins are in it as the values that they set."""
    parts = (
        ask.endpoint.id.bytes,
        ask.endpoint.revision,
        ask.sandbox and (ask.sandbox.language, normalised(ask.sandbox.text, ask.sandbox.language)),
        _given_values(question),
        ask.redacts,
        ask.format.name,
    )
    return sha256(msgspec.msgpack.encode(parts)).digest()


def normalised(text: str, language: Language) -> str:
    """The text without comments and layout, so that how it is laid out does not matter."""
    if language is not Language.SQL:
        return text.strip()
    return _TOKENS.sub(lambda token: token["kept"] or " ", text).strip().rstrip(";").rstrip()


def _given_values(question: Question) -> list[tuple[str, str, str]]:
    """Every value that the statement reads, with its type; not the moment of the call."""
    given = {slot.name for slot in question.statement.slots if slot.parameter is not None}
    return [(name, *_typed(question.values[name])) for name in sorted(given & question.values.keys())]


def _typed(value: object) -> tuple[str, str]:
    """Equal values of a type are equal texts, however they were written."""
    if isinstance(value, Decimal):
        value = value.normalize()
    return type(value).__name__, repr(value)
