"""Paths in LQL's spelling: `m.status`, `metadata."any key"`, `id`."""

import re
from typing import Final

from cordwood.lql.query import Path
from cordwood.lql.scan import unescaped

_STEP: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^.]+)')


def read_path(text: str, at: int) -> Path:
    """Return the path of a text that the scanner has matched as a path; `m.` is short for `metadata.`."""
    steps = [unescaped(quoted) if bare is None else bare for quoted, bare in _steps(text)]
    if len(steps) > 1 and text.startswith("m."):
        steps[0] = "metadata"
    return Path(tuple(steps), at)


def _steps(text: str) -> list[tuple[str, str | None]]:
    return [(step[1] or "", step[2]) for step in _STEP.finditer(text)]
