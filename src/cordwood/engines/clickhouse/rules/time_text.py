"""Rules for times as text: FORMAT_TIMESTAMP, PARSE_TIMESTAMP and similar functions, and CAST(… AS STRING).

A time is formatted element by element. A text is parsed by a regular expression, whose groups are assembled to a time.
"""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    COMMON_SQL,
    convert_implicitly,
    first_timestamp_of_wall_clock,
    native_cast,
    to_zone_wall_clock,
)
from cordwood.model.datatype import Kind
from cordwood.sql.datatypes import kind_of
from cordwood.sql.lowering import (
    RAISED_ERROR_PREFIX,
    RuleSet,
    fragment_node,
    quoted_literal_sql,
    returns_null_on_error,
    string_literal_node,
)
from cordwood.sql.rules.time_text import (
    KIND_BY_TIME_CAST_CLASS,
    VALID_RANGE_BY_ELEMENT,
    EngineFormat,
    ParsedElementSql,
    TimeFormatRegex,
    TimeParsingSql,
    TimePrinter,
    time_parsing_rules,
)

# In this SQL and the other templates that print a time, `@a` is the time to print, as a date and time without a zone;
# `@b` is the same time as a date and time in UTC.
_MICROS_SINCE_EPOCH_SQL: Final = "toUnixTimestamp64Micro(@a)"
_ZONE_OFFSET_MINUTES_SQL: Final = "intDiv(toUnixTimestamp64Micro(@a) - toUnixTimestamp64Micro(@b), 60000000)"
_ZONE_OFFSET_SIGN_SQL: Final = f"if({_ZONE_OFFSET_MINUTES_SQL} < 0, '-', '+')"
_FRACTION_MICROS_SQL: Final = f"positiveModulo({_MICROS_SINCE_EPOCH_SQL}, 1000000)"


def _zero_padded_sql(number: str, digits: int, fill: str = "0") -> str:
    return f"leftPad(toString({number}), {digits}, '{fill}')"


_ZONE_OFFSET_HOURS_SQL: Final = _zero_padded_sql(f"intDiv(abs({_ZONE_OFFSET_MINUTES_SQL}), 60)", 2)
_ZONE_OFFSET_MINUTES_PART_SQL: Final = _zero_padded_sql(f"abs({_ZONE_OFFSET_MINUTES_SQL}) % 60", 2)

# The format elements that ClickHouse's formatDateTime prints like BigQuery, each with the letter that ClickHouse uses
# for it.
_FORMAT_LETTER_BY_ELEMENT: Final[Mapping[str, str]] = {
    **{letter: letter for letter in "YmdHSjyabpIuwVGFTRD"},
    "A": "W",
    "B": "M",
    "M": "i",
    "h": "b",
    "X": "T",
    "x": "D",
}

_SUNDAY_WEEK_NUMBER_SQL: Final = _zero_padded_sql("intDiv(toDayOfYear(@a) + 6 - toDayOfWeek(@a) % 7, 7)", 2)
_MONDAY_WEEK_NUMBER_SQL: Final = _zero_padded_sql("intDiv(toDayOfYear(@a) + 6 - (toDayOfWeek(@a) + 6) % 7, 7)", 2)

_TEMPLATE_BY_FORMAT_ELEMENT: Final[Mapping[str, str]] = {
    "C": _zero_padded_sql("intDiv(toYear(@a), 100)", 2),
    "c": f"concat(formatDateTime(@a, '%a %b '), {_zero_padded_sql('toDayOfMonth(@a)', 2, ' ')}, formatDateTime(@a, ' %T %Y'))",
    "e": _zero_padded_sql("toDayOfMonth(@a)", 2, " "),
    "g": _zero_padded_sql("toISOYear(toDate32(@a)) % 100", 2),
    "k": _zero_padded_sql("toHour(@a)", 2, " "),
    "l": _zero_padded_sql("(toHour(@a) + 11) % 12 + 1", 2, " "),
    "n": "'\\n'",
    "P": "lower(formatDateTime(@a, '%p'))",
    "Q": "toString(toQuarter(@a))",
    "r": "formatDateTime(@a, '%I:%i:%S %p')",
    "s": f"toString(intDiv(toUnixTimestamp64Micro(@b) - positiveModulo({_MICROS_SINCE_EPOCH_SQL}, 1000000), 1000000))",
    "t": "'\\t'",
    "U": _SUNDAY_WEEK_NUMBER_SQL,
    "W": _MONDAY_WEEK_NUMBER_SQL,
    "Z": f"concat('UTC', if(@a = @b, '', concat({_ZONE_OFFSET_SIGN_SQL}, toString(intDiv(abs({_ZONE_OFFSET_MINUTES_SQL}), 60)),"
    f" if({_ZONE_OFFSET_MINUTES_SQL} % 60 = 0, '', concat(':', {_ZONE_OFFSET_MINUTES_PART_SQL})))))",
    "z": f"concat({_ZONE_OFFSET_SIGN_SQL}, {_ZONE_OFFSET_HOURS_SQL}, {_ZONE_OFFSET_MINUTES_PART_SQL})",
    "Ez": f"concat({_ZONE_OFFSET_SIGN_SQL}, {_ZONE_OFFSET_HOURS_SQL}, ':', {_ZONE_OFFSET_MINUTES_PART_SQL})",
    "E4Y": _zero_padded_sql("toYear(@a)", 4),
    "E*S": f"concat(formatDateTime(@a, '%S'), if({_FRACTION_MICROS_SQL} = 0, '',"
    f" concat('.', replaceRegexpOne({_zero_padded_sql(_FRACTION_MICROS_SQL, 6)}, '0+$', ''))))",
    "J": _zero_padded_sql("dateDiff('day', toStartOfISOYear(toDate32(@a)), toDate32(@a)) + 1", 3),
}


def _record_printed_time_kind(node: exp.Expr) -> exp.Expr:
    """Record the type of the time that is to be printed, before the node is lowered.

    sqlglot wraps the time in a node whose class shows the type. This function removes the wrapper, unless the wrapper
    converts a text.
    """
    kind = KIND_BY_TIME_CAST_CLASS.get(type(node.this))
    if kind is not None:
        argument_kind = kind_of(node.this.this)
        node.meta["written_as"] = (
            argument_kind if kind is Kind.DATE and argument_kind in (Kind.DATETIME, Kind.TIMESTAMP) else kind
        )
        if kind_of(node.this.this) is not Kind.STRING:
            node.set("this", node.this.this)
    return node


_SECOND_FRACTION_TEXT_SQL: Final = (
    f"multiIf({_FRACTION_MICROS_SQL} = 0, '', {_FRACTION_MICROS_SQL} % 1000 = 0,"
    f" concat('.', {_zero_padded_sql(f'intDiv({_FRACTION_MICROS_SQL}, 1000)', 3)}), concat('.', {_zero_padded_sql(_FRACTION_MICROS_SQL, 6)}))"
)


_TIME_PARSING_SQL: Final = TimeParsingSql(
    parse_integer="toInt64OrZero({})".format,
    case_when=COMMON_SQL.case_when,
    make_date="makeDate32({}, {}, {})".format,
    add_days="addDays({}, {})".format,
    iso_weekday_number="toDayOfWeek({})".format,
    monday_of_week="toMonday({})".format,
    name_position="toInt64(indexOf([{}], lower(substring({}, 1, 3))))".format,
    units_to_duration="{} * {}".format,
    seconds_to_duration="toInt64(toDecimal64(substring({}, 1, 9), 6) * 1000000)".format,
    # Each duration is a number of microseconds. Their sum is the number of microseconds since midnight.
    sum_durations=lambda parts: f"toInt64({' + '.join(parts) or '0'})",
)


_BOUNDS_BY_FORMAT_ELEMENT: Final = {**VALID_RANGE_BY_ELEMENT, "V": (1, 53)}


def _parse_time_sql(node: exp.Expr, format_pattern: TimeFormatRegex, kind: Kind) -> exp.Expr:
    """Return SQL that parses a text by a regular expression, which was made from the format.

    If the text does not match, the array of groups is empty. The result is then an error, or NULL inside SAFE.
    """
    value = convert_implicitly(node.this, Kind.STRING)
    pattern = string_literal_node(rf"(?is)^(\s*{format_pattern.pattern}\s*)$")
    # In `_p`, the match of the whole pattern comes first, so that the group of each element is one place later.
    groups = ParsedElementSql(
        {element: f"_p[{group + 1}]" for element, group in format_pattern.group_index_by_element.items()},
        _TIME_PARSING_SQL,
    )
    moment, is_invalid = (
        _time_from_regex_groups_sql(groups, kind),
        " OR ".join(["empty(_p)", *_out_of_range_conditions(groups)]),
    )
    if returns_null_on_error(node):
        body = f"if({is_invalid}, NULL, {moment})"
    else:
        message = quoted_literal_sql(f"{RAISED_ERROR_PREFIX}Failed to parse input string as {kind}")
        body = f"if(throwIf({is_invalid}, {message}) = 1, NULL, {moment})"
    parsed = f"arrayMap(_p -> {body}, [extractGroups(ifNull({{0}}, ''), {{1}})])[1]"
    wall = fragment_node(f"if(isNull({{0}}), NULL, {parsed})", value, pattern)
    if kind is not Kind.TIMESTAMP or {"z", "s"} & format_pattern.group_index_by_element.keys():
        return wall
    return first_timestamp_of_wall_clock(wall, node.args.get("zone"))


def _out_of_range_conditions(groups: ParsedElementSql) -> list[str]:
    """Return SQL conditions, of which at least one holds if the parsed time is invalid.

    A time is invalid if a number is out of its range, or if its month does not have its day.
    """
    groups_by_element = groups.template_by_element
    bounds = (
        (groups.number_sql(key), *_BOUNDS_BY_FORMAT_ELEMENT[key])
        for key in _BOUNDS_BY_FORMAT_ELEMENT
        if key in groups_by_element
    )
    conditions = [f"{number} NOT BETWEEN {low} AND {high}" for number, low, high in bounds]
    if "S" in groups_by_element:
        conditions.append(f"toFloat64OrZero({groups_by_element['S']}) >= 61")
    if "d" in groups_by_element and "j" not in groups_by_element and "G" not in groups_by_element:
        conditions.append(f"toDayOfMonth({groups.date_sql()}) != {groups.number_sql('d')}")
    return conditions


def _time_from_regex_groups_sql(groups: ParsedElementSql, kind: Kind) -> str:
    """Return SQL that makes the time from the array `_p` of the groups that the regular expression found.

    If a TIMESTAMP is to be parsed but the format has no zone, the SQL gives a date and time without a zone.
    """
    if "s" in groups.template_by_element:
        zone = ", 'UTC'" if kind is Kind.TIMESTAMP else ""
        return f"fromUnixTimestamp64Micro({groups.number_sql('s')} * 1000000{zone})"
    if kind is Kind.DATE:
        return groups.date_sql()
    if kind is Kind.TIME:
        return f"CAST(fromUnixTimestamp64Micro({groups.time_of_day_duration_sql()}), 'Time64(6)')"
    wall = f"fromUnixTimestamp64Micro(toInt64({groups.date_sql()}) * 86400000000 + {groups.time_of_day_duration_sql()})"
    return _apply_parsed_zone_sql(wall, groups) if kind is Kind.TIMESTAMP else wall


def _apply_parsed_zone_sql(wall: str, groups: ParsedElementSql) -> str:
    if "z" not in groups.template_by_element:
        return wall
    offset = groups.template_by_element["z"]
    digits = f"replaceRegexpAll({offset}, '[^0-9]', '')"
    padded_digits = f"if(length({digits}) % 2 = 1, concat('0', {digits}), {digits})"
    total = f"(toInt64OrZero(substring({padded_digits}, 1, 2)) * 60 + toInt64OrZero(substring({padded_digits}, 3))) * 60000000"
    shift = f"if(startsWith({offset}, '-'), -1, 1) * {total}"
    return f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({wall}) - {shift}, 'UTC')"


class _TimePrinterSql:
    engine_letter_by_element, element_templates = _FORMAT_LETTER_BY_ELEMENT, _TEMPLATE_BY_FORMAT_ELEMENT
    offset_in_minutes_template = _ZONE_OFFSET_MINUTES_SQL
    offset_sign_template = _ZONE_OFFSET_SIGN_SQL
    offset_hours_template = _ZONE_OFFSET_HOURS_SQL
    offset_minutes_part_template = _ZONE_OFFSET_MINUTES_PART_SQL
    fraction_template_if_not_zero = _SECOND_FRACTION_TEXT_SQL
    format_call_template = "formatDateTime({}, {})"
    time_of_day_format, date_and_time_format, iso_format = "%T", "%F %T", "%FT%T"
    pad_template, first_letter_template = "rightPad({}, 9, ' ')", "substring({}, 1, 1)"
    to_zone_wall_clock = staticmethod(to_zone_wall_clock)

    def formatted_value_and_kind(self, node: exp.Expr) -> tuple[exp.Expr, Kind]:
        return node.this, node.meta_get("written_as") or kind_of(node.this) or Kind.TIMESTAMP

    def time_to_wall_clock(self, value: exp.Expr) -> exp.Expr:
        return native_cast(value, Kind.DATETIME)

    def seconds_format(self, digits: int) -> EngineFormat | str:
        if digits == 0:
            return EngineFormat("%S")
        micros = _zero_padded_sql(_FRACTION_MICROS_SQL, 6)
        part = f"substring({micros}, 1, {digits})" if digits <= 6 else f"concat({micros}, '{'0' * (digits - 6)}')"
        return f"concat(formatDateTime(@a, '%S'), '.', {part})"

    def fraction_template(self, digits: int) -> str:
        return f"substring({_zero_padded_sql(_FRACTION_MICROS_SQL, 6)}, 1, {digits})"


TIME_PRINTER: Final = TimePrinter(COMMON_SQL, _TimePrinterSql())

RULES = RuleSet(
    by_node_class={
        **TIME_PRINTER.rules().by_node_class,
        # %Z is not supported, because ClickHouse supports the name of a zone only if it is the same for all rows.
        **time_parsing_rules(_parse_time_sql, unsupported_elements=frozenset({"Z"})).by_node_class,
    },
    by_function_name=TIME_PRINTER.rules().by_function_name,
    by_node_class_before_children={exp.TimeToStr: _record_printed_time_kind},
)
