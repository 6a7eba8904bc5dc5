"""PARSE_TIMESTAMP and its like: the format becomes a regular expression whose groups are put together."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.reading import read_as
from cordwood.engines.clickhouse.rules.zones import moment_in
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.time_patterns import DAYS, MONTHS, Reading, read_by
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment, own_text, text_part
from cordwood.sql.lowering import RAISED, Meaning, Rule, is_safe, mark_safe, unsupported


def _parse(kind: Kind) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        if node.args.get("safe"):
            mark_safe(node)
        if isinstance(node.args["format"], exp.Null) or isinstance(node.this, exp.Null):
            return exp.Null()
        reading = read_by(_shape(node, kind))
        if reading.unknown is not None or "Z" in reading.last:
            if reading.unknown is not None and is_safe(node):
                return exp.Null()
            # The engine knows zones by name alone where the name is the same for all rows.
            unsupported(node, f"The format element %{reading.unknown or 'Z'}")
        foreign = reading.foreign(kind)
        if foreign is not None:
            unsupported(node, f"The element %{foreign} for {kind}")
        return _assembled(node, reading, kind)

    return rule


def _shape(node: exp.Expr, kind: Kind) -> str:
    if kind is Kind.TIMESTAMP and node.meta_get("bigquery_name") is None:
        unsupported(node, "CAST to a time with a format")  # the parser does not keep which kind of time
    shape = constant_text(node.args["format"])
    return shape if shape is not None else unsupported(node, "A format that is no literal")


def _assembled(node: exp.Expr, reading: Reading, kind: Kind) -> exp.Expr:
    """The groups are an array; empty when the text does not match, NULL then or an error."""
    value = read_as(node.this, Kind.STRING)
    pattern = text_part(rf"(?is)^(\s*{reading.pattern}\s*)$")
    # The first group is the whole.
    found = {element: f"_p[{group + 1}]" for element, group in reading.last.items()}
    moment, wrong = _moment(found, kind), " OR ".join(["empty(_p)", *_wrongs(found)])
    if is_safe(node):
        body = f"if({wrong}, NULL, {moment})"
    else:
        message = own_text(f"{RAISED}Failed to parse input string as {kind}")
        body = f"if(throwIf({wrong}, {message}) = 1, NULL, {moment})"
    groups = f"arrayMap(_p -> {body}, [extractGroups(ifNull({{0}}, ''), {{1}})])[1]"
    wall = fragment(f"if(isNull({{0}}), NULL, {groups})", value, pattern)
    if kind is not Kind.TIMESTAMP or {"z", "s"} & reading.last.keys():
        return wall
    return moment_in(wall, node.args.get("zone"))


_BOUNDS: Final = {"m": (1, 12), "d": (1, 31), "H": (0, 23), "I": (1, 12), "M": (0, 59), "j": (1, 366), "V": (1, 53)}


def _wrongs(found: dict[str, str]) -> list[str]:
    """What makes numbers no time: each out of its range, or a day the month does not have."""
    wrongs = [
        f"toInt64OrZero({found[key]}) NOT BETWEEN {low} AND {high}"
        for key, (low, high) in _BOUNDS.items()
        if key in found
    ]
    if "S" in found:
        wrongs.append(f"toFloat64OrZero({found['S']}) >= 61")
    if "d" in found and "j" not in found and "G" not in found:
        wrongs.append(f"toDayOfMonth({_date(found)}) != toInt64OrZero({found['d']})")
    return wrongs


def _moment(found: dict[str, str], kind: Kind) -> str:
    """Template over the groups `_p`: the wall clock, or with a zone or an epoch the TIMESTAMP itself."""
    if "s" in found:
        zone = ", 'UTC'" if kind is Kind.TIMESTAMP else ""
        return f"fromUnixTimestamp64Micro(toInt64OrZero({found['s']}) * 1000000{zone})"
    if kind is Kind.DATE:
        return _date(found)
    if kind is Kind.TIME:
        return f"CAST(fromUnixTimestamp64Micro({_time(found)}), 'Time64(6)')"
    wall = f"fromUnixTimestamp64Micro(toInt64({_date(found)}) * 86400000000 + {_time(found)})"
    return _zoned(wall, found) if kind is Kind.TIMESTAMP else wall


def _zoned(wall: str, found: dict[str, str]) -> str:
    if "z" not in found:
        return wall
    offset = found["z"]
    digits = f"replaceRegexpAll({offset}, '[^0-9]', '')"
    even = f"if(length({digits}) % 2 = 1, concat('0', {digits}), {digits})"
    total = f"(toInt64OrZero(substring({even}, 1, 2)) * 60 + toInt64OrZero(substring({even}, 3))) * 60000000"
    shift = f"if(startsWith({offset}, '-'), -1, 1) * {total}"
    return f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({wall}) - {shift}, 'UTC')"


def _time(found: dict[str, str]) -> str:
    """Microseconds since midnight."""
    pieces = [piece for piece in (_hour(found), _minute(found), _second(found)) if piece]
    return "toInt64(" + (" + ".join(pieces) or "0") + ")"


def _hour(found: dict[str, str]) -> str:
    if "H" in found:
        return f"toInt64OrZero({found['H']}) * 3600000000"
    if "I" not in found:
        return ""
    afternoon = f" + if(lower({found['p']}) = 'pm', 12, 0)" if "p" in found else ""
    return f"(toInt64OrZero({found['I']}) % 12{afternoon}) * 3600000000"


def _minute(found: dict[str, str]) -> str:
    return f"toInt64OrZero({found['M']}) * 60000000" if "M" in found else ""


def _second(found: dict[str, str]) -> str:
    return f"toInt64(toDecimal64(substring({found['S']}, 1, 9), 6) * 1000000)" if "S" in found else ""


def _year(found: dict[str, str]) -> str:
    short = f"toInt64OrZero({found['y']})" if "y" in found else ""
    if "Y" in found:
        return f"toInt64OrZero({found['Y']})"
    if "C" in found:
        return f"(toInt64OrZero({found['C']}) * 100{' + ' + short if short else ''})"
    return f"({short} + if({short} < 69, 2000, 1900))" if short else "1970"


def _month(found: dict[str, str]) -> str:
    order = list(found)
    named = [key for key in ("m", "b", "Q") if key in found]
    if not named:
        return "1"
    last = max(named, key=order.index)
    if last == "b":
        names = ", ".join(own_text(month[:3]) for month in MONTHS)
        return f"indexOf([{names}], lower(substring({found['b']}, 1, 3)))"
    if last == "Q":
        return f"(toInt64OrZero({found['Q']}) * 3 - 2)"
    return f"toInt64OrZero({found['m']})"


def _date(found: dict[str, str]) -> str:
    if "G" in found:
        return _iso_week(found)
    if ("U" in found or "W" in found) and ("Y" in found or "y" in found):
        return _week(found)
    if "j" in found:
        return f"addDays(makeDate32({_year(found)}, 1, 1), toInt64OrZero({found['j']}) - 1)"
    day = f"toInt64OrZero({found['d']})" if "d" in found else "1"
    return f"makeDate32({_year(found)}, {_month(found)}, {day})"


def _weekday(found: dict[str, str], first: int) -> str:
    """Days after Monday; the week's first day where none is told."""
    if "u" in found:
        return f"(toInt64OrZero({found['u']}) - 1)"
    if "w" in found:
        return f"((toInt64OrZero({found['w']}) + 6) % 7)"
    if "a" in found:
        names = ", ".join(own_text(day[:3]) for day in DAYS)
        return f"(toInt64(indexOf([{names}], lower(substring({found['a']}, 1, 3)))) - 1)"
    return str(first)


def _iso_week(found: dict[str, str]) -> str:
    week = f"toInt64OrZero({found['V']})" if "V" in found else "1"
    return f"addDays(toMonday(makeDate32(toInt64OrZero({found['G']}), 1, 4)), ({week} - 1) * 7 + {_weekday(found, 0)})"


def _week(found: dict[str, str]) -> str:
    """Week 1 begins with the year's first Sunday (%U) or Monday (%W); the days before it are week 0."""
    letter = "U" if "U" in found else "W"
    new_year = f"makeDate32({_year(found)}, 1, 1)"
    before = 6 if letter == "U" else 0
    first = f"addDays({new_year}, (7 + {before} - (toDayOfWeek({new_year}) - 1)) % 7)"
    day = f"(({_weekday(found, before)} - {before} + 7) % 7)"
    return f"addDays({first}, (toInt64OrZero({found[letter]}) - 1) * 7 + {day})"


MEANING = Meaning(
    nodes={
        exp.StrToDate: _parse(Kind.DATE),
        exp.StrToTime: _parse(Kind.TIMESTAMP),
        exp.ParseDatetime: _parse(Kind.DATETIME),
        exp.ParseTime: _parse(Kind.TIME),
    }
)
