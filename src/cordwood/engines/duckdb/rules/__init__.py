"""The rules that translate BigQuery's operations into DuckDB's SQL, one subject per module."""

from typing import Final

from cordwood.engines.duckdb.rules import (
    aggregates,
    byte_functions,
    casts,
    composites,
    conditions,
    events,
    internal_functions,
    json_functions,
    numbers,
    relations,
    sort_keys,
    strings,
    text_search,
    time_text,
    times,
)
from cordwood.engines.duckdb.rules.building_blocks import COMMON_SQL
from cordwood.sql.lowering import LoweringRules, merge_rule_sets
from cordwood.sql.rules.event_numbers import IntegerArguments

RULES: Final[LoweringRules] = merge_rule_sets(
    [
        aggregates.RULES,
        byte_functions.HASH_RULES,
        byte_functions.NET_RULES,
        casts.RULES,
        casts.LITERAL_RULES,
        composites.RULES,
        conditions.RULES,
        events.RULES,
        events.REDACTION_RULES,
        internal_functions.RULES,
        json_functions.RULES,
        json_functions.JSON_PRINTER_RULES,
        numbers.RULES,
        numbers.NUMBER_RULES.rules(),
        relations.RULES,
        sort_keys.RULES,
        strings.RULES,
        strings.FORMAT_RULES,
        text_search.RULES,
        time_text.RULES,
        times.RULES,
    ],
    IntegerArguments(COMMON_SQL).convert,
)
