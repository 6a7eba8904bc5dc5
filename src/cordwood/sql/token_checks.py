"""Normalization of tokens before parsing, and checks for invalid literals and for syntax of other dialects.

Doubled quotes, raw bytes and names that sqlglot treats as keywords are read as BigQuery reads them. Invalid escapes and
numbers out of range are refused, and so is syntax of other dialects that sqlglot's parser would accept.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.errors import BadQuerySyntax, QueryRefused
from cordwood.sql.diagnostics import most_similar_name, span_at
from cordwood.sql.nodes import parse_digits
from cordwood.sql.permitted_syntax import PERMITTED_FUNCTIONS, UNSUPPORTED_FUNCTIONS

# Matches all quoted parts and comments; a group captures only literals without a prefix, which may contain doubled
# quotes. An unterminated quote or comment extends to the end of the text, so that scanning takes linear time.
_QUOTED_OR_COMMENT_PATTERN: Final = re.compile(
    r"""(?:--|\#)[^\n]*|/\*.*?(?:\*/|\Z)|`[^`]*(?:`|\Z)|\b(?:r|b|rb|br)(?:'[^'\n]*'|"[^"\n]*")"""
    r"""|('(?:''|\\.|[^'\\])*+'|"(?:""|\\.|[^"\\])*+")|['"].*\Z""",
    re.DOTALL | re.IGNORECASE,
)


def escape_doubled_quotes(text: str) -> str:
    """Replace each doubled quote inside a literal by an escaped quote; positions in the text do not change.

    `parse` calls this function only if it cannot parse the text, because three quotes in a row may also begin a
    triple-quoted literal.
    """
    return _QUOTED_OR_COMMENT_PATTERN.sub(
        lambda match: _escape_doubled_quotes_in_literal(match[1]) if match[1] else match[0], text
    )


def _escape_doubled_quotes_in_literal(literal: str) -> str:
    quote = literal[0]
    inside = re.sub(
        rf"\\.|{quote}{quote}", lambda match: match[0].replace(quote * 2, f"\\{quote}"), literal[1:-1], flags=re.DOTALL
    )
    return f"{quote}{inside}{quote}"


def merge_literals_at_doubled_quotes(tokens: list[Token], text: str) -> list[Token]:
    """Join adjacent literals into one with a quote between them: `'it''s'` is the text it's.

    BigQuery refuses adjacent literals without a space, so no valid query changes its meaning. Clients written for other
    databases double the quotes in their users' input.
    """
    joined: list[Token] = []
    run: list[Token] = []
    for token in tokens:
        if run and not _are_adjacent(run[-1], token, text):
            joined.append(_merge_literals(run, text))
            run = []
        run.append(token)
    return [*joined, _merge_literals(run, text)] if run else joined


def _merge_literals(run: Sequence[Token], text: str) -> Token:
    """Merge adjacent literals into the first of their tokens, with a quote between every two of them."""
    first, last = run[0], run[-1]
    if first is not last:
        first.text = text[first.start].join(token.text for token in run)
        first.end, first.line, first.col = last.end, last.line, last.col
    return first


def _are_adjacent(left: Token, right: Token, text: str) -> bool:
    if not (left.token_type == right.token_type == TokenType.STRING and right.start == left.end + 1):
        return False
    quote = text[left.start]
    return text[right.start] == quote and not (
        text.startswith(quote * 3, left.start) or text.startswith(quote * 3, right.start)
    )


# Words that are ordinary names in BigQuery, but operators or commands to sqlglot's parser.
_KEYWORDS_READ_AS_NAMES: Final = frozenset(
    """
    ALTER CURRENT_USER DESCRIBE DROP GLOB ILIKE INSERT LOCK NOTNULL PARTITIONED_BY REGEXP RETURNING REVOKE
    RLIKE ROLLBACK UNCACHE XOR
""".split()
)
_SUM_READ_AS_NUMBER_PATTERN: Final = re.compile(r"([0-9.]+[eE][+-]?[0-9]+)([+-])([0-9.]+)")
_RAW_BYTES_PREFIXES: Final = frozenset(["rb", "br"])


def normalize_tokens(tokens: list[Token], text: str) -> list[Token]:
    """Turn keyword tokens that BigQuery reads as names into names, rb'…' into bytes, and 1e5+1 into a sum."""
    for index, token in enumerate(tokens):
        starts_statement = index > 0 and tokens[index - 1].token_type == TokenType.SEMICOLON
        if (
            token.text.upper() in _KEYWORDS_READ_AS_NAMES
            and not starts_statement
            and _token_source(token, text).isidentifier()
        ):
            token.token_type = TokenType.VAR
    return list(_split_sums_read_as_numbers(_join_raw_bytes(tokens, text)))


def _split_sums_read_as_numbers(tokens: Iterable[Token]) -> Iterator[Token]:
    """Split a sum such as 1e5+1, which the tokenizer reads as a single number, into three tokens."""
    for token in tokens:
        sum_match = _SUM_READ_AS_NUMBER_PATTERN.fullmatch(token.text) if token.token_type == TokenType.NUMBER else None
        if sum_match is None:
            yield token
            continue
        sign = TokenType.PLUS if sum_match[2] == "+" else TokenType.DASH
        for kind, group in ((TokenType.NUMBER, 1), (sign, 2), (TokenType.NUMBER, 3)):
            start, end = token.start + sum_match.start(group), token.start + sum_match.end(group) - 1
            yield Token(kind, sum_match[group], token.line, token.col - (token.end - end), start, end)


def _join_raw_bytes(tokens: list[Token], text: str) -> Iterator[Token]:
    prefix: Token | None = None
    for token, following in pairwise([*tokens, None]):
        if token is None:
            continue
        if following is not None and _is_raw_bytes_prefix(token, following):
            prefix = token
        elif prefix is not None:
            raw = _strip_quotes(_token_source(token, text)).encode().decode("latin-1")
            yield Token(TokenType.BYTE_STRING, raw, token.line, token.col, prefix.start, token.end)
            prefix = None
        else:
            yield token


def _is_raw_bytes_prefix(token: Token, following: Token) -> bool:
    touches = token.end + 1 == following.start
    is_word_before_text = token.token_type == TokenType.VAR and following.token_type == TokenType.STRING
    return touches and is_word_before_text and token.text.lower() in _RAW_BYTES_PREFIXES


def _strip_quotes(literal: str) -> str:
    width = 3 if literal[:3] in ("'''", '"""') and len(literal) >= 6 else 1
    return literal[width:-width]


def _token_source(token: Token, text: str) -> str:
    return text[token.start : token.end + 1]


_TEXT_AND_BYTES_ESCAPES_PATTERN: Final = r"""[abfnrtv\\?"'`]|[xX][0-9a-fA-F]{2}|[0-3][0-7]{2}"""
_TEXT_ONLY_ESCAPES_PATTERN: Final = (
    r"u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|U(?!0000[dD][89a-fA-F])00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4}"
)
_VALID_ESCAPE_PATTERN_BY_TYPE: Final = {
    TokenType.STRING: re.compile(f"{_TEXT_AND_BYTES_ESCAPES_PATTERN}|{_TEXT_ONLY_ESCAPES_PATTERN}"),
    TokenType.BYTE_STRING: re.compile(_TEXT_AND_BYTES_ESCAPES_PATTERN),
}
_MIN_RANGE_CHECKED_DIGITS: Final = len(str(2**63))
_ESCAPE_SEQUENCE_PATTERN: Final = re.compile(r"\\.?", re.DOTALL)


def check_literals(tokens: list[Token], text: str) -> None:
    for index, token in enumerate(tokens):
        valid_escapes = _VALID_ESCAPE_PATTERN_BY_TYPE.get(token.token_type)
        if valid_escapes is not None and not _is_raw_bytes(token, text):
            _check_escapes(valid_escapes, token, text)
        elif token.token_type in _NUMBER_TOKENS and len(token.text) >= _MIN_RANGE_CHECKED_DIGITS:
            _check_number_range(token, text, is_negative=tokens[index - 1].token_type == TokenType.DASH)


def _is_raw_bytes(token: Token, text: str) -> bool:
    return (
        token.token_type == TokenType.BYTE_STRING and text[token.start : token.start + 2].lower() in _RAW_BYTES_PREFIXES
    )


def _check_number_range(token: Token, text: str, *, is_negative: bool) -> None:
    is_hexadecimal = token.token_type == TokenType.HEX_STRING
    if is_hexadecimal and len(token.text.lstrip("0")) > _MAX_INT64_HEX_DIGITS:
        raise BadQuerySyntax(f"Invalid integer literal: 0x{token.text[:40]}", span=span_at(text, token.start))
    if token.text.isdecimal() and not is_hexadecimal and parse_digits(token.text) >= 2**63 + is_negative:
        raise BadQuerySyntax(f"Invalid integer literal: {token.text[:40]}", span=span_at(text, token.start))
    if len(token.text) > _MAX_NUMBER_DIGITS:
        raise BadQuerySyntax(
            f"Invalid number of more than {_MAX_NUMBER_DIGITS} digits", span=span_at(text, token.start)
        )


_NUMBER_TOKENS: Final = frozenset({TokenType.NUMBER, TokenType.HEX_STRING})
# The maximum number of hexadecimal digits of an INT64 literal.
_MAX_INT64_HEX_DIGITS: Final = 16
_MAX_NUMBER_DIGITS: Final = 1_000


def _check_escapes(valid_escapes: re.Pattern[str], token: Token, text: str) -> None:
    for escape in _ESCAPE_SEQUENCE_PATTERN.finditer(text, token.start, token.end + 1):
        if not valid_escapes.match(text, escape.start() + 1):
            raise BadQuerySyntax(f"Illegal escape sequence: {escape[0]}", span=span_at(text, escape.start()))


# BigQuery does not have the cast operator `::`, but it is accepted because self-hosted Supabase Studio sends
# `event_message::text`.
_ALLOWED_OPERATORS: Final = frozenset("( ) [ ] , . ; @ + - * / ~ ^ & | || << >> ? = < > <= >= != <> => |> ::".split())
_HINT_BY_FOREIGN_OPERATOR: Final = {
    "->": "Write JSON_QUERY(value, path).",
    "->>": "Write JSON_VALUE(value, path).",
    "==": "Write =.",
    "<=>": "Write IS NOT DISTINCT FROM.",
    "!": "Write NOT.",
    "%": "Write MOD(a, b).",
    "&&": "Write AND.",
}
# Words that may precede a parenthesis although they are not functions of BigQuery.
_KEYWORDS_BEFORE_PAREN: Final = frozenset(
    "ALL AND ANY CASE COLLATE EXISTS FILTER FIRST LAST LIKE MAP NOT OR TRANSFORM".split()
)
_BIGQUERY_PARSER: Final = Dialect.get_or_raise("bigquery").parser()
_FOREIGN_FUNCTIONS: Final = (
    frozenset([*_BIGQUERY_PARSER.FUNCTIONS, *_BIGQUERY_PARSER.FUNCTION_PARSERS, "XOR"])
    - PERMITTED_FUNCTIONS
    - UNSUPPORTED_FUNCTIONS
    - _KEYWORDS_BEFORE_PAREN
)
_CAST_FUNCTIONS: Final = frozenset(["CAST", "SAFE_CAST"])
_TYPE_NAMES: Final = frozenset(
    """
    ARRAY BIGDECIMAL BIGINT BIGNUMERIC BOOL BOOLEAN BYTEINT BYTES DATE DATETIME DECIMAL FLOAT32 FLOAT64 GEOGRAPHY INT
    INT64 INTEGER INTERVAL JSON NUMERIC RANGE SMALLINT STRING STRUCT TIME TIMESTAMP TINYINT
""".split()
)
_BIGQUERY_TYPE_BY_FOREIGN_TYPE: Final = {
    **dict.fromkeys(["VARCHAR", "TEXT", "CHAR", "NVARCHAR", "CHARACTER", "UUID", "NAME"], "STRING"),
    **dict.fromkeys(["DOUBLE", "FLOAT", "REAL", "FLOAT8", "FLOAT4"], "FLOAT64"),
    **dict.fromkeys(["INT8", "INT4", "INT2", "INT32", "UINT64", "UINT32", "LONG", "SIGNED", "UNSIGNED"], "INT64"),
    **dict.fromkeys(["TIMESTAMPTZ", "TIMESTAMP_TZ"], "TIMESTAMP"),
    **dict.fromkeys(["BLOB", "BINARY", "BYTEA", "VARBINARY"], "BYTES"),
    "JSONB": "JSON",
}
# The absolute value of the smallest INT64.
_MAX_ABSOLUTE_INTEGER: Final = 2**63
_TEXT_TOKENS: Final = (TokenType.STRING, TokenType.RAW_STRING)
# Keywords whose parentheses may contain AS with a text literal. Elsewhere, AS with a text literal is refused, because
# an alias cannot be a text.
_KEYWORDS_PERMITTING_TEXT_ALIAS: Final = frozenset(["UNPIVOT", "WITH"])
_LETTER_PATTERN: Final = re.compile(r"[a-zA-Z]")


# The minimum number of arguments of some functions, whose lowering rules would fail with fewer arguments. For the other
# functions, the parser checks the number.
_MIN_ARGUMENT_COUNTS: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        "ARRAY CEIL CEILING DATE DATETIME ERROR FLOOR NET.HOST NET.IPV4_FROM_INT64 NET.IPV4_TO_INT64 NET.IP_FROM_STRING"
        " NET.IP_TO_STRING NET.PUBLIC_SUFFIX NET.REG_DOMAIN NET.SAFE_IP_FROM_STRING TIME TIMESTAMP TO_JSON"
        " TO_JSON_STRING".split(),
        1,
    ),
    **dict.fromkeys(
        "APPROX_TOP_COUNT CONTAINS_SUBSTR DATETIME_BUCKET DATE_BUCKET EDIT_DISTANCE FORMAT_DATETIME"
        " FORMAT_TIME IEEE_DIVIDE MAX_BY MIN_BY NET.IP_NET_MASK NET.IP_TRUNC".split(),
        2,
    ),
    "REPLACE": 3,
}
_CLOSING_BRACKET_BY_OPENING_BRACKET: Final = {
    TokenType.L_PAREN: TokenType.R_PAREN,
    TokenType.L_BRACKET: TokenType.R_BRACKET,
}
_WEEKDAY_NAMES: Final = frozenset("SUNDAY MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY".split())


def check_argument_counts(tokens: list[Token], text: str) -> None:
    """Raise BadQuerySyntax for the first call with fewer arguments than its function needs."""
    # A stack of the open brackets: for each, the index of its token, and the number of commas directly inside it.
    opened: list[list[int]] = []
    for index, token in enumerate(tokens):
        kind = token.token_type
        if kind in _CLOSING_BRACKET_BY_OPENING_BRACKET:
            opened.append([index, 0])
            _check_subscript_and_week_functions(tokens, index, text)
        elif kind == TokenType.COMMA and opened:
            opened[-1][1] += 1
        elif kind in _CLOSING_BRACKET_BY_OPENING_BRACKET.values() and opened:
            start, commas = opened.pop()
            # If the closing bracket directly follows an opening parenthesis or a comma, there is no argument between
            # the two.
            is_empty = tokens[index - 1].token_type in (TokenType.L_PAREN, TokenType.COMMA)
            _check_argument_count(tokens, start, commas + (not is_empty), text)


def _check_argument_count(tokens: list[Token], start: int, count: int, text: str) -> None:
    name = _called_function_name(tokens, start)
    minimum = _MIN_ARGUMENT_COUNTS.get(name, 0)
    if count < minimum:
        noun = "argument" if minimum == 1 else "arguments"
        message = f"{name} takes at least {minimum} {noun}, not {count}."
        raise BadQuerySyntax(message, span=span_at(text, tokens[start - 1].start))


def _called_function_name(tokens: list[Token], start: int) -> str:
    """Return the function name before a parenthesis, with its namespace; empty if the parenthesis begins no call."""
    if start == 0 or tokens[start].token_type != TokenType.L_PAREN:
        return ""
    name, before = tokens[start - 1].text.upper(), tokens[max(0, start - 2)]
    if before.token_type == TokenType.DOT:
        namespace = tokens[max(0, start - 3)].text.upper()
        return name if namespace == "SAFE" else f"{namespace}.{name}"
    # After `*` or `* EXCEPT (…)`, REPLACE (…) is a list of columns, not a call of the function.
    return "" if name == "REPLACE" and before.token_type in (TokenType.STAR, TokenType.R_PAREN) else name


def _check_subscript_and_week_functions(tokens: list[Token], start: int, text: str) -> None:
    """Refuse ORDINAL and SAFE_ORDINAL outside of an array's brackets, and WEEK(…) without a day of the week."""
    name = _called_function_name(tokens, start)
    called = tokens[start - 1]
    if name in ("ORDINAL", "SAFE_ORDINAL") and tokens[max(0, start - 2)].token_type != TokenType.L_BRACKET:
        raise _syntax_error(
            called, text, f"{name} can only be used in the brackets after an array", f"Write items[{name}(1)]."
        )
    following = tokens[start + 1].text.upper() if start + 1 < len(tokens) else ""
    if name == "WEEK" and following not in _WEEKDAY_NAMES:
        raise _syntax_error(called, text, "WEEK needs a day of the week", "Write WEEK(MONDAY).")


def refuse_foreign_syntax(tokens: list[Token], text: str) -> None:
    """Refuse the first word or operator that BigQuery does not have, with BadQuerySyntax or QueryRefused."""
    openers: list[str] = []
    for index, token in enumerate(tokens):
        _refuse_foreign_literal_or_operator(token, text)
        _refuse_comma_in_limit(tokens, index, text)
        if index > 0:
            _refuse_invalid_token_pair(tokens[index - 1], token, openers, text)
        if token.token_type == TokenType.L_PAREN:
            _refuse_foreign_function(tokens, index - 1, text)
            openers.append(_word_before_parenthesis(tokens, index))
        elif token.token_type == TokenType.R_PAREN and openers:
            openers.pop()


def _word_before_parenthesis(tokens: list[Token], index: int) -> str:
    """Return the word that says what is in the parentheses; for UNPIVOT INCLUDE NULLS and EXCLUDE NULLS, UNPIVOT."""
    words = [token.text.upper() for token in tokens[max(index - 3, 0) : index]]
    if len(words) == 3 and words[0] == "UNPIVOT" and words[1] in ("INCLUDE", "EXCLUDE") and words[2] == "NULLS":
        return "UNPIVOT"
    return words[-1] if words else ""


def _syntax_error(token: Token, text: str, message: str, hint: str | None = None) -> BadQuerySyntax:
    return BadQuerySyntax(f"Syntax error: {message}.", hint=hint, span=span_at(text, token.start))


def _refuse_foreign_literal_or_operator(token: Token, text: str) -> None:
    source = _token_source(token, text)
    if token.token_type == TokenType.NATIONAL_STRING:
        raise _syntax_error(token, text, "n'…' is not a string of BigQuery")
    if token.token_type == TokenType.NUMBER and source.isdecimal() and parse_digits(source) > _MAX_ABSOLUTE_INTEGER:
        raise _syntax_error(token, text, f"{source[:40]} is no INT64", f"Write NUMERIC '{source[:40]}'.")
    if source not in _ALLOWED_OPERATORS and _is_operator(source):
        raise _syntax_error(
            token, text, f'"{source[:40]}" is not an operator of BigQuery', _HINT_BY_FOREIGN_OPERATOR.get(source)
        )


def _is_operator(source: str) -> bool:
    return bool(source.strip()) and not any(char.isalnum() or char in "_`'\"$\\" for char in source)


def _refuse_comma_in_limit(tokens: list[Token], index: int, text: str) -> None:
    token = tokens[index]
    if token.token_type == TokenType.COMMA and index > 1 and tokens[index - 2].token_type == TokenType.LIMIT:
        raise _syntax_error(token, text, "LIMIT takes one number", "Write LIMIT count OFFSET start.")


def _refuse_invalid_token_pair(previous: Token, token: Token, openers: list[str], text: str) -> None:
    kind = previous.token_type
    if kind == TokenType.NUMBER and previous.end + 1 == token.start and _token_source(token, text)[:1].isidentifier():
        raise _syntax_error(token, text, "a blank is missing between the number and what follows")
    if kind == TokenType.INTERVAL and token.token_type == TokenType.STRING and _LETTER_PATTERN.search(token.text):
        raise _syntax_error(token, text, "the unit of an INTERVAL stands outside of quotes", "Write INTERVAL 1 DAY.")
    _refuse_exclude_keyword(previous, token, text)
    if kind == TokenType.ALIAS:
        _check_type_or_alias_after_as(token, openers, text)


def _refuse_exclude_keyword(previous: Token, token: Token, text: str) -> None:
    """Refuse EXCLUDE, except in UNPIVOT's EXCLUDE NULLS; in BigQuery, columns are excluded from a star by EXCEPT."""
    if _token_source(previous, text).upper() == "EXCLUDE" and token.text.upper() != "NULLS":
        raise _syntax_error(previous, text, "EXCLUDE is reserved", "Write EXCEPT (…).")


def _check_type_or_alias_after_as(token: Token, openers: list[str], text: str) -> None:
    word = token.text.upper()
    if openers and openers[-1] in _CAST_FUNCTIONS:
        if _token_source(token, text).isidentifier() and word not in _TYPE_NAMES:
            equivalent = _BIGQUERY_TYPE_BY_FOREIGN_TYPE.get(word)
            hint = f"Write {equivalent}." if equivalent else None
            raise BadQuerySyntax(f"Type not found: {token.text[:40]}.", hint=hint, span=span_at(text, token.start))
    elif token.token_type in _TEXT_TOKENS and not _KEYWORDS_PERMITTING_TEXT_ALIAS.intersection(openers):
        raise _syntax_error(
            token, text, "a name is expected here, not a text", "Write the name plain, or in backquotes."
        )


def _refuse_foreign_function(tokens: list[Token], index: int, text: str) -> None:
    """Refuse a function that BigQuery does not have.

    Names after a dot are skipped, because `admit_query` checks them together with their namespace.
    """
    if index < 0 or (index > 0 and tokens[index - 1].token_type == TokenType.DOT):
        return
    token = tokens[index]
    word = token.text.upper()
    if word not in _FOREIGN_FUNCTIONS or not _token_source(token, text).isidentifier():
        return
    closest_name = most_similar_name(word, PERMITTED_FUNCTIONS)
    hint = (
        f"Did you mean {closest_name}?"
        if closest_name
        else "The functions that can be called are listed in the reference."
    )
    raise QueryRefused(f"The function {word} cannot be called here.", hint=hint, span=span_at(text, token.start))
