"""Text functions: positions are code points counted from one, negative ones from the end; NULL arguments give NULL."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import fail_if, once
from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.coercions import read_as
from cordwood.model.datatype import Kind
from cordwood.sql.bigquery.size_limits import MAX_TEXT_BYTES
from cordwood.sql.bigquery.strings import FOLDED
from cordwood.sql.constants import constant_int, constant_text
from cordwood.sql.fragment import fragment, holes, text_part
from cordwood.sql.lowering import Rule, RuleSet, function_name, unsupported
from cordwood.sql.typing import kind_of
from cordwood.sql.typing.datatypes import STRING

# Unicode's white space, which BigQuery's TRIM removes by default.
_WHITE_SPACE: Final = r"[\s\v\x{0085}\x{00A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}]+"


def as_text(node: exp.Expr) -> exp.Expr:
    return read_as(node, Kind.STRING) if kind_of(node) is Kind.VARIANT else node


def is_bytes(node: exp.Expr) -> bool:
    return kind_of(node) is Kind.BYTES


def _name(node: exp.Expr, name: str) -> str:
    """Return the name of ClickHouse's function for bytes or for code points."""
    return name if is_bytes(node) else f"{name}UTF8"


def _length(node: exp.Expr) -> exp.Expr:
    value = as_text(node.this)
    return fragment(f"toInt64({_name(value, 'length')}({{0}}))", value)


def _byte_length(node: exp.Expr) -> exp.Expr:
    return fragment("toInt64(length({0}))", as_text(node.this))


def _substring(node: exp.Expr) -> exp.Expr:
    value, start, length = as_text(node.this), node.args["start"], node.args.get("length")
    size, function_name = f"toInt64({_name(value, 'length')}(@a))", _name(value, "substring")
    start_sql = f"if(@b > 0, @b, if(@b = 0 OR @b < -{size}, 1, {size} + @b + 1))"
    if (constant_int(start) or 0) > 0:
        start_sql = "@b"
    if length is None:
        return once(f"{function_name}(@a, {start_sql})", value, start)
    # ClickHouse's greatest skips NULL.
    body = f"if(isNull(@c), NULL, {function_name}(@a, {start_sql}, greatest(@c, 0)))"
    constant_length = constant_int(length)
    if constant_length is not None and constant_length >= 0:
        return once(f"{function_name}(@a, {start_sql}, @c)", value, start, length)
    body = fail_if(node, "@c < 0", "Third argument in SUBSTR() cannot be negative", body)
    return once(body, value, start, length)


def _left_or_right(side: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        value, count = as_text(node.this), node.expression
        # ClickHouse's greatest skips NULL.
        body = f"if(isNull(@b), NULL, {_name(value, side)}(@a, greatest(@b, 0)))"
        message = f"Second argument in {side.upper()}() cannot be negative"
        return once(fail_if(node, "@b < 0", message, body) if (constant_int(count) or -1) < 0 else body, value, count)

    return rule


def _trim(node: exp.Expr) -> exp.Expr:
    value, characters = as_text(node.this), node.args.get("expression")
    side = str(node.args.get("position") or "BOTH").upper()
    if characters is None:
        if is_bytes(value):
            unsupported(node, "TRIM of BYTES without the bytes to trim")
        patterns = {"LEADING": f"^{_WHITE_SPACE}", "TRAILING": f"{_WHITE_SPACE}$"}
        pattern = text_part(patterns.get(side, f"^{_WHITE_SPACE}|{_WHITE_SPACE}$"))
        return fragment("replaceRegexpAll({0}, {1}, '')", value, pattern)
    name = {"LEADING": "trimLeft", "TRAILING": "trimRight"}.get(side, "trimBoth")
    if is_bytes(value) or (constant_text(characters) or "é").isascii():
        return fragment(f"{name}({{0}}, {{1}})", value, characters)
    return _trim_characters(value, characters, side)


def _trim_characters(value: exp.Expr, characters: exp.Expr, side: str) -> exp.Expr:
    value_characters = (
        "arrayMap(_i -> substringUTF8(assumeNotNull(@a), _i, 1), range(1, lengthUTF8(assumeNotNull(@a)) + 1))"
    )
    is_kept = "positionUTF8(@b, _c) = 0"
    first = f"arrayFirstIndex(_c -> {is_kept}, {value_characters})" if side != "TRAILING" else "1"
    last = (
        f"arrayLastIndex(_c -> {is_kept}, {value_characters})" if side != "LEADING" else "lengthUTF8(assumeNotNull(@a))"
    )
    trimmed = (
        f"substringUTF8(@a, greatest({first}, 1), greatest(toInt64({last}) - toInt64(greatest({first}, 1)) + 1, 0))"
    )
    has_none_kept = f"NOT arrayExists(_c -> {is_kept}, {value_characters})"
    return once(f"if(isNull(@a) OR isNull(@b), NULL, if({has_none_kept}, '', {trimmed}))", value, characters)


def _pad(node: exp.Expr) -> exp.Expr:
    value, length = as_text(node.this), node.expression
    fill = node.args.get("fill_pattern") or fragment("' '")
    name = "leftPad" if node.args.get("is_left") else "rightPad"
    shortened = f"{_name(value, 'substring')}(@a, 1, @b)"
    missing_length = f"toInt64(@b) - toInt64({_name(value, 'length')}(@a))"
    filling = (
        f"{_name(value, 'substring')}(repeat(@c, greatest({missing_length}, 0)), 1, greatest({missing_length}, 0))"
    )
    lengthened = f"concat({filling}, @a)" if name == "leftPad" else f"concat(@a, {filling})"
    padded = f"if(isNull(@b), NULL, if(@b <= toInt64({_name(value, 'length')}(@a)), {shortened}, {lengthened}))"
    message = f"LPAD and RPAD need a size from 0 to {MAX_TEXT_BYTES} and a pattern that is not empty"
    return once(fail_if(node, f"(@b < 0 OR @b > {MAX_TEXT_BYTES} OR @c = '')", message, padded), value, length, fill)


def _repeat(node: exp.Expr) -> exp.Expr:
    value, count = as_text(node.this), node.args["times"]
    is_invalid = f"(@b < 0 OR @b * toInt64(length(@a)) > {MAX_TEXT_BYTES})"
    message = f"Second argument in REPEAT() cannot be negative, nor its output longer than {MAX_TEXT_BYTES} bytes"
    return once(fail_if(node, is_invalid, message, "repeat(@a, @b)"), value, count)


def _replace(node: exp.Expr) -> exp.Expr:
    value, old, new = as_text(node.this), node.expression, node.args["replacement"]
    return once("if(@b = '', @a, replaceAll(@a, @b, @c))", value, old, new)


def _concat(node: exp.Expr) -> exp.Expr:
    """Lower CONCAT, which is NULL if any part is."""
    parts = [as_joinable(part) for part in node.expressions]
    name = "arrayConcat" if any(kind_of(part) is Kind.ARRAY for part in parts) else "concat"
    if len(parts) == 1:
        return parts[0]
    return fragment(f"{name}({holes(len(parts))})", *parts)


def as_joinable(part: exp.Expr) -> exp.Expr:
    kind = kind_of(part)
    if kind is None or kind in (Kind.STRING, Kind.BYTES, Kind.ARRAY):
        return part
    return cast_to(part, part, STRING)


def _concat_operator(node: exp.Expr) -> exp.Expr:
    left, right = as_joinable(node.this), as_joinable(node.expression)
    name = "arrayConcat" if Kind.ARRAY in (kind_of(left), kind_of(right)) else "concat"
    return fragment(f"{name}({{0}}, {{1}})", left, right)


def _split(node: exp.Expr) -> exp.Expr:
    """Lower SPLIT: an empty text has one empty part; an empty delimiter splits into characters."""
    value, delimiter = as_text(node.this), node.expression
    constant_delimiter = constant_text(delimiter)
    if constant_delimiter is None:
        unsupported(node, "SPLIT by a delimiter that is no literal")
    if is_bytes(value) and not is_bytes(delimiter):
        unsupported(node, "SPLIT of BYTES without a delimiter of BYTES")
    function_name, length = _name(value, "substring"), _name(value, "length")
    characters = f"arrayMap(_i -> {function_name}(assumeNotNull(@a), _i, 1), range(1, {length}(assumeNotNull(@a)) + 1))"
    parts = "splitByString(@b, assumeNotNull(@a))" if constant_delimiter else characters
    return once(f"if(isNull(@a), [], if(@a = '', [''], {parts}))", value, delimiter)


def _position(node: exp.Expr) -> exp.Expr:
    value, part = as_text(node.this), as_text(node.args["substr"])
    if node.args.get("position") is not None or node.args.get("occurrence") is not None:
        return _nth_position(node, value, part)
    return fragment(f"toInt64({_name(value, 'position')}({{0}}, {{1}}))", value, part)


def _nth_position(node: exp.Expr, value: exp.Expr, part: exp.Expr) -> exp.Expr:
    """Lower INSTR: list all positions of the part, and choose from the front or, if negative, from the back."""
    start = node.args.get("position") or fragment("toInt64(1)")
    count = node.args.get("occurrence") or fragment("toInt64(1)")
    length, substring_function = _name(value, "length"), _name(value, "substring")
    size = f"toInt64({length}(assumeNotNull(@a)))"
    is_match = f"{substring_function}(assumeNotNull(@a), _i, {length}(assumeNotNull(@b))) = assumeNotNull(@b)"
    positions = f"arrayFilter(_i -> {is_match}, range(1, toUInt64(greatest({size} - toInt64({length}(assumeNotNull(@b))) + 2, 1))))"
    from_front = f"arrayFilter(_i -> _i >= assumeNotNull(@c), {positions})[assumeNotNull(@d)]"
    from_back = f"arrayReverse(arrayFilter(_i -> toInt64(_i) <= {size} + assumeNotNull(@c) + 1, {positions}))[assumeNotNull(@d)]"
    is_missing = "isNull(@a) OR isNull(@b) OR isNull(@c) OR isNull(@d)"
    body = f"if({is_missing}, NULL, toInt64(if(@c > 0, {from_front}, {from_back})))"
    return once(
        fail_if(node, "(@c = 0 OR @d < 1)", "INSTR needs a position that is not 0 and a positive occurrence", body),
        value,
        part,
        start,
        count,
    )


def _starts_or_ends(name: str) -> Rule:
    return lambda node: fragment(f"{name}({{0}}, {{1}})", as_text(node.this), as_text(node.expression))


def _reverse(node: exp.Expr) -> exp.Expr:
    value = as_text(node.this)
    return fragment(f"{_name(value, 'reverse')}({{0}})", value)


def _change_case(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        value = as_text(node.this)
        return fragment(f"{_name(value, name)}({{0}})", value)

    return rule


def _normalize(node: exp.Expr) -> exp.Expr:
    form = str(node.args["form"].name).upper() if node.args.get("form") else "NFC"
    name = {
        "NFC": "normalizeUTF8NFC",
        "NFD": "normalizeUTF8NFD",
        "NFKC": "normalizeUTF8NFKC",
        "NFKD": "normalizeUTF8NFKD",
    }.get(form)
    if name is None:
        unsupported(node, f"The form {form} of {function_name(node)}")
    value = as_text(node.this)
    return fragment(f"{name}(lowerUTF8({{0}}))" if node.args.get("is_casefold") else f"{name}({{0}})", value)


def _distance(node: exp.Expr) -> exp.Expr:
    value, other = as_text(node.this), as_text(node.expression)
    limit = node.args.get("max_dist")
    name, length = ("editDistance", "length") if is_bytes(value) else ("editDistanceUTF8", "lengthUTF8")
    # If one text is empty, ClickHouse counts the bytes of the other.
    distance = f"toInt64(if(@a = '' OR @b = '', {length}(@a) + {length}(@b), {name}(@a, @b)))"
    if limit is None:
        return once(distance, value, other)
    body = f"if(isNull(@a) OR isNull(@b) OR isNull(@c), NULL, least({distance}, @c))"
    message = "EDIT_DISTANCE needs a max_distance that is not negative"
    return once(fail_if(node, "@c < 0", message, body), value, other, limit)


def _lenient_text(node: exp.Expr) -> exp.Expr:
    return fragment("toValidUTF8({0})", node.this)


def _soundex(node: exp.Expr) -> exp.Expr:
    """Refuse SOUNDEX, which differs in ClickHouse.

    It treats an H between consonants as a vowel, and returns zeros for a text without letters.
    """
    return unsupported(node, "SOUNDEX")


def _collate(node: exp.Expr) -> exp.Expr:
    name = constant_text(node.expression)
    value: exp.Expr = node.this
    return value if name == "" else unsupported(node, f"The collation '{name}'")


def _like(node: exp.Expr) -> exp.Expr:
    """Lower LIKE; a backslash escapes `%`, `_` and itself, as in ClickHouse.

    NOT LIKE ANY is true if one pattern does not match, NOT LIKE ALL if none matches.
    """
    value, pattern = as_text(node.this), node.expression
    if isinstance(pattern, (exp.Any, exp.All)):
        is_all = isinstance(pattern, exp.All) is not bool(node.args.get("negate"))
        test = _like_several(value, pattern.this, is_all=is_all)
    else:
        test = fragment("({0} LIKE {1})", value, pattern)
    return fragment("(NOT {0})", test) if node.args.get("negate") else test


def _like_several(value: exp.Expr, inner: exp.Expr, *, is_all: bool) -> exp.Expr:
    """Lower `LIKE ANY (…)` with three-valued logic, as OR or AND over the patterns."""
    items = _patterns(inner)
    if len(items) == 1 and not isinstance(inner, exp.Tuple):
        return (
            _like_elements(value, items[0], is_all=is_all)
            if _is_array_or_query(items[0])
            else fragment("({0} LIKE {1})", value, items[0])
        )
    joiner = " AND " if is_all else " OR "
    return fragment(
        "(" + joiner.join(f"{{0}} LIKE {{{index + 1}}}" for index in range(len(items))) + ")", value, *items
    )


def _patterns(inner: exp.Expr) -> list[exp.Expr]:
    if isinstance(inner, exp.Tuple):
        return list(inner.expressions)
    return [inner.this] if isinstance(inner, exp.Paren) else [inner]


def _is_array_or_query(pattern: exp.Expr) -> bool:
    return isinstance(pattern, (exp.Query, exp.Unnest)) or kind_of(pattern) is Kind.ARRAY


def _like_elements(value: exp.Expr, inner: exp.Expr, *, is_all: bool) -> exp.Expr:
    if isinstance(inner, exp.Query):
        inner = fragment("(SELECT groupArray(tuple(COLUMNS('.*'))) FROM ({0}))", inner)
        tests = "arrayMap(_t -> {0} LIKE _t.1, {1})"
    else:
        inner = inner.expressions[0] if isinstance(inner, exp.Unnest) else inner
        tests = "arrayMap(_t -> {0} LIKE _t, {1})"
    folded = f"arrayFold((_x, _y) -> CAST(_x {'AND' if is_all else 'OR'} _y, 'Nullable(Bool)'), {tests}, CAST({'true' if is_all else 'false'}, 'Nullable(Bool)'))"
    return fragment(folded, value, inner)


RULES = RuleSet(
    nodes={
        exp.Length: _length,
        exp.ByteLength: _byte_length,
        exp.Substring: _substring,
        exp.Left: _left_or_right("left"),
        exp.Right: _left_or_right("right"),
        exp.Trim: _trim,
        exp.Pad: _pad,
        exp.Repeat: _repeat,
        exp.Replace: _replace,
        exp.Concat: _concat,
        exp.DPipe: _concat_operator,
        exp.Split: _split,
        exp.StrPosition: _position,
        exp.StartsWith: _starts_or_ends("startsWith"),
        exp.EndsWith: _starts_or_ends("endsWith"),
        exp.Reverse: _reverse,
        exp.Upper: _change_case("upper"),
        exp.Lower: _change_case("lower"),
        exp.Normalize: _normalize,
        exp.Levenshtein: _distance,
        exp.SafeConvertBytesToString: _lenient_text,
        exp.Soundex: _soundex,
        exp.Collate: _collate,
        exp.Like: _like,
    },
    before_children=FOLDED,
)
