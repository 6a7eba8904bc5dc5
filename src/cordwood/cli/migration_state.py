"""The position of a migration, kept in a file so that an interrupted one can be resumed."""

import json
from pathlib import Path
from typing import Any

from cordwood.errors import Refused
from cordwood.folder import write_durably

_VERSION = 1


class MigrationState:
    """The state file. `route` names source and destination; a file of another route is not changed."""

    def __init__(self, file: Path, route: str) -> None:
        self._file = file
        self._told: dict[str, Any] = {"version": _VERSION, "route": route, "tables": {}}
        if file.exists():
            self._told = self._read(route)

    def after(self, table: str) -> tuple[str, str] | None:
        """Return the sort key of the last stored event of a table."""
        found = self._told["tables"].get(table)
        return (str(found[0]), str(found[1])) if found else None

    def note(self, table: str, place: tuple[str, str]) -> None:
        """Store the position durably; the events up to it are not read again."""
        self._told["tables"][table] = list(place)
        write_durably(self._file, json.dumps(self._told, indent=2).encode())

    def _read(self, route: str) -> dict[str, Any]:
        try:
            told = json.loads(self._file.read_text())
            is_ours = told["version"] == _VERSION and isinstance(told["tables"], dict)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise Refused(f"{self._file} is not a state file of a migration.", hint=_OTHER) from problem
        if not is_ours or told["route"] != route:
            raise Refused(f"{self._file} is of another migration: {told.get('route')}.", hint=_OTHER)
        return dict(told)


_OTHER = "Name another file: --state FILE."
