"""ClickHouse's error codes and errors of the connection become faults."""

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError, ProgrammingError

from cordwood.engines.clickhouse.faults import fault_of
from cordwood.errors import (
    BadQuerySyntax,
    BadQueryValue,
    DataFolderUnusable,
    EngineFailed,
    EngineUnreachable,
    Fault,
    OutOfDisk,
    OutOfMemory,
    QueryCancelled,
    QueryOutOfTime,
    QueryUnsupported,
    ServiceBusy,
    TooManyRows,
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (159, QueryOutOfTime),
        (394, QueryCancelled),
        (241, OutOfMemory),
        (396, TooManyRows),
        (202, ServiceBusy),
        (243, OutOfDisk),
        (516, EngineUnreachable),
        (81, EngineUnreachable),
        (242, EngineUnreachable),
        (153, BadQueryValue),
        (427, BadQueryValue),
        (395, BadQueryValue),
        (48, QueryUnsupported),
        (403, QueryUnsupported),
        (47, BadQuerySyntax),
        (49, EngineFailed),
    ],
)
def test_an_error_code_becomes_a_fault(code: int, kind: type[Fault]) -> None:
    assert type(fault_of(DatabaseError("Code: 0. DB::Exception: so it is. (NAME)", code=code))) is kind


@pytest.mark.parametrize("code", [202, 243, 242, 516])
def test_temporary_errors_have_retry_after(code: int) -> None:
    assert fault_of(DatabaseError("DB::Exception: so it is", code=code)).retry_after


def test_a_refused_connection_is_unreachable_and_a_read_timeout_is_out_of_time() -> None:
    assert isinstance(fault_of(OperationalError("Error HTTPConnectionPool: Connection refused")), EngineUnreachable)
    assert isinstance(
        fault_of(OperationalError("Error HTTPConnectionPool: Read timed out. (read timeout=1)")), QueryOutOfTime
    )


def test_a_folder_that_chdb_cannot_open_is_not_retriable() -> None:
    assert isinstance(fault_of(ProgrammingError("Unable to open the chdb engine at '/x': …")), DataFolderUnusable)


def test_messages_omit_query_version_and_address() -> None:
    text = "Code: 6. DB::Exception: Cannot parse 'x' as Int64: In scope SELECT secret. (CANNOT_PARSE_TEXT) (version 26.9) (for url http://inside:8123)"
    assert fault_of(DatabaseError(text, code=6)).message == "Could not convert string 'x' to INT64"
    join = (
        "Code: 403. DB::Exception: Cannot determine join keys in JOIN ON expression equals(secret, 6). (INVALID_JOIN)"
    )
    assert fault_of(DatabaseError(join, code=403)).message == (
        "A join of this kind needs an equality between columns of both sides"
    )
    message = fault_of(DatabaseError("Code: 1. DB::Exception: No. (for url http://a)", code=1)).message
    assert message == "The query combines types or clauses in a way that is not supported"


def test_a_quoted_query_with_another_message_is_ignored() -> None:
    error_text = "In scope SELECT if(throwIf(b = 0, 'cordwood: division by zero') = 1, NULL, a / b), json_keys(c)"
    text = f"Code: 46. DB::Exception: Function with name `json_keys` does not exist. {error_text}. (UNKNOWN_FUNCTION)"
    assert fault_of(DatabaseError(text, code=46)).message == (
        "The types of the query's parts do not fit together, or one stands where it cannot"
    )
    raised = "Code: 395. DB::Exception: cordwood: division by zero: while executing 'FUNCTION throwIf(…)'. (…)"
    assert fault_of(DatabaseError(raised, code=395)).message == "division by zero"
