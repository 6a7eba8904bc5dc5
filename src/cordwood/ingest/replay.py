"""Reads an item that was set aside once more, as it was sent: by today's rules, at the time when it first came."""

import msgspec

from cordwood.ingest.formats import Form, read_body
from cordwood.ingest.posted import Body, Reading


class Kept(msgspec.Struct, frozen=True):
    """What the quarantine holds of an item; `text` is all of it, in the form of the route that took it.

    One that `is_transformed` was read before it was set aside: the stream's transforms were applied to it then.
    """

    id: str
    received_us: int
    stream: str
    form: Form
    text: str
    project: str | None = None
    is_transformed: bool = False


def read_again(item: Kept) -> Reading:
    """An event without an id gets the item's: replayed twice it is known again."""
    reading = read_body(item.form, _body(item))
    for posted in reading.events:
        if posted.id in {None, ""}:
            posted.id = item.id
    return reading


def _body(item: Kept) -> Body:
    """The item alone in an array, where its form knows one: nothing in it is then taken for a batch or a line."""
    if item.form is Form.SYSLOG:
        return Body(item.text.encode(), "application/syslog")
    return Body(f"[{item.text}]".encode(), "application/json")
