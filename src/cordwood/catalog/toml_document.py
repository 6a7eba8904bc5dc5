"""Parse the TOML of definitions with the line number of every setting, report unknown settings, and write TOML.

The module also reads the UUIDs of endpoints and streams. If a file does not state a UUID, it is derived from the name.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final, TypeVar
from uuid import UUID, uuid5

import msgspec

from cordwood.errors import SetupFault, Span, did_you_mean
from cordwood.settings.quantities import parse_duration

_ERROR_POSITION_PATTERN = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TABLE_HEADER_PATTERN = re.compile(r"\s*\[\[?([^\]]+)\]\]?\s*(?:#.*)?$")
_ASSIGNMENT_PATTERN = re.compile(r"""\s*((?:"[^"]*"|'[^']*'|[\w-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[\w-]+))*)\s*=""")
_DOTTED_KEY_PART_PATTERN = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([\w-]+))""")
# Matches strings, comments, and the characters that nest arrays and tables or separate the steps of dotted keys. Each
# alternative for a string also matches an unterminated string, so that a text is scanned only once.
_TOKEN_PATTERN = re.compile(
    r'''"""(?:[^"\\]|\\(?:.|\Z)|"(?!""))*(?:"""|\Z)|"(?:[^"\\\n]|\\(?:.|\Z))*"?'''
    r"""|'''(?:[^']|'(?!''))*(?:'''|\Z)|'[^'\n]*'?|\#[^\n]*|[\[\]{}.=,\n]""",
    re.DOTALL,
)
_OVERLONG_NUMBER_PATTERN = re.compile(r"[0-9_]{1000}")
# The depth of nesting is limited, because the parser of TOML calls itself for each nested array and inline table. The
# number of steps in a dotted key is limited, because the parser takes quadratic time for a key with many steps.
_MAX_NESTING_DEPTH: Final = 16
_MAX_DOTTED_KEY_PARTS: Final = 16

TomlPath = tuple[str | int, ...]
T = TypeVar("T", str, bool)
_VALUE_DESCRIPTION_BY_TYPE: Mapping[type, str] = {str: "a text in quotes", bool: "true or false"}

_BARE_KEY_PATTERN = re.compile(r"[A-Za-z0-9_-]+")


class TomlDocument(msgspec.Struct, frozen=True):
    """A TOML text that begins on the line `first_line_number` of a file, and the tables parsed from it."""

    file: str
    text: str
    first_line_number: int
    fault_class: type[SetupFault]
    root_table: Mapping[str, object] = msgspec.field(default_factory=dict)

    def parse(self) -> "TomlDocument":
        self._check_nesting()
        try:
            tables = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as problem:
            raise self._syntax_fault(str(problem)) from problem
        except ValueError as problem:
            number = _OVERLONG_NUMBER_PATTERN.search(self.text)
            raise self._fault_at_offset("A number has too many digits.", number.start() if number else 0) from problem
        return TomlDocument(self.file, self.text, self.first_line_number, self.fault_class, tables)

    def fault_at(self, message: str, path: TomlPath = (), hint: str | None = None) -> SetupFault:
        """Return an error at the line of the setting with this path."""
        fault = self.fault_class(message, hint=hint, span=Span(self.line_of(path), 1, self.file))
        fault.setting_path = path
        return fault

    def line_of(self, path: TomlPath) -> int:
        """Return the line of the setting with this path; if it is not known, that of the nearest enclosing table."""
        lines = _line_number_by_path(self.text)
        while path and path not in lines:
            path = path[:-1]
        return self.first_line_number + lines.get(path, 0)

    def check_setting_names(self, table: Mapping[str, object], known_names: Iterable[str], path: TomlPath = ()) -> None:
        """Raise an error for the first unknown name in a table; its hint suggests the most similar known name."""
        names = list(known_names)
        for name in table:
            if name not in names:
                hint = did_you_mean(name, names) or f"There are: {', '.join(names)}."
                raise self.fault_at(f"{name} is not a setting here.", (*path, name), hint)

    def read_value(self, table: Mapping[str, object], path: TomlPath, key: str, expected_type: type[T]) -> T | None:
        """Return a table's value for `key`, or None if there is none; raise an error for a value of another type."""
        value = table.get(key)
        if value is not None and type(value) is not expected_type:
            raise self.fault_at(f"{key} must be {_VALUE_DESCRIPTION_BY_TYPE[expected_type]}.", (*path, key))
        return value if isinstance(value, expected_type) else None

    def value_as_text(self, path: TomlPath, value: object) -> str:
        """Return a TOML value in the form in which a request would send it as text."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str | int | float):
            return str(value)
        if hasattr(value, "isoformat"):
            return str(value.isoformat())
        raise self.fault_at("A value must be a text, a number or a time.", path)

    def value_as_seconds(self, path: TomlPath, value: object) -> float:
        """Convert a duration with a unit, such as `5m`, to seconds; raise an error for any other value."""
        try:
            return parse_duration(str(value))
        except ValueError as problem:
            raise self.fault_at(f"{path[-1]}: {problem}.", path) from problem

    def _check_nesting(self) -> None:
        """Raise an error for a value that is nested too deeply, and for a key that has too many steps."""
        nesting = dots = 0
        for token in _TOKEN_PATTERN.finditer(self.text):
            character = token[0]
            if character == ".":
                dots += 1
            elif character in ("[", "{"):
                nesting, dots = nesting + 1, 0
            elif character in ("]", "}"):
                nesting = max(0, nesting - 1)
            elif character in ("=", ",", "\n"):
                dots = 0
            if nesting > _MAX_NESTING_DEPTH or dots >= _MAX_DOTTED_KEY_PARTS:
                raise self._fault_at_offset("The settings are nested too deeply.", token.start())

    def _fault_at_offset(self, message: str, offset: int) -> SetupFault:
        line = self.first_line_number + self.text.count("\n", 0, offset)
        return self.fault_class(message, span=Span(line, offset - self.text.rfind("\n", 0, offset), self.file))

    def _syntax_fault(self, problem: str) -> SetupFault:
        position = _ERROR_POSITION_PATTERN.search(problem)
        line, column = (
            (int(position[1]), int(position[2]))
            if position and position[1]
            else (self.text.count("\n") + 1, len(self.text) - self.text.rfind("\n"))
        )
        sentence = problem[: position.start()] if position else problem
        span = Span(self.first_line_number + line - 1, column, self.file)
        return self.fault_class(f"The settings are not TOML: {sentence}.", span=span)


def _line_number_by_path(text: str) -> dict[TomlPath, int]:
    """Map the path of every table and assignment to its line, counted from 0.

    The path of a table in an array contains the table's index.
    """
    lines: dict[TomlPath, int] = {}
    counts: dict[TomlPath, int] = {}
    table: TomlPath = ()
    for number, line in enumerate(text.split("\n")):
        if header := _TABLE_HEADER_PATTERN.match(line):
            table = _add_array_indexes(_split_dotted_key(header[1]), counts, is_array=line.lstrip().startswith("[["))
            lines.setdefault(table, number)
        elif assignment := _ASSIGNMENT_PATTERN.match(line):
            lines.setdefault((*table, *_split_dotted_key(assignment[1])), number)
    return lines


def _split_dotted_key(text: str) -> TomlPath:
    """Split a dotted key into steps, and return at most the first `_MAX_DOTTED_KEY_PARTS` of them.

    The limit is necessary because a line inside a multi-line text may look like a very long key.
    """
    return tuple(
        step[1] or step[2] or step[3] or ""
        for step in islice(_DOTTED_KEY_PART_PATTERN.finditer(text), _MAX_DOTTED_KEY_PARTS)
    )


def _add_array_indexes(path: TomlPath, counts: dict[TomlPath, int], *, is_array: bool) -> TomlPath:
    """Add array indexes to the path of a table header: the path of the second `[[stream]]` becomes `("stream", 1)`.

    `counts` has the last index that occurred in each array, and is updated.
    """
    indexed: TomlPath = ()
    for step in path[:-1] if is_array else path:
        indexed = (*indexed, step)
        if indexed in counts:
            indexed = (*indexed, counts[indexed])
    if not is_array or not path:
        return indexed
    indexed = (*indexed, path[-1])
    counts[indexed] = counts.get(indexed, -1) + 1
    return (*indexed, counts[indexed])


def quote_toml_text(text: str) -> str:
    """Format a text as a TOML string. The escapes of JSON are valid in TOML as well.

    TOML also requires that DEL is escaped. The characters `*/` are escaped because an endpoint's settings are in a
    block comment, which they would end.
    """
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f").replace("*/", "*\\u002F")


def format_toml_value(value: object) -> str:
    """Format a value as TOML on one line. Tables become inline tables, and values of unknown types become strings."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(format_toml_assignments(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_toml_value, value)) + "]"
    return quote_toml_text(str(value))


def format_toml_assignments(table: Mapping[str, object]) -> Iterable[str]:
    """Yield a line `key = value` for every key of a table."""
    return (f"{_format_toml_key(name)} = {format_toml_value(value)}" for name, value in table.items())


def format_toml_table_header(*path: str) -> str:
    """Format the header line of a table; for the path `("a", "b")`, this is `[a.b]`."""
    return "[" + ".".join(map(_format_toml_key, path)) + "]"


def _format_toml_key(name: str) -> str:
    return name if _BARE_KEY_PATTERN.fullmatch(name) else quote_toml_text(name)


_UUID_PATTERN = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")


def is_uuid(text: str) -> bool:
    return _UUID_PATTERN.fullmatch(text) is not None


def read_or_derive_id(document: TomlDocument, path: TomlPath, value: object, namespace: UUID, name: str) -> UUID:
    if value is None:
        return uuid5(namespace, name)
    if not isinstance(value, str) or not is_uuid(value):
        raise document.fault_at(f"{value!r} is no UUID.", path, "Leave id out, and one is made from the name.")
    return UUID(value)


def numeric_id(token: UUID) -> int:
    """Return the numeric id of an endpoint or a stream for Logflare's clients: the first 31 bits of its UUID, `token`.

    The numeric id is not unique: two endpoints or two streams may have the same.
    """
    return token.int >> 97
