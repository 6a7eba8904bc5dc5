"""PARSE_TIMESTAMP and similar functions: a regular expression whose groups are assembled to a time."""

from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.coercions import read_as
from cordwood.engines.clickhouse.rules.zones import first_timestamp_in
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.time_parsing import BOUNDS, Groups, parsing_rules
from cordwood.sql.bigquery.time_patterns import FormatPattern
from cordwood.sql.fragment import fragment, quoted_constant, text_part
from cordwood.sql.lowering import RAISED, is_safe


class _TimeSyntax:
    def number(self, text: str) -> str:
        return f"toInt64OrZero({text})"

    def conditional(self, condition: str, then: str, otherwise: str) -> str:
        return f"if({condition}, {then}, {otherwise})"

    def date(self, year: str, month: str, day: str) -> str:
        return f"makeDate32({year}, {month}, {day})"

    def days_after(self, date: str, days: str) -> str:
        return f"addDays({date}, {days})"

    def weekday(self, date: str) -> str:
        return f"toDayOfWeek({date})"

    def monday(self, date: str) -> str:
        return f"toMonday({date})"

    def name_position(self, names: Sequence[str], text: str) -> str:
        return f"toInt64(indexOf([{', '.join(map(quoted_constant, names))}], lower(substring({text}, 1, 3))))"

    def microseconds(self, count: str, each: int) -> str:
        return f"{count} * {each}"

    def seconds(self, text: str) -> str:
        return f"toInt64(toDecimal64(substring({text}, 1, 9), 6) * 1000000)"

    def time_of_day(self, parts: Sequence[str]) -> str:
        """Return the microseconds since midnight."""
        return f"toInt64({' + '.join(parts) or '0'})"


_BOUNDS: Final = {**BOUNDS, "V": (1, 53)}


def _assemble(node: exp.Expr, reading: FormatPattern, kind: Kind) -> exp.Expr:
    """Return the parsed time; the array of groups is empty if the text does not match, which is an error or NULL."""
    value = read_as(node.this, Kind.STRING)
    pattern = text_part(rf"(?is)^(\s*{reading.pattern}\s*)$")
    # The first group is the whole match.
    groups = Groups({element: f"_p[{group + 1}]" for element, group in reading.last_groups.items()}, _TimeSyntax())
    moment, is_invalid = _moment(groups, kind), " OR ".join(["empty(_p)", *_out_of_range(groups)])
    if is_safe(node):
        body = f"if({is_invalid}, NULL, {moment})"
    else:
        message = quoted_constant(f"{RAISED}Failed to parse input string as {kind}")
        body = f"if(throwIf({is_invalid}, {message}) = 1, NULL, {moment})"
    parsed = f"arrayMap(_p -> {body}, [extractGroups(ifNull({{0}}, ''), {{1}})])[1]"
    wall = fragment(f"if(isNull({{0}}), NULL, {parsed})", value, pattern)
    if kind is not Kind.TIMESTAMP or {"z", "s"} & reading.last_groups.keys():
        return wall
    return first_timestamp_in(wall, node.args.get("zone"))


def _out_of_range(groups: Groups) -> list[str]:
    """Return conditions for an invalid time: a number out of its range, or a day that the month does not have."""
    groups_by_element = groups.templates
    bounds = ((groups.number(key), *_BOUNDS[key]) for key in _BOUNDS if key in groups_by_element)
    conditions = [f"{number} NOT BETWEEN {low} AND {high}" for number, low, high in bounds]
    if "S" in groups_by_element:
        conditions.append(f"toFloat64OrZero({groups_by_element['S']}) >= 61")
    if "d" in groups_by_element and "j" not in groups_by_element and "G" not in groups_by_element:
        conditions.append(f"toDayOfMonth({groups.date()}) != {groups.number('d')}")
    return conditions


def _moment(groups: Groups, kind: Kind) -> str:
    """Return the template of the parsed time over the groups `_p`: a TIMESTAMP, or a local time if no zone is known."""
    if "s" in groups.templates:
        zone = ", 'UTC'" if kind is Kind.TIMESTAMP else ""
        return f"fromUnixTimestamp64Micro({groups.number('s')} * 1000000{zone})"
    if kind is Kind.DATE:
        return groups.date()
    if kind is Kind.TIME:
        return f"CAST(fromUnixTimestamp64Micro({groups.time_of_day()}), 'Time64(6)')"
    wall = f"fromUnixTimestamp64Micro(toInt64({groups.date()}) * 86400000000 + {groups.time_of_day()})"
    return _zoned(wall, groups) if kind is Kind.TIMESTAMP else wall


def _zoned(wall: str, groups: Groups) -> str:
    if "z" not in groups.templates:
        return wall
    offset = groups.templates["z"]
    digits = f"replaceRegexpAll({offset}, '[^0-9]', '')"
    padded_digits = f"if(length({digits}) % 2 = 1, concat('0', {digits}), {digits})"
    total = f"(toInt64OrZero(substring({padded_digits}, 1, 2)) * 60 + toInt64OrZero(substring({padded_digits}, 3))) * 60000000"
    shift = f"if(startsWith({offset}, '-'), -1, 1) * {total}"
    return f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({wall}) - {shift}, 'UTC')"


# Without %Z: ClickHouse supports a zone by name only if it is the same for all rows.
RULES = parsing_rules(_assemble, unsupported_elements=frozenset({"Z"}))
