"""What the operator may choose about HTTP, as plain values."""

import msgspec

from cordwood.web.body import BodyBounds

MEBIBYTE = 1024 * 1024

# A query is at most 256 K characters; JSON may write each with six bytes, and a form in UTF-8 with twelve.
OF_QUERIES = BodyBounds(4 * MEBIBYTE, 4 * MEBIBYTE)
OF_EVENTS = BodyBounds(16 * MEBIBYTE, 128 * MEBIBYTE)


class WebOptions(msgspec.Struct, frozen=True):
    """`logflare_errors` restores the incumbent's answers to failed queries: 200 with one sentence.

    `events` bounds bodies of events, `queries` those of everything else.
    """

    logflare_errors: bool = False
    events: BodyBounds = OF_EVENTS
    queries: BodyBounds = OF_QUERIES
