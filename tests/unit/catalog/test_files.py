"""The catalog of files: name lookup, conflicts, overrides, and errors of all broken files at once."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from cordwood.catalog.catalog import CatalogContents, CatalogSources
from cordwood.catalog.file_catalog import FileCatalog, read_catalog
from cordwood.errors import BadEndpointFile, BadQuerySyntax, BadStreamFile, BrokenDefinitionFiles, Span
from cordwood.model.definitions import Endpoint, Stream
from tests.unreadable_folders import make_unreadable

SHIPPED_STREAM_NAMES = {
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


def accept_endpoint(endpoint: Endpoint, streams: Sequence[Stream]) -> None:
    """Accept every endpoint."""


def write_folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.sql").write_text(text)
    return tmp_path


def endpoint_text(name: str, extra: str = "") -> str:
    return f'/* name = "{name}"\n{extra} */ select 1'


def without_shipped(endpoints: Path) -> CatalogSources:
    return CatalogSources(endpoints_folder=endpoints, includes_shipped=False)


def test_nine_streams_are_shipped() -> None:
    streams = read_catalog(CatalogSources(), accept_endpoint).streams
    assert {stream.name for stream in streams} == SHIPPED_STREAM_NAMES
    assert len({stream.id for stream in streams}) == 9


def test_endpoints_and_streams_are_found_by_name_and_by_uuid(tmp_path: Path) -> None:
    catalog = FileCatalog(
        read_catalog(CatalogSources(endpoints_folder=write_folder(tmp_path, a=endpoint_text("a"))), accept_endpoint)
    )
    endpoint, stream = catalog.endpoint("a"), catalog.stream("postgres.logs")
    assert endpoint is not None
    assert stream is not None
    assert catalog.endpoint(str(endpoint.id).upper()) is endpoint
    assert catalog.stream(str(stream.id)) is stream
    assert catalog.endpoint("b") is None
    assert catalog.stream("b") is None


def test_names_are_case_sensitive() -> None:
    assert FileCatalog(read_catalog(CatalogSources(), accept_endpoint)).stream("POSTGRES.LOGS") is None


def test_files_in_subfolders_are_read(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.sql").write_text(endpoint_text("a"))
    assert [endpoint.name for endpoint in read_catalog(without_shipped(tmp_path), accept_endpoint).endpoints] == ["a"]


@pytest.mark.parametrize("folder", [".", "deep"])
def test_an_unreadable_folder_of_endpoints_and_alerts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / folder / "a.sql").write_text(endpoint_text("a"))
    (tmp_path / folder / "a.alert.toml").write_text("")
    make_unreadable(monkeypatch, tmp_path / folder)
    with pytest.raises(BrokenDefinitionFiles, match=r"The folder .* cannot be read: Permission denied\.") as caught:
        read_catalog(without_shipped(tmp_path), accept_endpoint)
    assert [type(fault) for fault in caught.value.faults] == [BadEndpointFile]


def test_an_unreadable_folder_of_managed_endpoints_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "endpoints").mkdir()
    (tmp_path / "endpoints" / "a.sql").write_text(endpoint_text("a"))
    make_unreadable(monkeypatch, tmp_path / "endpoints")
    with pytest.raises(BadEndpointFile, match=r"endpoints cannot be read: Permission denied\."):
        read_catalog(CatalogSources(managed_folder=tmp_path), accept_endpoint)


def test_all_broken_files_are_reported(tmp_path: Path) -> None:
    files = write_folder(tmp_path, a="select 1", b=endpoint_text("b"), c=endpoint_text("c", "x = 1"))

    def check(endpoint: Endpoint, _: Sequence[Stream]) -> None:
        raise BadQuerySyntax("No.", span=Span(7, 3, endpoint.file))

    with pytest.raises(BrokenDefinitionFiles) as caught:
        read_catalog(without_shipped(files), check)
    assert [str(fault.span).rpartition("/")[2] for fault in caught.value.faults] == [
        "a.sql:1:1",
        "c.sql:2:1",
        "b.sql:7:3",
    ]
    assert all(name in caught.value.message for name in ("a.sql:1:1", "b.sql:7:3: No.", "c.sql:2:1"))


@pytest.mark.parametrize("extra", ["", 'id = "0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"'])
def test_two_files_with_one_name_are_refused(tmp_path: Path, extra: str) -> None:
    files = write_folder(tmp_path, a=endpoint_text("x"), b=endpoint_text("x", extra))
    with pytest.raises(BrokenDefinitionFiles, match=r"b\.sql:1:1: The name x is also that of .*a\.sql"):
        read_catalog(without_shipped(files), accept_endpoint)


def test_two_files_with_one_id_are_refused(tmp_path: Path) -> None:
    id_line = 'id = "0b1e6a52-7f0b-4c5e-9d1a-0e6b5a2f4c01"'
    files = write_folder(tmp_path, a=endpoint_text("x", id_line), b=endpoint_text("y", id_line))
    with pytest.raises(BrokenDefinitionFiles, match="The id 0b1e6a52"):
        read_catalog(without_shipped(files), accept_endpoint)


def test_a_missing_folder_or_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadEndpointFile, match="does not exist"):
        read_catalog(without_shipped(tmp_path / "gone"), accept_endpoint)
    with pytest.raises(BadStreamFile, match="cannot be read"):
        read_catalog(CatalogSources(streams_file=tmp_path / "gone"), accept_endpoint)


def test_a_file_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_bytes(b"\xff\xfe")
    with pytest.raises(BrokenDefinitionFiles, match=r"a\.sql:1:1: The file cannot be read"):
        read_catalog(without_shipped(tmp_path), accept_endpoint)


def test_own_streams_add_to_the_shipped_ones_and_override_by_name(tmp_path: Path) -> None:
    file = tmp_path / "streams.toml"
    file.write_text('[[stream]]\nname = "mine"\n[[stream]]\nname = "postgres.logs"\nretention = "1d"')
    streams = {
        stream.name: stream for stream in read_catalog(CatalogSources(streams_file=file), accept_endpoint).streams
    }
    assert set(streams) == SHIPPED_STREAM_NAMES | {"mine"}
    assert streams["postgres.logs"].retention_seconds == 86_400


def test_an_overridden_stream_keeps_the_shipped_id(tmp_path: Path) -> None:
    file = tmp_path / "streams.toml"
    file.write_text('[[stream]]\nname = "postgres.logs"\nretention = "1d"')
    shipped, mine = (
        next(stream for stream in read_catalog(sources, accept_endpoint).streams if stream.name == "postgres.logs")
        for sources in (CatalogSources(), CatalogSources(streams_file=file))
    )
    assert shipped.id == mine.id


def test_a_stream_with_the_id_of_another_is_refused(tmp_path: Path) -> None:
    shipped_id = next(iter(read_catalog(CatalogSources(), accept_endpoint).streams)).id
    file = tmp_path / "streams.toml"
    file.write_text(f'[[stream]]\nname = "mine"\nid = "{shipped_id}"')
    with pytest.raises(BadStreamFile, match="is also that of"):
        read_catalog(CatalogSources(streams_file=file), accept_endpoint)


def test_replace_exchanges_all_contents(tmp_path: Path) -> None:
    before = read_catalog(
        CatalogSources(includes_shipped=False, endpoints_folder=write_folder(tmp_path, a=endpoint_text("a"))),
        accept_endpoint,
    )
    catalog = FileCatalog(before)
    catalog.replace_contents(CatalogContents((), before.streams))
    assert catalog.endpoint("a") is None
    assert catalog.endpoints() == ()


def test_an_extension_in_capitals_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "A.SQL").write_text(endpoint_text("a"))
    with pytest.raises(BrokenDefinitionFiles) as caught:
        read_catalog(without_shipped(tmp_path), accept_endpoint)
    assert "A.SQL:1:1: An endpoint file ends in .sql, in small letters." in str(caught.value)


def test_a_stream_that_differs_from_a_shipped_one_only_in_case_is_refused(tmp_path: Path) -> None:
    (tmp_path / "streams.toml").write_text('[[stream]]\nname = "Postgres.Logs"')
    with pytest.raises(BadStreamFile, match=r"postgres\.logs and Postgres\.Logs differ only in small and capital"):
        read_catalog(CatalogSources(streams_file=tmp_path / "streams.toml"), accept_endpoint)
