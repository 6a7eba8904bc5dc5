"""The functions of the dialect by name in lower case; one module for each subject."""

from collections.abc import Callable, Mapping
from typing import Final

from cordwood.clickhouse_sql import casts
from cordwood.clickhouse_sql.calls import ArgumentTranslator, Call
from cordwood.clickhouse_sql.functions import logic, maps_and_arrays, numbers, texts, times
from cordwood.clickhouse_sql.values import Value

FUNCTIONS: Final[Mapping[str, Callable[[ArgumentTranslator, Call], Value]]] = {
    **casts.FUNCTIONS,
    **logic.FUNCTIONS,
    **numbers.FUNCTIONS,
    **maps_and_arrays.FUNCTIONS,
    **texts.FUNCTIONS,
    **times.FUNCTIONS,
}
