"""PARSE_TIMESTAMP and its like: the format becomes a regular expression whose groups are put together."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.reading import read_as
from cordwood.engines.duckdb.rules.words import fail
from cordwood.engines.duckdb.rules.zones import moment_in
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.time_patterns import DAYS, MONTHS, Reading, read_by
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment, own_text, text_part
from cordwood.sql.lowering import Meaning, Rule, is_safe, mark_safe, unsupported


def _shape(node: exp.Expr, kind: Kind) -> str:
    if kind is Kind.TIMESTAMP and node.meta_get("bigquery_name") is None:
        unsupported(node, "CAST to a time with a format")  # the parser does not keep which kind of time
    shape = constant_text(node.args.get("format"))
    return shape if shape is not None else unsupported(node, "A format that is no literal")


def _parse(kind: Kind) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        if node.args.get("safe"):
            mark_safe(node)
        if isinstance(node.args.get("format"), exp.Null) or isinstance(node.this, exp.Null):
            return exp.Null()
        reading = read_by(_shape(node, kind))
        if reading.unknown is not None:
            return exp.Null() if is_safe(node) else unsupported(node, f"The format element %{reading.unknown}")
        foreign = reading.foreign(kind)
        if foreign is not None:
            unsupported(node, f"The element %{foreign} for {kind}")
        return _assembled(node, reading, kind)

    return rule


def _assembled(node: exp.Expr, reading: Reading, kind: Kind) -> exp.Expr:
    """Where the text does not match, all groups are empty: an error then, or NULL."""
    names = ", ".join(own_text(name) for name in ("whole", *(f"g{at}" for at in range(reading.groups))))
    pattern = text_part(rf"(?is)^(\s*{reading.pattern}\s*)$")
    found = {element: f"_p.g{group - 1}" for element, group in reading.last.items()}
    moment = _moment(found, kind)
    body = f"try({moment})" if is_safe(node) else moment
    bad = fail(node, f"Failed to parse input string as {kind}")
    other = " OR ".join(["_p.whole = ''", *_wrongs(found)]) if reading.groups else "NOT regexp_matches({0}, {1})"
    body = f"CASE WHEN _p IS NULL THEN NULL WHEN {other} THEN {bad} ELSE {body} END"
    template = f"list_transform([regexp_extract({{0}}, {{1}}, [{names}])], lambda _p: {body})[1]"
    wall = fragment(template, read_as(node.this, Kind.STRING), pattern)
    if kind is not Kind.TIMESTAMP or {"z", "Z", "s"} & reading.last.keys():
        return wall
    return moment_in(wall, node.args.get("zone"))


def _moment(found: dict[str, str], kind: Kind) -> str:
    """Template over the groups `_p`: the wall clock, or with a zone or an epoch the TIMESTAMP itself."""
    if "s" in found:
        micro = f"CAST({found['s']} AS BIGINT) * 1000000"
        return f"make_timestamptz({micro})" if kind is Kind.TIMESTAMP else f"make_timestamp({micro})"
    date, time = _date(found), _time(found)
    if kind is Kind.DATE:
        return date
    if kind is Kind.TIME:
        return f"CAST(('1970-01-01'::DATE + {time}) AS TIME)"
    wall = f"({date} + {time})"
    return _zoned(wall, found) if kind is Kind.TIMESTAMP else wall


def _zoned(wall: str, found: dict[str, str]) -> str:
    if "Z" in found:
        return f"timezone(CASE WHEN lower({found['Z']}) = 'z' THEN 'UTC' ELSE {found['Z']} END, {wall})"
    if "z" not in found:
        return wall
    offset = found["z"]
    digits = f"regexp_replace({offset}, '[^0-9]', '', 'g')"
    hours = f"CAST(left(CASE WHEN len({digits}) % 2 = 1 THEN '0' || {digits} ELSE {digits} END, 2) AS INT)"
    minutes = (
        f"CAST('0' || substring(CASE WHEN len({digits}) % 2 = 1 THEN '0' || {digits} ELSE {digits} END, 3) AS INT)"
    )
    total = f"(CASE WHEN {offset} LIKE '-%' THEN -1 ELSE 1 END)::BIGINT * ({hours} * 60 + {minutes}) * 60000000"
    shift = f"CASE WHEN lower({offset}) = 'z' THEN 0 ELSE {total} END"
    return f"make_timestamptz(epoch_us({wall}) - {shift})"


def _time(found: dict[str, str]) -> str:
    pieces = [piece for piece in (_hour(found), _minute(found), _second(found)) if piece]
    return "(" + " + ".join(pieces or ["to_seconds(0)"]) + ")"


def _hour(found: dict[str, str]) -> str:
    if "H" in found:
        return f"to_hours(CAST({found['H']} AS INT))"
    if "I" not in found:
        return ""
    afternoon = f" + CASE WHEN lower({found['p']}) = 'pm' THEN 12 ELSE 0 END" if "p" in found else ""
    return f"to_hours(CAST({found['I']} AS INT) % 12{afternoon})"


def _minute(found: dict[str, str]) -> str:
    return f"to_minutes(CAST({found['M']} AS INT))" if "M" in found else ""


def _second(found: dict[str, str]) -> str:
    if "S" not in found:
        return ""
    return f"to_microseconds(CAST(CAST(left({found['S']}, 9) AS DECIMAL(9, 6)) * 1000000 AS BIGINT))"


_BOUNDS: Final = {"m": (1, 12), "d": (1, 31), "j": (1, 366), "H": (0, 23), "I": (1, 12), "M": (0, 59), "S": (0, 60)}


def _wrongs(found: dict[str, str]) -> list[str]:
    """Numbers outside their range, where there are numbers."""
    bounds = ((found[key], *_BOUNDS[key]) for key in found if key in _BOUNDS)
    return [f"TRY_CAST(split_part({text}, '.', 1) AS INT) NOT BETWEEN {low} AND {high}" for text, low, high in bounds]


def _year(found: dict[str, str]) -> str:
    short = f"CAST({found['y']} AS INT)" if "y" in found else ""
    if "Y" in found:
        return f"CAST({found['Y']} AS INT)"
    if "C" in found:
        return f"(CAST({found['C']} AS INT) * 100{' + ' + short if short else ''})"
    return f"({short} + CASE WHEN {short} < 69 THEN 2000 ELSE 1900 END)" if short else "1970"


def _month(found: dict[str, str]) -> str:
    order = list(found)
    named = [key for key in ("m", "b", "Q") if key in found]
    if not named:
        return "1"
    last = max(named, key=order.index)
    if last == "b":
        names = ", ".join(own_text(month[:3]) for month in MONTHS)
        return f"list_position([{names}], lower(left({found['b']}, 3)))"
    if last == "Q":
        return f"(CAST({found['Q']} AS INT) * 3 - 2)"
    return f"CAST({found['m']} AS INT)"


def _date(found: dict[str, str]) -> str:
    if "G" in found:
        return _iso_week(found)
    if ("U" in found or "W" in found) and ("Y" in found or "y" in found):
        return _week(found)
    if "j" in found:
        return f"(make_date({_year(found)}, 1, 1) + (CAST({found['j']} AS INT) - 1))"
    day = f"CAST({found['d']} AS INT)" if "d" in found else "1"
    return f"make_date({_year(found)}, {_month(found)}, {day})"


def _weekday(found: dict[str, str], first: int) -> str:
    """Days after Monday; the week's first day where none is told."""
    if "u" in found:
        return f"(CAST({found['u']} AS INT) - 1)"
    if "w" in found:
        return f"((CAST({found['w']} AS INT) + 6) % 7)"
    if "a" in found:
        names = ", ".join(own_text(day[:3]) for day in DAYS)
        return f"(list_position([{names}], lower(left({found['a']}, 3))) - 1)"
    return str(first)


def _iso_week(found: dict[str, str]) -> str:
    week = f"CAST({found['V']} AS INT)" if "V" in found else "1"
    monday = f"CAST(date_trunc('week', make_date(CAST({found['G']} AS INT), 1, 4)) AS DATE)"
    return f"({monday} + (({week} - 1) * 7 + {_weekday(found, 0)}))"


def _week(found: dict[str, str]) -> str:
    """Week 1 begins with the year's first Sunday (%U) or Monday (%W); the days before it are week 0."""
    letter = "U" if "U" in found else "W"
    new_year = f"make_date({_year(found)}, 1, 1)"
    before = "6" if letter == "U" else "0"
    first = f"({new_year} + ((7 + {before} - (isodow({new_year}) - 1)) % 7)::INT)"
    day = f"(({_weekday(found, int(before))} - {before} + 7) % 7)"
    return f"CAST({first} + ((CAST({found[letter]} AS INT) - 1) * 7 + {day})::INT AS DATE)"


MEANING = Meaning(
    nodes={
        exp.StrToDate: _parse(Kind.DATE),
        exp.StrToTime: _parse(Kind.TIMESTAMP),
        exp.ParseDatetime: _parse(Kind.DATETIME),
        exp.ParseTime: _parse(Kind.TIME),
    }
)
