"""Syslog messages of RFC 5424 (also as logplex sends them) and RFC 3164, one per line or with octet counts.

An octet count is a message's length in bytes, sent before the message. If a message has a priority but an unknown
header, all text after the priority becomes the text of the event, as RFC 3164 requires of relays.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from cordwood.ingest.formats.json import require_events
from cordwood.ingest.formats.syslog_frames import SyslogMessage, split_messages
from cordwood.ingest.parsed_body import Body, ParsedBody, PostedEvent, RefusedItem

StructuredDataElement = dict[str, object]

_encode = msgspec.json.Encoder().encode


def _reject_json_constant(name: str) -> object:
    raise ValueError(name)


# Unlike msgspec's decoder, this decoder accepts text after the JSON value. It rejects `NaN`, which is not JSON.
_json_decoder = json.JSONDecoder(parse_constant=_reject_json_constant)
# The maximum number of opening braces in a message that are tried as the start of JSON. Each attempt may read the whole
# message.
_MAX_JSON_START_ATTEMPTS = 8

SEVERITIES = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")
FACILITIES = (
    "kernel user mail system auth syslog lpr news uucp clock authpriv ftp ntp audit alert clock2"
    " local0 local1 local2 local3 local4 local5 local6 local7"
).split()

_HIGHEST_PRIORITY = 191
NOT_SYSLOG_REASON = "The line is not syslog."

_RFC_5424_LINE_PATTERN = re.compile(
    r"<(?P<priority>\d{1,3})>(?P<version>\d{1,2}) (?P<timestamp>\S+) (?P<hostname>\S+) (?P<appname>\S+)"
    r" (?P<process_id>\S+) (?P<message_id>\S+) ?(?P<rest>.*)",
    re.DOTALL,
)
# A line of RFC 3164, which `logger` and many devices still send. rsyslog may send it with a time of RFC 3339.
_RFC_3164_LINE_PATTERN = re.compile(
    r"<(?P<priority>\d{1,3})>(?P<timestamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) (?P<hostname>\S+)"
    r" (?P<appname>[^\s:\[]+)(?:\[(?P<process_id>[^\]]*)\])?: ?(?P<rest>.*)",
    re.DOTALL,
)
_PRIORITY_ONLY_LINE_PATTERN = re.compile(r"<(?P<priority>\d{1,3})>(?P<rest>.*)", re.DOTALL)
_COLOUR_ESCAPE_PATTERN = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_STRUCTURED_DATA_ELEMENT_PATTERN = re.compile(
    r'\[(?P<id>[^\s=\]"]+)(?P<parameters>(?: [^\s=\]"]+="(?:[^"\\]|\\.)*")*)\]'
)
_STRUCTURED_DATA_PARAMETER_PATTERN = re.compile(r' ([^\s=\]"]+)="((?:[^"\\]|\\.)*)"')
_STRUCTURED_DATA_ESCAPE_PATTERN = re.compile(r'\\(["\\\]])')
# A name is tried only at its first character, so that a long word without `=` is read once.
_LOGFMT_PAIR_PATTERN = re.compile(r'(?<![\w.@#/-])([\w.@#/-]++)=("(?:[^"\\]|\\.)*+"|\S*)')


def read_syslog(body: Body) -> ParsedBody:
    parsed = ParsedBody.create_empty_for_body(body)
    for index, line in split_messages(body.data, body.max_items):
        event = read_syslog_line(line)
        if event is None:
            parsed.refuse_item(index, NOT_SYSLOG_REASON, line)
        else:
            parsed.add_event(event, index)
    return require_events(parsed)


def read_syslog_messages(
    messages: Iterable[SyslogMessage], peer: str
) -> Iterator[tuple[str, PostedEvent | RefusedItem]]:
    """Decode messages of a socket; yield each event or refused item with the name of the app that sent it.

    `peer` is the sender's address.
    """
    for index, message in enumerate(messages):
        line = message.text
        if message.is_truncated:
            yield "", RefusedItem(index, "The message is too long.", line, is_truncated=True)
            continue
        found = _parse_header(line)
        if found is None:
            yield "", RefusedItem(index, NOT_SYSLOG_REASON, line)
        else:
            yield found.get("appname") or "", _make_event(line, found, {"peer": peer})


def read_syslog_line(line: str) -> PostedEvent | None:
    """Return a message as an event, or None if it is not syslog."""
    found = _parse_header(line)
    return None if found is None else _make_event(line, found, {})


def _parse_header(line: str) -> dict[str, str | None] | None:
    """Return the parts of a line by name, or None if the line has no valid priority."""
    match = (
        _RFC_5424_LINE_PATTERN.fullmatch(line)
        or _RFC_3164_LINE_PATTERN.fullmatch(line)
        or _PRIORITY_ONLY_LINE_PATTERN.fullmatch(line)
    )
    return None if match is None or int(match["priority"]) > _HIGHEST_PRIORITY else match.groupdict()


def _make_event(line: str, header_values: Mapping[str, str | None], more: StructuredDataElement) -> PostedEvent:
    is_new, rest = "version" in header_values, header_values["rest"] or ""
    data, text = _split_structured_data(rest) if is_new else ([], rest)
    message = _COLOUR_ESCAPE_PATTERN.sub("", text).strip()
    metadata = _priority_fields(int(header_values["priority"] or 0)) | _host_and_process_fields(header_values) | more
    metadata |= {"message_raw": line, "message_text": message, "sd": data + _find_embedded_json(message)}
    if header_values.get("appname") == "heroku":
        metadata["logfmt"] = {key: value.strip('"') for key, value in _LOGFMT_PAIR_PATTERN.findall(message)}
    timestamp = header_values.get("timestamp")
    # A time of RFC 3164 has neither a year nor a zone, so the time of receipt is used.
    is_readable = timestamp is not None and (is_new or timestamp[:1].isdigit())
    return PostedEvent(
        timestamp=timestamp if is_readable else None, event_message=message, metadata=msgspec.Raw(_encode(metadata))
    )


def _priority_fields(priority: int) -> StructuredDataElement:
    facility, severity = divmod(priority, 8)
    level = SEVERITIES[severity]
    return {"priority": priority, "facility": FACILITIES[facility], "severity": level, "level": level}


def _host_and_process_fields(header_values: Mapping[str, str | None]) -> StructuredDataElement:
    """Return the host name, app name, process id and message id of a header.

    A value that is missing, or is a dash (which means unknown), becomes None.
    """
    names = ("hostname", "appname", "process_id", "message_id")
    return {name: None if header_values.get(name) == "-" else header_values.get(name) for name in names}


def _split_structured_data(rest: str) -> tuple[list[StructuredDataElement], str]:
    """Split the rest of a line into structured data and message.

    Logplex omits the dash that stands for empty structured data.
    """
    if rest == "-" or rest.startswith("- "):
        return [], rest[2:]
    elements: list[StructuredDataElement] = []
    position = 0
    while element := _STRUCTURED_DATA_ELEMENT_PATTERN.match(rest, position):
        parameters = {
            name: _STRUCTURED_DATA_ESCAPE_PATTERN.sub(r"\1", value)
            for name, value in _STRUCTURED_DATA_PARAMETER_PATTERN.findall(element["parameters"])
        }
        elements.append({"id": element["id"], **parameters})
        position = element.end()
    return elements, rest[position:].lstrip().removeprefix("\ufeff")


def _find_embedded_json(message: str) -> list[StructuredDataElement]:
    """Return the first JSON object in the message, which is stored beside the structured data."""
    start = message.find("{")
    for _ in range(_MAX_JSON_START_ATTEMPTS):
        if start < 0:
            break
        try:
            value, _ = _json_decoder.raw_decode(message, start)
        except (ValueError, RecursionError):
            start = message.find("{", start + 1)
        else:
            return [{**value, "id": "json"}]
    return []
