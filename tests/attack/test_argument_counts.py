"""A function call with too few, too many or unusual arguments is answered or refused, without an internal error."""

import pytest

from cordwood.sql.permitted_syntax import PERMITTED_FUNCTIONS
from tests.attack.query_fuzzer import open_fuzzed_service, run_query
from tests.chdb_databases import IS_INSTALLED, SKIP_REASON

ARGUMENT_LISTS = ("", "1", "'a'", "null", "b'a'", "1, 1", "'a', ", "'a', 'a', 'a'", "1, 1, 1, 1, 1, 1, 1, 1")
# Words that are functions in only one place of the grammar, so that they are not among PERMITTED_FUNCTIONS.
CONTEXTUAL_FUNCTIONS = ("ORDINAL", "SAFE_ORDINAL", "WEEK")


@pytest.mark.parametrize("engine", ["duckdb", "clickhouse"])
def test_no_number_of_arguments_causes_an_internal_error(engine: str) -> None:
    if engine == "clickhouse" and not IS_INSTALLED:
        pytest.skip(SKIP_REASON)
    with open_fuzzed_service(engine) as app:
        calls = [
            f"{name}({arguments})"
            for name in sorted({*PERMITTED_FUNCTIONS, *CONTEXTUAL_FUNCTIONS})
            for arguments in ARGUMENT_LISTS
        ]
        fuzzed_queries = [run_query(app, "0:0", "sql", f"select {call} as v") for call in calls]
    assert len(fuzzed_queries) > 1_000
    assert [
        (fuzzed_query.text, fuzzed_query.response_text[:300])
        for fuzzed_query in fuzzed_queries
        if fuzzed_query.status >= 500
    ] == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("net.ip_trunc(b'abcd', )", "NET.IP_TRUNC takes at least 2 arguments, not 1."),
        ("ceil()", "CEIL takes at least 1 argument, not 0."),
        ("safe.net.host()", "NET.HOST takes at least 1 argument, not 0."),
        ("max_by(concat('a', 'b'))", "MAX_BY takes at least 2 arguments, not 1."),
        ("replace('a', 'b')", "REPLACE takes at least 3 arguments, not 2."),
        ("ordinal(1)", "Syntax error: ORDINAL can only be used in the brackets after an array."),
        ("week(1)", "Syntax error: WEEK needs a day of the week."),
        ("make_interval(1.5)", "No matching signature for MAKE_INTERVAL for argument type FLOAT64."),
    ],
)
def test_the_error_names_the_function_and_the_required_arguments(call: str, message: str) -> None:
    with open_fuzzed_service("duckdb") as app:
        fuzzed_query = run_query(app, "0:0", "sql", f"select {call} as v from edge_logs")
    assert fuzzed_query.status == 400
    assert message in fuzzed_query.response_text


def test_lists_of_columns_and_parts_of_times_are_not_calls() -> None:
    with open_fuzzed_service("duckdb") as app:
        for text in (
            "select * replace (upper(id) as id) from edge_logs",
            "select * except (timestamp) replace (upper(id) as id) from edge_logs",
            "select timestamp_trunc(timestamp, week(monday)) as v from edge_logs",
            "select [1, 2][ordinal(1)] as v, [1, 2][safe_ordinal(9)] as w",
            "select format_timestamp('%F', timestamp) as v, extract(week(sunday) from timestamp) as w from edge_logs",
            "select array(select 1) as v, safe.timestamp('x') as w, net.ip_to_string(b'abcd') as x",
        ):
            fuzzed_query = run_query(app, "0:0", "sql", text)
            assert fuzzed_query.status == 200, (text, fuzzed_query.response_text)
