"""Check that no file contains paths, registry mirrors or hosts of one particular machine."""

import re
from pathlib import Path

from tests.architecture.tree import ROOT, tracked_files

PACKAGE_HOSTS = ["files.python" + "hosted", "registry.npm" + "js", "deb.deb" + "ian.org", "pypi" + ".org/simple"]
LOCAL_PATHS_PATTERN = r"(?<![.\w$}>])/(?:work|farm|root|home/[a-z]+)/"
PACKAGE_INDEXES_PATTERN = r"https?://\d+\.\d+\.\d+\.\d+:\d+/(?:simple|repository)|--(?:extra-)?index-url"
MACHINE_SPECIFIC_PATTERN = re.compile(
    "|".join([*map(re.escape, PACKAGE_HOSTS), LOCAL_PATHS_PATTERN, PACKAGE_INDEXES_PATTERN])
)


def test_no_file_names_a_path_or_host_of_one_machine() -> None:
    found_paths = [
        f"{path.relative_to(ROOT)}: {match}"
        for path in tracked_files()
        if path != Path(__file__)
        for match in MACHINE_SPECIFIC_PATTERN.findall(path.read_text(errors="replace"))
    ]
    assert not found_paths
