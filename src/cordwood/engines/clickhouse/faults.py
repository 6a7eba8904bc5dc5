"""Translate the ClickHouse client's exceptions into faults, and its messages into the terms of the query's author.

If this module has no rewording for a message, the message is not shown to the author, because it may contain internal
columns, generated SQL, or terms of ClickHouse.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from clickhouse_connect.driver.exceptions import ClickHouseError

from cordwood.engines.engine_messages import shorten_engine_message
from cordwood.errors import (
    BadQuerySyntax,
    BadQueryValue,
    DataFolderUnusable,
    EngineFailed,
    EngineUnreachable,
    Fault,
    OutOfDisk,
    OutOfMemory,
    PlanTooLarge,
    QueryCancelled,
    QueryOutOfTime,
    QueryUnsupported,
    ServiceBusy,
    TooManyRows,
)
from cordwood.sql.lowering import RAISED_ERROR_PREFIX

_TIMEOUT_CODES: Final = frozenset({159, 160, 209, 718})
_CANCELLED_CODES: Final = frozenset({394, 677, 735})
_MEMORY_LIMIT_CODES: Final = frozenset({173, 241, 777, 778})
# The error code of all exceptions from the C++ standard library. A failed memory allocation is one of them, and is
# recognised by this part of its message.
_STD_EXCEPTION_CODE: Final = 1001
_BAD_ALLOC_MESSAGE: Final = "bad_alloc"
_ROW_LIMIT_CODES: Final = frozenset({158, 191, 290, 307, 396})
_QUERY_TOO_LARGE_CODES: Final = frozenset({161, 162, 167, 168, 306, 572})
_SERVER_BUSY_CODES: Final = frozenset({201, 202, 203, 700, 745, 749, 762, 776})
_DISK_FULL_CODES: Final = frozenset({243})
_ACCESS_DENIED_CODES: Final = frozenset({81, 192, 193, 194, 195, 497, 516})
_UNAVAILABLE_CODES: Final = frozenset({74, 76, 95, 96, 198, 210, 225, 242, 279, 319, 364, 369, 425, 999})


class _FaultGroup(NamedTuple):
    """Error codes of ClickHouse with their fault, and the fault's message if ClickHouse's cannot be reworded."""

    error_codes: frozenset[int]
    fault_class: type[Fault]
    default_message: str


# The groups of error codes that a query or a value causes. A code that is not listed in this module counts as a failure
# of the engine.
_QUERY_FAULTS: Final = (
    # Errors of values: texts and numbers that cannot be parsed, converted or divided, that are out of range, or that
    # throwIf rejects.
    _FaultGroup(
        frozenset(
            {
                *(6, 11, 12, 19, 25, 26, 27, 28, 32, 33, 36, 38, 41, 68, 69, 70, 71, 72, 117, 124, 125, 127, 128, 130, 131),
                *(134, 135, 149, 153, 169, 170, 190, 282, 302, 321, 346, 349, 360, 361, 376, 395, 407, 427, 432, 436, 441, 446),
                *(447, 457, 467, 469, 490, 503, 531, 536, 561, 563, 621, 632, 645, 646, 675, 676, 691, 760),
            }
        ),
        BadQueryValue,
        "A function is given a value that it cannot take, or a value cannot be converted",
    ),
    # Combinations of types or clauses that ClickHouse does not support.
    _FaultGroup(
        frozenset({1, 2, 10, 48, 121, 141, 186, 187, 206, 262, 264, 284, 309, 344, 403, 438, 446, 450, 455, 475, 476, 498, 527, 721}),
        QueryUnsupported,
        "The query combines types or clauses in a way that is not supported",
    ),
    # Exceeded limits: the query is too deep or too long, or has too many columns.
    _FaultGroup(
        frozenset({165, 166, 174, 229, 269, 724}),
        BadQuerySyntax,
        "The query is too long, or nested too deeply",
    ),
    # Names, types or positions that are wrong for a part of the query.
    _FaultGroup(
        frozenset(
            {
                *(7, 8, 9, 13, 15, 16, 20, 34, 35, 37, 42, 43, 44, 46, 47, 50, 51, 52, 53, 59, 62, 63, 80, 122, 123, 133, 142),
                *(179, 183, 184, 207, 215, 223, 258, 352, 353, 370, 377, 378, 386, 440, 456, 544, 545, 549, 557, 558, 596, 628, 728),
            }
        ),
        BadQuerySyntax,
        "The types of the query's parts do not fit together, or one stands where it cannot",
    ),
)  # fmt: skip

# A client's message that contains one of these texts means: the server was connected, but did not answer in time.
_READ_TIMEOUT_MESSAGES: Final = ("Read timed out", "read timeout", "ReadTimeout")

# A client's message contains this text if the in-process engine's own message could not be decoded, because it quotes a
# value that is not UTF-8.
_DECODING_FAILURE_MESSAGE: Final = "codec can't decode"
# A client's message contains this text if an answer has a DATE outside the range of Python's dates.
_DATE_OUT_OF_RANGE_MESSAGE: Final = "is outside the date range"
_UNTRUSTED_CERTIFICATE_PATTERN: Final = re.compile(r"certificate verify failed: (.+?)\.? \(_ssl")
_TLS_FAILURE_MESSAGE: Final = "SSLError("
_ENGINE_NOT_OPENED_MESSAGE: Final = "Unable to open the chdb engine"


@contextmanager
def translate_clickhouse_errors(seconds: object = None) -> Iterator[None]:
    """Translate the client's exceptions in the `with` block; `seconds` is the query's time limit, for the message."""
    try:
        yield
    except ClickHouseError as problem:
        raise fault_of(problem, seconds) from problem
    except ValueError as problem:
        if _DATE_OUT_OF_RANGE_MESSAGE not in str(problem):
            raise
        raise BadQueryValue("DATE out of range: it would be before 0001-01-01 or after 9999-12-31") from problem


def fault_of(problem: ClickHouseError, seconds: object = None) -> Fault:
    """Return the fault for an exception of the client, chosen by the server's error code.

    An exception without a code comes from the client itself, usually because the server did not answer.
    """
    code = getattr(problem, "code", None)
    if code is None:
        return _fault_without_error_code(str(problem))
    message = clean_server_message(str(problem))
    return (
        _limit_fault(code, message, seconds)
        or _engine_unavailable_fault(code, message)
        or _query_fault(code, message)
        or EngineFailed("ClickHouse failed.")
    )


def _limit_fault(code: int, text: str, seconds: object) -> Fault | None:
    if code in _TIMEOUT_CODES:
        bound = f"the {seconds} s that it may" if seconds is not None else "it may"
        return QueryOutOfTime(f"The query took longer than {bound}.", hint="Read a shorter time range.")
    if code in _CANCELLED_CODES:
        return QueryCancelled("The query was stopped.")
    if code in _MEMORY_LIMIT_CODES or (code == _STD_EXCEPTION_CODE and _BAD_ALLOC_MESSAGE in text):
        return OutOfMemory(
            "The query needs more memory than it may have.", hint="Read a shorter time range, or fewer columns."
        )
    if code in _ROW_LIMIT_CODES:
        return TooManyRows("The query reads more rows than it may.", hint="Read a shorter time range.")
    if code in _SERVER_BUSY_CODES:
        return ServiceBusy("ClickHouse runs its maximum number of queries.", retry_after=1)
    return None


def _engine_unavailable_fault(code: int, text: str) -> Fault | None:
    if code in _DISK_FULL_CODES:
        return OutOfDisk("ClickHouse's disk is full: nothing more can be stored.", retry_after=30)
    if code in _ACCESS_DENIED_CODES:
        return EngineUnreachable(
            f"ClickHouse refuses the service's login: {text}", hint=_SERVER_ADDRESS_HINT, retry_after=30
        )
    if code in _UNAVAILABLE_CODES:
        return EngineUnreachable(f"ClickHouse cannot serve now: {text}", retry_after=5)
    return None


def _query_fault(code: int, message: str) -> Fault | None:
    if message.startswith(RAISED_ERROR_PREFIX):
        return BadQueryValue(message.removeprefix(RAISED_ERROR_PREFIX))
    if code in _QUERY_TOO_LARGE_CODES:
        return PlanTooLarge(
            "The query is nested too deeply or is too large for ClickHouse's planner.", hint=_NESTED_TOO_DEEPLY_HINT
        )
    for kind in _QUERY_FAULTS:
        if code in kind.error_codes:
            return kind.fault_class(_reword_sentence(message) or kind.default_message)
    return None


def _fault_without_error_code(text: str) -> Fault:
    if _DECODING_FAILURE_MESSAGE in text:
        return BadQueryValue("A value of the query is not valid UTF-8")
    if any(phrase in text for phrase in _READ_TIMEOUT_MESSAGES):
        return QueryOutOfTime("ClickHouse did not answer in time.", hint="Read a shorter time range.")
    if _ENGINE_NOT_OPENED_MESSAGE in text:
        return DataFolderUnusable("ClickHouse cannot open its folder.", hint=_UNUSABLE_FOLDER_HINT)
    if match := _UNTRUSTED_CERTIFICATE_PATTERN.search(shorten_engine_message(text)):
        return EngineUnreachable(
            f"ClickHouse's certificate is not trusted: {match[1]}.", hint=_UNTRUSTED_CERTIFICATE_HINT, retry_after=30
        )
    if _TLS_FAILURE_MESSAGE in text:
        return EngineUnreachable("ClickHouse's port does not speak TLS.", hint=_TLS_PORT_HINT, retry_after=30)
    return EngineUnreachable("ClickHouse cannot be reached.", hint=_SERVER_ADDRESS_HINT, retry_after=5)


def is_unavailability_fault(fault: Fault) -> bool:
    """Return whether the fault means that the server is unavailable for a time, so that a later attempt may succeed.

    Wrong credentials, a missing database and failed TLS do not count, because waiting does not help.
    """
    cause = fault.__cause__
    return getattr(cause, "code", None) not in _ACCESS_DENIED_CODES and _TLS_FAILURE_MESSAGE not in str(cause)


_NESTED_TOO_DEEPLY_HINT: Final = "Nest fewer functions and sub-queries in each other, or send several queries."
_SERVER_ADDRESS_HINT: Final = (
    "Check that it runs, and the address, user and password in the setting `engine`; secure=1 there is TLS."
)
_UNUSABLE_FOLDER_HINT: Final = (
    "Another process may have it, or it cannot be written: stop that one, or choose another in the setting `engine`."
)
_UNTRUSTED_CERTIFICATE_HINT: Final = (
    "Name the file of the authority that signed it in the setting `engine`: …?secure=1&ca_cert=/path/to/ca.pem;"
    " where the certificate has another host's name, server_host_name=… says which."
)
_TLS_PORT_HINT: Final = "Take the port of its TLS, often 8443, or secure=0, in the setting `engine`."


def clean_server_message(text: str) -> str:
    """Return the server's message without error codes, the excerpt of the query, and the server's version."""
    # Keep the text after the last `DB::Exception: `, up to the excerpt of the query. The excerpt may contain the error
    # messages of other parts of the query.
    text = text.rpartition("DB::Exception: ")[2].strip()
    for suffix in _MESSAGE_SUFFIX_STARTS:
        text = text.split(suffix, 1)[0]
    return _ERROR_CODE_NAME_PATTERN.sub("", text.strip()).rstrip(":")


_MESSAGE_SUFFIX_STARTS: Final = (
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
_ERROR_CODE_NAME_PATTERN: Final = re.compile(r"\. ?\([A-Z_0-9]+\)$")


_WRAPPED_TYPE_PATTERN: Final = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)")
_BIGQUERY_TYPE_BY_ENGINE_TYPE: Final = {
    "Bool": "BOOL",
    "Date": "DATE",
    "Date32": "DATE",
    "FixedString": "BYTES",
    "Float32": "FLOAT64",
    "Float64": "FLOAT64",
    "JSON": "JSON",
    "Nothing": "NULL",
    "String": "STRING",
    "Time": "TIME",
    "Time64": "TIME",
    "DateTime": "TIMESTAMP",
    "Dynamic": "a value of an event",
    "Variant": "a value of an event",
    "Map": "JSON",
}
# BigQuery's operators and functions by the ClickHouse function to which they are compiled. Reworded messages do not
# name any other function.
_BIGQUERY_OPERATOR_BY_FUNCTION: Final = {
    "plus": "+", "minus": "-", "multiply": "*", "divide": "/", "modulo": "MOD", "negate": "-",
    "greater": ">", "less": "<", "greaterOrEquals": ">=", "lessOrEquals": "<=", "equals": "=", "notEquals": "!=",
    "and": "AND", "or": "OR", "not": "NOT", "xor": "XOR", "like": "LIKE", "notLike": "NOT LIKE", "in": "IN",
    "bitAnd": "&", "bitOr": "|", "bitXor": "^", "bitNot": "~", "bitShiftLeft": "<<", "bitShiftRight": ">>",
    "isDistinctFrom": "IS DISTINCT FROM", "isNotDistinctFrom": "IS NOT DISTINCT FROM", "if": "IF", "concat": "CONCAT",
    "lower": "LOWER", "upper": "UPPER", "lowerUTF8": "LOWER", "upperUTF8": "UPPER", "length": "LENGTH",
    "lengthUTF8": "LENGTH", "sum": "SUM", "avg": "AVG", "abs": "ABS", "startsWith": "STARTS_WITH",
}  # fmt: skip
_MAX_SHOWN_TEXT_CHARACTERS: Final = 60
REGEX_ERROR_PREFIX: Final = "Cannot parse regular expression: "

RewordMatch = Callable[[re.Match[str]], str]


def bigquery_type_name(text: str) -> str:
    """Return the name of the BigQuery type that is compiled to the ClickHouse type `text`."""
    text = text.strip().removeprefix("const ")
    wrapped = _WRAPPED_TYPE_PATTERN.fullmatch(text)
    if wrapped:
        return bigquery_type_name(wrapped[1])
    base, _, inside = text.partition("(")
    parts = list(_split_types(inside.removesuffix(")")))
    if base == "Array":
        return f"ARRAY<{bigquery_type_name(inside.removesuffix(')'))}>"
    if base == "Tuple":
        return f"STRUCT<{', '.join(map(_field_type_name, parts))}>"
    if base == "DateTime64":
        # A DateTime64 with a time zone represents a TIMESTAMP. A DateTime64 without a zone represents a DATETIME.
        return "TIMESTAMP" if "'" in inside else "DATETIME"
    if base.startswith("Decimal"):
        return "BIGNUMERIC" if base == "Decimal256" or parts[:1] == ["76"] else "NUMERIC"
    if re.fullmatch(r"U?Int\d+", base):
        return "INT64"
    return "INTERVAL" if base.startswith("Interval") else _BIGQUERY_TYPE_BY_ENGINE_TYPE.get(base, "another type")


def _field_type_name(text: str) -> str:
    match = re.fullmatch(r"(`[^`]*`|\w+) (\w.*)", text)
    return f"{match[1].strip('`')} {bigquery_type_name(match[2])}" if match else bigquery_type_name(text)


def _split_types(text: str) -> Iterator[str]:
    """Split a list of types at its commas, except commas inside parentheses."""
    depth = start = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            yield text[start:index].strip()
            start = index + 1
    if text[start:].strip():
        yield text[start:].strip()


def _no_signature_message(function: str, types: str) -> str:
    argument_types = ", ".join(bigquery_type_name(part.strip(" `'")) for part in _split_types(types))
    operator = _BIGQUERY_OPERATOR_BY_FUNCTION.get(function.strip("`'"))
    if operator is None:
        return f"No matching signature for arguments of the types {argument_types}"
    return f"No matching signature for {operator} with {argument_types}"


def _reword_argument_types(match: re.Match[str]) -> str:
    return _no_signature_message(match["function"], match["types"])


def _reword_argument_pair(match: re.Match[str]) -> str:
    return _no_signature_message(match["function"], f"{match['one']}, {match['other']}")


def _reword_no_common_type(match: re.Match[str]) -> str:
    return f"The types {' and '.join(bigquery_type_name(part) for part in _split_types(match[1]))} have no common type"


def _reword_invalid_cast(match: re.Match[str]) -> str:
    return f"Invalid cast from {bigquery_type_name(match[1])} to {bigquery_type_name(match[2])}"


def _reword_unconvertible_text(match: re.Match[str]) -> str:
    return f"Could not convert string '{_shorten_text(match[1])}' to {bigquery_type_name(match[2])}"


def _reword_ungrouped_column(match: re.Match[str]) -> str:
    name = match[1].rpartition(".")[2]
    if not re.fullmatch(r"\w+", name) or name.startswith("_"):
        return "The SELECT list references a column which is neither grouped nor aggregated"
    return f"The SELECT list expression references {name} which is neither grouped nor aggregated"


def _always_reword_to(sentence: str) -> RewordMatch:
    return lambda match: match.expand(sentence)


_FUNCTION_NAME_PATTERN: Final = r"'?`?(?P<function>\w+)`?'?"
_REWORDING_BY_PATTERN: Final[tuple[tuple[re.Pattern[str], RewordMatch], ...]] = tuple(
    (re.compile(pattern, re.DOTALL), reworder)
    for pattern, reworder in (
        (rf"Illegal types of arguments \((?P<types>.*)\) of function {_FUNCTION_NAME_PATTERN}", _reword_argument_types),
        (rf"Illegal types (?P<one>.*) and (?P<other>.*) of arguments of function {_FUNCTION_NAME_PATTERN}", _reword_argument_pair),
        (rf"Illegal type \(?(?P<types>.*?)\)? of (?:\w+ )?argument (?:\(.*?\) )?of (?:aggregate )?function {_FUNCTION_NAME_PATTERN}(?:[.,].*)?", _reword_argument_types),
        (rf"A value of illegal type was provided as \w+ argument .* to function {_FUNCTION_NAME_PATTERN}\. Expected: .*, got: (?P<types>.*)", _reword_argument_types),
        (rf"(?:First |Second )?[Aa]rgument (?:\d+ )?(?:for|of) function {_FUNCTION_NAME_PATTERN} must be .*(?:has type|got|Found) '?(?P<types>.*?)'?(?: instead)?", _reword_argument_types),
        (rf".* of function {_FUNCTION_NAME_PATTERN} should be .* illegal type: (?P<types>.*)", _reword_argument_types),
        (r"There is no supertype for types (.*?) because .*", _reword_no_common_type),
        (r"There is no supertype for the argument type '(.*)' and the default value type '.*'.*", lambda match: f"The default value is of another type than {bigquery_type_name(match[1])}"),
        (r"Offset must be an integer, '(.*)' given.*", lambda match: f"An offset must be INT64, not {bigquery_type_name(match[1])}"),
        (r"Conversion from (.*) to (.*) is not supported.*", _reword_invalid_cast),
        (r"CAST AS (?:Tuple|Array) can only be performed .*", _always_reword_to("Invalid cast to an ARRAY or a STRUCT")),
        (r"Cannot (?:parse|convert) (?:string )?'(.*)' (?:as|to) (?:type )?([A-Z][\w(),' ]*?)(?::.*)?", _reword_unconvertible_text),
        (r"(?:Scalar subquery returned more than one row|More than one row returned by a subquery).*", _always_reword_to("Scalar subquery produced more than one element")),
        (r"Column '(.*?)' is not under aggregate function.*", _reword_ungrouped_column),
        (r"GROUPING function .*", _always_reword_to("GROUPING takes an expression of the GROUP BY")),
        (r"Aggregate function .* is found inside another aggregate function.*", _always_reword_to("Aggregations of aggregations are not allowed")),
        (r"Aggregate function .* is found in (WHERE|GROUP BY|JOIN|PREWHERE|QUALIFY|LIMIT).*", _always_reword_to(r"Aggregates are not allowed in \1")),
        (r"Window function .* is found inside (?:an aggregate|another aggregate) function.*", _always_reword_to("Analytic functions are not allowed in aggregations")),
        (r"Window function .* is found inside window definition.*|Window function .* inside .*", _always_reword_to("Analytic functions cannot be nested")),
        (r"Window function .* is found in (WHERE|GROUP BY|JOIN|HAVING|LIMIT).*", _always_reword_to(r"Analytic functions are not allowed in \1")),
        (r"A call to function range would produce .*", _always_reword_to("GENERATE_ARRAY of too many elements")),
        (r"Division by zero.*", _always_reword_to("Division by zero")),
        (r"Decimal (?:math overflow|.* overflow).*|.*[Oo]verflow.*", _always_reword_to("Overflow: the result is out of the range of its type")),
        (r"Cannot load time zone (.*)|Timezone (.*) (?:is not|does not) .*", lambda match: f"Invalid time zone: {_shorten_text(match[1] or match[2] or '')}"),
        (r"Cannot (?:read|parse) Date(?:Time)?:? .*", _always_reword_to("A text cannot be read as a date or a time")),
        (r".*cannot compile re2.*?, error: (.*?)\.? Look at .*", lambda match: f"{REGEX_ERROR_PREFIX}{_shorten_text(match[1])}"),
        (r".*cannot compile re2.*?, error: (.*)", lambda match: f"{REGEX_ERROR_PREFIX}{_shorten_text(match[1])}"),
        (r"Correlated subqueries .*|Current query is not supported yet, because can't find correlated column .*", _always_reword_to("A correlated sub-query is not supported in this place")),
        (r"Cannot determine join keys.*", _always_reword_to("A join of this kind needs an equality between columns of both sides")),
        (r"(?:Max query size|Maximum parse depth|Too deep|Max(?:imum)? .* depth).*", _always_reword_to("The query is nested too deeply")),
    )
)  # fmt: skip


def _reword_sentence(sentence: str) -> str | None:
    """Return ClickHouse's message reworded in BigQuery's terms; None if there is no rewording for the message."""
    sentence = shorten_engine_message(sentence)
    for pattern, reworder in _REWORDING_BY_PATTERN:
        match = pattern.fullmatch(sentence)
        if match:
            return reworder(match)
    return None


def _shorten_text(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_TEXT_CHARACTERS else f"{text[:_MAX_SHOWN_TEXT_CHARACTERS]}…"
