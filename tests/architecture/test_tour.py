"""The code map names every room, and no room that is not there."""

import re

from tests.architecture.tree import ROOT, SOURCE, tracked_files

TOUR = ROOT / "docs" / "tour.md"
LONGEST_TOUR = 150
# What makes the folder a package, and says that its types can be believed.
NO_ROOMS = {"__init__.py", "py.typed"}


def rooms() -> set[str]:
    """Folders that hold modules, and modules that stand beside them."""
    below = [path.relative_to(SOURCE) for path in tracked_files() if path.is_relative_to(SOURCE)]
    folders = {f"{path.parts[0]}/" for path in below if len(path.parts) > 1}
    return folders | {path.name for path in below if len(path.parts) == 1 and path.name not in NO_ROOMS}


def test_the_tour_names_every_room_and_no_other() -> None:
    named = set(re.findall(r"^\| `([a-z_]+(?:/|\.py))` \|", TOUR.read_text(), re.MULTILINE))
    assert named == rooms()


def test_the_tour_is_short() -> None:
    assert len(TOUR.read_text().splitlines()) < LONGEST_TOUR


def test_every_file_that_the_tour_names_is_there() -> None:
    named = re.findall(r"`([\w/.-]+\.(?:py|md|toml|sql))`", TOUR.read_text())
    places = [ROOT, SOURCE, ROOT / "docs"]
    assert not [name for name in named if not any((place / name).exists() for place in places)]
