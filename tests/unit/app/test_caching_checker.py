"""A start compiles only endpoints that have not compiled before, and reports errors at every start."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from cordwood.app.checks import CachingEndpointChecker, compiler_version
from cordwood.app.in_process import open_in_process_app
from cordwood.catalog.catalog import CatalogSources
from cordwood.catalog.file_catalog import read_catalog
from cordwood.errors import BadEndpointFile, BrokenDefinitionFiles
from cordwood.model.definitions import Endpoint, Stream
from cordwood.settings.settings import ServeSettings, Settings

VALID_ENDPOINT = '/* name = "{name}" */\nselect id from `{stream}`'


class DefinitionFiles:
    """Files of endpoints and streams, and starts of a service that reads these files."""

    def __init__(self, folder: Path) -> None:
        self.data, self.endpoints, self.streams = folder / "data", folder / "endpoints", folder / "streams.toml"
        self.data.mkdir()
        self.endpoints.mkdir()
        self.add_streams("my.app")

    def add_streams(self, *names: str) -> None:
        self.streams.write_text("".join(f'[[stream]]\nname = "{name}"\n' for name in names))

    def write(self, name: str, text: str | None = None, stream: str = "my.app") -> None:
        (self.endpoints / f"{name}.sql").write_text(text or VALID_ENDPOINT.format(name=name, stream=stream))

    def start(self, *, target: str = "duckdb", code: str = "1") -> list[str]:
        """Start a service, and return the names of the endpoints that it compiled."""
        compiled = []

        def check(endpoint: Endpoint, _streams: Sequence[Stream]) -> None:
            compiled.append(endpoint.name)
            if "broken" in endpoint.sql:
                raise BadEndpointFile("It is broken.")

        checks = CachingEndpointChecker(self.data, target, check, code)
        read_catalog(
            CatalogSources(endpoints_folder=self.endpoints, streams_file=self.streams, includes_shipped=False),
            checks.check,
        )
        checks.write_passed_digests()
        return compiled


@pytest.fixture
def files(tmp_path: Path) -> DefinitionFiles:
    return DefinitionFiles(tmp_path)


def test_an_endpoint_that_compiled_at_the_last_start_is_skipped(files: DefinitionFiles) -> None:
    files.write("a")
    files.write("b")
    assert files.start() == ["a", "b"]
    assert files.start() == []
    files.write("c")
    assert files.start() == ["c"]
    files.write("a", VALID_ENDPOINT.format(name="a", stream="my.app") + " where true")
    assert files.start() == ["a"]


def test_a_change_of_engine_or_code_compiles_all_endpoints(files: DefinitionFiles) -> None:
    files.write("a")
    files.start()
    assert files.start(target="clickhouse") == ["a"]
    assert files.start(target="clickhouse") == []
    assert files.start(target="clickhouse", code="2") == ["a"]


def test_only_changes_of_streams_that_an_endpoint_reads_compile_it_again(files: DefinitionFiles) -> None:
    files.write("a")
    files.write("quoted", '/* name = "quoted" */\nselect id from `my`.`app`')
    files.start()
    files.add_streams("my.app", "another")
    assert files.start() == []
    files.add_streams("another")
    assert files.start() == ["a", "quoted"]


def test_an_endpoint_is_compiled_again_when_one_that_it_reads_changes(files: DefinitionFiles) -> None:
    files.write("inner")
    files.write("outer", '/* name = "outer" */\nselect id from `inner`')
    files.start()
    files.write("inner", VALID_ENDPOINT.format(name="inner", stream="my.app") + " where true")
    assert files.start() == ["inner", "outer"]


def test_an_endpoint_that_does_not_compile_is_an_error_at_every_start(files: DefinitionFiles) -> None:
    files.write("a", '/* name = "a" */\nselect broken')
    for _ in range(2):
        with pytest.raises(BrokenDefinitionFiles):
            files.start()


def test_removed_endpoints_are_removed_from_the_file(files: DefinitionFiles) -> None:
    for number in range(20):
        files.write("a", VALID_ENDPOINT.format(name="a", stream="my.app") + f" limit {number}")
        files.start()
    assert len(msgspec.json.decode((files.data / "checked.json").read_bytes())) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[1, null]", b'{"a": 1}', b"[" * 100_000, b"\xff", b" " * (5 * 2**20)])
def test_a_damaged_file_compiles_all_endpoints(files: DefinitionFiles, content: bytes) -> None:
    files.write("a")
    (files.data / "checked.json").write_bytes(content)
    assert files.start() == ["a"]
    assert files.start() == []


def test_a_file_that_cannot_be_written_does_not_prevent_a_start(files: DefinitionFiles) -> None:
    files.write("a")
    (files.data / "checked.json").mkdir()
    assert files.start() == ["a"]
    assert files.start() == ["a"]


def test_the_version_of_the_code_is_stable() -> None:
    assert compiler_version() == compiler_version()


def test_the_service_skips_known_endpoints_and_finds_a_new_error(tmp_path: Path) -> None:
    """Use the service's own check. At the second start, the endpoint is known. At the third, it does not compile."""
    files = DefinitionFiles(tmp_path)
    serve = msgspec.structs.replace(
        ServeSettings(), data_dir=str(files.data), endpoints=str(files.endpoints), streams=str(files.streams)
    )
    files.write("a")
    for _ in range(2):
        with open_in_process_app(Settings(serve=serve)) as service:
            assert service.send("GET", "/api/endpoints/query/a", b"", {})[0] == 200
        assert (files.data / "checked.json").stat().st_mode & 0o777 == 0o600
    files.write("a", '/* name = "a" */\nselect nosuch(1) as x')
    with pytest.raises(BrokenDefinitionFiles), open_in_process_app(Settings(serve=serve)):
        pass
