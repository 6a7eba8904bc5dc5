"""Installation of npm packages that a folder's package.json lists, without running their install scripts."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL_SECONDS = 300


def install_packages(folder: Path) -> None:
    """Install the packages. If that fails, skip the test or, in CI, fail it."""
    fail_or_skip = pytest.fail if os.environ.get("CI") else pytest.skip
    if not (shutil.which("node") and shutil.which("npm")):
        fail_or_skip("node or npm is not there")
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode != 0:
        fail_or_skip(f"packages from npm cannot be installed: {done.stderr[-500:]}")
