"""Find the paths of an event's objects, for an event whose shape was not computed before."""

import json

from cordwood.model.event import Event, format_paths
from cordwood.model.shape import Path


def object_paths(event: Event) -> str:
    if event.object_paths is not None:
        return event.object_paths
    paths: list[Path] = []
    for parent_path, text in ((("metadata",), event.metadata), ((), event.extras)):
        try:
            _collect_object_paths(json.loads(text) if text else None, parent_path, paths)
        except (ValueError, RecursionError):
            continue
    return format_paths(path for path in paths if path)


def _collect_object_paths(value: object, path: Path, paths: list[Path]) -> None:
    if isinstance(value, dict):
        paths.append(path)
        for key, child in value.items():
            _collect_object_paths(child, (*path, key), paths)
