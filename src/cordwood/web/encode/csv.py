"""CSV encoder with a header line: null is an empty field, a nested value its JSON text."""

import csv
import io
from collections.abc import Iterator

from cordwood.model.rows import Rows
from cordwood.web.encode.cells import text_of
from cordwood.web.encode.names import distinct_names


def encode(rows: Rows) -> Iterator[bytes]:
    yield _lines([distinct_names(rows.columns)])
    for batch in rows.batches:
        if batch:
            yield _lines([[text_of(cell) or "" for cell in row] for row in batch])


def _lines(records: list[list[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(records)
    return out.getvalue().encode()
