"""Paths in LQL's spelling: `m.status`, `metadata."any key"`, `id`."""

import re
from typing import Final

from cordwood.lql.query import Path
from cordwood.lql.scanner import unescaped

_STEP: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^.]+)')


def read_path(text: str, offset: int) -> Path:
    """Return the path of a text that the scanner has matched as a path; `m.` is short for `metadata.`."""
    steps = [unescaped(quoted) if unquoted is None else unquoted for quoted, unquoted in _steps(text)]
    if len(steps) > 1 and text.startswith("m."):
        steps[0] = "metadata"
    return Path(tuple(steps), offset)


def _steps(text: str) -> list[tuple[str, str | None]]:
    return [(step[1] or "", step[2]) for step in _STEP.finditer(text)]
