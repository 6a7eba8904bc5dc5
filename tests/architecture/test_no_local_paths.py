"""No file contains paths, registry mirrors or hosts of one particular machine."""

import re
from pathlib import Path

from tests.architecture.tree import ROOT, tracked_files

HOSTS = ["files.python" + "hosted", "registry.npm" + "js", "deb.deb" + "ian.org", "pypi" + ".org/simple"]
PATHS = r"(?<![.\w$}>])/(?:work|farm|root|home/[a-z]+)/"
INDEXES = r"https?://\d+\.\d+\.\d+\.\d+:\d+/(?:simple|repository)|--(?:extra-)?index-url"
LOCAL_PLACES = re.compile("|".join([*map(re.escape, HOSTS), PATHS, INDEXES]))


def test_no_file_names_a_path_or_host_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match}"
        for path in tracked_files()
        if path != Path(__file__)
        for match in LOCAL_PLACES.findall(path.read_text(errors="replace"))
    ]
    assert not found
