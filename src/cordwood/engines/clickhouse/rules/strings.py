"""Rules for text functions, functions of single characters, and FORMAT().

Positions are code points counted from one; negative positions are counted from the end. A function is NULL if an
argument is NULL.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.building_blocks import (
    COMMON_SQL,
    convert_implicitly,
    fail_if_sql,
    fill_template,
    typed_null,
)
from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.json_functions import JSON_PRINTER
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
from cordwood.sql.nodes import constant_int, constant_text
from cordwood.sql.rules.formats import (
    TEXT_CONVERSION_LETTERS,
    UNSUPPORTED_ZERO_PADDING_SUBJECT,
    FormatField,
    FormatRules,
    FormatSpecifier,
)
from cordwood.sql.rules.functions import (
    MAX_PADDED_TEXT_BYTES,
    STRING_FUNCTIONS,
    CheckedTemplate,
    FunctionKey,
    FunctionTemplate,
    TextAndBytesTemplates,
    rules_from_templates,
)
from cordwood.sql.rules.strings import CONSTANT_FOLDING_RULES, has_duplicate_characters, read_translate_arguments

# Matches Unicode's white space, which BigQuery's TRIM removes by default.
_WHITE_SPACE_PATTERN: Final = (
    r"[\s\v\x{0085}\x{00A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}]+"
)


def convert_variant_to_text(node: exp.Expr) -> exp.Expr:
    return convert_implicitly(node, Kind.STRING) if kind_of(node) is Kind.VARIANT else node


def _is_bytes(node: exp.Expr) -> bool:
    return kind_of(node) is Kind.BYTES


def _function_name_for_type(node: exp.Expr, name: str) -> str:
    """Return the name of a ClickHouse function for the node's type: `name` for BYTES, `name` with UTF8 for texts."""
    return name if _is_bytes(node) else f"{name}UTF8"


def _translate_substring(node: exp.Expr) -> exp.Expr:
    value, start, length = convert_variant_to_text(node.this), node.args["start"], node.args.get("length")
    size, function_name = (
        f"toInt64({_function_name_for_type(value, 'length')}(@a))",
        _function_name_for_type(value, "substring"),
    )
    start_sql = f"if(@b > 0, @b, if(@b = 0 OR @b < -{size}, 1, {size} + @b + 1))"
    if (constant_int(start) or 0) > 0:
        start_sql = "@b"
    if length is None:
        return fill_template(f"{function_name}(@a, {start_sql})", value, start)
    # The length is tested for NULL, because ClickHouse's greatest ignores NULL.
    body = f"if(isNull(@c), NULL, {function_name}(@a, {start_sql}, greatest(@c, 0)))"
    constant_length = constant_int(length)
    if constant_length is not None and constant_length >= 0:
        return fill_template(f"{function_name}(@a, {start_sql}, @c)", value, start, length)
    body = fail_if_sql(node, "@c < 0", "Third argument in SUBSTR() cannot be negative", body)
    return fill_template(body, value, start, length)


def _translate_trim(node: exp.Expr) -> exp.Expr:
    value, characters = convert_variant_to_text(node.this), node.args.get("expression")
    side = str(node.args.get("position") or "BOTH").upper()
    if characters is None:
        if _is_bytes(value):
            raise_unsupported(node, "TRIM of BYTES without the bytes to trim")
        patterns = {"LEADING": f"^{_WHITE_SPACE_PATTERN}", "TRAILING": f"{_WHITE_SPACE_PATTERN}$"}
        pattern = string_literal_node(patterns.get(side, f"^{_WHITE_SPACE_PATTERN}|{_WHITE_SPACE_PATTERN}$"))
        return fragment_node("replaceRegexpAll({0}, {1}, '')", value, pattern)
    name = {"LEADING": "trimLeft", "TRAILING": "trimRight"}.get(side, "trimBoth")
    if _is_bytes(value) or (constant_text(characters) or "é").isascii():
        return fragment_node(f"{name}({{0}}, {{1}})", value, characters)
    return _trim_given_characters(value, characters, side)


def _trim_given_characters(value: exp.Expr, characters: exp.Expr, side: str) -> exp.Expr:
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
    return fill_template(f"if(isNull(@a) OR isNull(@b), NULL, if({has_none_kept}, '', {trimmed}))", value, characters)


def _translate_pad(node: exp.Expr) -> exp.Expr:
    value, length = convert_variant_to_text(node.this), node.expression
    fill = node.args.get("fill_pattern") or fragment_node("' '")
    name = "leftPad" if node.args.get("is_left") else "rightPad"
    shortened = f"{_function_name_for_type(value, 'substring')}(@a, 1, @b)"
    missing_length = f"toInt64(@b) - toInt64({_function_name_for_type(value, 'length')}(@a))"
    filling = f"{_function_name_for_type(value, 'substring')}(repeat(@c, greatest({missing_length}, 0)), 1, greatest({missing_length}, 0))"
    lengthened = f"concat({filling}, @a)" if name == "leftPad" else f"concat(@a, {filling})"
    padded = f"if(isNull(@b), NULL, if(@b <= toInt64({_function_name_for_type(value, 'length')}(@a)), {shortened}, {lengthened}))"
    message = f"LPAD and RPAD need a size from 0 to {MAX_PADDED_TEXT_BYTES} and a pattern that is not empty"
    return fill_template(
        fail_if_sql(node, f"(@b < 0 OR @b > {MAX_PADDED_TEXT_BYTES} OR @c = '')", message, padded), value, length, fill
    )


def _translate_concat(node: exp.Expr) -> exp.Expr:
    """Translate CONCAT, which is NULL if any part is NULL."""
    parts = [_convert_for_concat(part) for part in node.expressions]
    name = "arrayConcat" if any(kind_of(part) is Kind.ARRAY for part in parts) else "concat"
    if len(parts) == 1:
        return parts[0]
    return fragment_node(f"{name}({placeholders_text(len(parts))})", *parts)


def _convert_for_concat(part: exp.Expr) -> exp.Expr:
    kind = kind_of(part)
    if kind is None or kind in (Kind.STRING, Kind.BYTES, Kind.ARRAY):
        return part
    return cast_to(part, part, STRING)


def _translate_concat_operator(node: exp.Expr) -> exp.Expr:
    left, right = _convert_for_concat(node.this), _convert_for_concat(node.expression)
    name = "arrayConcat" if Kind.ARRAY in (kind_of(left), kind_of(right)) else "concat"
    return fragment_node(f"{name}({{0}}, {{1}})", left, right)


def _translate_split(node: exp.Expr) -> exp.Expr:
    """Translate SPLIT. An empty text has one part, which is empty; an empty delimiter splits a text into characters."""
    value, delimiter = convert_variant_to_text(node.this), node.expression
    constant_delimiter = constant_text(delimiter)
    if constant_delimiter is None:
        raise_unsupported(node, "SPLIT by a delimiter that is not a literal")
    if _is_bytes(value) and not _is_bytes(delimiter):
        raise_unsupported(node, "SPLIT of BYTES without a delimiter of BYTES")
    function_name, length = _function_name_for_type(value, "substring"), _function_name_for_type(value, "length")
    characters = f"arrayMap(_i -> {function_name}(assumeNotNull(@a), _i, 1), range(1, {length}(assumeNotNull(@a)) + 1))"
    parts = "splitByString(@b, assumeNotNull(@a))" if constant_delimiter else characters
    return fill_template(f"if(isNull(@a), [], if(@a = '', [''], {parts}))", value, delimiter)


def _translate_position(node: exp.Expr) -> exp.Expr:
    value, part = convert_variant_to_text(node.this), convert_variant_to_text(node.args["substr"])
    if node.args.get("position") is not None or node.args.get("occurrence") is not None:
        return _nth_occurrence_position(node, value, part)
    return fragment_node(f"toInt64({_function_name_for_type(value, 'position')}({{0}}, {{1}}))", value, part)


def _nth_occurrence_position(node: exp.Expr, value: exp.Expr, part: exp.Expr) -> exp.Expr:
    """Translate INSTR by listing all positions at which `part` occurs, and choosing one of them.

    The occurrences are counted from the front, or from the back if the start position is negative.
    """
    start = node.args.get("position") or fragment_node("toInt64(1)")
    count = node.args.get("occurrence") or fragment_node("toInt64(1)")
    length, substring_function = _function_name_for_type(value, "length"), _function_name_for_type(value, "substring")
    size = f"toInt64({length}(assumeNotNull(@a)))"
    is_match = f"{substring_function}(assumeNotNull(@a), _i, {length}(assumeNotNull(@b))) = assumeNotNull(@b)"
    positions = f"arrayFilter(_i -> {is_match}, range(1, toUInt64(greatest({size} - toInt64({length}(assumeNotNull(@b))) + 2, 1))))"
    from_front = f"arrayFilter(_i -> _i >= assumeNotNull(@c), {positions})[assumeNotNull(@d)]"
    from_back = f"arrayReverse(arrayFilter(_i -> toInt64(_i) <= {size} + assumeNotNull(@c) + 1, {positions}))[assumeNotNull(@d)]"
    is_missing = "isNull(@a) OR isNull(@b) OR isNull(@c) OR isNull(@d)"
    body = f"if({is_missing}, NULL, toInt64(if(@c > 0, {from_front}, {from_back})))"
    return fill_template(
        fail_if_sql(node, "(@c = 0 OR @d < 1)", "INSTR needs a position that is not 0 and a positive occurrence", body),
        value,
        part,
        start,
        count,
    )


def _translate_normalize(node: exp.Expr) -> exp.Expr:
    form = str(node.args["form"].name).upper() if node.args.get("form") else "NFC"
    name = {
        "NFC": "normalizeUTF8NFC",
        "NFD": "normalizeUTF8NFD",
        "NFKC": "normalizeUTF8NFKC",
        "NFKD": "normalizeUTF8NFKD",
    }.get(form)
    if name is None:
        raise_unsupported(node, f"The form {form} of {bigquery_function_name(node)}")
    value = convert_variant_to_text(node.this)
    return fragment_node(f"{name}(lowerUTF8({{0}}))" if node.args.get("is_casefold") else f"{name}({{0}})", value)


def _translate_edit_distance(node: exp.Expr) -> exp.Expr:
    value, other = convert_variant_to_text(node.this), convert_variant_to_text(node.expression)
    limit = node.args.get("max_dist")
    name, length = ("editDistance", "length") if _is_bytes(value) else ("editDistanceUTF8", "lengthUTF8")
    # If one text is empty, the distance is the length of the other text in characters. ClickHouse would return its
    # length in bytes.
    distance = f"toInt64(if(@a = '' OR @b = '', {length}(@a) + {length}(@b), {name}(@a, @b)))"
    if limit is None:
        return fill_template(distance, value, other)
    body = f"if(isNull(@a) OR isNull(@b) OR isNull(@c), NULL, least({distance}, @c))"
    message = "EDIT_DISTANCE needs a max_distance that is not negative"
    return fill_template(fail_if_sql(node, "@c < 0", message, body), value, other, limit)


def _translate_collate(node: exp.Expr) -> exp.Expr:
    name = constant_text(node.expression)
    value: exp.Expr = node.this
    return value if name == "" else raise_unsupported(node, f"The collation '{name}'")


def _characters_sql(value: str) -> str:
    return f"arrayMap(_i -> substringUTF8({value}, _i, 1), range(1, lengthUTF8({value}) + 1))"


def _code_point_of_character_sql(character: str) -> str:
    byte = f"toInt64(reinterpretAsUInt8(substring({character}, %d, 1)))"
    first, second, third, fourth = (byte % index for index in range(1, 5))
    continuation = f"({second} - 128)", f"({third} - 128)", f"({fourth} - 128)"
    return (
        f"multiIf({first} < 128, {first}, {first} < 224, ({first} - 192) * 64 + {continuation[0]},"
        f" {first} < 240, ({first} - 224) * 4096 + {continuation[0]} * 64 + {continuation[1]},"
        f" ({first} - 240) * 262144 + {continuation[0]} * 4096 + {continuation[1]} * 64 + {continuation[2]})"
    )


def _code_point_to_character_sql(code: str) -> str:
    def continuation_byte_sql(shift: int) -> str:
        return f"char(128 + bitAnd(bitShiftRight({code}, {shift}), 63))"

    return (
        f"multiIf({code} < 128, char({code}), {code} < 2048, concat(char(192 + bitShiftRight({code}, 6)), {continuation_byte_sql(0)}),"
        f" {code} < 65536, concat(char(224 + bitShiftRight({code}, 12)), {continuation_byte_sql(6)}, {continuation_byte_sql(0)}),"
        f" concat(char(240 + bitShiftRight({code}, 18)), {continuation_byte_sql(12)}, {continuation_byte_sql(6)}, {continuation_byte_sql(0)}))"
    )


def _translate_translate(node: exp.Expr) -> exp.Expr:
    source, target = read_translate_arguments(node)
    if constant_text(source) is None or constant_text(target) is None:
        raise_unsupported(node, "TRANSLATE of characters that are not literals")
    if has_duplicate_characters(node, source):
        return typed_null(STRING)
    name = "translate" if _is_bytes(node.this) else "translateUTF8"
    return fragment_node(f"{name}({{0}}, {{1}}, {{2}})", convert_variant_to_text(node.this), source, target)


_NON_NULL_VALUE_SQL: Final = "assumeNotNull(@a)"
# NULL is tested for, because ClickHouse's greatest ignores NULL.
_first_or_last_characters_sql: Final = "if(isNull(@b), NULL, {}(@a, greatest(@b, 0)))".format
_map_characters_sql: Final = "if(isNull(@a), [], arrayMap(_c -> {}, {}))".format
_is_invalid_code_point_sql: Final = "{0} < 0 OR {0} > 1114111 OR {0} BETWEEN 55296 AND 57343".format
_TITLE_CASE_LETTER_SQL: Final = "substringUTF8(lowerUTF8(assumeNotNull(@a)), _i, 1)"
_IS_WORD_START_SQL: Final = "_i = 1 OR positionUTF8(assumeNotNull(@b), substringUTF8(assumeNotNull(@a), _i - 1, 1)) > 0"


def _code_points_to_text_template(is_invalid: str, character: str) -> CheckedTemplate:
    characters = f"arrayMap(_c -> {character}, arrayMap(_c -> assumeNotNull(_c), @a))"
    value = f"if(arrayExists(_c -> isNull(_c), @a), NULL, arrayStringConcat({characters}))"
    return CheckedTemplate(f"arrayExists(_c -> ifNull({is_invalid}, false), @a)", value)


_TEMPLATE_BY_FUNCTION: Final[Mapping[FunctionKey, FunctionTemplate]] = {
    exp.Length: TextAndBytesTemplates("toInt64(lengthUTF8({0}))", "toInt64(length({0}))"),
    exp.ByteLength: "toInt64(length({0}))",
    exp.Left: TextAndBytesTemplates(_first_or_last_characters_sql("leftUTF8"), _first_or_last_characters_sql("left")),
    exp.Right: TextAndBytesTemplates(
        _first_or_last_characters_sql("rightUTF8"), _first_or_last_characters_sql("right")
    ),
    exp.Repeat: CheckedTemplate(
        f"(@b < 0 OR @b * toInt64(length(@a)) > {MAX_PADDED_TEXT_BYTES})", "repeat(@a, @checked)", "@b"
    ),
    exp.Replace: "if(@b = '', @a, replaceAll(@a, @b, @c))",
    exp.StartsWith: "startsWith({0}, {1})",
    exp.EndsWith: "endsWith({0}, {1})",
    exp.Reverse: TextAndBytesTemplates("reverseUTF8({0})", "reverse({0})"),
    exp.Upper: TextAndBytesTemplates("upperUTF8({0})", "upper({0})"),
    exp.Lower: TextAndBytesTemplates("lowerUTF8({0})", "lower({0})"),
    exp.SafeConvertBytesToString: "toValidUTF8({0})",
    exp.ToCodePoints: TextAndBytesTemplates(
        _map_characters_sql(_code_point_of_character_sql("_c"), _characters_sql(_NON_NULL_VALUE_SQL)),
        _map_characters_sql(
            "toInt64(reinterpretAsUInt8(_c))",
            f"arrayMap(_i -> substring({_NON_NULL_VALUE_SQL}, _i, 1), range(1, length({_NON_NULL_VALUE_SQL}) + 1))",
        ),
    ),
    exp.CodePointsToString: _code_points_to_text_template(
        _is_invalid_code_point_sql("_c"), _code_point_to_character_sql("_c")
    ),
    exp.CodePointsToBytes: _code_points_to_text_template("_c < 0 OR _c > 255", "char(_c)"),
    **dict.fromkeys(
        (exp.Unicode, exp.Ascii),
        TextAndBytesTemplates(
            f"if(isNull(@a), NULL, if(@a = '', 0, {_code_point_of_character_sql(f'substringUTF8({_NON_NULL_VALUE_SQL}, 1, 1)')}))",
            "if(isNull(@a), NULL, toInt64(reinterpretAsUInt8(substring(@a, 1, 1))))",
        ),
    ),
    exp.Chr: CheckedTemplate(
        f"({_is_invalid_code_point_sql('@a')})",
        f"if(isNull(@a), NULL, if(@a = 0, '', {_code_point_to_character_sql(_NON_NULL_VALUE_SQL)}))",
    ),
    exp.Initcap: (
        f"if(isNull(@a) OR isNull(@b), NULL, arrayStringConcat(arrayMap(_i -> if({_IS_WORD_START_SQL},"
        f" upperUTF8({_TITLE_CASE_LETTER_SQL}), {_TITLE_CASE_LETTER_SQL}), range(1, lengthUTF8({_NON_NULL_VALUE_SQL}) + 1))))"
    ),
}

RULES = RuleSet(
    by_node_class={
        **rules_from_templates(COMMON_SQL, STRING_FUNCTIONS, _TEMPLATE_BY_FUNCTION).by_node_class,
        exp.Substring: _translate_substring,
        exp.Trim: _translate_trim,
        exp.Pad: _translate_pad,
        exp.Concat: _translate_concat,
        exp.DPipe: _translate_concat_operator,
        exp.Split: _translate_split,
        exp.StrPosition: _translate_position,
        exp.Normalize: _translate_normalize,
        exp.Levenshtein: _translate_edit_distance,
        # SOUNDEX is refused, because ClickHouse's soundex differs from BigQuery's: it treats an H between consonants as
        # a vowel, and returns zeros for a text without letters.
        exp.Soundex: lambda node: raise_unsupported(node, "SOUNDEX"),
        exp.Collate: _translate_collate,
        exp.Translate: _translate_translate,
    },
    by_node_class_before_children=CONSTANT_FOLDING_RULES,
)


# SQL that splits the hexadecimal form of bytes into groups, to print each byte as a character or as an escape such as
# \x1f. Most groups are a single byte. If characters that are hexadecimal digits follow an unprintable byte, they are in
# the same group, and all bytes of the group are escaped. Otherwise, these characters would be read as a part of the
# escape.
_HEX_BYTE_GROUPS_SQL: Final = "extractAll(hex(@a), '(?:0[0-8BCEF]|1.|7F|[89A-F].)(?:3[0-9]|4[1-6]|6[1-6])*|..')"
_CONTROL_CHARACTER_PATTERN: Final = r"[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]"


def _pad_to_width_argument(field: FormatField, value: exp.Expr) -> exp.Expr:
    if field.star_width is None:
        return value
    is_left = "true" if field.spec.is_left_aligned else "@b < 0"
    width = "greatest(toUInt64(abs(@b)), lengthUTF8(@a))"
    return fill_template(
        f"multiIf(isNull(@b), NULL, {is_left}, rightPadUTF8(@a, {width}), leftPadUTF8(@a, {width}))",
        value,
        field.star_width,
    )


def _escape_bytes_sql(*quotes: str) -> str:
    quote_codes = ", ".join(f"hex('{quote}')" for quote in (r"\\", *quotes))
    escaped = (
        r"multiIf(_h = '09', '\\t', _h = '0A', '\\n', _h = '0D', '\\r',"
        rf" _h IN ({quote_codes}), concat('\\', unhex(_h)), length(_h) = 2 AND _h BETWEEN '20' AND '7E', unhex(_h),"
        r" replaceRegexpAll(lower(_h), '(..)', '\\\\x\\1'))"
    )
    return f"arrayStringConcat(arrayMap(_h -> {escaped}, {_HEX_BYTE_GROUPS_SQL}))"


def _escape_text_sql(text: str) -> str:
    """Return SQL that escapes a text, but not the quotes in it."""
    escaped = text
    for escape_letter, code in ((r"\\", 92), ("n", 10), ("r", 13), ("t", 9)):
        escaped = rf"replaceAll({escaped}, char({code}), '\\{escape_letter}')"
    escape_character = rf"_c -> if(match(_c, '{_CONTROL_CHARACTER_PATTERN}'), concat('\\x', lower(hex(_c))), _c)"
    escaped_characters = f"arrayStringConcat(arrayMap({escape_character}, extractAll({escaped}, '(?s).')))"
    return f"if(match({text}, '{_CONTROL_CHARACTER_PATTERN}'), {escaped_characters}, {escaped})"


def _quote_text_sql(text: str) -> str:
    """Return SQL that puts a text in double quotes, or in single quotes if it contains double but no single quotes."""
    escaped = _escape_text_sql(text)
    return _choose_quotes_sql(
        text, f"concat('''', {escaped}, '''')", rf"""concat('"', replaceAll({escaped}, '"', '\\"'), '"')"""
    )


def _choose_quotes_sql(text: str, single: str, double: str) -> str:
    return f"""if(position({text}, '"') > 0 AND position({text}, '''') = 0, {single}, {double})"""


# The number of decimals of NUMERIC and BIGNUMERIC values.
_DECIMALS_BY_KIND: Final[Mapping[Kind, int]] = {Kind.NUMERIC: 9, Kind.BIGNUMERIC: 38}
_ESCAPED_QUOTES: Final[Sequence[str]] = ('"', "''", "`")
_LITERAL_SQL_BY_KIND: Final[Mapping[Kind, str]] = {
    Kind.BYTES: _choose_quotes_sql(
        "@a",
        f"concat('b''', {_escape_bytes_sql()}, '''')",
        f"""concat('b"', {_escape_bytes_sql(_ESCAPED_QUOTES[0])}, '"')""",
    ),
    Kind.STRING: _quote_text_sql("@a"),
    Kind.JSON: f"concat('JSON ', {_quote_text_sql('@a')})",
}


class _FormatSql:
    decimal_places, escaped_quotes, literal_templates = _DECIMALS_BY_KIND, _ESCAPED_QUOTES, _LITERAL_SQL_BY_KIND

    def concatenate(self, parts: Sequence[exp.Expr]) -> exp.Expr:
        return fragment_node(f"concat({placeholders_text(len(parts))}, '')", *parts)

    def format_with_printf(self, node: exp.Expr, field: FormatField, letter: str, value: exp.Expr) -> exp.Expr:
        """Format a value by ClickHouse's printf.

        This printf does not support `*`, so that a width that is an argument is applied to the formatted text.
        """
        if field.star_precision is not None:
            raise_unsupported(node, "A precision in FORMAT that is not a literal")
        if field.star_width is not None and field.spec.is_zero_padded:
            raise_unsupported(node, UNSUPPORTED_ZERO_PADDING_SUBJECT)
        format_text = string_literal_node(field.spec.printf_specifier(letter).replace("*", ""))
        return _pad_to_width_argument(field, fragment_node("printf({1}, {0})", value, format_text))

    def pad_to_width(self, node: exp.Expr, field: FormatField, value: exp.Expr) -> exp.Expr:
        """Pad a text to the width in characters, whereas ClickHouse's printf would count bytes."""
        spec = field.spec
        if spec.conversion_letter in TEXT_CONVERSION_LETTERS and field.star_precision is not None:
            value = fill_template("if(@b < 0, @a, substringUTF8(@a, 1, @b))", value, field.star_precision)
        elif spec.conversion_letter in TEXT_CONVERSION_LETTERS and spec.precision is not None:
            value = fragment_node(f"substringUTF8({{0}}, 1, {int(spec.precision)})", value)
        if spec.width is None or field.star_width is not None:
            return _pad_to_width_argument(field, value)
        side = "right" if spec.is_left_aligned else "left"
        return fill_template(f"{side}PadUTF8(@a, greatest({int(spec.width)}, lengthUTF8(@a)))", value)

    def integer_precision_from_argument(self, node: exp.Expr, count: exp.Expr) -> exp.Expr:
        return count

    def integer_digits(self, spec: FormatSpecifier, letter: str) -> str:
        digits = "toString(abs(@a))" if letter == "d" else f"printf('%{letter}', @a)"
        if spec.has_alternate_form and letter == "o":
            digits = "printf('%#o', @a)"
        if spec.precision == "*":
            padded = f"leftPad({digits}, toUInt64(greatest(@b, toInt64(length({digits})))), '0')"
            return f"multiIf(isNull(@b), NULL, @a = 0 AND @b = 0, '', {padded})"
        if spec.precision is not None:
            padded = f"leftPad({digits}, greatest({int(spec.precision)}, length({digits})), '0')"
            return f"if(@a = 0, '', {padded})" if spec.precision == "0" else padded
        return digits

    def padding_zeros(self, width: int, sign: str, digits: str) -> str:
        return f"repeat('0', greatest({width} - toInt64(length({sign})) - toInt64(length({digits})), 0))"

    def is_flag_unsupported(self, spec: FormatSpecifier) -> bool:
        return spec.has_digit_groups

    def float_digits_sql(self, spec: FormatSpecifier) -> str:
        return "printf({0}, abs(@a))"

    def exact_numeric_digits(self, decimals: int, *, with_point: bool) -> str:
        digits = f"replaceOne(toDecimalString(@a, {decimals}), '-', '')"
        return digits if decimals or with_point else f"replaceOne({digits}, '.', '')"

    def strip_leading_character(self, text: str, mark: str) -> str:
        return f"replaceRegexpOne({text}, '^{mark}', '')"

    def indent_json(self, node: exp.Expr, json_value: exp.Expr) -> exp.Expr:
        return raise_unsupported(node, "%P")

    def escape_bytes(self, *quotes: str) -> str:
        return _escape_bytes_sql(*quotes)

    def fill_template_unless_null(self, template: str, value: exp.Expr) -> exp.Expr:
        """Fill the template so that it is NULL if the value is NULL.

        An explicit test for NULL is needed, because arrays in the template cannot be NULL in ClickHouse.
        """
        return fill_template(f"if(isNull(@a), NULL, {template.replace('@a', 'assumeNotNull(@a)')})", value)


FORMAT_RULES = FormatRules(COMMON_SQL, _FormatSql(), cast_to, JSON_PRINTER).rules()
