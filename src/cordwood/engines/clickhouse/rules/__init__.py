"""The rules that translate BigQuery's operations into ClickHouse's SQL, one subject per module."""

from typing import Final

from cordwood.engines.clickhouse.rules import (
    aggregates,
    casts,
    composites,
    conditions,
    events,
    formats,
    hashes,
    internal_functions,
    json_text,
    json_values,
    literals,
    net,
    numbers,
    redaction,
    relations,
    strings,
    subqueries,
    text_search,
    time_text,
    times,
)
from cordwood.sql.lowering import Rules, merge_rule_sets

_RULE_MODULES: Final = (
    *(aggregates, casts, composites, conditions, events, formats, hashes, internal_functions),
    *(json_text, json_values, literals, net, numbers, redaction, relations),
    *(strings, subqueries, text_search, time_text, times),
)
RULES: Final[Rules] = merge_rule_sets([*(module.RULES for module in _RULE_MODULES), numbers.NUMBER_RULES.rules()])
