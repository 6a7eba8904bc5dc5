"""Folders that cannot be read. Permissions do not help: the tests may run as root, whom permissions do not stop."""

import errno
import os
from pathlib import Path

import pytest


def make_unreadable(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let each function that lists the folder fail, as for a user without the permission to read it."""
    scandir, listdir, access = os.scandir, os.listdir, os.access

    def refuse(path: object) -> None:
        if str(path) == str(folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def scandir_or_refuse(path: str = ".") -> object:
        refuse(path)
        return scandir(path)

    def listdir_or_refuse(path: str = ".") -> list[str]:
        refuse(path)
        return listdir(path)

    def access_or_refuse(path: str, mode: int) -> bool:
        return str(path) != str(folder) and access(path, mode)

    monkeypatch.setattr(os, "scandir", scandir_or_refuse)
    monkeypatch.setattr(os, "listdir", listdir_or_refuse)
    monkeypatch.setattr(os, "access", access_or_refuse)
