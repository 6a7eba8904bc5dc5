"""The settings as a list of fields that is derived from the structs: names, types, defaults and descriptions."""

import math
import re
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from cordwood.errors import BadSetting
from cordwood.settings.quantities import read_duration, read_rate, read_size, show_duration, show_rate, show_size
from cordwood.settings.settings import Section, Settings

_READERS = {"size": read_size, "duration": read_duration, "rate": read_rate}
_WRITERS = {"size": show_size, "duration": show_duration, "rate": show_rate}
_BOUND_MESSAGE = re.compile(r"Expected `\w+` (>=|<=|>|<) (-?[\d.]+)")
_BOUND_WORDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_KIND = re.compile(r"Expected `(\w+)`, got `\w+`")
_KIND_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
_INVALID_CHOICE_MESSAGE = "Invalid enum value"


class Field(msgspec.Struct, frozen=True):
    """A setting. `section` is empty for a setting without a section."""

    section: str
    key: str
    annotation: Any
    default: object
    meta: msgspec.Meta

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}" if self.section else self.key

    @property
    def variable(self) -> str:
        return f"CORDWOOD_{self.name.replace('.', '_').upper()}"

    @property
    def facts(self) -> Mapping[str, object]:
        return self.meta.extra or {}

    @property
    def is_secret(self) -> bool:
        return bool(self.facts.get("secret"))

    @property
    def is_path(self) -> bool:
        return bool(self.facts.get("path"))


@cache
def fields() -> Mapping[str, Field]:
    """Return every setting by its dotted name, in the order of the structs."""
    found: dict[str, Field] = {}
    for key, annotation in typing.get_type_hints(Settings, include_extras=True).items():
        if isinstance(annotation, type) and issubclass(annotation, Section):
            found |= _fields_of_struct(key, annotation)
    return _fields_of_struct("", Settings) | found


def _fields_of_struct(section: str, struct: type[msgspec.Struct]) -> dict[str, Field]:
    hints = typing.get_type_hints(struct, include_extras=True)
    defaults = {field.name: field.default for field in msgspec.structs.fields(struct)}
    made = [
        Field(section, key, hint, defaults[key], hint.__metadata__[0])
        for key, hint in hints.items()
        if typing.get_origin(hint) is typing.Annotated
    ]
    return {field.name: field for field in made}


def sections() -> Mapping[str, type[Section]]:
    """Return the sections by name."""
    hints = typing.get_type_hints(Settings)
    return {key: hint for key, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Section)}


def read(field: Field, raw: object, origin: str) -> object:
    """Parse the value of a setting; raise BadSetting with the problem and the source of the value."""
    try:
        return _converted(field, raw)
    except (ValueError, msgspec.ValidationError) as problem:
        shown = "what was given" if field.is_secret else repr(raw)
        raise BadSetting(
            f"{field.name}: {shown} cannot be used: {_requirement(field, problem)} (from {origin})."
        ) from problem


def _requirement(field: Field, problem: Exception) -> str:
    """Describe the allowed values, with limits in the unit of the setting."""
    bound = _BOUND_MESSAGE.fullmatch(str(problem))
    if bound is None:
        return _kind_requirement(field, str(problem))
    unit = field.facts.get("unit")
    shown = _WRITERS[unit](int(bound[2])) if unit == "size" and isinstance(unit, str) else bound[2]
    return f"it must be {_BOUND_WORDS[bound[1]]} {shown}"


def _kind_requirement(field: Field, problem: str) -> str:
    kind = _KIND.fullmatch(problem)
    if kind is not None:
        return f"it must be {_KIND_WORDS.get(kind[1], kind[1])}"
    choices = typing.get_args(typing.get_args(field.annotation)[0])
    if choices and problem.startswith(_INVALID_CHOICE_MESSAGE):
        return f"it must be one of {', '.join(map(str, choices))}"
    return problem


def _converted(field: Field, raw: object) -> object:
    if raw == "" and field.default is None:
        return None
    written = _as_single_text(field, raw)
    unit = field.facts.get("unit")
    value = _READERS[unit](str(written)) if isinstance(unit, str) else written
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it is not finite")
    return msgspec.convert(value, field.annotation, strict=False)


def _as_single_text(field: Field, raw: object) -> str | float:
    """Convert a list or a table from a file to the single text that a variable of the environment would have."""
    if isinstance(raw, list) and field.facts.get("form") == "list":
        return ",".join(map(str, raw))
    if isinstance(raw, dict) and field.facts.get("form") == "table":
        return "\n".join(f"{key} = {value}" for key, value in raw.items())
    if isinstance(raw, (str, int, float)):
        return raw
    raise ValueError("expected a single value")


def show(field: Field, value: object) -> str:
    """Format a value so that it can be parsed again. For a secret, only whether it is set."""
    if field.is_secret:
        return "(set, not shown)" if value else ""
    unit = field.facts.get("unit")
    if value is None:
        return ""
    if isinstance(unit, str):
        return _WRITERS[unit](typing.cast(Any, value))
    return _without_password(str(value))


def _without_password(text: str) -> str:
    scheme, mark, rest = text.partition("://")
    user, at, host = rest.rpartition("@")
    if not (mark and at and ":" in user):
        return text
    return f"{scheme}://{user.partition(':')[0]}:…@{host}"
