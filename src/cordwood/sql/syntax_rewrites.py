"""Rewrites of tokens and trees for BigQuery syntax that sqlglot's parser misreads.

Tokens are rewritten before parsing: pipe steps, WITH(…) expressions, JSON functions and subscripts. Trees are rewritten
after parsing: WITH(…) expressions, quantifiers, subscripts, names of unnested arrays, and bitwise operators.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.errors import QueryRefused
from cordwood.sql.budget import copy_tree

_OPENING_BRACKETS: Final = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET})
_CLOSING_BRACKETS: Final = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET})


# For a step with LIMIT or DISTINCT: the operators of later pipe steps that sqlglot may put into the same SELECT. A step
# with any other operator must read the result from a sub-query.
_MERGEABLE_STEPS_BY_EARLIER_STEP: Final = {
    "LIMIT": frozenset({"SELECT", "EXTEND", "LIMIT"}),
    "DISTINCT": frozenset({"ORDER", "LIMIT"}),
}


def insert_select_between_pipe_steps(tokens: list[Token]) -> list[Token]:
    """Insert `|> SELECT *` between steps such as `|> LIMIT 2 |> WHERE …`, so that the second step reads a sub-query."""
    pipes = [index for index, token in enumerate(tokens) if token.token_type == TokenType.PIPE_GT]
    if len(pipes) < 2:
        return tokens
    cuts = set(_find_sub_query_boundaries(tokens, pipes))
    return [
        inserted_token
        for index, token in enumerate(tokens)
        for inserted_token in (*(_select_star_tokens(token) if index in cuts else ()), token)
    ]


def _find_sub_query_boundaries(tokens: list[Token], pipes: list[int]) -> Iterator[int]:
    open_steps: set[str] = set()
    for pipe, next_pipe in pairwise(pipes):
        step, next_step = _step_name(tokens, pipe), _step_name(tokens, next_pipe)
        open_steps.add(step)
        if step in _PIPE_STEPS_STARTING_SUB_QUERY:
            open_steps.clear()
        if any(_needs_sub_query(next_step, earlier) for earlier in open_steps):
            open_steps.clear()
            yield next_pipe


def copy_shared_nodes(tree: exp.Expr) -> None:
    """Copy each node that occurs under two parents, so that every node has one parent.

    For a column that AGGREGATE groups by, sqlglot puts the same node into two clauses. The node stores only one of the
    parents, so resolving it in one clause would leave the other clause unresolved.
    """
    for node in list(tree.walk()):
        if any(child.parent is not node for child in node.iter_expressions()):
            for key, value in list(node.args.items()):
                copies = (
                    [_copy_if_shared(child, node) for child in value]
                    if isinstance(value, list)
                    else _copy_if_shared(value, node)
                )
                node.set(key, copies)


def _copy_if_shared(child: object, parent: exp.Expr) -> object:
    return copy_tree(child) if isinstance(child, exp.Expr) and child.parent is not parent else child


# Pipe steps after which sqlglot begins a new sub-query anyway.
_PIPE_STEPS_STARTING_SUB_QUERY: Final = frozenset(
    {"AGGREGATE", "SELECT", "EXTEND", "PIVOT", "UNPIVOT", "UNION", "INTERSECT", "EXCEPT"}
)


def _needs_sub_query(step: str, earlier: str) -> bool:
    if earlier == "ORDER":
        return step == "AGGREGATE"
    return earlier in _MERGEABLE_STEPS_BY_EARLIER_STEP and step not in _MERGEABLE_STEPS_BY_EARLIER_STEP[earlier]


def _step_name(tokens: list[Token], pipe: int) -> str:
    return tokens[pipe + 1].text.upper().split(" ")[0] if pipe + 1 < len(tokens) else ""


def _select_star_tokens(pipe: Token) -> tuple[Token, ...]:
    step = ((TokenType.PIPE_GT, "|>"), (TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"))
    return tuple(_make_token_at(pipe, kind, text) for kind, text in step)


# The result of WITH(name AS value, …, result) has this name in the STRUCT into which the expression is rewritten.
_WITH_RESULT_FIELD_NAME: Final = "$with"
# The limit on the nodes that replace names in WITH(…) expressions. A value may use earlier values, so the size can
# double with each value.
_MAX_INLINED_NODES: Final = 10_000


def rewrite_with_as_struct(tokens: list[Token]) -> list[Token]:
    """Return the tokens with every `WITH(…)` rewritten as `STRUCT(value AS name, …, result AS …)`."""
    rewritten: list[Token] = []
    index = 0
    while index < len(tokens):
        end = _find_closing_bracket(tokens, index + 1) if _is_with_expression_start(tokens, index) else len(tokens)
        parts = _split_arguments(tokens[index + 2 : end]) if end < len(tokens) else None
        if parts is None:
            rewritten.append(tokens[index])
            index += 1
        else:
            rewritten += _struct_tokens(tokens[index], parts, tokens[end])
            index = end + 1
    return rewritten


def _is_with_expression_start(tokens: list[Token], index: int) -> bool:
    is_with = tokens[index].token_type == TokenType.WITH
    return is_with and index + 1 < len(tokens) and tokens[index + 1].token_type == TokenType.L_PAREN


def _split_arguments(inside: list[Token]) -> list[list[Token]] | None:
    """Return the parts of WITH(…) between commas; None if they are not named values followed by a result."""
    parts = _split_at_commas(inside)
    all_named = all(len(part) > 2 and part[1].token_type == TokenType.ALIAS for part in parts[:-1])
    return parts if all_named and len(parts) > 1 and parts[-1] else None


def _split_at_commas(inside: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in inside:
        depth += (token.token_type in _OPENING_BRACKETS) - (token.token_type in _CLOSING_BRACKETS)
        if depth == 0 and token.token_type == TokenType.COMMA:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _struct_tokens(first: Token, parts: list[list[Token]], last: Token) -> list[Token]:
    struct = [_make_token_at(first, TokenType.STRUCT, "STRUCT"), _make_token_at(first, TokenType.L_PAREN, "(")]
    for name, as_, *value in parts[:-1]:
        struct += [*rewrite_with_as_struct(value), as_, name, _make_token_at(name, TokenType.COMMA, ",")]
    result = [
        *rewrite_with_as_struct(parts[-1]),
        _make_token_at(last, TokenType.ALIAS, "AS"),
        _make_token_at(last, TokenType.IDENTIFIER, _WITH_RESULT_FIELD_NAME),
    ]
    return [*struct, *result, last]


def inline_with_expressions(tree: exp.Expr) -> exp.Expr:
    """Replace each STRUCT that was made from WITH(…) by its result, in which names are replaced by their values.

    Inner STRUCTs are replaced first, because inner names shadow outer ones.
    """
    for struct in reversed(list(tree.find_all(exp.Struct))):
        if struct.expressions and _field_name(struct.expressions[-1]) == _WITH_RESULT_FIELD_NAME:
            *fields, result = struct.expressions
            values: dict[str, exp.Expr] = {}
            for field in fields:
                values[_field_name(field).lower()] = _inline_values(_field_value(field), values)
            result_value = _inline_values(_field_value(result), values)
            if struct is tree:
                return result_value
            struct.replace(result_value)
    return tree


def _field_name(field: exp.Expr) -> str:
    return str(field.this.name) if isinstance(field, exp.PropertyEQ) else field.alias


def _field_value(field: exp.Expr) -> exp.Expr:
    value: exp.Expr = field.expression if isinstance(field, exp.PropertyEQ) else field.this
    return value


def _inline_values(value: exp.Expr, values: dict[str, exp.Expr]) -> exp.Expr:
    holder = exp.Paren(this=copy_tree(value))
    names = (column.parts[0].name.lower() for column in holder.find_all(exp.Column))
    if sum(_node_count(values[name]) for name in names if name in values) > _MAX_INLINED_NODES:
        raise QueryRefused("The values of a WITH expression are repeated too often.", hint="Use sub-queries in WITH.")
    for column in list(holder.find_all(exp.Column)):
        first, *field_names = column.parts
        value_of_name = values.get(first.name.lower())
        if value_of_name is not None:
            inlined: exp.Expr = copy_tree(value_of_name)
            for part in field_names:
                inlined = exp.Dot(this=inlined, expression=copy_tree(part))
            column.replace(inlined)
    return holder


def _node_count(tree: exp.Expr) -> int:
    return sum(1 for _ in tree.walk())


_FIELD_OR_ELEMENT_ACCESS_TOKENS: Final = frozenset({TokenType.DOT, TokenType.L_BRACKET})
_JSON_ROOT_PATH: Final = "$"


def insert_tokens_required_by_parser(tokens: list[Token]) -> list[Token]:
    """Insert the parentheses and arguments without which the parser misreads some calls.

    Parentheses are inserted around the value of `JSON '…'.a` and `SAFE.F(…)[0]`, around UNNEST(…) after ALL, and
    around arguments of JSON_OBJECT(…). The default path is inserted into JSON_QUERY(x).
    """
    _turn_into_raw_strings(tokens)
    inserted = dict(_find_token_insertions(tokens))
    if not inserted:
        return tokens
    cleared = [
        inserted_token for index, token in enumerate(tokens) for inserted_token in (*inserted.get(index, ()), token)
    ]
    return [*cleared, *inserted.get(len(tokens), ())]


def _turn_into_raw_strings(tokens: list[Token]) -> None:
    """Turn JSON paths and empty time formats into raw strings, because the parser would change or drop them."""
    openers: list[str] = []
    for previous, token in pairwise(tokens):
        if token.token_type == TokenType.L_PAREN:
            openers.append(previous.text.lower())
        elif token.token_type == TokenType.R_PAREN:
            del openers[-1:]
        elif token.token_type == TokenType.STRING and openers and _must_be_raw_string(token, openers[-1], previous):
            token.token_type = TokenType.RAW_STRING


def _must_be_raw_string(token: Token, function: str, previous: Token) -> bool:
    if function in _JSON_PATH_FUNCTIONS:
        return previous.token_type == TokenType.COMMA
    return function in _TIME_FORMAT_FUNCTIONS and not token.text


_JSON_PATH_FUNCTIONS: Final = frozenset(
    [
        "json_extract",
        "json_extract_array",
        "json_extract_scalar",
        "json_extract_string_array",
        "json_query",
        "json_query_array",
        "json_value",
        "json_value_array",
    ]
)
_TIME_FORMAT_FUNCTIONS: Final = frozenset(
    f"{verb}_{kind}" for verb in ("format", "parse") for kind in ("date", "datetime", "time", "timestamp")
)


def _find_token_insertions(tokens: list[Token]) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Yield all tokens that must be inserted, each with the index of the token before which it belongs."""
    for index, (token, following) in enumerate(pairwise(tokens)):
        yield from _find_token_insertions_at(tokens, index, token, following)


def _find_token_insertions_at(
    tokens: list[Token], index: int, token: Token, following: Token
) -> Iterator[tuple[int, tuple[Token, ...]]]:
    word = token.text.lower()
    if token.token_type == TokenType.JSON and following.token_type == TokenType.STRING:
        yield from _parenthesise_before_access(tokens, index, index + 1)
    elif word == "safe" and _is_safe_prefixed_call(tokens, index):
        yield from _parenthesise_before_access(tokens, index, _find_closing_bracket(tokens, index + 3))
    elif word in _INSERTION_FINDER_BY_FUNCTION and _is_call(tokens, index):
        yield from _INSERTION_FINDER_BY_FUNCTION[word](tokens, index + 1)
    elif word == "all":
        yield from _parenthesise_unnest(tokens, index + 1, following)


def _is_safe_prefixed_call(tokens: list[Token], index: int) -> bool:
    return tokens[index + 1].token_type == TokenType.DOT and _is_call(tokens, index + 2)


def _parenthesise_unnest(tokens: list[Token], index: int, token: Token) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Parenthesise UNNEST(…) after a quantifier, because the parser cannot read `ALL UNNEST(…)`."""
    if token.token_type == TokenType.UNNEST and _is_call(tokens, index):
        yield index, (_make_token_at(token, TokenType.L_PAREN, "("),)
        yield _find_closing_bracket(tokens, index + 1) + 1, (_make_token_at(token, TokenType.R_PAREN, ")"),)


def strip_quantifier_parentheses(tree: exp.Expr) -> None:
    """Remove the parentheses that were inserted into `LIKE ALL UNNEST(…)`."""
    for quantifier in tree.find_all(exp.Any, exp.All):
        if isinstance(quantifier.this, exp.Paren) and isinstance(quantifier.this.this, exp.Unnest):
            quantifier.set("this", quantifier.this.this)


def _is_call(tokens: list[Token], index: int) -> bool:
    return index + 1 < len(tokens) and tokens[index + 1].token_type == TokenType.L_PAREN


def _parenthesise_before_access(tokens: list[Token], first: int, last: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    if last + 1 < len(tokens) and tokens[last + 1].token_type in _FIELD_OR_ELEMENT_ACCESS_TOKENS:
        yield first, (_make_token_at(tokens[first], TokenType.L_PAREN, "("),)
        yield last + 1, (_make_token_at(tokens[last], TokenType.R_PAREN, ")"),)


def _insert_default_json_path(tokens: list[Token], open_index: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    close_index = _find_closing_bracket(tokens, open_index)
    depth = 0
    for token in tokens[open_index:close_index]:
        depth += (token.token_type in _OPENING_BRACKETS) - (token.token_type in _CLOSING_BRACKETS)
        if depth == 1 and token.token_type == TokenType.COMMA:
            return
    if open_index + 1 < close_index < len(tokens):
        end = tokens[close_index]
        yield (
            close_index,
            (_make_token_at(end, TokenType.COMMA, ","), _make_token_at(end, TokenType.STRING, _JSON_ROOT_PATH)),
        )


def _parenthesise_json_object_arguments(
    tokens: list[Token], open_index: int
) -> Iterator[tuple[int, tuple[Token, ...]]]:
    is_array = tokens[open_index + 1].token_type in _ARRAY_CONSTRUCTORS
    yield from (
        _parenthesise_json_object_keys(tokens, open_index)
        if is_array
        else _parenthesise_keyword_like_columns(tokens, open_index)
    )


def _parenthesise_json_object_keys(tokens: list[Token], open_index: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Put the keys of JSON_OBJECT(keys, values) in parentheses.

    Otherwise, the parser would pair the keys and values itself, and drop the excess elements of the longer array.
    """
    depth = 0
    for index in range(open_index, _find_closing_bracket(tokens, open_index)):
        token = tokens[index]
        depth += (token.token_type in _OPENING_BRACKETS) - (token.token_type in _CLOSING_BRACKETS)
        if depth == 1 and token.token_type == TokenType.COMMA:
            yield open_index + 1, (_make_token_at(tokens[open_index], TokenType.L_PAREN, "("),)
            yield index, (_make_token_at(token, TokenType.R_PAREN, ")"),)
            return


def _parenthesise_keyword_like_columns(tokens: list[Token], open_index: int) -> Iterator[tuple[int, tuple[Token, ...]]]:
    """Parenthesise arguments that are columns named `key` or `value`: the parser would treat them as keywords."""
    depth = 0
    for index in range(open_index, _find_closing_bracket(tokens, open_index)):
        token = tokens[index]
        depth += (token.token_type in _OPENING_BRACKETS) - (token.token_type in _CLOSING_BRACKETS)
        is_whole_argument = (
            tokens[index - 1].token_type in _ARGUMENT_DELIMITERS
            and tokens[index + 1].token_type in _ARGUMENT_DELIMITERS
        )
        if (
            depth == 1
            and is_whole_argument
            and token.text.lower() in _COLUMN_NAMES_PARSED_AS_KEYWORDS
            and token.token_type != TokenType.STRING
        ):
            yield index, (_make_token_at(token, TokenType.L_PAREN, "("),)
            yield index + 1, (_make_token_at(token, TokenType.R_PAREN, ")"),)


_COLUMN_NAMES_PARSED_AS_KEYWORDS: Final = frozenset(["key", "value"])
_ARRAY_CONSTRUCTORS: Final = frozenset({TokenType.L_BRACKET, TokenType.ARRAY})
_ARGUMENT_DELIMITERS: Final = frozenset({TokenType.L_PAREN, TokenType.COMMA, TokenType.R_PAREN})
# Functions whose calls need additional tokens, each with the function of this module that yields the tokens.
_INSERTION_FINDER_BY_FUNCTION: Final = {
    "json_query": _insert_default_json_path,
    "json_object": _parenthesise_json_object_arguments,
}


def resolve_nested_subscript_functions(tree: exp.Expr) -> None:
    """Set the offset kind (OFFSET, ORDINAL, SAFE_OFFSET or SAFE_ORDINAL) of nested subscripts.

    In `a[OFFSET(0)][OFFSET(1)]`, the parser recognises only the last OFFSET, and reads the first one as a function.
    """
    for bracket in tree.find_all(exp.Bracket):
        index = bracket.expressions[0] if len(bracket.expressions) == 1 else None
        if isinstance(index, exp.Anonymous) and len(index.expressions) == 1:
            tokens = _SUBSCRIPT_MODE_BY_FUNCTION.get(str(index.this).upper())
            if tokens is not None:
                bracket.set("offset", tokens[0])
                bracket.set("safe", tokens[1])
                index.replace(index.expressions[0])


# The subscript functions. For each: the index of the first element, and whether an index out of range yields NULL.
_SUBSCRIPT_MODE_BY_FUNCTION: Final = {
    "OFFSET": (0, False),
    "ORDINAL": (1, False),
    "SAFE_OFFSET": (0, True),
    "SAFE_ORDINAL": (1, True),
}


def alias_implicitly_unnested_arrays(tree: exp.Expr) -> None:
    """Give an array that is unnested without UNNEST (`FROM t, t.items`) the last part of its path as its alias."""
    for unnest in tree.find_all(exp.Unnest):
        # The parser stores the argument `offset` only in an UNNEST(…) that the author wrote, and not in an UNNEST that
        # the parser inserts.
        if isinstance(unnest.parent, exp.Join) and "offset" not in unnest.args and unnest.args.get("alias") is None:
            path = unnest.expressions[0]
            last = path.expression if isinstance(path, exp.Dot) else path.this
            unnest.set("alias", exp.TableAlias(columns=[copy_tree(last)]))


# The precedence of bitwise operators, which sqlglot treats as equal: in BigQuery shifts bind tightest, then &, then ^,
# then |.
_BITWISE_PRECEDENCE: Final[dict[type[exp.Expr], int]] = {
    exp.BitwiseOr: 1,
    exp.BitwiseXor: 2,
    exp.BitwiseAnd: 3,
    exp.BitwiseLeftShift: 4,
    exp.BitwiseRightShift: 4,
}


def parenthesise_bitwise_operators(tree: exp.Expr) -> None:
    """Parenthesise chains of bitwise operators with different precedence."""
    for node in list(tree.find_all(*_BITWISE_PRECEDENCE)):
        chain = _operator_chain(node)
        if len({_precedence_level(operator) for operator in chain}) > 1:
            node.replace(_nest_by_precedence(chain))


def _precedence_level(operator: exp.Expr) -> int:
    return _BITWISE_PRECEDENCE[type(operator)]


def _operator_chain(node: exp.Expr) -> list[exp.Expr]:
    """Return the operators of a chain such as `a | b & c`, left to right; none if `node` is not its last operator."""
    if type(node.parent) in _BITWISE_PRECEDENCE and node.arg_key == "this":
        return []
    chain = [node]
    while type(chain[-1].this) in _BITWISE_PRECEDENCE:
        chain.append(chain[-1].this)
    return chain[::-1]


def _nest_by_precedence(chain: list[exp.Expr]) -> exp.Expr:
    values: list[exp.Expr] = [copy_tree(chain[0].this)]
    pending: list[exp.Expr] = []
    for operator in chain:
        while pending and _precedence_level(pending[-1]) >= _precedence_level(operator):
            _apply_operator(values, pending.pop())
        pending.append(operator)
        values.append(copy_tree(operator.expression))
    while pending:
        _apply_operator(values, pending.pop())
    return values[0]


def _apply_operator(values: list[exp.Expr], operator: exp.Expr) -> None:
    right, left = values.pop(), values.pop()
    combined = type(operator)(this=_parenthesise_operand(left), expression=_parenthesise_operand(right))
    combined.meta.update(operator.meta)
    values.append(combined)


def _parenthesise_operand(value: exp.Expr) -> exp.Expr:
    return exp.Paren(this=value) if type(value) in _BITWISE_PRECEDENCE else value


def _find_closing_bracket(tokens: list[Token], open_index: int) -> int:
    """Return the index of the token that closes the bracket at `open_index`; the number of tokens if none does."""
    depth = 0
    for index in range(open_index, len(tokens)):
        depth += (tokens[index].token_type in _OPENING_BRACKETS) - (tokens[index].token_type in _CLOSING_BRACKETS)
        if depth == 0:
            return index
    return len(tokens)


def _make_token_at(token: Token, kind: TokenType, text: str) -> Token:
    """Return a new token with the position of an existing token."""
    return Token(kind, text, token.line, token.col, token.start, token.end)
