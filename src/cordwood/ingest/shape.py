"""Learns what a stream's events look like before they can be asked for: every path, and the kinds found there."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from cordwood.ingest.derive import NOTHING_DERIVED, Filling
from cordwood.ingest.fitting import Fitting
from cordwood.ingest.numbers import with_numbers_kept
from cordwood.model.event import Event, written_paths
from cordwood.model.shape import ELEMENT, Kinds, Path, Shape, ValueKind

# Past this many paths a stream's new ones stay unlisted: they can be queried, but are not known beforehand.
MAX_PATHS = 5_000
# No event alone, and no object whose keys are data (ids, addresses), takes that room from all others.
MAX_NEW_OF_ONE_EVENT = 500
MAX_STEPS_BELOW = 1_000
_REBUILD_SECONDS = 1.0
# After so many events of one batch that did not fit, the rest of it is held against what those have taught.
_LEARN_MIDWAY_AT = frozenset({16, 128, 1024})

_decode = msgspec.json.Decoder().decode

Found = dict[Path, set[ValueKind]]


class ShapeReader:
    """Looks closely only at events that do not fit what is known: the rest cost a validation each."""

    def __init__(self, shapes: Callable[[], Mapping[str, Shape]]) -> None:
        self._shapes = shapes
        self._fittings: dict[str, Fitting] = {}
        # Paths at which there has only been null: nothing to tell of, but no reason to look again.
        self._nulls: dict[str, set[Path]] = {}

    def learn(
        self, stream: str, events: Sequence[Event], filling: Filling = NOTHING_DERIVED
    ) -> tuple[list[Event], Kinds]:
        """The events as they are stored, with the paths of their objects, and what is new to the stream in them."""
        shape = self._shapes().get(stream, Shape())
        fitting = self._fitting(stream, shape, filling.paths)
        found: Found = {}
        looked_at = []
        unfit = 0
        for posted in events:
            event, paths = posted, fitting.object_paths(posted, as_it_is=False)
            if paths is None and filling.paths:
                event = filling.filled(posted)
                paths = fitting.object_paths(event)
            if paths is None:
                looked_at.append(_looked_at(event, found, shape.kinds))
                unfit += 1
                if unfit in _LEARN_MIDWAY_AT:
                    fitting = self._fitting_with(found, stream, shape, fitting)
            else:
                looked_at.append(msgspec.structs.replace(event, object_paths=paths))
        self._note_nulls(stream, found)
        return looked_at, _new(found, shape.kinds)

    def _fitting_with(self, found: Found, stream: str, shape: Shape, before: Fitting) -> Fitting:
        """For this batch alone: others learn what is in it when it is stored."""
        nulls = self._nulls.get(stream, set()) | {path for path, kinds in found.items() if not kinds}
        learnt = shape.with_learnt(_new(found, shape.kinds))
        return Fitting(learnt, before.built, nulls, before.needed, is_full=len(learnt.kinds) >= MAX_PATHS)

    def _note_nulls(self, stream: str, found: Found) -> None:
        nulls = self._nulls.setdefault(stream, set())
        if len(nulls) < MAX_PATHS:
            nulls.update(path for path, kinds in found.items() if not kinds)

    def _fitting(self, stream: str, shape: Shape, needed: tuple[Path, ...]) -> Fitting:
        known = self._fittings.get(stream)
        nulls = self._nulls.get(stream, set())
        now = time.monotonic()
        is_old = known is not None and known.made_of != (shape.version, len(nulls))
        if known is None or known.needed != needed or (is_old and now - known.built > _REBUILD_SECONDS):
            known = Fitting(shape, now, nulls, needed, is_full=len(shape.kinds) >= MAX_PATHS)
            self._fittings[stream] = known
        return known


def _looked_at(event: Event, found: Found, known: Kinds) -> Event:
    """The event as it is stored, with the paths of its objects; what it may teach is added to what was found."""
    event = with_numbers_kept(event)
    own: Found = {}
    objects: list[Path] = []
    _look(event, own, objects)
    for path in _teachable(own, found, known):
        found.setdefault(path, set()).update(own[path])
    return msgspec.structs.replace(event, object_paths=written_paths(objects))


def _teachable(own: Found, found: Found, known: Kinds) -> Iterable[Path]:
    if len(own) <= MAX_NEW_OF_ONE_EVENT:
        return own
    new = [path for path in own if path not in known and path not in found]
    too_many = frozenset(sorted(new, key=len)[MAX_NEW_OF_ONE_EVENT:])
    return [path for path in own if path not in too_many]


def _look(event: Event, found: Found, objects: list[Path]) -> None:
    if event.project is not None:
        found.setdefault(("project",), set()).add(ValueKind.TEXT)
    if event.metadata is not None:
        _note(_value(event.metadata), ("metadata",), found, objects)
    if event.extras is not None:
        for key, value in _items(_value(event.extras)):
            _note(value, (key,), found, objects)


def _value(text: str) -> object:
    """Nothing is learnt from what cannot be read."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _items(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if isinstance(value, dict) else ()


def _note(value: object, path: Path, found: Found, objects: list[Path]) -> None:
    kinds = found.setdefault(path, set())
    if value is None:
        return
    kinds.add(_kind(value))
    if isinstance(value, dict):
        if ELEMENT not in path:
            objects.append(path)
        for key, one in value.items():
            _note(one, (*path, key), found, objects)
    elif isinstance(value, list):
        for one in value:
            _note(one, (*path, ELEMENT), found, objects)


def _kind(value: object) -> ValueKind:
    match value:
        case bool():
            return ValueKind.BOOL
        case str():
            return ValueKind.TEXT
        case dict():
            return ValueKind.OBJECT
        case list():
            return ValueKind.ARRAY
        case _:
            return ValueKind.NUMBER


def _new(found: Found, known: Kinds) -> Kinds:
    """New kinds always; new paths while there is room."""
    new = {path: frozenset(kinds) - known.get(path, frozenset()) for path, kinds in found.items()}
    unknown = [path for path, kinds in new.items() if kinds and path not in known]
    refused = frozenset(unknown).difference(_with_room(unknown, known)) if unknown else frozenset()
    return {path: kinds for path, kinds in new.items() if kinds and path not in refused}


def _with_room(unknown: Sequence[Path], known: Kinds) -> Sequence[Path]:
    """The shortest first; nothing below a path that finds no room itself."""
    steps_below = Counter(path[:-1] for path in known)
    taken, refused = [], set()
    for path in sorted(unknown, key=len):
        steps_below[path[:-1]] += 1
        if path[:-1] in refused or steps_below[path[:-1]] > MAX_STEPS_BELOW:
            refused.add(path)
        else:
            taken.append(path)
    return taken[: max(0, MAX_PATHS - len(known))]
