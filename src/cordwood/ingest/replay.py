"""Decode a quarantined item again, by the current rules, with its original time of receipt."""

import msgspec

from cordwood.ingest.formats import Form, read_body
from cordwood.ingest.posted import Body, Reading


class Kept(msgspec.Struct, frozen=True):
    """A quarantined item; `text` is the whole item in the format of its route.

    If `is_transformed` is true, the stream's transforms were applied before it was quarantined.
    """

    id: str
    received_us: int
    stream: str
    form: Form
    text: str
    project: str | None = None
    is_transformed: bool = False


def read_again(item: Kept) -> Reading:
    """Decode the item. An event without an id gets the item's id, so that a second replay is a duplicate."""
    reading = read_body(item.form, _body(item))
    for posted in reading.events:
        if posted.id in {None, ""}:
            posted.id = item.id
    return reading


def _body(item: Kept) -> Body:
    """Return the item as the only element of an array, so that its content is not taken for a batch or lines."""
    if item.form is Form.SYSLOG:
        return Body(item.text.encode(), "application/syslog")
    return Body(f"[{item.text}]".encode(), "application/json")
