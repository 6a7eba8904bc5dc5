"""Shape decoders for single projects with frequent events, so that other projects' paths do not slow them down."""

import threading
import time
from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from cordwood.engines.project_shapes import ProjectShapes
from cordwood.ingest.fitting import Fitting
from cordwood.model.shape import Path, Shape

# About 1.6 KB each.
_MOST_PATHS: Final = 12_000
_WORTH_IT: Final = 32
_COUNTED: Final = 20_000
# The largest share of time that is spent on generating decoders.
_BUILDING_PART: Final = 0.05

Key = tuple[str, int, tuple[Path, ...]]


class OwnFittings:
    """An LRU cache of decoders. Projects with equal shapes in one stream share a decoder."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Fitting] = OrderedDict()
        self._paths = 0
        self._asked: dict[Key, int] = {}
        self._next_build = 0.0
        self._lock = threading.Lock()

    def find(self, key: Key, projects: ProjectShapes, nulls: Collection[Path], *, events: int = 1) -> Fitting | None:
        """Return the decoder of a project's shape; None until enough events have used it to repay its generation."""
        with self._lock:
            known = self._kept.get(key)
            if known is not None:
                self._kept.move_to_end(key)
                return known
            if len(self._asked) > _COUNTED:
                self._asked.clear()
            self._asked[key] = asked = self._asked.get(key, 0) + events
            now = time.monotonic()
            if asked < _WORTH_IT or now < self._next_build:
                return None
            return self._build(key, projects, nulls, now)

    def _build(self, key: Key, projects: ProjectShapes, nulls: Collection[Path], now: float) -> Fitting:
        _, bits, needed = key
        kinds = projects.kinds(bits)
        fitting = Fitting(Shape().with_learnt(kinds), now, nulls, needed)
        self._next_build = time.monotonic() + (time.monotonic() - now) / _BUILDING_PART
        self._asked.pop(key, None)
        self._kept[key] = fitting
        self._paths += fitting.size
        while self._paths > _MOST_PATHS:
            self._paths -= self._kept.popitem(last=False)[1].size
        return fitting


class Wanted:
    """The project decoders for the events of one batch."""

    def __init__(
        self,
        kept: OwnFittings,
        stream: str,
        needed: tuple[Path, ...],
        projects: ProjectShapes | None,
        nulls: Collection[Path],
    ) -> None:
        self._kept = kept
        self._stream = stream
        self._needed = needed
        self._projects = projects
        self._nulls = nulls
        self._found: dict[str, Fitting] = {}
        self._events: dict[str, int] = {}

    def of(self, project: str | None, of_stream: Fitting) -> Fitting | None:
        """Return the decoder of a project; None if it has none or is covered by the stream's decoder."""
        if project is None or self._projects is None or project in of_stream.covering:
            return None
        return self._found.get(project) or self._find(project, self._projects)

    def _find(self, project: str, projects: ProjectShapes) -> Fitting | None:
        events = self._events[project] = self._events.get(project, 0) + 1
        bits = projects.set_of(project)
        if not bits or (events > 1 and events % _WORTH_IT):
            return None
        found = self._kept.find((self._stream, bits, self._needed), projects, self._nulls, events=events)
        if found is not None:
            self._found[project] = found
        return found
