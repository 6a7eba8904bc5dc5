"""Print names, texts, bytes and parameter slots in DuckDB's syntax."""

import re

from sqlglot import exp

from cordwood.engines.duckdb.storage.tables import literal, quoted

_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|/\*.*?\*/""", re.DOTALL)

# DuckDB has no empty names and none with a NUL character: these are encoded with this private-use character.
_SIGN = "\ue0ff"
_SPELLED = {_SIGN: f"{_SIGN}s", "\0": f"{_SIGN}0"}
_READ = {f"{_SIGN}s": _SIGN, f"{_SIGN}0": "\0"}
_SAID = re.compile(f"{_SIGN}(?:[s0e]|d[0-9]+_)")


def is_name(name: str) -> bool:
    """Return whether DuckDB accepts this name."""
    return name != "" and "\0" not in name and _SIGN not in name


def engine_name(name: str) -> str:
    """Return DuckDB's spelling of a name; different names stay different."""
    if is_name(name):
        return name
    return "".join(_SPELLED.get(letter, letter) for letter in name) or f"{_SIGN}e"


def author_name(name: str) -> str:
    """Decode a name that `engine_name` has encoded."""
    return _SAID.sub(lambda spelled: _READ.get(spelled[0], ""), name) if _SIGN in name else name


def told_apart(name: str, place: int) -> str:
    """Return a different spelling for a name that differs from a used one only by case: DuckDB ignores case."""
    return f"{engine_name(name)}{_SIGN}d{place}_"


class DuckDBValues:
    """The engine-specific part of printing a lowered tree."""

    quoted = _QUOTED

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
