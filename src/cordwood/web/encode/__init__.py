"""Encoders of rows in all answer formats, and the choice of a format by `?format=` and the header `Accept`."""

from collections.abc import Mapping

from cordwood.errors import NotAcceptable
from cordwood.serve.query_request import AnswerFormat
from cordwood.web.asgi import parse_weighted_names
from cordwood.web.encode.arrow import encode_arrow as encode_arrow
from cordwood.web.encode.parquet import encode_parquet as encode_parquet
from cordwood.web.encode.text import (
    PROMETHEUS_MEDIA_TYPE,
    encode_csv,
    encode_json,
    encode_ndjson,
    encode_prometheus,
)

JSON_FORMAT = AnswerFormat("json", "application/json; charset=utf-8", encode_json)
# Only `?format=` selects this format. `Accept: text/plain` does not, because clients that send it expect rows.
PROMETHEUS_FORMAT = AnswerFormat("prometheus", PROMETHEUS_MEDIA_TYPE, encode_prometheus)
ANSWER_FORMATS_BY_NAME: Mapping[str, AnswerFormat] = {
    "json": JSON_FORMAT,
    "ndjson": AnswerFormat("ndjson", "application/x-ndjson", encode_ndjson, is_streamable=True),
    "csv": AnswerFormat("csv", "text/csv; charset=utf-8", encode_csv, is_streamable=True),
    "arrow": AnswerFormat("arrow", "application/vnd.apache.arrow.stream", encode_arrow),
    "parquet": AnswerFormat("parquet", "application/vnd.apache.parquet", encode_parquet),
    "prometheus": PROMETHEUS_FORMAT,
}

_FORMATS_BY_MEDIA_TYPE = {
    form.media_type.partition(";")[0]: form for form in ANSWER_FORMATS_BY_NAME.values() if form is not PROMETHEUS_FORMAT
}
_FORMAT_NAMES_BY_MEDIA_TYPE_ALIAS = {"application/ndjson": "ndjson", "application/jsonl": "ndjson"}
_FORMATS_BY_WILDCARD = {"*/*": JSON_FORMAT, "application/*": JSON_FORMAT, "text/*": ANSWER_FORMATS_BY_NAME["csv"]}


def choose_format(accept: str, format_name: str | None) -> AnswerFormat:
    """Return the format that `?format=` names, or else the available format that `Accept` prefers, by default JSON."""
    if format_name is not None:
        return _format_by_name(format_name)
    if not accept:
        return JSON_FORMAT
    for media_type in _media_types_by_preference(accept):
        found = _FORMATS_BY_MEDIA_TYPE.get(media_type) or _FORMATS_BY_WILDCARD.get(media_type)
        found = found or ANSWER_FORMATS_BY_NAME.get(_FORMAT_NAMES_BY_MEDIA_TYPE_ALIAS.get(media_type, ""))
        if found is not None:
            return found
    raise NotAcceptable(
        f"None of the accepted media types is available: {accept}.",
        hint="There are: " + ", ".join(_FORMATS_BY_MEDIA_TYPE) + ".",
    )


def _format_by_name(name: str) -> AnswerFormat:
    if name not in ANSWER_FORMATS_BY_NAME:
        raise NotAcceptable(
            f"There is no format {name!r}.", hint="There are: " + ", ".join(ANSWER_FORMATS_BY_NAME) + "."
        )
    return ANSWER_FORMATS_BY_NAME[name]


def _media_types_by_preference(header: str) -> list[str]:
    """Return the names in an `Accept` header, most preferred first, without names that have the weight 0."""
    wanted = [(name, weight) for name, weight in parse_weighted_names(header) if name and weight > 0]
    return [name for name, _ in sorted(wanted, key=lambda named: -named[1])]
