"""Checks of JSON text: error messages, duplicate names, and JSON that is sent with the media type of an HTML form."""

import json
import re
from typing import Final


def describe_json_error(error: Exception, text: bytes) -> str:
    """Return the reason why JSON text could not be decoded, with the position of the error in bytes if it is known."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 (byte {_first_invalid_byte_offset(text)})"
    if "truncated" not in str(error):
        return str(error)
    return f"it ends before it is whole (byte {len(text)})" if text.strip() else "it is empty"


def _first_invalid_byte_offset(text: bytes) -> int:
    try:
        return len(text.decode())
    except UnicodeDecodeError as error:
        return error.start


def find_duplicate_member_name(text: bytes) -> str | None:
    """Return the first name that an object contains twice, at any depth; None if there is none.

    The text must be valid JSON. Names are compared after their escapes are decoded.
    """
    duplicates: list[str] = []

    def collect_duplicate_names(members: list[tuple[str, object]]) -> None:
        seen_names: set[str] = set()
        for name, _ in members:
            if name in seen_names:
                duplicates.append(name)
            seen_names.add(name)

    # Replace the conversion of numbers by `len`, because the conversion is slow for long numbers and raises ValueError
    # for very long ones.
    json.loads(text.decode() or "{}", object_pairs_hook=collect_duplicate_names, parse_int=len, parse_float=len)
    return duplicates[0] if duplicates else None


FORM_MEDIA_TYPE: Final = "application/x-www-form-urlencoded"

# A body that begins with a bracket or a brace is not a form, because a form percent-encodes these characters.
_JSON_START_PATTERN = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*[\[{]")


def is_json_sent_as_form(media: str, body: bytes) -> bool:
    """Return whether the body is JSON although its media type is that of a form."""
    return media == FORM_MEDIA_TYPE and _JSON_START_PATTERN.match(body) is not None
