"""Find the paths of an event's objects, for an event whose shape was not computed before."""

import json

from cordwood.model.event import Event, written_paths
from cordwood.model.shape import Path


def object_paths(event: Event) -> str:
    if event.object_paths is not None:
        return event.object_paths
    paths: list[Path] = []
    for place, text in ((("metadata",), event.metadata), ((), event.extras)):
        try:
            _find(json.loads(text) if text else None, place, paths)
        except (ValueError, RecursionError):
            continue
    return written_paths(path for path in paths if path)


def _find(value: object, path: Path, paths: list[Path]) -> None:
    if isinstance(value, dict):
        paths.append(path)
        for key, one in value.items():
            _find(one, (*path, key), paths)
