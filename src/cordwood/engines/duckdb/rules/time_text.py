"""Rules for times as text: FORMAT_TIMESTAMP, PARSE_TIMESTAMP and similar functions, and CAST(… AS STRING).

A time is formatted element by element. A text is parsed by a regular expression, from whose groups the time is
computed.
"""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    COMMON_SQL,
    convert_implicitly,
    failure_sql,
    first_timestamp_of_wall_clock,
    to_zone_wall_clock,
)
from cordwood.model.datatype import Kind
from cordwood.sql.datatypes import kind_of
from cordwood.sql.lowering import RuleSet, fragment_node, quoted_literal_sql, returns_null_on_error, string_literal_node
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

# Templates for parts of a time zone's offset from UTC. `@a` is the wall-clock time in the zone, and `@b` is the
# wall-clock time in UTC at the same moment.
_ZONE_OFFSET_MINUTES_SQL: Final = "(epoch_us(@a) - epoch_us(@b)) // 60000000"
_ZONE_OFFSET_SIGN_SQL: Final = f"CASE WHEN {_ZONE_OFFSET_MINUTES_SQL} < 0 THEN '-' ELSE '+' END"
_ZONE_OFFSET_HOURS_SQL: Final = f"printf('%02d', abs({_ZONE_OFFSET_MINUTES_SQL}) // 60)"
_ZONE_OFFSET_MINUTES_PART_SQL: Final = f"printf('%02d', abs({_ZONE_OFFSET_MINUTES_SQL}) % 60)"


_SUBSECOND_SQL: Final = (
    "CASE WHEN epoch_us(@a) % 1000000 = 0 THEN '' WHEN epoch_us(@a) % 1000 = 0 THEN strftime(@a, '.%g')"
    " ELSE strftime(@a, '.%f') END"
)


_TIME_PARSING_SQL: Final = TimeParsingSql(
    parse_integer="CAST({} AS INT)".format,
    case_when=COMMON_SQL.case_when,
    make_date="make_date({}, {}, {})".format,
    add_days="({} + ({})::INT)".format,
    iso_weekday_number="isodow({})".format,
    monday_of_week="CAST(date_trunc('week', {}) AS DATE)".format,
    name_position="list_position([{}], lower(left({}, 3)))".format,
    units_to_duration="to_microseconds({}::BIGINT * {})".format,
    seconds_to_duration="to_microseconds(CAST(CAST(left({}, 9) AS DECIMAL(9, 6)) * 1000000 AS BIGINT))".format,
    sum_durations=lambda parts: "(" + " + ".join(parts or ["to_seconds(0)"]) + ")",
)


_BOUNDS_BY_FORMAT_ELEMENT: Final = {**VALID_RANGE_BY_ELEMENT, "S": (0, 60)}


def _parse_time_sql(node: exp.Expr, format_pattern: TimeFormatRegex, kind: Kind) -> exp.Expr:
    """Return SQL that parses a text as a time.

    If the text does not match the pattern, all groups of the pattern are empty. Then the SQL raises an error, or
    returns NULL inside SAFE.
    """
    names = ", ".join(
        quoted_literal_sql(name) for name in ("whole", *(f"g{index}" for index in range(format_pattern.group_count)))
    )
    pattern = string_literal_node(rf"(?is)^(\s*{format_pattern.pattern}\s*)$")
    groups = {element: f"_p.g{group - 1}" for element, group in format_pattern.group_index_by_element.items()}
    time_sql = _time_from_groups(ParsedElementSql(groups, _TIME_PARSING_SQL), kind)
    body = f"try({time_sql})" if returns_null_on_error(node) else time_sql
    failure = failure_sql(node, f"Failed to parse input string as {kind}")
    is_no_match = (
        " OR ".join(["_p.whole = ''", *_out_of_range_conditions(groups)])
        if format_pattern.group_count
        else "NOT regexp_matches({0}, {1})"
    )
    body = f"CASE WHEN _p IS NULL THEN NULL WHEN {is_no_match} THEN {failure} ELSE {body} END"
    template = f"list_transform([regexp_extract({{0}}, {{1}}, [{names}])], lambda _p: {body})[1]"
    wall = fragment_node(template, convert_implicitly(node.this, Kind.STRING), pattern)
    if kind is not Kind.TIMESTAMP or {"z", "Z", "s"} & format_pattern.group_index_by_element.keys():
        return wall
    return first_timestamp_of_wall_clock(wall, node.args.get("zone"))


def _out_of_range_conditions(groups: dict[str, str]) -> list[str]:
    """Return SQL conditions, each of which is true if the number in one of the groups is out of its range."""
    bounds = ((groups[key], *_BOUNDS_BY_FORMAT_ELEMENT[key]) for key in groups if key in _BOUNDS_BY_FORMAT_ELEMENT)
    return [f"TRY_CAST(split_part({text}, '.', 1) AS INT) NOT BETWEEN {low} AND {high}" for text, low, high in bounds]


def _time_from_groups(groups: ParsedElementSql, kind: Kind) -> str:
    """Return the template that computes a time of the type `kind` from the pattern's groups, the fields of `_p`.

    A TIMESTAMP is computed as a wall-clock time, unless the format has a zone or the seconds since 1970.
    """
    if "s" in groups.template_by_element:
        micro = f"CAST({groups.template_by_element['s']} AS BIGINT) * 1000000"
        return f"make_timestamptz({micro})" if kind is Kind.TIMESTAMP else f"make_timestamp({micro})"
    if kind is Kind.DATE:
        return groups.date_sql()
    if kind is Kind.TIME:
        return f"CAST(('1970-01-01'::DATE + {groups.time_of_day_duration_sql()}) AS TIME)"
    wall = f"({groups.date_sql()} + {groups.time_of_day_duration_sql()})"
    return _apply_parsed_zone(wall, groups) if kind is Kind.TIMESTAMP else wall


def _apply_parsed_zone(wall: str, groups: ParsedElementSql) -> str:
    if "Z" in groups.template_by_element:
        zone = groups.template_by_element["Z"]
        return f"timezone(CASE WHEN lower({zone}) = 'z' THEN 'UTC' ELSE {zone} END, {wall})"
    if "z" not in groups.template_by_element:
        return wall
    offset = groups.template_by_element["z"]
    digits = f"regexp_replace({offset}, '[^0-9]', '', 'g')"
    padded_digits = f"CASE WHEN len({digits}) % 2 = 1 THEN '0' || {digits} ELSE {digits} END"
    hours, minutes = f"CAST(left({padded_digits}, 2) AS INT)", f"CAST('0' || substring({padded_digits}, 3) AS INT)"
    total = f"(CASE WHEN {offset} LIKE '-%' THEN -1 ELSE 1 END)::BIGINT * ({hours} * 60 + {minutes}) * 60000000"
    shift = f"CASE WHEN lower({offset}) = 'z' THEN 0 ELSE {total} END"
    return f"make_timestamptz(epoch_us({wall}) - {shift})"


# The templates of the format elements: first those that DuckDB's `strftime` prints as BigQuery does, and then all
# others.
_STRFTIME_LETTERS: Final[Mapping[str, str]] = {letter: letter for letter in "YmdHMSjyabABpIuwVWU%G"}
_TEMPLATE_BY_FORMAT_ELEMENT: Final[Mapping[str, str]] = {
    "C": "(printf('%02d', year(@a) // 100))",
    "c": "(strftime(@a, '%a %b ') || printf('%2d', day(@a)) || strftime(@a, ' %H:%M:%S %Y'))",
    "D": "(strftime(@a, '%m/%d/%y'))",
    "e": "(printf('%2d', day(@a)))",
    "F": "(strftime(@a, '%Y-%m-%d'))",
    "g": "(printf('%02d', isoyear(@a) % 100))",
    "h": "(strftime(@a, '%b'))",
    "k": "(printf('%2d', hour(@a)))",
    "l": "(printf('%2d', (hour(@a) + 11) % 12 + 1))",
    "n": "(chr(10))",
    "P": "(lower(strftime(@a, '%p')))",
    "Q": "(quarter(@a)::VARCHAR)",
    "R": "(strftime(@a, '%H:%M'))",
    "r": "(strftime(@a, '%I:%M:%S %p'))",
    "s": "(((epoch_us(@b) - (epoch_us(@b) % 1000000 + 1000000) % 1000000) // 1000000)::VARCHAR)",
    "T": "(strftime(@a, '%H:%M:%S'))",
    "t": "(chr(9))",
    "X": "(strftime(@a, '%H:%M:%S'))",
    "x": "(strftime(@a, '%m/%d/%y'))",
    "Z": f"('UTC' || CASE WHEN @a = @b THEN '' ELSE {_ZONE_OFFSET_SIGN_SQL} || (abs({_ZONE_OFFSET_MINUTES_SQL}) // 60)"
    f" || CASE WHEN {_ZONE_OFFSET_MINUTES_SQL} % 60 = 0 THEN '' ELSE ':' || {_ZONE_OFFSET_MINUTES_PART_SQL} END END)",
    "z": f"({_ZONE_OFFSET_SIGN_SQL} || {_ZONE_OFFSET_HOURS_SQL} || {_ZONE_OFFSET_MINUTES_PART_SQL})",
    "Ez": f"({_ZONE_OFFSET_SIGN_SQL} || {_ZONE_OFFSET_HOURS_SQL} || ':' || {_ZONE_OFFSET_MINUTES_PART_SQL})",
    "E4Y": "(printf('%04d', year(@a)))",
    "E*S": "(strftime(@a, '%S') || CASE WHEN epoch_us(@a) % 1000000 = 0 THEN ''"
    " ELSE '.' || rtrim(printf('%06d', ((epoch_us(@a) % 1000000) + 1000000) % 1000000), '0') END)",
    "J": "(printf('%03d', (date_diff('day', date_trunc('week', make_date(isoyear(@a), 1, 4)), @a)) + 1))",
}


class _TimePrinterSql:
    engine_letter_by_element, element_templates = _STRFTIME_LETTERS, _TEMPLATE_BY_FORMAT_ELEMENT
    offset_in_minutes_template = _ZONE_OFFSET_MINUTES_SQL
    offset_sign_template = _ZONE_OFFSET_SIGN_SQL
    offset_hours_template = _ZONE_OFFSET_HOURS_SQL
    offset_minutes_part_template = _ZONE_OFFSET_MINUTES_PART_SQL
    fraction_template_if_not_zero = _SUBSECOND_SQL
    format_call_template = "strftime({}, {})"
    time_of_day_format, date_and_time_format, iso_format = "%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"
    pad_template, first_letter_template = "rpad({}, 9, ' ')", "left({}, 1)"
    to_zone_wall_clock = staticmethod(to_zone_wall_clock)

    def formatted_value_and_kind(self, node: exp.Expr) -> tuple[exp.Expr, Kind]:
        wrapped = node.this
        value = wrapped.this if type(wrapped) in KIND_BY_TIME_CAST_CLASS else wrapped
        kind = KIND_BY_TIME_CAST_CLASS.get(type(wrapped), kind_of(value) or Kind.TIMESTAMP)
        return value, Kind.DATETIME if kind is Kind.DATE and kind_of(value) is Kind.DATETIME else kind

    def time_to_wall_clock(self, value: exp.Expr) -> exp.Expr:
        return fragment_node("('1970-01-01'::DATE + {0})", value)

    def seconds_format(self, digits: int) -> EngineFormat | str:
        if digits == 0 or digits > 6:
            return EngineFormat("%S" if digits == 0 else f"%S.%f{'0' * (digits - 6)}")
        fraction = f"((epoch_us(@a) % 1000000 + 1000000) % 1000000) // {10 ** (6 - digits)}"
        return f"(strftime(@a, '%S') || printf('.%0{digits}d', {fraction}))"

    def fraction_template(self, digits: int) -> str:
        return f"(printf('%0{digits}d', (epoch_us(@a) % 1000000) // {10 ** (6 - digits)}))"


TIME_PRINTER: Final = TimePrinter(COMMON_SQL, _TimePrinterSql())

RULES = RuleSet(
    by_node_class={**TIME_PRINTER.rules().by_node_class, **time_parsing_rules(_parse_time_sql).by_node_class},
    by_function_name=TIME_PRINTER.rules().by_function_name,
)
