"""The wire formats, one module each, and the table that selects the format by route and content type."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial

import msgspec

from cordwood.errors import UnsupportedMedia
from cordwood.ingest.formats.csv import TAB_SEPARATED, read_csv
from cordwood.ingest.formats.datadog import read_logs as read_datadog
from cordwood.ingest.formats.elastic import read_documents
from cordwood.ingest.formats.erlang import read_bert
from cordwood.ingest.formats.form import read_form
from cordwood.ingest.formats.journald import MEDIA as JOURNAL_MEDIA
from cordwood.ingest.formats.journald import read_journal
from cordwood.ingest.formats.json import (
    read_cloud_events,
    read_json,
    read_logpush,
    read_ndjson,
    read_typecasts,
    read_vector,
    read_whole,
)
from cordwood.ingest.formats.loki import read_streams
from cordwood.ingest.formats.otlp import LOGS, METRICS, TRACES, Signal
from cordwood.ingest.formats.otlp import read_json as read_otlp_json
from cordwood.ingest.formats.otlp import read_protobuf as read_otlp_protobuf
from cordwood.ingest.formats.splunk import read_events as read_splunk
from cordwood.ingest.formats.syslog import read_syslog
from cordwood.ingest.formats.webhooks import read_github, read_netlify, read_vercel
from cordwood.ingest.parsed_body import Body, LabelledBody, ParsedBody
from cordwood.model.json_checks import FORM_MEDIA_TYPE, is_json_sent_as_form

Format = Callable[[Body], ParsedBody]


class Form(StrEnum):
    """The form of bodies that a route or listener accepts. If it has several decoders, the content type selects one."""

    EVENTS = "events"
    JSON = "json"
    VECTOR = "vector"
    LOGPUSH = "logpush"
    REPORTS = "reports"
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


_NDJSON = ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines")
_JSON = ("application/json", "text/json")
_TEXT = ("text/plain",)
_CSV = ("text/csv", TAB_SEPARATED)


def _by_media_type(media: tuple[str, ...], read: Format) -> dict[str, Format]:
    return dict.fromkeys(media, read)


def _of_signal(signal: Signal) -> dict[str, Format]:
    protobuf = partial(read_otlp_protobuf, signal)
    return {"application/json": partial(read_otlp_json, signal)} | _by_media_type(
        ("application/x-protobuf", "application/protobuf"), protobuf
    )


def _one_item(read: Callable[[Body], LabelledBody]) -> Format:
    """Return a decoder of a single quarantined item, which is replayed to a stream that is already known."""

    def read_item(body: Body) -> ParsedBody:
        return next(iter(read(body).parts.values()), ParsedBody.of(body))

    return read_item


_TABLE: Mapping[Form, Mapping[str, Format]] = {
    Form.EVENTS: _by_media_type(_JSON, read_json)
    | _by_media_type(_NDJSON, read_ndjson)
    | _by_media_type(_CSV, read_csv)
    | {FORM_MEDIA_TYPE: read_form, JOURNAL_MEDIA: read_journal},
    Form.JSON: _by_media_type(_JSON, read_whole),
    Form.VECTOR: _by_media_type((*_JSON, *_NDJSON, *_TEXT), read_vector),
    Form.LOGPUSH: _by_media_type((*_JSON, *_NDJSON, *_TEXT), read_logpush),
    Form.REPORTS: _by_media_type((*_JSON, "application/reports+json", "application/csp-report"), read_whole),
    Form.SYSLOG: _by_media_type(("application/logplex-1", "application/syslog", *_TEXT), read_syslog),
    Form.JOURNALD: {JOURNAL_MEDIA: read_journal},
    # Fluent messages arrive at their own listener; this entry decodes quarantined items again.
    Form.FLUENT: _by_media_type(_JSON, read_json),
    Form.OTLP: _of_signal(LOGS),
    Form.OTLP_TRACES: _of_signal(TRACES),
    Form.OTLP_METRICS: _of_signal(METRICS),
    Form.ERLANG: _by_media_type(_JSON, read_json)
    | _by_media_type(("application/bert", "application/x-erlang-binary"), read_bert),
    Form.TYPECASTS: _by_media_type(_JSON, read_typecasts),
    Form.VERCEL: _by_media_type((*_JSON, *_NDJSON), read_vercel),
    Form.NETLIFY: _by_media_type((*_JSON, *_NDJSON), read_netlify),
    Form.GITHUB: _by_media_type(_JSON, read_github) | {FORM_MEDIA_TYPE: read_github},
    Form.CLOUD_EVENT: _by_media_type((*_JSON, "application/cloudevents+json"), read_cloud_events),
    # Bodies of these forms have labels, and are decoded by the modules of web/shippers.
    Form.DATADOG: _by_media_type(_JSON, _one_item(partial(read_datadog, {}))),
    Form.ELASTIC: _by_media_type(_JSON, read_documents),
    Form.SPLUNK: _by_media_type(_JSON, _one_item(partial(read_splunk, {}))),
    Form.LOKI: _by_media_type(_JSON, _one_item(read_streams)),
}


def read_body(form: Form, body: Body) -> ParsedBody:
    """Decode a body by its form and media type. A charset in the Content-Type is ignored: JSON is always UTF-8."""
    formats = _TABLE[form]
    if "application/json" in formats and is_json_sent_as_form(body.media_type, body.data):
        body = msgspec.structs.replace(body, content_type="application/json")
    media = (
        "application/json" if body.media_type.endswith("+json") and body.media_type not in formats else body.media_type
    )
    try:
        read = formats[media]
    except KeyError:
        raise UnsupportedMedia(
            f"Events cannot be read from {media or 'a body without a Content-Type'}.",
            hint=f"Send one of: {', '.join(formats)}.",
        ) from None
    return read(body)
