"""JSON encoder: `{"result": [...]}`, with the keys of each row in select order."""

from collections.abc import Iterator

import msgspec

from cordwood.model.rows import Rows
from cordwood.web.encode.names import distinct_names


def encode(rows: Rows) -> Iterator[bytes]:
    names = distinct_names(rows.columns)
    encoder = msgspec.json.Encoder()
    opening = b'{"result":['
    for batch in rows.batches:
        if batch:
            objects = encoder.encode([dict(zip(names, row, strict=True)) for row in batch])
            yield opening + objects[1:-1]
            opening = b","
    yield b'{"result":[]}' if opening != b"," else b"]}"
