"""Answers in Prometheus's text format, for a scrape.

Each numeric column is a metric of its name, with one sample for each row, whose labels are the text columns. A null is
left out. Times are left out as well, because Prometheus records the time of the scrape.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

from cordwood.errors import QueryValue
from cordwood.model.datatype import Kind
from cordwood.model.rows import Cell, Row, Rows
from cordwood.web.encode.cells import distinct_names, text_of

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NUMBERS: Final = frozenset({Kind.INT64, Kind.FLOAT64, Kind.NUMERIC, Kind.BOOL})
_TIME_KINDS: Final = frozenset({Kind.TIMESTAMP, Kind.DATETIME, Kind.DATE, Kind.TIME})
# Prometheus reserves names that begin with two underscores.
_NAME: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def encode_prometheus(rows: Rows) -> Iterator[bytes]:
    """Yield one metric after the other; raise QueryValue for rows that cannot be samples."""
    names = distinct_names(rows.columns)
    kinds = [column.datatype.kind for column in rows.columns]
    metrics = [place for place, kind in enumerate(kinds) if kind in _NUMBERS]
    labels = [place for place, kind in enumerate(kinds) if kind not in _NUMBERS | _TIME_KINDS]
    if not metrics:
        raise QueryValue(
            "The answer has no numeric column, so it has no metric for Prometheus.",
            hint="Select a number, for example COUNT(*) AS requests.",
        )
    for place in (*metrics, *labels):
        _check_name(names[place])
    labelled_rows = list(_labelled(rows, names, labels))
    for place in metrics:
        lines = [f"# TYPE {names[place]} gauge\n"]
        lines += [
            f"{names[place]}{labelled} {_number(row[place], names[place])}\n"
            for labelled, row in labelled_rows
            if row[place] is not None
        ]
        yield "".join(lines).encode()


def _labelled(rows: Rows, names: Sequence[str], labels: Sequence[int]) -> Iterator[tuple[str, Row]]:
    """Yield each row with its labels; raise QueryValue if an earlier row has the same labels."""
    seen: set[str] = set()
    for batch in rows.batches:
        for row in batch:
            labelled = _labels([(names[place], row[place]) for place in labels])
            if labelled in seen:
                raise QueryValue(
                    f"Two rows have the same labels {labelled or '{}'}, so they are one series for Prometheus.",
                    hint="GROUP BY every text column of the query.",
                )
            seen.add(labelled)
            yield labelled, row


def _labels(cells: Sequence[tuple[str, Cell]]) -> str:
    texts = [(name, text_of(cell)) for name, cell in cells]
    parts = [f'{name}="{text.translate(_ESCAPES)}"' for name, text in texts if text is not None]
    return f"{{{','.join(parts)}}}" if parts else ""


def _number(cell: Cell, name: str) -> str:
    if isinstance(cell, bool) or cell in ("true", "false"):
        return "1" if cell in (True, "true") else "0"
    text = str(cell) if isinstance(cell, float) else text_of(cell) or ""
    try:
        number = float(text)
    except ValueError:
        raise QueryValue(f"A value of the column {name} is no number.", hint="Cast it to FLOAT64.") from None
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return text


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise QueryValue(
            f"The column {name!r} cannot be the name of a metric or a label of Prometheus.",
            hint="Rename it with AS: letters, digits and _, with a letter first.",
        )
