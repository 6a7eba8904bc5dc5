"""How ClickHouse reads what is no text of the rules: names, texts, bytes and the places of bound values."""

import re

from sqlglot import exp

from cordwood.engines.clickhouse.rules.words import NAMES, quoted_name, spelled
from cordwood.model.datatype import Kind
from cordwood.sql.typing import kind_of

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`\\]|\\.|``)*`|/\*.*?\*/""", re.DOTALL)


class ClickHouseValues:
    """The engine's half of printing a lowered tree."""

    quoted = _QUOTED

    def spelled(self, name: str) -> str:
        return spelled(name)

    def name(self, name: str) -> str:
        return quoted_name(name)

    def text(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"

    def data(self, data: bytes) -> str:
        return "'" + "".join(f"\\x{byte:02X}" for byte in data) + "'"

    def slot(self, slot: exp.Parameter) -> str:
        """A value is bound as its own type, or NULL."""
        return f"{{{slot.name}:Nullable({NAMES[kind_of(slot) or Kind.STRING]})}}"
