"""Check in the wheel's metadata that links of the long description work outside the repository."""

import re
import sys
from collections.abc import Mapping

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from tests.architecture.tree import ROOT

RELATIVE_LINK_PATTERN = re.compile(r"\]\((?!https?:|#)|(?:src|srcset)=\"(?!https?:)")
REPOSITORY = "https://forge.example/group/cordwood"


@pytest.fixture
def wheel_metadata(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ProjectMetadata[PluginManager]:
    """Return the metadata as a build reads it; the fixture's parameter becomes the variable CORDWOOD_REPOSITORY_URL."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("CORDWOOD_REPOSITORY_URL", request.param)
    metadata = ProjectMetadata(str(ROOT), PluginManager())
    assert metadata.core.dynamic == []
    return metadata


@pytest.mark.parametrize("wheel_metadata", ["", REPOSITORY, f"{REPOSITORY}/"], indirect=True)
def test_the_long_description_has_no_relative_links(wheel_metadata: ProjectMetadata[PluginManager]) -> None:
    assert not RELATIVE_LINK_PATTERN.search(wheel_metadata.core.readme)
    assert "## A first look" in wheel_metadata.core.readme


@pytest.mark.parametrize("wheel_metadata", [REPOSITORY], indirect=True)
def test_links_point_to_the_files_of_the_version(wheel_metadata: ProjectMetadata[PluginManager]) -> None:
    assert f"]({REPOSITORY}/blob/v{wheel_metadata.version}/docs/guide/install.md)" in wheel_metadata.core.readme
    assert f'src="{REPOSITORY}/raw/v{wheel_metadata.version}/docs/pictures/explorer.png"' in wheel_metadata.core.readme


@pytest.mark.parametrize(("wheel_metadata", "named"), [("", 0), (REPOSITORY, 5)], indirect=["wheel_metadata"])
def test_urls_point_to_the_repository(wheel_metadata: ProjectMetadata[PluginManager], named: int) -> None:
    urls: Mapping[str, str] = wheel_metadata.core.urls
    assert len(urls) == named
    assert all(url.startswith(REPOSITORY) for url in urls.values())
