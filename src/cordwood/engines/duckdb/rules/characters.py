"""Functions of characters: code points, INITCAP, Unicode normalization, edit distance."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.building_blocks import bounded_characters, fail, once
from cordwood.engines.duckdb.rules.strings import as_text, bytes_to_characters, characters_to_bytes, is_bytes
from cordwood.sql.bigquery.strings import DUPLICATE, has_duplicate_characters, source_and_target
from cordwood.sql.constants import constant_text
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import RuleSet, function_name, unsupported


def _code_points(node: exp.Expr) -> exp.Expr:
    value = as_text(node.this)
    if is_bytes(value):
        code_point = "CAST('0x' || _p AS BIGINT)"
        return fragment(f"list_transform(regexp_extract_all(hex({{0}}), '..'), lambda _p: {code_point})", value)
    code_points = (
        "CASE WHEN @a = '' THEN [] ELSE list_transform(string_split(@few, ''), lambda _c: ord(_c)::BIGINT) END"
    )
    return once(code_points.replace("@few", bounded_characters(node, "TO_CODE_POINTS")), value)


def _from_code_points(node: exp.Expr) -> exp.Expr:
    failure = fail(node, "Invalid codepoint")
    character = f"CASE WHEN _c < 0 OR _c > 1114111 OR (_c BETWEEN 55296 AND 57343) THEN {failure} ELSE chr(_c::INT) END"
    body = "CASE WHEN @a IS NULL OR list_contains(list_transform(@a, lambda _c: _c IS NULL), true) THEN NULL"
    return once(f"{body} ELSE array_to_string(list_transform(@a, lambda _c: {character}), '') END", node.this)


def _bytes_from_code_points(node: exp.Expr) -> exp.Expr:
    failure = fail(node, "Invalid extended ASCII code point")
    byte = f"CASE WHEN _c < 0 OR _c > 255 THEN {failure} ELSE printf('%02X', _c) END"
    body = "CASE WHEN @a IS NULL OR list_contains(list_transform(@a, lambda _c: _c IS NULL), true) THEN NULL"
    return once(f"{body} ELSE unhex(array_to_string(list_transform(@a, lambda _c: {byte}), '')) END", node.this)


def _first_code(node: exp.Expr) -> exp.Expr:
    if is_bytes(node.this):
        first = "CASE WHEN @a = '' THEN 0 ELSE CAST('0x' || left(@a, 2) AS BIGINT) END"
        return once(first, fragment("hex({0})", node.this))
    return once("CASE WHEN @a = '' THEN 0 ELSE ord(@a)::BIGINT END", as_text(node.this))


def _character(node: exp.Expr) -> exp.Expr:
    return once("CASE WHEN @a = 0 THEN '' ELSE chr(@a::INT) END", node.expressions[0])


def _translate(node: exp.Expr) -> exp.Expr:
    source, target = source_and_target(node)
    if has_duplicate_characters(node, source):
        return fragment("NULL")
    has_duplicates = "@b <> '' AND length(@b) <> len(list_distinct(string_split(@b, '')))"
    is_constant = constant_text(source) is not None
    guard = "@b" if is_constant else f"CASE WHEN {has_duplicates} THEN {fail(node, DUPLICATE)} ELSE @b END"
    if not is_bytes(node.this):
        return once(f"translate(@a, {guard}, @c)", as_text(node.this), source, target)
    parts = [fragment("hex({0})", part) for part in (node.this, source, target)]
    translated = f"translate({bytes_to_characters('@a')}, {guard.replace('@b', bytes_to_characters('@b'))}, {bytes_to_characters('@c')})"
    return once(
        f"CASE WHEN @a IS NOT NULL AND @b IS NOT NULL AND @c IS NOT NULL THEN {characters_to_bytes(translated)} END",
        *parts,
    )


_DELIMITERS: Final = ' \t\n\v\f\r[](){}/|<>!?@"^#$&~_,.:;*%+-'


def _initcap(node: exp.Expr) -> exp.Expr:
    """Lower INITCAP: a letter is in upper case at the start and after a delimiter, else in lower case."""
    argument = node.args.get("expression")
    delimiters = argument if argument is not None else exp.Literal.string(_DELIMITERS)
    letter = "substring(lower(@a), _i, 1)"
    follows_delimiter = "_i = 1 OR contains(@b, substring(@a, _i - 1, 1))"
    character = f"CASE WHEN {follows_delimiter} THEN upper({letter}) ELSE {letter} END"
    return once(
        f"CASE WHEN @b IS NULL THEN NULL WHEN @a = '' THEN '' ELSE array_to_string(list_transform("
        f"range(1, length({bounded_characters(node, 'INITCAP')}) + 1), lambda _i: {character}), '') END",
        as_text(node.this),
        delimiters,
    )


def _normalize(node: exp.Expr) -> exp.Expr:
    form = str(node.args["form"].name).upper() if node.args.get("form") else "NFC"
    value = as_text(node.this)
    if form != "NFC":
        unsupported(node, f"The form {form} of {function_name(node)}")
    return fragment("nfc_normalize(lower({0}))" if node.args.get("is_casefold") else "nfc_normalize({0})", value)


_MAX_COMPARISONS: Final = 4_000_000
# DuckDB's levenshtein compares bytes, so the other characters of the two texts are mapped to single-byte characters.
_DISTINCT_CHARACTERS: Final = "array_to_string(list_distinct(string_split(@a || @b, '')), '')"
_MAX_DISTINCT_CHARACTERS: Final = 127
_SINGLE_BYTES: Final = (
    f"array_to_string(list_transform(range(1, {_MAX_DISTINCT_CHARACTERS + 1}), lambda _n: chr(_n::INT)), '')"
)


def _distance(node: exp.Expr) -> exp.Expr:
    value, other = as_text(node.this), as_text(node.expression)
    if is_bytes(value):
        value, other = (_bytes_as_characters(part) for part in (value, other))
    # The time is the product of both lengths, and the function cannot be interrupted.
    too_long = fail(node, "EDIT_DISTANCE of texts that are too long")
    too_many = fail(node, f"EDIT_DISTANCE of texts of more than {_MAX_DISTINCT_CHARACTERS} different characters")
    as_bytes = ", ".join(f"translate({name}, {_DISTINCT_CHARACTERS}, {_SINGLE_BYTES})" for name in ("@a", "@b"))
    distance = (
        f"CASE WHEN strlen(@a) * strlen(@b) > {_MAX_COMPARISONS} THEN {too_long}"
        " WHEN strlen(@a) + strlen(@b) = length(@a) + length(@b) THEN levenshtein(@a, @b)"
        f" WHEN length({_DISTINCT_CHARACTERS}) > {_MAX_DISTINCT_CHARACTERS} THEN {too_many} ELSE levenshtein({as_bytes}) END"
    )
    limit = node.args.get("max_dist")
    if limit is None:
        return once(distance, value, other)
    negative = fail(node, "EDIT_DISTANCE needs a max_distance that is not negative")
    body = f"CASE WHEN @c < 0 THEN {negative} WHEN @c IS NOT NULL AND @a IS NOT NULL AND @b IS NOT NULL THEN least({distance}, @c) END"
    return once(body, value, other, limit)


def _bytes_as_characters(value: exp.Expr) -> exp.Expr:
    return once(f"CASE WHEN @a IS NOT NULL THEN {bytes_to_characters('@a')} END", fragment("hex({0})", value))


# Pairs of hexadecimal digits that form one character, or a single byte that is part of none.
_TAIL: Final = "[89AB]."
_UTF8: Final = (
    f"(?:[0-7].)+|(?:C[2-9A-F]|D.){_TAIL}|(?:E0[AB].|E[1-9A-CEF]{_TAIL}|ED[89].){_TAIL}"
    f"|(?:F0[9AB].|F[1-3]{_TAIL}|F48.){_TAIL}{_TAIL}|.."
)


def _lenient_text(node: exp.Expr) -> exp.Expr:
    """Lower SAFE_CONVERT_BYTES_TO_STRING: invalid UTF-8 becomes U+FFFD; DuckDB can only report that it is invalid."""
    character = "CASE WHEN length(_h) = 2 AND _h >= '80' THEN chr(65533) ELSE decode(unhex(_h)) END"
    replaced = f"array_to_string(list_transform(regexp_extract_all(hex(@a), '{_UTF8}'), lambda _h: {character}), '')"
    return once(f"coalesce(try(decode(@a)), {replaced})", node.this)


def _soundex(node: exp.Expr) -> exp.Expr:
    return unsupported(node, "SOUNDEX")


RULES = RuleSet(
    nodes={
        exp.ToCodePoints: _code_points,
        exp.CodePointsToString: _from_code_points,
        exp.CodePointsToBytes: _bytes_from_code_points,
        exp.Unicode: _first_code,
        exp.Ascii: _first_code,
        exp.Chr: _character,
        exp.Translate: _translate,
        exp.Initcap: _initcap,
        exp.Normalize: _normalize,
        exp.Levenshtein: _distance,
        exp.SafeConvertBytesToString: _lenient_text,
        exp.Soundex: _soundex,
    }
)
