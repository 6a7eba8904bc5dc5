"""JSON that is sent as a form: what `curl -d` and `wget --post-data` do when no content type is given."""

import re
from typing import Final

FORM_MEDIA: Final = "application/x-www-form-urlencoded"

# A form percent-encodes both brackets in its names, so it never begins with one.
_BRACKET = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*[\[{]")


def is_json_sent_as_form(media: str, body: bytes) -> bool:
    """Whether the body has to be read as JSON although its type says that it is a form."""
    return media == FORM_MEDIA and _BRACKET.match(body) is not None
