"""Rules for text functions, functions of single characters, and FORMAT().

Positions are counted in code points from one; negative positions are counted from the end. NULL arguments give NULL.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import (
    COMMON_SQL,
    convert_implicitly,
    failure_sql,
    fill_template,
    size_checked_replacement_sql,
)
from cordwood.engines.duckdb.rules.casts import cast_to
from cordwood.engines.duckdb.rules.json_functions import JSON_PRINTER, indented_json
from cordwood.model.datatype import Kind
from cordwood.sql.datatypes import STRING, kind_of
from cordwood.sql.lowering import (
    RuleSet,
    bigquery_function_name,
    fragment_node,
    placeholders_text,
    raise_unsupported,
    string_literal_node,
)
from cordwood.sql.nodes import TextPosition, constant_int, constant_text, is_null
from cordwood.sql.rules.formats import (
    MAX_FIELD_WIDTH,
    TEXT_CONVERSION_LETTERS,
    FormatField,
    FormatRules,
    FormatSpecifier,
)
from cordwood.sql.rules.functions import (
    MAX_PADDED_TEXT_BYTES,
    MAX_SPLIT_CHARACTERS,
    STRING_FUNCTIONS,
    CheckedTemplate,
    FunctionKey,
    FunctionTemplate,
    TextAndBytesTemplates,
    TransformedArgumentTemplate,
    rules_from_templates,
)
from cordwood.sql.rules.strings import (
    CONSTANT_FOLDING_RULES,
    DUPLICATE_CHARACTER_MESSAGE,
    has_duplicate_characters,
    read_translate_arguments,
)

# SQL for all characters of Unicode's white space, which BigQuery's TRIM removes by default.
_WHITE_SPACE_SQL: Final = (
    "' ' || chr(9) || chr(10) || chr(11) || chr(12) || chr(13) || chr(133) || chr(160) || chr(5760) || "
    + " || ".join(f"chr({code})" for code in (*range(8192, 8203), 8232, 8233, 8239, 8287, 12288))
)


_MAX_SUBSTRING_CHARACTERS: Final = 1 << 30
# SQL for bytes as hexadecimal digits, with an `x` before each byte. Because of the `x`, a search in these digits cannot
# find a match that begins in the middle of a byte.
_SEPARATED_HEX_BYTES_SQL: Final = r"regexp_replace(hex({0}), '(..)', 'x\1', 'g')"


def convert_variant_to_text(node: exp.Expr) -> exp.Expr:
    return convert_implicitly(node, Kind.STRING) if kind_of(node) is Kind.VARIANT else node


def is_bytes(node: exp.Expr) -> bool:
    return kind_of(node) is Kind.BYTES


def _translate_substring(node: exp.Expr) -> exp.Expr:
    value, start, length = convert_variant_to_text(node.this), node.args["start"], node.args.get("length")
    if is_bytes(value):
        return _substring_of_bytes(node, value, start, length)
    position = constant_int(start)
    if position is not None and position > 0:
        return _substring_from_front(node, value, start, length)
    start_sql = "CASE WHEN @b > 0 THEN @b WHEN @b = 0 OR @b < -length(@a) THEN 1 ELSE length(@a) + @b + 1 END"
    if length is None:
        return fill_template(f"substring(@a, {start_sql})", value, start)
    count = _checked_length_sql(node, length, "@c")
    return fill_template(f"substring(@a, {start_sql}, {count})", value, start, length)


def _substring_from_front(node: exp.Expr, value: exp.Expr, start: exp.Expr, length: exp.Expr | None) -> exp.Expr:
    if length is None:
        return fragment_node("substring({0}, {1})", value, start)
    return fill_template(f"substring(@a, @b, {_checked_length_sql(node, length, '@c')})", value, start, length)


def _checked_length_sql(node: exp.Expr, length: exp.Expr, name: str) -> str:
    """Return SQL for the length that SUBSTR gets; the SQL fails for a negative length, and reduces a large one.

    A large length is reduced to `_MAX_SUBSTRING_CHARACTERS`, which DuckDB accepts, and which is longer than any text.
    """
    constant_value = constant_int(length)
    if constant_value is not None and 0 <= constant_value <= _MAX_SUBSTRING_CHARACTERS:
        return name
    failure = failure_sql(node, "Third argument in SUBSTR() cannot be negative")
    return f"CASE WHEN {name} < 0 THEN {failure} WHEN {name} > {_MAX_SUBSTRING_CHARACTERS} THEN {_MAX_SUBSTRING_CHARACTERS} ELSE {name} END"


def _substring_of_bytes(node: exp.Expr, value: exp.Expr, start: exp.Expr, length: exp.Expr | None) -> exp.Expr:
    size = "(length(@a) // 2)"
    start_sql = f"CASE WHEN @b > 0 THEN @b WHEN @b = 0 OR @b < -{size} THEN 1 ELSE {size} + @b + 1 END"
    count = f", ({_checked_length_sql(node, length, '@c')}) * 2" if length is not None else ""
    arguments = [start] if length is None else [start, length]
    template = f"unhex(substring(@a, ({start_sql}) * 2 - 1{count}))"
    return fill_template(template, fragment_node("hex({0})", value), *arguments)


def _translate_trim(node: exp.Expr) -> exp.Expr:
    value, characters = convert_variant_to_text(node.this), node.args.get("expression")
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")), "trim")
    if is_bytes(value):
        return _trim_bytes(node, value, characters, name)
    if characters is None:
        return fragment_node(f"{name}({{0}}, {_WHITE_SPACE_SQL})", value)
    return fragment_node(f"{name}({{0}}, {{1}})", value, characters)


def _bytes_to_characters_sql(name: str) -> str:
    """Return SQL that maps each byte, given as two hexadecimal digits, to one character.

    With these characters, functions that take a set of characters, such as TRIM, can also be used for sets of bytes.
    """
    characters = f"list_transform(regexp_extract_all({name}, '..'), lambda _h: chr(256 + CAST('0x' || _h AS INT)))"
    return f"coalesce(array_to_string({characters}, ''), '')"


def _characters_to_bytes_sql(text: str) -> str:
    """Return SQL that maps the result of `_bytes_to_characters_sql` back to bytes."""
    bytes_sql = f"list_transform(string_split({text}, ''), lambda _c: printf('%02X', ord(_c) - 256))"
    return f"CASE WHEN {text} = '' THEN ''::BLOB ELSE unhex(array_to_string({bytes_sql}, '')) END"


def _trim_bytes(node: exp.Expr, value: exp.Expr, characters: exp.Expr | None, name: str) -> exp.Expr:
    if characters is None:
        raise_unsupported(node, "TRIM of BYTES without the bytes to trim")
    trimmed = f"{name}({_bytes_to_characters_sql('@a')}, {_bytes_to_characters_sql('@b')})"
    body = f"CASE WHEN @a IS NOT NULL AND @b IS NOT NULL THEN {_characters_to_bytes_sql(trimmed)} END"
    return fill_template(body, fragment_node("hex({0})", value), fragment_node("hex({0})", characters))


def _translate_pad(node: exp.Expr) -> exp.Expr:
    value, length = convert_variant_to_text(node.this), node.expression
    fill = node.args.get("fill_pattern")
    name = "lpad" if node.args.get("is_left") else "rpad"
    if is_bytes(value):
        pattern = fragment_node("hex({0})", fill) if fill is not None else fragment_node("'20'")
        template = (
            f"unhex({name}(@a, CAST({_checked_padded_length_sql(node)} * 2 AS INT), {_checked_pad_pattern_sql(node)}))"
        )
        return fill_template(template, fragment_node("hex({0})", value), length, pattern)
    pattern = fill if fill is not None else fragment_node("' '")
    return fill_template(
        f"{name}(@a, CAST({_checked_padded_length_sql(node)} AS INT), {_checked_pad_pattern_sql(node)})",
        value,
        length,
        pattern,
    )


def _checked_pad_pattern_sql(node: exp.Expr) -> str:
    return f"CASE WHEN @c = '' THEN {failure_sql(node, 'Third argument (pad pattern) cannot be empty')} ELSE @c END"


def _checked_padded_length_sql(node: exp.Expr) -> str:
    failure = failure_sql(node, "Second argument (output size) cannot be negative")
    too_large_failure = failure_sql(node, f"Output of padding is longer than {MAX_PADDED_TEXT_BYTES} bytes")
    return f"(CASE WHEN @b < 0 THEN {failure} WHEN @b > {MAX_PADDED_TEXT_BYTES} THEN {too_large_failure} ELSE @b END)"


def _translate_replace(node: exp.Expr) -> exp.Expr:
    value, old, new = convert_variant_to_text(node.this), node.expression, node.args["replacement"]
    if is_bytes(value):
        return _replace_bytes(value, old, new)
    if _replacement_cannot_grow(old, new):
        return fragment_node("replace({0}, {1}, {2})", value, old, new)
    return fill_template(f"replace(@a, @b, {size_checked_replacement_sql(node)})", value, old, new)


def _replacement_cannot_grow(old: exp.Expr, new: exp.Expr) -> bool:
    before, after = constant_text(old), constant_text(new)
    return before is not None and after is not None and len(after.encode()) <= len(before.encode())


def _replace_bytes(value: exp.Expr, old: exp.Expr, new: exp.Expr) -> exp.Expr:
    texts = [fragment_node(_SEPARATED_HEX_BYTES_SQL, part) for part in (value, old, new)]
    return fragment_node("unhex(replace(CASE WHEN {1} = '' THEN {0} ELSE replace({0}, {1}, {2}) END, 'x', ''))", *texts)


def _translate_concat(node: exp.Expr) -> exp.Expr:
    """Translate CONCAT into `||`, which is NULL if any part is NULL; DuckDB's `concat` would skip NULL parts."""
    parts = [_convert_for_concat(part) for part in node.expressions]
    if len(parts) == 1:
        return fragment_node("({0})", parts[0])
    return fragment_node(" || ".join(f"{{{index}}}" for index in range(len(parts))), *parts)


def _convert_for_concat(part: exp.Expr) -> exp.Expr:
    kind = kind_of(part)
    if kind is None or kind in (Kind.STRING, Kind.BYTES, Kind.ARRAY):
        return part
    return cast_to(part, part, STRING)


def _translate_concat_operator(node: exp.Expr) -> exp.Expr:
    return exp.DPipe(this=_convert_for_concat(node.this), expression=_convert_for_concat(node.expression), safe=True)


def _translate_split(node: exp.Expr) -> exp.Expr:
    """Translate SPLIT. An empty text has one part, which is empty; an empty delimiter splits a text into characters."""
    value, delimiter = convert_variant_to_text(node.this), node.expression
    if is_bytes(value):
        return _split_bytes(node, value, delimiter)
    if constant_text(delimiter):
        return fragment_node("string_split({0}, {1})", value, delimiter)
    return fill_template(
        "CASE WHEN @b IS NULL THEN NULL WHEN @a = '' THEN [''] ELSE string_split(@a, @b) END", value, delimiter
    )


def _split_bytes(node: exp.Expr, value: exp.Expr, delimiter: exp.Expr) -> exp.Expr:
    if constant_text(delimiter) is not None:
        raise_unsupported(node, "SPLIT of BYTES without a delimiter of BYTES")
    texts = [fragment_node(_SEPARATED_HEX_BYTES_SQL, part) for part in (value, delimiter)]
    single_bytes = "regexp_extract_all(@a, 'x..')"
    parts = f"CASE WHEN @b = '' AND @a <> '' THEN {single_bytes} WHEN @b IS NOT NULL THEN string_split(@a, @b) END"
    return fill_template(f"list_transform({parts}, lambda _p: unhex(replace(_p, 'x', '')))", *texts)


def _translate_position(node: exp.Expr) -> exp.Expr:
    value, part = convert_variant_to_text(node.this), convert_variant_to_text(node.args["substr"])
    if node.args.get("position") is not None or node.args.get("occurrence") is not None:
        return _nth_position(node, value, part)
    if is_bytes(value):
        return fragment_node(
            "(instr({0}, {1}) + 2) // 3",
            fragment_node(_SEPARATED_HEX_BYTES_SQL, value),
            fragment_node(_SEPARATED_HEX_BYTES_SQL, part),
        )
    return fragment_node("instr({0}, {1})", value, part, operation=TextPosition())


def _nth_position(node: exp.Expr, value: exp.Expr, part: exp.Expr) -> exp.Expr:
    """Translate INSTR by listing all positions of the searched part, and choosing one of them.

    If the start position is negative, the positions are counted from the end.
    """
    start = node.args.get("position") or exp.Literal.number(1)
    count = node.args.get("occurrence") or exp.Literal.number(1)
    failure = failure_sql(node, "INSTR position cannot be 0"), failure_sql(node, "INSTR occurrence must be positive")
    size, slice_sql = "length(@a)", "substring(@a, _i, length(@b))"
    if is_bytes(value):
        value, part = fragment_node("hex({0})", value), fragment_node("hex({0})", part)
        size, slice_sql = "length(@a) // 2", "substring(@a, _i * 2 - 1, length(@b))"
    positions = f"list_filter(range(1, {size} + 1), lambda _i: {slice_sql} = @b)"
    from_front = f"list_filter({positions}, lambda _i: _i >= @c)[@d]"
    from_back = f"list_reverse(list_filter({positions}, lambda _i: _i <= {size} + @c + 1))[@d]"
    body = (
        f"CASE WHEN @c = 0 THEN {failure[0]} WHEN @d < 1 THEN {failure[1]} WHEN @a IS NULL OR @b IS NULL OR @c IS NULL"
    )
    body += f" OR @d IS NULL THEN NULL WHEN @c > 0 THEN coalesce({from_front}, 0) ELSE coalesce({from_back}, 0) END"
    return fill_template(body, value, part, start, count)


def _translate_collate(node: exp.Expr) -> exp.Expr:
    """Translate COLLATE; the case-insensitive collation `und:ci` becomes DuckDB's NOCASE."""
    name = constant_text(node.expression)
    if name == "und:ci":
        return fragment_node("{0} COLLATE NOCASE", node.this)
    value: exp.Expr = node.this
    return value if name == "" or is_null(node.expression) else raise_unsupported(node, f"The collation '{name}'")


def _translate_translate(node: exp.Expr) -> exp.Expr:
    source, target = read_translate_arguments(node)
    if has_duplicate_characters(node, source):
        return fragment_node("NULL")
    has_duplicates = "@b <> '' AND length(@b) <> len(list_distinct(string_split(@b, '')))"
    is_constant = constant_text(source) is not None
    guard = (
        "@b"
        if is_constant
        else f"CASE WHEN {has_duplicates} THEN {failure_sql(node, DUPLICATE_CHARACTER_MESSAGE)} ELSE @b END"
    )
    if not is_bytes(node.this):
        return fill_template(f"translate(@a, {guard}, @c)", convert_variant_to_text(node.this), source, target)
    parts = [fragment_node("hex({0})", part) for part in (node.this, source, target)]
    translated = f"translate({_bytes_to_characters_sql('@a')}, {guard.replace('@b', _bytes_to_characters_sql('@b'))}, {_bytes_to_characters_sql('@c')})"
    return fill_template(
        f"CASE WHEN @a IS NOT NULL AND @b IS NOT NULL AND @c IS NOT NULL THEN {_characters_to_bytes_sql(translated)} END",
        *parts,
    )


def _translate_normalize(node: exp.Expr) -> exp.Expr:
    form = str(node.args["form"].name).upper() if node.args.get("form") else "NFC"
    value = convert_variant_to_text(node.this)
    if form != "NFC":
        raise_unsupported(node, f"The form {form} of {bigquery_function_name(node)}")
    return fragment_node("nfc_normalize(lower({0}))" if node.args.get("is_casefold") else "nfc_normalize({0})", value)


_MAX_EDIT_DISTANCE_COMPARISONS: Final = 4_000_000
# SQL for the distinct characters in two texts. DuckDB's `levenshtein` compares bytes, not characters. So before it
# compares texts that are not ASCII, each distinct character in them is replaced by a single-byte character.
_DISTINCT_CHARACTERS_SQL: Final = "array_to_string(list_distinct(string_split(@a || @b, '')), '')"
_MAX_EDIT_DISTANCE_DISTINCT_CHARACTERS: Final = 127
_ASCII_CHARACTERS_SQL: Final = f"array_to_string(list_transform(range(1, {_MAX_EDIT_DISTANCE_DISTINCT_CHARACTERS + 1}), lambda _n: chr(_n::INT)), '')"


def _translate_edit_distance(node: exp.Expr) -> exp.Expr:
    value, other = convert_variant_to_text(node.this), convert_variant_to_text(node.expression)
    if is_bytes(value):
        value, other = (_bytes_as_characters(part) for part in (value, other))
    # The lengths are limited, because the running time grows with their product, and DuckDB cannot interrupt the
    # function.
    too_long_failure = failure_sql(node, "EDIT_DISTANCE of texts that are too long")
    too_many_failure = failure_sql(
        node, f"EDIT_DISTANCE of texts of more than {_MAX_EDIT_DISTANCE_DISTINCT_CHARACTERS} different characters"
    )
    as_bytes = ", ".join(
        f"translate({name}, {_DISTINCT_CHARACTERS_SQL}, {_ASCII_CHARACTERS_SQL})" for name in ("@a", "@b")
    )
    distance = (
        f"CASE WHEN strlen(@a) * strlen(@b) > {_MAX_EDIT_DISTANCE_COMPARISONS} THEN {too_long_failure}"
        " WHEN strlen(@a) + strlen(@b) = length(@a) + length(@b) THEN levenshtein(@a, @b)"
        f" WHEN length({_DISTINCT_CHARACTERS_SQL}) > {_MAX_EDIT_DISTANCE_DISTINCT_CHARACTERS} THEN {too_many_failure} ELSE levenshtein({as_bytes}) END"
    )
    limit = node.args.get("max_dist")
    if limit is None:
        return fill_template(distance, value, other)
    negative_failure = failure_sql(node, "EDIT_DISTANCE needs a max_distance that is not negative")
    body = f"CASE WHEN @c < 0 THEN {negative_failure} WHEN @c IS NOT NULL AND @a IS NOT NULL AND @b IS NOT NULL THEN least({distance}, @c) END"
    return fill_template(body, value, other, limit)


def _bytes_as_characters(value: exp.Expr) -> exp.Expr:
    return fill_template(
        f"CASE WHEN @a IS NOT NULL THEN {_bytes_to_characters_sql('@a')} END", fragment_node("hex({0})", value)
    )


def _translate_upper_or_lower(node: exp.Expr) -> exp.Expr:
    if kind_of(node.this) in (Kind.ARRAY, Kind.STRUCT):
        raise_unsupported(node, f"{bigquery_function_name(node)} of an array or a struct")
    return _LETTER_CASE_RULES[type(node)](node)


def _map_bytes_sql(body: str) -> str:
    """Return SQL that replaces each byte of `@a` by the SQL `body`, where `_p` is the byte's two hexadecimal digits."""
    return f"unhex(array_to_string(list_transform(regexp_extract_all(hex(@a), '..'), lambda _p: {body}), ''))"


def _change_letter_case_sql(low: str, high: str, step: int) -> str:
    shifted = f"printf('%02X', CAST('0x' || _p AS INT) + {step})"
    return _map_bytes_sql(f"CASE WHEN _p BETWEEN '{low}' AND '{high}' THEN {shifted} ELSE _p END")


def _join_codes_sql(character: str) -> str:
    """Return SQL that joins a text for each code in the array `@a`; `character` is SQL for the text of a code `_c`."""
    return f"array_to_string(list_transform(@a, lambda _c: {character}), '')"


_TWO_HEX_DIGITS_SQL: Final = "printf('%02X', _c)"
_HAS_NULL_CODE_SQL: Final = "@a IS NULL OR list_contains(list_transform(@a, lambda _c: _c IS NULL), true)"
_HAS_INVALID_CODE_SQL: Final = "list_contains(list_transform(@a, lambda _c: {}), true)".format
_EXCEEDS_SPLIT_LIMIT_SQL: Final = f"length(@a) > {MAX_SPLIT_CHARACTERS}"
_LOWER_LETTER_SQL: Final = "substring(lower(@a), _i, 1)"
_TITLE_CASE_LETTER_SQL: Final = f"CASE WHEN _i = 1 OR contains(@b, substring(@a, _i - 1, 1)) THEN upper({_LOWER_LETTER_SQL}) ELSE {_LOWER_LETTER_SQL} END"
# Patterns for UTF-8 in hexadecimal digits: for a continuation byte, and for a segment of a text. A segment is a run of
# ASCII characters, one longer character, or one invalid byte.
_CONTINUATION_BYTE_PATTERN: Final = "[89AB]."
_UTF8_SEGMENT_PATTERN: Final = (
    f"(?:[0-7].)+|(?:C[2-9A-F]|D.){_CONTINUATION_BYTE_PATTERN}|(?:E0[AB].|E[1-9A-CEF]{_CONTINUATION_BYTE_PATTERN}|ED[89].){_CONTINUATION_BYTE_PATTERN}"
    f"|(?:F0[9AB].|F[1-3]{_CONTINUATION_BYTE_PATTERN}|F48.){_CONTINUATION_BYTE_PATTERN}{_CONTINUATION_BYTE_PATTERN}|.."
)
# SQL that decodes the segment `_h`. An invalid byte becomes U+FFFD, whereas DuckDB's `decode` would fail.
_UTF8_SEGMENT_TO_TEXT_SQL: Final = "CASE WHEN length(_h) = 2 AND _h >= '80' THEN chr(65533) ELSE decode(unhex(_h)) END"
_BYTES_TO_VALID_TEXT_SQL: Final = f"array_to_string(list_transform(regexp_extract_all(hex(@a), '{_UTF8_SEGMENT_PATTERN}'), lambda _h: {_UTF8_SEGMENT_TO_TEXT_SQL}), '')"

_TEMPLATE_BY_FUNCTION: Final[Mapping[FunctionKey, FunctionTemplate]] = {
    exp.Length: TextAndBytesTemplates("length({0})", "octet_length({0})"),
    exp.ByteLength: TextAndBytesTemplates("strlen({0})", "octet_length({0})"),
    exp.Left: TextAndBytesTemplates(
        "left(@a, @b)", TransformedArgumentTemplate("hex({0})", "unhex(left(@a, (@b) * 2))")
    ),
    exp.Right: TextAndBytesTemplates(
        "right(@a, @b)", TransformedArgumentTemplate("hex({0})", "unhex(right(@a, (@b) * 2))")
    ),
    exp.Repeat: TextAndBytesTemplates(
        CheckedTemplate(f"@b < 0 OR @b * strlen(@a) > {MAX_PADDED_TEXT_BYTES}", "repeat(@a, @checked)", "@b"),
        CheckedTemplate(f"@b < 0 OR @b * octet_length(@a) > {MAX_PADDED_TEXT_BYTES}", "repeat(@a, @checked)", "@b"),
    ),
    exp.StartsWith: TextAndBytesTemplates("starts_with({0}, {1})", "starts_with(hex({0}), hex({1}))"),
    exp.EndsWith: TextAndBytesTemplates("suffix({0}, {1})", "suffix(hex({0}), hex({1}))"),
    # DuckDB's `reverse` keeps grapheme clusters together, so it is used only if each character is a single byte.
    exp.Reverse: TextAndBytesTemplates(
        CheckedTemplate(
            _EXCEEDS_SPLIT_LIMIT_SQL,
            "CASE WHEN strlen(@a) = length(@a) THEN reverse(@a)"
            " ELSE array_to_string(list_reverse(string_split(@checked, '')), '') END",
            "@a",
        ),
        "CASE WHEN @a IS NOT NULL THEN unhex(array_to_string(list_reverse(regexp_extract_all(hex(@a), '..')), '')) END",
    ),
    exp.ToCodePoints: TextAndBytesTemplates(
        CheckedTemplate(
            _EXCEEDS_SPLIT_LIMIT_SQL,
            "CASE WHEN @a = '' THEN [] ELSE list_transform(string_split(@checked, ''), lambda _c: ord(_c)::BIGINT) END",
            "@a",
        ),
        "list_transform(regexp_extract_all(hex({0}), '..'), lambda _p: CAST('0x' || _p AS BIGINT))",
    ),
    exp.CodePointsToString: CheckedTemplate(
        _HAS_INVALID_CODE_SQL("_c < 0 OR _c > 1114111 OR (_c BETWEEN 55296 AND 57343)"),
        f"CASE WHEN {_HAS_NULL_CODE_SQL} THEN NULL ELSE {_join_codes_sql('chr(_c::INT)')} END",
    ),
    exp.CodePointsToBytes: CheckedTemplate(
        _HAS_INVALID_CODE_SQL("_c < 0 OR _c > 255"),
        f"CASE WHEN {_HAS_NULL_CODE_SQL} THEN NULL ELSE unhex({_join_codes_sql(_TWO_HEX_DIGITS_SQL)}) END",
    ),
    **dict.fromkeys(
        (exp.Unicode, exp.Ascii),
        TextAndBytesTemplates(
            "CASE WHEN @a = '' THEN 0 ELSE ord(@a)::BIGINT END",
            TransformedArgumentTemplate(
                "hex({0})", "CASE WHEN @a = '' THEN 0 ELSE CAST('0x' || left(@a, 2) AS BIGINT) END"
            ),
        ),
    ),
    exp.Chr: "CASE WHEN @a = 0 THEN '' ELSE chr(@a::INT) END",
    exp.Initcap: CheckedTemplate(
        _EXCEEDS_SPLIT_LIMIT_SQL,
        "CASE WHEN @b IS NULL THEN NULL WHEN @a = '' THEN '' ELSE"
        f" array_to_string(list_transform(range(1, length(@checked) + 1), lambda _i: {_TITLE_CASE_LETTER_SQL}), '') END",
        "@a",
    ),
    exp.SafeConvertBytesToString: f"coalesce(try(decode(@a)), {_BYTES_TO_VALID_TEXT_SQL})",
}
_LETTER_CASE_RULES: Final = rules_from_templates(
    COMMON_SQL,
    STRING_FUNCTIONS,
    {
        exp.Upper: TextAndBytesTemplates("upper({0})", _change_letter_case_sql("61", "7A", -32)),
        exp.Lower: TextAndBytesTemplates("lower({0})", _change_letter_case_sql("41", "5A", 32)),
    },
).by_node_class
_TEMPLATE_RULES: Final = rules_from_templates(COMMON_SQL, STRING_FUNCTIONS, _TEMPLATE_BY_FUNCTION)

RULES = RuleSet(
    by_node_class={
        **_TEMPLATE_RULES.by_node_class,
        exp.Collate: _translate_collate,
        exp.Substring: _translate_substring,
        exp.Trim: _translate_trim,
        exp.Pad: _translate_pad,
        exp.Replace: _translate_replace,
        exp.Concat: _translate_concat,
        exp.DPipe: _translate_concat_operator,
        exp.Split: _translate_split,
        exp.StrPosition: _translate_position,
        **dict.fromkeys((exp.Upper, exp.Lower), _translate_upper_or_lower),
        exp.Translate: _translate_translate,
        exp.Normalize: _translate_normalize,
        exp.Levenshtein: _translate_edit_distance,
        exp.Soundex: lambda node: raise_unsupported(node, "SOUNDEX"),
    },
    by_node_class_before_children=CONSTANT_FOLDING_RULES,
)


# SQL that splits bytes into groups, in hexadecimal digits. A group is usually a single byte. But an unprintable byte is
# in one group with the characters 0 to 9, a to f and A to F after it. These characters must also be escaped, because
# they would extend the escape `\x..` of the unprintable byte.
_ESCAPABLE_BYTE_GROUPS_SQL: Final = (
    "regexp_extract_all(hex(@a), '(?:0[0-8BCEF]|1.|7F|[89A-F].)(?:3[0-9]|4[1-6]|6[1-6])*|..')"
)
_CONTROL_CHARACTER_PATTERN: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"


def _printf_sql(node: exp.Expr, spec: str, value: exp.Expr, counts: Sequence[exp.Expr | None]) -> exp.Expr:
    parts = [
        string_literal_node(spec),
        *(_checked_width_or_precision(node, count) for count in counts if count is not None),
        value,
    ]
    return fragment_node(f"printf({placeholders_text(len(parts))})", *parts)


def _checked_width_or_precision(node: exp.Expr, count: exp.Expr) -> exp.Expr:
    too_wide_failure = failure_sql(node, "So wide a field in FORMAT is too large")
    return fill_template(f"(CASE WHEN @a > {MAX_FIELD_WIDTH} THEN {too_wide_failure} ELSE @a END)::INT", count)


def _escape_bytes_sql(*quotes: str) -> str:
    quote_codes = ", ".join(f"'{ord(quote):X}'" for quote in ("\\", *quotes))
    escaped = (
        r"CASE WHEN _h = '09' THEN '\t' WHEN _h = '0A' THEN '\n' WHEN _h = '0D' THEN '\r'"
        rf" WHEN _h IN ({quote_codes}) THEN '\' || chr(('0x' || _h)::INT)"
        " WHEN length(_h) = 2 AND _h BETWEEN '20' AND '7E' THEN chr(('0x' || _h)::INT)"
        r" ELSE regexp_replace(lower(_h), '(..)', '\\x\1', 'g') END"
    )
    return f"coalesce(array_to_string(list_transform({_ESCAPABLE_BYTE_GROUPS_SQL}, lambda _h: {escaped}), ''), '')"


def _escape_text_sql(text: str) -> str:
    """Return SQL that escapes the backslashes and control characters of a text, but not its quotes."""
    escaped = text
    for letter, code in (("\\", 92), ("n", 10), ("r", 13), ("t", 9)):
        escaped = f"replace({escaped}, chr({code}), '\\{letter}')"
    escape_character = rf"lambda _c: CASE WHEN regexp_matches(_c, '{_CONTROL_CHARACTER_PATTERN}') THEN '\x' || lower(hex(_c)) ELSE _c END"
    escaped_characters = f"array_to_string(list_transform(string_split({escaped}, ''), {escape_character}), '')"
    return (
        f"CASE WHEN regexp_matches({text}, '{_CONTROL_CHARACTER_PATTERN}') THEN {escaped_characters} ELSE {escaped} END"
    )


def _quote_text_sql(text: str) -> str:
    """Return SQL that puts the text in double quotes, or in single quotes if it has double but no single quotes."""
    escaped = _escape_text_sql(text)
    return (
        f"CASE WHEN contains({text}, '\"') AND NOT contains({text}, '''') THEN '''' || ({escaped}) || ''''"
        rf""" ELSE '"' || replace(({escaped}), '"', '\"') || '"' END"""
    )


# The number of digits after the decimal point of each exact numeric type.
_DECIMALS_BY_KIND: Final[Mapping[Kind, int]] = {Kind.NUMERIC: 9, Kind.BIGNUMERIC: 18}
_ESCAPED_QUOTES: Final[Sequence[str]] = ('"', "'", "`")
_LITERAL_SQL_BY_KIND: Final[Mapping[Kind, str]] = {
    Kind.BYTES: (
        "CASE WHEN regexp_matches(hex(@a), '^(..)*22') AND NOT regexp_matches(hex(@a), '^(..)*27')"
        f" THEN 'b''' || {_escape_bytes_sql()} || '''' ELSE 'b\"' || {_escape_bytes_sql(_ESCAPED_QUOTES[0])} || '\"' END"
    ),
    Kind.STRING: _quote_text_sql("@a"),
    Kind.JSON: f"'JSON ' || {_quote_text_sql('@a::VARCHAR')}",
}


class _FormatSql:
    decimal_places, escaped_quotes, literal_templates = _DECIMALS_BY_KIND, _ESCAPED_QUOTES, _LITERAL_SQL_BY_KIND

    def concatenate(self, parts: Sequence[exp.Expr]) -> exp.Expr:
        return fragment_node(" || ".join(f"{{{index}}}" for index in range(len(parts))), *parts)

    def format_with_printf(self, node: exp.Expr, field: FormatField, letter: str, value: exp.Expr) -> exp.Expr:
        return _printf_sql(node, field.spec.printf_specifier(letter), value, field.star_arguments)

    def pad_to_width(self, node: exp.Expr, field: FormatField, value: exp.Expr) -> exp.Expr:
        if field.spec.padding_specifier is None:
            return value
        max_length = field.star_precision if field.spec.conversion_letter in TEXT_CONVERSION_LETTERS else None
        return _printf_sql(node, field.spec.padding_specifier, value, (field.star_width, max_length))

    def integer_precision_from_argument(self, node: exp.Expr, count: exp.Expr) -> exp.Expr:
        return fill_template("CASE WHEN @a < 0 THEN 1 ELSE @a END", _checked_width_or_precision(node, count))

    def integer_digits(self, spec: FormatSpecifier, letter: str) -> str:
        min_digits = "@b" if spec.precision == "*" else str(int(spec.precision or 1))
        flag = "#" if spec.has_alternate_form and letter == "o" else ""
        digits = f"ltrim(printf('%{flag}0*{letter}', {min_digits} + (@a < 0)::INT, @a), '-')"
        if min_digits in ("@b", "0"):
            digits = f"CASE WHEN @a = 0 AND {min_digits} = 0 THEN '' ELSE {digits} END"
        return digits

    def padding_zeros(self, width: int, sign: str, digits: str) -> str:
        return f"repeat('0', {width} - length({sign}) - length({digits}))"

    def is_flag_unsupported(self, spec: FormatSpecifier) -> bool:
        return spec.has_digit_groups or (spec.has_alternate_form and spec.conversion_letter not in "fF")

    def float_digits_sql(self, spec: FormatSpecifier) -> str:
        """Return SQL for the digits that FORMAT prints, with the decimal point that its flag `#` requires.

        With this flag, DuckDB's `printf` omits the point before an exponent, and prints `.0` instead of a point at the
        end. The SQL corrects both.
        """
        digits = "printf({0}, abs(@a))"
        if not spec.has_alternate_form or spec.conversion_letter in "fF":
            return digits
        digits = f"regexp_replace({digits}, '^(.)([eE])', '\\1.\\2')"
        if spec.conversion_letter in "eE":
            return digits
        decimals = int(spec.precision or 6)
        return f"regexp_replace({digits}, '^([0-9]{{{decimals},{decimals}}})\\.0$', '\\1.')"

    def exact_numeric_digits(self, decimals: int, *, with_point: bool) -> str:
        digits = f"ltrim(round(@a, {decimals})::VARCHAR, '-')"
        return f"({digits} || '.')" if with_point and not decimals else digits

    def strip_leading_character(self, text: str, mark: str) -> str:
        return f"ltrim({text}, '{mark}')"

    def indent_json(self, node: exp.Expr, json_value: exp.Expr) -> exp.Expr:
        return indented_json(json_value)

    def escape_bytes(self, *quotes: str) -> str:
        return _escape_bytes_sql(*quotes)

    def fill_template_unless_null(self, template: str, value: exp.Expr) -> exp.Expr:
        return fill_template(f"CASE WHEN @a IS NOT NULL THEN {template} END", value)


FORMAT_RULES = FormatRules(COMMON_SQL, _FormatSql(), cast_to, JSON_PRINTER).rules()
