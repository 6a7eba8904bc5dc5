"""The operator's settings for the HTTP layer, as plain values."""

import msgspec

from cordwood.errors import Busy
from cordwood.ingest.body_budget import BodyBudget
from cordwood.ingest.stream_mapping import StreamMapping
from cordwood.web.receiving import BodyBounds

MEBIBYTE = 1024 * 1024

# A query has at most 256 Ki characters. JSON may escape each to six bytes, and a form to twelve bytes in UTF-8.
QUERY_BODY_BOUNDS = BodyBounds(4 * MEBIBYTE, 4 * MEBIBYTE)
EVENT_BODY_BOUNDS = BodyBounds(16 * MEBIBYTE, 128 * MEBIBYTE)


class Webhooks(msgspec.Struct, frozen=True):
    """The secrets by sender; no secret means no check. `vercel_verify` is the token that proves ownership to Vercel."""

    vercel_secret: str = ""
    vercel_verify: str = ""
    github_secret: str = ""


class WebOptions(msgspec.Struct, frozen=True):
    """Options of the HTTP layer. `logflare_errors` returns failed queries as Logflare does: 200 with a message.

    `events` limits bodies of events, `queries` all others. `unread_bytes` bounds the memory of answers that are being
    sent. `webhooks` has the secrets of signing senders. `query_budget` is the memory budget of bodies other than events.
    `stream_mapping` maps the labels of shippers to streams. `offers_sign_in` enables the page that signs in by a link.
    """

    logflare_errors: bool = False
    events: BodyBounds = EVENT_BODY_BOUNDS
    queries: BodyBounds = QUERY_BODY_BOUNDS
    unread_bytes: int = 64 * MEBIBYTE
    webhooks: Webhooks = Webhooks()
    query_budget: BodyBudget = msgspec.field(default_factory=lambda: query_budget(32 * MEBIBYTE))
    stream_mapping: StreamMapping = StreamMapping()
    offers_sign_in: bool = False


def query_budget(max_bytes: int) -> BodyBudget:
    """Return the memory budget of query bodies, which raises Busy when it is used up."""
    return BodyBudget(max_bytes, refusal=_budget_fault)


def _budget_fault() -> Busy:
    return Busy("More queries are being read than are held in memory.", hint="Ask again in a moment.", retry_after=2)
