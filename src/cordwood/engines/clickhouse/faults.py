"""The only place where the client's exceptions are caught, and put into our words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from clickhouse_connect.driver.exceptions import ClickHouseError

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
    QuerySyntax,
    QueryUnsupported,
    QueryValue,
    TooManyRows,
)
from cordwood.sql.lowering import RAISED

_TIME: Final = frozenset({159, 160, 209})
_CANCELLED: Final = 394
_MEMORY: Final = frozenset({173, 241})
_ROWS: Final = frozenset({158, 307, 396})
_BUSY: Final = frozenset({202, 745})
_DISK: Final = frozenset({243})
_ENTRY: Final = frozenset({81, 192, 193, 194, 497, 516})
_AWAY: Final = frozenset({74, 76, 210, 225, 242, 279, 319, 425, 999})
_VALUE: Final = frozenset(
    {
        *(6, 25, 26, 27, 32, 36, 38, 41, 69, 70, 72, 117, 125, 128, 130, 131, 134, 135, 149, 153, 190, 282, 302),
        *(321, 349, 361, 376, 395, 407, 427, 432, 441, 457, 467, 469, 531, 561, 646, 675, 676, 677, 691),
    }
)
_COMPILED_WRONGLY: Final = frozenset({42, 43, 44, 46, 47, 53, 62, 63, 179, 184, 207, 215, 386, 700})
_NOT_THERE: Final = frozenset({1, 10, 48, 206, 344, 403, 450})

# What the driver says for itself when a server that was reached did not answer.
_NO_ANSWER: Final = ("Read timed out", "read timeout", "ReadTimeout")

_UNGROUPED: Final = re.compile(r"Column '(?:.*\.)?(.*?)' is not under aggregate function")
_DISTRUSTED: Final = re.compile(r"certificate verify failed: (.+?)\.? \(_ssl")
_NO_TLS: Final = "SSLError("
_NOT_OPENED: Final = "Unable to open the chdb engine"


@contextmanager
def clickhouse_faults(seconds: object = None) -> Iterator[None]:
    """`seconds` are those that what runs may take, to be told when they were not enough."""
    try:
        yield
    except ClickHouseError as problem:
        raise fault_of(problem, seconds) from problem


def fault_of(problem: ClickHouseError, seconds: object = None) -> Fault:
    """The fault that the server's code stands for; without a code nobody answered."""
    code = getattr(problem, "code", None)
    text = sentence(str(problem))
    if code is None:
        return _unanswered(str(problem))
    return (
        _limit(code, seconds)
        or _of_operator(code, text)
        or _of_query(code, text)
        or EngineFailed(f"ClickHouse: {text}")
    )


def _limit(code: int, seconds: object) -> Fault | None:
    if code in _TIME:
        bound = f"the {seconds} s that it may" if seconds is not None else "it may"
        return OutOfTime(f"The query took longer than {bound}.", hint="Read a shorter time range.")
    if code == _CANCELLED:
        return Cancelled("The query was stopped.")
    if code in _MEMORY:
        return OutOfMemory(
            "The query needs more memory than it may have.", hint="Read a shorter time range, or fewer columns."
        )
    if code in _ROWS:
        return TooManyRows("The query reads more rows than it may.", hint="Read a shorter time range.")
    if code in _BUSY:
        return Busy("ClickHouse has as many queries as it takes.", retry_after=1)
    return None


def _of_operator(code: int, text: str) -> Fault | None:
    if code in _DISK:
        return OutOfDisk("ClickHouse's disk is full: nothing more can be stored.", retry_after=30)
    if code in _ENTRY:
        return EngineUnreachable(f"ClickHouse does not let us in: {text}", hint=_CHECK_ADDRESS, retry_after=30)
    if code in _AWAY:
        return EngineUnreachable(f"ClickHouse cannot serve now: {text}", retry_after=5)
    return None


def _of_query(code: int, text: str) -> Fault | None:
    if code in _VALUE:
        return QueryValue(text)
    if code in _NOT_THERE:
        return QueryUnsupported(text)
    if code in _COMPILED_WRONGLY:
        return QuerySyntax(text)
    return None


def _unanswered(text: str) -> Fault:
    if any(words in text for words in _NO_ANSWER):
        return OutOfTime("ClickHouse did not answer in time.", hint="Read a shorter time range.")
    if _NOT_OPENED in text:
        return DataFolderUnusable("ClickHouse cannot open its folder.", hint=_CHECK_FOLDER)
    if found := _DISTRUSTED.search(text):
        return EngineUnreachable(f"ClickHouse's certificate is not trusted: {found[1]}.", hint=_TRUST, retry_after=30)
    if _NO_TLS in text:
        return EngineUnreachable("ClickHouse's port does not speak TLS.", hint=_CHECK_TLS, retry_after=30)
    return EngineUnreachable("ClickHouse cannot be reached.", hint=_CHECK_ADDRESS, retry_after=5)


def is_silent(fault: Fault) -> bool:
    """Whether nobody is there: a server that lets nobody in, has no such database, or is not to be trusted, is."""
    cause = fault.__cause__
    return getattr(cause, "code", None) not in _ENTRY and _NO_TLS not in str(cause)


_CHECK_ADDRESS: Final = (
    "Check that it runs, and the address, user and password in the setting `engine`; secure=1 there is TLS."
)
_CHECK_FOLDER: Final = (
    "Another process may have it, or it cannot be written: stop that one, or choose another in the setting `engine`."
)
_TRUST: Final = (
    "Name the file of the authority that signed it in the setting `engine`: …?secure=1&ca_cert=/path/to/ca.pem;"
    " where the certificate has another host's name, server_host_name=… says which."
)
_CHECK_TLS: Final = "Take the port of its TLS, often 8443, or secure=0, in the setting `engine`."


def sentence(text: str) -> str:
    """What the server said, without its numbers, its drawing of the query, and its version."""
    # What was raised stands first; in the drawing of the query there may be what others of its parts would raise.
    text = text.rpartition("DB::Exception: ")[2].strip().removeprefix(RAISED)
    for end in (
        ": while executing",
        ": In scope",
        ". In scope",
        ": while converting",
        " (version ",
        " (for url ",
        " in JOIN ON expression",
        ". Look at https",
        "\n",
    ):
        text = text.split(end, 1)[0]
    if "cannot compile re2" in text:
        text = text.rpartition(", error: ")[2].removeprefix(".")
    ungrouped = _UNGROUPED.match(text)
    if ungrouped:
        return f"The SELECT list expression references {ungrouped[1]} which is neither grouped nor aggregated"
    return text.strip().rstrip(":")
