"""Translate the ClickHouse client's exceptions into faults; no other module catches them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from clickhouse_connect.driver.exceptions import ClickHouseError

from cordwood.engines.clickhouse.error_messages import reword
from cordwood.errors import (
    Busy,
    Cancelled,
    DataFolderUnusable,
    EngineFailed,
    EngineUnreachable,
    Fault,
    OutOfDisk,
    OutOfMemory,
    OutOfTime,
    PlanTooLarge,
    QuerySyntax,
    QueryUnsupported,
    QueryValue,
    TooManyRows,
)
from cordwood.sql.lowering import RAISED

_TIMEOUT_CODES: Final = frozenset({159, 160, 209, 718})
_CANCELLED_CODES: Final = frozenset({394, 677, 735})
_MEMORY_CODES: Final = frozenset({173, 241, 777, 778})
# The code and text of a failed memory allocation in the C++ standard library.
_STD_EXCEPTION_CODE: Final = 1001
_NO_MEMORY: Final = "bad_alloc"
_ROW_LIMIT_CODES: Final = frozenset({158, 191, 290, 307, 396})
_TOO_LARGE_CODES: Final = frozenset({161, 162, 167, 168, 306, 572})
_BUSY_CODES: Final = frozenset({201, 202, 203, 700, 745, 749, 762, 776})
_DISK_CODES: Final = frozenset({243})
_ACCESS_CODES: Final = frozenset({81, 192, 193, 194, 195, 497, 516})
_UNAVAILABLE_CODES: Final = frozenset({74, 76, 95, 96, 198, 210, 225, 242, 279, 319, 364, 369, 425, 999})


class _Kind(NamedTuple):
    """The fault of a group of ClickHouse's error codes, with the default for a message that has no rewording."""

    codes: frozenset[int]
    fault: type[Fault]
    default_message: str


# Errors that a query or a value causes; a code that is in none of these tables is a failure of the engine.
_QUERY_FAULTS: Final = (
    # Texts and numbers that cannot be parsed, converted or divided, are out of range, or were rejected by throwIf.
    _Kind(
        frozenset(
            {
                *(6, 11, 12, 19, 25, 26, 27, 28, 32, 33, 36, 38, 41, 68, 69, 70, 71, 72, 117, 124, 125, 127, 128, 130, 131),
                *(134, 135, 149, 153, 169, 170, 190, 282, 302, 321, 346, 349, 360, 361, 376, 395, 407, 427, 432, 436, 441, 446),
                *(447, 457, 467, 469, 490, 503, 531, 536, 561, 563, 621, 632, 645, 646, 675, 676, 691, 760),
            }
        ),
        QueryValue,
        "A function is given a value that it cannot take, or a value cannot be converted",
    ),
    # Combinations that ClickHouse does not support.
    _Kind(
        frozenset({1, 2, 10, 48, 121, 141, 186, 187, 206, 262, 264, 284, 309, 344, 403, 438, 446, 450, 455, 475, 476, 498, 527, 721}),
        QueryUnsupported,
        "The query combines types or clauses in a way that is not supported",
    ),
    # Limits of the depth, length and number of columns of the query.
    _Kind(
        frozenset({165, 166, 174, 229, 269, 724}),
        QuerySyntax,
        "The query is too long, or nested too deeply",
    ),
    # Names, types and positions of the query's parts.
    _Kind(
        frozenset(
            {
                *(7, 8, 9, 13, 15, 16, 20, 34, 35, 37, 42, 43, 44, 46, 47, 50, 51, 52, 53, 59, 62, 63, 80, 122, 123, 133, 142),
                *(179, 183, 184, 207, 215, 223, 258, 352, 353, 370, 377, 378, 386, 440, 456, 544, 545, 549, 557, 558, 596, 628, 728),
            }
        ),
        QuerySyntax,
        "The types of the query's parts do not fit together, or one stands where it cannot",
    ),
)  # fmt: skip

# The driver's messages if a connected server did not answer in time.
_NO_ANSWER: Final = ("Read timed out", "read timeout", "ReadTimeout")

# The in-process engine's error message about a value may contain bytes that are not UTF-8.
_NOT_DECODED: Final = "codec can't decode"
# The driver converts each DATE to a Python date while it reads an answer.
_NO_DATE: Final = "is outside the date range"
_UNTRUSTED_CERTIFICATE: Final = re.compile(r"certificate verify failed: (.+?)\.? \(_ssl")
_NO_TLS: Final = "SSLError("
_NOT_OPENED: Final = "Unable to open the chdb engine"


@contextmanager
def clickhouse_faults(seconds: object = None) -> Iterator[None]:
    """Translate the client's exceptions in the block; `seconds` is the time limit to report if it was exceeded."""
    try:
        yield
    except ClickHouseError as problem:
        raise fault_of(problem, seconds) from problem
    except ValueError as problem:
        if _NO_DATE not in str(problem):
            raise
        raise QueryValue("DATE out of range: it would be before 0001-01-01 or after 9999-12-31") from problem


def fault_of(problem: ClickHouseError, seconds: object = None) -> Fault:
    """Return the fault for the server's error code; without a code the server did not answer."""
    code = getattr(problem, "code", None)
    if code is None:
        return _no_answer_fault(str(problem))
    message = server_message(str(problem))
    return (
        _limit_fault(code, message, seconds)
        or _operator_fault(code, message)
        or _query_fault(code, message)
        or EngineFailed("ClickHouse failed.")
    )


def _limit_fault(code: int, text: str, seconds: object) -> Fault | None:
    if code in _TIMEOUT_CODES:
        bound = f"the {seconds} s that it may" if seconds is not None else "it may"
        return OutOfTime(f"The query took longer than {bound}.", hint="Read a shorter time range.")
    if code in _CANCELLED_CODES:
        return Cancelled("The query was stopped.")
    if code in _MEMORY_CODES or (code == _STD_EXCEPTION_CODE and _NO_MEMORY in text):
        return OutOfMemory(
            "The query needs more memory than it may have.", hint="Read a shorter time range, or fewer columns."
        )
    if code in _ROW_LIMIT_CODES:
        return TooManyRows("The query reads more rows than it may.", hint="Read a shorter time range.")
    if code in _BUSY_CODES:
        return Busy("ClickHouse has as many queries as it takes.", retry_after=1)
    return None


def _operator_fault(code: int, text: str) -> Fault | None:
    if code in _DISK_CODES:
        return OutOfDisk("ClickHouse's disk is full: nothing more can be stored.", retry_after=30)
    if code in _ACCESS_CODES:
        return EngineUnreachable(f"ClickHouse does not let us in: {text}", hint=_ADDRESS_HINT, retry_after=30)
    if code in _UNAVAILABLE_CODES:
        return EngineUnreachable(f"ClickHouse cannot serve now: {text}", retry_after=5)
    return None


def _query_fault(code: int, message: str) -> Fault | None:
    if message.startswith(RAISED):
        return QueryValue(message.removeprefix(RAISED))
    if code in _TOO_LARGE_CODES:
        return PlanTooLarge("ClickHouse plans no query that is so deep or so large.", hint=_SPLIT_HINT)
    for kind in _QUERY_FAULTS:
        if code in kind.codes:
            return kind.fault(reword(message) or kind.default_message)
    return None


def _no_answer_fault(text: str) -> Fault:
    if _NOT_DECODED in text:
        return QueryValue("A value of the query is not valid UTF-8")
    if any(phrase in text for phrase in _NO_ANSWER):
        return OutOfTime("ClickHouse did not answer in time.", hint="Read a shorter time range.")
    if _NOT_OPENED in text:
        return DataFolderUnusable("ClickHouse cannot open its folder.", hint=_FOLDER_HINT)
    if match := _UNTRUSTED_CERTIFICATE.search(text):
        return EngineUnreachable(
            f"ClickHouse's certificate is not trusted: {match[1]}.", hint=_TRUST_HINT, retry_after=30
        )
    if _NO_TLS in text:
        return EngineUnreachable("ClickHouse's port does not speak TLS.", hint=_TLS_HINT, retry_after=30)
    return EngineUnreachable("ClickHouse cannot be reached.", hint=_ADDRESS_HINT, retry_after=5)


def is_unavailable(fault: Fault) -> bool:
    """Return whether the server is unavailable, as opposed to wrong credentials, a missing database, or failed TLS."""
    cause = fault.__cause__
    return getattr(cause, "code", None) not in _ACCESS_CODES and _NO_TLS not in str(cause)


_SPLIT_HINT: Final = "Nest fewer functions and sub-queries in each other, or send several queries."
_ADDRESS_HINT: Final = (
    "Check that it runs, and the address, user and password in the setting `engine`; secure=1 there is TLS."
)
_FOLDER_HINT: Final = (
    "Another process may have it, or it cannot be written: stop that one, or choose another in the setting `engine`."
)
_TRUST_HINT: Final = (
    "Name the file of the authority that signed it in the setting `engine`: …?secure=1&ca_cert=/path/to/ca.pem;"
    " where the certificate has another host's name, server_host_name=… says which."
)
_TLS_HINT: Final = "Take the port of its TLS, often 8443, or secure=0, in the setting `engine`."


def server_message(text: str) -> str:
    """Return the server's message without error codes, the excerpt of the query, and the version."""
    # The raised error comes first; the excerpt of the query may contain error texts of other parts.
    text = text.rpartition("DB::Exception: ")[2].strip()
    for suffix in _MESSAGE_SUFFIXES:
        text = text.split(suffix, 1)[0]
    return _CODE_NAME.sub("", text.strip()).rstrip(":")


_MESSAGE_SUFFIXES: Final = (
    ": while executing",
    ": In scope",
    ". In scope",
    ". In query",
    " In query ",
    ": while converting",
    " (version ",
    " (for url ",
    " in JOIN ON expression",
    ": JOIN cannot infer",
    "\n",
)
_CODE_NAME: Final = re.compile(r"\. ?\([A-Z_0-9]+\)$")
