"""Checks for syntax of other dialects, which sqlglot's parser would accept with some meaning."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.errors import QueryRefused, QuerySyntax
from cordwood.sql.dialects.suggestions import nearest
from cordwood.sql.digits import whole
from cordwood.sql.permitted import FUNCTIONS, UNSUPPORTED
from cordwood.sql.positions import span_at

# BigQuery does not have `::`, but a client does: self-hosted Supabase Studio sends `event_message::text`.
_SIGNS: Final = frozenset("( ) [ ] , . ; @ + - * / ~ ^ & | || << >> ? = < > <= >= != <> => |> ::".split())
_HINTS: Final = {
    "->": "Write JSON_QUERY(value, path).",
    "->>": "Write JSON_VALUE(value, path).",
    "==": "Write =.",
    "<=>": "Write IS NOT DISTINCT FROM.",
    "!": "Write NOT.",
    "%": "Write MOD(a, b).",
    "&&": "Write AND.",
}
# Words that are ordinary names in BigQuery, but operators or commands to sqlglot's parser.
_NAMES: Final = frozenset(
    """
    ALTER CURRENT_USER DESCRIBE DROP GLOB ILIKE INSERT LOCK NOTNULL PARTITIONED_BY REGEXP RETURNING REVOKE
    RLIKE ROLLBACK UNCACHE XOR
""".split()
)
# Words that may precede a parenthesis although they are not functions of BigQuery.
_NO_CALLS: Final = frozenset("ALL AND ANY CASE COLLATE EXISTS FILTER FIRST LAST LIKE MAP NOT OR TRANSFORM".split())
_PARSER: Final = Dialect.get_or_raise("bigquery").parser()
_CALLS: Final = frozenset([*_PARSER.FUNCTIONS, *_PARSER.FUNCTION_PARSERS, "XOR"]) - FUNCTIONS - UNSUPPORTED - _NO_CALLS
_CASTS: Final = frozenset(["CAST", "SAFE_CAST"])
_TYPES: Final = frozenset(
    """
    ARRAY BIGDECIMAL BIGINT BIGNUMERIC BOOL BOOLEAN BYTEINT BYTES DATE DATETIME DECIMAL FLOAT32 FLOAT64 GEOGRAPHY INT
    INT64 INTEGER INTERVAL JSON NUMERIC RANGE SMALLINT STRING STRUCT TIME TIMESTAMP TINYINT
""".split()
)
_LIKELY: Final = {
    **dict.fromkeys(["VARCHAR", "TEXT", "CHAR", "NVARCHAR", "CHARACTER", "UUID", "NAME"], "STRING"),
    **dict.fromkeys(["DOUBLE", "FLOAT", "REAL", "FLOAT8", "FLOAT4"], "FLOAT64"),
    **dict.fromkeys(["INT8", "INT4", "INT2", "INT32", "UINT64", "UINT32", "LONG", "SIGNED", "UNSIGNED"], "INT64"),
    **dict.fromkeys(["TIMESTAMPTZ", "TIMESTAMP_TZ"], "TIMESTAMP"),
    **dict.fromkeys(["BLOB", "BINARY", "BYTEA", "VARBINARY"], "BYTES"),
    "JSONB": "JSON",
}
# The smallest INT64 without its minus sign.
_LARGEST: Final = 2**63
_TEXTS: Final = (TokenType.STRING, TokenType.RAW_STRING)
# Keywords in whose parentheses a text after AS is a value.
_NAMED_BY_TEXT: Final = frozenset(["UNPIVOT", "WITH"])
_LETTERS: Final = re.compile(r"[a-zA-Z]")
_SUM: Final = re.compile(r"([0-9.]+[eE][+-]?[0-9]+)([+-])([0-9.]+)")
_RAW_BYTES: Final = frozenset(["rb", "br"])


def clear_words(found: list[Token], text: str) -> list[Token]:
    """Turn words that are only names into names, rb'…' into bytes, and 1e5+1 into a sum."""
    for at, token in enumerate(found):
        begins = at > 0 and found[at - 1].token_type == TokenType.SEMICOLON
        if token.text.upper() in _NAMES and not begins and _source(token, text).isidentifier():
            token.token_type = TokenType.VAR
    return list(_with_sums(_with_raw_bytes(found, text)))


def _with_sums(found: Iterable[Token]) -> Iterator[Token]:
    """Split numbers such as 1e5+1, which the tokenizer reads as one token."""
    for token in found:
        parts = _SUM.fullmatch(token.text) if token.token_type == TokenType.NUMBER else None
        if parts is None:
            yield token
            continue
        sign = TokenType.PLUS if parts[2] == "+" else TokenType.DASH
        for kind, at in ((TokenType.NUMBER, 1), (sign, 2), (TokenType.NUMBER, 3)):
            start, end = token.start + parts.start(at), token.start + parts.end(at) - 1
            yield Token(kind, parts[at], token.line, token.col - (token.end - end), start, end)


def _with_raw_bytes(found: list[Token], text: str) -> Iterator[Token]:
    prefix: Token | None = None
    for token, following in pairwise([*found, None]):
        if token is None:
            continue
        if following is not None and _is_raw_prefix(token, following):
            prefix = token
        elif prefix is not None:
            raw = _unquoted(_source(token, text)).encode().decode("latin-1")
            yield Token(TokenType.BYTE_STRING, raw, token.line, token.col, prefix.start, token.end)
            prefix = None
        else:
            yield token


def _is_raw_prefix(token: Token, following: Token) -> bool:
    touches = token.end + 1 == following.start
    return touches and following.token_type == TokenType.STRING and token.text.lower() in _RAW_BYTES


def _unquoted(spelled: str) -> str:
    width = 3 if spelled[:3] in ("'''", '"""') and len(spelled) >= 6 else 1
    return spelled[width:-width]


def _source(token: Token, text: str) -> str:
    return text[token.start : token.end + 1]


def check_foreign(found: list[Token], text: str) -> None:
    """Raise QuerySyntax or QueryRefused for the first word or operator that BigQuery does not have."""
    openers: list[str] = []
    for at, token in enumerate(found):
        _check_sign(token, text)
        _check_limit(found, at, text)
        if at > 0:
            _check_pair(found[at - 1], token, openers, text)
        if token.token_type == TokenType.L_PAREN:
            _check_call(found, at - 1, text)
            openers.append(found[at - 1].text.upper() if at > 0 else "")
        elif token.token_type == TokenType.R_PAREN and openers:
            openers.pop()


def _wrong(token: Token, text: str, message: str, hint: str | None = None) -> QuerySyntax:
    return QuerySyntax(f"Syntax error: {message}.", hint=hint, span=span_at(text, token.start))


def _check_sign(token: Token, text: str) -> None:
    spelled = _source(token, text)
    if token.token_type == TokenType.NATIONAL_STRING:
        raise _wrong(token, text, "n'…' is not a string of BigQuery")
    if token.token_type == TokenType.NUMBER and spelled.isdecimal() and whole(spelled) > _LARGEST:
        raise _wrong(token, text, f"{spelled[:40]} is no INT64", f"Write NUMERIC '{spelled[:40]}'.")
    if spelled not in _SIGNS and _is_sign(spelled):
        raise _wrong(token, text, f'"{spelled[:40]}" is not an operator of BigQuery', _HINTS.get(spelled))


def _is_sign(spelled: str) -> bool:
    return bool(spelled.strip()) and not any(char.isalnum() or char in "_`'\"$\\" for char in spelled)


def _check_limit(found: list[Token], at: int, text: str) -> None:
    token = found[at]
    if token.token_type == TokenType.COMMA and at > 1 and found[at - 2].token_type == TokenType.LIMIT:
        raise _wrong(token, text, "LIMIT takes one number", "Write LIMIT count OFFSET start.")


def _check_pair(before: Token, token: Token, openers: list[str], text: str) -> None:
    kind = before.token_type
    if kind == TokenType.NUMBER and before.end + 1 == token.start and _source(token, text)[:1].isidentifier():
        raise _wrong(token, text, "a blank is missing between the number and what follows")
    if kind == TokenType.INTERVAL and token.token_type == TokenType.STRING and _LETTERS.search(token.text):
        raise _wrong(token, text, "the unit of an INTERVAL stands outside of quotes", "Write INTERVAL 1 DAY.")
    _check_excluded(before, token, text)
    if kind == TokenType.ALIAS:
        _check_after_as(token, openers, text)


def _check_excluded(before: Token, token: Token, text: str) -> None:
    """Refuse EXCLUDE, except in UNPIVOT's EXCLUDE NULLS; stars exclude columns by EXCEPT."""
    if _source(before, text).upper() == "EXCLUDE" and token.text.upper() != "NULLS":
        raise _wrong(before, text, "EXCLUDE is reserved", "Write EXCEPT (…).")


def _check_after_as(token: Token, openers: list[str], text: str) -> None:
    word = token.text.upper()
    if openers and openers[-1] in _CASTS:
        if _source(token, text).isidentifier() and word not in _TYPES:
            likely = _LIKELY.get(word)
            hint = f"Write {likely}." if likely else None
            raise QuerySyntax(f"Type not found: {token.text[:40]}.", hint=hint, span=span_at(text, token.start))
    elif token.token_type in _TEXTS and not _NAMED_BY_TEXT.intersection(openers):
        raise _wrong(token, text, "a name is expected here, not a text", "Write the name plain, or in backquotes.")


def _check_call(found: list[Token], at: int, text: str) -> None:
    """Refuse a function that BigQuery does not have; names after a dot are checked with their namespace by `admit`."""
    if at < 0 or (at > 0 and found[at - 1].token_type == TokenType.DOT):
        return
    token = found[at]
    word = token.text.upper()
    if word not in _CALLS or not _source(token, text).isidentifier():
        return
    close = nearest(word, FUNCTIONS)
    hint = f"Did you mean {close}?" if close else "The functions that can be called are listed in the reference."
    raise QueryRefused(f"The function {word} cannot be called here.", hint=hint, span=span_at(text, token.start))
