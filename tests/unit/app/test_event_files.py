"""Files of events are read in bounded memory, and events without an id get a stable one."""

import gzip
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

from cordwood.app.event_files import MAX_FILE_RECORD_BYTES, FileRecord, ReadOptions, add_missing_id, open_event_file
from cordwood.errors import BadBody
from cordwood.ingest.formats.csv import ColumnTypes, CsvOptions

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def records_in(file: Path, reading: ReadOptions = ReadOptions()) -> Sequence[FileRecord]:  # noqa: B008 - frozen
    with open_event_file(file, reading) as opened:
        return list(opened.events())


def events_in(file: Path, reading: ReadOptions = ReadOptions()) -> Sequence[bytes]:  # noqa: B008 - frozen
    return [record.json_bytes for record in records_in(file, reading)]


def with_ids(*events: bytes) -> Sequence[bytes]:
    return [add_missing_id(number, event) for number, event in enumerate(events)]


def derived_ids(*events: bytes) -> Sequence[object]:
    return [json.loads(event)["id"] for event in with_ids(*events)]


def test_an_event_with_an_id_is_unchanged() -> None:
    assert with_ids(b'{"a": 1, "id": "x"}') == [b'{"a": 1, "id": "x"}']


def test_a_missing_id_is_derived_from_position_and_text() -> None:
    events = (b'{"a": 1}', b" {  }", b'{"a": 1}')
    assert derived_ids(*events) == derived_ids(*events)
    assert len(set(derived_ids(*events))) == 3
    # The ids must be the same in all versions, because otherwise a repeated import would store duplicates.
    assert derived_ids(events[0]) == ["22da65b0-209c-1d08-7e80-77a4eb5aaaed"]


def test_a_null_id_is_missing() -> None:
    (event,) = with_ids(b'{"id": null, "a": 1}')
    assert b'"id":"' in event


@pytest.mark.parametrize(
    ("line", "is_unchanged"),
    [(b'{"Id": "x"}', True), (b'{"Id": 5}', False), (b'{"id": null, "Id": "x"}', False)],
)
def test_an_id_in_another_case_is_an_id_unless_it_is_a_number(line: bytes, *, is_unchanged: bool) -> None:
    assert (with_ids(line) == [line]) == is_unchanged


@pytest.mark.parametrize(
    "line", [b"{broken", b"[1]", b"5", b'"text"', b'{"a":' * 100_000], ids=["broken", "array", "number", "text", "deep"]
)
def test_a_line_that_is_not_an_event_is_unchanged(line: bytes) -> None:
    assert with_ids(line) == [line]


EVENT_LINES = b'{"id": 1}\n\n  \n{"id": 2}'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.ndjson", EVENT_LINES),
        ("a", b"\xef\xbb\xbf" + EVENT_LINES),
        ("a.gz", gzip.compress(EVENT_LINES)),
        ("a.ndjson.gz", gzip.compress(EVENT_LINES[:5]) + gzip.compress(EVENT_LINES[5:])),
        ("a.zst", zstd.compress(EVENT_LINES)),
        ("a.log.zst", zstd.compress(EVENT_LINES[:5]) + zstd.compress(EVENT_LINES[5:])),
        ("a.json", b'[{"id": 1},\n\n\n{"id": 2}]'),
        ("a", b'{"id": 1}{"id": 2}'),
        ("a.csv", b"id\n1\n2\n"),
    ],
    ids=["ndjson", "no ending", "gzip", "members", "zstd", "frames", "array", "documents", "csv"],
)
def test_format_and_compression_are_detected(tmp_path: Path, name: str, content: bytes) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert [int(json.loads(event)["id"]) for event in events_in(file)] == [1, 2]


def test_records_have_their_line_numbers(tmp_path: Path) -> None:
    file = tmp_path / "a.ndjson"
    file.write_bytes(EVENT_LINES)
    assert [record.position for record in records_in(file)] == [1, 4]
    file = tmp_path / "a.json"
    file.write_bytes(b'[{"id": 1},\n\n\n{"id":\n2}]')
    assert [record.position for record in records_in(file)] == [1, 4]
    assert events_in(file)[1] == b'{"id": 2}'


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(gzip.compress(EVENT_LINES)))))
    assert events_in(Path("-")) == [b'{"id": 1}', b'{"id": 2}']


def test_columns_of_csv_may_differ_in_case_from_fields(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('Id,Metadata\nx,"{""a"": 1}"\n7,\n')
    first, second = (json.loads(event) for event in events_in(file))
    assert first == {"Id": "x", "Metadata": {"a": 1}}
    assert (second["Id"], len(second["id"])) == ("7", 36)


def test_csv_types_are_optional_and_do_not_change_ids(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("status;m\n200;x\n200;x\n1;2;3\n")
    as_text, typed = (
        records_in(file),
        records_in(file, ReadOptions(csv_options=CsvOptions(column_types=ColumnTypes("auto")))),
    )
    first, second, refused = (json.loads(record.json_bytes) for record in as_text)
    assert (first["status"], first["m"], refused) == ("200", "x", "1;2;3")
    assert first["id"] != second["id"]
    assert [json.loads(record.json_bytes) for record in typed[:2]] == [
        first | {"status": 200},
        second | {"status": 200},
    ]
    assert (as_text[2].position, as_text[2].refusal_reason) == (4, "The record has 3 fields, but the header has 2.")


def test_text_formats_must_be_named_and_the_refusal_suggests_one(tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    file.write_text("ts=1 level=info msg=a\n  not logfmt\nts=2 level=info msg=b\n")
    with pytest.raises(BadBody) as refused:
        records_in(file)
    assert "--as logfmt" in refused.value.one_line_text()
    as_logfmt = records_in(file, ReadOptions("logfmt"))
    assert [record.refusal_reason for record in as_logfmt] == [None, "The line is not in the format logfmt.", None]
    as_lines = [json.loads(event) for event in events_in(file, ReadOptions("lines"))]
    assert [event["event_message"] for event in as_lines] == file.read_text().splitlines()
    assert len({event["id"] for event in as_lines}) == 3


def syslog_messages(*texts: bytes) -> list[bytes]:
    return [b"<13>1 - h a - - - " + text for text in texts]


def with_octet_counts(messages: Sequence[bytes]) -> bytes:
    return b"".join(b"%d %s" % (len(message), message) for message in messages)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("count", [1, 5000], ids=["short", "longer than the sample"])
def test_a_syslog_file_is_split_by_its_octet_counts(tmp_path: Path, mark: bytes, count: int) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(mark + with_octet_counts(syslog_messages(b"one", b"two \xff\nmore", b"three\n") * count))
    messages = [json.loads(event)["event_message"] for event in events_in(file, ReadOptions("syslog"))]
    assert messages == ["one", "two \ufffd\nmore", "three"] * count


def test_a_syslog_message_that_is_cut_off_or_invalid_is_refused_with_its_number(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    whole = with_octet_counts([*syslog_messages(b"one") * 5000, b"<999>x"])
    file.write_bytes(whole + with_octet_counts(syslog_messages(b"cut off"))[:-2])
    refused = [record for record in records_in(file, ReadOptions("syslog")) if record.refusal_reason]
    assert [(record.position, record.refusal_reason) for record in refused] == [
        (5001, "The line is not syslog."),
        (5002, "The message is too long or cut off."),
    ]


def test_with_wrong_octet_counts_each_line_of_a_syslog_file_is_a_message(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"".join(b"%d %s\n" % (len(line) - 3, line) for line in syslog_messages(b"one", b"two")))
    events = [json.loads(event) for event in events_in(file, ReadOptions("syslog"))]
    assert [event["event_message"] for event in events] == ["one", "two"]


def test_a_journal_export_is_read_entry_by_entry(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    binary = b"MESSAGE\n" + (3).to_bytes(8, "little") + b"a\nb\n"
    file.write_bytes(b"__CURSOR=c1\n__REALTIME_TIMESTAMP=5\n" + binary + b"\n__CURSOR=c2\nno field\n\n__CURSOR=c3\n")
    first, refused, last = records_in(file)
    assert json.loads(first.json_bytes) == {"id": "c1", "timestamp": 5, "event_message": "a\nb", "metadata": {}}
    assert (refused.position, "neither NAME=value" in (refused.refusal_reason or "")) == (2, True)
    assert json.loads(last.json_bytes)["id"] == "c3"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"resourceLogs": []}', "/v1/logs"),
        (b"\0\1\2", "cordwood sniff"),
        ("id\n1\n".encode("utf-16"), "iconv"),
        (b"some text, and more of it\n", "--as lines"),
    ],
)
def test_a_file_of_another_format_is_refused_with_a_hint(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "a"
    file.write_bytes(content)
    with pytest.raises(BadBody) as refused:
        records_in(file)
    assert message in refused.value.one_line_text()


def test_parquet_is_not_read_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(b"PAR1"))))
    with pytest.raises(BadBody, match="standard input cannot be read as Parquet"):
        records_in(Path("-"))


GZIP_BYTES = gzip.compress(b'{"id": 1}\n' * 1000)
ZSTD_FRAME = zstd.compress(b'{"id": 1}\n' * 1000)


@pytest.mark.parametrize(
    "content",
    [
        GZIP_BYTES[:-20],
        GZIP_BYTES[:12],
        GZIP_BYTES + b"more",
        GZIP_BYTES[:20] + b"\xff" * 9 + GZIP_BYTES[29:],
        ZSTD_FRAME[:-3],
        ZSTD_FRAME[:5] + b"x" + ZSTD_FRAME[6:],
    ],
    ids=["cut off", "its beginning", "followed by others", "damaged", "cut off zstd", "damaged zstd"],
)
def test_a_truncated_or_damaged_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(content)
    with pytest.raises(BadBody, match=r"a\.gz cannot be read"):
        events_in(file)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", b'[{"a": 1},\n{"a" 1}]', "Line 2: the text is not JSON"),
        ("a.csv", b'a,b\n1,"' + (b"x" * 999 + b"\n") * (MAX_FILE_RECORD_BYTES // 1000), "Line 2: the record is longer"),
        ("a.csv", b"a,a\n1,2\n", "column 'a' 2 times"),
    ],
    ids=["json", "open quote", "header"],
)
def test_errors_in_a_file_have_its_name_and_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(BadBody, match=f"^{file}: .*{message}"):
        records_in(file)


def test_a_line_that_is_too_long_is_refused_and_the_next_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.ndjson"
    file.write_bytes(b'{"a": "' + b"x" * MAX_FILE_RECORD_BYTES + b'"}\n{"id": "b"}\n')
    too_long, after = records_in(file)
    assert (too_long.position, too_long.refusal_reason) == (1, "The line is longer than 16 MiB.")
    assert len(too_long.json_bytes) < 10_000
    assert (after.position, after.json_bytes) == (2, b'{"id": "b"}')


def parquet_file(folder: Path, query: str) -> Path:
    file = folder / "a.parquet"
    duckdb.execute(f"copy ({query}) to '{file}' (format parquet)")
    return file


def test_numbers_of_parquet_that_are_not_json_become_texts(tmp_path: Path) -> None:
    values = "'nan'::double as x, {'a': ['infinity'::float, 1.5, null], 'b': {'c': -'infinity'::double}} as y"
    file = parquet_file(tmp_path, f"select 'e1' as id, {values}, 'NaN, \\\" Infinity' as event_message, 2.5 as z")
    (event,) = events_in(file)
    assert json.loads(event) == {
        "id": "e1",
        "x": "NaN",
        "y": {"a": ["Infinity", 1.5, None], "b": {"c": "-Infinity"}},
        "event_message": 'NaN, \\" Infinity',
        "z": 2.5,
    }


@pytest.mark.parametrize(
    ("text", "metadata"),
    [
        ('{"a":\n1}', {"a": 1}),
        ('{"a": NaN, "b": [-Infinity]}', {"a": "NaN", "b": ["-Infinity"]}),
        ("{broken", "{broken"),
        ('{"a": 1} {', '{"a": 1} {'),
    ],
)
def test_a_text_in_the_column_metadata_becomes_an_object_on_one_line_if_it_is_json(
    text: str, metadata: object, tmp_path: Path
) -> None:
    (event,) = events_in(parquet_file(tmp_path, f"select 'e1' as id, '{text}' as Metadata"))
    assert json.loads(event)["Metadata"] == metadata
    assert b"\n" not in event


def test_a_parquet_row_that_cannot_be_decoded_is_refused_with_its_number(tmp_path: Path) -> None:
    columns = "'e' || i as id, now() as timestamp, 'm' as event_message, 'p' as project, null::varchar as metadata"
    extras = "case when i = 2 then '{broken' end as extras, now() as ingested_at, false as timestamp_inferred"
    records = records_in(parquet_file(tmp_path, f"select {columns}, {extras} from range(1, 4) r(i)"))
    assert [(record.position, bool(record.refusal_reason)) for record in records] == [(1, False), (2, True), (3, False)]
    assert "The row is not JSON" in str(records[1].refusal_reason)


def test_an_invalid_parquet_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1 and then nothing of the kind")
    with pytest.raises(BadBody, match="cannot be read as Parquet"):
        events_in(file)


@pytest.mark.parametrize("name", ["a.ndjson", "a.gz", "a.parquet"])
def test_progress_grows_from_zero_to_one(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    text = b'{"id": 1}\n' * 50_000
    if name.endswith("parquet"):
        duckdb.execute("copy (select 1 as id from range(50000)) to '" + str(file) + "' (format parquet)")
    else:
        file.write_bytes(text if name.endswith("ndjson") else gzip.compress(text))
    with open_event_file(file, ReadOptions()) as read:
        shares = [read.read_fraction or 0.0 for _ in read.events()]
    assert shares == sorted(shares)
    assert shares[0] < 0.5 or name.endswith("gz")
    assert shares[-1] == 1.0
