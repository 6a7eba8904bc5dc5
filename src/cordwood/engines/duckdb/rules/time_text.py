"""Times as text: FORMAT_TIMESTAMP, PARSE_TIMESTAMP and similar functions, and CAST(… AS STRING).

A time is formatted element by element. A text is parsed by a regular expression, and its groups are put together to a
time.
"""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import WORDS, fail, first_timestamp_in, read_as, wall_clock_in
from cordwood.model.datatype import Kind
from cordwood.sql.datatypes import kind_of
from cordwood.sql.lowering import RuleSet, fragment, is_safe, quoted_constant, text_part
from cordwood.sql.rules.time_text import (
    BOUNDS,
    KIND_BY_CAST,
    EngineFormat,
    FormatPattern,
    Groups,
    ParsingSql,
    TimeText,
    parsing_rules,
)

# In these templates, @a is the wall clock in the zone of the output, and @b the one in UTC. The offset is in minutes.
_OFFSET: Final = "(epoch_us(@a) - epoch_us(@b)) // 60000000"
_SIGNED: Final = f"CASE WHEN {_OFFSET} < 0 THEN '-' ELSE '+' END"
_HOURS: Final = f"printf('%02d', abs({_OFFSET}) // 60)"
_MINUTES: Final = f"printf('%02d', abs({_OFFSET}) % 60)"


_SUBSECOND: Final = (
    "CASE WHEN epoch_us(@a) % 1000000 = 0 THEN '' WHEN epoch_us(@a) % 1000 = 0 THEN strftime(@a, '.%g')"
    " ELSE strftime(@a, '.%f') END"
)


_PARSING: Final = ParsingSql(
    number="CAST({} AS INT)".format,
    conditional=WORDS.conditional,
    date="make_date({}, {}, {})".format,
    days_after="({} + ({})::INT)".format,
    weekday="isodow({})".format,
    monday="CAST(date_trunc('week', {}) AS DATE)".format,
    name_position="list_position([{}], lower(left({}, 3)))".format,
    microseconds="to_microseconds({}::BIGINT * {})".format,
    seconds="to_microseconds(CAST(CAST(left({}, 9) AS DECIMAL(9, 6)) * 1000000 AS BIGINT))".format,
    time_of_day=lambda parts: "(" + " + ".join(parts or ["to_seconds(0)"]) + ")",
)


_BOUNDS: Final = {**BOUNDS, "S": (0, 60)}


def _assemble(node: exp.Expr, format_pattern: FormatPattern, kind: Kind) -> exp.Expr:
    """Return SQL that parses a text as a time.

    If the text does not match, all groups are empty; the result is then an error, or NULL inside SAFE.
    """
    names = ", ".join(
        quoted_constant(name) for name in ("whole", *(f"g{index}" for index in range(format_pattern.groups)))
    )
    pattern = text_part(rf"(?is)^(\s*{format_pattern.pattern}\s*)$")
    groups = {element: f"_p.g{group - 1}" for element, group in format_pattern.last_groups.items()}
    time_sql = _time_from_groups(Groups(groups, _PARSING), kind)
    body = f"try({time_sql})" if is_safe(node) else time_sql
    failure = fail(node, f"Failed to parse input string as {kind}")
    is_no_match = (
        " OR ".join(["_p.whole = ''", *_out_of_range(groups)])
        if format_pattern.groups
        else "NOT regexp_matches({0}, {1})"
    )
    body = f"CASE WHEN _p IS NULL THEN NULL WHEN {is_no_match} THEN {failure} ELSE {body} END"
    template = f"list_transform([regexp_extract({{0}}, {{1}}, [{names}])], lambda _p: {body})[1]"
    wall = fragment(template, read_as(node.this, Kind.STRING), pattern)
    if kind is not Kind.TIMESTAMP or {"z", "Z", "s"} & format_pattern.last_groups.keys():
        return wall
    return first_timestamp_in(wall, node.args.get("zone"))


def _out_of_range(groups: dict[str, str]) -> list[str]:
    """Return the conditions under which the numbers in the groups are out of range."""
    bounds = ((groups[key], *_BOUNDS[key]) for key in groups if key in _BOUNDS)
    return [f"TRY_CAST(split_part({text}, '.', 1) AS INT) NOT BETWEEN {low} AND {high}" for text, low, high in bounds]


def _time_from_groups(groups: Groups, kind: Kind) -> str:
    """Return the template that computes a time of the type `kind` from the groups in `_p`.

    A TIMESTAMP is computed as a wall clock, unless the format has a zone or the seconds since 1970.
    """
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


# The format elements that DuckDB's strftime prints as BigQuery does, and the templates of all other elements.
_LETTERS: Final[Mapping[str, str]] = {letter: letter for letter in "YmdHMSjyabABpIuwVWU%G"}
_PARTS: Final[Mapping[str, str]] = {
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
    "Z": f"('UTC' || CASE WHEN @a = @b THEN '' ELSE {_SIGNED} || (abs({_OFFSET}) // 60)"
    f" || CASE WHEN {_OFFSET} % 60 = 0 THEN '' ELSE ':' || {_MINUTES} END END)",
    "z": f"({_SIGNED} || {_HOURS} || {_MINUTES})",
    "Ez": f"({_SIGNED} || {_HOURS} || ':' || {_MINUTES})",
    "E4Y": "(printf('%04d', year(@a)))",
    "E*S": "(strftime(@a, '%S') || CASE WHEN epoch_us(@a) % 1000000 = 0 THEN ''"
    " ELSE '.' || rtrim(printf('%06d', ((epoch_us(@a) % 1000000) + 1000000) % 1000000), '0') END)",
    "J": "(printf('%03d', (date_diff('day', date_trunc('week', make_date(isoyear(@a), 1, 4)), @a)) + 1))",
}


class _TimeTextSql:
    letters, parts = _LETTERS, _PARTS
    offset, sign, hours, minutes, subsecond = _OFFSET, _SIGNED, _HOURS, _MINUTES, _SUBSECOND
    formatted = "strftime({}, {})"
    clock, day_and_clock, iso_clock = "%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"
    padded, first_letter = "rpad({}, 9, ' ')", "left({}, 1)"
    wall_clock_in = staticmethod(wall_clock_in)

    def written(self, node: exp.Expr) -> tuple[exp.Expr, Kind]:
        wrapped = node.this
        value = wrapped.this if type(wrapped) in KIND_BY_CAST else wrapped
        kind = KIND_BY_CAST.get(type(wrapped), kind_of(value) or Kind.TIMESTAMP)
        return value, Kind.DATETIME if kind is Kind.DATE and kind_of(value) is Kind.DATETIME else kind

    def day_of(self, value: exp.Expr) -> exp.Expr:
        return fragment("('1970-01-01'::DATE + {0})", value)

    def seconds(self, digits: int) -> EngineFormat | str:
        if digits == 0 or digits > 6:
            return EngineFormat("%S" if digits == 0 else f"%S.%f{'0' * (digits - 6)}")
        fraction = f"((epoch_us(@a) % 1000000 + 1000000) % 1000000) // {10 ** (6 - digits)}"
        return f"(strftime(@a, '%S') || printf('.%0{digits}d', {fraction}))"

    def fraction(self, digits: int) -> str:
        return f"(printf('%0{digits}d', (epoch_us(@a) % 1000000) // {10 ** (6 - digits)}))"


TIME_TEXT: Final = TimeText(WORDS, _TimeTextSql())

RULES = RuleSet(nodes={**TIME_TEXT.rules().nodes, **parsing_rules(_assemble).nodes}, by_name=TIME_TEXT.rules().by_name)
