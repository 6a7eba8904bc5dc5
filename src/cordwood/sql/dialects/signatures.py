"""Argument counts and examples of functions that are often called with too few or too many arguments."""

from collections.abc import Mapping
from typing import Final

_ADDITIONS: Final = {
    f"{kind}_{verb}": (2, 2, f"{kind}_{verb}({kind.lower()}, INTERVAL 1 {unit})")
    for kind, unit in (("TIMESTAMP", "HOUR"), ("DATETIME", "HOUR"), ("DATE", "DAY"), ("TIME", "MINUTE"))
    for verb in ("ADD", "SUB")
}
_TRUNCATIONS: Final = {
    f"{kind}_TRUNC": (2, most, f"{kind}_TRUNC({kind.lower()}, {unit})")
    for kind, most, unit in (
        ("TIMESTAMP", 3, "HOUR"),
        ("DATETIME", 2, "HOUR"),
        ("DATE", 2, "DAY"),
        ("TIME", 2, "MINUTE"),
    )
}
_DIFFERENCES: Final = {
    f"{kind}_DIFF": (3, 3, f"{kind}_DIFF(later, earlier, {unit})")
    for kind, unit in (("TIMESTAMP", "SECOND"), ("DATETIME", "SECOND"), ("DATE", "DAY"), ("TIME", "SECOND"))
}

# By name: the minimum and maximum of arguments, and an example.
SIGNATURES: Final[Mapping[str, tuple[int, int, str]]] = {
    **_ADDITIONS,
    **_TRUNCATIONS,
    **_DIFFERENCES,
    "COUNT": (1, 1, "COUNT(*), or COUNT(DISTINCT value)"),
    "COUNTIF": (1, 1, "COUNTIF(condition)"),
    **{name: (1, 1, f"{name}(value)") for name in ("SUM", "AVG", "MIN", "MAX", "LOGICAL_AND", "LOGICAL_OR")},
    **{name: (1, 1, f"{name}(text)") for name in ("UPPER", "LOWER", "LENGTH", "REVERSE", "INITCAP")},
    **{name: (2, 2, f"{name}(text, part)") for name in ("STARTS_WITH", "ENDS_WITH", "STRPOS")},
    **{name: (2, 2, f"{name}(text, count)") for name in ("LEFT", "RIGHT", "REPEAT")},
    **{name: (2, 3, f"{name}(text, start, length)") for name in ("SUBSTR", "SUBSTRING")},
    "SPLIT": (1, 2, "SPLIT(text, ',')"),
    "IFNULL": (2, 2, "IFNULL(value, instead)"),
    "NULLIF": (2, 2, "NULLIF(value, unwanted)"),
    "IF": (3, 3, "IF(condition, value, otherwise)"),
    "REGEXP_CONTAINS": (2, 2, "REGEXP_CONTAINS(text, r'pattern')"),
    "REGEXP_REPLACE": (3, 3, "REGEXP_REPLACE(text, r'pattern', replacement)"),
    "REGEXP_EXTRACT": (2, 4, "REGEXP_EXTRACT(text, r'pattern')"),
    "REGEXP_EXTRACT_ALL": (2, 2, "REGEXP_EXTRACT_ALL(text, r'pattern')"),
    "FORMAT_TIMESTAMP": (2, 3, "FORMAT_TIMESTAMP('%F %T', timestamp)"),
    "PARSE_TIMESTAMP": (2, 3, "PARSE_TIMESTAMP('%F %T', text)"),
    "FORMAT_DATE": (2, 2, "FORMAT_DATE('%F', date)"),
    "PARSE_DATE": (2, 2, "PARSE_DATE('%F', text)"),
    "TIMESTAMP_BUCKET": (2, 3, "TIMESTAMP_BUCKET(timestamp, INTERVAL 5 MINUTE)"),
    "APPROX_QUANTILES": (2, 2, "APPROX_QUANTILES(value, 100)[OFFSET(95)]"),
    "SAFE_DIVIDE": (2, 2, "SAFE_DIVIDE(value, by)"),
    "MOD": (2, 2, "MOD(value, by)"),
    "DIV": (2, 2, "DIV(value, by)"),
    "POW": (2, 2, "POW(value, exponent)"),
    "ABS": (1, 1, "ABS(value)"),
    "ROUND": (1, 3, "ROUND(value, digits)"),
    "ARRAY_LENGTH": (1, 1, "ARRAY_LENGTH(array)"),
    "ARRAY_TO_STRING": (2, 3, "ARRAY_TO_STRING(array, ',')"),
    "JSON_VALUE": (1, 2, "JSON_VALUE(json, '$.path')"),
    "JSON_QUERY": (1, 2, "JSON_QUERY(json, '$.path')"),
    "UNIX_SECONDS": (1, 1, "UNIX_SECONDS(timestamp)"),
    "ROW_NUMBER": (0, 0, "ROW_NUMBER() OVER (ORDER BY timestamp)"),
}
