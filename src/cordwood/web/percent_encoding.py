"""Strict percent-decoding of URLs and forms: malformed text is an error."""

import re
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

from cordwood.errors import BadParameter

_INVALID_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_EXCERPT_LENGTH = 40
_HINT = "A percent sign itself is sent as %25."


def decoded(text: bytes, subject: str) -> str:
    """Percent-decode a text; raise BadParameter if it is malformed."""
    broken = _INVALID_ESCAPE.search(text)
    if broken is not None:
        piece = text[broken.start() : broken.start() + 3].decode("latin-1")
        raise BadParameter(f"The {subject} has a broken percent-encoding: {piece!r}.", hint=_HINT)
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise BadParameter(
            f"The {subject} is not UTF-8.", hint="Encode text as UTF-8, then percent-encode it."
        ) from None


def read_count(text: str | None, default: int, limit: int, name: str = "limit") -> int:
    """Parse a parameter that is a number from 1 to `maximum`; raise BadParameter for any other text."""
    if text is None:
        return default
    if not text.isdecimal() or len(text) > len(str(limit)) or not 1 <= int(text) <= limit:
        raise BadParameter(f"{name} is {text[:_EXCERPT_LENGTH]!r}.", hint=f"It must be a number from 1 to {limit}.")
    return int(text)


def pairs(text: bytes, subject: str) -> dict[str, str]:
    """Parse a query string or form. Of a repeated name, the last value counts."""
    if b"%" not in text and b"+" not in text and text.isascii():
        return _fast_pairs(text.decode("ascii"))
    return dict(each_pair(text, subject))


def each_pair(text: bytes, subject: str) -> Iterator[tuple[str, str]]:
    """Yield every name and value of a query string or form, including repeated names."""
    for pair in text.replace(b"+", b" ").split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            yield decoded(name, subject), decoded(value, subject)


def _fast_pairs(text: str) -> dict[str, str]:
    return dict(pair.partition("=")[::2] for pair in text.split("&") if pair)
