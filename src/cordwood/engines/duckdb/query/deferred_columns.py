"""Columns of the answer that Python computes from fetched values after the query, instead of SQL within the query.

DuckDB evaluates expressions for all rows before it applies LIMIT. A query without these expressions can also be
answered from the recent table, which has a stream's newest events, or use late materialization.

The results equal those of the SQL expressions (`rules/events.py`, `rules/time_text.py`). If the query sorts, groups or
compares a value, the SQL expression computes it. If the query only returns the value, this module computes it, which is
many times faster.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from sys import getsizeof
from typing import Any, Final

import msgspec
from sqlglot import exp

from cordwood.bounded_cache import BoundedCache
from cordwood.engines.records import quote_non_finite_numbers
from cordwood.errors import OutOfMemory
from cordwood.model.datatype import Cell
from cordwood.model.timestamps import EPOCH
from cordwood.sql.budget import copy_tree
from cordwood.sql.internal_functions import (
    JSON_KEY_VALUE_SEPARATOR,
    MAX_FLATTENED_JSON_CHARACTERS,
    MAX_FLATTENED_JSON_MEMBERS,
    MAX_FLATTENED_KEY_BYTES,
)
from cordwood.sql.nodes import constant_int, internal_function_name, replace_node
from cordwood.sql.redaction.redaction_pass import output_positions_unused_by_clauses
from cordwood.sql.stages import AttributeMapColumn, ComputedColumn, IsoTimeColumn

_ATTRIBUTES_FUNCTION: Final = internal_function_name("attributes")
_ISO_TIME_FUNCTION: Final = internal_function_name("iso_time")
_JSON_TEXT_FUNCTION: Final = internal_function_name("json_text")


def defer_columns(tree: exp.Expr) -> tuple[ComputedColumn, ...]:
    """In the SELECT list, replace maps of attributes and texts of times by the columns from which Python computes them.

    `tree` is mutated. Instead of a text of a time, the time itself is selected. A map is replaced by NULL, and the
    columns from which it is computed are appended to the SELECT list.
    """
    if not isinstance(tree, exp.Select):
        return ()
    unread = output_positions_unused_by_clauses(tree)
    parts = _AppendedEventColumns(tree)
    completions: list[ComputedColumn] = []
    for position, item in enumerate(list(tree.expressions)):
        value = item.unalias()
        if position + 1 not in unread or not isinstance(value, exp.Anonymous):
            continue
        if value.this == _ISO_TIME_FUNCTION and isinstance(value.expressions[0], exp.Column):
            replace_node(value, copy_tree(value.expressions[0]))
            completions.append(IsoTimeColumn(position))
        elif value.this == _ATTRIBUTES_FUNCTION:
            metadata, extras, project = map(parts.find_or_append_column, value.expressions[:3])
            completions.append(
                AttributeMapColumn(position, metadata, extras, project, constant_int(value.expressions[3]) or 0)
            )
            replace_node(value, exp.Null())
    return tuple(completions)


class _AppendedEventColumns:
    """Appends columns with parts of events, such as the metadata, to a SELECT list; appends each part only once."""

    def __init__(self, select: exp.Select) -> None:
        self._select = select
        self._position_by_column: dict[exp.Expr, int] = {}

    def find_or_append_column(self, part: exp.Expr) -> int:
        """Return the position in the SELECT list of the column with `part`; append the column if it is missing."""
        document = _source_column(part)
        if document not in self._position_by_column:
            self._position_by_column[document] = len(self._select.expressions)
            name = f"part {len(self._position_by_column)}"
            self._select.append("expressions", exp.alias_(document, name, quoted=True))
        return self._position_by_column[document]


def _source_column(part: exp.Expr) -> exp.Expr:
    """Return the column to select for `part`, which is a part of an event.

    If `part` is the JSON text of a whole stored column, the column itself is selected, because
    its values are converted to text when they are fetched.
    """
    is_json = isinstance(part, exp.Anonymous) and part.this == _JSON_TEXT_FUNCTION
    column = part.expressions[0] if is_json else part
    is_whole = isinstance(column, exp.Column) and not column.meta_get("only_text")
    return copy_tree(column if is_whole else part)


# In the Gregorian calendar, the dates repeat after 400 years, which have 146,097 days.
_GREGORIAN_CYCLE_YEARS: Final = 400
_GREGORIAN_CYCLE_DAYS: Final = 146_097

_METADATA_KEY: Final = "metadata"
_PROJECT_KEY: Final = "project"

# The maximum number of bytes by which the maps of a batch of rows may be larger than the events from which they are
# computed. They can be larger, because flattened keys repeat the keys above them, and because several columns may
# contain the same map.
_MAX_MAP_GROWTH_BYTES: Final = 64 * 2**20
# The maximum number of characters of flattened keys that are cached while one batch of events is processed.
_MAX_CACHED_KEY_CHARACTERS: Final = 256 * 1024
# The memory of a `_FlattenedKeyCache` object itself, as a number of characters. It counts towards the limit
# `_MAX_CACHED_KEY_CHARACTERS`.
_CACHE_OBJECT_COST_CHARACTERS: Final = 400
# The private-use characters of Unicode. JSON has no numbers such as NaN, so they are replaced by texts before decoding.
# Each such text begins with one of these characters that does not occur in the event.
_MARKER_CODE_POINTS: Final = range(0xE000, 0xF900)

_BOOLEAN_TEXTS: Final = {True: "true", False: "false"}
_encode_json: Final = msgspec.json.Encoder().encode
_decode_json_string: Final = msgspec.json.Decoder(str).decode
_decode_raw_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# This decoder returns floats as text, to keep all of their digits.
_decode_object_with_text_floats: Final = msgspec.json.Decoder(dict[str, object], float_hook=str).decode


def compute_deferred_columns(
    completions: Iterable[ComputedColumn], columns: Sequence[Sequence[Any]]
) -> Iterator[tuple[int, list[Cell]]]:
    """Compute columns of the answer from fetched columns; yield each computed column with its position."""
    growth = _MapGrowthBudget()
    maps: dict[AttributeMapColumn, list[Cell]] = {}
    for completion in completions:
        if isinstance(completion, AttributeMapColumn):
            same = msgspec.structs.replace(completion, column_position=0)
            if same not in maps:
                parts = (
                    columns[place]
                    for place in (completion.metadata_position, completion.extras_position, completion.project_position)
                )
                maps[same] = encode_attribute_maps(zip(*parts, strict=True), completion.flattened_level_count, growth)
            else:
                growth.add_grown_bytes(sum(len(bytes(cell)) for cell in maps[same] if isinstance(cell, msgspec.Raw)))
            yield completion.column_position, maps[same]
        else:
            yield completion.column_position, format_iso_times(columns[completion.column_position])


class _MapGrowthBudget:
    """A limit on the memory of the maps of attributes that are computed for one batch of rows.

    It counts the bytes by which each map is larger than the event from which it is computed, in each column that has
    it.
    """

    def __init__(self) -> None:
        self._grown_bytes = 0

    def add_grown_bytes(self, grown_bytes: int) -> None:
        self._grown_bytes += grown_bytes
        if self._grown_bytes > _MAX_MAP_GROWTH_BYTES:
            raise OutOfMemory(
                "The maps of attributes are too large: they repeat the keys of nested objects, or are selected repeatedly.",
                hint="Select the keys that you need, as in log_attributes['request.method'], or fewer rows.",
            )


def format_iso_times(values: Sequence[int | None]) -> list[Cell]:
    """Convert times, given in microseconds since 1970, to ISO 8601; years after 9999 have more than four digits."""
    minutes: dict[int, str] = {}
    texts: list[Cell] = []
    for micros in values:
        if micros is None:
            texts.append(None)
            continue
        minute, rest = divmod(micros, 60_000_000)
        text = minutes.get(minute) or minutes.setdefault(minute, _format_iso_minute(minute))
        texts.append(f"{text}:{rest // 1_000_000:02}.{rest % 1_000_000:06}")
    return texts


def _format_iso_minute(minute: int) -> str:
    day, minute_of_day = divmod(minute, 1440)
    cycles, day_of_cycle = divmod(day, _GREGORIAN_CYCLE_DAYS)
    first = EPOCH.date() + timedelta(days=day_of_cycle)
    date = f"{first.year + cycles * _GREGORIAN_CYCLE_YEARS:04}-{first.month:02}-{first.day:02}"
    return f"{date}T{minute_of_day // 60:02}:{minute_of_day % 60:02}"


# The data from which an event's map is computed: the JSON of its metadata, the JSON of its other keys, and its project.
AttributeSources = tuple[str | None, str | None, str | None]


def encode_attribute_maps(
    events: Iterable[AttributeSources], levels: int, growth: _MapGrowthBudget | None = None
) -> list[Cell]:
    """Return each event's map of attributes as JSON; objects in the event are flattened up to `levels` levels deep."""
    keys = _FlattenedKeyCache("", [_MAX_CACHED_KEY_CHARACTERS])
    growth = growth or _MapGrowthBudget()
    maps: list[Cell] = []
    for event in events:
        encoded = _attribute_map_cache.get((levels, event))
        if encoded is None:
            metadata, extras, project = event
            encoded = _encode_json(_build_attribute_map(metadata or "{}", extras, project, levels, keys))
            _attribute_map_cache.put((levels, event), encoded)
        growth.add_grown_bytes(len(encoded) - len(event[0] or ""))
        maps.append(msgspec.Raw(encoded))
    return maps


# A cache of the maps of recently returned events, because a dashboard that refreshes shows mostly the same events. The
# cache's key contains the JSON and the project of the event. So the cache makes only queries that read this same event
# faster, and a caller cannot learn about other events from the time that a query takes.
_attribute_map_cache: Final[BoundedCache[tuple[int, AttributeSources], bytes]] = BoundedCache(
    4 * 2**20, lambda key, encoded: sum(map(getsizeof, key[1]), len(encoded))
)


class _FlattenedKeyCache:
    """A cache of flattened keys, such as `request.path`, that begin with the same prefix.

    All caches of a batch share `room`, a list whose only item is the number of characters that may still be cached.
    """

    __slots__ = ("_child_caches", "_shared_remaining_characters", "flattened_keys", "prefix")

    def __init__(self, prefix: str, room: list[int]) -> None:
        self.prefix = prefix
        self.flattened_keys: dict[str, str] = {}
        self._shared_remaining_characters = room
        self._child_caches: dict[str, _FlattenedKeyCache] = {}

    def flatten_key(self, key: str) -> str:
        """Return the prefix followed by `key`, which is not in `flattened_keys` yet; cache the result if it fits."""
        flattened = self.prefix + key
        if self._reserve_characters(len(flattened)):
            self.flattened_keys[key] = flattened
        return flattened

    def child_cache(self, key: str) -> "_FlattenedKeyCache | None":
        """Return the cache for the keys of the object at `key`.

        Return None if their prefix would be so long that these keys are not flattened.
        """
        found = self._child_caches.get(key)
        if found is None:
            found = _FlattenedKeyCache(f"{self.prefix}{key}.", self._shared_remaining_characters)
            if len(found.prefix.encode()) > MAX_FLATTENED_KEY_BYTES + 1:
                return None
            if self._reserve_characters(len(found.prefix) + _CACHE_OBJECT_COST_CHARACTERS):
                self._child_caches[key] = found
        return found

    def _reserve_characters(self, characters: int) -> bool:
        self._shared_remaining_characters[0] -= characters
        return self._shared_remaining_characters[0] > 0


_AddAttributes = Callable[[Mapping[str, Any], dict[str, str]], None]


class _RawJsonNeededError(Exception):
    """Raised if the map must contain an object's original JSON; the event is then decoded again, keeping the JSON."""


def _build_attribute_map(
    metadata: str, extras: str | None, project: str | None, levels: int, keys: _FlattenedKeyCache
) -> dict[str, str]:
    if _is_too_large_to_expand(metadata, extras or ""):
        levels = 0
    try:
        return _read_attributes(metadata, extras, project, levels, keys)
    except msgspec.DecodeError:
        return _build_non_finite_attribute_map(metadata, extras or "{}", project, levels, keys)


def _build_non_finite_attribute_map(
    metadata: str, extras: str, project: str | None, levels: int, keys: _FlattenedKeyCache
) -> dict[str, str]:
    """Return the attributes of an event that contains numbers that JSON cannot represent, such as NaN.

    Before decoding, each such number is replaced by a text that begins with a mark.
    """
    both = metadata + extras
    mark = next((chr(code) for code in _MARKER_CODE_POINTS if chr(code) not in both), chr(_MARKER_CODE_POINTS[0]))
    quoted = re.compile(f'"{mark}([-A-Za-z]+)"')
    attributes = _read_attributes(
        quote_non_finite_numbers(metadata, mark), quote_non_finite_numbers(extras, mark), project, levels, keys
    )
    return {key: quoted.sub(r"\1", text).removeprefix(mark) for key, text in attributes.items()}


def _is_too_large_to_expand(metadata: str, extras: str) -> bool:
    """Return whether the event is so large that objects below its top level are not flattened."""
    size = len(metadata) + len(extras)
    if size <= MAX_FLATTENED_JSON_CHARACTERS and not (metadata.isascii() and extras.isascii()):
        size = len(metadata.encode()) + len(extras.encode())
    return (
        size > MAX_FLATTENED_JSON_CHARACTERS
        or metadata.count(JSON_KEY_VALUE_SEPARATOR) + extras.count(JSON_KEY_VALUE_SEPARATOR)
        > MAX_FLATTENED_JSON_MEMBERS
    )


def _read_attributes(
    metadata: str, extras: str | None, project: str | None, levels: int, keys: _FlattenedKeyCache
) -> dict[str, str]:
    is_object = metadata.startswith("{")
    # The map contains each list as its original JSON, which the fast decoder does not keep. So an event that may
    # contain a list is decoded by `_decode_raw_object` instead.
    if is_object and "[" not in metadata and not (extras and "[" in extras):
        try:
            top = _remove_null_members(_decode_object_with_text_floats(extras)) if extras else {}
            return _merge_attributes(
                _decode_object_with_text_floats(metadata), top, project, partial(_add_decoded_members, keys, levels)
            )
        except _RawJsonNeededError:
            pass
    members = _decode_raw_object(metadata) if is_object else {_METADATA_KEY: msgspec.Raw(metadata.encode())}
    top = {key: value for key, value in _decode_raw_object(extras).items() if bytes(value) != b"null"} if extras else {}
    return _merge_attributes(members, top, project, partial(_add_raw_members, keys, levels))


def _remove_null_members(members: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in members.items() if value is not None}


def _merge_attributes(
    metadata: Mapping[str, Any], top: Mapping[str, Any], project: str | None, add: _AddAttributes
) -> dict[str, str]:
    """Merge an event's attributes; keys at its top level take precedence over keys of its metadata.

    If two attributes have the same key, the first is kept. DuckDB sorts the keys of objects, so the key `b` in the
    object `a` takes precedence over the key `a.b`.
    """
    attributes: dict[str, str] = {}
    if top:
        add(top, attributes)
    if project is not None:
        attributes[_PROJECT_KEY] = project
    if top or (project is not None and _PROJECT_KEY in metadata):
        metadata = {
            key: value for key, value in metadata.items() if key not in top and (project is None or key != _PROJECT_KEY)
        }
    add(metadata, attributes)
    return attributes


def _add_decoded_members(
    keys: _FlattenedKeyCache, levels: int, members: Mapping[str, Any], attributes: dict[str, str]
) -> None:
    flattened = keys.flattened_keys
    for key, value in members.items():
        name = flattened.get(key) or keys.flatten_key(key)
        kind = type(value)
        if kind is str:
            attributes.setdefault(name, value)
        elif kind is dict:
            below = keys.child_cache(key) if value and levels else None
            if below is not None:
                _add_decoded_members(below, levels - 1, value, attributes)
            elif value:
                raise _RawJsonNeededError
            else:
                attributes.setdefault(name, "{}")
        elif value is not None:
            attributes.setdefault(name, _BOOLEAN_TEXTS[value] if kind is bool else str(value))


def _add_raw_members(
    keys: _FlattenedKeyCache, levels: int, members: Mapping[str, Any], attributes: dict[str, str]
) -> None:
    for key, value in members.items():
        raw = bytes(value)
        below = keys.child_cache(key) if levels and raw.startswith(b"{") and raw != b"{}" else None
        if below is not None:
            _add_raw_members(below, levels - 1, _decode_raw_object(raw), attributes)
        elif raw.startswith(b'"'):
            attributes.setdefault(keys.prefix + key, _decode_json_string(raw))
        elif raw != b"null":
            attributes.setdefault(keys.prefix + key, raw.decode())
