"""How far a migration got, kept in a file, so that one that was cut off goes on where it stopped."""

import json
from pathlib import Path
from typing import Any

from cordwood.errors import Refused
from cordwood.folder import write_durably

_VERSION = 1


class MigrationState:
    """`route` says from where to where; a file of another route is not touched."""

    def __init__(self, file: Path, route: str) -> None:
        self._file = file
        self._told: dict[str, Any] = {"version": _VERSION, "route": route, "tables": {}}
        if file.exists():
            self._told = self._read(route)

    def after(self, table: str) -> tuple[str, str] | None:
        """The place of the last event of a table that was stored."""
        found = self._told["tables"].get(table)
        return (str(found[0]), str(found[1])) if found else None

    def note(self, table: str, place: tuple[str, str]) -> None:
        """Durable before it returns: what is noted is stored, and is not read again."""
        self._told["tables"][table] = list(place)
        write_durably(self._file, json.dumps(self._told, indent=2).encode())

    def _read(self, route: str) -> dict[str, Any]:
        try:
            told = json.loads(self._file.read_text())
            is_ours = told["version"] == _VERSION and isinstance(told["tables"], dict)
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise Refused(f"{self._file} does not tell how far a migration got.", hint=_OTHER) from problem
        if not is_ours or told["route"] != route:
            raise Refused(f"{self._file} is of another migration: {told.get('route')}.", hint=_OTHER)
        return dict(told)


_OTHER = "Name another file: --state FILE."
