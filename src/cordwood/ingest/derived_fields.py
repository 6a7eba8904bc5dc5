"""Derived fields: if an event lacks such a field, a template of the stream fills it from the event's other fields.

For example, the template `https://{project}.{host}{path}` fills the field `metadata.request.url`. Each name in braces
is looked up first in the record that contains the field, then in `headers` of this record, then at the top level of the
event. Names joined by a dot, such as `{project}.{host}`, form one host name. In a host name, a name is omitted if it
has no value, or if the value of the next name already contains its value. Every other name must have a value, or else
the field is not filled.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import msgspec

from cordwood.ingest.event_values import quote_inexact_numbers, values_at
from cordwood.model.definitions import Stream
from cordwood.model.event import Event

_PLACEHOLDER_GROUP_PATTERN = re.compile(r"\{\w+\}(?:\.\{\w+\})*")
_PLACEHOLDER_PATTERN = re.compile(r"\{(\w+)\}")

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

Record = dict[str, Any]
TopLevelLookup = Callable[[str], str | None]


class DerivedField:
    """A derived field with its template. Only a field inside the metadata can be derived."""

    def __init__(self, path: str, template: str) -> None:
        self._metadata_path_steps = path.split(".")[1:]
        self._template = template
        self._presence_decoder = msgspec.json.Decoder(_presence_struct_type(self._metadata_path_steps))

    def fill_if_missing(self, event: Event) -> Event:
        if event.metadata is None or self._has_value(event.metadata):
            return event
        # First turn numbers beyond the decoder's range into strings, because decoding and encoding would change them.
        event = quote_inexact_numbers(event)
        try:
            metadata = _decode(event.metadata or "null")
            extras = _decode(event.extras or "{}")
        except (msgspec.DecodeError, RecursionError):
            return event
        if not self._fill_missing_values(metadata, partial(_top_level_value, event.project, extras)):
            return event
        return msgspec.structs.replace(event, metadata=_encode(metadata).decode())

    def _has_value(self, metadata: str) -> bool:
        """Return whether the field has a value, using a decoder that skips all other fields."""
        try:
            found = self._presence_decoder.decode(metadata)
        except (msgspec.DecodeError, RecursionError):
            return False
        for place in range(len(self._metadata_path_steps)):
            found = getattr(found, f"f{place}")
            if found is None:
                return False
        return True

    def _fill_missing_values(self, metadata: object, top: TopLevelLookup) -> bool:
        """Fill the field in every record that lacks it; return whether any record was changed."""
        *outer, name = self._metadata_path_steps
        lacking = [one for one in values_at(metadata, outer) if isinstance(one, dict) and one.get(name) is None]
        texts = [fill_template(self._template, partial(_sibling_or_top_level_value, record, top)) for record in lacking]
        for record, text in zip(lacking, texts, strict=True):
            if text is not None:
                record[name] = text
        return any(text is not None for text in texts)


def fill_template(template: str, value_of: Callable[[str], str | None]) -> str | None:
    """Return the template filled with values, or None if a required value is missing."""
    texts = [
        _join_distinct_values(_PLACEHOLDER_PATTERN.findall(group), value_of)
        for group in _PLACEHOLDER_GROUP_PATTERN.findall(template)
    ]
    if any(text is None for text in texts):
        return None
    rest = iter(texts)
    return _PLACEHOLDER_GROUP_PATTERN.sub(lambda _: str(next(rest)), template)


def _join_distinct_values(names: Sequence[str], value_of: Callable[[str], str | None]) -> str | None:
    values = [value for name in names if (value := value_of(name))]
    kept = [value for value, later in pairwise([*values, ""]) if value not in later]
    return ".".join(kept) or None


def _sibling_or_top_level_value(record: Record, top: TopLevelLookup, name: str) -> str | None:
    return _sibling_value(record, name) or top(name)


def _sibling_value(record: Record, name: str) -> str | None:
    """Return a text unchanged, and a number or boolean as JSON writes it; None for any other value."""
    headers = record.get("headers")
    for place in (record, headers if isinstance(headers, dict) else {}):
        value = place.get(name)
        if isinstance(value, str | int | float) and value != "":
            return value if isinstance(value, str) else _encode(value).decode()
    return None


def _top_level_value(project: str | None, extras: Record, name: str) -> str | None:
    return project if name == "project" else _sibling_value(extras, name)


def _presence_struct_type(steps: Sequence[str]) -> Any:
    """Return a struct type for a decoder that reads only the field at the path `steps`, and skips all others."""
    found: Any = str | None
    for place, step in reversed(list(enumerate(steps))):
        name = f"f{place}"
        found = msgspec.defstruct("Step", [(name, found | None, None)], rename={name: step}, gc=False)
    return found


class DerivedFields:
    """The derived fields of a stream. An event that has a value at each of `paths` needs no filling."""

    def __init__(self, derive: Sequence[tuple[str, str]]) -> None:
        self._derived_fields = [DerivedField(path, template) for path, template in derive]
        self.paths = tuple(tuple(path.split(".")) for path, _ in derive)

    def fill_missing_fields(self, event: Event) -> Event:
        for derivation in self._derived_fields:
            event = derivation.fill_if_missing(event)
        return event


NO_DERIVED_FIELDS = DerivedFields(())


@lru_cache(maxsize=1000)
def _cached_derived_fields(derive: tuple[tuple[str, str], ...]) -> DerivedFields:
    return DerivedFields(derive)


def derived_fields_of_stream(stream: Stream) -> DerivedFields:
    return _cached_derived_fields(tuple(stream.derive_templates.items()))
