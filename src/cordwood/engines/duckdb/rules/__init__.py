"""BigQuery's meaning in DuckDB's words, one meaning a file."""

from typing import Final

from cordwood.engines.duckdb.rules import (
    aggregates,
    arithmetic,
    arrays,
    casts,
    comparison,
    conditionals,
    events,
    formats,
    hashes,
    json_text,
    json_values,
    literals,
    net,
    numbers,
    regexes,
    relations,
    safe,
    strings,
    structs,
    time_parse,
    time_text,
    times,
    windows,
)
from cordwood.sql.lowering import Rules, joined

_MEANINGS: Final = (
    literals,
    events,
    arithmetic,
    comparison,
    conditionals,
    casts,
    numbers,
    aggregates,
    windows,
    times,
    time_text,
    time_parse,
    strings,
    regexes,
    arrays,
    structs,
    relations,
    net,
    json_text,
    json_values,
    formats,
    hashes,
    safe,
)

RULES: Final[Rules] = joined(module.MEANING for module in _MEANINGS)
