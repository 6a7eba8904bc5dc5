"""Regular expressions: RE2 in both, but no match is NULL, and places are counted in characters."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.strings import as_text
from cordwood.engines.clickhouse.rules.words import guarded, null_of, once
from cordwood.errors import QueryValue
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.patterns import (
    count_groups,
    finds_places_alone,
    group_is_optional,
    group_may_be_empty,
    has_bad_rewrite,
    is_broken,
    may_be_empty,
)
from cordwood.sql.constants import CONSTANT, constant_int, constant_text
from cordwood.sql.fragment import fragment, own_text, text_part
from cordwood.sql.lowering import RAISED, Meaning, is_safe, name_of, place_of, unsupported
from cordwood.sql.typing import kind_of
from cordwood.sql.typing.datatypes import BOOL, INT64, STRING, array_of


def _refuse(node: exp.Expr) -> bool:
    """What cannot be asked is an error; True where the author wants NULL of it."""
    if kind_of(node.this) is Kind.BYTES:
        unsupported(node, "A regular expression over BYTES")
    spelled = constant_text(node.expression)
    if spelled is None:
        return False
    if not isinstance(node, (exp.RegexpLike, exp.RegexpReplace)) and count_groups(spelled) > 1:
        if is_safe(node):
            return True
        raise QueryValue(_ONE_GROUP, span=place_of(node))
    return is_safe(node) and is_broken(spelled)


def _refuse_empty(node: exp.Expr) -> None:
    """The engine finds other empty matches than RE2 does, or none."""
    spelled = constant_text(node.expression)
    if may_be_empty("." if spelled is None else spelled):
        unsupported(node, f"A pattern of {name_of(node)} that may match the empty text")


def _pattern(node: exp.Expr) -> exp.Expr:
    """The engine's dot takes line ends too, unless it is told not to."""
    spelled = constant_text(node)
    if spelled is None:
        return fragment("concat('(?-s)', {0})", node)
    told = text_part(f"(?-s){spelled}")
    told.meta[CONSTANT] = spelled
    return told


def _matches(node: exp.Expr) -> exp.Expr:
    if _refuse(node):
        return null_of(BOOL)
    return fragment("match({0}, {1})", as_text(node.this), _pattern(node.expression))


# The engine finds all matches of a constant pattern alone. Of any other it marks them: no text has these marks of its own.
_OPEN, _CLOSE = "\x01", "\x02"
_MARKED: Final = f"{_OPEN}([^{_CLOSE}]*){_CLOSE}"
# How often a pattern captures that is not known beforehand: its brackets, but for escaped ones and those in classes.
_BARE: Final = r"replaceRegexpAll({0}, '\\\\.|\\[\\^?\\]?[^\\]]*\\]', '')"
_GROUPS: Final = "(countSubstrings({0}, '(') - countSubstrings({0}, '(?') + countSubstrings({0}, '(?P<'))"


def _groups_of(pattern: exp.Expr, name: str) -> str:
    """A number, or how to come by it."""
    spelled = constant_text(pattern)
    if spelled is not None:
        return str(count_groups(spelled))
    return _GROUPS.format(_BARE.format(f"assumeNotNull({name})"))


def _all(value: str, pattern: str, shown: str) -> str:
    """Every match of a pattern of any kind, or the group of it that is shown."""
    bare = f"replaceRegexpAll(assumeNotNull({value}), '[{_OPEN}{_CLOSE}]', '')"
    marked = f"replaceRegexpAll({bare}, assumeNotNull({pattern}), '{_OPEN}\\\\{shown}{_CLOSE}')"
    return f"extractAll({marked}, '{_MARKED}')"


def _whole(pattern: exp.Expr, value: str, name: str) -> str:
    """Every match: an array of texts."""
    if constant_text(pattern) is None:
        return _all(value, name, "0")
    return f"arrayMap(_g -> _g[1], extractAllGroupsVertical({value}, concat('(', {name}, ')')))"


def _found(pattern: exp.Expr, value: str, name: str) -> str:
    """Every match, or its first group where there is one."""
    if constant_text(pattern) is not None:
        return f"extractAll(assumeNotNull({value}), assumeNotNull({name}))"
    groups = _groups_of(pattern, name)
    several = f"throwIf({groups} > 1, {own_text(RAISED + _ONE_GROUP)})"
    return f"if({several} = 0 AND {groups} = 1, {_all(value, name, '1')}, {_all(value, name, '0')})"


_ONE_GROUP: Final = "A regular expression that extracts has at most one group."


def _extract(node: exp.Expr) -> exp.Expr:
    """Without a match NULL."""
    if _refuse(node):
        return null_of(STRING)
    value, pattern = as_text(node.this), _pattern(node.expression)
    if node.args.get("position") is not None or node.args.get("occurrence") is not None:
        return _nth(node, value, pattern)
    first = _or_none(node, f"{_found(pattern, '@a', '@b')}[1]")
    return once(f"if(isNull(@a) OR isNull(@b), NULL, if(match(@a, @b), {first}, NULL))", value, pattern)


def _or_none(node: exp.Expr, group: str) -> str:
    """NULL of a group that took no part, which the engine has as empty."""
    spelled = constant_text(node.expression)
    if spelled is None or not group_is_optional(spelled):
        return group
    if group_may_be_empty(spelled):
        unsupported(node, f"A group of {name_of(node)} that may be empty and may take no part")
    return f"nullIf({group}, '')"


def _nth(node: exp.Expr, value: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    position = node.args.get("position") or fragment("toInt64(1)")
    occurrence = node.args.get("occurrence") or fragment("toInt64(1)")
    _refuse_empty(node)
    if (constant_text(pattern) or "").startswith("^") and (constant_int(position) or 1) > 1:
        return null_of(STRING)  # the text begins before the place from which it is looked at
    found = _found(pattern, "substringUTF8(@a, greatest(@c, 1))", "@b")
    nth = _or_none(node, f"{found}[assumeNotNull(greatest(@d, 1))]")
    missing = "isNull(@a) OR isNull(@b) OR isNull(@c) OR isNull(@d) OR @c > toInt64(lengthUTF8(@a)) + 1"
    body = f"if({missing} OR toInt64(length({found})) < @d, NULL, {nth})"
    return once(guarded(node, "(@c < 1 OR @d < 1)", _POSITIVE, body), value, pattern, position, occurrence)


_POSITIVE: Final = "The position and occurrence arguments must be positive"


def _extract_all(node: exp.Expr) -> exp.Expr:
    if _refuse(node):
        return null_of(array_of(STRING))
    _refuse_empty(node)
    pattern = _pattern(node.expression)
    return once(f"if(isNull(@a) OR isNull(@b), [], {_found(pattern, '@a', '@b')})", as_text(node.this), pattern)


def _replace(node: exp.Expr) -> exp.Expr:
    if _refuse(node) or has_bad_rewrite(node):
        return null_of(STRING)
    new = node.args["replacement"]
    if constant_text(new) != "" and not finds_places_alone(constant_text(node.expression) or "."):
        _refuse_empty(node)
    return fragment("replaceRegexpAll({0}, {1}, {2})", as_text(node.this), _pattern(node.expression), new)


def _place(node: exp.Expr) -> exp.Expr:
    """REGEXP_INSTR: the text is parted by its matches, and the lengths of the parts before one are added up."""
    if _refuse(node):
        return null_of(INT64)
    value, pattern = as_text(node.this), _pattern(node.expression)
    position = node.args.get("position") or fragment("toInt64(1)")
    occurrence = node.args.get("occurrence") or fragment("toInt64(1)")
    option = node.args.get("option") or fragment("toInt64(0)")
    start, count = "greatest(@c, 1)", "greatest(@d, 1)"
    rest = f"assumeNotNull(substringUTF8(@a, {start}))"
    whole, groups = _whole(pattern, rest, "@b"), _groups_of(pattern, "@b")
    nth = f"{whole}[assumeNotNull({count})]"
    folded = (
        f"arrayFold((_s, _m) -> tuple(toInt64(_s.1 + positionUTF8(substringUTF8({rest}, assumeNotNull(_s.1 + 1)), _m) - 1 + lengthUTF8(_m)),"
        f" toInt64(_s.1 + positionUTF8(substringUTF8({rest}, assumeNotNull(_s.1 + 1)), _m) - 1)),"
        f" arraySlice({whole}, 1, assumeNotNull({count})), tuple(toInt64(0), toInt64(0)))"
    )
    inner = f"if({groups} > 0, {_found(pattern, rest, '@b')}[assumeNotNull({count})], {nth})" if groups != "0" else nth
    lead = f"({folded}).2" + (f" + positionUTF8({nth}, {inner}) - 1" if groups != "0" else "")
    end = f"if(@e = 1, lengthUTF8({inner}), 0)"
    body = (
        "if(isNull(@a) OR isNull(@b) OR isNull(@c) OR isNull(@d) OR isNull(@e), NULL,"
        f" if({start} > toInt64(lengthUTF8(@a)) OR length({whole}) < {count} OR @b = '', 0, toInt64(@c + {lead} + {end})))"
    )
    guard = "(@c < 1 OR @d < 1 OR @e NOT IN (0, 1))"
    return once(guarded(node, guard, _POSITIVE, body), value, pattern, position, occurrence, option)


MEANING = Meaning(
    nodes={
        exp.RegexpLike: _matches,
        exp.RegexpExtract: _extract,
        exp.RegexpExtractAll: _extract_all,
        exp.RegexpReplace: _replace,
        exp.RegexpInstr: _place,
    }
)
