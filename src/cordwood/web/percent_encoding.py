"""Strict percent-decoding: malformed text is an error."""

import re
from collections.abc import Iterator
from urllib.parse import unquote_to_bytes

from cordwood.errors import BadParameter

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SHOWN = 40
_HINT = "A percent sign itself is sent as %25."


def decoded(text: bytes, what: str) -> str:
    """Percent-decode the text; raise BadParameter if it is malformed."""
    broken = _BROKEN.search(text)
    if broken is not None:
        piece = text[broken.start() : broken.start() + 3].decode("latin-1")
        raise BadParameter(f"The {what} has a broken percent-encoding: {piece!r}.", hint=_HINT)
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise BadParameter(f"The {what} is not UTF-8.", hint="Encode text as UTF-8, then percent-encode it.") from None


def asked_count(text: str | None, default: int, most: int, name: str = "limit") -> int:
    """Return the value of a parameter; raise BadParameter if it is not a number from 1 to `most`."""
    if text is None:
        return default
    if not text.isdecimal() or len(text) > len(str(most)) or not 1 <= int(text) <= most:
        raise BadParameter(f"{name} is {text[:_SHOWN]!r}.", hint=f"It must be a number from 1 to {most}.")
    return int(text)


def pairs(text: bytes, what: str) -> dict[str, str]:
    """Parse a query string or form; the last value of a repeated name wins."""
    if b"%" not in text and b"+" not in text and text.isascii():
        return _plain_pairs(text.decode("ascii"))
    return dict(each_pair(text, what))


def each_pair(text: bytes, what: str) -> Iterator[tuple[str, str]]:
    """Yield every name and value, including those of repeated names."""
    for pair in text.replace(b"+", b" ").split(b"&"):
        if pair:
            name, _, value = pair.partition(b"=")
            yield decoded(name, what), decoded(value, what)


def _plain_pairs(text: str) -> dict[str, str]:
    return dict(pair.partition("=")[::2] for pair in text.split("&") if pair)
