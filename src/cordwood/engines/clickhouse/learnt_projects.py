"""The shapes of single projects, in a table of the server from which each process reads what others have learnt."""

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, cast

from cordwood.engines.clickhouse.session import Session
from cordwood.engines.clickhouse.tables import PROJECT_SHAPES, quoted
from cordwood.engines.project_shapes import ProjectShapes
from cordwood.model.event import Batch
from cordwood.model.shape import Kinds, ValueKind

# A row may become visible later than rows with a later time, so reads overlap by this much.
_OVERLAP_US: Final = 60 * 10**6

_SELECT_NEW: Final = (
    "SELECT stream, path, kind, groupUniqArray(project), toUnixTimestamp64Micro(max(seen_at))"  # noqa: S608 - our own name
    f" FROM {quoted(PROJECT_SHAPES)} WHERE seen_at >= fromUnixTimestamp64Micro({{since:Int64}}, 'UTC')"
    " GROUP BY stream, path, kind"
)
_COLUMNS: Final = ("String", "String", "Array(String)", "LowCardinality(String)")


class LearntProjects:
    """The shapes of projects, which only grow; each row that other processes wrote is read once or a few times."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._shapes: dict[str, ProjectShapes] = defaultdict(ProjectShapes)
        self._read_to_us = 0
        self._lock = threading.Lock()

    def of(self, stream: str) -> ProjectShapes:
        return self._shapes[stream]

    def learn(self, batch: Batch) -> None:
        """Write what is new before the events are stored; a shape that is ahead of its events does no harm."""
        shapes = self._shapes[batch.stream]
        rows = [row for project, kinds in batch.by_project.items() for row in _new(shapes, project, kinds)]
        if rows:
            projects, paths, names = zip(*rows, strict=True)
            columns: dict[str, Sequence[object]] = {
                "stream": [batch.stream] * len(rows),
                "project": projects,
                "path": paths,
                "kind": names,
            }
            self._session.insert(quoted(PROJECT_SHAPES), columns, list(_COLUMNS), {"insert_distributed_sync": 1})
        for project, kinds in batch.by_project.items():
            shapes.learn(project, kinds)

    def read(self) -> None:
        """Read what was written since the last time."""
        with self._lock:
            since = {"since": max(0, self._read_to_us - _OVERLAP_US)}
            for stream, path, kind, projects, seen_us in self._session.rows(_SELECT_NEW, since):
                kinds: Kinds = {tuple(map(str, cast("list[str]", path))): frozenset({ValueKind(str(kind))})}
                for project in cast("list[str]", projects):
                    self._shapes[str(stream)].learn(str(project), kinds)
                self._read_to_us = max(self._read_to_us, int(str(seen_us)))


def _new(shapes: ProjectShapes, project: str, kinds: Kinds) -> Iterator[tuple[str, list[str], str]]:
    """Yield a row for each pair, unless all are known."""
    if shapes.bits(kinds) & ~shapes.set_of(project):
        yield from (
            (project, list(path), kind.value) for path, path_kinds in kinds.items() for kind in sorted(path_kinds)
        )
