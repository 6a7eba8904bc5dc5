"""Text functions, functions of single characters, and FORMAT().

Positions count code points from one, and negative positions from the end. NULL arguments give NULL.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import WORDS, bounded_replacement, fail, once, read_as
from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.engines.duckdb.rules.json_functions import JSON_TEXT, indent
from cordwood.model.datatype import Kind
from cordwood.sql.datatypes import STRING, kind_of
from cordwood.sql.lowering import RuleSet, fragment, function_name, placeholders, text_part, unsupported
from cordwood.sql.nodes import TextPosition, constant_int, constant_text, is_null
from cordwood.sql.rules.formats import MAX_WIDTH, TEXT_LETTERS, Field, Formats, Specifier
from cordwood.sql.rules.functions import (
    MAX_CHARACTERS,
    MAX_TEXT_BYTES,
    STRINGS,
    ByType,
    Checked,
    Key,
    Over,
    Template,
    rules_from_templates,
)
from cordwood.sql.rules.strings import DUPLICATE, FOLDED, has_duplicate_characters, source_and_target

# Unicode's white space, which BigQuery's TRIM removes by default.
_WHITE_SPACE: Final = (
    "' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13) || chr(133) || chr(160) || chr(5760) || "
    + " || ".join(f"chr({code})" for code in (*range(8192, 8203), 8232, 8233, 8239, 8287, 12288))
)


_MAX_LENGTH: Final = 1 << 30
# Bytes as hexadecimal text with an `x` before each byte, so that no match can begin between the two digits of a byte.
_SEPARATED_BYTES: Final = r"regexp_replace(hex({0}), '(..)', 'x\1', 'g')"


def as_text(node: exp.Expr) -> exp.Expr:
    return read_as(node, Kind.STRING) if kind_of(node) is Kind.VARIANT else node


def is_bytes(node: exp.Expr) -> bool:
    return kind_of(node) is Kind.BYTES


def _substring(node: exp.Expr) -> exp.Expr:
    value, start, length = as_text(node.this), node.args["start"], node.args.get("length")
    if is_bytes(value):
        return _bytes_between(node, value, start, length)
    position = constant_int(start)
    if position is not None and position > 0:
        return _substring_from_front(node, value, start, length)
    start_sql = "CASE WHEN @b > 0 THEN @b WHEN @b = 0 OR @b < -length(@a) THEN 1 ELSE length(@a) + @b + 1 END"
    if length is None:
        return once(f"substring(@a, {start_sql})", value, start)
    count = _checked_length(node, length, "@c")
    return once(f"substring(@a, {start_sql}, {count})", value, start, length)


def _substring_from_front(node: exp.Expr, value: exp.Expr, start: exp.Expr, length: exp.Expr | None) -> exp.Expr:
    if length is None:
        return fragment("substring({0}, {1})", value, start)
    return once(f"substring(@a, @b, {_checked_length(node, length, '@c')})", value, start, length)


def _checked_length(node: exp.Expr, length: exp.Expr, name: str) -> str:
    """Return SQL for the length argument of SUBSTR, which fails if it is negative.

    It is limited to a value that DuckDB accepts and that no text reaches.
    """
    constant_value = constant_int(length)
    if constant_value is not None and 0 <= constant_value <= _MAX_LENGTH:
        return name
    failure = fail(node, "Third argument in SUBSTR() cannot be negative")
    return f"CASE WHEN {name} < 0 THEN {failure} WHEN {name} > {_MAX_LENGTH} THEN {_MAX_LENGTH} ELSE {name} END"


def _bytes_between(node: exp.Expr, value: exp.Expr, start: exp.Expr, length: exp.Expr | None) -> exp.Expr:
    size = "(length(@a) // 2)"
    start_sql = f"CASE WHEN @b > 0 THEN @b WHEN @b = 0 OR @b < -{size} THEN 1 ELSE {size} + @b + 1 END"
    count = f", ({_checked_length(node, length, '@c')}) * 2" if length is not None else ""
    arguments = [start] if length is None else [start, length]
    template = f"unhex(substring(@a, ({start_sql}) * 2 - 1{count}))"
    return once(template, fragment("hex({0})", value), *arguments)


def _trim(node: exp.Expr) -> exp.Expr:
    value, characters = as_text(node.this), node.args.get("expression")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), "trim")
    if is_bytes(value):
        return _trim_bytes(node, value, characters, name)
    if characters is None:
        return fragment(f"{name}({{0}}, {_WHITE_SPACE})", value)
    return fragment(f"{name}({{0}}, {{1}})", value, characters)


def _bytes_to_characters(name: str) -> str:
    """Return SQL that maps each byte of a hexadecimal text to one character.

    With it, functions that take a set of characters, such as TRIM, also work on a set of bytes.
    """
    characters = f"list_transform(regexp_extract_all({name}, '..'), lambda _h: chr(256 + CAST('0x' || _h AS INT)))"
    return f"coalesce(array_to_string({characters}, ''), '')"


def _characters_to_bytes(text: str) -> str:
    """Return SQL that maps the result of `_bytes_to_characters` back to bytes."""
    bytes_sql = f"list_transform(string_split({text}, ''), lambda _c: printf('%02X', ord(_c) - 256))"
    return f"CASE WHEN {text} = '' THEN ''::BLOB ELSE unhex(array_to_string({bytes_sql}, '')) END"


def _trim_bytes(node: exp.Expr, value: exp.Expr, characters: exp.Expr | None, name: str) -> exp.Expr:
    if characters is None:
        unsupported(node, "TRIM of BYTES without the bytes to trim")
    trimmed = f"{name}({_bytes_to_characters('@a')}, {_bytes_to_characters('@b')})"
    body = f"CASE WHEN @a IS NOT NULL AND @b IS NOT NULL THEN {_characters_to_bytes(trimmed)} END"
    return once(body, fragment("hex({0})", value), fragment("hex({0})", characters))


def _pad(node: exp.Expr) -> exp.Expr:
    value, length = as_text(node.this), node.expression
    fill = node.args.get("fill_pattern")
    name = "lpad" if node.args.get("is_left") else "rpad"
    if is_bytes(value):
        pattern = fragment("hex({0})", fill) if fill is not None else fragment("'20'")
        template = f"unhex({name}(@a, CAST({_padded_length(node)} * 2 AS INT), {_fill(node)}))"
        return once(template, fragment("hex({0})", value), length, pattern)
    pattern = fill if fill is not None else fragment("' '")
    return once(f"{name}(@a, CAST({_padded_length(node)} AS INT), {_fill(node)})", value, length, pattern)


def _fill(node: exp.Expr) -> str:
    return f"CASE WHEN @c = '' THEN {fail(node, 'Third argument (pad pattern) cannot be empty')} ELSE @c END"


def _padded_length(node: exp.Expr) -> str:
    failure = fail(node, "Second argument (output size) cannot be negative")
    too_large_failure = fail(node, f"Output of padding is longer than {MAX_TEXT_BYTES} bytes")
    return f"(CASE WHEN @b < 0 THEN {failure} WHEN @b > {MAX_TEXT_BYTES} THEN {too_large_failure} ELSE @b END)"


def _replace(node: exp.Expr) -> exp.Expr:
    value, old, new = as_text(node.this), node.expression, node.args["replacement"]
    if is_bytes(value):
        return _replace_bytes(value, old, new)
    if _cannot_grow(old, new):
        return fragment("replace({0}, {1}, {2})", value, old, new)
    return once(f"replace(@a, @b, {bounded_replacement(node)})", value, old, new)


def _cannot_grow(old: exp.Expr, new: exp.Expr) -> bool:
    before, after = constant_text(old), constant_text(new)
    return before is not None and after is not None and len(after.encode()) <= len(before.encode())


def _replace_bytes(value: exp.Expr, old: exp.Expr, new: exp.Expr) -> exp.Expr:
    texts = [fragment(_SEPARATED_BYTES, part) for part in (value, old, new)]
    return fragment("unhex(replace(CASE WHEN {1} = '' THEN {0} ELSE replace({0}, {1}, {2}) END, 'x', ''))", *texts)


def _concat(node: exp.Expr) -> exp.Expr:
    """Lower CONCAT to `||`, which is NULL if any part is, unlike DuckDB's concat."""
    parts = [_as_joinable(part) for part in node.expressions]
    if len(parts) == 1:
        return fragment("({0})", parts[0])
    return fragment(" || ".join(f"{{{index}}}" for index in range(len(parts))), *parts)


def _as_joinable(part: exp.Expr) -> exp.Expr:
    kind = kind_of(part)
    if kind is None or kind in (Kind.STRING, Kind.BYTES, Kind.ARRAY):
        return part
    return cast_to(part, part, STRING)


def _concat_operator(node: exp.Expr) -> exp.Expr:
    return exp.DPipe(this=_as_joinable(node.this), expression=_as_joinable(node.expression), safe=True)


def _split(node: exp.Expr) -> exp.Expr:
    """Lower SPLIT: an empty text has one empty part; an empty delimiter splits into characters."""
    value, delimiter = as_text(node.this), node.expression
    if is_bytes(value):
        return _split_bytes(node, value, delimiter)
    if constant_text(delimiter):
        return fragment("string_split({0}, {1})", value, delimiter)
    return once("CASE WHEN @b IS NULL THEN NULL WHEN @a = '' THEN [''] ELSE string_split(@a, @b) END", value, delimiter)


def _split_bytes(node: exp.Expr, value: exp.Expr, delimiter: exp.Expr) -> exp.Expr:
    if constant_text(delimiter) is not None:
        unsupported(node, "SPLIT of BYTES without a delimiter of BYTES")
    texts = [fragment(_SEPARATED_BYTES, part) for part in (value, delimiter)]
    single_bytes = "regexp_extract_all(@a, 'x..')"
    parts = f"CASE WHEN @b = '' AND @a <> '' THEN {single_bytes} WHEN @b IS NOT NULL THEN string_split(@a, @b) END"
    return once(f"list_transform({parts}, lambda _p: unhex(replace(_p, 'x', '')))", *texts)


def _position(node: exp.Expr) -> exp.Expr:
    value, part = as_text(node.this), as_text(node.args["substr"])
    if node.args.get("position") is not None or node.args.get("occurrence") is not None:
        return _nth_position(node, value, part)
    if is_bytes(value):
        return fragment(
            "(instr({0}, {1}) + 2) // 3", fragment(_SEPARATED_BYTES, value), fragment(_SEPARATED_BYTES, part)
        )
    return fragment("instr({0}, {1})", value, part, operation=TextPosition())


def _nth_position(node: exp.Expr, value: exp.Expr, part: exp.Expr) -> exp.Expr:
    """Lower INSTR: list all positions of the part, and choose one; from the end if the start position is negative."""
    start = node.args.get("position") or exp.Literal.number(1)
    count = node.args.get("occurrence") or exp.Literal.number(1)
    failure = fail(node, "INSTR position cannot be 0"), fail(node, "INSTR occurrence must be positive")
    size, slice_sql = "length(@a)", "substring(@a, _i, length(@b))"
    if is_bytes(value):
        value, part = fragment("hex({0})", value), fragment("hex({0})", part)
        size, slice_sql = "length(@a) // 2", "substring(@a, _i * 2 - 1, length(@b))"
    positions = f"list_filter(range(1, {size} + 1), lambda _i: {slice_sql} = @b)"
    from_front = f"list_filter({positions}, lambda _i: _i >= @c)[@d]"
    from_back = f"list_reverse(list_filter({positions}, lambda _i: _i <= {size} + @c + 1))[@d]"
    body = (
        f"CASE WHEN @c = 0 THEN {failure[0]} WHEN @d < 1 THEN {failure[1]} WHEN @a IS NULL OR @b IS NULL OR @c IS NULL"
    )
    body += f" OR @d IS NULL THEN NULL WHEN @c > 0 THEN coalesce({from_front}, 0) ELSE coalesce({from_back}, 0) END"
    return once(body, value, part, start, count)


def _collate(node: exp.Expr) -> exp.Expr:
    """Lower COLLATE; the case-insensitive collation `und:ci` becomes DuckDB's NOCASE."""
    name = constant_text(node.expression)
    if name == "und:ci":
        return fragment("{0} COLLATE NOCASE", node.this)
    value: exp.Expr = node.this
    return value if name == "" or is_null(node.expression) else unsupported(node, f"The collation '{name}'")


def _translate_function(node: exp.Expr) -> exp.Expr:
    source, target = source_and_target(node)
    if has_duplicate_characters(node, source):
        return fragment("NULL")
    has_duplicates = "@b <> '' AND length(@b) <> len(list_distinct(string_split(@b, '')))"
    is_constant = constant_text(source) is not None
    guard = "@b" if is_constant else f"CASE WHEN {has_duplicates} THEN {fail(node, DUPLICATE)} ELSE @b END"
    if not is_bytes(node.this):
        return once(f"translate(@a, {guard}, @c)", as_text(node.this), source, target)
    parts = [fragment("hex({0})", part) for part in (node.this, source, target)]
    translated = f"translate({_bytes_to_characters('@a')}, {guard.replace('@b', _bytes_to_characters('@b'))}, {_bytes_to_characters('@c')})"
    return once(
        f"CASE WHEN @a IS NOT NULL AND @b IS NOT NULL AND @c IS NOT NULL THEN {_characters_to_bytes(translated)} END",
        *parts,
    )


def _normalize(node: exp.Expr) -> exp.Expr:
    form = str(node.args["form"].name).upper() if node.args.get("form") else "NFC"
    value = as_text(node.this)
    if form != "NFC":
        unsupported(node, f"The form {form} of {function_name(node)}")
    return fragment("nfc_normalize(lower({0}))" if node.args.get("is_casefold") else "nfc_normalize({0})", value)


_MAX_COMPARISONS: Final = 4_000_000
# DuckDB's levenshtein compares bytes. So if the texts are not ASCII, each distinct character that occurs in them is
# first replaced by a single-byte character.
_DISTINCT_CHARACTERS: Final = "array_to_string(list_distinct(string_split(@a || @b, '')), '')"
_MAX_DISTINCT_CHARACTERS: Final = 127
_SINGLE_BYTES: Final = (
    f"array_to_string(list_transform(range(1, {_MAX_DISTINCT_CHARACTERS + 1}), lambda _n: chr(_n::INT)), '')"
)


def _distance(node: exp.Expr) -> exp.Expr:
    value, other = as_text(node.this), as_text(node.expression)
    if is_bytes(value):
        value, other = (_bytes_as_characters(part) for part in (value, other))
    # The running time grows with the product of both lengths, and DuckDB cannot interrupt the function.
    too_long_failure = fail(node, "EDIT_DISTANCE of texts that are too long")
    too_many_failure = fail(
        node, f"EDIT_DISTANCE of texts of more than {_MAX_DISTINCT_CHARACTERS} different characters"
    )
    as_bytes = ", ".join(f"translate({name}, {_DISTINCT_CHARACTERS}, {_SINGLE_BYTES})" for name in ("@a", "@b"))
    distance = (
        f"CASE WHEN strlen(@a) * strlen(@b) > {_MAX_COMPARISONS} THEN {too_long_failure}"
        " WHEN strlen(@a) + strlen(@b) = length(@a) + length(@b) THEN levenshtein(@a, @b)"
        f" WHEN length({_DISTINCT_CHARACTERS}) > {_MAX_DISTINCT_CHARACTERS} THEN {too_many_failure} ELSE levenshtein({as_bytes}) END"
    )
    limit = node.args.get("max_dist")
    if limit is None:
        return once(distance, value, other)
    negative_failure = fail(node, "EDIT_DISTANCE needs a max_distance that is not negative")
    body = f"CASE WHEN @c < 0 THEN {negative_failure} WHEN @c IS NOT NULL AND @a IS NOT NULL AND @b IS NOT NULL THEN least({distance}, @c) END"
    return once(body, value, other, limit)


def _bytes_as_characters(value: exp.Expr) -> exp.Expr:
    return once(f"CASE WHEN @a IS NOT NULL THEN {_bytes_to_characters('@a')} END", fragment("hex({0})", value))


def _upper_or_lower(node: exp.Expr) -> exp.Expr:
    if kind_of(node.this) in (Kind.ARRAY, Kind.STRUCT):
        unsupported(node, f"{function_name(node)} of an array or a struct")
    return _LETTER_CASE_RULES[type(node)](node)


def _map_bytes(body: str) -> str:
    """Return SQL that replaces each byte of @a by `body`; there, the byte is `_p`, as two hexadecimal digits."""
    return f"unhex(array_to_string(list_transform(regexp_extract_all(hex(@a), '..'), lambda _p: {body}), ''))"


def _shift_letters(low: str, high: str, step: int) -> str:
    shifted = f"printf('%02X', CAST('0x' || _p AS INT) + {step})"
    return _map_bytes(f"CASE WHEN _p BETWEEN '{low}' AND '{high}' THEN {shifted} ELSE _p END")


def _join_codes(character: str) -> str:
    """Return SQL that joins the codes in the array @a to one text; `character` is the text of the code `_c`."""
    return f"array_to_string(list_transform(@a, lambda _c: {character}), '')"


_TWO_DIGITS: Final = "printf('%02X', _c)"
_HAS_NULL: Final = "@a IS NULL OR list_contains(list_transform(@a, lambda _c: _c IS NULL), true)"
_HAS_INVALID: Final = "list_contains(list_transform(@a, lambda _c: {}), true)".format
_IS_LONG: Final = f"length(@a) > {MAX_CHARACTERS}"
_LETTER: Final = "substring(lower(@a), _i, 1)"
_TITLE_LETTER: Final = (
    f"CASE WHEN _i = 1 OR contains(@b, substring(@a, _i - 1, 1)) THEN upper({_LETTER}) ELSE {_LETTER} END"
)
# Matches, in hexadecimal digits, a run of ASCII characters, one longer UTF-8 character, or one byte of invalid UTF-8.
_TAIL: Final = "[89AB]."
_UTF8: Final = (
    f"(?:[0-7].)+|(?:C[2-9A-F]|D.){_TAIL}|(?:E0[AB].|E[1-9A-CEF]{_TAIL}|ED[89].){_TAIL}"
    f"|(?:F0[9AB].|F[1-3]{_TAIL}|F48.){_TAIL}{_TAIL}|.."
)
# Each byte of invalid UTF-8 becomes U+FFFD; DuckDB's decode would fail instead.
_VALID_CHARACTER: Final = "CASE WHEN length(_h) = 2 AND _h >= '80' THEN chr(65533) ELSE decode(unhex(_h)) END"
_VALID_TEXT: Final = (
    f"array_to_string(list_transform(regexp_extract_all(hex(@a), '{_UTF8}'), lambda _h: {_VALID_CHARACTER}), '')"
)

_TEMPLATES: Final[Mapping[Key, Template]] = {
    exp.Length: ByType("length({0})", "octet_length({0})"),
    exp.ByteLength: ByType("strlen({0})", "octet_length({0})"),
    exp.Left: ByType("left(@a, @b)", Over("hex({0})", "unhex(left(@a, (@b) * 2))")),
    exp.Right: ByType("right(@a, @b)", Over("hex({0})", "unhex(right(@a, (@b) * 2))")),
    exp.Repeat: ByType(
        Checked(f"@b < 0 OR @b * strlen(@a) > {MAX_TEXT_BYTES}", "repeat(@a, @checked)", "@b"),
        Checked(f"@b < 0 OR @b * octet_length(@a) > {MAX_TEXT_BYTES}", "repeat(@a, @checked)", "@b"),
    ),
    exp.StartsWith: ByType("starts_with({0}, {1})", "starts_with(hex({0}), hex({1}))"),
    exp.EndsWith: ByType("suffix({0}, {1})", "suffix(hex({0}), hex({1}))"),
    # DuckDB's reverse keeps grapheme clusters together, so it is used only if each character is a single byte.
    exp.Reverse: ByType(
        Checked(
            _IS_LONG,
            "CASE WHEN strlen(@a) = length(@a) THEN reverse(@a)"
            " ELSE array_to_string(list_reverse(string_split(@checked, '')), '') END",
            "@a",
        ),
        "CASE WHEN @a IS NOT NULL THEN unhex(array_to_string(list_reverse(regexp_extract_all(hex(@a), '..')), '')) END",
    ),
    exp.ToCodePoints: ByType(
        Checked(
            _IS_LONG,
            "CASE WHEN @a = '' THEN [] ELSE list_transform(string_split(@checked, ''), lambda _c: ord(_c)::BIGINT) END",
            "@a",
        ),
        "list_transform(regexp_extract_all(hex({0}), '..'), lambda _p: CAST('0x' || _p AS BIGINT))",
    ),
    exp.CodePointsToString: Checked(
        _HAS_INVALID("_c < 0 OR _c > 1114111 OR (_c BETWEEN 55296 AND 57343)"),
        f"CASE WHEN {_HAS_NULL} THEN NULL ELSE {_join_codes('chr(_c::INT)')} END",
    ),
    exp.CodePointsToBytes: Checked(
        _HAS_INVALID("_c < 0 OR _c > 255"),
        f"CASE WHEN {_HAS_NULL} THEN NULL ELSE unhex({_join_codes(_TWO_DIGITS)}) END",
    ),
    **dict.fromkeys(
        (exp.Unicode, exp.Ascii),
        ByType(
            "CASE WHEN @a = '' THEN 0 ELSE ord(@a)::BIGINT END",
            Over("hex({0})", "CASE WHEN @a = '' THEN 0 ELSE CAST('0x' || left(@a, 2) AS BIGINT) END"),
        ),
    ),
    exp.Chr: "CASE WHEN @a = 0 THEN '' ELSE chr(@a::INT) END",
    exp.Initcap: Checked(
        _IS_LONG,
        "CASE WHEN @b IS NULL THEN NULL WHEN @a = '' THEN '' ELSE"
        f" array_to_string(list_transform(range(1, length(@checked) + 1), lambda _i: {_TITLE_LETTER}), '') END",
        "@a",
    ),
    exp.SafeConvertBytesToString: f"coalesce(try(decode(@a)), {_VALID_TEXT})",
}
_LETTER_CASE_RULES: Final = rules_from_templates(
    WORDS,
    STRINGS,
    {
        exp.Upper: ByType("upper({0})", _shift_letters("61", "7A", -32)),
        exp.Lower: ByType("lower({0})", _shift_letters("41", "5A", 32)),
    },
).nodes
_TABLE: Final = rules_from_templates(WORDS, STRINGS, _TEMPLATES)

RULES = RuleSet(
    nodes={
        **_TABLE.nodes,
        exp.Collate: _collate,
        exp.Substring: _substring,
        exp.Trim: _trim,
        exp.Pad: _pad,
        exp.Replace: _replace,
        exp.Concat: _concat,
        exp.DPipe: _concat_operator,
        exp.Split: _split,
        exp.StrPosition: _position,
        **dict.fromkeys((exp.Upper, exp.Lower), _upper_or_lower),
        exp.Translate: _translate_function,
        exp.Normalize: _normalize,
        exp.Levenshtein: _distance,
        exp.Soundex: lambda node: unsupported(node, "SOUNDEX"),
    },
    before_children=FOLDED,
)


# Splits bytes into single ones, as pairs of hexadecimal digits. But an unprintable byte stays together with characters
# after it that are hexadecimal digits: these would extend its escape `\x..`, so they are escaped as well.
_BYTES_AND_ESCAPE_TAILS: Final = (
    "regexp_extract_all(hex(@a), '(?:0[0-8BCEF]|1.|7F|[89A-F].)(?:3[0-9]|4[1-6]|6[1-6])*|..')"
)
_CONTROL: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"


def _printf(node: exp.Expr, spec: str, value: exp.Expr, counts: Sequence[exp.Expr | None]) -> exp.Expr:
    parts = [text_part(spec), *(_count(node, count) for count in counts if count is not None), value]
    return fragment(f"printf({placeholders(len(parts))})", *parts)


def _count(node: exp.Expr, count: exp.Expr) -> exp.Expr:
    too_wide_failure = fail(node, "So wide a field in FORMAT is too large")
    return once(f"(CASE WHEN @a > {MAX_WIDTH} THEN {too_wide_failure} ELSE @a END)::INT", count)


def _escape_bytes(*quotes: str) -> str:
    quote_codes = ", ".join(f"'{ord(quote):X}'" for quote in ("\\", *quotes))
    escaped = (
        r"CASE WHEN _h = '09' THEN '\t' WHEN _h = '0A' THEN '\n' WHEN _h = '0D' THEN '\r'"
        rf" WHEN _h IN ({quote_codes}) THEN '\' || chr(('0x' || _h)::INT)"
        " WHEN length(_h) = 2 AND _h BETWEEN '20' AND '7E' THEN chr(('0x' || _h)::INT)"
        r" ELSE regexp_replace(lower(_h), '(..)', '\\x\1', 'g') END"
    )
    return f"coalesce(array_to_string(list_transform({_BYTES_AND_ESCAPE_TAILS}, lambda _h: {escaped}), ''), '')"


def _escape_text(text: str) -> str:
    """Return SQL that escapes the backslashes and control characters of a text, but not its quotes."""
    escaped = text
    for letter, code in (("\\", 92), ("n", 10), ("r", 13), ("t", 9)):
        escaped = f"replace({escaped}, chr({code}), '\\{letter}')"
    escape_character = rf"lambda _c: CASE WHEN regexp_matches(_c, '{_CONTROL}') THEN '\x' || lower(hex(_c)) ELSE _c END"
    escaped_characters = f"array_to_string(list_transform(string_split({escaped}, ''), {escape_character}), '')"
    return f"CASE WHEN regexp_matches({text}, '{_CONTROL}') THEN {escaped_characters} ELSE {escaped} END"


def _quote(text: str) -> str:
    """Return SQL that puts the text in double quotes, or in single quotes if double quotes are the only ones in it."""
    escaped = _escape_text(text)
    return (
        f"CASE WHEN contains({text}, '\"') AND NOT contains({text}, '''') THEN '''' || ({escaped}) || ''''"
        rf""" ELSE '"' || replace(({escaped}), '"', '\"') || '"' END"""
    )


# The number of digits after the point of exact numbers.
_DECIMALS: Final[Mapping[Kind, int]] = {Kind.NUMERIC: 9, Kind.BIGNUMERIC: 18}
_QUOTES: Final[Sequence[str]] = ('"', "'", "`")
_LITERALS: Final[Mapping[Kind, str]] = {
    Kind.BYTES: (
        "CASE WHEN regexp_matches(hex(@a), '^(..)*22') AND NOT regexp_matches(hex(@a), '^(..)*27')"
        f" THEN 'b''' || {_escape_bytes()} || '''' ELSE 'b\"' || {_escape_bytes(_QUOTES[0])} || '\"' END"
    ),
    Kind.STRING: _quote("@a"),
    Kind.JSON: f"'JSON ' || {_quote('@a::VARCHAR')}",
}


class _FormatSql:
    decimals, quotes, literals = _DECIMALS, _QUOTES, _LITERALS

    def joined(self, parts: Sequence[exp.Expr]) -> exp.Expr:
        return fragment(" || ".join(f"{{{index}}}" for index in range(len(parts))), *parts)

    def printf(self, node: exp.Expr, field: Field, letter: str, value: exp.Expr) -> exp.Expr:
        return _printf(node, field.spec.text(letter), value, field.counts)

    def pad(self, node: exp.Expr, field: Field, value: exp.Expr) -> exp.Expr:
        if field.spec.padding is None:
            return value
        max_length = field.precision if field.spec.letter in TEXT_LETTERS else None
        return _printf(node, field.spec.padding, value, (field.width, max_length))

    def precision(self, node: exp.Expr, count: exp.Expr) -> exp.Expr:
        return once("CASE WHEN @a < 0 THEN 1 ELSE @a END", _count(node, count))

    def digits(self, spec: Specifier, letter: str) -> str:
        min_digits = "@b" if spec.precision == "*" else str(int(spec.precision or 1))
        flag = "#" if spec.is_alternate and letter == "o" else ""
        digits = f"ltrim(printf('%{flag}0*{letter}', {min_digits} + (@a < 0)::INT, @a), '-')"
        if min_digits in ("@b", "0"):
            digits = f"CASE WHEN @a = 0 AND {min_digits} = 0 THEN '' ELSE {digits} END"
        return digits

    def zeros(self, width: int, sign: str, digits: str) -> str:
        return f"repeat('0', {width} - length({sign}) - length({digits}))"

    def lacks_flags(self, spec: Specifier) -> bool:
        return spec.is_grouped or (spec.is_alternate and spec.letter not in "fF")

    def fraction_digits(self, spec: Specifier) -> str:
        """Return SQL for the digits of a fraction, with the decimal point that printf's flag `#` requires.

        DuckDB's printf omits the point before an exponent, and prints `.0` instead of a point at the end.
        """
        digits = "printf({0}, abs(@a))"
        if not spec.is_alternate or spec.letter in "fF":
            return digits
        digits = f"regexp_replace({digits}, '^(.)([eE])', '\\1.\\2')"
        if spec.letter in "eE":
            return digits
        decimals = int(spec.precision or 6)
        return f"regexp_replace({digits}, '^([0-9]{{{decimals},{decimals}}})\\.0$', '\\1.')"

    def exact_digits(self, decimals: int, *, with_point: bool) -> str:
        digits = f"ltrim(round(@a, {decimals})::VARCHAR, '-')"
        return f"({digits} || '.')" if with_point and not decimals else digits

    def without_leading(self, text: str, mark: str) -> str:
        return f"ltrim({text}, '{mark}')"

    def indented(self, node: exp.Expr, json_value: exp.Expr) -> exp.Expr:
        return indent(json_value)

    def escape_bytes(self, *quotes: str) -> str:
        return _escape_bytes(*quotes)

    def once_if_present(self, template: str, value: exp.Expr) -> exp.Expr:
        return once(f"CASE WHEN @a IS NOT NULL THEN {template} END", value)


FORMAT_RULES = Formats(WORDS, _FormatSql(), cast_to, JSON_TEXT).rules()
