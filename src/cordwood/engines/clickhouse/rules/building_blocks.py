"""Building blocks of the rules: names, failures, conversions that a context requires, and basic SQL templates."""

import re
from collections.abc import Sequence
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import NUMBERS, TIME_KINDS, Datatype, Kind
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import Conversion, Conversions, convert_to, inherit, kind_of
from cordwood.sql.lowering import (
    PLACEHOLDER,
    RAISED,
    fragment,
    is_evaluated_anyway,
    is_fragment,
    is_safe,
    parts_of,
    quoted_constant,
    text_part,
    unsupported,
)
from cordwood.sql.nodes import CONSTANT_KEY, constant_text, field_name
from cordwood.sql.rules.times import CANONICAL, engine_spelling, invalid_message, is_utc, needs_check, offset_minutes
from cordwood.sql.rules.vocabulary import Vocabulary, Word3

# The meta key of an array that represents NULL if it is empty: a subscript out of its bounds is NULL, not an error.
MAY_BE_NULL: Final = "may_be_null"

# The meta key of an array that is emitted for NULL, which ClickHouse's arrays do not have.
IS_NULL: Final = "is_null"

# A TIMESTAMP has a time zone in its type and a DATETIME has none, which distinguishes them in an answer.
NAMES: Final = {
    Kind.STRING: "String",
    Kind.BYTES: "String",
    Kind.INT64: "Int64",
    Kind.FLOAT64: "Float64",
    Kind.NUMERIC: "Decimal(38, 9)",
    Kind.BIGNUMERIC: "Decimal(76, 38)",
    Kind.BOOL: "Bool",
    Kind.TIMESTAMP: "DateTime64(6, 'UTC')",
    Kind.DATETIME: "DateTime64(6)",
    Kind.DATE: "Date32",
    Kind.TIME: "Time64(6)",
    Kind.INTERVAL: "Tuple(Int64, Int64, Int64)",
    Kind.JSON: "String",
    Kind.VARIANT: "String",
}

_NEVER_NULL: Final = (Kind.ARRAY, Kind.INTERVAL)


def type_part(datatype: Datatype | None, *, has_names: bool = True) -> exp.Expr | None:
    """Return ClickHouse's name of a type, nullable if possible, as CAST's argument; None if it is not fully known."""
    type_text = _type_text(datatype, has_names=has_names)
    return text_part(type_text) if type_text else None


def _type_text(datatype: Datatype | None, *, has_names: bool) -> str | None:
    if datatype is None:
        return None
    if datatype.kind is Kind.ARRAY:
        element = _type_text(datatype.element, has_names=has_names) if datatype.element else "Nullable(Int64)"
        return f"Array({element})" if element else None
    if datatype.kind is Kind.STRUCT:
        return _struct_text(datatype, has_names=has_names)
    name = NAMES[datatype.kind]
    return name if datatype.kind in _NEVER_NULL else f"Nullable({name})"


def _struct_text(datatype: Datatype, *, has_names: bool) -> str | None:
    """Return the name of a struct's type as text, not as a template, because it may contain braces.

    Fields are read by position, so names are optional. The client, which parses the names of types, supports only plain
    field names: if a field has any other name, all fields are left unnamed.
    """
    parts = [_type_text(field, has_names=has_names) for _, field in datatype.fields]
    if not parts or any(part is None for part in parts):
        return None
    names = _simple_names(datatype) if has_names else None
    fields = [f"{quoted_name(name)} {part}" for name, part in zip(names, parts, strict=True)] if names else parts
    return f"Nullable(Tuple({', '.join(map(str, fields))}))"


def _simple_names(datatype: Datatype) -> list[str] | None:
    names = [field_name(datatype, index) for index in range(len(datatype.fields))]
    return names if all(_SIMPLE_NAME.fullmatch(name) and spelled(name) == name for name in names) else None


_SIMPLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


# The escape character of `spelled`: a character for private use in Unicode.
_ESCAPE: Final = "\ue0ff"
# The names of subcolumns that ClickHouse derives from columns of some types.
_SUBCOLUMN_NAME: Final = re.compile(r"null|size[0-9]+")


def spelled(name: str) -> str:
    """Return ClickHouse's spelling of a name; different names stay different.

    ClickHouse has no empty names, and resolves some names to subcolumns: these names get one escape character in front.
    In all other names, escape characters are doubled.
    """
    if name == "" or _SUBCOLUMN_NAME.fullmatch(name):
        return _ESCAPE + name
    return name.replace(_ESCAPE, _ESCAPE * 2)


def quoted_name(name: str) -> str:
    """Quote a name for ClickHouse, in a statement and in the text of a type."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "\\0") + '"'


def cast(node: exp.Expr, kind: Kind) -> exp.Expr:
    """Return ClickHouse's own cast, which fails for values that do not fit and keeps NULL."""
    return fragment(f"CAST({{0}}, {quoted_constant(f'Nullable({NAMES[kind]})')})", node)


def null_of(datatype: Datatype | None) -> exp.Expr:
    name = type_part(datatype)
    if datatype is None or name is None:
        return exp.Null()
    if datatype.kind is not Kind.ARRAY:
        return fragment("CAST(NULL, {0})", name)
    null_array = fragment("CAST([], {0})", name)
    null_array.meta[IS_NULL] = True
    return null_array


def fail_if(node: exp.Expr, is_invalid: str, message: str, value: str) -> str:
    """Return template text that fails if `is_invalid` is true, and is `value` if it is false or NULL.

    Instead of failing, it is NULL inside SAFE, and in a branch that ClickHouse evaluates even if it is not chosen. The
    message must be a constant of cordwood. The condition is never NULL for `throwIf`, which would also test the value
    that ClickHouse stores below a NULL.
    """
    return _fail_if_with(node, is_invalid, quoted_constant(RAISED + message), value)


def _fail_if_with(node: exp.Expr, is_invalid: str, message: str, value: str) -> str:
    """Return the same as `fail_if`; the message is template text, and the message's text begins with `RAISED`."""
    if is_safe(node) or is_evaluated_anyway(node):
        return f"if({is_invalid}, NULL, {value})"
    return f"if(throwIf(ifNull({is_invalid}, false), {message}) = 1, NULL, {value})"


def is_simple(node: exp.Expr) -> bool:
    """Return whether evaluating the node twice costs nothing."""
    if is_fragment(node):
        return node.meta_get(CONSTANT_KEY) is not None or all(isinstance(part, exp.Literal) for part in parts_of(node))
    return isinstance(node, (exp.Column, exp.Literal, exp.Null, exp.Parameter, exp.Boolean, exp.Dot)) or (
        isinstance(node, (exp.Cast, exp.Neg, exp.Paren)) and is_simple(node.this)
    )


def once(template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Fill a template that refers to its parts as `@a`, `@b`…, such that expensive parts are evaluated only once.

    `texts` are constants, inserted as `{0}`, `{1}`…
    """
    expensive = [index for index, part in enumerate(parts) if not _can_inline(template, index, part)]
    template = PLACEHOLDER.sub(lambda placeholder: f"{{{int(placeholder[1]) + len(parts)}}}", template)
    template = _PART.sub(
        lambda match: f"_{match[1]}" if ord(match[1]) - 97 in expensive else f"{{{ord(match[1]) - 97}}}", template
    )
    if expensive:
        heads = ", ".join(f"_{chr(97 + index)}" for index in expensive)
        lists = ", ".join(f"[{{{index}}}]" for index in expensive)
        template = f"arrayMap(({heads}) -> {template}, {lists})[1]"
    return fragment(template, *parts, *texts)


_PART: Final = re.compile("@([a-z])")


def _can_inline(template: str, index: int, part: exp.Expr) -> bool:
    """Return whether the part may be inserted in place: it is cheap, or is used once."""
    return is_simple(part) or template.count("@" + chr(97 + index)) < 2


def utc_wall_clock(node: exp.Expr) -> exp.Expr:
    """Return a TIMESTAMP as its UTC wall clock."""
    return cast(node, Kind.DATETIME)


def _timestamp_of(node: exp.Expr) -> exp.Expr:
    """Return the TIMESTAMP of a UTC wall clock."""
    return cast(node, Kind.TIMESTAMP)


def wall_clock_in(moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the wall clock in the zone at the given time."""
    if zone is None or is_utc(zone):
        return utc_wall_clock(moment)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) + {offset * 60_000_000})", moment)
    template = (
        "fromUnixTimestamp64Micro(toUnixTimestamp64Micro(@a) + timeZoneOffset(toTimeZone(@a, @b)) * toInt64(1000000))"
    )
    return once(template, moment, _require_constant_zone(zone))


def first_timestamp_in(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the time at which clocks in the zone show `wall`; the first of two times if clocks are set back."""
    if zone is None or is_utc(zone):
        return _timestamp_of(wall)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"fromUnixTimestamp64Micro(toUnixTimestamp64Micro({{0}}) - {offset * 60_000_000}, 'UTC')", wall)
    micros = fragment("toUnixTimestamp64Micro({0})", wall)
    return once(_FIRST_TIMESTAMP, micros, _require_constant_zone(zone))


def _offset_at(micros: str) -> str:
    return f"toInt64(timeZoneOffset(fromUnixTimestamp64Micro({micros}, @b))) * 1000000"


# The offset of the day before is used if it still holds at the wall clock, or if clocks are set forward and skip it.
_BEFORE: Final = _offset_at("@a - 86400000000")
_AFTER: Final = _offset_at("@a + 86400000000")
_HOLDS_BEFORE: Final = f"{_offset_at(f'@a - {_BEFORE}')} = {_BEFORE}"
_NOT_YET_AFTER: Final = f"{_offset_at(f'@a - {_AFTER}')} != {_AFTER}"
_FIRST_TIMESTAMP: Final = (
    f"fromUnixTimestamp64Micro(@a - if({_HOLDS_BEFORE} OR {_NOT_YET_AFTER}, {_BEFORE}, {_AFTER}), 'UTC')"
)


def _require_constant_zone(zone: exp.Expr) -> exp.Expr:
    """Return the zone; refuse a column, because ClickHouse stores the zone in the type of a value."""
    if zone.find(exp.Column) is not None:
        unsupported(zone, "A time zone that is a column")
    return copied(zone)


def read_as(node: exp.Expr, kind: Kind) -> exp.Expr:
    return convert_to(_READERS, node, kind)


def wall_clock(node: exp.Expr) -> exp.Expr:
    """Return any time as its wall clock in UTC."""
    kind = kind_of(node)
    if kind in (Kind.TIMESTAMP, Kind.DATE):
        return utc_wall_clock(node)
    if kind in (Kind.STRING, Kind.VARIANT):
        return utc_wall_clock(read_as(node, Kind.TIMESTAMP))
    return node


def _cast(kind: Kind) -> Conversion:
    return lambda node: cast(node, kind)


def _try_cast(kind: Kind) -> Conversion:
    name = quoted_constant(NAMES[kind])
    return lambda node: fragment(f"accurateCastOrNull({{0}}, {name})", event_text(node))


def event_text_of(value: str) -> str:
    """Return an SQL template that decodes a stored value, which is JSON text, to the string that it represents."""
    return f"JSONExtract({value}, 'Nullable(String)')"


# The meta key of the text from which an event's value was made, if it is available.
_TEXT: Final = "event_text"


def with_text(value: exp.Expr, text: exp.Expr) -> exp.Expr:
    """Attach its text to an event's value that was made from it, for readers that need the text."""
    value.meta[_TEXT] = copied(text)
    return value


def attached_text(node: exp.Expr) -> exp.Expr | None:
    text = node.unnest().meta_get(_TEXT) if kind_of(node) is Kind.VARIANT else None
    return copied(text) if isinstance(text, exp.Expr) else None


def event_text(node: exp.Expr) -> exp.Expr:
    """Return an event's value as the text that it represents."""
    return attached_text(node) or fragment(event_text_of("{0}"), node)


# A time zone's name at the end of a text; ClickHouse itself parses offsets only.
_WITH_ZONE_NAME: Final = re.compile(r"^(.*\d) ([A-Za-z_]+/[A-Za-z_/+-]+[0-9]*)$")


def text_to_time(node: exp.Expr, value: exp.Expr, kind: Kind) -> exp.Expr:
    """Parse a text as a time in BigQuery's syntax; `node` tells whether a failure is NULL."""
    if needs_check(value, kind):
        texts = [text_part(f"^({CANONICAL[kind]})$"), text_part(RAISED + invalid_message(value, kind))]
        return once(_time_parsing_template(node, kind), value, texts=texts)
    canonical = engine_spelling(value, kind)
    with_zone = _WITH_ZONE_NAME.match(canonical or constant_text(value) or "") if kind is Kind.TIMESTAMP else None
    if with_zone:
        parsed = once(_PARSERS[Kind.DATETIME].replace("#", ""), text_part(with_zone[1]))
        return first_timestamp_in(parsed, exp.Literal.string(with_zone[2]))
    text = inherit(text_part(canonical), value) if canonical is not None else value
    return once(_PARSERS[kind].replace("#", "OrNull" if is_safe(node) else ""), text)


def _time_parsing_template(node: exp.Expr, kind: Kind) -> str:
    """Return the template that parses a column of texts; `{0}` is the pattern of valid texts, and `{1}` the message.

    It uses the parser that returns NULL for invalid texts, because ClickHouse also parses the values that it stores
    below NULLs.
    """
    parsed = _PARSERS[kind].replace("#", "OrNull")
    has_time = "match(@a, {0})"
    if is_safe(node):
        return f"if({has_time}, {parsed}, NULL)"
    return _fail_if_with(node, f"(NOT {has_time} OR (@a IS NOT NULL AND {parsed} IS NULL))", "{1}", parsed)


# T and Z may be in lower case. Only the first ten characters of a text are parsed as a date. `#` is replaced by
# `OrNull` or by nothing.
_PARSERS: Final = {
    Kind.TIMESTAMP: "parseDateTime64BestEffort#(upper(@a), 6, 'UTC')",
    Kind.DATETIME: "parseDateTime64BestEffort#(upper(@a), 6)",
    Kind.DATE: "toDate32(parseDateTime64BestEffort#(upper(substring(@a, 1, 10)), 0, 'UTC'))",
    Kind.TIME: "CAST(parseDateTime64BestEffort#(concat('1970-01-01 ', @a), 6), 'Nullable(Time64(6))')",
}


def _text_to(kind: Kind) -> Conversion:
    return lambda node: text_to_time(node, node, kind)


_READERS: Final[Conversions] = {
    **{(Kind.STRING, kind): _text_to(kind) for kind in TIME_KINDS},
    (Kind.STRING, Kind.BYTES): lambda node: node,
    (Kind.STRING, Kind.JSON): lambda node: fragment("toJSONString({0})", node),
    (Kind.DATE, Kind.DATETIME): _cast(Kind.DATETIME),
    (Kind.DATE, Kind.TIMESTAMP): _cast(Kind.TIMESTAMP),
    (Kind.DATETIME, Kind.TIMESTAMP): _timestamp_of,
    (Kind.DATETIME, Kind.DATE): _cast(Kind.DATE),
    (Kind.TIMESTAMP, Kind.DATETIME): utc_wall_clock,
    (Kind.TIMESTAMP, Kind.DATE): _cast(Kind.DATE),
    (Kind.INT64, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.INT64, Kind.NUMERIC): _cast(Kind.NUMERIC),
    (Kind.NUMERIC, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.BIGNUMERIC, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.STRING): event_text,
    (Kind.VARIANT, Kind.BYTES): event_text,
    (Kind.VARIANT, Kind.JSON): lambda node: node,
    **{(Kind.VARIANT, kind): _try_cast(Kind.FLOAT64) for kind in NUMBERS},
    **{(Kind.VARIANT, kind): _try_cast(kind) for kind in (Kind.BOOL, *TIME_KINDS)},
}


def _attempt(node: exp.Expr, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Fill the template, without making failures NULL: ClickHouse has no general TRY."""
    del node
    return once(template, *parts, texts=texts)


def conditional(condition: str, then: str, otherwise: str = "NULL") -> str:
    return f"if({condition}, {then}, {otherwise})"


def _bracketed(array: exp.Expr, name: str, element_text: exp.Expr, separator: str) -> exp.Expr:
    texts = f"arrayStringConcat(arrayMap({name} -> {{1}}, {{0}}), '{separator}')"
    return fragment(f"concat('[', {texts}, ']')", array, element_text)


def _escaped(text: str) -> str:
    """Return a pattern or replacement as the content of a literal."""
    return text.replace("\\", "\\\\")


def _replace(function: str) -> Word3:
    return lambda text, pattern, new: f"{function}({text}, '{_escaped(pattern)}', '{_escaped(new)}')"


def json_document(value: exp.Expr) -> exp.Expr:
    """Return a value as a JSON document; a text that is not JSON is NULL."""
    if kind_of(value) in (Kind.JSON, Kind.VARIANT):
        return value
    return once("if(isValidJSON(@a), @a, NULL)", value)


WORDS: Final = Vocabulary(
    once=once,
    attempt=_attempt,
    null_of=null_of,
    read_as=read_as,
    cast=cast,
    wall_clock=wall_clock,
    utc_wall_clock=utc_wall_clock,
    json_document=json_document,
    fail_if=fail_if,
    conditional=conditional,
    is_missing="isNull({})".format,
    is_present="isNotNull({})".format,
    or_else="ifNull({}, {})".format,
    concat=lambda *texts: f"concat({', '.join(texts)})",
    as_text="toString({})".format,
    as_integer="toInt64({})".format,
    as_float="toFloat64({})".format,
    matches=lambda text, pattern: f"match({text}, '^{_escaped(pattern)}$')",
    extract=lambda text, pattern: f"extract({text}, '{_escaped(pattern)}')",
    replace_first=_replace("replaceRegexpOne"),
    replace_all=_replace("replaceRegexpAll"),
    with_value="arrayMap({1} -> {2}, [{0}])[1]".format,
    bracketed=_bracketed,
    field="tupleElement({}, {})".format,
    nan="nan",
    is_finite="isFinite({})".format,
    is_infinite="isInfinite({})".format,
    is_nan="isNaN({})".format,
    quotient="intDiv({}, {})".format,
    micros="toUnixTimestamp64Micro({})".format,
    moment_of="fromUnixTimestamp64Micro({}, 'UTC')".format,
)
