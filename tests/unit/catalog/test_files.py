"""Files become a catalog whole, or not at all, and then every broken one is told."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from cordwood.catalog.catalog import Contents, Sources
from cordwood.catalog.files import FileCatalog, read_contents
from cordwood.errors import BadEndpointFile, BadStreamFile, BrokenFiles, QuerySyntax, Span
from cordwood.model.endpoint import Endpoint
from cordwood.model.stream import Stream

NINE = {
    "cloudflare.logs.prod",
    "deno-relay-logs",
    "deno-subhosting-events",
    "gotrue.logs.prod",
    "pgbouncer.logs.prod",
    "postgREST.logs.prod",
    "postgres.logs",
    "realtime.logs.prod",
    "storage.logs.prod.2",
}


def accept(endpoint: Endpoint, streams: Sequence[Stream]) -> None:
    """A compiler that takes everything."""


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.sql").write_text(text)
    return tmp_path


def endpoint_text(name: str, extra: str = "") -> str:
    return f'/* name = "{name}"\n{extra} */ select 1'


def own(endpoints: Path) -> Sources:
    return Sources(endpoints=endpoints, shipped=False)


def test_the_nine_streams_ship() -> None:
    streams = read_contents(Sources(), accept).streams
    assert {stream.name for stream in streams} == NINE
    assert len({stream.id for stream in streams}) == 9


def test_endpoints_and_streams_are_found_by_name_and_by_uuid(tmp_path: Path) -> None:
    catalog = FileCatalog(read_contents(Sources(endpoints=folder(tmp_path, a=endpoint_text("a"))), accept))
    endpoint, stream = catalog.endpoint("a"), catalog.stream("postgres.logs")
    assert endpoint is not None
    assert stream is not None
    assert catalog.endpoint(str(endpoint.id).upper()) is endpoint
    assert catalog.stream(str(stream.id)) is stream
    assert catalog.endpoint("b") is None
    assert catalog.stream("b") is None


def test_names_differ_by_case() -> None:
    assert FileCatalog(read_contents(Sources(), accept)).stream("POSTGRES.LOGS") is None


def test_files_in_folders_of_the_folder_count(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.sql").write_text(endpoint_text("a"))
    assert [endpoint.name for endpoint in read_contents(own(tmp_path), accept).endpoints] == ["a"]


def test_every_broken_file_is_told_and_not_only_the_first(tmp_path: Path) -> None:
    files = folder(tmp_path, a="select 1", b=endpoint_text("b"), c=endpoint_text("c", "x = 1"))

    def check(endpoint: Endpoint, _: Sequence[Stream]) -> None:
        raise QuerySyntax("No.", span=Span(7, 3, endpoint.file))

    with pytest.raises(BrokenFiles) as caught:
        read_contents(own(files), check)
    assert [str(fault.span).rpartition("/")[2] for fault in caught.value.faults] == [
        "a.sql:1:1",
        "c.sql:2:1",
        "b.sql:7:3",
    ]
    assert all(name in caught.value.message for name in ("a.sql:1:1", "b.sql:7:3: No.", "c.sql:2:1"))


@pytest.mark.parametrize("extra", ["", 'id = "0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"'])
def test_two_files_may_not_share_a_name(tmp_path: Path, extra: str) -> None:
    files = folder(tmp_path, a=endpoint_text("x"), b=endpoint_text("x", extra))
    with pytest.raises(BrokenFiles, match=r"b\.sql:1:1: The name x is also that of .*a\.sql"):
        read_contents(own(files), accept)


def test_two_files_may_not_share_an_id(tmp_path: Path) -> None:
    same = 'id = "0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"'
    files = folder(tmp_path, a=endpoint_text("x", same), b=endpoint_text("y", same))
    with pytest.raises(BrokenFiles, match="The id 0b1e6a52"):
        read_contents(own(files), accept)


def test_a_folder_or_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadEndpointFile, match="does not exist"):
        read_contents(own(tmp_path / "gone"), accept)
    with pytest.raises(BadStreamFile, match="cannot be read"):
        read_contents(Sources(streams=tmp_path / "gone"), accept)


def test_a_file_that_is_no_text_is_told_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_bytes(b"\xff\xfe")
    with pytest.raises(BrokenFiles, match=r"a\.sql:1:1: The file cannot be read"):
        read_contents(own(tmp_path), accept)


def test_streams_of_ones_own_add_to_the_nine_and_override_by_name(tmp_path: Path) -> None:
    file = tmp_path / "streams.toml"
    file.write_text('[[stream]]\nname = "mine"\n[[stream]]\nname = "postgres.logs"\nretention = "1d"')
    streams = {stream.name: stream for stream in read_contents(Sources(streams=file), accept).streams}
    assert set(streams) == NINE | {"mine"}
    assert streams["postgres.logs"].retention_seconds == 86_400


def test_an_overridden_stream_keeps_its_id_unless_it_states_one(tmp_path: Path) -> None:
    file = tmp_path / "streams.toml"
    file.write_text('[[stream]]\nname = "postgres.logs"\nretention = "1d"')
    shipped, mine = (
        next(stream for stream in read_contents(sources, accept).streams if stream.name == "postgres.logs")
        for sources in (Sources(), Sources(streams=file))
    )
    assert shipped.id == mine.id


def test_a_stream_may_not_take_anothers_id(tmp_path: Path) -> None:
    taken = next(iter(read_contents(Sources(), accept).streams)).id
    file = tmp_path / "streams.toml"
    file.write_text(f'[[stream]]\nname = "mine"\nid = "{taken}"')
    with pytest.raises(BadStreamFile, match="is also that of"):
        read_contents(Sources(streams=file), accept)


def test_contents_are_replaced_all_at_once(tmp_path: Path) -> None:
    before = read_contents(Sources(shipped=False, endpoints=folder(tmp_path, a=endpoint_text("a"))), accept)
    catalog = FileCatalog(before)
    catalog.replace(Contents((), before.streams))
    assert catalog.endpoint("a") is None
    assert catalog.endpoints() == ()


def test_a_file_whose_ending_is_in_capitals_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "A.SQL").write_text(endpoint_text("a"))
    with pytest.raises(BrokenFiles) as caught:
        read_contents(own(tmp_path), accept)
    assert "A.SQL:1:1: An endpoint file ends in .sql, in small letters." in str(caught.value)


def test_a_stream_that_differs_from_a_shipped_one_only_in_capitals_is_refused(tmp_path: Path) -> None:
    (tmp_path / "streams.toml").write_text('[[stream]]\nname = "Postgres.Logs"')
    with pytest.raises(BadStreamFile, match=r"postgres\.logs and Postgres\.Logs differ only in small and capital"):
        read_contents(Sources(streams=tmp_path / "streams.toml"), accept)
