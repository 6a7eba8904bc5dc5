"""BigQuery's meaning in ClickHouse's words, one meaning a file."""

from typing import Final

from cordwood.sql.lowering import Rules, joined

RULES: Final[Rules] = joined([])
