"""Programs from Debian packages for tests.

In CI, a missing program is installed if the user is root. If that fails, the test fails, so that no test is skipped
unnoticed. Elsewhere, the test is skipped.
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
# Extracts the files of a package. Unlike this command, `dpkg --extract` would replace the symbolic link /lib by a
# folder.
_EXTRACT = 'dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C /'


def require_program(command: str, package: str) -> str:
    """Return the path of the command. If it is missing, skip the test or, in CI, fail it."""
    return _require(partial(_find_program, command), command, package)


def require_rsyslog_module(name: str, package: str) -> str:
    """Return the path of a module of rsyslog. If it is missing, skip the test or, in CI, fail it."""
    return _require(partial(_find_rsyslog_module, name), f"rsyslog's {name}", package)


def _require(find: Callable[[], str | None], name: str, package: str) -> str:
    path = _find_or_install(find, package) if _may_install() else find()
    if path is None:
        fail_or_skip = pytest.fail if os.environ.get("CI") else pytest.skip
        fail_or_skip(f"{name} is not there: apt-get install {package}")
    return path


def _find_or_install(find: Callable[[], str | None], package: str) -> str | None:
    with _install_lock():
        return find() or (find() if _installed(package) else None)


def _find_rsyslog_module(name: str) -> str | None:
    return next((str(path) for path in Path("/usr/lib").glob(f"*/rsyslog/{name}.so")), None)


@contextmanager
def _install_lock() -> Iterator[None]:
    """Hold a lock that lets only one test process install packages at a time."""
    with Path(tempfile.gettempdir(), "cordwood-tests-installing").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield


def _find_program(command: str) -> str | None:
    """Search PATH and the folders of system programs, of PostgreSQL's newest version and of systemd."""
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
    """Install the package, without starting its services, because tests start their own.

    Each process tries the installation of a package only once.
    """
    policy = Path("/usr/sbin/policy-rc.d")
    is_ours = not policy.exists()
    if is_ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    install = ("install", "--yes", "--no-install-recommends", package)
    try:
        _run_apt("update")
        steps = _run_apt("--simulate", *install).splitlines()
        if any(step.startswith("Remv ") for step in steps):
            _unpack([step.split()[1] for step in steps if step.startswith("Inst ")])
        else:
            _run_apt(*install)
    except subprocess.CalledProcessError as error:
        print(error, error.stderr, sep="\n")
        return False
    finally:
        if is_ours:
            policy.unlink()
    return True


def _unpack(packages: list[str]) -> None:
    """Extract the files of packages without installing them, because apt would remove conflicting packages.

    For example, Debian's rsyslog and syslog-ng conflict, because each is packaged as the machine's only system log
    daemon.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        _run_apt("download", *packages, folder=folder)
        for archive in Path(folder).glob("*.deb"):
            _run(["sh", "-c", _EXTRACT, "sh", str(archive)])
    _run(["ldconfig"])


def _run_apt(*arguments: str, folder: str | None = None) -> str:
    return _run(["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *arguments], folder)


def _run(command: list[str], folder: str | None = None) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    run = partial(subprocess.run, env=environment, cwd=folder, timeout=_INSTALL_SECONDS, text=True)
    return str(run(command, capture_output=True, check=True).stdout)
