"""Validate and convert values of JSON fields. Each function raises BadDefinition for an invalid value."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from cordwood.errors import BadDefinition, did_you_mean

Fields = Mapping[str, object]
Reader = Callable[[str, object], object]
# By JSON field: the setting, and the function that validates and converts the value.
Settings = Mapping[str, tuple[str, Reader]]

_MAX_NUMBER: Final = 2**53
_MAX_DEPTH: Final = 6


def check_known(fields: Fields, known_names: Collection[str], ignored: Collection[str]) -> None:
    """Refuse unknown fields, because ignoring them could lose data without notice."""
    for name in fields:
        if name not in known_names and name not in ignored:
            hint = did_you_mean(name, known_names) or f"There are: {', '.join(known_names)}."
            raise BadDefinition(name[:40], "is not a field", hint=hint)


def refuse_not_offered(fields: Fields, hints: Mapping[str, str]) -> None:
    """Refuse fields of Logflare that are not supported, unless their value is empty."""
    for name, hint in hints.items():
        if fields.get(name) not in (None, False, "", 0, [], {}):
            raise BadDefinition(name, "is not offered", hint=hint)


def apply_fields(before: Mapping[str, object], fields: Fields, settings: Settings) -> dict[str, object]:
    """Return the table with the settings of the fields that were sent. An empty value removes its setting."""
    table = dict(before)
    for name, (setting, read) in settings.items():
        if name not in fields:
            continue
        value = read(name, fields[name])
        table.pop(setting, None)
        if value is not None:
            table[setting] = value
    return order_keys(table, ("name", "id", *(setting for setting, _ in settings.values())))


def field_of_setting(setting: object, settings: Settings) -> str:
    """Return the JSON field of a setting."""
    fields_by_setting = {setting_name: name for name, (setting_name, _) in settings.items()} | {"id": "token"}
    return fields_by_setting.get(str(setting), str(setting))


def setting_of_field(field: str, settings: Settings) -> str:
    """Return the setting of a JSON field."""
    return "id" if field == "token" else settings[field][0] if field in settings else field


def text(field: str, value: object) -> str | None:
    """Return a text, or None if it is empty."""
    if value is None or isinstance(value, str):
        return value or None
    raise BadDefinition(field, "is invalid", hint="It is a text.")


def required_text(field: str, value: object) -> str:
    """Return a text that is not empty."""
    value_text = text(field, value)
    if value_text is None:
        raise BadDefinition(field, "can't be blank")
    return value_text


def flag(field: str, value: object) -> bool | None:
    """Return a boolean, or None for the default."""
    if value is None or isinstance(value, bool):
        return value
    raise BadDefinition(field, "is invalid", hint="It is true or false.")


def number(field: str, value: object) -> int | None:
    """Return a whole number, or None for the default."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER):
        return value
    raise BadDefinition(field, "is invalid", hint="It is a whole number.")


def table(field: str, value: object) -> Mapping[str, object] | None:
    """Return an object whose values TOML can represent, or None if it is empty or null."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise BadDefinition(field, "is invalid", hint="It is an object.")
    return {str(name): require_toml_value(field, item) for name, item in value.items()} or None


def seconds(field: str, value: object) -> str | None:
    """Convert a number of seconds to a duration, or to None if it is 0 or null."""
    return duration(field, value, "s")


def duration(field: str, value: object, unit: str) -> str | None:
    """Convert a number to a duration with a unit, or to None if it is 0 or null."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MAX_NUMBER:
        raise BadDefinition(field, "is invalid", hint="It is a number that is not negative.")
    return f"{value:.6f}".rstrip("0").rstrip(".") + unit if value else None


def require_toml_value(field: str, value: object, depth: int = 0) -> object:
    """Return a value that TOML can represent: without null, deep nesting and large numbers."""
    if value is None or depth > _MAX_DEPTH:
        raise BadDefinition(field, "is invalid", hint="It holds null, or lists and objects too deep in each other.")
    if isinstance(value, int | float) and not abs(value) < _MAX_NUMBER:
        raise BadDefinition(field, "is invalid", hint="It holds a number that is too large.")
    if isinstance(value, Mapping):
        return {str(name): require_toml_value(field, item, depth + 1) for name, item in value.items()}
    return [require_toml_value(field, item, depth + 1) for item in value] if isinstance(value, list) else value


def order_keys(table: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    """Return the table with these keys first, so that files do not depend on the order of changes."""
    return {
        name: table[name]
        for name in (*(name for name in names if name in table), *(name for name in table if name not in names))
    }
