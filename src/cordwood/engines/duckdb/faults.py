"""Translate DuckDB's exceptions into faults; no other module catches these exceptions."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from cordwood.engines.duckdb.error_messages import reword
from cordwood.errors import (
    Backlog,
    Cancelled,
    DataFolderUnusable,
    EngineFailed,
    Fault,
    OutOfDisk,
    OutOfMemory,
    PlanTooLarge,
    QueryFault,
    QuerySyntax,
    QueryUnsupported,
    QueryValue,
)
from cordwood.observe.observation import Report
from cordwood.sql.lowering import RAISED

_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_UNWRITABLE_ERRNOS = {errno.EROFS, errno.EACCES, errno.EPERM}

# The fault of each of DuckDB's error classes, with the sentence for a message that has no rewording; the first match
# counts. A class that is not listed is a failure of the engine, whatever its message.
_FAULT_BY_ERROR_CLASS: Final[tuple[tuple[type[duckdb.Error], type[Fault], str], ...]] = (
    (duckdb.NotImplementedException, QueryUnsupported, "The query combines types or clauses in a way that is not supported"),
    (duckdb.InvalidInputException, QueryValue, "A function is given a value that it cannot take"),
    (duckdb.InvalidTypeException, QuerySyntax, "A part of the query is of a type that cannot stand there"),
    (duckdb.SyntaxException, QueryValue, "A function is given a text that it cannot read"),
    (duckdb.ConstraintException, QueryValue, "A function is given a value that it cannot take"),
    (duckdb.DataError, QueryValue, "A value cannot be converted to the type that the query wants, or is out of its range"),
    (duckdb.ProgrammingError, QuerySyntax, "The types of the query's parts do not fit together, or one stands where it cannot"),
)  # fmt: skip


@contextmanager
def duckdb_faults() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as problem:
        raise fault_of(problem) from problem
    except OSError as problem:
        if problem.errno in _DISK_FULL_ERRNOS:
            raise out_of_disk() from problem
        if problem.errno in _UNWRITABLE_ERRNOS:
            raise _unwritable_fault(problem) from problem
        raise EngineFailed(f"The data folder cannot be written: {problem.strerror}.") from problem


@contextmanager
def append_faults(report: Report) -> Iterator[None]:
    """Translate any failure to store events: the events are correct, so senders are told to repeat them.

    Ids are looked up among stored events, which needs memory that queries may be using at that moment.
    """
    try:
        with duckdb_faults():
            yield
    except (QueryFault, OutOfMemory) as fault:
        report(
            f"Events could not be stored and were to be sent again: {fault.__cause__ or fault.message}".splitlines()[0]
        )
        raise Backlog("The events cannot be stored at this moment.", hint="Send them again.", retry_after=1) from fault


@contextmanager
def open_faults(file: Path) -> Iterator[None]:
    """Translate any failure to open a store: it is damaged, or the disk is full."""
    try:
        yield
    except duckdb.Error as problem:
        fault = fault_of(problem)
        if isinstance(fault, OutOfDisk):
            raise fault from problem
        raise DataFolderUnusable(
            f"The events in {file} cannot be read: {_first_line(problem)}", hint=RESTORE_HINT
        ) from problem
    except OSError as problem:
        if problem.errno in _DISK_FULL_ERRNOS:
            raise out_of_disk() from problem
        raise DataFolderUnusable(f"{problem.filename or file} cannot be used: {problem.strerror}.") from problem


def fault_of(problem: duckdb.Error) -> Fault:
    message = _first_line(problem)
    # The message of a file that must be reopened quotes the reason of its failed checkpoint.
    if is_out_of_memory(problem) and _MUST_REOPEN_MESSAGE not in message:
        return _out_of_memory_fault()
    if _NESTED_TOO_DEEPLY_MESSAGE in message:
        return PlanTooLarge("The engine plans no expression that is so deep.", hint=_SPLIT_HINT)
    if message.startswith(_SUBQUERY_COPIED_MESSAGE):
        return QueryUnsupported("A sub-query is not supported in this place", hint=_SUBQUERY_HINT)
    for kind, fault, sentence in _FAULT_BY_ERROR_CLASS:
        if isinstance(problem, kind):
            return _query_fault(message, fault, sentence)
    return _file_fault(message)


def _query_fault(message: str, fault: type[Fault], sentence: str) -> Fault:
    # Search the marker at the beginning only: elsewhere it may be part of SQL that the engine quotes.
    raised = _RAISED_MESSAGE.match(message)
    if raised:
        return QueryValue(message[raised.end() :])
    reworded_message = reword(message)
    # An unimplemented feature with a known rewording is caused by a value, such as a time zone that does not exist.
    return (QueryValue if reworded_message and fault is QueryUnsupported else fault)(reworded_message or sentence)


def _file_fault(message: str) -> Fault:
    """Translate errors of reading, writing and committing; DuckDB's message goes to the log."""
    if _MUST_REOPEN_MESSAGE in message:
        return Cancelled("The query was stopped: the engine opens its file anew.", hint="Ask again.", retry_after=1)
    if _SPILL_MESSAGES.search(message):
        return _spill_fault()
    if is_disk_full(message):
        return out_of_disk()
    if _DAMAGED_MESSAGE in message:
        return EngineFailed(f"A part of events.duckdb is damaged: {message}.", hint=RESTORE_HINT)
    return EngineFailed("The engine failed.")


def is_disk_full(message: str) -> bool:
    """Return whether DuckDB's message says that a disk, a quota or a file size limit is exhausted."""
    return _DISK_FULL_MESSAGES.search(message) is not None


def is_out_of_memory(problem: duckdb.Error) -> bool:
    """Return whether DuckDB's memory limit was reached.

    After failed commits and checkpoints, only the message says so.
    """
    if isinstance(problem, duckdb.TransactionException | duckdb.IOException):
        return _MEMORY_EXCEEDED.search(str(problem)) is not None
    return isinstance(problem, duckdb.OutOfMemoryException)


def out_of_disk() -> OutOfDisk:
    return OutOfDisk(
        "The disk is full: nothing more can be stored.",
        hint="Free some space; what was stored is safe and can be queried.",
        retry_after=30,
    )


def _unwritable_fault(problem: OSError) -> OutOfDisk:
    return OutOfDisk(
        f"The data folder cannot be written: {problem.strerror}.",
        hint="Make it writable again; what was stored is safe and can be queried.",
        retry_after=30,
    )


def _spill_fault() -> OutOfDisk:
    return OutOfDisk(
        "The query needs more memory than it may have, and the disk does not take what it would put there.",
        hint="Read a shorter time range, or fewer columns; or free some space.",
        retry_after=30,
    )


def _out_of_memory_fault() -> Fault:
    return OutOfMemory(
        "The query needs more memory than it may have.",
        hint="Read a shorter time range, or fewer columns.",
    )


# DuckDB's message after a failed checkpoint; see `Session.checkpoint`.
_MUST_REOPEN_MESSAGE = "has been invalidated because checkpointing failed"
_DISK_FULL_MESSAGES = re.compile("|".join(re.escape(os.strerror(number)) for number in sorted(_DISK_FULL_ERRNOS)))
_MEMORY_EXCEEDED = re.compile(r"failed to (?:allocate|pin)|could not allocate|out of memory", re.IGNORECASE)
# DuckDB's messages when it cannot spill to disk; see `Session`.
_SPILL_MESSAGES = re.compile(r"[/\\]spill\b|duckdb_temp_|max_temp_directory_size")
# DuckDB's message when a block's checksum does not match.
_DAMAGED_MESSAGE = "Corrupt database file"
RESTORE_HINT = "Look after the disk, and restore a backup: cordwood restore."

# Redaction raises an error by a failing cast, all other rules by DuckDB's function `error`.
_RAISED_MESSAGE = re.compile(f"(?:Could not convert string ')?{RAISED}")
# DuckDB's message when functions and operators are nested a thousand deep; `a || b || c` counts as nested.
_NESTED_TOO_DEEPLY_MESSAGE = "Max expression depth limit"
_SPLIT_HINT = "Nest fewer functions in each other, and put together fewer texts at once."
# DuckDB's message for sub-queries in expressions that its planner copies: those of grouping sets, and of a list whose
# elements are compared.
_SUBQUERY_COPIED_MESSAGE = "Cannot copy BoundSubqueryExpression"
_SUBQUERY_HINT = "Compute it in a sub-query of WITH, and use its column."
_ERROR_CLASS_PREFIX = re.compile(r"^[A-Z][A-Za-z ]* (?:Error|Exception): ")


def _first_line(problem: duckdb.Error) -> str:
    """Return DuckDB's message without its error class and without the excerpt of the SQL."""
    return _ERROR_CLASS_PREFIX.sub("", str(problem)).split("\n", 1)[0].strip()
