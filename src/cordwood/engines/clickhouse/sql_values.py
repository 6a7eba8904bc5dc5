"""Print names, texts, bytes and parameter slots in ClickHouse's syntax."""

import re

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import NAMES, quoted_name, spelled
from cordwood.model.datatype import Kind
from cordwood.sql.typing import kind_of

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`\\]|\\.|``)*`|/\*.*?\*/""", re.DOTALL)


class ClickHouseValues:
    """The engine-specific part of printing a lowered tree."""

    quoted = _QUOTED

    def identifier_for(self, name: str) -> str:
        return spelled(name)

    def name(self, name: str) -> str:
        return quoted_name(name)

    def text(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0") + "'"

    def data(self, data: bytes) -> str:
        return "'" + "".join(f"\\x{byte:02X}" for byte in data) + "'"

    def slot(self, slot: exp.Parameter) -> str:
        """Return the placeholder of a value, which is bound as a nullable value of its own type."""
        return f"{{{slot.name}:Nullable({NAMES[kind_of(slot) or Kind.STRING]})}}"
