"""The only place where DuckDB's exceptions are caught, and put into our words."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from cordwood.engines.duckdb.wording import reworded
from cordwood.errors import (
    Cancelled,
    DataFolderUnusable,
    EngineFailed,
    Fault,
    OutOfDisk,
    OutOfMemory,
    QuerySyntax,
    QueryUnsupported,
    QueryValue,
)
from cordwood.sql.lowering import RAISED

_VALUE = (
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.InvalidInputException,
    duckdb.TypeMismatchException,
    duckdb.ConstraintException,
)
_FULL = {errno.ENOSPC, errno.EDQUOT}
_COMPILED_WRONGLY = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)


@contextmanager
def duckdb_faults() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as problem:
        raise fault_of(problem) from problem
    except OSError as problem:
        if problem.errno in _FULL:
            raise out_of_disk() from problem
        raise EngineFailed(f"The data folder cannot be written: {problem.strerror}.") from problem


@contextmanager
def opening(file: Path) -> Iterator[None]:
    """While a store is opened nobody asks it anything: whatever goes wrong, it is broken, or the disk is full."""
    try:
        yield
    except duckdb.Error as problem:
        fault = fault_of(problem)
        if isinstance(fault, OutOfDisk):
            raise fault from problem
        raise DataFolderUnusable(f"The events in {file} cannot be read: {fault.message}", hint=MEND_EVENTS) from problem
    except OSError as problem:
        if problem.errno in _FULL:
            raise out_of_disk() from problem
        raise DataFolderUnusable(f"{problem.filename or file} cannot be used: {problem.strerror}.") from problem


def fault_of(problem: duckdb.Error) -> Fault:
    text = _sentence(str(problem))
    if isinstance(problem, duckdb.OutOfMemoryException):
        return _out_of_memory()
    if isinstance(problem, _VALUE):
        return QueryValue(text)
    if isinstance(problem, duckdb.NotImplementedException):
        return QueryUnsupported(text)
    if isinstance(problem, _COMPILED_WRONGLY):
        return QuerySyntax(text)
    return QueryValue(text) if text.startswith(_BAD_PATTERN) else _of_the_file(text)


# What it says of a pattern that an author wrote, and calls an error of its own.
_BAD_PATTERN = "Like pattern must not end with escape character"


def _of_the_file(text: str) -> Fault:
    """Errors of reading, writing and committing alike."""
    if _TO_BE_REOPENED in text:
        return Cancelled("The query was stopped: the engine opens its file anew.", hint="Ask again.", retry_after=1)
    if "No space left" in text:
        return out_of_disk()
    if _DAMAGED in text:
        return EngineFailed(f"A part of events.duckdb is damaged: {text}.", hint=MEND_EVENTS)
    return EngineFailed(f"The engine failed: {text}")


def is_interrupt(problem: duckdb.Error) -> bool:
    return isinstance(problem, duckdb.InterruptException)


def out_of_disk() -> OutOfDisk:
    return OutOfDisk(
        "The disk is full: nothing more can be stored.",
        hint="Free some space; what was stored is safe and can be queried.",
        retry_after=30,
    )


def _out_of_memory() -> Fault:
    return OutOfMemory(
        "The query needs more memory than it may have.",
        hint="Read a shorter time range, or fewer columns.",
    )


# What the engine says once it could not write its log into the file; see `Session.checkpoint`.
_TO_BE_REOPENED = "has been invalidated because checkpointing failed"
# And when a block is not as it was written.
_DAMAGED = "Corrupt database file"
MEND_EVENTS = "Look after the disk, and restore a backup: cordwood restore."

_KIND = re.compile(r"^[A-Z][A-Za-z ]* (?:Error|Exception): ")


def _sentence(text: str) -> str:
    """The driver's first line, without its name for the kind of error and without its drawing of the SQL."""
    said = _KIND.sub("", text).split("\n", 1)[0].strip()
    # Not in the drawing: there may be what another part of the query would raise.
    return said.partition(RAISED)[2] if RAISED in said else reworded(said)
