"""The operator's choices about HTTP, as plain values."""

import msgspec

from cordwood.errors import Busy
from cordwood.ingest.body_budget import BodyBudget
from cordwood.ingest.stream_mapping import StreamMapping
from cordwood.web.receiving import BodyBounds
from cordwood.web.webhook_signatures import Webhooks

MEBIBYTE = 1024 * 1024

# A query has at most 256 Ki characters. JSON may escape each to six bytes, a UTF-8 form to twelve.
OF_QUERIES = BodyBounds(4 * MEBIBYTE, 4 * MEBIBYTE)
OF_EVENTS = BodyBounds(16 * MEBIBYTE, 128 * MEBIBYTE)


class WebOptions(msgspec.Struct, frozen=True):
    """Options of the HTTP layer. `logflare_errors` returns failed queries as Logflare does: 200 with a message.

    `events` limits bodies of events, `queries` all others. `unread_bytes` bounds the memory of answers that are being
    sent. `webhooks` has the secrets of signing senders. `query_budget` is the memory budget of bodies other than events.
    `stream_mapping` leads the labels of shippers to streams. `offers_sign_in` serves the page that takes the key of a link.
    """

    logflare_errors: bool = False
    events: BodyBounds = OF_EVENTS
    queries: BodyBounds = OF_QUERIES
    unread_bytes: int = 64 * MEBIBYTE
    webhooks: Webhooks = Webhooks()
    query_budget: BodyBudget = msgspec.field(default_factory=lambda: query_budget(32 * MEBIBYTE))
    stream_mapping: StreamMapping = StreamMapping()
    offers_sign_in: bool = False


def query_budget(most_bytes: int) -> BodyBudget:
    """Return the memory budget of query bodies; Busy is raised if it is exhausted."""
    return BodyBudget(most_bytes, refusal=_no_room)


def _no_room() -> Busy:
    return Busy("More queries are being read than are held in memory.", hint="Ask again in a moment.", retry_after=2)
