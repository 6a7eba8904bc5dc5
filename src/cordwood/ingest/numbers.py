"""Convert numbers that no engine can store exactly into strings of the same digits."""

import math
import re

import msgspec

from cordwood.model.event import Event

# Only a text with many digits or a large exponent may need the conversion.
_SUSPECT = re.compile(r"\d{19}|\d[eE]\+?\d{3}")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*')
_LEAST, _MOST = -(2**63), 2**64 - 1
_MOST_DIGITS = 20


def with_numbers_kept(event: Event) -> Event:
    """Return the event with out-of-range numbers as strings; 64-bit integers and finite doubles stay numbers."""
    metadata, extras = _kept(event.metadata), _kept(event.extras)
    if metadata is event.metadata and extras is event.extras:
        return event
    return msgspec.structs.replace(event, metadata=metadata, extras=extras)


def _kept(text: str | None) -> str | None:
    if text is None or not _SUSPECT.search(text):
        return text
    kept = _TOKEN.sub(_as_text_if_needed, text)
    return text if kept == text else kept


def _as_text_if_needed(token: re.Match[str]) -> str:
    written = token[0]
    return written if written[0] == '"' or _fits(written) else f'"{written}"'


def _fits(number: str) -> bool:
    if not number.lstrip("-").isdecimal():
        return math.isfinite(float(number))
    return len(number.lstrip("-")) <= _MOST_DIGITS and _LEAST <= int(number) <= _MOST
