"""Building blocks of the rules: names, failures, implicit conversions of types, and DuckDB's SQL vocabulary."""

import re
from collections.abc import Sequence
from string import ascii_lowercase
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import TIME_KINDS, Datatype, Kind
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import Conversion, Conversions, convert_to, kind_of
from cordwood.sql.lowering import (
    PLACEHOLDER,
    RAISED,
    fragment,
    has_calls,
    is_evaluated_anyway,
    is_fragment,
    is_safe,
    name_part,
    parts_of,
    quoted_constant,
    text_part,
)
from cordwood.sql.nodes import AsText, Recast, constant_text, field_name, has_operation
from cordwood.sql.rules.times import (
    CANONICAL,
    engine_spelling,
    invalid_message,
    is_utc,
    needs_check,
    offset_minutes,
    repeated_minutes,
)
from cordwood.sql.rules.vocabulary import Vocabulary

NAMES: Final = {
    Kind.STRING: "VARCHAR",
    Kind.BYTES: "BLOB",
    Kind.INT64: "BIGINT",
    Kind.FLOAT64: "DOUBLE",
    Kind.NUMERIC: "DECIMAL(38, 9)",
    Kind.BIGNUMERIC: "DECIMAL(38, 18)",
    Kind.BOOL: "BOOLEAN",
    Kind.TIMESTAMP: "TIMESTAMPTZ",
    Kind.DATETIME: "TIMESTAMP",
    Kind.DATE: "DATE",
    Kind.TIME: "TIME",
    Kind.INTERVAL: "INTERVAL",
    Kind.JSON: "JSON",
    Kind.VARIANT: "VARIANT",
}

# DuckDB accepts no empty names and no NUL characters in names: such names are encoded with this private-use character.
# So are names that look like the rules' lambda variables (`_e`): DuckDB would confuse such a variable with a relation
# of the same name.
_ESCAPE = "\ue0ff"
_ESCAPES = {_ESCAPE: f"{_ESCAPE}s", "\0": f"{_ESCAPE}0"}
_UNESCAPES = {f"{_ESCAPE}s": _ESCAPE, f"{_ESCAPE}0": "\0"}
_ESCAPED = re.compile(f"{_ESCAPE}(?:[s0ev]|d[0-9]+_)")
_VARIABLE: Final = re.compile("_[a-z][0-9]*", re.IGNORECASE)


def is_name(name: str) -> bool:
    """Return whether a name can be written in SQL as it is, without characters that need an escape."""
    return name != "" and "\0" not in name and _ESCAPE not in name and not _VARIABLE.fullmatch(name)


def engine_name(name: str) -> str:
    """Return DuckDB's spelling of a name; different names stay different."""
    if is_name(name):
        return name
    if _VARIABLE.fullmatch(name):
        return f"{_ESCAPE}v{name}"
    return "".join(_ESCAPES.get(letter, letter) for letter in name) or f"{_ESCAPE}e"


def author_name(name: str) -> str:
    """Decode a name that `engine_name` has encoded."""
    return _ESCAPED.sub(lambda match: _UNESCAPES.get(match[0], ""), name) if _ESCAPE in name else name


def disambiguate_case(name: str, index: int) -> str:
    """Return a unique spelling of a name that differs from an earlier name only by case, which DuckDB ignores."""
    return f"{engine_name(name)}{_ESCAPE}d{index}_"


def text(value: str) -> exp.Expr:
    return exp.Literal.string(value)


def fail(node: exp.Expr, message: str) -> str:
    """Return template text that raises a value error, or NULL where none may be raised, such as inside SAFE.

    The message must be a constant.
    """
    return _fail_with(node, quoted_constant(RAISED + message))


def _fail_with(node: exp.Expr, message: str) -> str:
    """Return text like `fail`, for a message that is SQL or a placeholder; the message's text begins with `RAISED`."""
    may_fail = not is_safe(node) and not is_evaluated_anyway(node) and not _is_window_key(node)
    return f"error({message})" if may_fail else "NULL"


def _is_window_key(node: exp.Expr) -> bool:
    """Return whether the node is in PARTITION BY or ORDER BY of a window, where DuckDB does not accept `error`."""
    while node.parent is not None and not isinstance(node, exp.CTE):
        if isinstance(node.parent, exp.Window) and node.arg_key != "this":
            return True
        node = node.parent
    return False


def is_simple(node: exp.Expr) -> bool:
    """Return whether evaluating the node twice costs nothing."""
    if is_fragment(node):
        return (has_operation(node, Recast) or not has_calls(node)) and all(map(is_simple, parts_of(node)))
    return isinstance(node, (exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Parameter, exp.Boolean)) or (
        isinstance(node, (exp.Cast, exp.Neg, exp.Paren, exp.Dot)) and is_simple(node.this)
    )


def type_part(datatype: Datatype | None) -> exp.Expr | None:
    """Return DuckDB's name of a type as a part of a fragment; None if the type is not completely known."""
    if datatype is None:
        return None
    if datatype.kind is Kind.ARRAY:
        element = type_part(datatype.element)
        return fragment("{0}[]", element) if element else None
    if datatype.kind is Kind.STRUCT:
        return _struct_type(datatype)
    return fragment(NAMES[datatype.kind])


def _struct_type(datatype: Datatype) -> exp.Expr | None:
    types = [type_part(field) for _, field in datatype.fields]
    parts = [
        part
        for index, field_type in enumerate(types)
        if field_type is not None
        for part in (field_part(datatype, index), field_type)
    ]
    if not parts or len(parts) < 2 * len(types):
        return None
    return fragment(
        f"STRUCT({', '.join(f'{{{2 * index}}} {{{2 * index + 1}}}' for index in range(len(types)))})", *parts
    )


def field_part(datatype: Datatype, index: int) -> exp.Expr:
    """Return DuckDB's name of a field as a part of a fragment."""
    name, earlier_names = datatype.fields[index][0], [label for label, _ in datatype.fields[:index]]
    if name and name not in earlier_names and name.lower() in map(str.lower, earlier_names):
        return name_part(disambiguate_case(name, index), is_verbatim=True)
    return name_part(field_name(datatype, index))


_FIRST_AND_LAST: Final = {
    Kind.DATE: ("DATE '0001-01-01'", "DATE '9999-12-31'"),
    Kind.DATETIME: ("TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'"),
    Kind.TIMESTAMP: ("TIMESTAMPTZ '0001-01-01 00:00:00+00'", "TIMESTAMPTZ '9999-12-31 23:59:59.999999+00'"),
}


def in_calendar(node: exp.Expr, moment: str, kind: Kind) -> str:
    """Return the template of a time that fails if it is before the year 1 or after 9999; DuckDB accepts more years."""
    if kind not in _FIRST_AND_LAST:
        return moment
    first, last = _FIRST_AND_LAST[kind]
    failure = fail(node, f"{kind} out of range: it would be before 0001-01-01 or after 9999-12-31")
    return f"CASE WHEN {moment} < {first} OR {moment} > {last} THEN {failure} ELSE {moment} END"


# The limit on the size of a result of a replacement: far more than any event has, and fast to produce.
MAX_REPLACED_BYTES: Final = 64 * 1024 * 1024


def bounded_replacement(node: exp.Expr) -> str:
    """Return template text for the replacement @c of matches in @a; it fails if the result could be too large.

    DuckDB has no limit of its own.
    """
    too_large_failure = fail(node, "Output of replacing is too large")
    return f"CASE WHEN strlen(@a)::HUGEINT * strlen(@c) > {MAX_REPLACED_BYTES} THEN {too_large_failure} ELSE @c END"


def once(template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Fill a template that refers to its parts as `@a`, `@b`…, such that expensive parts are evaluated only once.

    `texts` are constants, inserted as `{0}`, `{1}`…
    """
    evaluated_first = _evaluated_first(template, parts)
    template = PLACEHOLDER.sub(lambda placeholder: f"{{{int(placeholder[1]) + len(parts)}}}", template)
    template = _PART.sub(lambda match: _part_reference(ascii_lowercase.index(match[1]), evaluated_first), template)
    if evaluated_first:
        fields = ", ".join(f"{ascii_lowercase[index]} := {{{index}}}" for index in evaluated_first)
        template = f"list_transform([struct_pack({fields})], lambda _v: {template})[1]"
    return fragment(template, *parts, *texts)


_PART: Final = re.compile("@([a-z])")


def _part_reference(index: int, evaluated_first: Sequence[int]) -> str:
    return f"_v.{ascii_lowercase[index]}" if index in evaluated_first else f"{{{index}}}"


def _evaluated_first(template: str, parts: Sequence[exp.Expr]) -> list[int]:
    """Return the indexes of the parts to evaluate before the template.

    If any part must be, and the template has a TRY, all expensive parts are evaluated before it, so that TRY does not
    hide the failure of a part.
    """
    evaluated_first = [index for index, part in enumerate(parts) if not _can_inline(template, index, part)]
    if evaluated_first and "try(" in template:
        return [index for index, part in enumerate(parts) if not is_simple(part)]
    return evaluated_first


def _can_inline(template: str, index: int, part: exp.Expr) -> bool:
    """Return whether the part may be inserted in place: it is cheap, or is used once and outside of TRY."""
    if is_simple(part):
        return True
    return template.count("@" + ascii_lowercase[index]) < 2 and "try(" not in template


def attempt(node: exp.Expr, template: str, *parts: exp.Expr, texts: Sequence[exp.Expr] = ()) -> exp.Expr:
    """Fill a template of `@a`, `@b`… that may fail; inside SAFE, the result is NULL instead of a failure."""
    return once(f"try({template})" if is_safe(node) else template, *parts, texts=texts)


def variant_text(value: exp.Expr) -> exp.Expr:
    """Return an event's value as text, which DuckDB reads from shredded columns without reassembling the value."""
    return fragment("{0}::VARCHAR", value, operation=AsText())


def utc_wall_clock(node: exp.Expr) -> exp.Expr:
    """Return a TIMESTAMP as its UTC wall clock, with which DuckDB calculates ten times as fast."""
    return fragment("make_timestamp(epoch_us({0}))", node, operation=Recast())


def timestamp_of(node: exp.Expr) -> exp.Expr:
    """Return the TIMESTAMP of a UTC wall clock."""
    return fragment("make_timestamptz(epoch_us({0}))", node, operation=Recast())


# SQL for a zone that is known only at run time. DuckDB knows zones only by name, so an offset such as `+02:00` becomes
# the zone UTC and a shift of the time.
_IS_OFFSET: Final = "regexp_matches(@b, '^(?i:utc|gmt)?[+-]')"
_ZONE_NAME: Final = f"CASE WHEN {_IS_OFFSET} THEN 'UTC' ELSE @b END"
_TWO_DIGITS: Final = r"regexp_replace(regexp_extract(@b, '[+-].*'), '^(.)(\d)(:|$)', '\10\2\3')"
_SHIFT: Final = (
    f"CASE WHEN {_IS_OFFSET} THEN 946684800000000 - epoch_us(('2000-01-01 00:00' || {_TWO_DIGITS})::TIMESTAMPTZ)"
    " ELSE 0 END"
)


def wall_clock_in(moment: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the wall clock in the zone at the given time."""
    if zone is None or is_utc(zone):
        return utc_wall_clock(moment)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"make_timestamp(epoch_us({{0}}) + {offset * 60_000_000})", moment)
    name = constant_text(zone)
    if name is None:
        return once(f"timezone({_ZONE_NAME}, make_timestamptz(epoch_us(@a) + {_SHIFT}))", moment, copied(zone))
    return fragment("timezone({0}, {1})", text(name), moment)


def first_timestamp_in(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the time at which clocks in the zone show `wall`; the first of two such times if clocks are set back."""
    if zone is None or is_utc(zone) or offset_minutes(zone) is not None:
        return timestamp_in(wall, zone)
    name = constant_text(zone)
    repeated_us = repeated_minutes(zone) * 60_000_000
    earlier_sql = f"make_timestamptz(epoch_us(@a) - {repeated_us})"
    wall_clock = f"timezone(@c, {earlier_sql})"
    if name is None:
        zone_name, shift = (template.replace("@b", "@c") for template in (_ZONE_NAME, _SHIFT))
        wall_clock = f"timezone({zone_name}, make_timestamptz(epoch_us(@a) - {repeated_us} + {shift}))"
    first = f"CASE WHEN {wall_clock} = @b THEN {earlier_sql} ELSE @a END"
    return once(first, timestamp_in(wall, zone), copied(wall), copied(zone) if name is None else text(name))


def timestamp_in(wall: exp.Expr, zone: exp.Expr | None) -> exp.Expr:
    """Return the time of a wall clock that is unlikely to occur twice, such as the start of a day."""
    if zone is None or is_utc(zone):
        return timestamp_of(wall)
    offset = offset_minutes(zone)
    if offset is not None:
        return fragment(f"make_timestamptz(epoch_us({{0}}) - {offset * 60_000_000})", wall)
    name = constant_text(zone)
    if name is None:
        return once(f"make_timestamptz(epoch_us(timezone({_ZONE_NAME}, @a)) - {_SHIFT})", wall, copied(zone))
    return fragment("timezone({0}, {1})", text(name), wall)


def read_as(node: exp.Expr, kind: Kind) -> exp.Expr:
    if isinstance(node, exp.Null) and kind in TIME_KINDS:
        return fragment(f"NULL::{NAMES[kind]}")  # DuckDB's functions of times are overloaded by type
    return convert_to(_READERS, node, kind)


def wall_clock(node: exp.Expr) -> exp.Expr:
    """Return any time as its wall clock in UTC, which DuckDB's date functions take."""
    kind = kind_of(node)
    if isinstance(node, exp.Null):
        return read_as(node, Kind.DATETIME)
    if kind is Kind.TIMESTAMP:
        return utc_wall_clock(node)
    if kind is Kind.DATE:
        return fragment("{0}::TIMESTAMP", node)
    if kind in (Kind.STRING, Kind.VARIANT):
        return utc_wall_clock(read_as(node, Kind.TIMESTAMP))
    return node


def _cast(kind: Kind) -> Conversion:
    return lambda node: fragment(f"{{0}}::{NAMES[kind]}", node, operation=Recast())


def _try_cast(kind: Kind) -> Conversion:
    return lambda node: fragment(f"try_cast({{0}} AS {NAMES[kind]})", variant_text(node))


def text_to_time(node: exp.Expr, value: exp.Expr, kind: Kind) -> exp.Expr:
    """Parse a text as a time in BigQuery's syntax; if `node` is inside SAFE, an invalid text gives NULL."""
    if needs_check(value, kind):
        texts = [text_part(f"^({CANONICAL[kind]})$"), text_part(RAISED + invalid_message(value, kind))]
        return once(_time_parsing_template(node, kind), value, texts=texts)
    canonical = engine_spelling(value, kind)
    text = exp.Literal.string(canonical) if canonical is not None else value
    return once(f"try(@a::{NAMES[kind]})", text) if is_safe(node) else fragment(f"{{0}}::{NAMES[kind]}", text)


def _time_parsing_template(node: exp.Expr, kind: Kind) -> str:
    """Return the template that parses a column of texts. Its operands: the pattern of valid texts, an error message.

    DuckDB parses most texts directly, three times as fast as matching the pattern; only texts that it rejects are
    matched. Its parser accepts more than BigQuery's, so only texts that pass a cheap test of their form are given to it.
    """
    cast = "try_cast" if is_safe(node) else "cast"
    # Convert lower-case letters and offsets with one-digit hours, which BigQuery accepts, to DuckDB's syntax.
    normalized = r"regexp_replace(upper(@a), '(:\d.*[+-])(\d)(:|$)', '\10\2\3')"
    failure = _fail_with(node, "{1}")
    checked = f"CASE WHEN @a IS NULL THEN NULL WHEN regexp_matches(@a, {{0}}) THEN {cast}({normalized} AS {NAMES[kind]}) ELSE {failure} END"
    return f"coalesce(CASE WHEN {_PARSES_DIRECTLY[kind]} THEN try_cast(@a AS {NAMES[kind]}) END, {checked})"


_YEAR: Final = "@a LIKE '____-%-%' AND @a > '0001'"

# By type, the test of a text that is parsed directly. Longer texts may have too many fractional digits; a DATETIME must
# not end in something that could be a zone.
_PARSES_DIRECTLY: Final = {
    Kind.TIMESTAMP: f"{_YEAR} AND length(@a) <= 35",
    Kind.DATETIME: f"{_YEAR} AND length(@a) IN (10, 19)",
    Kind.DATE: _YEAR,
    Kind.TIME: "length(@a) = 8 AND @a < '24'",
}


def _text_to(kind: Kind) -> Conversion:
    return lambda node: text_to_time(node, node, kind)


def _day(node: exp.Expr) -> exp.Expr:
    return fragment("{0}::DATE", utc_wall_clock(node))


_READERS: Final[Conversions] = {
    **{(Kind.STRING, kind): _text_to(kind) for kind in TIME_KINDS},
    (Kind.STRING, Kind.BYTES): lambda node: fragment("encode({0})", node),
    (Kind.STRING, Kind.JSON): _cast(Kind.JSON),
    (Kind.DATE, Kind.DATETIME): _cast(Kind.DATETIME),
    (Kind.DATE, Kind.TIMESTAMP): lambda node: timestamp_of(fragment("{0}::TIMESTAMP", node)),
    (Kind.DATETIME, Kind.TIMESTAMP): timestamp_of,
    (Kind.DATETIME, Kind.DATE): _cast(Kind.DATE),
    (Kind.TIMESTAMP, Kind.DATETIME): utc_wall_clock,
    (Kind.TIMESTAMP, Kind.DATE): _day,
    (Kind.INT64, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.INT64, Kind.NUMERIC): _cast(Kind.NUMERIC),
    (Kind.NUMERIC, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.BIGNUMERIC, Kind.FLOAT64): _cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.STRING): variant_text,
    (Kind.VARIANT, Kind.BYTES): lambda node: fragment("encode({0})", variant_text(node)),
    (Kind.VARIANT, Kind.INT64): _try_cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.FLOAT64): _try_cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.NUMERIC): _try_cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.BIGNUMERIC): _try_cast(Kind.FLOAT64),
    (Kind.VARIANT, Kind.BOOL): _try_cast(Kind.BOOL),
    (Kind.VARIANT, Kind.TIMESTAMP): _try_cast(Kind.TIMESTAMP),
    (Kind.VARIANT, Kind.DATETIME): _try_cast(Kind.DATETIME),
    (Kind.VARIANT, Kind.DATE): _try_cast(Kind.DATE),
    (Kind.VARIANT, Kind.TIME): _try_cast(Kind.TIME),
    (Kind.VARIANT, Kind.JSON): _cast(Kind.JSON),
}


def null_of(datatype: Datatype | None) -> exp.Expr:
    name = type_part(datatype)
    return exp.Null() if name is None else fragment("NULL::{0}", name)


def _engine_cast(node: exp.Expr, kind: Kind) -> exp.Expr:
    return fragment(f"{{0}}::{NAMES[kind]}", node)


def conditional(condition: str, then: str, otherwise: str = "NULL") -> str:
    return f"CASE WHEN {condition} THEN {then}{'' if otherwise == 'NULL' else f' ELSE {otherwise}'} END"


def fail_if(node: exp.Expr, is_invalid: str, message: str, value: str) -> str:
    return conditional(is_invalid, fail(node, message), value)


def _bracketed(array: exp.Expr, name: str, element_text: exp.Expr, separator: str) -> exp.Expr:
    texts = fragment(f"list_transform({{0}}, lambda {name}: {{1}})", array, element_text)
    joined = f"coalesce(array_to_string(@a, '{separator}'), '')"
    return once(f"CASE WHEN @a IS NOT NULL THEN '[' || {joined} || ']' END", texts)


def json_document(value: exp.Expr) -> exp.Expr:
    """Return a value as a JSON document; a text that is not JSON is NULL."""
    kind = kind_of(value)
    if kind is Kind.JSON:
        return value
    if kind is Kind.VARIANT:
        return fragment("{0}::JSON", value)
    return once("(CASE WHEN json_valid(@a) THEN @a END)::JSON", value)


WORDS: Final = Vocabulary(
    once=once,
    attempt=attempt,
    null_of=null_of,
    read_as=read_as,
    cast=_engine_cast,
    wall_clock=wall_clock,
    utc_wall_clock=utc_wall_clock,
    json_document=json_document,
    fail_if=fail_if,
    conditional=conditional,
    is_missing="{} IS NULL".format,
    is_present="{} IS NOT NULL".format,
    or_else="coalesce({}, {})".format,
    concat=lambda *texts: " || ".join(texts),
    as_text="{}::VARCHAR".format,
    as_integer="{}::BIGINT".format,
    as_float="{}::DOUBLE".format,
    matches="regexp_full_match({}, '{}')".format,
    extract="regexp_extract({}, '{}')".format,
    replace_first="regexp_replace({}, '{}', '{}')".format,
    replace_all="regexp_replace({}, '{}', '{}', 'g')".format,
    with_value="list_transform([{}], lambda {}: {})[1]".format,
    bracketed=_bracketed,
    field="struct_extract_at({}, {})".format,
    nan="'nan'::DOUBLE",
    is_finite="isfinite({})".format,
    is_infinite="isinf({})".format,
    is_nan="isnan({})".format,
    quotient="{} // {}".format,
    micros="epoch_us({})".format,
    moment_of="make_timestamptz({})".format,
)
