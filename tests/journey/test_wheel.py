"""The built wheel, which must contain all files of the package."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD_PROGRAM = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


def test_the_wheel_contains_every_tracked_file(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-c", BUILD_PROGRAM, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    names = zipfile.ZipFile(tmp_path / built.stdout.split()[-1]).namelist()
    tracked = subprocess.run(["git", "ls-files", "src/cordwood"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = {name.removeprefix("src/") for name in tracked.stdout.split()}
    assert {"cordwood/explorer/index.html", "cordwood/endpoints/logs.all.sql", "cordwood/py.typed"} <= files
    assert files - set(names) == set()
