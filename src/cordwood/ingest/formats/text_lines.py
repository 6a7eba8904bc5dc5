"""Lines of text files: logfmt, access logs of web servers, and plain lines. Each line becomes an event."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from cordwood.ingest.formats.syslog import read_syslog_line
from cordwood.ingest.formats.syslog_frames import remove_octet_count
from cordwood.ingest.parsed_body import PostedEvent

_encode = msgspec.json.Encoder().encode

# A time at the beginning of a line, with or without brackets: ISO 8601, with a comma or a point before the fraction.
_LEADING_TIME_PATTERN: Final = re.compile(
    r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)(?=[\s\],;|]|$)", re.ASCII
)


def read_plain_line(line: str) -> PostedEvent:
    """Return the line as the message of an event. A time at its beginning becomes the time of the event."""
    time = _LEADING_TIME_PATTERN.match(line)
    return PostedEvent(timestamp=time[1] if time else None, event_message=line)


# A pair of logfmt. The value may be in quotes, with backslash escapes. A key without a value gets the value true.
_LOGFMT_PAIR_PATTERN: Final = re.compile(r'\s*([^\s="]++)(?:=("(?:[^"\\]|\\.)*+"|[^\s"]*+))?(?=\s|$)')
_LOGFMT_ESCAPE_PATTERN: Final = re.compile(r"\\(.)", re.DOTALL)
_CHARACTERS_BY_ESCAPE: Final = {"n": "\n", "t": "\t", "r": "\r"}
_TIME_FIELDS: Final = ("timestamp", "ts", "time", "t")
_MESSAGE_FIELDS: Final = ("msg", "message", "event_message")


def read_logfmt_line(line: str) -> PostedEvent | None:
    """Return a logfmt line as an event with its pairs as metadata, or None for any other line.

    A logfmt line consists only of pairs. At least two pairs, and at least half of all pairs, have a value.
    """
    pairs = _parse_logfmt_pairs(line)
    if pairs is None:
        return None
    message = next((pairs[name] for name in _MESSAGE_FIELDS if isinstance(pairs.get(name), str)), line)
    time = next((pairs[name] for name in _TIME_FIELDS if isinstance(pairs.get(name), str)), None)
    return PostedEvent(
        timestamp=None if time is None else str(time),
        event_message=str(message),
        metadata=msgspec.Raw(_encode(pairs)),
    )


def _parse_logfmt_pairs(line: str) -> dict[str, str | bool] | None:
    pairs: dict[str, str | bool] = {}
    at = valued = 0
    text = line.rstrip()
    while at < len(text):
        pair = _LOGFMT_PAIR_PATTERN.match(text, at)
        if pair is None:
            return None
        at = pair.end()
        pairs[pair[1]] = True if pair[2] is None else _unquote_logfmt_value(pair[2])
        valued += pair[2] is not None
    # At least two values are required, because an ordinary sentence may contain one equals sign.
    return pairs if valued >= 2 and valued * 2 >= len(pairs) else None


def _unquote_logfmt_value(value: str) -> str:
    if not value.startswith('"'):
        return value
    return _LOGFMT_ESCAPE_PATTERN.sub(lambda escape: _CHARACTERS_BY_ESCAPE.get(escape[1], escape[1]), value[1:-1])


_QUOTED_TEXT_PATTERN: Final = r'"((?:[^"\\]|\\.)*+)"'
# A line in the common or the combined log format of Apache and nginx. Further fields may follow at its end.
_ACCESS_LOG_LINE_PATTERN: Final = re.compile(
    r"(?P<client>\S+) (?P<identity>\S+) (?P<user>\S+) \[(?P<time>[^\]]{20,40})\] "
    rf"{_QUOTED_TEXT_PATTERN.replace('(', '(?P<request>', 1)} (?P<status>\d{{3}}) (?P<bytes>\d+|-)"
    rf"(?: {_QUOTED_TEXT_PATTERN.replace('(', '(?P<referer>', 1)} {_QUOTED_TEXT_PATTERN.replace('(', '(?P<agent>', 1)})?(?=\s|$)",
    re.ASCII,
)
_REQUEST_LINE_PATTERN: Final = re.compile(r"([A-Z]{1,20}) (\S+)(?: (HTTP/[\d.]+))?")


def read_access_log_line(line: str) -> PostedEvent | None:
    """Return a line in the common or combined log format as an event, or None for any other line."""
    found = _ACCESS_LOG_LINE_PATTERN.match(line)
    if found is None:
        return None
    request = _REQUEST_LINE_PATTERN.fullmatch(found["request"])
    method, path, protocol = request.groups() if request else (None, None, None)
    headers = {
        "referer": _none_if_hyphen_or_empty(found["referer"]),
        "user_agent": _none_if_hyphen_or_empty(found["agent"]),
    }
    metadata = {
        "request": _without_none(
            {
                "method": method,
                "path": path,
                "protocol": protocol,
                "remote_addr": found["client"],
                "user": _none_if_hyphen_or_empty(found["user"]),
                "headers": _without_none(headers) or None,
            }
        ),
        "response": _without_none(
            {
                "status_code": int(found["status"]),
                "bytes": int(found["bytes"][:18]) if found["bytes"] != "-" else None,
            }
        ),
    }
    return PostedEvent(timestamp=found["time"], event_message=line, metadata=msgspec.Raw(_encode(metadata)))


def _none_if_hyphen_or_empty(value: str | None) -> str | None:
    return None if value in {None, "-", ""} else value


def _without_none(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}


def _read_syslog_line_with_optional_count(line: str) -> PostedEvent | None:
    return read_syslog_line(remove_octet_count(line))


LineDecoder = Callable[[str], PostedEvent | None]
LINE_DECODERS: Final[Mapping[str, LineDecoder]] = {
    "lines": read_plain_line,
    "logfmt": read_logfmt_line,
    "combined": read_access_log_line,
    "syslog": _read_syslog_line_with_optional_count,
}


def encode_event(event: PostedEvent) -> bytes:
    """Return the event as JSON, in the form in which events are sent to the service."""
    fields: dict[str, object] = {
        "id": event.id,
        "timestamp": event.timestamp,
        "event_message": event.event_message,
        "metadata": event.metadata if bytes(event.metadata) else None,
    }
    return _encode(_without_none(fields))
