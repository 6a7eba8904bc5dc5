"""The engine is opened while the definitions are read. If either fails, both are closed."""

import threading
from pathlib import Path

import msgspec
import pytest

from cordwood.app.compose import build_components
from cordwood.errors import BadSetting, BrokenDefinitionFiles
from cordwood.folder import DataFolder
from cordwood.observe.observation import Observer
from cordwood.settings.settings import Settings

_ENDPOINT_FILE = '/* name = "own" */\nselect {} as one'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "endpoints").mkdir()
    (tmp_path / "endpoints" / "own.sql").write_text(_ENDPOINT_FILE.format("nope(1)"))
    changed = Settings()
    return msgspec.structs.replace(
        changed, serve=msgspec.structs.replace(changed.serve, endpoints=str(tmp_path / "endpoints"))
    )


def test_broken_files_close_the_engine(tmp_path: Path, settings: Settings) -> None:
    before = set(threading.enumerate())
    with pytest.raises(BrokenDefinitionFiles, match=r"own\.sql"):
        build_components(settings, DataFolder(tmp_path), Observer())
    assert not set(threading.enumerate()) - before


def test_repaired_files_can_be_opened(tmp_path: Path, settings: Settings) -> None:
    with pytest.raises(BrokenDefinitionFiles):
        build_components(settings, DataFolder(tmp_path), Observer())
    (tmp_path / "endpoints" / "own.sql").write_text(_ENDPOINT_FILE.format("1"))
    components = build_components(settings, DataFolder(tmp_path), Observer())
    assert components.catalog.endpoint("own") is not None
    components.close()


def test_with_two_errors_the_broken_files_are_reported(tmp_path: Path, settings: Settings) -> None:
    with pytest.raises(BrokenDefinitionFiles):
        build_components(msgspec.structs.replace(settings, engine="nope"), DataFolder(tmp_path), Observer())


def test_a_wrong_engine_setting_is_reported(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with pytest.raises(BadSetting, match="nope"):
        build_components(Settings(engine="nope"), DataFolder(tmp_path), Observer())
    assert not set(threading.enumerate()) - before
