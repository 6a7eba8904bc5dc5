"""What the operator may choose about HTTP, as plain values."""

import msgspec

from cordwood.errors import Busy
from cordwood.ingest.holding import HoldingRoom
from cordwood.web.body import BodyBounds
from cordwood.web.signatures import Webhooks

MEBIBYTE = 1024 * 1024

# A query is at most 256 K characters; JSON may write each with six bytes, and a form in UTF-8 with twelve.
OF_QUERIES = BodyBounds(4 * MEBIBYTE, 4 * MEBIBYTE)
OF_EVENTS = BodyBounds(16 * MEBIBYTE, 128 * MEBIBYTE)


class WebOptions(msgspec.Struct, frozen=True):
    """`logflare_errors` restores the incumbent's answers to failed queries: 200 with one sentence.

    `events` bounds bodies of events, `queries` those of everything else. `unread_bytes` is how much all answers may
    hold that are being sent; `webhooks` has the secrets of senders that sign; `query_room` has the memory for bodies that are not of events.
    """

    logflare_errors: bool = False
    events: BodyBounds = OF_EVENTS
    queries: BodyBounds = OF_QUERIES
    unread_bytes: int = 64 * MEBIBYTE
    webhooks: Webhooks = Webhooks()
    query_room: HoldingRoom = msgspec.field(default_factory=lambda: query_room(32 * MEBIBYTE))


def query_room(most_bytes: int) -> HoldingRoom:
    """Room for bodies while they arrive and are read; Busy where others hold it."""
    return HoldingRoom(most_bytes, refusal=_no_room)


def _no_room() -> Busy:
    return Busy("More queries are being read than are held in memory.", hint="Ask again in a moment.", retry_after=2)
