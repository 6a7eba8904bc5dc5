"""How DuckDB reads what is no text of the rules: names, texts, bytes and the places of bound values."""

import re

from sqlglot import exp

from cordwood.engines.duckdb.tables import literal, quoted

_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|/\*.*?\*/""", re.DOTALL)
# A statement says a name again and again; answers show the author's own, whatever it is here.
_LONGEST_NAME = 64 * 1024


def is_name(name: str) -> bool:
    """Say whether DuckDB can call anything so."""
    return 0 < len(name) <= _LONGEST_NAME and "\0" not in name


class DuckDBScript:
    """The engine's half of printing a lowered tree."""

    quoted = _QUOTED

    def name(self, name: str) -> str:
        return quoted(name)

    def text(self, text: str) -> str:
        return literal(text)

    def data(self, data: bytes) -> str:
        """What stands in the quotes of a BLOB literal."""
        return "'" + "".join(f"\\x{byte:02X}" for byte in data) + "'"

    def slot(self, slot: exp.Parameter) -> str:
        return f"${slot.name}"

    def can_be_named(self, name: str) -> bool:
        return is_name(name)
