"""The translators of the dialect's functions, by the function's name in lower case; each subject has one module."""

from collections.abc import Callable, Mapping
from typing import Final

from cordwood.clickhouse_sql import casts
from cordwood.clickhouse_sql.calls import ArgumentTranslator, FunctionCall
from cordwood.clickhouse_sql.functions import logic, maps_and_arrays, numbers, texts, times
from cordwood.clickhouse_sql.values import TypedValue

TRANSLATOR_BY_FUNCTION: Final[Mapping[str, Callable[[ArgumentTranslator, FunctionCall], TypedValue]]] = {
    **casts.TRANSLATOR_BY_FUNCTION,
    **logic.TRANSLATOR_BY_FUNCTION,
    **numbers.TRANSLATOR_BY_FUNCTION,
    **maps_and_arrays.TRANSLATOR_BY_FUNCTION,
    **texts.TRANSLATOR_BY_FUNCTION,
    **times.TRANSLATOR_BY_FUNCTION,
}
