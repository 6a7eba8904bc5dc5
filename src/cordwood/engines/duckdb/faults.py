"""Translate DuckDB's exceptions into faults, and reword its messages about a query in BigQuery's terms.

A message without a rewording is not shown to callers, because it may contain internal columns, generated SQL, or terms
that only DuckDB uses.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from cordwood.engines.engine_messages import shorten_engine_message
from cordwood.errors import (
    BacklogFull,
    BadQuerySyntax,
    BadQueryValue,
    DataFolderUnusable,
    EngineFailed,
    Fault,
    OutOfDisk,
    OutOfMemory,
    PlanTooLarge,
    QueryCancelled,
    QueryFault,
    QueryUnsupported,
)
from cordwood.observe.observation import ReportOperatorMessage
from cordwood.sql.lowering import RAISED_ERROR_PREFIX
from cordwood.sql.permitted_syntax import PERMITTED_FUNCTIONS

_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_UNWRITABLE_ERRNOS = {errno.EROFS, errno.EACCES, errno.EPERM}

# For each class of DuckDB's errors, the fault to raise, and the sentence to show if DuckDB's message has no rewording.
# The first class in the list that matches the error is used. If none matches, the query did not cause the error, and
# `_storage_fault` translates it.
_FAULT_BY_ERROR_CLASS: Final[tuple[tuple[type[duckdb.Error], type[Fault], str], ...]] = (
    (duckdb.NotImplementedException, QueryUnsupported, "The query combines types or clauses in a way that is not supported"),
    (duckdb.InvalidInputException, BadQueryValue, "A function is given a value that it cannot take"),
    (duckdb.InvalidTypeException, BadQuerySyntax, "A part of the query is of a type that cannot stand there"),
    (duckdb.SyntaxException, BadQueryValue, "A function is given a text that it cannot read"),
    (duckdb.ConstraintException, BadQueryValue, "A function is given a value that it cannot take"),
    (duckdb.DataError, BadQueryValue, "A value cannot be converted to the type that the query needs, or is out of its range"),
    (duckdb.ProgrammingError, BadQuerySyntax, "The types of the query's parts do not fit together, or one stands where it cannot"),
)  # fmt: skip


@contextmanager
def translate_duckdb_errors() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as problem:
        raise fault_of_error(problem) from problem
    except OSError as problem:
        if problem.errno in _DISK_FULL_ERRNOS:
            raise out_of_disk_fault() from problem
        if problem.errno in _UNWRITABLE_ERRNOS:
            raise _unwritable_fault(problem) from problem
        raise EngineFailed(f"The data folder cannot be written: {problem.strerror}.") from problem


@contextmanager
def translate_append_errors(report: ReportOperatorMessage) -> Iterator[None]:
    """Translate DuckDB's errors into faults while events are being stored.

    Query errors and a lack of memory become BacklogFull, because the sent events do not cause them. Before the engine
    stores events, it looks up their ids among the stored events. The look-up needs memory, which queries may be using
    at that moment.
    """
    try:
        with translate_duckdb_errors():
            yield
    except (QueryFault, OutOfMemory) as fault:
        report(
            f"Events could not be stored and were to be sent again: {fault.__cause__ or fault.message}".splitlines()[0]
        )
        raise BacklogFull(
            "The events cannot be stored at this moment.", hint="Send them again.", retry_after=1
        ) from fault


@contextmanager
def translate_open_errors(file: Path) -> Iterator[None]:
    """Translate DuckDB's errors while a store is opened: OutOfDisk if the disk is full, else DataFolderUnusable."""
    try:
        yield
    except duckdb.Error as problem:
        fault = fault_of_error(problem)
        if isinstance(fault, OutOfDisk):
            raise fault from problem
        raise DataFolderUnusable(
            f"The events in {file} cannot be read: {_first_line(problem)}", hint=RESTORE_HINT
        ) from problem
    except OSError as problem:
        if problem.errno in _DISK_FULL_ERRNOS:
            raise out_of_disk_fault() from problem
        raise DataFolderUnusable(f"{problem.filename or file} cannot be used: {problem.strerror}.") from problem


def fault_of_error(problem: duckdb.Error) -> Fault:
    message = _first_line(problem)
    # After a failed checkpoint, DuckDB's message that the file must be reopened quotes the cause of the failure, for
    # example a lack of memory. `_storage_fault` must translate this message, although it mentions memory.
    if is_out_of_memory(problem) and _MUST_REOPEN_MESSAGE not in message:
        return _out_of_memory_fault()
    if _NESTED_TOO_DEEPLY_MESSAGE in message:
        return PlanTooLarge(
            "An expression of the query is nested too deeply for the engine's planner.", hint=_NESTED_TOO_DEEPLY_HINT
        )
    if message.startswith(_CANNOT_COPY_SUBQUERY_MESSAGE):
        return QueryUnsupported("A sub-query is not supported in this place", hint=_CANNOT_COPY_SUBQUERY_HINT)
    for kind, fault, sentence in _FAULT_BY_ERROR_CLASS:
        if isinstance(problem, kind):
            return _query_fault(message, fault, sentence)
    return _storage_fault(message)


def _query_fault(message: str, fault: type[Fault], sentence: str) -> Fault:
    # Accept `RAISED_ERROR_PREFIX` only at the beginning of the message. Elsewhere, it may be part of SQL that DuckDB
    # quotes.
    raised = _RAISED_ERROR_PATTERN.match(message)
    if raised:
        return BadQueryValue(message[raised.end() :])
    reworded_message = reword_message(message)
    # If the message of a NotImplementedException has a rewording, a value caused the error, such as the name of a time
    # zone that does not exist. So the fault is BadQueryValue.
    return (BadQueryValue if reworded_message and fault is QueryUnsupported else fault)(reworded_message or sentence)


def _storage_fault(message: str) -> Fault:
    """Translate an error of reading, writing or committing; DuckDB's message is shown only if the file is damaged."""
    if _MUST_REOPEN_MESSAGE in message:
        return QueryCancelled("The query was stopped: the engine reopens its file.", hint="Ask again.", retry_after=1)
    if _SPILL_FAILURE_PATTERN.search(message):
        return _spill_fault()
    if is_disk_full(message):
        return out_of_disk_fault()
    if _DAMAGED_FILE_MESSAGE in message:
        return EngineFailed(f"A part of events.duckdb is damaged: {message}.", hint=RESTORE_HINT)
    return EngineFailed("The engine failed.")


def is_disk_full(message: str) -> bool:
    """Return whether DuckDB's message says that the disk is full, or that a quota or file size limit is reached."""
    return _DISK_FULL_PATTERN.search(message) is not None


def is_out_of_memory(problem: duckdb.Error) -> bool:
    """Return whether an error was caused by DuckDB's memory limit.

    After a failed commit or checkpoint, only the error's message shows the cause; the error's class does not.
    """
    if isinstance(problem, duckdb.TransactionException | duckdb.IOException):
        return _OUT_OF_MEMORY_PATTERN.search(str(problem)) is not None
    return isinstance(problem, duckdb.OutOfMemoryException)


def out_of_disk_fault() -> OutOfDisk:
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


# Part of DuckDB's message when it refuses to read the file after a failed checkpoint; see `Session.checkpoint`.
_MUST_REOPEN_MESSAGE = "has been invalidated because checkpointing failed"
_DISK_FULL_PATTERN = re.compile("|".join(re.escape(os.strerror(number)) for number in sorted(_DISK_FULL_ERRNOS)))
_OUT_OF_MEMORY_PATTERN = re.compile(r"failed to (?:allocate|pin)|could not allocate|out of memory", re.IGNORECASE)
# Parts of the messages by which DuckDB reports that it could not spill (temporarily write) a query's data to disk.
_SPILL_FAILURE_PATTERN = re.compile(r"[/\\]spill\b|duckdb_temp_|max_temp_directory_size")
# DuckDB's message when a block's checksum does not match.
_DAMAGED_FILE_MESSAGE = "Corrupt database file"
RESTORE_HINT = "Look after the disk, and restore a backup: cordwood restore."

# The beginning of an error message that generated SQL raises. Redaction raises it by a cast that fails, so that DuckDB
# puts `Could not convert string '` before the prefix. All other rules use DuckDB's function `error`, which adds
# nothing.
_RAISED_ERROR_PATTERN = re.compile(f"(?:Could not convert string ')?{RAISED_ERROR_PREFIX}")
# Part of DuckDB's message when functions and operators are nested more than a thousand levels deep. A chain of
# operators is nested, too: `a || b || c` has two levels.
_NESTED_TOO_DEEPLY_MESSAGE = "Max expression depth limit"
_NESTED_TOO_DEEPLY_HINT = "Nest fewer functions in each other, and put together fewer texts at once."
# DuckDB's message when its planner has to copy an expression that contains a sub-query. The planner copies expressions
# in grouping sets, and in a list whose elements are compared.
_CANNOT_COPY_SUBQUERY_MESSAGE = "Cannot copy BoundSubqueryExpression"
_CANNOT_COPY_SUBQUERY_HINT = "Compute it in a sub-query of WITH, and use its column."
_ERROR_CLASS_PREFIX_PATTERN = re.compile(r"^[A-Z][A-Za-z ]* (?:Error|Exception): ")


def _first_line(problem: duckdb.Error) -> str:
    """Return the first line of DuckDB's message, without the name of the error class."""
    return _ERROR_CLASS_PREFIX_PATTERN.sub("", str(problem)).split("\n", 1)[0].strip()


_BIGQUERY_TYPE_BY_ENGINE_TYPE: Final = {
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "TIMESTAMP": "DATETIME",
    "TIMESTAMP_NS": "DATETIME",
    "INTEGER_LITERAL": "INT64",
    "STRING_LITERAL": "STRING",
    "VARCHAR": "STRING",
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "INT8", "INT16", "INT32"), "INT64"),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"), "INT64"),
    "INT64": "INT64",
    "INT128": "INT64",
    "FLOAT": "FLOAT64",
    "DOUBLE": "FLOAT64",
    "BOOLEAN": "BOOL",
    "BOOL": "BOOL",
    "BLOB": "BYTES",
    "BIGNUM": "BIGNUMERIC",
    "VARIANT": "a value of an event",
}
_TYPES_NAMED_AS_IN_BIGQUERY: Final = frozenset({"DATE", "TIME", "INTERVAL", "JSON", "NULL", "STRING", "BYTES"})
# The DuckDB type to which BIGNUMERIC is compiled. Any other DECIMAL type in a message comes from NUMERIC.
_DUCKDB_TYPE_OF_BIGNUMERIC: Final = "DECIMAL(38,18)"
_LIST_TYPE_PATTERN: Final = re.compile(r"(.*)\[\d*\]")
_STRUCT_TYPE_PATTERN: Final = re.compile(r"STRUCT\((.*)\)")
_STRUCT_FIELD_PATTERN: Final = re.compile(r'("(?:[^"]|"")*"|\w+) (.*)', re.DOTALL)
# The end of the name of a generated column, which follows the path that the column holds. It says whether the path is
# read as text, value or record, and which letters of the path are capitals.
_PATH_COLUMN_SUFFIX_PATTERN: Final = re.compile(r" (?:text|value|record)(?: [\d,]+)?$")
_MAX_SHOWN_TEXT_CHARACTERS: Final = 60

_REGEX_ERROR_PATTERN: Final = (
    r"(?:(?:missing [)\]]|unexpected \)|no argument for repetition operator|bad repetition operator|invalid perl operator"
    r"|invalid escape sequence|invalid character class(?: range)?|invalid repetition size|invalid named capture group"
    r"|pattern too large|invalid UTF-8|nested too deeply)(?:: .*)?|trailing \\.*)"
)
_CAST_SOURCE_SUFFIX_PATTERN: Final = r"(?: when casting from source column .*)?"

RewordMatch = Callable[[re.Match[str]], str]


def bigquery_type_name(text: str) -> str:
    """Return the name of the BigQuery type that is compiled to the DuckDB type named in `text`."""
    text = text.strip()
    match = _LIST_TYPE_PATTERN.fullmatch(text)
    if match:
        return f"ARRAY<{bigquery_type_name(match[1])}>"
    match = _STRUCT_TYPE_PATTERN.fullmatch(text)
    if match:
        return f"STRUCT<{', '.join(_bigquery_struct_field(part) for part in _split_types(match[1]))}>"
    text = text.strip('"')
    if text.startswith("DECIMAL"):
        return "BIGNUMERIC" if text.replace(" ", "") == _DUCKDB_TYPE_OF_BIGNUMERIC else "NUMERIC"
    return text if text in _TYPES_NAMED_AS_IN_BIGQUERY else _BIGQUERY_TYPE_BY_ENGINE_TYPE.get(text, "another type")


def _bigquery_struct_field(text: str) -> str:
    """Return a STRUCT field as BigQuery writes it, such as `a INT64`.

    The name is omitted if the compiler generated it.
    """
    match = _STRUCT_FIELD_PATTERN.fullmatch(text)
    if match is None:
        return bigquery_type_name(text)
    name = match[1].replace('"', "")
    return bigquery_type_name(match[2]) if name.startswith("_") else f"{name} {bigquery_type_name(match[2])}"


def _split_types(text: str) -> Iterator[str]:
    """Split a list of types at commas that are outside parentheses and quotes."""
    depth, start, is_quoted = 0, 0, False
    for index, character in enumerate(text):
        is_quoted ^= character == '"'
        if is_quoted:
            continue
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            yield text[start:index].strip()
            start = index + 1
    if text[start:].strip():
        yield text[start:].strip()


def _reword_ungrouped_column(match: re.Match[str]) -> str:
    return f"The SELECT list expression references {_path_of_generated_column(match[1])} which is neither grouped nor aggregated"


def _reword_argument_types(match: re.Match[str]) -> str:
    """Reword an error about argument types; the function is named only if queries may call a function of that name."""
    name, _, types = match[1].partition("(")
    argument_types = ", ".join(map(bigquery_type_name, _split_types(types.removesuffix(")"))))
    if not re.fullmatch(r"\w+", name):
        return f"No matching signature for {name}({argument_types})"
    if name.upper() in PERMITTED_FUNCTIONS:
        return f"No matching signature for {name.upper()}({argument_types})"
    return f"No matching signature for arguments of the types {argument_types}"


def _reword_incomparable_types(match: re.Match[str]) -> str:
    return (
        f"No matching signature for the comparison of {bigquery_type_name(match[1])} and {bigquery_type_name(match[2])}"
    )


def _reword_mixed_types(match: re.Match[str]) -> str:
    return (
        f"No matching signature for {match[3]} with {bigquery_type_name(match[1])} and {bigquery_type_name(match[2])}"
    )


def _reword_uncombinable_types(match: re.Match[str]) -> str:
    return f"{bigquery_type_name(match[1])} and {bigquery_type_name(match[2])} cannot be put together"


def _reword_invalid_cast(match: re.Match[str]) -> str:
    return f"Invalid cast from {bigquery_type_name(match[1])} to {bigquery_type_name(match[2])}"


def _reword_unconvertible_text(match: re.Match[str]) -> str:
    quote = match[1]
    return f"Could not convert string {quote}{_shorten_text(match[2])}{quote} to {bigquery_type_name(match[3])}"


def _reword_uncastable_value(match: re.Match[str]) -> str:
    return f"The value {_shorten_text(match[1])} cannot be cast to {bigquery_type_name(match[2])}"


def _reword_not_an_array(match: re.Match[str]) -> str:
    return f"UNNEST takes an array, not {bigquery_type_name(match[1])}"


def _reword_unknown_zone(match: re.Match[str]) -> str:
    return f"Invalid time zone: {_shorten_text(match[1])}"


def _always_reword_to(sentence: str) -> RewordMatch:
    return lambda match: match.expand(sentence)


_REWORDING_BY_PATTERN: Final[tuple[tuple[re.Pattern[str], RewordMatch], ...]] = tuple(
    (re.compile(pattern, re.DOTALL), reworder)
    for pattern, reworder in (
        (r'column "(.*)" must appear in the GROUP BY clause.*', _reword_ungrouped_column),
        (r"No function matches the given name and argument types '(.*)'.*", _reword_argument_types),
        (r'Could not choose a best candidate function for the function call "(.*)"\..*', _reword_argument_types),
        (r"Cannot compare values of type (.*) and type (.*) - an explicit cast is required.*", _reword_incomparable_types),
        (r"Cannot (?:compare|mix) values of type (.*) and (.*) in (IN)/ANY/ALL clause.*", _reword_mixed_types),
        (r"Cannot mix values of type (.*) and (.*) in (\w+) (?:clause|expression|operator).*", _reword_mixed_types),
        (r"Cannot (?:concatenate|combine)(?: lists)?(?: of)? types (?:of )?(.*) and (.*) - .*", _reword_uncombinable_types),
        (r"Cannot deduce template type .*", _always_reword_to("The elements of an array must be of one type")),
        (r"Unimplemented type for cast \((.*) -> (.*?)\)" + _CAST_SOURCE_SUFFIX_PATTERN, _reword_invalid_cast),
        (r"Could not convert string (['\"])(.*)\1 to (.+?)" + _CAST_SOURCE_SUFFIX_PATTERN, _reword_unconvertible_text),
        (r"(?:Type|Can't convert) .*? (?:with )?value '(.*)' (?:can't be cast to the destination type|to) '?(.*?)'?" + _CAST_SOURCE_SUFFIX_PATTERN, _reword_uncastable_value),
        (r"(?:Failed to cast value: )?Type .* with value '?(.*?)'? can't be cast because .* destination type (.*?)" + _CAST_SOURCE_SUFFIX_PATTERN, _reword_uncastable_value),
        (r'Casting value "(.*)" to type (.*) failed: .*', _reword_uncastable_value),
        (r"Could not cast value (.*) to (\w+\(.*\)).*", _reword_uncastable_value),
        (r"Failed to cast value(?: to numerical)?: (.*?)" + _CAST_SOURCE_SUFFIX_PATTERN, lambda match: f"The value {_shorten_text(match[1])} is not a number"),
        (r"UNNEST\(\) can only be applied to lists, structs and NULL, not (.*)", _reword_not_an_array),
        (r"UNNEST requires a single list or array as input.*", _always_reword_to("UNNEST takes an array")),
        (r"Division by zero.*", _always_reword_to("Division by zero")),
        (r"Overflow in .*|.* out of range(?:!|\.| error).*", _always_reword_to("Overflow: the result is out of the range of its type")),
        (r"More than one row returned by a subquery.*", _always_reword_to("Scalar subquery produced more than one element")),
        (
            r"(WHERE|QUALIFY|JOIN|GROUP BY|ORDER BY|LIMIT) clause cannot contain aggregates.*",
            _always_reword_to(r"Aggregates are not allowed in \1"),
        ),
        (
            r"(WHERE|QUALIFY|JOIN|GROUP BY|HAVING|LIMIT) clause cannot contain window functions.*",
            _always_reword_to(r"Analytic functions are not allowed in \1"),
        ),
        (r"aggregate function calls cannot be nested.*", _always_reword_to("Aggregations of aggregations are not allowed")),
        (r"aggregate function calls cannot contain window function calls.*", _always_reword_to("Analytic functions are not allowed in aggregations")),
        (r"window function calls cannot be nested.*|window functions are not allowed in window definitions.*", _always_reword_to("Analytic functions cannot be nested")),
        (r"GROUPING (?:statement cannot be used without groups|child).*", _always_reword_to("GROUPING takes an expression of the GROUP BY")),
        (r'The ".*" argument in function .* must be a constant expression.*', _always_reword_to("An argument of the function must be a constant")),
        (r"Malformed JSON at byte (\d+) of input: .*", _always_reword_to(r"syntax error while parsing JSON, at byte \1")),
        (r"Cannot cast to list of JSON.*", _always_reword_to("The JSON is not an array")),
        (r"Like pattern must not end with escape character.*", _always_reword_to("A LIKE pattern cannot end with a backslash")),
        (r"Failure in decode: .*", _always_reword_to("The bytes are not valid UTF-8")),
        (r"Unknown TimeZone '(.*)'.*", _reword_unknown_zone),
        (r'invalid timestamp field format: "(.*)", expected format.*', lambda match: f'Invalid timestamp: "{_shorten_text(match[1])}"'),
        (r'timestamp field value out of range: "(.*)".*', lambda match: f'Invalid timestamp: "{_shorten_text(match[1])}"'),
        (r'Values list ".*" does not have a column named "(.*)".*', _always_reword_to(r'"\1" is unknown here.')),
        (r"Max expression depth limit of \d+ exceeded.*", _always_reword_to("The query is nested too deeply")),
        (f"({_REGEX_ERROR_PATTERN})", lambda match: f"Cannot parse regular expression: {_shorten_text(match[1])}"),
    )
)  # fmt: skip


def reword_message(sentence: str) -> str | None:
    """Return DuckDB's message in BigQuery's terms, or None if it has no rewording."""
    sentence = shorten_engine_message(sentence)
    for pattern, reworder in _REWORDING_BY_PATTERN:
        match = pattern.fullmatch(sentence)
        if match:
            return reworder(match)
    return None


def _shorten_text(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_TEXT_CHARACTERS else f"{text[:_MAX_SHOWN_TEXT_CHARACTERS]}…"


def _path_of_generated_column(column: str) -> str:
    """Return the path that a generated column holds; for example, `metadata.""n"" text` holds the path metadata.n."""
    return _PATH_COLUMN_SUFFIX_PATTERN.sub("", column).replace('"', "")
