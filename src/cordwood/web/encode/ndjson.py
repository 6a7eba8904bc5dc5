"""NDJSON encoder: one JSON object for each row."""

from collections.abc import Iterator

import msgspec

from cordwood.model.rows import Rows
from cordwood.web.encode.names import distinct_names


def encode(rows: Rows) -> Iterator[bytes]:
    names = distinct_names(rows.columns)
    encoder = msgspec.json.Encoder()
    for batch in rows.batches:
        if batch:
            yield encoder.encode_lines([dict(zip(names, row, strict=True)) for row in batch])
