"""Times as text: FORMAT_TIMESTAMP, PARSE_TIMESTAMP and similar functions, and CAST(… AS STRING).

A time is formatted element by element; a text is parsed by a regular expression whose groups are assembled to a time.
"""

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import WORDS, cast, first_timestamp_in, read_as, wall_clock_in
from cordwood.model.datatype import Kind
from cordwood.sql.datatypes import kind_of
from cordwood.sql.lowering import RAISED, RuleSet, fragment, is_safe, quoted_constant, text_part
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

# @a is the wall clock to print, @b the same time in UTC.
_MICROS: Final = "toUnixTimestamp64Micro(@a)"
_OFFSET: Final = "intDiv(toUnixTimestamp64Micro(@a) - toUnixTimestamp64Micro(@b), 60000000)"
_SIGNED: Final = f"if({_OFFSET} < 0, '-', '+')"
_FRACTION: Final = f"positiveModulo({_MICROS}, 1000000)"


def _zero_padded(number: str, digits: int, fill: str = "0") -> str:
    return f"leftPad(toString({number}), {digits}, '{fill}')"


_HOURS: Final = _zero_padded(f"intDiv(abs({_OFFSET}), 60)", 2)
_MINUTES: Final = _zero_padded(f"abs({_OFFSET}) % 60", 2)

# The elements that ClickHouse's formatDateTime prints as BigQuery does, with ClickHouse's letters.
_FORMAT_LETTERS: Final[Mapping[str, str]] = {
    **{letter: letter for letter in "YmdHSjyabpIuwVGFTRD"},
    "A": "W",
    "B": "M",
    "M": "i",
    "h": "b",
    "X": "T",
    "x": "D",
}

_SUNDAYS: Final = _zero_padded("intDiv(toDayOfYear(@a) + 6 - toDayOfWeek(@a) % 7, 7)", 2)
_MONDAYS: Final = _zero_padded("intDiv(toDayOfYear(@a) + 6 - (toDayOfWeek(@a) + 6) % 7, 7)", 2)

_PARTS: Final[Mapping[str, str]] = {
    "C": _zero_padded("intDiv(toYear(@a), 100)", 2),
    "c": f"concat(formatDateTime(@a, '%a %b '), {_zero_padded('toDayOfMonth(@a)', 2, ' ')}, formatDateTime(@a, ' %T %Y'))",
    "e": _zero_padded("toDayOfMonth(@a)", 2, " "),
    "g": _zero_padded("toISOYear(toDate32(@a)) % 100", 2),
    "k": _zero_padded("toHour(@a)", 2, " "),
    "l": _zero_padded("(toHour(@a) + 11) % 12 + 1", 2, " "),
    "n": "'\\n'",
    "P": "lower(formatDateTime(@a, '%p'))",
    "Q": "toString(toQuarter(@a))",
    "r": "formatDateTime(@a, '%I:%i:%S %p')",
    "s": f"toString(intDiv(toUnixTimestamp64Micro(@b) - positiveModulo({_MICROS}, 1000000), 1000000))",
    "t": "'\\t'",
    "U": _SUNDAYS,
    "W": _MONDAYS,
    "Z": f"concat('UTC', if(@a = @b, '', concat({_SIGNED}, toString(intDiv(abs({_OFFSET}), 60)),"
    f" if({_OFFSET} % 60 = 0, '', concat(':', {_MINUTES})))))",
    "z": f"concat({_SIGNED}, {_HOURS}, {_MINUTES})",
    "Ez": f"concat({_SIGNED}, {_HOURS}, ':', {_MINUTES})",
    "E4Y": _zero_padded("toYear(@a)", 4),
    "E*S": f"concat(formatDateTime(@a, '%S'), if({_FRACTION} = 0, '',"
    f" concat('.', replaceRegexpOne({_zero_padded(_FRACTION, 6)}, '0+$', ''))))",
    "J": _zero_padded("dateDiff('day', toStartOfISOYear(toDate32(@a)), toDate32(@a)) + 1", 3),
}


def _unwrap(node: exp.Expr) -> exp.Expr:
    """Record the type of the time to print, which only sqlglot's wrapper node reveals, before that node is lowered."""
    kind = KIND_BY_CAST.get(type(node.this))
    if kind is not None:
        argument_kind = kind_of(node.this.this)
        node.meta["written_as"] = (
            argument_kind if kind is Kind.DATE and argument_kind in (Kind.DATETIME, Kind.TIMESTAMP) else kind
        )
        if kind_of(node.this.this) is not Kind.STRING:
            node.set("this", node.this.this)
    return node


_SUBSECOND: Final = (
    f"multiIf({_FRACTION} = 0, '', {_FRACTION} % 1000 = 0,"
    f" concat('.', {_zero_padded(f'intDiv({_FRACTION}, 1000)', 3)}), concat('.', {_zero_padded(_FRACTION, 6)}))"
)


_PARSING: Final = ParsingSql(
    number="toInt64OrZero({})".format,
    conditional=WORDS.conditional,
    date="makeDate32({}, {}, {})".format,
    days_after="addDays({}, {})".format,
    weekday="toDayOfWeek({})".format,
    monday="toMonday({})".format,
    name_position="toInt64(indexOf([{}], lower(substring({}, 1, 3))))".format,
    microseconds="{} * {}".format,
    seconds="toInt64(toDecimal64(substring({}, 1, 9), 6) * 1000000)".format,
    # The microseconds since midnight.
    time_of_day=lambda parts: f"toInt64({' + '.join(parts) or '0'})",
)


_BOUNDS: Final = {**BOUNDS, "V": (1, 53)}


def _assemble(node: exp.Expr, format_pattern: FormatPattern, kind: Kind) -> exp.Expr:
    """Return the parsed time; the array of groups is empty if the text does not match, which is an error or NULL."""
    value = read_as(node.this, Kind.STRING)
    pattern = text_part(rf"(?is)^(\s*{format_pattern.pattern}\s*)$")
    # The first group is the whole match.
    groups = Groups({element: f"_p[{group + 1}]" for element, group in format_pattern.last_groups.items()}, _PARSING)
    moment, is_invalid = _moment(groups, kind), " OR ".join(["empty(_p)", *_out_of_range(groups)])
    if is_safe(node):
        body = f"if({is_invalid}, NULL, {moment})"
    else:
        message = quoted_constant(f"{RAISED}Failed to parse input string as {kind}")
        body = f"if(throwIf({is_invalid}, {message}) = 1, NULL, {moment})"
    parsed = f"arrayMap(_p -> {body}, [extractGroups(ifNull({{0}}, ''), {{1}})])[1]"
    wall = fragment(f"if(isNull({{0}}), NULL, {parsed})", value, pattern)
    if kind is not Kind.TIMESTAMP or {"z", "s"} & format_pattern.last_groups.keys():
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


class _TimeTextSql:
    letters, parts = _FORMAT_LETTERS, _PARTS
    offset, sign, hours, minutes, subsecond = _OFFSET, _SIGNED, _HOURS, _MINUTES, _SUBSECOND
    formatted = "formatDateTime({}, {})"
    clock, day_and_clock, iso_clock = "%T", "%F %T", "%FT%T"
    padded, first_letter = "rightPad({}, 9, ' ')", "substring({}, 1, 1)"
    wall_clock_in = staticmethod(wall_clock_in)

    def written(self, node: exp.Expr) -> tuple[exp.Expr, Kind]:
        return node.this, node.meta_get("written_as") or kind_of(node.this) or Kind.TIMESTAMP

    def day_of(self, value: exp.Expr) -> exp.Expr:
        return cast(value, Kind.DATETIME)

    def seconds(self, digits: int) -> EngineFormat | str:
        if digits == 0:
            return EngineFormat("%S")
        micros = _zero_padded(_FRACTION, 6)
        part = f"substring({micros}, 1, {digits})" if digits <= 6 else f"concat({micros}, '{'0' * (digits - 6)}')"
        return f"concat(formatDateTime(@a, '%S'), '.', {part})"

    def fraction(self, digits: int) -> str:
        return f"substring({_zero_padded(_FRACTION, 6)}, 1, {digits})"


TIME_TEXT: Final = TimeText(WORDS, _TimeTextSql())

RULES = RuleSet(
    nodes={
        **TIME_TEXT.rules().nodes,
        # Without %Z: ClickHouse supports a zone by name only if it is the same for all rows.
        **parsing_rules(_assemble, unsupported_elements=frozenset({"Z"})).nodes,
    },
    by_name=TIME_TEXT.rules().by_name,
    before_children={exp.TimeToStr: _unwrap},
)
