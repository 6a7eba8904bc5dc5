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
    walk = _FolderWalk(folder)
    while walk.folders or walk.links:
        is_linked = not walk.folders
        current = walk.links.pop(0) if is_linked else walk.folders.pop()
        try:
            if walk.is_folder_to_read(current, is_linked=is_linked):
                walk.read_folder(current, is_wanted)
        except OSError as problem:
            report_unreadable(current, problem)
    return sorted(walk.found)


class _FolderWalk:
    """The state of a search for files: what was found, and the folders and links that are still to be read."""

    def __init__(self, folder: Path) -> None:
        self.found: list[Path] = []
        # Links are followed after all other folders, so that a folder with several paths keeps the path without links.
        self.folders, self.links = [folder], list[Path]()
        self._visited: set[tuple[int, int]] = set()
        self._has_followed_links = False
        self._linked_folder_count = 0

    def is_folder_to_read(self, path: Path, *, is_linked: bool) -> bool:
        """Return whether the path is a folder that was not read before; raise OSError if it cannot be reached."""
        status = path.stat()
        identity = status.st_dev, status.st_ino
        if identity in self._visited or (is_linked and not stat.S_ISDIR(status.st_mode)):
            return False
        self._visited.add(identity)
        self._has_followed_links = self._has_followed_links or is_linked
        self._linked_folder_count += self._has_followed_links
        if self._linked_folder_count > _MAX_LINKED_FOLDERS:
            self.folders.clear()
            self.links.clear()
            raise OSError(errno.ELOOP, f"symbolic links lead to more than {_MAX_LINKED_FOLDERS} folders")
        return True

    def read_folder(self, folder: Path, is_wanted: Callable[[str], bool]) -> None:
        for entry in _visible_entries(folder):
            path = folder / entry.name
            if is_wanted(entry.name):
                self.found.append(path)
            elif entry.is_symlink():
                self.links.append(path)
            elif entry.is_dir():
                self.folders.append(path)


def _visible_entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        visible = [
            entry for entry in entries if not entry.name.startswith(".") and entry.name != _LOST_AND_FOUND_FOLDER
        ]
    return iter(sorted(visible, key=lambda entry: entry.name))
