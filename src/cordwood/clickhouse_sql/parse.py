"""Parse ClickHouse SQL, and check that it is permitted.

The text must be one query within the limits of `sql/parse.py`. It may contain only the syntax and functions on the
allow-list in `permitted_syntax.py`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import exp
from sqlglot.dialects.clickhouse import ClickHouse
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.clickhouse_sql.calls import WRITTEN_NAME_METADATA_KEY, call_of, is_known_function
from cordwood.clickhouse_sql.keyword_names import read_aliases_as_names
from cordwood.clickhouse_sql.permitted_syntax import PERMITTED_ARGUMENTS_BY_NODE, PERMITTED_FUNCTIONS
from cordwood.errors import BadQuerySyntax, QueryRefused, Span, find_closest_name
from cordwood.sql.budget import charge_nodes
from cordwood.sql.diagnostics import span_at, span_of
from cordwood.sql.parse import (
    check_parser_work,
    check_query_characters,
    check_statement_start,
    check_tree_depth,
    nesting_error,
    syntax_fault,
    tokenizer_fault,
)
from cordwood.sql.stages import ParsedQuery


class _ClickHouseWithPlainIndexes(ClickHouse):
    """sqlglot's dialect without its change of array indexes.

    Otherwise sqlglot subtracts 1 from those indexes that it recognises as integers, and leaves all others unchanged.
    """

    INDEX_OFFSET = 0


_CLICKHOUSE_DIALECT: Final = _ClickHouseWithPlainIndexes()
# The maximum length of a number in a query. Numbers in FLOAT64 have up to 309 digits before the decimal point.
_MAX_NUMBER_CHARACTERS: Final = 1_000
# After one of these words, sqlglot may parse the same parentheses twice. The words include the names of types, and
# FROM: after it, sqlglot tries the content of the parentheses as a join and as a query.
_WORDS_BEFORE_REPARSED_PARENTHESES: Final = frozenset(
    [
        *(
            word.lower()
            for word, kind in _CLICKHOUSE_DIALECT.tokenizer_class.KEYWORDS.items()
            if kind in _CLICKHOUSE_DIALECT.parser_class.TYPE_TOKENS
        ),
        *("cast", "extract", "from", "interval"),
    ]
)


def parse_clickhouse_sql(text: str) -> ParsedQuery:
    """Parse a text that must be a single statement; raise BadQuerySyntax or QueryRefused with an error's position."""
    check_query_characters(text)
    tokens = _tokenize(text)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        tokens.pop()
    if not tokens:
        raise BadQuerySyntax("The query is empty.", hint="Send one SELECT.", span=Span(1, 1))
    check_statement_start(tokens[0], text)
    check_parser_work(tokens, text, _WORDS_BEFORE_REPARSED_PARENTHESES)
    _check_number_lengths(tokens, text)
    second = next((token for token in tokens if token.token_type == TokenType.SEMICOLON), None)
    if second is not None:
        raise QueryRefused("Only one statement can be sent.", hint="Send one SELECT.", span=span_at(text, second.start))
    read_aliases_as_names(tokens)
    tree = _parse_tokens(tokens, text)
    check_tree_depth(tree)
    return ParsedQuery(tree, text)


# The beginning of a token that is a sum, such as 1e3+1: a number with an exponent, and the sign of the sum. sqlglot
# reads such a sum as one number or, as in 1e3+1e3, as one name.
_NUMBER_BEFORE_SIGN_PATTERN: Final = re.compile(r"[0-9][0-9_]*(?:[.][0-9_]*)?[eE][+-]?[0-9_]+(?=[+-])", re.ASCII)
# An operator that sqlglot never reads as a part of a number. It stands for a sign until the text is in tokens.
_SIGN_SUBSTITUTE: Final = "&"
_SIGN_TOKEN_TYPES: Final = {"+": TokenType.PLUS, "-": TokenType.DASH}


def _tokenize(text: str) -> list[Token]:
    """Return the tokens of the text, in which the operands and the sign of a sum such as 1e3+1 are separate tokens.

    If sqlglot has read a sign as a part of a number, the text is read again with an operator in place of the sign. The
    second number of a sum may begin another such sum, so the text is read at most three times.
    """
    signs: set[int] = set()
    masked_text = text
    while True:
        try:
            tokens: list[Token] = _CLICKHOUSE_DIALECT.tokenize(masked_text)
        except TokenError as error:
            raise tokenizer_fault(error, text) from error
        swallowed_signs = set(_signs_within_numbers(tokens, masked_text))
        if not swallowed_signs:
            break
        signs |= swallowed_signs
        masked_text = "".join(
            _SIGN_SUBSTITUTE if index in swallowed_signs else character for index, character in enumerate(masked_text)
        )
    for token in tokens:
        if token.start in signs:
            token.text = text[token.start]
            token.token_type = _SIGN_TOKEN_TYPES[token.text]
    return tokens


def _signs_within_numbers(tokens: list[Token], text: str) -> Iterator[int]:
    """Yield the offset of each sign that sqlglot has read as a part of a number or a name, although it begins another."""
    for token in tokens:
        if token.token_type in (TokenType.NUMBER, TokenType.VAR):
            number = _NUMBER_BEFORE_SIGN_PATTERN.match(text, token.start, token.end + 1)
            if number is not None:
                yield number.end()


def _check_number_lengths(tokens: list[Token], text: str) -> None:
    """Raise QueryRefused for a number of very many digits, which Python's int() would not convert."""
    for token in tokens:
        if token.token_type == TokenType.NUMBER and len(token.text) > _MAX_NUMBER_CHARACTERS:
            raise QueryRefused(
                "The number is too large: whole numbers have 64 bits.",
                hint="Write fewer digits.",
                span=span_at(text, token.start),
            )


def _parse_tokens(tokens: list[Token], text: str) -> exp.Expr:
    try:
        trees = [tree for tree in _CLICKHOUSE_DIALECT.parser().parse(tokens, text) if tree is not None]
    except ParseError as error:
        raise syntax_fault(error) from error
    except RecursionError as error:
        raise nesting_error(None) from error
    except Exception as error:
        raise BadQuerySyntax("The text cannot be read as SQL.", span=Span(1, 1)) from error
    if len(trees) != 1:
        raise BadQuerySyntax("The text cannot be read as SQL.", span=Span(1, 1))
    return trees[0]


# Children of sqlglot's nodes that are not checked, because they do not change the query's result.
_UNCHECKED_NODE_ARGUMENTS: Final = frozenset(
    {"_type", "typed", "safe", "value_constructor", "bracket_notation", "materialized", "key_expressions"}
)

_ONE_SELECT_HINT: Final = "Write SELECT … FROM logs WHERE … GROUP BY … ORDER BY … LIMIT …."
_ONE_TABLE_HINT: Final = "There is one table: logs. Write WHERE source = 'edge_logs' for the events of one source."
_NO_SUB_QUERY_HINT: Final = "Write the query in FROM, as in SELECT … FROM (SELECT …), or send two queries."
_NO_LAMBDA_HINT: Final = "Write arrayJoin(…) to have each element in a row of its own."
_LEAVE_OUT_HINT: Final = "Leave it out."

# Refused clauses that authors are likely to use, each with its name for the error message and a hint to an alternative.
# A key has the class of sqlglot's node, and the argument of this node in which sqlglot stores the clause.
_REFUSAL_BY_CLAUSE: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    ("Select", "prewhere"): ("PREWHERE", "Write WHERE."),
    ("Select", "joins"): ("JOIN", _ONE_TABLE_HINT),
    ("Select", "laterals"): ("ARRAY JOIN", _NO_LAMBDA_HINT),
    ("Select", "qualify"): ("QUALIFY", "Write WHERE around a query in brackets."),
    ("Select", "settings"): ("SETTINGS", _LEAVE_OUT_HINT),
    ("Select", "format"): ("FORMAT", _LEAVE_OUT_HINT),
    ("Select", "into"): ("INTO", _LEAVE_OUT_HINT),
    ("Distinct", "on"): ("DISTINCT ON", "Write GROUP BY, and any(…) or argMax(…, timestamp) around the other columns."),
    ("Limit", "expressions"): (
        "LIMIT … BY",
        "Write GROUP BY, and any(…) or argMax(…, timestamp) around the other columns.",
    ),
    ("Limit", "limit_options"): ("WITH TIES", _LEAVE_OUT_HINT),
    ("Group", "rollup"): ("WITH ROLLUP", "Write UNION ALL of two queries."),
    ("Group", "cube"): ("WITH CUBE", "Write UNION ALL of two queries."),
    ("Group", "totals"): ("WITH TOTALS", "Write UNION ALL of two queries."),
    ("Group", "grouping_sets"): ("GROUPING SETS", "Write UNION ALL of two queries."),
    ("Ordered", "with_fill"): ("WITH FILL", _LEAVE_OUT_HINT),
    ("In", "query"): ("A query in IN", _NO_SUB_QUERY_HINT),
    ("In", "field"): ("IN without brackets", "Write IN ('a', 'b')."),
    ("In", "is_global"): ("GLOBAL IN", "Write IN."),
    ("With", "recursive"): ("WITH RECURSIVE", _NO_SUB_QUERY_HINT),
}
_REFUSAL_BY_NODE_CLASS: Final[Mapping[str, tuple[str, str]]] = {
    "Window": ("A window function", "Aggregate with GROUP BY, in a query in brackets where rows of it are wanted."),
    "Fetch": ("FETCH", "Write LIMIT 10 OFFSET 20."),
    "Final": ("FINAL", _LEAVE_OUT_HINT),
    "TableSample": ("SAMPLE", _LEAVE_OUT_HINT),
    "Exists": ("EXISTS", _NO_SUB_QUERY_HINT),
    "Lambda": ("A lambda", _NO_LAMBDA_HINT),
    "Transform": ("arrayMap", _NO_LAMBDA_HINT),
    "ArrayFilter": ("arrayFilter", _NO_LAMBDA_HINT),
    "Columns": ("COLUMNS", "Name the columns, as in SELECT id, timestamp, event_message."),
    "Struct": ("tuple", "Select the values as columns of their own."),
    "Intersect": ("INTERSECT", "Write WHERE conditions that both hold."),
    "Except": ("EXCEPT", "Write WHERE NOT (…)."),
}


def require_permitted_syntax(parsed: ParsedQuery) -> ParsedQuery:
    """Return the query if all its nodes are allow-listed; raise QueryRefused for the first node that is not.

    The error has the node's position and a hint about what is allowed.
    """
    for node in parsed.tree.walk():
        charge_nodes()
        _check_node(node, parsed.query_text)
        node.comments = None
    return parsed


def _check_node(node: exp.Expr, text: str) -> None:
    if isinstance(node, exp.Star):
        if isinstance(node.parent, exp.Count):
            return
        raise _refused_error(
            node, text, '"*" is refused.', "Name the columns, as in SELECT id, timestamp, event_message."
        )
    parts = PERMITTED_ARGUMENTS_BY_NODE.get(type(node).__name__)
    if parts is None:
        _check_call(node, text)
        return
    if isinstance(node, exp.Binary) and None in (node.args.get("this"), node.args.get("expression")):
        raise _refused_error(
            node, text, f"{_class_name_to_words(type(node).__name__)} has two operands.", _ONE_SELECT_HINT
        )
    for key, value in node.args.items():
        if value not in (None, False, []) and key not in parts and key not in _UNCHECKED_NODE_ARGUMENTS:
            _refuse_clause(node, key, text)


def _refuse_clause(node: exp.Expr, key: str, text: str) -> None:
    value = node.args[key]
    part = value[0] if isinstance(value, list) else value
    position = part if isinstance(part, exp.Expr) and span_of(part, text) is not None else node
    kind = type(node).__name__
    refusal = _REFUSAL_BY_CLAUSE.get((kind, key.strip("_")))
    if refusal is not None:
        raise _refused_error(position, text, f"{refusal[0]} is refused.", refusal[1])
    subject = _class_name_to_words(key.strip("_")).replace("_", " ")
    raise _refused_error(position, text, f"{subject} in {_class_name_to_words(kind)} is refused.", _ONE_SELECT_HINT)


def _check_call(node: exp.Expr, text: str) -> None:
    refusal = _REFUSAL_BY_NODE_CLASS.get(type(node).__name__)
    if refusal is not None:
        raise _refused_error(node, text, f"{refusal[0]} is refused.", refusal[1])
    call = call_of(node)
    written_name = node.meta_get(WRITTEN_NAME_METADATA_KEY)
    if call is None and written_name is not None:
        raise _unknown_function_error(node, str(written_name), text)
    if call is None:
        raise _refused_error(
            node, text, f"{_class_name_to_words(type(node).__name__)} is refused here.", _ONE_SELECT_HINT
        )
    if not is_known_function(call):
        raise _unknown_function_error(node, call.written_name, text)


def _unknown_function_error(node: exp.Expr, name: str, text: str) -> QueryRefused:
    closest_name = find_closest_name(name, PERMITTED_FUNCTIONS.values(), cutoff=0.75)
    hint = (
        f"Did you mean {closest_name}?" if closest_name else "The functions that can be called are listed in the guide."
    )
    return _refused_error(node, text, f"The function {name[:60]} cannot be called here.", hint)


def _refused_error(node: exp.Expr, text: str, message: str, hint: str) -> QueryRefused:
    return QueryRefused(message, hint=hint, span=span_of(node, text))


def _class_name_to_words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).upper()
