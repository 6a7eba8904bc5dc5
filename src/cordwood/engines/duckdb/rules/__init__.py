"""BigQuery's meaning in DuckDB's words, one meaning a file."""

from typing import Final

from cordwood.engines.duckdb.rules import arithmetic, casts, comparison, literals, regexes, strings, time_parse, time_text, times
from cordwood.sql.lowering import Rules, joined

RULES: Final[Rules] = joined(
    meaning.MEANING for meaning in (literals, arithmetic, comparison, casts, times, time_text, time_parse, strings, regexes)
)
