"""Complete columns of the answer after the rows are fetched: maps of attributes, and times as text.

They equal the engine's own expressions (`rules/events.py`, `rules/time_text.py`). Those are for values that a query
reads; these, many times as fast, are for values that it only answers.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from sys import getsizeof
from typing import Any, Final

import msgspec

from cordwood.bounded_cache import BoundedCache
from cordwood.engines.records import quote_odd_numbers
from cordwood.errors import OutOfMemory
from cordwood.model.rows import Cell
from cordwood.model.timestamps import EPOCH
from cordwood.sql.internal_functions import MAX_CHARACTERS, MAX_KEY_BYTES, MAX_MEMBERS, MEMBER
from cordwood.sql.stages import AttributeMap, Completion

# The Gregorian calendar repeats after so many years.
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097

_METADATA: Final = "metadata"
_PROJECT: Final = "project"

# The bound of what maps add to the events of a batch: keys repeat those above them, and columns may repeat the map.
_MAX_GROWTH_BYTES: Final = 64 * 2**20
# The characters of flattened keys that are remembered for the next events of a batch.
_MAX_KEY_CHARACTERS: Final = 256 * 1024
# What an object of this module takes, in characters.
_KEYS_CHARACTERS: Final = 400
# Characters without a meaning, of which one that an event does not have is a mark.
_MARKS: Final = range(0xE000, 0xF900)

_BOOLEANS: Final = {True: "true", False: "false"}
_encode: Final = msgspec.json.Encoder().encode
_decode_text: Final = msgspec.json.Decoder(str).decode
_decode_raw: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# Floats keep their digits.
_decode: Final = msgspec.json.Decoder(dict[str, object], float_hook=str).decode


def complete_columns(
    completions: Iterable[Completion], columns: Sequence[Sequence[Any]]
) -> Iterator[tuple[int, list[Cell]]]:
    """Make columns of the answer of the fetched columns; yield them with their positions."""
    growth = _Growth()
    maps: dict[AttributeMap, list[Cell]] = {}
    for completion in completions:
        if isinstance(completion, AttributeMap):
            same = msgspec.structs.replace(completion, position=0)
            if same not in maps:
                parts = (columns[place] for place in (completion.metadata, completion.extras, completion.project))
                maps[same] = attribute_maps(zip(*parts, strict=True), completion.levels, growth)
            else:
                growth.add(sum(len(bytes(cell)) for cell in maps[same] if isinstance(cell, msgspec.Raw)))
            yield completion.position, maps[same]
        else:
            yield completion.position, iso_times(columns[completion.position])


class _Growth:
    """The bytes by which the maps of a batch are longer than their events, and those of maps that are repeated."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, grown_bytes: int) -> None:
        self._bytes += grown_bytes
        if self._bytes > _MAX_GROWTH_BYTES:
            raise OutOfMemory(
                "The maps of attributes are too large: they repeat the keys of nested objects, or are selected repeatedly.",
                hint="Select the keys that you need, as in log_attributes['request.method'], or fewer rows.",
            )


def iso_times(values: Sequence[int | None]) -> list[Cell]:
    """Return times as texts; years beyond 9999 have all of their digits."""
    minutes: dict[int, str] = {}
    texts: list[Cell] = []
    for micros in values:
        if micros is None:
            texts.append(None)
            continue
        minute, rest = divmod(micros, 60_000_000)
        text = minutes.get(minute) or minutes.setdefault(minute, _iso_minute(minute))
        texts.append(f"{text}:{rest // 1_000_000:02}.{rest % 1_000_000:06}")
    return texts


def _iso_minute(minute: int) -> str:
    day, minute_of_day = divmod(minute, 1440)
    cycles, day_of_cycle = divmod(day, _CYCLE_DAYS)
    first = EPOCH.date() + timedelta(days=day_of_cycle)
    date = f"{first.year + cycles * _CYCLE_YEARS:04}-{first.month:02}-{first.day:02}"
    return f"{date}T{minute_of_day // 60:02}:{minute_of_day % 60:02}"


# The JSON of an event's metadata and of its other keys, and its project.
Parts = tuple[str | None, str | None, str | None]


def attribute_maps(events: Iterable[Parts], levels: int, growth: _Growth | None = None) -> list[Cell]:
    """Return the maps of events as JSON, with objects flattened so many levels deep."""
    keys = _Keys("", [_MAX_KEY_CHARACTERS])
    growth = growth or _Growth()
    maps: list[Cell] = []
    for event in events:
        encoded = _maps.get((levels, event))
        if encoded is None:
            metadata, extras, project = event
            encoded = _encode(_attribute_map(metadata or "{}", extras, project, levels, keys))
            _maps.put((levels, event), encoded)
        growth.add(len(encoded) - len(event[0] or ""))
        maps.append(msgspec.Raw(encoded))
    return maps


# The maps of the latest events that were answered: a dashboard that refreshes shows mostly the same ones. A map is found
# by the event's project and texts, so only a caller who reads these events has an answer sooner.
_maps: Final[BoundedCache[tuple[int, Parts], bytes]] = BoundedCache(
    4 * 2**20, lambda key, encoded: sum(map(getsizeof, key[1]), len(encoded))
)


class _Keys:
    """The flattened keys of the members below a prefix, which are remembered while there is `room` for all of them."""

    __slots__ = ("_below", "_room", "flattened", "prefix")

    def __init__(self, prefix: str, room: list[int]) -> None:
        self.prefix = prefix
        self.flattened: dict[str, str] = {}
        self._room = room
        self._below: dict[str, _Keys] = {}

    def add(self, key: str) -> str:
        """Return a key that is not among `flattened`."""
        flattened = self.prefix + key
        if self._takes_room(len(flattened)):
            self.flattened[key] = flattened
        return flattened

    def below(self, key: str) -> "_Keys | None":
        """Return the keys of the object at a key; None if it is not expanded, because its own key is too long."""
        found = self._below.get(key)
        if found is None:
            found = _Keys(f"{self.prefix}{key}.", self._room)
            if len(found.prefix.encode()) > MAX_KEY_BYTES + 1:
                return None
            if self._takes_room(len(found.prefix) + _KEYS_CHARACTERS):
                self._below[key] = found
        return found

    def _takes_room(self, characters: int) -> bool:
        self._room[0] -= characters
        return self._room[0] > 0


_Add = Callable[[Mapping[str, Any], dict[str, str]], None]


class _NotPlain(Exception):
    """A value is answered as its own JSON."""


def _attribute_map(metadata: str, extras: str | None, project: str | None, levels: int, keys: _Keys) -> dict[str, str]:
    if _is_large(metadata, extras or ""):
        levels = 0
    try:
        return _read(metadata, extras, project, levels, keys)
    except msgspec.DecodeError:
        return _read_odd(metadata, extras or "{}", project, levels, keys)


def _read_odd(metadata: str, extras: str, project: str | None, levels: int, keys: _Keys) -> dict[str, str]:
    """Read an event with numbers that JSON has not, which are marked texts meanwhile."""
    both = metadata + extras
    mark = next((chr(code) for code in _MARKS if chr(code) not in both), chr(_MARKS[0]))
    quoted = re.compile(f'"{mark}([-A-Za-z]+)"')
    attributes = _read(quote_odd_numbers(metadata, mark), quote_odd_numbers(extras, mark), project, levels, keys)
    return {key: quoted.sub(r"\1", text).removeprefix(mark) for key, text in attributes.items()}


def _is_large(metadata: str, extras: str) -> bool:
    """Return whether only the top level is expanded."""
    size = len(metadata) + len(extras)
    if size <= MAX_CHARACTERS and not (metadata.isascii() and extras.isascii()):
        size = len(metadata.encode()) + len(extras.encode())
    return size > MAX_CHARACTERS or metadata.count(MEMBER) + extras.count(MEMBER) > MAX_MEMBERS


def _read(metadata: str, extras: str | None, project: str | None, levels: int, keys: _Keys) -> dict[str, str]:
    is_object = metadata.startswith("{")
    # The text of a list is its own JSON.
    if is_object and "[" not in metadata and not (extras and "[" in extras):
        try:
            top = _without_nulls(_decode(extras)) if extras else {}
            return _merge(_decode(metadata), top, project, partial(_add_plain, keys, levels))
        except _NotPlain:
            pass
    members = _decode_raw(metadata) if is_object else {_METADATA: msgspec.Raw(metadata.encode())}
    top = {key: value for key, value in _decode_raw(extras).items() if bytes(value) != b"null"} if extras else {}
    return _merge(members, top, project, partial(_add_raw, keys, levels))


def _without_nulls(members: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in members.items() if value is not None}


def _merge(metadata: Mapping[str, Any], top: Mapping[str, Any], project: str | None, add: _Add) -> dict[str, str]:
    """Return the attributes; keys at the event's top take precedence over those of metadata."""
    attributes: dict[str, str] = {}
    if top:
        add(top, attributes)
    if project is not None:
        attributes[_PROJECT] = project
    if top or (project is not None and _PROJECT in metadata):
        metadata = {
            key: value for key, value in metadata.items() if key not in top and (project is None or key != _PROJECT)
        }
    add(metadata, attributes)
    return attributes


def _add_plain(keys: _Keys, levels: int, members: Mapping[str, Any], attributes: dict[str, str]) -> None:
    flattened = keys.flattened
    for key, value in members.items():
        name = flattened.get(key) or keys.add(key)
        kind = type(value)
        if kind is str:
            attributes[name] = value
        elif kind is dict:
            below = keys.below(key) if value and levels else None
            if below is not None:
                _add_plain(below, levels - 1, value, attributes)
            elif value:
                raise _NotPlain
            else:
                attributes[name] = "{}"
        elif value is not None:
            attributes[name] = _BOOLEANS[value] if kind is bool else str(value)


def _add_raw(keys: _Keys, levels: int, members: Mapping[str, Any], attributes: dict[str, str]) -> None:
    for key, value in members.items():
        raw = bytes(value)
        below = keys.below(key) if levels and raw.startswith(b"{") and raw != b"{}" else None
        if below is not None:
            _add_raw(below, levels - 1, _decode_raw(raw), attributes)
        elif raw.startswith(b'"'):
            attributes[keys.prefix + key] = _decode_text(raw)
        elif raw != b"null":
            attributes[keys.prefix + key] = raw.decode()
