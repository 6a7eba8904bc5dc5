"""The same rows in every format, as parsed by independent readers."""

import csv
import io
import json
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time
from decimal import Decimal

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cordwood.errors import BadQueryValue
from cordwood.model.datatype import Column, Datatype, Kind, Row, Rows
from cordwood.web.encode import ANSWER_FORMATS_BY_NAME
from cordwood.web.encode.cells import distinct_names
from tests.attack.pattern_times import MAX_TIME_RATIO, time_ratio

COLUMN_KINDS = {
    "whole": Kind.INT64,
    "real": Kind.FLOAT64,
    "text": Kind.STRING,
    "flag": Kind.BOOL,
    "moment": Kind.TIMESTAMP,
    "local": Kind.DATETIME,
    "day": Kind.DATE,
    "clock": Kind.TIME,
    "octets": Kind.BYTES,
    "exact": Kind.NUMERIC,
    "nested": Kind.STRUCT,
    "any": Kind.VARIANT,
}
raw = msgspec.Raw
FULL_ROW: Row = (
    2**63 - 1,
    1.5,
    'é, "quoted"\nline',
    True,
    1_700_000_000_000_001,
    "2026-01-02T03:04:05.000006",
    "1969-12-31",
    "03:04:05.500000",
    "aGk=",
    raw(b"12345678901234567890123456789.123456789"),
    raw(b'{"a":[{"b":1}]}'),
    raw(b'"text"'),
)
NULL_ROW: Row = (None,) * len(COLUMN_KINDS)
EDGE_ROW: Row = (
    -(2**63),
    -0.25,
    "",
    False,
    -1,
    "0001-01-01T00:00:00",
    "9999-12-31",
    "00:00:00",
    "",
    raw(b"-3"),
    raw(b"[]"),
    raw(b"404"),
)
EXPECTED_TYPED_ROWS = [
    {
        "whole": 2**63 - 1,
        "real": 1.5,
        "text": 'é, "quoted"\nline',
        "flag": True,
        "moment": datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=UTC),
        "local": datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - a DATETIME has no zone
        "day": date(1969, 12, 31),
        "clock": time(3, 4, 5, 500000),
        "octets": b"hi",
        "exact": Decimal("12345678901234567890123456789.123456789"),
        "nested": '{"a":[{"b":1}]}',
        "any": "text",
    },
    dict.fromkeys(COLUMN_KINDS),
    {
        "whole": -(2**63),
        "real": -0.25,
        "text": "",
        "flag": False,
        "moment": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        "local": datetime(1, 1, 1),  # noqa: DTZ001 - a DATETIME has no zone
        "day": date(9999, 12, 31),
        "clock": time(0),
        "octets": b"",
        "exact": Decimal(-3),
        "nested": "[]",
        "any": "404",
    },
]


def rows_of_batches(batches: Iterable[list[Row]]) -> Rows:
    return Rows(tuple(Column(name, Datatype(kind)) for name, kind in COLUMN_KINDS.items()), batches)


def encode_rows(form: str, batches: Iterable[list[Row]]) -> bytes:
    return b"".join(ANSWER_FORMATS_BY_NAME[form].encode(rows_of_batches(batches)))


BATCHES = [[FULL_ROW, NULL_ROW], [], [EDGE_ROW]]


def test_json_keeps_column_order_and_nested_values() -> None:
    [first, nulls, _] = json.loads(encode_rows("json", BATCHES))["result"]
    assert list(first) == list(COLUMN_KINDS)
    assert first["nested"] == {"a": [{"b": 1}]}
    assert first["any"] == "text"
    assert set(nulls.values()) == {None}


@pytest.mark.parametrize("batches", [[], [[]], [[], []]])
def test_an_answer_without_rows_is_encoded(batches: list[list[Row]]) -> None:
    assert encode_rows("json", batches) == b'{"result":[]}'
    assert encode_rows("ndjson", batches) == b""
    assert encode_rows("csv", batches).decode() == ",".join(COLUMN_KINDS) + "\r\n"
    assert read_arrow(encode_rows("arrow", batches)).num_rows == 0
    assert read_parquet(encode_rows("parquet", batches)).num_rows == 0


def test_ndjson_has_the_rows_of_json_one_per_line() -> None:
    lines = encode_rows("ndjson", BATCHES).splitlines()
    assert [json.loads(line) for line in lines] == json.loads(encode_rows("json", BATCHES))["result"]


def test_csv_is_parsed_by_pythons_csv_module() -> None:
    [first, nulls, edges] = csv.DictReader(io.StringIO(encode_rows("csv", BATCHES).decode(), newline=""))
    assert first["text"] == 'é, "quoted"\nline'
    assert first["flag"] == "true"
    assert first["moment"] == "2023-11-14T22:13:20.000001Z"
    assert first["nested"] == '{"a":[{"b":1}]}'
    assert first["any"] == "text"
    assert first["exact"] == "12345678901234567890123456789.123456789"
    assert set(nulls.values()) == {""}
    assert (edges["any"], edges["moment"]) == ("404", "1969-12-31T23:59:59.999999Z")


@pytest.mark.parametrize("moment", [-(10**18), 10**18])
def test_csv_has_a_timestamp_beyond_the_calendar_as_a_number(moment: int) -> None:
    column = Column("moment", Datatype(Kind.TIMESTAMP))
    assert (
        b"".join(ANSWER_FORMATS_BY_NAME["csv"].encode(Rows((column,), [[(moment,)]]))) == b"moment\r\n%d\r\n" % moment
    )


def read_arrow(body: bytes) -> pa.Table:
    table = pa.ipc.open_stream(io.BytesIO(body)).read_all()
    table.validate(full=True)
    return table


def read_parquet(body: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(body))


@pytest.mark.parametrize(("form", "read"), [("arrow", read_arrow), ("parquet", read_parquet)])
def test_typed_formats_are_read_by_pyarrow_with_types_and_nulls(form: str, read: Callable[[bytes], pa.Table]) -> None:
    table = read(encode_rows(form, BATCHES))
    assert table.to_pylist() == EXPECTED_TYPED_ROWS
    assert str(table.schema.field("moment").type) == "timestamp[us, tz=UTC]"
    assert str(table.schema.field("local").type) == "timestamp[us]"
    assert str(table.schema.field("exact").type) == "decimal128(38, 9)"


@pytest.mark.parametrize(("form", "read"), [("arrow", read_arrow), ("parquet", read_parquet)])
def test_typed_formats_encode_many_batches(form: str, read: Callable[[bytes], pa.Table]) -> None:
    table = read(encode_rows(form, ([FULL_ROW, NULL_ROW, EDGE_ROW] * 333 for _ in range(45))))
    assert table.num_rows == 45 * 999
    assert table.slice(44_000, 3).to_pylist() == table.slice(44_000 % 3, 3).to_pylist()


def test_parquet_is_read_by_duckdb_too(tmp_path: object) -> None:
    path = f"{tmp_path}/rows.parquet"
    with open(path, "wb") as file:  # noqa: PTH123 - the path goes into SQL as text too
        file.write(encode_rows("parquet", BATCHES))
    with duckdb.connect() as connection:
        names = "text, day, clock, exact, local"
        relation = connection.execute(f"SELECT {names} FROM read_parquet(?)", [path]).fetchall()
    assert relation == [tuple(row[name] for name in names.split(", ")) for row in EXPECTED_TYPED_ROWS]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_are_numbers_in_typed_formats(text: str) -> None:
    column = (Column("real", Datatype(Kind.FLOAT64)),)
    for form, read in (("arrow", read_arrow), ("parquet", read_parquet)):
        body = b"".join(ANSWER_FORMATS_BY_NAME[form].encode(Rows(column, [[(text,)]])))
        assert str(read(body).to_pylist()[0]["real"]) == str(float(text))


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_an_integer_beyond_64_bits_is_a_fault_that_names_the_column(form: str) -> None:
    column = (Column("huge", Datatype(Kind.INT64)),)
    with pytest.raises(BadQueryValue, match="huge"):
        b"".join(ANSWER_FORMATS_BY_NAME[form].encode(Rows(column, [[(2**63,)]])))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a"], ["a", "a_1"]),
        (["a", "a", "a"], ["a", "a_1", "a_2"]),
        (["a", "a_1", "a"], ["a", "a_1", "a_2"]),
        (["a", "a", "a_1"], ["a", "a_2", "a_1"]),
        (["a", "a_1", "a_1", "a"], ["a", "a_1", "a_1_1", "a_2"]),
    ],
)
def test_columns_of_one_name_get_distinct_names(names: list[str], expected: list[str]) -> None:
    assert distinct_names([Column(name, Datatype(Kind.INT64)) for name in names]) == expected


def test_many_columns_of_one_name_take_linear_time() -> None:
    columns = [Column("a", Datatype(Kind.INT64))] * 8_000
    assert time_ratio(lambda: distinct_names(columns[:2_000]), lambda: distinct_names(columns)) < MAX_TIME_RATIO
