"""Detection of JSON with the media type of a form, as `curl -d` and `wget --post-data` send it by default."""

import re
from typing import Final

FORM_MEDIA: Final = "application/x-www-form-urlencoded"

# A form percent-encodes brackets, so it never begins with one.
_BRACKET = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*[\[{]")


def is_json_sent_as_form(media: str, body: bytes) -> bool:
    """Return whether the body is JSON although its type is that of a form."""
    return media == FORM_MEDIA and _BRACKET.match(body) is not None
