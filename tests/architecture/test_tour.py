"""Check that the tour lists every package, and that the files that the tour and the glossary name exist."""

import re
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT, SOURCE, tracked_files

TOUR = ROOT / "docs" / "tour.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
MAX_TOUR_LENGTH = 150
# Files that only mark a package or declare that it has type annotations.
MARKER_FILES = {"__init__.py", "py.typed"}


def packages_and_modules() -> set[str]:
    """Return the names of all sub-packages and top-level modules."""
    below = [path.relative_to(SOURCE) for path in tracked_files() if path.is_relative_to(SOURCE)]
    folders = {f"{path.parts[0]}/" for path in below if len(path.parts) > 1}
    return folders | {path.name for path in below if len(path.parts) == 1 and path.name not in MARKER_FILES}


def test_the_tour_lists_every_package_and_no_other() -> None:
    named = set(re.findall(r"^\| `([a-z_]+(?:/|\.py))` \|", TOUR.read_text(), re.MULTILINE))
    assert named == packages_and_modules()


def test_the_tour_is_short() -> None:
    assert len(TOUR.read_text().splitlines()) < MAX_TOUR_LENGTH


@pytest.mark.parametrize("page", [TOUR, GLOSSARY], ids=lambda page: page.name)
def test_every_file_that_the_tour_and_the_glossary_name_exists(page: Path) -> None:
    named = re.findall(r"`([\w/.-]+\.(?:py|md|toml|sql))`", page.read_text())
    places = [ROOT, SOURCE, ROOT / "docs"]
    assert not [name for name in named if not any((place / name).exists() for place in places)]
