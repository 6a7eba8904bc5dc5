"""Nothing in the project names one machine: no home folders, no mirrors of a registry, no workplace."""

import re
from pathlib import Path

from tests.architecture.tree import ROOT, tracked_files

HOSTS = ["files.python" + "hosted", "registry.npm" + "js", "deb.deb" + "ian.org", "pypi" + ".org/simple"]
PATHS = r"(?<![.\w$}>])/(?:work|farm|root|home/[a-z]+)/"
INDEXES = r"https?://\d+\.\d+\.\d+\.\d+:\d+/(?:simple|repository)|--(?:extra-)?index-url"
OF_ONE_MACHINE = re.compile("|".join([*map(re.escape, HOSTS), PATHS, INDEXES]))


def test_every_file_could_live_anywhere() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {place}"
        for path in tracked_files()
        if path != Path(__file__)
        for place in OF_ONE_MACHINE.findall(path.read_text(errors="replace"))
    ]
    assert not found
