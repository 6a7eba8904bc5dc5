"""Explanation of query errors that engines raise: a position in the caller's text, and a hint in the caller's language.

Engines know neither the text nor the language of a query.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.clickhouse_sql.compile import CLICKHOUSE_VALUE_REMEDY
from cordwood.errors import BadQueryValue
from cordwood.model.definitions import Dialect
from cordwood.serve.query_request import QueryLanguage, QueryRequest
from cordwood.sql.dialects.explain import add_positions_to_raised_faults

# LQL and LogQL have no functions that return NULL instead of failing.
_FILTER_REMEDY: Final = "A filter in the query can leave out the events with such values."


@contextmanager
def explain_raised_faults(request: QueryRequest) -> Iterator[None]:
    """Add positions and hints to the query errors that are raised in the `with` block while `request` is answered."""
    try:
        with add_positions_to_raised_faults(_callers_sql(request)):
            yield
    except BadQueryValue as fault:
        remedy = _value_remedy(request)
        if remedy is None:
            raise
        # The error may be shared by callers whose queries have different languages, so a copy of it is changed.
        raise fault.name_other_functions(remedy) from fault


def _callers_sql(request: QueryRequest) -> str | None:
    """Return the SQL that the caller wrote, or None for LQL and for a saved query."""
    return (
        request.sandbox.text if request.sandbox is not None and request.sandbox.language is QueryLanguage.SQL else None
    )


def _value_remedy(request: QueryRequest) -> str | None:
    """Return what the query can do about a value that an operation cannot accept; None for a query in BigQuery SQL."""
    if request.sandbox is not None and request.sandbox.language is not QueryLanguage.SQL:
        return _FILTER_REMEDY
    return CLICKHOUSE_VALUE_REMEDY if request.endpoint.dialect is Dialect.CLICKHOUSE else None
