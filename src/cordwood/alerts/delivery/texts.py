"""Texts of strangers for messages: one line, bounded in length, without characters that hide or rearrange others."""

import unicodedata
from typing import Final

# Longer texts are not read to their end.
_MOST_READ: Final = 20_000
# Joiners are part of emoji and of several scripts. Private and unassigned characters are at worst a box.
_KEPT: Final = {"\u200c", "\u200d"}
_KEPT_CATEGORIES: Final = {"Cn", "Co"}
_AS_SPACE: Final = {"Cc", "Zl", "Zp", "Zs"}

_SLACK: Final = {
    "&": "&amp;",
    "<": "&lt;",
    ">": "&gt;",
    # Mattermost and Discord, which read the same form, know @all and [text](address) as well; an invisible space parts them.
    "@": "@\u200b",
    "]": "]\u200b",
    # The end of a code span, or the begin of one that reaches over the rest.
    "`": "'",
}


def cleaned(text: str) -> str:
    """Return the text in one line, without control, bidirectional and other invisible characters."""
    return " ".join("".join(map(_kept, text[:_MOST_READ])).split())


def shortened(text: str, limit: int) -> str:
    """Return the cleaned text with at most `limit` characters; what is cut says so."""
    clean = cleaned(text)
    if len(clean) <= limit and len(text) <= _MOST_READ:
        return clean
    note = _cut_note(text)
    return clean[: max(0, limit - len(note))] + note


def for_slack(text: str, limit: int) -> str:
    """Return the cleaned text with Slack's markup escaped, with at most `limit` UTF-16 units after escaping."""
    pieces = [_SLACK.get(character, character) for character in cleaned(text)]
    if sum(map(utf16_length, pieces)) <= limit and len(text) <= _MOST_READ:
        return "".join(pieces)
    note = _cut_note(text)
    room = limit - len(note)
    count = 0
    for piece in pieces:
        room -= utf16_length(piece)
        if room < 0:
            break
        count += 1
    return "".join(pieces[:count]) + note


def utf16_length(text: str) -> int:
    """Return the length as most chat services count it: characters outside of the first plane are two."""
    return len(text) + sum(character > "\uffff" for character in text)


def _cut_note(text: str) -> str:
    return f"… (cut from {len(text)} characters)"


def _kept(character: str) -> str:
    if character.isprintable() or character in _KEPT:
        return character
    category = unicodedata.category(character)
    if category in _KEPT_CATEGORIES:
        return character
    return " " if category in _AS_SPACE else ""
