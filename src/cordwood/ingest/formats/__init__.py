"""The wire formats of request bodies, with one module for each, and the table of their decoders.

A decoder is selected by the form of the body, which depends on the route, and by the content type.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial

import msgspec

from cordwood.errors import UnsupportedMediaType
from cordwood.ingest.formats.csv import TAB_SEPARATED_MEDIA_TYPE, read_csv
from cordwood.ingest.formats.datadog import read_logs as read_datadog
from cordwood.ingest.formats.elastic import read_documents
from cordwood.ingest.formats.erlang import read_bert
from cordwood.ingest.formats.journald import JOURNAL_MEDIA_TYPE as JOURNAL_MEDIA
from cordwood.ingest.formats.journald import read_journal
from cordwood.ingest.formats.json import (
    read_cloud_events,
    read_events_with_typecasts,
    read_json_events,
    read_logpush,
    read_ndjson,
    read_objects_as_messages,
    read_vector,
)
from cordwood.ingest.formats.loki import read_quarantined_streams
from cordwood.ingest.formats.otlp import LOGS_SIGNAL, METRICS_SIGNAL, TRACES_SIGNAL, OtlpSignal
from cordwood.ingest.formats.otlp import read_json_request as read_otlp_json
from cordwood.ingest.formats.otlp import read_protobuf_request as read_otlp_protobuf
from cordwood.ingest.formats.splunk import read_events as read_splunk
from cordwood.ingest.formats.syslog import read_syslog
from cordwood.ingest.formats.urlencoded_form import read_form
from cordwood.ingest.formats.webhooks import read_github, read_netlify, read_vercel
from cordwood.ingest.parsed_body import Body, LabelledBody, ParsedBody
from cordwood.model.json_checks import FORM_MEDIA_TYPE, is_json_sent_as_form

BodyDecoder = Callable[[Body], ParsedBody]


class BodyFormat(StrEnum):
    """The form of the bodies that a route or listener accepts.

    If a form has several decoders, the content type of the body selects one.
    """

    EVENTS = "events"
    JSON = "json"
    VECTOR = "vector"
    LOGPUSH = "logpush"
    BROWSER_REPORTS = "reports"
    CLOUD_EVENT = "cloud-event"
    SYSLOG = "syslog"
    JOURNALD = "journald"
    FLUENT = "fluent"
    OTLP = "otlp"
    OTLP_TRACES = "otlp-traces"
    OTLP_METRICS = "otlp-metrics"
    ERLANG = "erlang"
    TYPECASTS = "typecasts"
    VERCEL = "vercel"
    NETLIFY = "netlify"
    GITHUB = "github"
    DATADOG = "datadog"
    ELASTIC = "elastic"
    SPLUNK = "splunk"
    LOKI = "loki"


_NDJSON_MEDIA_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
_JSON_MEDIA_TYPES = ("application/json", "text/json")
_TEXT_MEDIA_TYPES = ("text/plain",)
_CSV_MEDIA_TYPES = ("text/csv", TAB_SEPARATED_MEDIA_TYPE)


def _decoders_by_media_type(media: tuple[str, ...], read: BodyDecoder) -> dict[str, BodyDecoder]:
    return dict.fromkeys(media, read)


def _decoders_of_signal(signal: OtlpSignal) -> dict[str, BodyDecoder]:
    protobuf = partial(read_otlp_protobuf, signal)
    return {"application/json": partial(read_otlp_json, signal)} | _decoders_by_media_type(
        ("application/x-protobuf", "application/protobuf"), protobuf
    )


def _quarantined_item_decoder(read: Callable[[Body], LabelledBody]) -> BodyDecoder:
    """Return a decoder for a single quarantined item, which ignores labels: the stream of a replay is already known."""

    def read_item(body: Body) -> ParsedBody:
        return next(iter(read(body).parts_by_labels.values()), ParsedBody.create_empty_for_body(body))

    return read_item


_DECODERS_BY_FORMAT: Mapping[BodyFormat, Mapping[str, BodyDecoder]] = {
    BodyFormat.EVENTS: _decoders_by_media_type(_JSON_MEDIA_TYPES, read_json_events)
    | _decoders_by_media_type(_NDJSON_MEDIA_TYPES, read_ndjson)
    | _decoders_by_media_type(_CSV_MEDIA_TYPES, read_csv)
    | {FORM_MEDIA_TYPE: read_form, JOURNAL_MEDIA: read_journal},
    BodyFormat.JSON: _decoders_by_media_type(_JSON_MEDIA_TYPES, read_objects_as_messages),
    BodyFormat.VECTOR: _decoders_by_media_type(
        (*_JSON_MEDIA_TYPES, *_NDJSON_MEDIA_TYPES, *_TEXT_MEDIA_TYPES), read_vector
    ),
    BodyFormat.LOGPUSH: _decoders_by_media_type(
        (*_JSON_MEDIA_TYPES, *_NDJSON_MEDIA_TYPES, *_TEXT_MEDIA_TYPES), read_logpush
    ),
    BodyFormat.BROWSER_REPORTS: _decoders_by_media_type(
        (*_JSON_MEDIA_TYPES, "application/reports+json", "application/csp-report"), read_objects_as_messages
    ),
    BodyFormat.SYSLOG: _decoders_by_media_type(
        ("application/logplex-1", "application/syslog", *_TEXT_MEDIA_TYPES), read_syslog
    ),
    BodyFormat.JOURNALD: {JOURNAL_MEDIA: read_journal},
    # Messages of Fluent arrive at a listener of their own. This entry is only for replays: it decodes quarantined
    # messages, which are stored as JSON.
    BodyFormat.FLUENT: _decoders_by_media_type(_JSON_MEDIA_TYPES, read_json_events),
    BodyFormat.OTLP: _decoders_of_signal(LOGS_SIGNAL),
    BodyFormat.OTLP_TRACES: _decoders_of_signal(TRACES_SIGNAL),
    BodyFormat.OTLP_METRICS: _decoders_of_signal(METRICS_SIGNAL),
    BodyFormat.ERLANG: _decoders_by_media_type(_JSON_MEDIA_TYPES, read_json_events)
    | _decoders_by_media_type(("application/bert", "application/x-erlang-binary"), read_bert),
    BodyFormat.TYPECASTS: _decoders_by_media_type(_JSON_MEDIA_TYPES, read_events_with_typecasts),
    BodyFormat.VERCEL: _decoders_by_media_type((*_JSON_MEDIA_TYPES, *_NDJSON_MEDIA_TYPES), read_vercel),
    BodyFormat.NETLIFY: _decoders_by_media_type((*_JSON_MEDIA_TYPES, *_NDJSON_MEDIA_TYPES), read_netlify),
    BodyFormat.GITHUB: _decoders_by_media_type(_JSON_MEDIA_TYPES, read_github) | {FORM_MEDIA_TYPE: read_github},
    BodyFormat.CLOUD_EVENT: _decoders_by_media_type(
        (*_JSON_MEDIA_TYPES, "application/cloudevents+json"), read_cloud_events
    ),
    # Bodies of the following forms have labels, and are decoded by the modules of web/shippers, not by this table.
    # These entries are only for replays of quarantined items of the forms.
    BodyFormat.DATADOG: _decoders_by_media_type(
        _JSON_MEDIA_TYPES, _quarantined_item_decoder(partial(read_datadog, {}))
    ),
    BodyFormat.ELASTIC: _decoders_by_media_type(_JSON_MEDIA_TYPES, read_documents),
    BodyFormat.SPLUNK: _decoders_by_media_type(_JSON_MEDIA_TYPES, _quarantined_item_decoder(partial(read_splunk, {}))),
    BodyFormat.LOKI: _decoders_by_media_type(_JSON_MEDIA_TYPES, _quarantined_item_decoder(read_quarantined_streams)),
}


def read_body(form: BodyFormat, body: Body) -> ParsedBody:
    """Decode a body by its form and media type.

    A charset in the Content-Type is ignored, because JSON is always UTF-8.
    """
    formats = _DECODERS_BY_FORMAT[form]
    if "application/json" in formats and is_json_sent_as_form(body.media_type, body.data):
        body = msgspec.structs.replace(body, content_type="application/json")
    media = (
        "application/json" if body.media_type.endswith("+json") and body.media_type not in formats else body.media_type
    )
    try:
        read = formats[media]
    except KeyError:
        raise UnsupportedMediaType(
            f"Events cannot be read from {media or 'a body without a Content-Type'}.",
            hint=f"Send one of: {', '.join(formats)}.",
        ) from None
    return read(body)
