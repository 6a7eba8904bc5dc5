"""Replacements for function calls that BigQuery refuses: functions of other dialects, and wrong argument counts.

In a template for a replacement, `{name}` is the function's name, and `{0}` is the first argument as the author wrote
it. `{0:unit}` is the argument as BigQuery's unit (`'hours'` is HOUR), `{0:interval}` as an interval (`'5 minutes'` is
INTERVAL 5 MINUTE), and `{0:percent}` as a percentage (0.5 is 50). `{0:to_char}` and `{0:date_format}` are time formats
of PostgreSQL and MySQL, converted to BigQuery's. If a function has several templates, the first one for which the call
has all arguments is used.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from cordwood.sql.dialects.query_tokens import QueryToken, QueryTokens

_SPELLINGS_BY_UNIT: Final = {
    "MICROSECOND": "us usec microsecond microseconds",
    "MILLISECOND": "ms msec millisecond milliseconds",
    "SECOND": "s sec secs second seconds ss",
    "MINUTE": "m min mins minute minutes mi n",
    "HOUR": "h hr hrs hour hours hh",
    "DAY": "d day days dd",
    "WEEK": "w week weeks wk ww",
    "MONTH": "mon mons month months mm",
    "QUARTER": "q quarter quarters qq",
    "YEAR": "y yr yrs year years yy yyyy",
    "DAYOFWEEK": "dow dayofweek weekday dw",
    "DAYOFYEAR": "doy dayofyear dy",
    "ISOWEEK": "isoweek iso_week",
    "ISOYEAR": "isoyear iso_year",
}
_UNIT_BY_SPELLING: Final = {
    spelling: bigquery_unit for bigquery_unit, spellings in _SPELLINGS_BY_UNIT.items() for spelling in spellings.split()
}
_INTERVAL_PATTERN: Final = re.compile(r"(?:interval\s++)?'?\s*+([+-]?\d++)\s*+'?\s*+([a-z]++)\s*+'?", re.IGNORECASE)

_BIGQUERY_ELEMENT_BY_TO_CHAR: Final = {
    "YYYY": "%Y",
    "YY": "%y",
    "MM": "%m",
    "MONTH": "%B",
    "MON": "%b",
    "DD": "%d",
    "DAY": "%A",
    "DY": "%a",
    "HH24": "%H",
    "HH12": "%I",
    "HH": "%I",
    "MI": "%M",
    "SS.MS": "%E3S",
    "SS.US": "%E6S",
    "SS": "%S",
    "AM": "%p",
    "PM": "%p",
    "TZ": "%Z",
    "IYYY": "%G",
    "IW": "%V",
    "DDD": "%j",
    "Q": "%Q",
}
_BIGQUERY_ELEMENT_BY_MYSQL_ELEMENT: Final = {
    "%i": "%M",
    "%s": "%S",
    "%f": "%E6S",
    "%M": "%B",
    "%h": "%I",
    "%W": "%A",
    "%T": "%T",
}


def bigquery_time_unit(text: str) -> str | None:
    """Return BigQuery's name of a unit of time: HOUR for `'hours'`, `hr` and `h`."""
    return _UNIT_BY_SPELLING.get(text.strip().strip("'\"").lower())


def bigquery_interval(text: str) -> str | None:
    """Return `'5 minutes'`, `5 minutes` or `INTERVAL '5 minutes'` in BigQuery's form, INTERVAL 5 MINUTE."""
    match = _INTERVAL_PATTERN.fullmatch(text.strip())
    name = bigquery_time_unit(match[2]) if match else None
    return f"INTERVAL {match[1]} {name}" if match and name else None


def _translate_to_char_format(text: str) -> str | None:
    """Convert a TO_CHAR format of PostgreSQL to BigQuery's format elements."""
    return _translate_format(text, _BIGQUERY_ELEMENT_BY_TO_CHAR, re.IGNORECASE)


def _translate_date_format(text: str) -> str | None:
    """Convert a DATE_FORMAT format of MySQL to BigQuery's format elements."""
    return _translate_format(text, _BIGQUERY_ELEMENT_BY_MYSQL_ELEMENT, re.NOFLAG)


def _translate_format(text: str, elements: Mapping[str, str], flags: re.RegexFlag) -> str | None:
    if text[:1] not in "'\"":
        return None
    longest_first = sorted(elements, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)), flags)
    return pattern.sub(lambda match: elements[match[0].upper() if flags else match[0]], text)


_PLACEHOLDER_PATTERN: Final = re.compile(r"\{(\d)(?::(\w+))?\}")
_ARGUMENT_CONVERSIONS: Final[Mapping[str, Callable[[str], str | None]]] = {
    "unit": bigquery_time_unit,
    "interval": bigquery_interval,
    "to_char": _translate_to_char_format,
    "date_format": _translate_date_format,
}
_FALLBACK_ARGUMENT_BY_CONVERSION: Final = {
    "unit": "HOUR",
    "interval": "INTERVAL 1 HOUR",
    "to_char": "'%Y-%m-%d'",
    "date_format": "'%Y-%m-%d'",
}
_REPLACEMENTS_BY_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "NOW GETDATE SYSDATE SYSDATETIME GETUTCDATE UTC_TIMESTAMP STATEMENT_TIMESTAMP CLOCK_TIMESTAMP NOW64": (
        "CURRENT_TIMESTAMP()",
    ),
    "LOCALTIMESTAMP": ("CURRENT_DATETIME()",),
    "CURDATE TODAY": ("CURRENT_DATE()",),
    "CURTIME LOCALTIME": ("CURRENT_TIME()",),
    "YESTERDAY": ("DATE_SUB(CURRENT_DATE(), INTERVAL 1 DAY)",),
    "NVL ISNULL IFNOTNULL": ("IFNULL({0}, {1})", "{0} IS NULL"),
    "NVL2": ("IF({0} IS NOT NULL, {1}, {2})",),
    "ZEROIFNULL": ("IFNULL({0}, 0)",),
    "NULLIFZERO": ("NULLIF({0}, 0)",),
    "IIF MULTIIF": ("IF({0}, {1}, {2})",),
    "DECODE": ("CASE {0} WHEN {1} THEN {2} END",),
    "TO_CHAR": ("FORMAT_TIMESTAMP({1:to_char}, {0})", "CAST({0} AS STRING)"),
    "DATE_FORMAT": ("FORMAT_TIMESTAMP({1:date_format}, {0})",),
    "FORMATDATETIME": ("FORMAT_TIMESTAMP({1:date_format}, {0})",),
    "STRFTIME": ("FORMAT_TIMESTAMP({0}, {1})",),
    "TO_DATE": ("PARSE_DATE({1:to_char}, {0})", "DATE({0})"),
    "STR_TO_DATE": ("PARSE_TIMESTAMP({1:date_format}, {0})",),
    "TO_TIMESTAMP": ("PARSE_TIMESTAMP({1:to_char}, {0})", "TIMESTAMP_SECONDS({0})"),
    "STRPTIME": ("PARSE_TIMESTAMP({1}, {0})",),
    "FROM_UNIXTIME": ("TIMESTAMP_SECONDS({0})",),
    "UNIX_TIMESTAMP TOUNIXTIMESTAMP EPOCH": ("UNIX_SECONDS({0})", "UNIX_SECONDS(CURRENT_TIMESTAMP())"),
    "EPOCH_MS": ("UNIX_MILLIS({0})",),
    "TIME_BUCKET": ("TIMESTAMP_BUCKET({1}, {0:interval})",),
    "TOSTARTOFINTERVAL": ("TIMESTAMP_BUCKET({0}, {1:interval})",),
    "DATE_BIN": ("TIMESTAMP_BUCKET({1}, {0:interval}, {2})", "TIMESTAMP_BUCKET({1}, {0:interval})"),
    "BIN": ("TIMESTAMP_BUCKET({0}, {1:interval})",),
    "TOSTARTOFSECOND": ("TIMESTAMP_TRUNC({0}, SECOND)",),
    "TOSTARTOFMINUTE": ("TIMESTAMP_TRUNC({0}, MINUTE)",),
    "TOSTARTOFFIVEMINUTE TOSTARTOFFIVEMINUTES": ("TIMESTAMP_BUCKET({0}, INTERVAL 5 MINUTE)",),
    "TOSTARTOFTENMINUTES": ("TIMESTAMP_BUCKET({0}, INTERVAL 10 MINUTE)",),
    "TOSTARTOFFIFTEENMINUTES": ("TIMESTAMP_BUCKET({0}, INTERVAL 15 MINUTE)",),
    "TOSTARTOFHOUR": ("TIMESTAMP_TRUNC({0}, HOUR)",),
    "TOSTARTOFDAY": ("TIMESTAMP_TRUNC({0}, DAY)",),
    "TOSTARTOFWEEK": ("TIMESTAMP_TRUNC({0}, WEEK)",),
    "TOMONDAY": ("TIMESTAMP_TRUNC({0}, ISOWEEK)",),
    "TOSTARTOFMONTH": ("TIMESTAMP_TRUNC({0}, MONTH)",),
    "TOSTARTOFQUARTER": ("TIMESTAMP_TRUNC({0}, QUARTER)",),
    "TOSTARTOFYEAR": ("TIMESTAMP_TRUNC({0}, YEAR)",),
    "TODATE": ("DATE({0})",),
    "TODATETIME PARSEDATETIMEBESTEFFORT": ("TIMESTAMP({0})",),
    "TOSTRING": ("CAST({0} AS STRING)",),
    "TOINT64 TOINT32 TOUINT64 TOUINT32 TO_NUMBER TONUMBER": ("CAST({0} AS INT64)",),
    "TOFLOAT64 TOFLOAT32": ("CAST({0} AS FLOAT64)",),
    "TOHOUR": ("EXTRACT(HOUR FROM {0})",),
    "TOMINUTE": ("EXTRACT(MINUTE FROM {0})",),
    "DATE_PART DATEPART": ("EXTRACT({0:unit} FROM {1})",),
    **{f"{part}": (f"EXTRACT({part} FROM {{0}})",) for part in ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR")},
    "DAYOFMONTH": ("EXTRACT(DAY FROM {0})",),
    "DAYOFWEEK DAYOFYEAR QUARTER": ("EXTRACT({name} FROM {0})",),
    "DATEADD DATE_ADD TIMESTAMPADD": ("TIMESTAMP_ADD({2}, INTERVAL {1} {0:unit})", "TIMESTAMP_ADD({0}, {1:interval})"),
    "ADDDATE": ("TIMESTAMP_ADD({0}, {1:interval})",),
    "SUBDATE": ("TIMESTAMP_SUB({0}, {1:interval})",),
    "DATEDIFF TIMESTAMPDIFF": ("TIMESTAMP_DIFF({2}, {1}, {0:unit})", "DATE_DIFF({0}, {1}, DAY)"),
    "DATESUB": ("TIMESTAMP_SUB({2}, INTERVAL {1} {0:unit})",),
    "LEN CHAR_LEN": ("LENGTH({0})",),
    "POSITION LOCATE CHARINDEX": ("STRPOS({1}, {0})", "STRPOS(text, part)"),
    "STRPOSITION INDEXOF": ("STRPOS({0}, {1})",),
    "LCASE LOWERUTF8": ("LOWER({0})",),
    "UCASE UPPERUTF8": ("UPPER({0})",),
    "MID SUBSTRINGUTF8": ("SUBSTR({0}, {1}, {2})", "SUBSTR({0}, {1})"),
    "SUBSTRING_INDEX": ("SPLIT({0}, {1})[SAFE_OFFSET(0)]",),
    "SPLIT_PART SPLITPART": ("SPLIT({0}, {1})[SAFE_ORDINAL({2})]",),
    "SPLITBYCHAR SPLITBYSTRING": ("SPLIT({1}, {0})",),
    "STRING_TO_ARRAY STR_SPLIT STRING_SPLIT": ("SPLIT({0}, {1})",),
    "CONCAT_WS": ("ARRAY_TO_STRING([{1}, {2}], {0})", "ARRAY_TO_STRING([{1}], {0})"),
    "GROUP_CONCAT LISTAGG": ("STRING_AGG({0}, {1})", "STRING_AGG({0}, ',')"),
    "GROUPARRAY COLLECT_LIST": ("ARRAY_AGG({0})",),
    "GROUPUNIQARRAY COLLECT_SET": ("ARRAY_AGG(DISTINCT {0})",),
    "REGEXP_LIKE REGEXP_MATCHES REGEXP_MATCH MATCH REGEX_CONTAINS RLIKE": ("REGEXP_CONTAINS({0}, {1})",),
    "REGEXP_COUNT": ("ARRAY_LENGTH(REGEXP_EXTRACT_ALL({0}, {1}))",),
    "EXTRACTALL": ("REGEXP_EXTRACT_ALL({0}, {1})",),
    "REPLACEREGEXPALL REPLACEREGEXPONE REGEX_REPLACE": ("REGEXP_REPLACE({0}, {1}, {2})",),
    "CONTAINS": ("CONTAINS_SUBSTR({0}, {1})",),
    "STARTSWITH PREFIX": ("STARTS_WITH({0}, {1})",),
    "ENDSWITH SUFFIX": ("ENDS_WITH({0}, {1})",),
    "COUNT_IF": ("COUNTIF({0})",),
    "SUMIF": ("SUM(IF({1}, {0}, NULL))",),
    "AVGIF": ("AVG(IF({1}, {0}, NULL))",),
    "UNIQ UNIQEXACT COUNT_DISTINCT COUNTDISTINCT APPROX_DISTINCT DCOUNT": ("COUNT(DISTINCT {0})",),
    "MEDIAN": ("APPROX_QUANTILES({0}, 2)[OFFSET(1)]",),
    "QUANTILE APPROX_PERCENTILE PERCENTILE APPROX_QUANTILE PERCENTILE_APPROX QUANTILE_CONT": (
        "APPROX_QUANTILES({0}, 100)[OFFSET({1:percent})]",
    ),
    "ARGMAX ARG_MAX": ("MAX_BY({0}, {1})",),
    "ARGMIN ARG_MIN": ("MIN_BY({0}, {1})",),
    "FIRST": ("ANY_VALUE({0})",),
    "BOOL_AND EVERY": ("LOGICAL_AND({0})",),
    "BOOL_OR": ("LOGICAL_OR({0})",),
    "GENERATE_SERIES": ("GENERATE_ARRAY({0}, {1}, {2})", "GENERATE_ARRAY({0}, {1})"),
    "JSON_EXTRACT_PATH_TEXT JSON_EXTRACT_STRING": ("JSON_VALUE({0}, '$.…')",),
    "JSONEXTRACTSTRING VISITPARAMEXTRACTSTRING GET_JSON_OBJECT": ("JSON_VALUE({0}, '$.…')",),
    "JSONB_EXTRACT_PATH JSON_EXTRACT_PATH": ("JSON_QUERY({0}, '$.…')",),
    "TO_JSONB ROW_TO_JSON": ("TO_JSON({0})",),
    "ARRAY_SIZE CARDINALITY ARRAYLENGTH ARRAY_COUNT": ("ARRAY_LENGTH({0})",),
    "ARRAY_CONTAINS LIST_CONTAINS": ("{1} IN UNNEST({0})",),
    "HAS": ("{1} IN UNNEST({0})",),
    "ARRAY_JOIN": ("ARRAY_TO_STRING({0}, {1})",),
    "TRY_CAST": ("SAFE_CAST({0})",),
    "CONVERT": ("CAST({1} AS {0})",),
    "TRUNCATE": ("TRUNC({0}, {1})", "TRUNC({0})"),
    "MODULO": ("MOD({0}, {1})",),
    "SHA2": ("TO_HEX(SHA256({0}))",),
    "HEX": ("TO_HEX({0})",),
    "UNHEX": ("FROM_HEX({0})",),
}
FOREIGN_FUNCTION_TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    name: templates for names, templates in _REPLACEMENTS_BY_NAMES.items() for name in names.split()
}
# Templates for BigQuery functions that take the unit as the last argument. In other dialects, the unit comes first.
REPLACEMENTS_OF_UNIT_FIRST_CALLS: Final[Mapping[str, tuple[str, ...]]] = {
    "DATE_TRUNC": ("TIMESTAMP_TRUNC({1}, {0:unit})",),
    "TIMESTAMP_TRUNC": ("TIMESTAMP_TRUNC({1}, {0:unit})",),
    "DATETIME_TRUNC": ("DATETIME_TRUNC({1}, {0:unit})",),
    "DATE_DIFF": ("TIMESTAMP_DIFF({2}, {1}, {0:unit})",),
    "TIMESTAMP_DIFF": ("TIMESTAMP_DIFF({2}, {1}, {0:unit})",),
    "DATE_ADD": ("TIMESTAMP_ADD({2}, INTERVAL {1} {0:unit})",),
    "DATE_SUB": ("TIMESTAMP_SUB({2}, INTERVAL {1} {0:unit})",),
}
# BigQuery functions that add or subtract an INTERVAL; other dialects take a count and a unit instead.
INTERVAL_ARITHMETIC_FUNCTIONS: Final = frozenset(
    f"{kind}_{verb}" for kind in ("TIMESTAMP", "DATETIME", "DATE", "TIME") for verb in ("ADD", "SUB")
)


_ADDITION_ARGUMENT_COUNTS: Final = {
    f"{kind}_{verb}": (2, 2, f"{kind}_{verb}({kind.lower()}, INTERVAL 1 {part})")
    for kind, part in (("TIMESTAMP", "HOUR"), ("DATETIME", "HOUR"), ("DATE", "DAY"), ("TIME", "MINUTE"))
    for verb in ("ADD", "SUB")
}
_TRUNCATION_ARGUMENT_COUNTS: Final = {
    f"{kind}_TRUNC": (2, most, f"{kind}_TRUNC({kind.lower()}, {part})")
    for kind, most, part in (
        ("TIMESTAMP", 3, "HOUR"),
        ("DATETIME", 2, "HOUR"),
        ("DATE", 2, "DAY"),
        ("TIME", 2, "MINUTE"),
    )
}
_DIFFERENCE_ARGUMENT_COUNTS: Final = {
    f"{kind}_DIFF": (3, 3, f"{kind}_DIFF(later, earlier, {part})")
    for kind, part in (("TIMESTAMP", "SECOND"), ("DATETIME", "SECOND"), ("DATE", "DAY"), ("TIME", "SECOND"))
}
# By function: the minimum and maximum number of arguments, and an example call for the hint.
ARGUMENT_COUNTS_BY_FUNCTION: Final[Mapping[str, tuple[int, int, str]]] = {
    **_ADDITION_ARGUMENT_COUNTS,
    **_TRUNCATION_ARGUMENT_COUNTS,
    **_DIFFERENCE_ARGUMENT_COUNTS,
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


def find_function_calls(source: QueryTokens) -> Iterator[tuple[int, QueryToken]]:
    """Yield each name before an opening parenthesis, except names after a dot, with its index in the query's tokens."""
    for index, word in enumerate(source.tokens[:-1]):
        if (
            source.tokens[index + 1].text == "("
            and word.is_name
            and (index == 0 or source.tokens[index - 1].text != ".")
        ):
            yield index, word


def replacement_call(name: str, arguments: list[str], templates: tuple[str, ...]) -> str:
    """Return the call's replacement: the first template for which the call has all arguments, or else the last one."""
    for template in templates:
        if all(int(placeholder[1]) < len(arguments) for placeholder in _PLACEHOLDER_PATTERN.finditer(template)):
            return _fill_template(template, name, arguments)
    return _fill_template(templates[-1], name, arguments)


def _fill_template(template: str, name: str, arguments: list[str]) -> str:
    return _PLACEHOLDER_PATTERN.sub(
        lambda placeholder: _placeholder_text(placeholder, arguments), template.replace("{name}", name)
    )


def _placeholder_text(placeholder: re.Match[str], arguments: list[str]) -> str:
    index, format_name = int(placeholder[1]), placeholder[2]
    argument = arguments[index] if index < len(arguments) else "…"
    if format_name == "percent":
        return _fraction_as_percent(argument)
    if format_name is None:
        return argument
    return _ARGUMENT_CONVERSIONS[format_name](argument) or _FALLBACK_ARGUMENT_BY_CONVERSION[format_name]


def _fraction_as_percent(argument: str) -> str:
    try:
        return str(round(float(argument) * 100))
    except ValueError:
        return "50"
