"""Files of events are read line by line, and events without an id get one that is always the same."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

from cordwood.app.event_files import EventFile, with_ids
from cordwood.errors import BadBody


def events_in(file: Path) -> Sequence[bytes]:
    return list(EventFile(file).events())


def ids(*events: bytes) -> Sequence[object]:
    return [json.loads(event)["id"] for event in with_ids(iter(events))]


def test_an_event_with_an_id_goes_as_it_is() -> None:
    assert list(with_ids(iter([b'{"a": 1, "id": "x"}']))) == [b'{"a": 1, "id": "x"}']


def test_an_event_without_one_gets_one_from_its_place_and_text() -> None:
    events = (b'{"a": 1}', b" {  }", b'{"a": 1}')
    assert ids(*events) == ids(*events)
    assert len(set(ids(*events))) == 3


def test_an_id_that_is_null_is_none() -> None:
    (event,) = with_ids(iter([b'{"id": null, "a": 1}']))
    assert b'"id":"' in event


@pytest.mark.parametrize("line", [b"{broken", b"[1]", b"5", b'"text"'])
def test_what_is_no_event_goes_as_it_is(line: bytes) -> None:
    assert list(with_ids(iter([line]))) == [line]


def test_lines_are_read_plain_and_packed_and_empty_ones_are_none(tmp_path: Path) -> None:
    text = b'{"id": 1}\n\n  \n{"id": 2}'
    plain, packed = tmp_path / "a.ndjson", tmp_path / "a.gz"
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    assert events_in(plain) == events_in(packed) == [b'{"id": 1}', b'{"id": 2}']


def test_a_file_that_breaks_off_says_so(tmp_path: Path) -> None:
    file = tmp_path / "a.gz"
    file.write_bytes(gzip.compress(b'{"id": 1}\n' * 1000)[:-20])
    with pytest.raises(BadBody, match=r"a\.gz cannot be read"):
        events_in(file)


def test_a_parquet_file_that_is_none_says_so(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1 and then nothing of the kind")
    with pytest.raises(BadBody, match="cannot be read as Parquet"):
        events_in(file)


@pytest.mark.parametrize("name", ["a.ndjson", "a.gz", "a.parquet"])
def test_how_much_was_read_grows_from_nothing_to_all(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    text = b'{"id": 1}\n' * 50_000
    if name.endswith("parquet"):
        duckdb.execute("copy (select 1 as id from range(50000)) to '" + str(file) + "' (format parquet)")
    else:
        file.write_bytes(text if name.endswith("ndjson") else gzip.compress(text))
    read = EventFile(file)
    shares = [read.share for _ in read.events()]
    assert shares == sorted(shares)
    assert shares[0] < 0.5 or name.endswith("gz")
    assert shares[-1] == 1.0
