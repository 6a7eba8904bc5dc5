"""Reword ClickHouse's messages about a query for its author: BigQuery's types and operators, without internal names.

A message without a rewording is not shown: it may contain internal columns, generated SQL, or terms of ClickHouse.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

_WRAPPED: Final = re.compile(r"(?:Nullable|LowCardinality)\((.*)\)")
_TYPES: Final = {
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
# BigQuery's operators and functions by the ClickHouse function that they are compiled to; others are not named.
_OPERATORS: Final = {
    "plus": "+", "minus": "-", "multiply": "*", "divide": "/", "modulo": "MOD", "negate": "-",
    "greater": ">", "less": "<", "greaterOrEquals": ">=", "lessOrEquals": "<=", "equals": "=", "notEquals": "!=",
    "and": "AND", "or": "OR", "not": "NOT", "xor": "XOR", "like": "LIKE", "notLike": "NOT LIKE", "in": "IN",
    "bitAnd": "&", "bitOr": "|", "bitXor": "^", "bitNot": "~", "bitShiftLeft": "<<", "bitShiftRight": ">>",
    "isDistinctFrom": "IS DISTINCT FROM", "isNotDistinctFrom": "IS NOT DISTINCT FROM", "if": "IF", "concat": "CONCAT",
    "lower": "LOWER", "upper": "UPPER", "lowerUTF8": "LOWER", "upperUTF8": "UPPER", "length": "LENGTH",
    "lengthUTF8": "LENGTH", "sum": "SUM", "avg": "AVG", "abs": "ABS", "startsWith": "STARTS_WITH",
}  # fmt: skip
_MAX_SHOWN: Final = 60
NO_REGEX: Final = "Cannot parse regular expression: "

Reworder = Callable[[re.Match[str]], str]


def type_name(text: str) -> str:
    """Return the BigQuery type that is compiled to this type of ClickHouse."""
    text = text.strip().removeprefix("const ")
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped:
        return type_name(wrapped[1])
    base, _, inside = text.partition("(")
    parts = list(_split_types(inside.removesuffix(")")))
    if base == "Array":
        return f"ARRAY<{type_name(inside.removesuffix(')'))}>"
    if base == "Tuple":
        return f"STRUCT<{', '.join(map(_field, parts))}>"
    if base == "DateTime64":
        # A DateTime with a time zone is a TIMESTAMP, one without is a DATETIME.
        return "TIMESTAMP" if "'" in inside else "DATETIME"
    if base.startswith("Decimal"):
        return "BIGNUMERIC" if base == "Decimal256" or parts[:1] == ["76"] else "NUMERIC"
    if re.fullmatch(r"U?Int\d+", base):
        return "INT64"
    return "INTERVAL" if base.startswith("Interval") else _TYPES.get(base, "another type")


def _field(text: str) -> str:
    match = re.fullmatch(r"(`[^`]*`|\w+) (\w.*)", text)
    return f"{match[1].strip('`')} {type_name(match[2])}" if match else type_name(text)


def _split_types(text: str) -> Iterator[str]:
    """Split at commas outside parentheses."""
    depth = start = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            yield text[start:index].strip()
            start = index + 1
    if text[start:].strip():
        yield text[start:].strip()


def _signature(function: str, types: str) -> str:
    argument_types = ", ".join(type_name(part.strip(" `'")) for part in _split_types(types))
    operator = _OPERATORS.get(function.strip("`'"))
    if operator is None:
        return f"No matching signature for arguments of the types {argument_types}"
    return f"No matching signature for {operator} with {argument_types}"


def _no_signature_for_types(match: re.Match[str]) -> str:
    return _signature(match["function"], match["types"])


def _no_signature_for_pair(match: re.Match[str]) -> str:
    return _signature(match["function"], f"{match['one']}, {match['other']}")


def _no_common_type(match: re.Match[str]) -> str:
    return f"The types {' and '.join(type_name(part) for part in _split_types(match[1]))} have no common type"


def _invalid_cast(match: re.Match[str]) -> str:
    return f"Invalid cast from {type_name(match[1])} to {type_name(match[2])}"


def _unconvertible_text(match: re.Match[str]) -> str:
    return f"Could not convert string '{_shorten(match[1])}' to {type_name(match[2])}"


def _ungrouped_column(match: re.Match[str]) -> str:
    name = match[1].rpartition(".")[2]
    if not re.fullmatch(r"\w+", name) or name.startswith("_"):
        return "The SELECT list references a column which is neither grouped nor aggregated"
    return f"The SELECT list expression references {name} which is neither grouped nor aggregated"


def _fixed_sentence(sentence: str) -> Reworder:
    return lambda match: match.expand(sentence)


_FUNCTION: Final = r"'?`?(?P<function>\w+)`?'?"
_SENTENCES: Final[tuple[tuple[re.Pattern[str], Reworder], ...]] = tuple(
    (re.compile(pattern, re.DOTALL), reworder)
    for pattern, reworder in (
        (rf"Illegal types of arguments \((?P<types>.*)\) of function {_FUNCTION}", _no_signature_for_types),
        (rf"Illegal types (?P<one>.*) and (?P<other>.*) of arguments of function {_FUNCTION}", _no_signature_for_pair),
        (rf"Illegal type \(?(?P<types>.*?)\)? of (?:\w+ )?argument (?:\(.*?\) )?of (?:aggregate )?function {_FUNCTION}(?:[.,].*)?", _no_signature_for_types),
        (rf"A value of illegal type was provided as \w+ argument .* to function {_FUNCTION}\. Expected: .*, got: (?P<types>.*)", _no_signature_for_types),
        (rf"(?:First |Second )?[Aa]rgument (?:\d+ )?(?:for|of) function {_FUNCTION} must be .*(?:has type|got|Found) '?(?P<types>.*?)'?(?: instead)?", _no_signature_for_types),
        (rf".* of function {_FUNCTION} should be .* illegal type: (?P<types>.*)", _no_signature_for_types),
        (r"There is no supertype for types (.*?) because .*", _no_common_type),
        (r"There is no supertype for the argument type '(.*)' and the default value type '.*'.*", lambda match: f"The default value is of another type than {type_name(match[1])}"),
        (r"Offset must be an integer, '(.*)' given.*", lambda match: f"An offset must be INT64, not {type_name(match[1])}"),
        (r"Conversion from (.*) to (.*) is not supported.*", _invalid_cast),
        (r"CAST AS (?:Tuple|Array) can only be performed .*", _fixed_sentence("Invalid cast to an ARRAY or a STRUCT")),
        (r"Cannot (?:parse|convert) (?:string )?'(.*)' (?:as|to) (?:type )?([A-Z][\w(),' ]*?)(?::.*)?", _unconvertible_text),
        (r"(?:Scalar subquery returned more than one row|More than one row returned by a subquery).*", _fixed_sentence("Scalar subquery produced more than one element")),
        (r"Column '(.*?)' is not under aggregate function.*", _ungrouped_column),
        (r"GROUPING function .*", _fixed_sentence("GROUPING takes an expression of the GROUP BY")),
        (r"Aggregate function .* is found inside another aggregate function.*", _fixed_sentence("Aggregations of aggregations are not allowed")),
        (r"Aggregate function .* is found in (WHERE|GROUP BY|JOIN|PREWHERE|QUALIFY|LIMIT).*", _fixed_sentence(r"Aggregates are not allowed in \1")),
        (r"Window function .* is found inside (?:an aggregate|another aggregate) function.*", _fixed_sentence("Analytic functions are not allowed in aggregations")),
        (r"Window function .* is found inside window definition.*|Window function .* inside .*", _fixed_sentence("Analytic functions cannot be nested")),
        (r"Window function .* is found in (WHERE|GROUP BY|JOIN|HAVING|LIMIT).*", _fixed_sentence(r"Analytic functions are not allowed in \1")),
        (r"A call to function range would produce .*", _fixed_sentence("GENERATE_ARRAY of too many elements")),
        (r"Division by zero.*", _fixed_sentence("Division by zero")),
        (r"Decimal (?:math overflow|.* overflow).*|.*[Oo]verflow.*", _fixed_sentence("Overflow: the result is out of the range of its type")),
        (r"Cannot load time zone (.*)|Timezone (.*) (?:is not|does not) .*", lambda match: f"Invalid time zone: {_shorten(match[1] or match[2] or '')}"),
        (r"Cannot (?:read|parse) Date(?:Time)?:? .*", _fixed_sentence("A text cannot be read as a date or a time")),
        (r".*cannot compile re2.*?, error: (.*?)\.? Look at .*", lambda match: f"{NO_REGEX}{_shorten(match[1])}"),
        (r".*cannot compile re2.*?, error: (.*)", lambda match: f"{NO_REGEX}{_shorten(match[1])}"),
        (r"Correlated subqueries .*|Current query is not supported yet, because can't find correlated column .*", _fixed_sentence("A correlated sub-query cannot stand here")),
        (r"Cannot determine join keys.*", _fixed_sentence("A join of this kind needs an equality between columns of both sides")),
        (r"(?:Max query size|Maximum parse depth|Too deep|Max(?:imum)? .* depth).*", _fixed_sentence("The query is nested too deeply")),
    )
)  # fmt: skip


def reword(sentence: str) -> str | None:
    """Return the message in BigQuery's terms; None if it has no rewording."""
    for pattern, reworder in _SENTENCES:
        match = pattern.fullmatch(sentence)
        if match:
            return reworder(match)
    return None


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
