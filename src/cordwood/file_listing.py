"""List the files of a folder. A folder that cannot be read is an error and never counts as empty.

`Path.glob` and `Path.rglob` hide errors: for them, a folder without permissions looks like a folder without files.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

# The folder in which the check of an ext4 file system puts rescued files; only root may read it.
_LOST_AND_FOUND_FOLDER: Final = "lost+found"
# The maximum number of folders that are read because a symbolic link leads to them or to a folder above them. It limits
# the work if a link leads to a large tree, such as the root of the file system.
_MAX_LINKED_FOLDERS: Final = 1000


def is_reachable_folder(path: Path) -> bool:
    """Return whether there is a folder of this path; False also if a folder above it cannot be read."""
    try:
        return path.is_dir()
    except OSError:
        return False


def list_files(folder: Path, suffix: str) -> list[Path]:
    """Return, in order, the files of a folder whose names end in `suffix`; none if the folder does not exist.

    Subfolders are not searched. Raise OSError if the folder cannot be read.
    """
    try:
        return sorted(file for file in folder.iterdir() if file.name.endswith(suffix))
    except FileNotFoundError:
        return []


def find_files_below(
    folder: Path, is_wanted: Callable[[str], bool], report_unreadable: Callable[[Path, OSError], object]
) -> list[Path]:
    """Return, in order, the files below a folder whose names are wanted.

    Names that begin with a dot are skipped, and so is `lost+found`. Symbolic links to folders are followed, but each
    folder is read only once. `report_unreadable` is called for each folder and each link that cannot be read.
    """
    found: list[Path] = []
    visited: set[tuple[int, int]] = set()
    # Links are followed after all other folders, so that a folder with several paths keeps the path without links.
    folders, links = [folder], list[Path]()
    linked_folder_count = 0
    is_linked = False
    while folders or links:
        is_linked = is_linked or not folders
        current = folders.pop() if folders else links.pop(0)
        try:
            status = current.stat()
            identity = status.st_dev, status.st_ino
            if identity in visited or (is_linked and not stat.S_ISDIR(status.st_mode)):
                continue
            visited.add(identity)
            linked_folder_count += is_linked
            if linked_folder_count > _MAX_LINKED_FOLDERS:
                message = f"symbolic links lead to more than {_MAX_LINKED_FOLDERS} folders"
                report_unreadable(current, OSError(errno.ELOOP, message))
                break
            for entry in _visible_entries(current):
                path = current / entry.name
                if is_wanted(entry.name):
                    found.append(path)
                elif entry.is_symlink():
                    links.append(path)
                elif entry.is_dir():
                    folders.append(path)
        except OSError as problem:
            report_unreadable(current, problem)
    return sorted(found)


def _visible_entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        visible = [
            entry for entry in entries if not entry.name.startswith(".") and entry.name != _LOST_AND_FOUND_FOLDER
        ]
    return iter(sorted(visible, key=lambda entry: entry.name))
