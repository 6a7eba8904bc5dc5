"""Collect the new paths and kinds of each project in a batch, within bounds for each project."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from cordwood.engines.project_shapes import MAX_OF_ONE_PROJECT, OTHERS, ByProject, Pair, ProjectShapes, places_in
from cordwood.ingest.fitting import Fitting, Records
from cordwood.ingest.walk import Found, texts_at
from cordwood.model.event import Event
from cordwood.model.shape import Path, ValueKind

_SOMETHING_UNLISTED: Final[Pair] = ((), ValueKind.UNLISTED)


class ProjectNews:
    """The new paths of one batch by project.

    An event belongs to its own project and to the one at `place` in its metadata.
    """

    def __init__(self, shapes: ProjectShapes, place: Sequence[str], most_of_an_event: int) -> None:
        self.shapes = shapes
        self._most_of_an_event = most_of_an_event
        self._place = tuple(place)
        self._sets: dict[str, int] = {}
        self._new: dict[str, int] = {}

    @property
    def by_project(self) -> ByProject:
        return {project: self.shapes.kinds(bits) for project, bits in self._new.items() if bits}

    def of_fitting(self, event: Event, records: Records, fits: Fitting, of_stream: Fitting) -> None:
        """Add an event that matches the stream's shape, for projects whose shape may lack some of its paths.

        If the event matched its own project's decoder, that project lacks none of them.
        """
        project = event.project
        if fits is of_stream and project not in fits.covering and project is not None:
            self._take_uncovered(project, event, records, fits)
        if self._place:
            for other in fits.at(event, records, self._place):
                if other != project and other not in of_stream.covering:
                    self._take_other(other, event, of_stream)

    def _take_other(self, project: str, event: Event, of_stream: Fitting) -> None:
        records = of_stream.records(event)
        if records is not None:
            self._take_uncovered(project, event, records, of_stream)

    def of_odd(self, event: Event, own: Found, is_listed: Callable[[Path], bool]) -> Found:
        """Return the paths that the stream may list: listed ones, and those for which one of its projects has room."""
        projects = self._projects(event)
        if not projects:
            return own
        sets = 0
        for project in projects:
            sets |= self._take_pairs(project, own)
        return {path: kinds for path, kinds in own.items() if is_listed(path) or self._has_room(sets, path, kinds)}

    def _projects(self, event: Event) -> set[str]:
        projects = set(texts_at(event.metadata, self._place)) if self._place else set()
        return projects if event.project is None else projects | {event.project}

    def _take_uncovered(self, project: str, event: Event, records: Records, fitting: Fitting) -> None:
        if fitting.everything & ~self.shapes.set_of(project):
            self._take(project, fitting.bits(event, records))
        else:
            fitting.covering.add(project)

    def _take(self, project: str, bits: int) -> None:
        key, known = self._known(project)
        new = bits & ~known
        if self._is_full(known):
            return
        if new.bit_count() > self._limit(known):
            new = self._first([self.shapes.pairs[place] for place in places_in(new)], known)
        self._put(key, known, new)

    def _take_pairs(self, project: str, own: Found) -> int:
        key, known = self._known(project)
        if self._is_full(known):
            return known
        pairs = [(path, kind) for path, kinds in own.items() for kind in kinds]
        new = [pair for pair in pairs if not known & self.shapes.listed(pair)]
        return self._put(key, known, self._first(new, known))

    def _known(self, project: str) -> tuple[str, int]:
        key = project if self.shapes.has_room_for(project) else OTHERS
        known = self._sets.get(key)
        return key, self.shapes.set_of(key) if known is None else known

    def _is_full(self, known: int) -> bool:
        return known.bit_count() >= MAX_OF_ONE_PROJECT and bool(known & self.shapes.listed(_SOMETHING_UNLISTED))

    def _limit(self, known: int) -> int:
        return max(0, min(MAX_OF_ONE_PROJECT - known.bit_count(), self._most_of_an_event))

    def _first(self, new: Sequence[Pair], known: int) -> int:
        """Return the shortest pairs within the limit, and the mark for unlisted paths if some are left out."""
        limit = self._limit(known)
        taken = new if len(new) <= limit else [_SOMETHING_UNLISTED, *sorted(new, key=_outermost)[:limit]]
        bits = 0
        for pair in taken:
            bits |= self.shapes.bit(pair)
        return bits

    def _put(self, key: str, known: int, bits: int) -> int:
        if bits & ~known:
            self._sets[key] = known | bits
            self._new[key] = self._new.get(key, 0) | (bits & ~known)
        return known | bits

    def _has_room(self, sets: int, path: Path, kinds: Collection[ValueKind]) -> bool:
        return not kinds or any(self.shapes.listed((path, kind)) & sets for kind in kinds)


def _outermost(pair: Pair) -> tuple[int, Pair]:
    return len(pair[0]), pair
