"""Content negotiation: the format of an answer, from `?format=` and the `Accept` header."""

from collections.abc import Mapping

from cordwood.errors import NotAcceptable
from cordwood.serve.ask import Format
from cordwood.web.encode import arrow, csv, json, ndjson, parquet

JSON = Format("json", "application/json; charset=utf-8", json.encode)
FORMATS: Mapping[str, Format] = {
    "json": JSON,
    "ndjson": Format("ndjson", "application/x-ndjson", ndjson.encode, streams=True),
    "csv": Format("csv", "text/csv; charset=utf-8", csv.encode, streams=True),
    "arrow": Format("arrow", "application/vnd.apache.arrow.stream", arrow.encode),
    "parquet": Format("parquet", "application/vnd.apache.parquet", parquet.encode),
}

_BY_MEDIA_TYPE = {form.media_type.partition(";")[0]: form for form in FORMATS.values()}
_OTHER_NAMES = {"application/ndjson": "ndjson", "application/jsonl": "ndjson"}
_WILDCARDS = {"*/*": JSON, "application/*": JSON, "text/*": FORMATS["csv"]}


def chosen_format(accept: str, named: str | None) -> Format:
    """Return the format in `?format=`, else the best one in `Accept`, else JSON."""
    if named is not None:
        return _named(named)
    if not accept:
        return JSON
    for media_type in _by_preference(accept):
        found = _BY_MEDIA_TYPE.get(media_type) or _WILDCARDS.get(media_type)
        found = found or FORMATS.get(_OTHER_NAMES.get(media_type, ""))
        if found is not None:
            return found
    raise NotAcceptable(
        f"None of what the request accepts can be had: {accept}.",
        hint="There are: " + ", ".join(_BY_MEDIA_TYPE) + ".",
    )


def _named(name: str) -> Format:
    if name not in FORMATS:
        raise NotAcceptable(f"There is no format {name!r}.", hint="There are: " + ", ".join(FORMATS) + ".")
    return FORMATS[name]


def _by_preference(header: str) -> list[str]:
    """Return the names in a header with weights, most preferred first, without those of weight 0."""
    weighted: list[tuple[float, int, str]] = []
    for part in header.split(","):
        name, *attributes = (piece.strip().lower() for piece in part.split(";"))
        weight = next((_weight(text[2:]) for text in attributes if text.startswith("q=")), 1.0)
        if name and weight > 0:
            weighted.append((-weight, len(weighted), name))
    return [name for _, _, name in sorted(weighted)]


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
