"""The format of a file is detected from the beginning of the file, and its first events are decoded."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.errors import BadBody, BodyTooLarge
from cordwood.ingest.sniff import FileSample, FormatConfidence, decode_sample, detect_possible_formats

OTLP_LOGS = '{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "hi"}}]}]}]}'
OTLP_SPANS = '{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "s", "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331"}]}]}]}'
ACCESS_LOG_LINE = '1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 5'
# For each file: its format, its content, and the messages of the first events, or None if they are not decoded.
FORMATS_AND_FILES: list[tuple[str, str, list[str | None] | None]] = [
    ("ndjson", '{"message": "a"}\n{"message": "b"}\n', ["a", "b"]),
    ("ndjson", '{"message": "a"}\nbroken\n{"message": "b"}\n', ["a", "b"]),
    ("json", '[{"message": "a"},\n {"message": "b"}]', ["a", "b"]),
    ("json", '{\n  "message": "a"\n}\n', ["a"]),
    ("csv", "id,message\n1,a\n2,b\n", ["a", "b"]),
    ("csv", "time\tmessage\n1\ta\n2\tb\n", ["a", "b"]),
    ("syslog", "<34>1 2003-10-11T22:14:15.003Z host su - ID47 - a\n", ["a"]),
    ("syslog", "<34>Oct 11 22:14:15 host su[1]: a\n<34>Oct 11 22:14:15 host su[1]: b\n", ["a", "b"]),
    ("syslog", "22 <13>1 - h a - - - one\n22 <13>1 - h a - - - two\n", ["one", "two"]),
    ("syslog", "26 <13>1 - h a - - - one\nmore21 <13>1 - h a - - - two", ["one\nmore", "two"]),
    ("combined", f"{ACCESS_LOG_LINE}\n", [ACCESS_LOG_LINE]),
    ("logfmt", 'ts=1 level=info msg=a\nts=2 level=info msg="b"\n', ["a", "b"]),
    ("otlp", OTLP_LOGS, ["hi"]),
    ("otlp", OTLP_SPANS, ["s"]),
    ("loki", '{"streams": [{"stream": {"app": "x"}, "values": [["1", "a"]]}]}', ["a"]),
    ("elasticsearch", '{"index": {"_index": "x"}}\n{"message": "a"}\n{"create": {}}\n{"message": "b"}\n', ["a", "b"]),
    ("journald", "__CURSOR=s=1\n__REALTIME_TIMESTAMP=1\nMESSAGE=a\n\n", ["a"]),
    ("lines", "first line\nsecond line\n", ["first line", "second line"]),
    ("parquet", "PAR1\0\0", None),
    ("binary", "\0\1\2", None),
]

# Hypothesis generates fewer examples, because it is slow on a loaded machine.
FEWER_EXAMPLES = settings(max_examples=60)


FORMATS_THAT_MAY_BE_CUT = {"ndjson", "csv", "combined", "logfmt", "elasticsearch", "journald"}


def sample_of(text: str, *, is_whole: bool = True) -> FileSample:
    return FileSample(text.encode(), is_whole)


@pytest.mark.parametrize(
    ("name", "text", "messages"),
    FORMATS_AND_FILES,
    ids=[f"{file[0]}-{number}" for number, file in enumerate(FORMATS_AND_FILES)],
)
def test_a_format_is_detected_and_its_events_are_decoded(
    name: str, text: str, messages: list[str | None] | None
) -> None:
    formats = detect_possible_formats(sample_of(text))
    assert formats[0].name == name
    assert formats[0].reason.endswith(".")
    parsed = decode_sample(name, sample_of(text))
    first_messages = parsed and [event.event_message or event.message for event in parsed.events]
    assert first_messages == messages


@pytest.mark.parametrize(
    ("name", "text"), [file[:2] for file in FORMATS_AND_FILES if file[0] in FORMATS_THAT_MAY_BE_CUT]
)
def test_a_sample_may_end_in_the_middle_of_a_line(name: str, text: str) -> None:
    cut = sample_of(text * 30 + text[:7], is_whole=False)
    assert detect_possible_formats(cut)[0].name == name
    assert decode_sample(name, cut)


def test_syslog_with_octet_counts_may_be_longer_than_the_sample() -> None:
    cut = sample_of("26 <13>1 - h a - - - one\nmore" * 30 + "25 <13>1 - h", is_whole=False)
    (found, *_) = detect_possible_formats(cut)
    assert (found.name, found.confidence) == ("syslog", FormatConfidence.CERTAIN)
    assert "octet count" in found.reason
    parsed = decode_sample("syslog", cut)
    assert parsed is not None
    assert [event.event_message for event in parsed.events] == ["one\nmore"] * 30


def test_an_array_that_is_longer_than_the_sample_is_detected() -> None:
    cut = sample_of("[" + '{"message": "a"},' * 30 + '{"mess', is_whole=False)
    assert (detect_possible_formats(cut)[0].name, detect_possible_formats(cut)[0].confidence) == (
        "json",
        FormatConfidence.CERTAIN,
    )
    parsed = decode_sample("json", cut)
    assert parsed is not None
    assert len(parsed.events) == 30
    only_item = sample_of('[{"message": "' + "x" * 1000, is_whole=False)
    assert (detect_possible_formats(only_item)[0].confidence, decode_sample("json", only_item)) == (
        FormatConfidence.POSSIBLE,
        None,
    )


def test_a_malformed_array_is_detected_with_its_error() -> None:
    (formats, *_) = detect_possible_formats(sample_of('[{"message": "a"},\n{"message" "b"}]'))
    assert (formats.name, formats.confidence) == ("json", FormatConfidence.LIKELY)
    assert "Line 2: the text is not JSON" in formats.reason


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("id,message\n1,a\n2,b\n", FormatConfidence.CERTAIN),
        ("a_column,b_column\n1,a\n2,b\n", FormatConfidence.LIKELY),
        ("started, now\nstopped, then, and again\nso, it is\n", FormatConfidence.POSSIBLE),
        ("2026-01-01,5\n2026-01-02,6\n", FormatConfidence.POSSIBLE),
    ],
)
def test_the_confidence_in_csv_depends_on_its_header_and_its_records(text: str, confidence: FormatConfidence) -> None:
    (formats,) = [finding for finding in detect_possible_formats(sample_of(text)) if finding.name == "csv"]
    assert formats.confidence == confidence


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("start", ["[2026-01-01 00:00:00] started", "[INFO] started", "{a} started"])
def test_text_in_brackets_is_not_json(start: str, is_whole: bool) -> None:  # noqa: FBT001 - a case
    assert detect_possible_formats(sample_of(f"{start}\n" * 30, is_whole=is_whole))[0].name == "lines"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 50_000,
        '"' * 100_000,
        "a,b\n" + '"' * 100_001,
        "=" * 100_000,
        "a=1 " * 50_000,
        "\n" * 100_000,
        "<1>" * 50_000,
        '{"resourceLogs":[' * 20_000,
        json.dumps({f"k{n}": n for n in range(20_000)}),
    ],
    ids=lambda text: repr(text[:10]),
)
@pytest.mark.parametrize("is_whole", [True, False])
def test_hostile_text_is_examined_within_limits(text: str, is_whole: bool) -> None:  # noqa: FBT001 - a case
    hostile = sample_of(text, is_whole=is_whole)
    names = [finding.name for finding in detect_possible_formats(hostile)]
    assert len(set(names)) == len(names)
    _decode_all(hostile)


@FEWER_EXAMPLES
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_examined(data: bytes, is_whole: bool) -> None:  # noqa: FBT001 - generated
    _decode_all(FileSample(data, is_whole))


def _decode_all(hostile: FileSample) -> None:
    for finding in detect_possible_formats(hostile):
        try:
            parsed = decode_sample(finding.name, hostile)
        except (BadBody, BodyTooLarge):
            continue
        assert parsed is None or len(parsed.events) + len(parsed.refused_items) <= len(hostile.data)
