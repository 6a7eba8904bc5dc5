"""Time units and time formats of other dialects, translated to BigQuery's."""

import re
from collections.abc import Mapping
from typing import Final

_SPELLINGS: Final = {
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
_UNITS: Final = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()}
_INTERVAL_TEXT: Final = re.compile(r"(?:interval\s+)?'?\s*([+-]?\d+)\s*'?\s*([a-z]+)\s*'?", re.IGNORECASE)

_TO_CHAR: Final = {
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
_DATE_FORMAT: Final = {"%i": "%M", "%s": "%S", "%f": "%E6S", "%M": "%B", "%h": "%I", "%W": "%A", "%T": "%T"}


def unit(text: str) -> str | None:
    """Return BigQuery's name of a unit: HOUR for `'hours'`, `hr` and `h`."""
    return _UNITS.get(text.strip().strip("'\"").lower())


def interval(text: str) -> str | None:
    """Return `'5 minutes'`, `5 minutes` or `INTERVAL '5 minutes'` in BigQuery's form, INTERVAL 5 MINUTE."""
    match = _INTERVAL_TEXT.fullmatch(text.strip())
    name = unit(match[2]) if match else None
    return f"INTERVAL {match[1]} {name}" if match and name else None


def to_char_format(text: str) -> str | None:
    """Translate a TO_CHAR format to BigQuery's elements."""
    return _translate_format(text, _TO_CHAR, re.IGNORECASE)


def date_format(text: str) -> str | None:
    """Translate a format of MySQL's DATE_FORMAT to BigQuery's elements."""
    return _translate_format(text, _DATE_FORMAT, re.NOFLAG)


def _translate_format(text: str, elements: Mapping[str, str], flags: re.RegexFlag) -> str | None:
    if text[:1] not in "'\"":
        return None
    longest_first = sorted(elements, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)), flags)
    return pattern.sub(lambda match: elements[match[0].upper() if flags else match[0]], text)
