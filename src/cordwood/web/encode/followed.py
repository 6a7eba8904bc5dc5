"""Encode pages of followed queries: rows as JSON objects, with the places of their events beside them."""

from collections.abc import Iterator

import msgspec

from cordwood.model.rows import Row, Rows
from cordwood.serve.query_request import Format
from cordwood.serve.tail.pages import FollowedRow, pack_rows
from cordwood.sql.follow import HIDDEN_COLUMNS
from cordwood.web.encode.cells import distinct_names

_encode = msgspec.json.Encoder().encode


def encode_followed(rows: Rows) -> Iterator[bytes]:
    names = distinct_names(rows.columns[:-HIDDEN_COLUMNS])
    for batch in rows.batches:
        if batch:
            yield pack_rows([_followed_row(names, row) for row in batch])


def _followed_row(names: list[str], row: Row) -> FollowedRow:
    data = _encode(dict(zip(names, row[:-HIDDEN_COLUMNS], strict=True)))
    if b"\n" in data or b"\r" in data:
        # JSON as it was sent may have line breaks between its tokens, and a line break ends a line of the stream.
        data = data.replace(b"\r", b" ").replace(b"\n", b" ")
    receipt_us, time_us, key = row[-HIDDEN_COLUMNS:]
    return FollowedRow(int(str(receipt_us)), int(str(time_us)), str(key), data)


FOLLOWED = Format("tail", "text/event-stream", encode_followed)
