"""Hints of errors that a value causes while a query runs: they name what the language of the query has."""

import msgspec
import pytest

from cordwood.errors import BadQueryValue, Span
from cordwood.model.definitions import Dialect
from cordwood.serve.explained_faults import explain_raised_faults
from cordwood.serve.query_request import QueryLanguage, QueryRequest, SandboxQuery
from tests.unit.serve.harness import UNCACHED_ENDPOINT, ServeHarness, make_request, run_with_harness

_CLICKHOUSE_ENDPOINT = msgspec.structs.replace(UNCACHED_ENDPOINT, dialect=Dialect.CLICKHOUSE)


def _sandbox_request(language: QueryLanguage, text: str, dialect: Dialect = Dialect.BIGQUERY) -> QueryRequest:
    request = make_request(msgspec.structs.replace(UNCACHED_ENDPOINT, dialect=dialect))
    return msgspec.structs.replace(request, sandbox=SandboxQuery(language, text))


@pytest.mark.parametrize(
    ("request_", "named", "not_named"),
    [
        (_sandbox_request(QueryLanguage.SQL, "select 1 / 0"), "SAFE_CAST", "toInt64OrZero"),
        (_sandbox_request(QueryLanguage.SQL, "SELECT toInt32(a)", Dialect.CLICKHOUSE), "toInt64OrZero", "SAFE"),
        (_sandbox_request(QueryLanguage.LQL, "c:sum(m.a)"), "A filter", "SAFE"),
        (_sandbox_request(QueryLanguage.LOGQL, "{}"), "A filter", "SAFE"),
        (make_request(UNCACHED_ENDPOINT), "SAFE_CAST", "toInt64OrZero"),
        (make_request(_CLICKHOUSE_ENDPOINT), "toInt64OrZero", "SAFE"),
    ],
)
def test_the_hint_fits_the_language_of_the_query(request_: QueryRequest, named: str, not_named: str) -> None:
    fault = BadQueryValue("Division by zero")
    before = fault.hint
    with pytest.raises(BadQueryValue) as raised, explain_raised_faults(request_):
        raise fault
    assert named in (raised.value.hint or "")
    assert not_named not in (raised.value.hint or "")
    assert fault.hint == before, "the error may be shared with callers in other languages"


def test_only_functions_of_bigquery_are_replaced_in_a_hint() -> None:
    request = make_request(_CLICKHOUSE_ENDPOINT)
    hints = ("Write a whole number; SAFE_CAST gives NULL instead.", "Write (?:…) for groups.", None)
    for hint in hints:
        with pytest.raises(BadQueryValue) as raised, explain_raised_faults(request):
            raise BadQueryValue("No.", hint=hint, span=Span(1, 8))
        if hint == hints[0]:
            assert (raised.value.hint or "").startswith("Write a whole number; toInt64OrZero")
        else:
            assert raised.value.hint == hint


def test_a_run_that_fails_has_a_hint_in_the_language_of_the_query() -> None:
    async def test(harness: ServeHarness) -> None:
        harness.engine.fails_with = BadQueryValue("Division by zero")
        with pytest.raises(BadQueryValue) as raised:
            await harness.answers.answer(_sandbox_request(QueryLanguage.LQL, "f:numbers s:ratio"))
        assert "A filter" in (raised.value.hint or "")

    run_with_harness(test)
