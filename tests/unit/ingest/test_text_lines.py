"""Lines of logfmt, access logs and plain text become events."""

import json

import pytest

from cordwood.ingest.build_events import parse_timestamp_us
from cordwood.ingest.formats.text_lines import encode_event, read_access_log_line, read_logfmt_line, read_plain_line
from cordwood.ingest.parsed_body import PostedEvent

ACCESS_LOG_LINE = (
    '10.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.1" 404 23 "https://x/\\"y" "Mozilla/5.0 (X)"'
)


def metadata(event: PostedEvent | None) -> object:
    assert event is not None
    return json.loads(bytes(event.metadata))


def test_an_access_log_line_is_parsed() -> None:
    event = read_access_log_line(ACCESS_LOG_LINE)
    assert event is not None
    assert (event.event_message, parse_timestamp_us(event.timestamp)) == (ACCESS_LOG_LINE, 971_211_336_000_000)
    headers = {"referer": 'https://x/\\"y', "user_agent": "Mozilla/5.0 (X)"}
    assert metadata(event) == {
        "request": {
            "method": "GET",
            "path": "/a?b=c",
            "protocol": "HTTP/1.1",
            "remote_addr": "10.0.0.1",
            "user": "frank",
            "headers": headers,
        },
        "response": {"status_code": 404, "bytes": 23},
    }


def test_the_common_log_format_and_an_invalid_request_line_are_parsed() -> None:
    event = read_access_log_line('::1 - - [10/Oct/2000:13:55:36 +0000] "\\x16\\x03" 400 -')
    assert metadata(event) == {"request": {"remote_addr": "::1"}, "response": {"status_code": 400}}
    assert read_access_log_line("no access line") is None


def test_logfmt_has_its_message_and_time() -> None:
    event = read_logfmt_line('ts=2026-01-01T00:00:00Z level=info msg="a \\"b\\"\\n" took=1.5s ok')
    assert event is not None
    assert (event.timestamp, event.event_message) == ("2026-01-01T00:00:00Z", 'a "b"\n')
    assert metadata(event) == {
        "ts": "2026-01-01T00:00:00Z",
        "level": "info",
        "msg": 'a "b"\n',
        "took": "1.5s",
        "ok": True,
    }


@pytest.mark.parametrize("line", ["a sentence with a=b", "a=1", 'a=1 b="open', 'a="1"b=2', ""])
def test_a_line_that_is_not_logfmt_is_refused(line: str) -> None:
    assert read_logfmt_line(line) is None


@pytest.mark.parametrize(
    ("line", "time_us"),
    [
        ("2026-01-01T00:00:00.5Z started", 1_767_225_600_500_000),
        ("[2026-01-01 00:00:00,123] started", 1_767_225_600_123_000),
        ("2026-01-01T02:00:00+02:00 started", 1_767_225_600_000_000),
        ("2026-01-01T00:00:00Zx", None),
        ("started at 2026-01-01T00:00:00Z", None),
    ],
)
def test_a_plain_line_is_a_message_with_its_leading_timestamp(line: str, time_us: int | None) -> None:
    event = read_plain_line(line)
    assert (event.event_message, parse_timestamp_us(event.timestamp)) == (line, time_us)


def test_the_json_of_an_event_omits_absent_fields() -> None:
    assert json.loads(encode_event(read_plain_line("x"))) == {"event_message": "x"}
    assert json.loads(encode_event(PostedEvent(timestamp=1, event_message="x"))) == {
        "timestamp": 1,
        "event_message": "x",
    }


@pytest.mark.parametrize("text", ["a", '"', 'a="' + "\\", "1 - - [x", " ", '1 - - [x] "\\"', "a=", "=a "])
def test_long_lines_of_no_format_are_refused_quickly(text: str) -> None:
    """Check long lines that match no format, for which a backtracking pattern would not end in reasonable time."""
    line = text * 50_000 + "="
    assert read_plain_line(line).timestamp is None
    assert read_logfmt_line(line) is None
    assert read_access_log_line(line) is None
