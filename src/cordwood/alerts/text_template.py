"""The text of an alert: `{column}` is replaced by the value of the row, `{{` and `}}` are braces."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from cordwood.model.alert import MAX_TEXT

# The bound of a value, because rows hold what senders of events wrote.
MAX_VALUE: Final = 200

_PART: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def template_columns(template: str) -> tuple[str, ...]:
    """Return the columns that a template names."""
    return tuple(found[1] for found in _PART.finditer(template) if found[1] is not None)


def template_problem(template: str) -> str | None:
    """Return what is wrong with a template; None if nothing is."""
    for found in _PART.finditer(template):
        if found[0] in ("{", "}"):
            return f"the brace at character {found.start() + 1} has no other."
        if found[1] == "":
            return f"the braces at character {found.start() + 1} name no column."
    return None


def filled(template: str, values: Mapping[str, object]) -> str:
    """Return the text with the values of a row. A column that the row has not is an empty text."""

    def value(found: "re.Match[str]") -> str:
        if found[1] is None:
            return found[0][0]
        return shown_value(values.get(found[1]))

    return cut(_PART.sub(value, template), MAX_TEXT)


def shown_value(value: object) -> str:
    """Return a value on one line, cut to a bounded length."""
    if value is None:
        return ""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        text = str(int(value))
    else:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return cut(_CONTROLS.sub(" ", text[: 2 * MAX_VALUE]), MAX_VALUE)


def cut(text: str, length: int) -> str:
    """Return the text, or its beginning with an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"
