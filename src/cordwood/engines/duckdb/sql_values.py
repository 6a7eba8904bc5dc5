"""Print names, texts, bytes and parameter slots in DuckDB's syntax."""

import re

from sqlglot import exp

from cordwood.engines.duckdb.storage.tables import literal, quoted

_QUOTED_TEXT = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|/\*.*?\*/""", re.DOTALL)

# DuckDB has no empty names and none with a NUL character: these are encoded with this private-use character.
_ESCAPE = "\ue0ff"
_ESCAPES = {_ESCAPE: f"{_ESCAPE}s", "\0": f"{_ESCAPE}0"}
_UNESCAPES = {f"{_ESCAPE}s": _ESCAPE, f"{_ESCAPE}0": "\0"}
_ESCAPED = re.compile(f"{_ESCAPE}(?:[s0e]|d[0-9]+_)")


def is_name(name: str) -> bool:
    """Return whether DuckDB accepts this name."""
    return name != "" and "\0" not in name and _ESCAPE not in name


def engine_name(name: str) -> str:
    """Return DuckDB's spelling of a name; different names stay different."""
    if is_name(name):
        return name
    return "".join(_ESCAPES.get(letter, letter) for letter in name) or f"{_ESCAPE}e"


def author_name(name: str) -> str:
    """Decode a name that `engine_name` has encoded."""
    return _ESCAPED.sub(lambda match: _UNESCAPES.get(match[0], ""), name) if _ESCAPE in name else name


def disambiguate_case(name: str, index: int) -> str:
    """Return a different spelling for a name that differs from a used one only by case: DuckDB ignores case."""
    return f"{engine_name(name)}{_ESCAPE}d{index}_"


class DuckDBValues:
    """The engine-specific part of printing a lowered tree."""

    quoted = _QUOTED_TEXT

    def identifier_for(self, name: str) -> str:
        return engine_name(name)

    def name(self, name: str) -> str:
        return quoted(name)

    def text(self, text: str) -> str:
        return literal(text)

    def data(self, data: bytes) -> str:
        """Return the content of a BLOB literal."""
        return "'" + "".join(f"\\x{byte:02X}" for byte in data) + "'"

    def slot(self, slot: exp.Parameter) -> str:
        return f"${slot.name}"
