"""WITH(name AS value, …, result): parsed as a STRUCT, then replaced by its result with the names' values inlined."""

from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.errors import QueryRefused
from cordwood.sql.budget import copied

# Marks the result among the fields of such a STRUCT.
_RESULT: Final = "$with"
# The limit on inlined nodes, because values may name earlier ones, doubling in size each time.
_MOST_NODES: Final = 10_000
_OPENING: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
_CLOSING: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})


def as_structs(found: list[Token]) -> list[Token]:
    """Return the tokens with every `WITH(…)` rewritten as `STRUCT(value AS name, …, result AS …)`."""
    made: list[Token] = []
    at = 0
    while at < len(found):
        end = _end(found, at) if _begins(found, at) else None
        parts = _parts(found[at + 2 : end]) if end is not None else None
        if parts is None or end is None:
            made.append(found[at])
            at += 1
        else:
            made += _struct(found[at], parts, found[end])
            at = end + 1
    return made


def _begins(found: list[Token], at: int) -> bool:
    is_with = found[at].token_type == TokenType.WITH
    return is_with and at + 1 < len(found) and found[at + 1].token_type == TokenType.L_PAREN


def _end(found: list[Token], at: int) -> int | None:
    depth = 0
    for place in range(at + 1, len(found)):
        depth += (found[place].token_type in _OPENING) - (found[place].token_type in _CLOSING)
        if depth == 0:
            return place
    return None


def _parts(inside: list[Token]) -> list[list[Token]] | None:
    """Return the comma-separated parts; None if they are not named values followed by a result."""
    parts = _between_commas(inside)
    named = all(len(part) > 2 and part[1].token_type == TokenType.ALIAS for part in parts[:-1])
    return parts if named and len(parts) > 1 and parts[-1] else None


def _between_commas(inside: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in inside:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0 and token.token_type == TokenType.COMMA:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _struct(first: Token, parts: list[list[Token]], last: Token) -> list[Token]:
    made = [_like(first, TokenType.STRUCT, "STRUCT"), _like(first, TokenType.L_PAREN, "(")]
    for name, as_, *value in parts[:-1]:
        made += [*as_structs(value), as_, name, _like(name, TokenType.COMMA, ",")]
    result = [*as_structs(parts[-1]), _like(last, TokenType.ALIAS, "AS"), _like(last, TokenType.IDENTIFIER, _RESULT)]
    return [*made, *result, last]


def _like(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)


def spell_out(tree: exp.Expr) -> exp.Expr:
    """Replace such STRUCTs by their results, innermost first, because inner names shadow outer ones."""
    for struct in reversed(list(tree.find_all(exp.Struct))):
        if struct.expressions and _name(struct.expressions[-1]) == _RESULT:
            *named, result = struct.expressions
            values: dict[str, exp.Expr] = {}
            for field in named:
                values[_name(field).lower()] = _with_values(_value(field), values)
            made = _with_values(_value(result), values)
            if struct is tree:
                return made
            struct.replace(made)
    return tree


def _name(field: exp.Expr) -> str:
    return str(field.this.name) if isinstance(field, exp.PropertyEQ) else field.alias


def _value(field: exp.Expr) -> exp.Expr:
    value: exp.Expr = field.expression if isinstance(field, exp.PropertyEQ) else field.this
    return value


def _with_values(value: exp.Expr, values: dict[str, exp.Expr]) -> exp.Expr:
    holder = exp.Paren(this=copied(value))
    names = (column.parts[0].name.lower() for column in holder.find_all(exp.Column))
    if sum(_size(values[name]) for name in names if name in values) > _MOST_NODES:
        raise QueryRefused("The values of a WITH expression are repeated too often.", hint="Use sub-queries in WITH.")
    for column in list(holder.find_all(exp.Column)):
        first, *further = column.parts
        known = values.get(first.name.lower())
        if known is not None:
            put: exp.Expr = copied(known)
            for part in further:
                put = exp.Dot(this=put, expression=copied(part))
            column.replace(put)
    return holder


def _size(tree: exp.Expr) -> int:
    return sum(1 for _ in tree.walk())
