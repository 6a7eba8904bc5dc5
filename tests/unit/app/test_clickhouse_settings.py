"""What the engine on another machine cannot keep to is refused, and not passed over."""

from pathlib import Path

import pytest

from cordwood.app.compose import build
from cordwood.errors import BadSetting
from cordwood.folder import DataFolder
from cordwood.observe.observer import Observer
from cordwood.settings.settings import Limits, Settings


def test_a_bound_of_the_stores_size_is_for_the_embedded_engine(tmp_path: Path) -> None:
    settings = Settings(engine="clickhouse://127.0.0.1:9/logs", limits=Limits(store_size=10**9))
    with pytest.raises(BadSetting, match=r"limits\.store_size"):
        build(settings, DataFolder(tmp_path), Observer())
