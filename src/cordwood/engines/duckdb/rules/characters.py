"""Texts as characters: code points, capitals after delimiters, normal forms, distances."""

from typing import Final

from sqlglot import exp

from cordwood.engines.duckdb.rules.strings import as_text, is_bytes
from cordwood.engines.duckdb.rules.words import fail, once
from cordwood.sql.fragment import fragment
from cordwood.sql.lowering import Meaning, name_of, unsupported


def _code_points(node: exp.Expr) -> exp.Expr:
    value = as_text(node.this)
    if is_bytes(value):
        one = "CAST('0x' || _p AS BIGINT)"
        return fragment(f"list_transform(regexp_extract_all(hex({{0}}), '..'), lambda _p: {one})", value)
    pieces = "CASE WHEN @a = '' THEN [] ELSE list_transform(string_split(@a, ''), lambda _c: ord(_c)::BIGINT) END"
    return once(pieces, value)


def _from_code_points(node: exp.Expr) -> exp.Expr:
    bad = fail(node, "Invalid codepoint")
    one = f"CASE WHEN _c < 0 OR _c > 1114111 OR (_c BETWEEN 55296 AND 57343) THEN {bad} ELSE chr(_c::INT) END"
    body = "CASE WHEN @a IS NULL OR list_contains(list_transform(@a, lambda _c: _c IS NULL), true) THEN NULL"
    return once(f"{body} ELSE array_to_string(list_transform(@a, lambda _c: {one}), '') END", node.this)


def _bytes_from_code_points(node: exp.Expr) -> exp.Expr:
    bad = fail(node, "Invalid extended ASCII code point")
    one = f"CASE WHEN _c < 0 OR _c > 255 THEN {bad} ELSE printf('%02X', _c) END"
    body = "CASE WHEN @a IS NULL OR list_contains(list_transform(@a, lambda _c: _c IS NULL), true) THEN NULL"
    return once(f"{body} ELSE unhex(array_to_string(list_transform(@a, lambda _c: {one}), '')) END", node.this)


def _first_code(node: exp.Expr) -> exp.Expr:
    return once("CASE WHEN @a = '' THEN 0 ELSE ord(@a)::BIGINT END", as_text(node.this))


def _character(node: exp.Expr) -> exp.Expr:
    return once("CASE WHEN @a = 0 THEN '' ELSE chr(@a::INT) END", node.expressions[0])


def _translate(node: exp.Expr) -> exp.Expr:
    source, target = node.args.get("from_") or node.args.get("from"), node.args.get("to")
    if source is None or target is None:
        unsupported(node, "TRANSLATE with these arguments")
    return fragment("translate({0}, {1}, {2})", as_text(node.this), source, target)


_DELIMITERS: Final = ' \t\n\v\f\r[](){}/|<>!?@"^#$&~_,.:;*%+-'


def _initcap(node: exp.Expr) -> exp.Expr:
    """A letter is a capital after a delimiter and at the start, small elsewhere."""
    given = node.args.get("expression")
    delimiters = given if given is not None else exp.Literal.string(_DELIMITERS)
    letter = "substring(lower(@a), _i, 1)"
    before = "_i = 1 OR contains(@b, substring(@a, _i - 1, 1))"
    one = f"CASE WHEN {before} THEN upper({letter}) ELSE {letter} END"
    return once(
        f"CASE WHEN @b IS NULL THEN NULL WHEN @a = '' THEN '' ELSE array_to_string(list_transform("
        f"range(1, length(@a) + 1), lambda _i: {one}), '') END",
        as_text(node.this),
        delimiters,
    )


def _normalize(node: exp.Expr) -> exp.Expr:
    form = str(node.args["form"].name).upper() if node.args.get("form") else "NFC"
    value = as_text(node.this)
    if form != "NFC":
        unsupported(node, f"The form {form} of {name_of(node)}")
    return fragment("nfc_normalize(lower({0}))" if node.args.get("is_casefold") else "nfc_normalize({0})", value)


_MOST_COMPARED: Final = 4_000_000


def _distance(node: exp.Expr) -> exp.Expr:
    value, other = as_text(node.this), as_text(node.expression)
    limit = node.args.get("max_dist")
    # It takes as long as both texts multiplied, and cannot be stopped.
    long = fail(node, "EDIT_DISTANCE of texts that are too long")
    distance = f"levenshtein(CASE WHEN strlen(@a) * strlen(@b) > {_MOST_COMPARED} THEN {long} ELSE @a END, @b)"
    if limit is not None:
        return once(f"least({distance}, @c)", value, other, limit)
    return once(distance, value, other)


def _lenient_text(node: exp.Expr) -> exp.Expr:
    """Bytes that are no UTF-8 become U+FFFD; the engine can only say that they are none."""
    replaced = r"regexp_replace(@a::VARCHAR, '(\\x[0-9A-F]{2})+', chr(65533), 'g')"
    return once(f"coalesce(try(decode(@a)), {replaced})", node.this)


def _soundex(node: exp.Expr) -> exp.Expr:
    return unsupported(node, "SOUNDEX")


MEANING = Meaning(
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
