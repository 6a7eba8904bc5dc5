"""Settings that ClickHouse cannot honour are refused."""

from pathlib import Path

import pytest

from cordwood.app.compose import build_components
from cordwood.errors import BadSetting
from cordwood.folder import DataFolder
from cordwood.observe.observation import Observer
from cordwood.settings.settings import LimitSettings, Settings


def test_a_limit_of_the_store_size_needs_the_embedded_engine(tmp_path: Path) -> None:
    settings = Settings(engine="clickhouse://127.0.0.1:9/logs", limits=LimitSettings(store_size=10**9))
    with pytest.raises(BadSetting, match=r"limits\.store_size"):
        build_components(settings, DataFolder(tmp_path), Observer())
