"""WITH(name AS value, …, result): parsed as a STRUCT, then replaced by its result with the names' values inlined."""

from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.errors import QueryRefused
from cordwood.sql.budget import copied

# Marks the result among the fields of such a STRUCT.
_RESULT_NAME: Final = "$with"
# The limit on inlined nodes, because values may name earlier ones, doubling in size each time.
_MAX_NODES: Final = 10_000
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})


def rewrite_with_as_struct(tokens: list[Token]) -> list[Token]:
    """Return the tokens with every `WITH(…)` rewritten as `STRUCT(value AS name, …, result AS …)`."""
    rewritten: list[Token] = []
    index = 0
    while index < len(tokens):
        end = _find_end(tokens, index) if _starts_with_expression(tokens, index) else None
        parts = _split_arguments(tokens[index + 2 : end]) if end is not None else None
        if parts is None or end is None:
            rewritten.append(tokens[index])
            index += 1
        else:
            rewritten += _struct_tokens(tokens[index], parts, tokens[end])
            index = end + 1
    return rewritten


def _starts_with_expression(tokens: list[Token], index: int) -> bool:
    is_with = tokens[index].token_type == TokenType.WITH
    return is_with and index + 1 < len(tokens) and tokens[index + 1].token_type == TokenType.L_PAREN


def _find_end(tokens: list[Token], index: int) -> int | None:
    depth = 0
    for position in range(index + 1, len(tokens)):
        depth += (tokens[position].token_type in _OPENING) - (tokens[position].token_type in _CLOSING)
        if depth == 0:
            return position
    return None


def _split_arguments(inside: list[Token]) -> list[list[Token]] | None:
    """Return the comma-separated parts; None if they are not named values followed by a result."""
    parts = _split_at_commas(inside)
    all_named = all(len(part) > 2 and part[1].token_type == TokenType.ALIAS for part in parts[:-1])
    return parts if all_named and len(parts) > 1 and parts[-1] else None


def _split_at_commas(inside: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in inside:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0 and token.token_type == TokenType.COMMA:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _struct_tokens(first: Token, parts: list[list[Token]], last: Token) -> list[Token]:
    struct = [_token_at(first, TokenType.STRUCT, "STRUCT"), _token_at(first, TokenType.L_PAREN, "(")]
    for name, as_, *value in parts[:-1]:
        struct += [*rewrite_with_as_struct(value), as_, name, _token_at(name, TokenType.COMMA, ",")]
    result = [
        *rewrite_with_as_struct(parts[-1]),
        _token_at(last, TokenType.ALIAS, "AS"),
        _token_at(last, TokenType.IDENTIFIER, _RESULT_NAME),
    ]
    return [*struct, *result, last]


def _token_at(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)


def inline_with_expressions(tree: exp.Expr) -> exp.Expr:
    """Replace such STRUCTs by their results, innermost first, because inner names shadow outer ones."""
    for struct in reversed(list(tree.find_all(exp.Struct))):
        if struct.expressions and _name(struct.expressions[-1]) == _RESULT_NAME:
            *fields, result = struct.expressions
            values: dict[str, exp.Expr] = {}
            for field in fields:
                values[_name(field).lower()] = _inline_values(_value(field), values)
            result_value = _inline_values(_value(result), values)
            if struct is tree:
                return result_value
            struct.replace(result_value)
    return tree


def _name(field: exp.Expr) -> str:
    return str(field.this.name) if isinstance(field, exp.PropertyEQ) else field.alias


def _value(field: exp.Expr) -> exp.Expr:
    value: exp.Expr = field.expression if isinstance(field, exp.PropertyEQ) else field.this
    return value


def _inline_values(value: exp.Expr, values: dict[str, exp.Expr]) -> exp.Expr:
    holder = exp.Paren(this=copied(value))
    names = (column.parts[0].name.lower() for column in holder.find_all(exp.Column))
    if sum(_size(values[name]) for name in names if name in values) > _MAX_NODES:
        raise QueryRefused("The values of a WITH expression are repeated too often.", hint="Use sub-queries in WITH.")
    for column in list(holder.find_all(exp.Column)):
        first, *field_names = column.parts
        value_of_name = values.get(first.name.lower())
        if value_of_name is not None:
            inlined: exp.Expr = copied(value_of_name)
            for part in field_names:
                inlined = exp.Dot(this=inlined, expression=copied(part))
            column.replace(inlined)
    return holder


def _size(tree: exp.Expr) -> int:
    return sum(1 for _ in tree.walk())
