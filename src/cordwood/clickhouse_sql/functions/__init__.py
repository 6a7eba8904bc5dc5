"""The translators of the dialect's functions, by the function's name in lower case; each subject has one module."""

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
