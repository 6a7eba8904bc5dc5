"""Infer the shape of a stream: every path, and the kinds of values found there, before the events are visible."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from cordwood.engines.project_shapes import ByProject, ProjectShapes
from cordwood.ingest.derive import NOTHING_DERIVED, Filling
from cordwood.ingest.fitting import Fitting, Records
from cordwood.ingest.numbers import with_numbers_kept
from cordwood.ingest.own_fittings import OwnFittings, Wanted
from cordwood.ingest.project_news import ProjectNews
from cordwood.ingest.walk import Found, look
from cordwood.model.event import Event, written_paths
from cordwood.model.shape import NO_KINDS, Kinds, Path, Shape, ValueKind
from cordwood.model.stream import Stream

# Beyond this many paths, new ones stay unlisted: queries can read them, but do not know them in advance.
MAX_PATHS = 5_000
# Bounds that keep a single event, or an object whose keys are data (ids, addresses), from using up all paths.
MAX_NEW_OF_ONE_EVENT = 500
MAX_STEPS_BELOW = 1_000
# Paths with only null values make every decoder larger.
MAX_NULLS = 1_000
MAX_NEW_NULLS_OF_ONE_BATCH = 100
_REBUILD_SECONDS = 1.0
# After these numbers of non-matching events in a batch, the decoder is rebuilt with what they added.
_LEARN_MIDWAY_AT = frozenset({16, 128, 1024})

_UNLISTED, _UNSURE = frozenset({ValueKind.UNLISTED}), frozenset({ValueKind.UNSURE})


class Learnt(msgspec.Struct, frozen=True):
    """The events as stored, and what they add to the shapes of the stream and of each project."""

    events: list[Event]
    kinds: Kinds
    by_project: ByProject


class ShapeReader:
    """Infers shapes. Only events that fail the validating decoder are inspected value by value."""

    def __init__(
        self,
        shapes: Callable[[], Mapping[str, Shape]],
        projects: Callable[[], Mapping[str, ProjectShapes]] = dict,
    ) -> None:
        self._shapes = shapes
        self._projects = projects
        self._fittings: dict[str, Fitting] = {}
        self._own = OwnFittings()
        # Paths with only null values: they are not listed, but must not fail validation again.
        self._nulls: dict[str, set[Path]] = {}

    def read(self, stream: Stream, events: Sequence[Event], filling: Filling = NOTHING_DERIVED) -> Learnt:
        """Return the events with the paths of their objects, and the new paths and kinds."""
        projects = self._projects().get(stream.name)
        news = ProjectNews(projects, stream.project_at, MAX_NEW_OF_ONE_EVENT) if projects is not None else None
        looked_at, kinds = self._learn(stream.name, events, filling, news)
        return Learnt(looked_at, kinds, news.by_project if news is not None else {})

    def learn(
        self, stream: str, events: Sequence[Event], filling: Filling = NOTHING_DERIVED
    ) -> tuple[list[Event], Kinds]:
        """Infer the shape as `read` does, without projects."""
        return self._learn(stream, events, filling, None)

    def _learn(
        self, stream: str, events: Sequence[Event], filling: Filling, news: ProjectNews | None
    ) -> tuple[list[Event], Kinds]:
        odd = _Odd(self._shapes().get(stream, Shape()), news)
        fitting = self._fitting(stream, odd.shape, filling.paths)
        projects = None if news is None else news.shapes
        own = Wanted(self._own, stream, filling.paths, projects, self._nulls.get(stream, ()))
        looked_at = []
        for posted in events:
            event, fits, records = _fitted(posted, own.of(posted.project, fitting), fitting, filling)
            if records is not None:
                looked_at.append(_as_stored(event, fits, records, fitting, news))
                continue
            looked_at.append(odd.looked_at(event))
            if odd.events in _LEARN_MIDWAY_AT:
                fitting = self._fitting_with(odd, stream, fitting)
        self._note_nulls(stream, odd.nulls)
        return looked_at, odd.new()

    def _fitting_with(self, odd: "_Odd", stream: str, before: Fitting) -> Fitting:
        """Return a decoder for the rest of this batch. Other batches see the new paths once this one is stored."""
        new = odd.new()
        if not new and not odd.nulls:
            return before
        nulls = self._nulls.get(stream, set()) | odd.nulls
        return Fitting(odd.shape.with_learnt(new), before.built, nulls, before.needed, self._projects().get(stream))

    def _note_nulls(self, stream: str, found: set[Path]) -> None:
        nulls = self._nulls.setdefault(stream, set())
        room = min(MAX_NULLS - len(nulls), MAX_NEW_NULLS_OF_ONE_BATCH)
        nulls.update(sorted(found - nulls, key=len)[: max(0, room)])

    def _fitting(self, stream: str, shape: Shape, needed: tuple[Path, ...]) -> Fitting:
        known = self._fittings.get(stream)
        nulls = self._nulls.get(stream, set())
        now = time.monotonic()
        is_old = known is not None and known.made_of != (shape.version, len(nulls))
        if known is None or known.needed != needed or (is_old and now - known.built > _REBUILD_SECONDS):
            known = Fitting(shape, now, set(nulls), needed, self._projects().get(stream))
            self._fittings[stream] = known
        return known


def _fitted(
    posted: Event, of_project: Fitting | None, of_stream: Fitting, filling: Filling
) -> tuple[Event, Fitting, Records | None]:
    """Return the event with its derived fields, and the decoder (its project's or the stream's) that it matches."""
    fittings = (of_stream,) if of_project is None else (of_project, of_stream)
    fits, records = _first_that_fits(posted, fittings, as_it_is=False)
    if records is not None or not filling.paths:
        return posted, fits, records
    event = filling.filled(posted)
    return event, *_first_that_fits(event, fittings, as_it_is=True)


def _first_that_fits(event: Event, fittings: Sequence[Fitting], *, as_it_is: bool) -> tuple[Fitting, Records | None]:
    for fitting in fittings:
        records = fitting.records(event, as_it_is=as_it_is)
        if records is not None:
            return fitting, records
    return fittings[-1], None


def _as_stored(event: Event, fits: Fitting, records: Records, of_stream: Fitting, news: ProjectNews | None) -> Event:
    if news is not None:
        news.of_fitting(event, records, fits, of_stream)
    return msgspec.structs.replace(event, object_paths=fits.written(records))


class _Odd:
    """The events of a batch that do not match the shape, and the paths that they add to it."""

    def __init__(self, shape: Shape, news: ProjectNews | None) -> None:
        self.shape = shape
        self.events = 0
        self._news = news
        self._found: Found = {}
        # Parents of paths that were refused because one event, or its project, has too many.
        self._refused_below: set[Path] = set()

    @property
    def nulls(self) -> set[Path]:
        return {path for path, kinds in self._found.items() if not kinds}

    def looked_at(self, event: Event) -> Event:
        """Return the event with the paths of its objects, and collect its new paths.

        Objects at unlisted paths are left out: no query reads them by path, and their list could be much longer than
        the event.
        """
        self.events += 1
        event = with_numbers_kept(event)
        own: Found = {}
        objects: list[Path] = []
        look(event, own, objects)
        allowed = own if self._news is None else self._news.of_odd(event, own, self._is_listed)
        taught = {path: allowed[path] for path in self._teachable(allowed)}
        for path, kinds in taught.items():
            self._found.setdefault(path, set()).update(kinds)
        if len(taught) < len(own):
            refused = own.keys() - taught.keys()
            self._refused_below.update(path[:-1] for path in refused if path[:-1] not in refused)
        return msgspec.structs.replace(event, object_paths=written_paths(path for path in objects if path in taught))

    def new(self) -> Kinds:
        """Return all new kinds, the new paths within bounds, and the mark for unlisted paths above the others."""
        known = self.shape.kinds
        new = {path: frozenset(kinds) - known.get(path, NO_KINDS) for path, kinds in self._found.items()}
        unknown = [path for path, kinds in new.items() if kinds and path not in known]
        listed = set(_with_room(unknown, known))
        learnt = {path: kinds for path, kinds in new.items() if kinds and (path in known or path in listed)}
        marked = self._marked(listed, unknown)
        unsure = {path: _UNSURE for path in listed if _is_below(path, marked | self.shape.unlisted)}
        return _merged(learnt, unsure, dict.fromkeys(marked - self.shape.unlisted, _UNLISTED))

    def _marked(self, listed: Collection[Path], unknown: Iterable[Path]) -> set[Path]:
        """Return the nearest listed paths above those that were refused."""
        below = self._refused_below.union(path[:-1] for path in unknown if path not in listed)
        return {_listed_above(path, listed, self.shape.kinds) for path in below}

    def _is_listed(self, path: Path) -> bool:
        return path in self.shape.kinds or bool(self._found.get(path))

    def _teachable(self, own: Found) -> Iterable[Path]:
        if len(own) <= MAX_NEW_OF_ONE_EVENT:
            return own
        new = [path for path in own if path not in self.shape.kinds and path not in self._found]
        too_many = frozenset(sorted(new, key=len)[MAX_NEW_OF_ONE_EVENT:])
        return [path for path in own if path not in too_many]


def _merged(learnt: Kinds, *more: Kinds) -> Kinds:
    merged = dict(learnt)
    for one in more:
        for path, kinds in one.items():
            merged[path] = merged.get(path, NO_KINDS) | kinds
    return merged


def _is_below(path: Path, marked: Collection[Path]) -> bool:
    return bool(marked) and any(path[:length] in marked for length in range(len(path)))


def _listed_above(path: Path, listed: Collection[Path], known: Kinds) -> Path:
    """Return the path itself if it is listed, else its nearest listed ancestor."""
    while path and path not in listed and path not in known:
        path = path[:-1]
    return path


def _with_room(unknown: Sequence[Path], known: Kinds) -> Sequence[Path]:
    """Return the shortest paths within bounds, and none below a refused path."""
    if not unknown:
        return ()
    steps_below = Counter(path[:-1] for path in known)
    taken, refused = [], set()
    for path in sorted(unknown, key=len):
        steps_below[path[:-1]] += 1
        if path[:-1] in refused or steps_below[path[:-1]] > MAX_STEPS_BELOW:
            refused.add(path)
        else:
            taken.append(path)
    return taken[: max(0, MAX_PATHS - len(known))]
