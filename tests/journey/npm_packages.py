"""Packages from npm, installed in a folder in the versions of its package.json; no script of theirs is run."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

INSTALL_SECONDS = 300


def install(folder: Path) -> None:
    """Skip the test if the packages cannot be had; fail it in CI."""
    give_up = pytest.fail if os.environ.get("CI") else pytest.skip
    if not (shutil.which("node") and shutil.which("npm")):
        give_up("node or npm is not there")
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    if done.returncode != 0:
        give_up(f"packages from npm cannot be installed: {done.stderr[-500:]}")
