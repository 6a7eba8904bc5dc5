"""Serialise TOML for the endpoint and streams files that the service writes."""

import re
from collections.abc import Iterable, Mapping

import msgspec

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(text: str) -> str:
    """Write a TOML string with JSON's escapes, which TOML shares; DEL is escaped in addition.

    So is the end of a block comment, because an endpoint's settings are in one.
    """
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f").replace("*/", "*\\u002F")


def toml_value(value: object) -> str:
    """Write a value on one line; tables are inline, values of other types become texts."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(assignments(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return toml_text(str(value))


def assignments(table: Mapping[str, object]) -> Iterable[str]:
    """Yield `key = value` for every key."""
    return (f"{_key(name)} = {toml_value(value)}" for name, value in table.items())


def table_header(*path: str) -> str:
    """Write the header line of a table."""
    return "[" + ".".join(map(_key, path)) + "]"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml_text(name)
