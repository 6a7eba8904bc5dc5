"""Times: adding, cutting, counting between, taking parts, making and converting them."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.reading import clock, read_as
from cordwood.engines.duckdb.rules.words import attempt, constant_int, instant, naive
from cordwood.engines.duckdb.rules.zones import moment_in, wall_in
from cordwood.model.datatype import Kind
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning, Rule, unsupported
from cordwood.sql.typing import inherit, kind_of, typed_as
from cordwood.sql.typing.datatypes import INTERVAL

MICROSECONDS: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}
_MAKERS: Final = {
    "MICROSECOND": "to_microseconds({0})",
    "MILLISECOND": "to_milliseconds({0})",
    "SECOND": "to_seconds({0})",
    "MINUTE": "to_minutes({0})",
    "HOUR": "to_hours({0})",
    "DAY": "to_days({0}::INT)",
    "WEEK": "to_weeks({0}::INT)",
    "MONTH": "to_months({0}::INT)",
    "QUARTER": "to_quarters({0}::INT)",
    "YEAR": "to_years({0}::INT)",
}


def unit_of(node: exp.Expr | None, fallback: str = "DAY") -> str:
    if isinstance(node, exp.WeekStart):
        return f"WEEK({node.this.name.upper()})"
    return node.name.upper() if node is not None else fallback


def span(count: exp.Expr, unit: str, node: exp.Expr) -> exp.Expr:
    """An INTERVAL of so many units."""
    if unit not in _MAKERS:
        unsupported(node, f"The unit {unit}")
    return typed_as(fragment(_MAKERS[unit], _as_count(count)), INTERVAL)


def _as_count(count: exp.Expr) -> exp.Expr:
    """sqlglot hands the number of an INTERVAL over as text."""
    if isinstance(count, exp.Literal) and count.is_string:
        return exp.Literal.number(count.this)
    return read_as(count, Kind.INT64)


def _shift(sign: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        kind = kind_of(node) or Kind.TIMESTAMP
        if isinstance(node.expression, exp.Interval):
            unsupported(node, "An interval of several units")
        return shifted(node, node.this, sign, node.expression, unit_of(node.args.get("unit")), kind)

    return rule


def shifted(node: exp.Expr, value: exp.Expr, sign: str, count: exp.Expr, unit: str, kind: Kind) -> exp.Expr:
    value = read_as(value, kind)
    if kind is Kind.TIMESTAMP and unit in MICROSECONDS:
        # Whole microseconds on the number line: the engine's zone-aware addition is slower by far.
        template = f"make_timestamptz(epoch_us(@a) {sign} @b * {MICROSECONDS[unit]}::BIGINT)"
        return attempt(node, template, value, _as_count(count))
    if kind is Kind.DATE and unit in ("DAY", "WEEK"):
        days = "@b * 7" if unit == "WEEK" else "@b"
        return attempt(node, f"@a {sign} CAST({days} AS INT)", value, _as_count(count))
    moved = attempt(node, f"@a {sign} @b", clock(value) if kind is Kind.TIMESTAMP else value, span(count, unit, node))
    if kind is Kind.DATE:
        return fragment("{0}::DATE", moved)
    return instant(moved) if kind is Kind.TIMESTAMP else moved


_WEEKDAYS: Final = ("MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY")


def week_start(unit: str) -> int | None:
    """How many days after Monday a week of this unit begins; None when it is no week."""
    if unit in ("ISOWEEK", "WEEK(MONDAY)"):
        return 0
    if unit == "WEEK":
        return 6
    return _WEEKDAYS.index(unit[5:-1]) if unit.startswith("WEEK(") and unit[5:-1] in _WEEKDAYS else None


def cut(unit: str, node: exp.Expr) -> str:
    """Template that cuts the wall clock @a to the unit."""
    begin = week_start(unit)
    if begin is not None:
        return f"date_trunc('week', @a - to_days({begin})) + to_days({begin})" if begin else "date_trunc('week', @a)"
    if unit == "ISOYEAR":
        return "date_trunc('week', make_date(isoyear(@a), 1, 4)::TIMESTAMP)"
    if unit not in _CUTS:
        unsupported(node, f"The unit {unit}")
    return f"date_trunc('{unit.lower()}', @a)"


_CUTS: Final = frozenset((*MICROSECONDS, "MONTH", "QUARTER", "YEAR"))


def _truncate(node: exp.Expr) -> exp.Expr:
    kind = kind_of(node) or Kind.TIMESTAMP
    unit, zone = unit_of(node.args.get("unit")), node.args.get("zone")
    value = read_as(node.this, kind)
    if kind is Kind.TIME:
        return _cut_time(value, unit, node)
    if zone is not None and kind is Kind.TIMESTAMP:
        local = attempt(node, cut(unit, node), wall_in(value, zone))
        return moment_in(local, zone)
    moment = attempt(node, cut(unit, node), clock(value))
    return _back(moment, kind)


def _back(moment: exp.Expr, kind: Kind) -> exp.Expr:
    if kind is Kind.DATE:
        return fragment("{0}::DATE", moment)
    return instant(moment) if kind is Kind.TIMESTAMP else moment


def _cut_time(value: exp.Expr, unit: str, node: exp.Expr) -> exp.Expr:
    if unit not in MICROSECONDS:
        unsupported(node, f"The unit {unit}")
    return fragment(f"date_trunc('{unit.lower()}', '1970-01-01'::DATE + {{0}})::TIME", value)


def _last_day(node: exp.Expr) -> exp.Expr:
    unit = unit_of(node.args.get("unit"), "MONTH")
    begin = week_start(unit)
    day = clock(node.this if kind_of(node.this) is not Kind.STRING else read_as(node.this, Kind.DATE))
    step = "to_days(7)" if begin is not None else _YEARLY.get(unit)
    if step is None:
        unsupported(node, f"The unit {unit}")
    if unit == "ISOYEAR":
        return attempt(node, "CAST(date_trunc('week', make_date(isoyear(@a) + 1, 1, 4)) - to_days(1) AS DATE)", day)
    return attempt(node, f"CAST({cut(unit, node)} + {step} - to_days(1) AS DATE)", day)


_YEARLY: Final = {"MONTH": "to_months(1)", "QUARTER": "to_months(3)", "YEAR": "to_years(1)", "ISOYEAR": ""}


def _timestamp_difference(node: exp.Expr) -> exp.Expr:
    """Whole units that fit between two moments."""
    unit = unit_of(node.args.get("unit"))
    if unit not in MICROSECONDS:
        return _difference(node)
    later, earlier = read_as(node.this, Kind.TIMESTAMP), read_as(node.expression, Kind.TIMESTAMP)
    size = MICROSECONDS[unit]
    template = "epoch_us({0}) - epoch_us({1})"
    return fragment(template if size == 1 else f"({template}) // {size}", later, earlier)


def _difference(node: exp.Expr) -> exp.Expr:
    """Boundaries of the unit that lie between two wall clocks."""
    unit = unit_of(node.args.get("unit"))
    later, earlier = (_clock_of(part, node) for part in (node.this, node.expression))
    begin = week_start(unit)
    if begin is not None:
        template = cut(unit, node).replace("@a", "{0}"), cut(unit, node).replace("@a", "{1}")
        return fragment(f"date_diff('day', {template[1]}, {template[0]}) // 7", later, earlier)
    if unit == "ISOYEAR":
        return fragment("isoyear({0}) - isoyear({1})", later, earlier)
    if unit not in _CUTS:
        unsupported(node, f"The unit {unit}")
    return fragment(f"date_diff('{unit.lower()}', {{1}}, {{0}})", later, earlier)


def _clock_of(value: exp.Expr, node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.TimeDiff):
        return fragment("('1970-01-01'::DATE + {0})", read_as(value, Kind.TIME))
    if kind_of(value) is Kind.STRING:
        value = read_as(value, Kind.DATE if isinstance(node, exp.DateDiff) else Kind.DATETIME)
    return clock(value)


_PARTS: Final = {
    "DAYOFWEEK": "dayofweek({0}) + 1",
    "DAYOFYEAR": "dayofyear({0})",
    "ISOWEEK": "weekofyear({0})",
    "ISOYEAR": "isoyear({0})",
    "WEEK": "CAST(strftime({0}, '%U') AS BIGINT)",
    "WEEK(SUNDAY)": "CAST(strftime({0}, '%U') AS BIGINT)",
    "WEEK(MONDAY)": "CAST(strftime({0}, '%W') AS BIGINT)",
    "MILLISECOND": "millisecond({0}) % 1000",
    "MICROSECOND": "microsecond({0}) % 1000000",
    "DATE": "{0}::DATE",
    "TIME": "{0}::TIME",
    "DATETIME": "{0}",
    **{part: part.lower() + "({0})" for part in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")},
}


def _extract(node: exp.Expr) -> exp.Expr:
    part, value = _part_name(node.this), node.expression
    if kind_of(value) is Kind.INTERVAL:
        return fragment(_PARTS.get(part, f"date_part('{part.lower()}', {{0}})"), value)
    if isinstance(value, exp.AtTimeZone):
        moment = read_as(value.this, Kind.TIMESTAMP)
        value = wall_in(moment, value.args["zone"])
    elif kind_of(value) is Kind.TIME:
        value = fragment("('1970-01-01'::DATE + {0})", value)
    else:
        value = clock(value)
    begin = week_start(part)
    if part not in _PARTS and begin is not None:
        return fragment(f"(dayofyear({{0}}) + 6 - (isodow({{0}}) - 1 - {begin} + 7) % 7) // 7", value)
    if part not in _PARTS:
        unsupported(node, f"The part {part}")
    return fragment(_PARTS[part], value)


def _part_name(node: exp.Expr) -> str:
    return unit_of(node) if isinstance(node, exp.WeekStart) else node.sql("bigquery").upper().replace(" ", "")


def _interval(node: exp.Expr) -> exp.Expr:
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return _interval_of_parts(node, unit)
    if unit is None:
        return fragment("{0}::INTERVAL", node.this)
    return span(node.this, unit_of(unit), node)


_ORDER: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def _interval_of_parts(node: exp.Expr, unit: exp.Expr) -> exp.Expr:
    """`'1-2 3' YEAR TO DAY`: the numbers in order, each with its unit."""
    first, last = (_ORDER.index(unit_of(unit.args[key])) for key in ("this", "expression"))
    spelled = str(node.this.name)
    numbers = _numbers(spelled)
    if len(numbers) != last - first + 1:
        unsupported(node, f"The interval '{spelled}'")
    pieces = [f"INTERVAL '{value}' {_ORDER[first + at]}" for at, value in enumerate(numbers)]
    return fragment(" + ".join(pieces))


def _numbers(spelled: str) -> list[str]:
    """A sign belongs to the numbers of its group: years and months, days, or the clock."""
    numbers: list[str] = []
    for group in spelled.split():
        negative, digits = group.startswith("-"), group.lstrip("+-")
        numbers += [f"-{number}" if negative else number for number in digits.replace("-", ":").split(":")]
    return numbers


def _make_interval(node: exp.Expr) -> exp.Expr:
    parts = [(key.upper(), value) for key, value in node.args.items() if isinstance(value, exp.Expr)]
    spans = [span(value.expression if isinstance(value, exp.Kwarg) else value, unit, node) for unit, value in parts]
    template = " + ".join(f"{{{at}}}" for at in range(len(spans)))
    return fragment(template or "INTERVAL 0 DAY", *spans)


def _sum(node: exp.Expr) -> exp.Expr:
    """`+` and `-` where one side is a time or an interval."""
    left, right = node.this, node.expression
    sign = "-" if isinstance(node, exp.Sub) else "+"
    kinds = (kind_of(left), kind_of(right))
    if kinds[0] is Kind.DATE and kinds[1] is Kind.INT64:
        return fragment(f"{{0}} {sign} {{1}}::INT", left, right)
    if kinds[0] is Kind.INT64 and kinds[1] is Kind.DATE:
        return fragment("{1} + {0}::INT", left, right)
    if kinds[0] == kinds[1] and kinds[0] in _MOMENTS and sign == "-":
        return _gap(left, right, kinds[0])
    if Kind.INTERVAL in kinds:
        moved = fragment(f"{{0}} {sign} {{1}}", *(_movable(side) for side in (left, right)))
        return instant(moved) if Kind.TIMESTAMP in kinds else moved
    left, right = (read_as(side, Kind.FLOAT64) if kind_of(side) is Kind.VARIANT else side for side in (left, right))
    return type(node)(this=left, expression=right)


def _gap(left: exp.Expr, right: exp.Expr, kind: Kind | None) -> exp.Expr:
    if kind is Kind.DATE:
        return fragment("to_days(CAST({0} - {1} AS INT))", left, right)
    return fragment("to_microseconds(epoch_us({0}) - epoch_us({1}))", left, right)


_MOMENTS: Final = (Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME)


def _movable(side: exp.Expr) -> exp.Expr:
    return naive(side) if kind_of(side) is Kind.TIMESTAMP else side


def _timestamp(node: exp.Expr) -> exp.Expr:
    """TIMESTAMP(x[, zone]): a text or a wall clock, in the zone when it names none of its own."""
    value, zone = node.this, node.args.get("zone")
    if zone is None:
        return read_as(value, Kind.TIMESTAMP)
    if kind_of(value) is Kind.STRING:
        return _text_in_zone(node, value, zone)
    return moment_in(clock(value), zone)


def _text_in_zone(node: exp.Expr, value: exp.Expr, zone: exp.Expr) -> exp.Expr:
    """The zone counts where the text names none."""
    wall = attempt(node, "CAST(@a AS TIMESTAMP)", value.copy())
    own = attempt(node, "CAST(@a AS TIMESTAMPTZ)", value.copy())
    names_zone = r"regexp_matches({0}, '\d.*([zZ]|[+-]\d{1,2}(:?\d\d)?|[A-Za-z]{3,}(/[A-Za-z_]+)*)\s*$')"
    template = names_zone.replace("\\d.*", "\\d:\\d.*")
    return fragment(f"CASE WHEN {template} THEN {{1}} ELSE {{2}} END", value, own, moment_in(wall, zone))


def _datetime(node: exp.Expr) -> exp.Expr:
    """DATETIME(date, time), or a moment's wall clock in a zone."""
    value, other = node.this, node.args.get("expression")
    if isinstance(node, exp.TsOrDsToDatetime) or other is None:
        return read_as(value, Kind.DATETIME)
    if kind_of(other) is Kind.TIME:
        return fragment("({0} + {1})", read_as(value, Kind.DATE), other)
    return wall_in(read_as(value, Kind.TIMESTAMP), other)


def _date(node: exp.Expr) -> exp.Expr:
    value, zone = node.this, node.args.get("zone")
    if node.args.get("expressions"):
        unsupported(node, "DATE with these arguments")
    if zone is None:
        return read_as(value, Kind.DATE)
    return fragment("{0}::DATE", wall_in(read_as(value, Kind.TIMESTAMP), zone))


def _time(node: exp.Expr) -> exp.Expr:
    value, zone = node.this, node.args.get("zone")
    if zone is not None:
        return fragment("{0}::TIME", wall_in(read_as(value, Kind.TIMESTAMP), zone))
    return read_as(value, Kind.TIME) if kind_of(value) is Kind.STRING else fragment("{0}::TIME", clock(value))


def _date_of_parts(node: exp.Expr) -> exp.Expr:
    parts = [node.args[key] for key in ("year", "month", "day")]
    return attempt(node, "make_date(@a, @b, @c)", *parts)


def _datetime_of_parts(node: exp.Expr) -> exp.Expr:
    keys = ("year", "month", "day", "hour", "min", "sec")
    if not all(node.args.get(key) for key in keys):
        unsupported(node, "DATETIME with these arguments")
    return attempt(node, "make_timestamp(@a, @b, @c, @d, @e, @f::DOUBLE)", *(node.args[key] for key in keys))


def _time_of_parts(node: exp.Expr) -> exp.Expr:
    parts = [node.args[key] for key in ("hour", "min", "sec")]
    return attempt(node, "make_time(@a, @b, @c::DOUBLE)", *parts)


def _from_epoch(node: exp.Expr) -> exp.Expr:
    scale = node.args.get("scale")
    digits = constant_int(scale) or 0
    factor = 10 ** (6 - digits)
    count = read_as(node.this, Kind.INT64)
    return attempt(node, "make_timestamptz(@a)" if factor == 1 else f"make_timestamptz(@a * {factor})", count)


def _to_epoch(size: int) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        value = read_as(node.this, Kind.TIMESTAMP)
        if size == 1:
            return fragment("epoch_us({0})", value)
        # Whole units before the moment, also before 1970.
        return fragment(f"CAST(floor(epoch_us({{0}}) / {size}) AS BIGINT)", value)

    return rule


def _to_days(node: exp.Expr) -> exp.Expr:
    return fragment("CAST({0} - '1970-01-01'::DATE AS BIGINT)", read_as(node.this, Kind.DATE))


def _from_days(node: exp.Expr) -> exp.Expr:
    return fragment("('1970-01-01'::DATE + {0}::INT)", node.this)


def _current(template: str, zoned: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        zone = node.this if isinstance(node.this, exp.Expr) else node.args.get("zone")
        return fragment(zoned, zone) if zone is not None else fragment(template)

    return rule


_NOW: Final = "make_timestamp(epoch_us(now()))"


def _bucket(node: exp.Expr) -> exp.Expr:
    """Times cut to a grid of any width, laid from an origin."""
    kind = {"TIMESTAMP_BUCKET": Kind.TIMESTAMP, "DATETIME_BUCKET": Kind.DATETIME}.get(str(node.this).upper(), Kind.DATE)
    value, width, *rest = node.expressions
    origin = clock(read_as(rest[0], kind)) if rest else fragment("TIMESTAMP '1950-01-01'")
    moment = fragment("time_bucket({1}, {0}, {2})", clock(read_as(value, kind)), width, origin)
    return _back(inherit(moment, node), kind)


def _dates(node: exp.Expr) -> exp.Expr:
    step = node.args.get("step") or fragment("to_days(1)")
    start, end = (clock(read_as(node.args[key], Kind.DATE)) for key in ("start", "end"))
    return fragment("list_transform(generate_series({0}, {1}, {2}), lambda _d: _d::DATE)", start, end, step)


def _timestamps(node: exp.Expr) -> exp.Expr:
    start, end = (naive(read_as(node.args[key], Kind.TIMESTAMP)) for key in ("start", "end"))
    template = "list_transform(generate_series({0}, {1}, {2}), lambda _d: make_timestamptz(epoch_us(_d)))"
    return fragment(template, start, end, node.args["step"])


MEANING = Meaning(
    nodes={
        **dict.fromkeys((exp.TimestampAdd, exp.DatetimeAdd, exp.DateAdd, exp.TimeAdd), _shift("+")),
        **dict.fromkeys((exp.TimestampSub, exp.DatetimeSub, exp.DateSub, exp.TimeSub), _shift("-")),
        **dict.fromkeys((exp.TimestampTrunc, exp.DatetimeTrunc, exp.DateTrunc, exp.TimeTrunc), _truncate),
        **dict.fromkeys((exp.DateDiff, exp.DatetimeDiff, exp.TimeDiff), _difference),
        exp.TimestampDiff: _timestamp_difference,
        exp.LastDay: _last_day,
        exp.Extract: _extract,
        exp.Interval: _interval,
        exp.MakeInterval: _make_interval,
        **dict.fromkeys((exp.Add, exp.Sub), _sum),
        exp.Timestamp: _timestamp,
        **dict.fromkeys((exp.Datetime, exp.TsOrDsToDatetime), _datetime),
        exp.Date: _date,
        **dict.fromkeys((exp.Time, exp.TsOrDsToTime), _time),
        exp.DateFromParts: _date_of_parts,
        exp.TimestampFromParts: _datetime_of_parts,
        exp.TimeFromParts: _time_of_parts,
        exp.UnixToTime: _from_epoch,
        exp.UnixSeconds: _to_epoch(1_000_000),
        exp.UnixMillis: _to_epoch(1_000),
        exp.UnixMicros: _to_epoch(1),
        exp.UnixDate: _to_days,
        exp.DateFromUnixDate: _from_days,
        exp.CurrentTimestamp: _current("now()", "now()"),
        exp.CurrentDate: _current(f"{_NOW}::DATE", "timezone({0}, now())::DATE"),
        exp.CurrentDatetime: _current(_NOW, "timezone({0}, now())"),
        exp.CurrentTime: _current(f"{_NOW}::TIME", "timezone({0}, now())::TIME"),
        exp.GenerateDateArray: _dates,
        exp.GenerateTimestampArray: _timestamps,
    },
    named={"TIMESTAMP_BUCKET": _bucket, "DATETIME_BUCKET": _bucket, "DATE_BUCKET": _bucket},
)
