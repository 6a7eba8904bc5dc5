"""Wire formats: one a file; this table says which content type is read by which."""

from collections.abc import Callable

from cordwood.errors import UnsupportedMedia
from cordwood.ingest.formats.json import read_json
from cordwood.ingest.formats.ndjson import read_ndjson
from cordwood.ingest.posted import Reading

Format = Callable[[str], Reading]

_BY_CONTENT_TYPE: dict[str, Format] = {
    "application/json": read_json,
    "text/json": read_json,
    "application/x-ndjson": read_ndjson,
    "application/ndjson": read_ndjson,
    "application/jsonl": read_ndjson,
    "application/x-jsonlines": read_ndjson,
}


def format_of(content_type: str) -> Format:
    """The reader for a Content-Type header; its parameters do not matter, for JSON is UTF-8."""
    media = content_type.split(";", 1)[0].strip().lower()
    if media.endswith("+json"):
        return read_json
    try:
        return _BY_CONTENT_TYPE[media]
    except KeyError:
        raise UnsupportedMedia(
            f"Events cannot be read from {media or 'a body without a Content-Type'}.",
            hint=f"Send one of: {', '.join(_BY_CONTENT_TYPE)}.",
        ) from None
