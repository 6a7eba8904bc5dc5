"""Programs of Debian packages that a test drives: installed where CI runs as root, or else the test is skipped.

Never in CI: there a program that is not to be had is a failure, so that no test is skipped without anybody noticing.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import pytest

_INSTALL_SECONDS = 900


def need(command: str, package: str) -> str:
    """Return the path of the command; without it, skip the test or, in CI, fail it."""
    return _need(partial(_find, command), command, package)


def need_rsyslog_module(name: str, package: str) -> str:
    """Return the path of a module of rsyslog; without it, skip the test or, in CI, fail it."""
    return _need(partial(_find_rsyslog_module, name), f"rsyslog's {name}", package)


def _need(find: Callable[[], str | None], name: str, package: str) -> str:
    found = _found_or_installed(find, package) if _may_install() else find()
    if found is None:
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up(f"{name} is not there: apt-get install {package}")
    return found


def _found_or_installed(find: Callable[[], str | None], package: str) -> str | None:
    with _alone():
        return find() or (find() if _installed(package) else None)


def _find_rsyslog_module(name: str) -> str | None:
    return next((str(path) for path in Path("/usr/lib").glob(f"*/rsyslog/{name}.so")), None)


@contextmanager
def _alone() -> Iterator[None]:
    """Of several test processes one installs; the others find what is there when it has been set up, not before."""
    with Path(tempfile.gettempdir(), "cordwood-tests-installing").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def _find(command: str) -> str | None:
    """Look also where the commands of PostgreSQL's newest version and of systemd are."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    places = [
        os.environ.get("PATH", os.defpath),
        *map(str, reversed(versions)),
        "/usr/sbin",
        "/sbin",
        "/usr/lib/systemd",
    ]
    return shutil.which(command, path=os.pathsep.join(places))


def _may_install() -> bool:
    return bool(os.environ.get("CI")) and os.geteuid() == 0 and shutil.which("apt-get") is not None


@cache
def _installed(package: str) -> bool:
    """One attempt in a run: a package without services started, since tests start their own."""
    policy = Path("/usr/sbin/policy-rc.d")
    is_ours = not policy.exists()
    if is_ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        return _apt("update") and _apt("install", "--yes", "--no-install-recommends", package)
    finally:
        if is_ours:
            policy.unlink()


def _apt(*arguments: str) -> bool:
    command = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *arguments]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return (
        subprocess.run(command, env=quiet, timeout=_INSTALL_SECONDS, capture_output=True, check=False).returncode == 0
    )
