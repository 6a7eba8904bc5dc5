"""PARSE_TIMESTAMP and similar functions: a regular expression whose groups are assembled to a time."""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import fail
from cordwood.engines.duckdb.rules.coercions import read_as
from cordwood.engines.duckdb.rules.zones import first_timestamp_in
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.time_parsing import BOUNDS, Groups, parsing_rules
from cordwood.sql.bigquery.time_patterns import FormatPattern
from cordwood.sql.fragment import fragment, quoted_constant, text_part
from cordwood.sql.lowering import is_safe


class _TimeSyntax:
    def number(self, text: str) -> str:
        return f"CAST({text} AS INT)"

    def conditional(self, condition: str, then: str, otherwise: str) -> str:
        return f"CASE WHEN {condition} THEN {then} ELSE {otherwise} END"

    def date(self, year: str, month: str, day: str) -> str:
        return f"make_date({year}, {month}, {day})"

    def days_after(self, date: str, days: str) -> str:
        return f"({date} + ({days})::INT)"

    def weekday(self, date: str) -> str:
        return f"isodow({date})"

    def monday(self, date: str) -> str:
        return f"CAST(date_trunc('week', {date}) AS DATE)"

    def name_position(self, names: Sequence[str], text: str) -> str:
        return f"list_position([{', '.join(map(quoted_constant, names))}], lower(left({text}, 3)))"

    def microseconds(self, count: str, each: int) -> str:
        return f"to_microseconds({count}::BIGINT * {each})"

    def seconds(self, text: str) -> str:
        return f"to_microseconds(CAST(CAST(left({text}, 9) AS DECIMAL(9, 6)) * 1000000 AS BIGINT))"

    def time_of_day(self, parts: Sequence[str]) -> str:
        return "(" + " + ".join(parts or ["to_seconds(0)"]) + ")"


_BOUNDS: Final = {**BOUNDS, "S": (0, 60)}


def _assemble(node: exp.Expr, reading: FormatPattern, kind: Kind) -> exp.Expr:
    """Return the parsed time; all groups are empty if the text does not match, which is an error or NULL."""
    names = ", ".join(quoted_constant(name) for name in ("whole", *(f"g{index}" for index in range(reading.groups))))
    pattern = text_part(rf"(?is)^(\s*{reading.pattern}\s*)$")
    groups = {element: f"_p.g{group - 1}" for element, group in reading.last_groups.items()}
    time_sql = _moment(Groups(groups, _TimeSyntax()), kind)
    body = f"try({time_sql})" if is_safe(node) else time_sql
    failure = fail(node, f"Failed to parse input string as {kind}")
    is_no_match = (
        " OR ".join(["_p.whole = ''", *_out_of_range(groups)]) if reading.groups else "NOT regexp_matches({0}, {1})"
    )
    body = f"CASE WHEN _p IS NULL THEN NULL WHEN {is_no_match} THEN {failure} ELSE {body} END"
    template = f"list_transform([regexp_extract({{0}}, {{1}}, [{names}])], lambda _p: {body})[1]"
    wall = fragment(template, read_as(node.this, Kind.STRING), pattern)
    if kind is not Kind.TIMESTAMP or {"z", "Z", "s"} & reading.last_groups.keys():
        return wall
    return first_timestamp_in(wall, node.args.get("zone"))


def _out_of_range(groups: dict[str, str]) -> list[str]:
    """Return conditions for numbers that are out of their range."""
    bounds = ((groups[key], *_BOUNDS[key]) for key in groups if key in _BOUNDS)
    return [f"TRY_CAST(split_part({text}, '.', 1) AS INT) NOT BETWEEN {low} AND {high}" for text, low, high in bounds]


def _moment(groups: Groups, kind: Kind) -> str:
    """Return the template over the groups `_p`: a wall clock, or with a zone or an epoch the TIMESTAMP itself."""
    if "s" in groups.templates:
        micro = f"CAST({groups.templates['s']} AS BIGINT) * 1000000"
        return f"make_timestamptz({micro})" if kind is Kind.TIMESTAMP else f"make_timestamp({micro})"
    if kind is Kind.DATE:
        return groups.date()
    if kind is Kind.TIME:
        return f"CAST(('1970-01-01'::DATE + {groups.time_of_day()}) AS TIME)"
    wall = f"({groups.date()} + {groups.time_of_day()})"
    return _zoned(wall, groups) if kind is Kind.TIMESTAMP else wall


def _zoned(wall: str, groups: Groups) -> str:
    if "Z" in groups.templates:
        zone = groups.templates["Z"]
        return f"timezone(CASE WHEN lower({zone}) = 'z' THEN 'UTC' ELSE {zone} END, {wall})"
    if "z" not in groups.templates:
        return wall
    offset = groups.templates["z"]
    digits = f"regexp_replace({offset}, '[^0-9]', '', 'g')"
    padded_digits = f"CASE WHEN len({digits}) % 2 = 1 THEN '0' || {digits} ELSE {digits} END"
    hours, minutes = f"CAST(left({padded_digits}, 2) AS INT)", f"CAST('0' || substring({padded_digits}, 3) AS INT)"
    total = f"(CASE WHEN {offset} LIKE '-%' THEN -1 ELSE 1 END)::BIGINT * ({hours} * 60 + {minutes}) * 60000000"
    shift = f"CASE WHEN lower({offset}) = 'z' THEN 0 ELSE {total} END"
    return f"make_timestamptz(epoch_us({wall}) - {shift})"


RULES = parsing_rules(_assemble)
