"""The parser of BigQuery SQL: parse one statement, within limits that bound the parser's work."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from cordwood.errors import BadQuerySyntax, QueryFault, QueryRefused, QueryUnsupported, Span
from cordwood.sql.diagnostics import span_at
from cordwood.sql.parser_messages import readable_parser_message
from cordwood.sql.stages import ParsedQuery
from cordwood.sql.syntax_rewrites import (
    alias_implicitly_unnested_arrays,
    copy_shared_nodes,
    inline_with_expressions,
    insert_select_between_pipe_steps,
    insert_tokens_required_by_parser,
    parenthesise_bitwise_operators,
    resolve_nested_subscript_functions,
    rewrite_with_as_struct,
    strip_quantifier_parentheses,
)
from cordwood.sql.token_checks import (
    check_argument_counts,
    check_literals,
    escape_doubled_quotes,
    merge_literals_at_doubled_quotes,
    normalize_tokens,
    refuse_foreign_syntax,
)

MAX_QUERY_CHARACTERS: Final = 256 * 1024
MAX_QUERY_TOKENS: Final = 40_000
# The maximum nesting of brackets in the text, and the maximum depth of the parsed tree.
MAX_BRACKET_NESTING: Final = 100
MAX_TREE_DEPTH: Final = 300
# The maximum number of pipes (`|>`). At each pipe, sqlglot copies all tokens before it: 400 pipes take three seconds.
MAX_PIPE_OPERATORS: Final = 100
# A limit on parsing work, added up over all tokens. sqlglot parses parentheses after a type's name (DATE, STRUCT) or a
# dotted name (NET.HOST) twice, so its work doubles with each such level of nesting.
MAX_PARSER_TOKEN_READS: Final = 120_000

_BIGQUERY_DIALECT: Final = Dialect.get_or_raise("bigquery")
# Characters that UTF-8 cannot encode.
_LONE_SURROGATE_PATTERN: Final = re.compile("[\ud800-\udfff]")
_OPENING_BRACKETS: Final = frozenset({"(", "[", "{"})
_CLOSING_BRACKETS: Final = frozenset({")", "]", "}"})
# Words after which sqlglot parses parentheses twice. MAX_PARSER_TOKEN_READS limits the additional work.
_WORDS_PARSED_TWICE: Final = frozenset(
    [
        "array",
        "bigdecimal",
        "bignumeric",
        "bool",
        "boolean",
        "bytes",
        "char",
        "date",
        "datetime",
        "decimal",
        "enum",
        "float",
        "float64",
        "int",
        "int64",
        "integer",
        "json",
        "map",
        "nested",
        "numeric",
        "object",
        "range",
        "safe",
        "string",
        "struct",
        "text",
        "time",
        "timestamp",
        "tuple",
        "varchar",
        "vector",
    ]
)
_FIRST_TOKENS_OF_QUERY: Final = frozenset({"select", "with", "from", "("})
_FIRST_WORDS_OF_OTHER_STATEMENTS: Final = frozenset(
    [
        "alter",
        "analyze",
        "assert",
        "attach",
        "begin",
        "call",
        "checkpoint",
        "commit",
        "copy",
        "create",
        "deallocate",
        "declare",
        "delete",
        "describe",
        "desc",
        "detach",
        "drop",
        "end",
        "eval",
        "execute",
        "exec",
        "explain",
        "export",
        "force",
        "grant",
        "import",
        "insert",
        "install",
        "kill",
        "load",
        "loop",
        "merge",
        "pivot",
        "pragma",
        "prepare",
        "raise",
        "refresh",
        "rename",
        "replace",
        "reset",
        "return",
        "revoke",
        "rollback",
        "set",
        "show",
        "start",
        "summarize",
        "table",
        "truncate",
        "undrop",
        "unpivot",
        "update",
        "use",
        "vacuum",
        "values",
        "while",
    ]
)
# A character that is not whitespace. If it occurs between two tokens, it is part of a comment.
_NON_SPACE_PATTERN: Final = re.compile(r"\S")
_ERROR_POSITION_PATTERN: Final = re.compile(r"(?:from|at) (?:line )?(\d+):(\d+)|Line (\d+), Col: (\d+)")


def parse_sql(text: str) -> ParsedQuery:
    """Parse a text with a single statement; raise BadQuerySyntax or QueryRefused with the position."""
    check_query_characters(text)
    try:
        return _parse_text(text)
    except BadQuerySyntax:
        escaped = escape_doubled_quotes(text)
        if escaped == text:
            raise
        # The tokenizer reads a literal that begins or ends with a doubled quote as triple-quoted: escape such quotes.
        with suppress(QueryFault):
            return ParsedQuery(_parse_text(escaped).tree, text)
        raise


def check_query_characters(text: str) -> None:
    if len(text) > MAX_QUERY_CHARACTERS:
        raise QueryRefused(f"The query is longer than {MAX_QUERY_CHARACTERS} characters.", hint="Send a shorter query.")
    surrogate = _LONE_SURROGATE_PATTERN.search(text)
    if surrogate is not None:
        raise BadQuerySyntax("The query has half of a surrogate pair in it.", span=span_at(text, surrogate.start()))


def _parse_text(text: str) -> ParsedQuery:
    tokens = _tokenize(text)
    if not tokens:
        raise BadQuerySyntax("The query is empty.", hint="Send one SELECT.", span=Span(1, 1))
    check_statement_start(tokens[0], text)
    check_parser_work(tokens, text)
    tokens = normalize_tokens(tokens, text)
    refuse_foreign_syntax(tokens, text)
    check_argument_counts(tokens, text)
    check_literals(tokens, text)
    tree = _parse_statement(tokens, text)
    check_tree_depth(tree)
    return ParsedQuery(tree, text)


def _tokenize(text: str) -> list[Token]:
    try:
        tokens: list[Token] = _BIGQUERY_DIALECT.tokenize(text)
        without_comments = _replace_comments_by_blanks(tokens, text)
        if without_comments != text:
            tokens = _BIGQUERY_DIALECT.tokenize(without_comments)
    except TokenError as error:
        raise tokenizer_fault(error, text) from error
    return merge_literals_at_doubled_quotes(tokens, text)


def _replace_comments_by_blanks(tokens: list[Token], text: str) -> str:
    """Return the text with comments replaced by blanks, because the parser cannot read `GROUP /* x */ BY`."""
    parts: list[str] = []
    position = 0
    for token in tokens:
        parts += [_NON_SPACE_PATTERN.sub(" ", text[position : token.start]), text[token.start : token.end + 1]]
        position = token.end + 1
    return "".join([*parts, _NON_SPACE_PATTERN.sub(" ", text[position:])])


def tokenizer_fault(error: TokenError, text: str) -> BadQuerySyntax:
    message = str(error.__cause__ or error)
    position = _ERROR_POSITION_PATTERN.search(message)
    span = (
        Span(int(position[1] or position[3]), int(position[2] or position[4]) + 1)
        if position
        else span_at(text, len(text))
    )
    if message.startswith("Missing"):
        return BadQuerySyntax(
            f"{message.split(' from ', maxsplit=1)[0]}: what was opened here is never closed.", span=span
        )
    return BadQuerySyntax("The text cannot be read as SQL.", hint="A quote may be left open.", span=span)


def check_statement_start(first: Token, text: str) -> None:
    """Refuse a text that does not begin like a query: QueryRefused for other statements, else BadQuerySyntax."""
    word = first.text.lower()
    if word in _FIRST_TOKENS_OF_QUERY:
        return
    span = span_at(text, first.start)
    if word in _FIRST_WORDS_OF_OTHER_STATEMENTS:
        raise QueryRefused(f"{word.upper()} is refused: only a query can be sent.", hint="Send one SELECT.", span=span)
    raise BadQuerySyntax(f'Syntax error: a query begins with SELECT or WITH, not with "{word[:40]}".', span=span)


def check_parser_work(tokens: list[Token], text: str, parsed_twice: frozenset[str] = _WORDS_PARSED_TWICE) -> None:
    """Refuse a text for which the parser would nest too deeply or backtrack too often; called before parsing.

    `parsed_twice` are the words after which the parser reads parentheses twice.
    """
    if len(tokens) > MAX_QUERY_TOKENS:
        raise QueryRefused(
            f"The query has more than {MAX_QUERY_TOKENS} words.", span=span_at(text, tokens[MAX_QUERY_TOKENS].start)
        )
    pipes = [token for token in tokens if token.token_type == TokenType.PIPE_GT]
    if len(pipes) > MAX_PIPE_OPERATORS:
        span = span_at(text, pipes[MAX_PIPE_OPERATORS].start)
        raise QueryRefused(
            f"The query has more than {MAX_PIPE_OPERATORS} pipes.", hint="Split it into sub-queries.", span=span
        )
    _check_interval_lengths(tokens, text)
    factors = [1]
    work = 0
    recent_words = ("", "", "")
    for token in tokens:
        word = token.text.lower()
        if word in _OPENING_BRACKETS:
            factors.append(factors[-1] * _parenthesis_parse_count(recent_words, parsed_twice))
        elif word in _CLOSING_BRACKETS and len(factors) > 1:
            factors.pop()
        work += factors[-1]
        if len(factors) > MAX_BRACKET_NESTING or work > MAX_PARSER_TOKEN_READS:
            raise nesting_error(span_at(text, token.start))
        recent_words = (recent_words[1], recent_words[2], word)


def _check_interval_lengths(tokens: list[Token], text: str) -> None:
    """Refuse a long text in INTERVAL: the time in which sqlglot reads it grows with the square of its length."""
    interval_index = -_MAX_TOKENS_BEFORE_INTERVAL_TEXT - 1
    for index, token in enumerate(tokens):
        is_text_of_interval = (
            token.token_type == TokenType.STRING and index - interval_index <= _MAX_TOKENS_BEFORE_INTERVAL_TEXT
        )
        if is_text_of_interval and len(token.text) > _MAX_INTERVAL_TEXT_CHARACTERS:
            raise BadQuerySyntax(
                f"Invalid INTERVAL of more than {_MAX_INTERVAL_TEXT_CHARACTERS} characters",
                span=span_at(text, token.start),
            )
        if is_text_of_interval or token.token_type == TokenType.INTERVAL:
            interval_index = index


_MAX_INTERVAL_TEXT_CHARACTERS: Final = 100
# sqlglot takes a text for a part of an interval if at most two tokens stand between it and INTERVAL, or between it and
# another part: INTERVAL '1' DAY '2' HOUR.
_MAX_TOKENS_BEFORE_INTERVAL_TEXT: Final = 3


def _parenthesis_parse_count(recent_words: tuple[str, str, str], parsed_twice: frozenset[str]) -> int:
    """Return how often the parser reads parentheses that follow `recent_words`, three words: once or twice."""
    return 2 if recent_words[2] in parsed_twice or recent_words[1] == "." else 1


def nesting_error(span: Span | None) -> QueryRefused:
    return QueryRefused("The query is nested too deeply.", hint="Split it into sub-queries in WITH.", span=span)


def _parse_statement(tokens: list[Token], text: str) -> exp.Expr:
    dotted_names = _replace_dotted_names(tokens)
    tokens = insert_tokens_required_by_parser(rewrite_with_as_struct(insert_select_between_pipe_steps(tokens)))
    # Check the work again, because WITH(…) has become STRUCT(…), which the parser reads twice.
    check_parser_work(tokens, text)
    trees = _parse_tokens(tokens, text)
    if not trees:
        raise BadQuerySyntax("The query is empty.", hint="Send one SELECT.", span=Span(1, 1))
    if len(trees) > 1:
        raise _second_statement_error(tokens, text)
    tree = inline_with_expressions(trees[0])
    copy_shared_nodes(tree)
    strip_quantifier_parentheses(tree)
    resolve_nested_subscript_functions(tree)
    alias_implicitly_unnested_arrays(tree)
    parenthesise_bitwise_operators(tree)
    if dotted_names:
        _restore_dotted_names(tree, dotted_names)
    return tree


def _parse_tokens(tokens: list[Token], text: str) -> list[exp.Expr]:
    try:
        return [tree for tree in _BIGQUERY_DIALECT.parser().parse(tokens, text) if tree is not None]
    except ParseError as error:
        raise _unsupported_syntax_error(error, text) or syntax_fault(error) from error
    except RecursionError as error:
        raise nesting_error(None) from error
    except Exception as error:
        raise BadQuerySyntax("The text cannot be read as SQL.", span=Span(1, 1)) from error


def _replace_dotted_names(tokens: list[Token]) -> dict[str, str]:
    """Replace backquoted names that contain dots, because the parser would split them.

    Return the original name of each replacement. All replacements begin with a prefix with which no other token begins,
    so that they differ from all other names.
    """
    dotted = [token for token in tokens if token.token_type == TokenType.IDENTIFIER and "." in token.text]
    if not dotted:
        return {}
    prefix = "dotted_"
    while any(token.text.lower().startswith(prefix) for token in tokens):
        prefix += "_"
    replacements = {
        name: f"{prefix}{index}" for index, name in enumerate(dict.fromkeys(token.text for token in dotted))
    }
    for token in dotted:
        token.text = replacements[token.text]
    return {replacement: name for name, replacement in replacements.items()}


def _restore_dotted_names(tree: exp.Expr, names: Mapping[str, str]) -> None:
    for identifier in tree.find_all(exp.Identifier):
        name = names.get(identifier.name)
        if name is not None:
            identifier.set("this", name)


def _second_statement_error(tokens: list[Token], text: str) -> QueryFault:
    semicolons = [index for index, token in enumerate(tokens) if token.text == ";"]
    offset = next((tokens[index + 1].start for index in semicolons if index + 1 < len(tokens)), 0)
    return QueryRefused("Only one statement can be sent.", hint="Send one SELECT.", span=span_at(text, offset))


# BigQuery syntax that sqlglot cannot parse. Each row has the text of sqlglot's error, a pattern of the word at the
# error, and the construct as the message names it.
_UNSUPPORTED_SYNTAX_BY_PARSER_ERROR: Final = (
    ("Expecting )", re.compile(r"(WHERE|HAVING|GROUP|WITH)\b", re.IGNORECASE), "A clause within a function call"),
    ("Expected TYPE after CAST", re.compile(r"\w"), "This type"),
    (
        "Expecting >",
        re.compile(r"(NUMERIC|DECIMAL|BIGNUMERIC|STRING|BYTES|RANGE)\b", re.IGNORECASE),
        "A type with parameters here",
    ),
)


def _unsupported_syntax_error(error: ParseError, text: str) -> QueryUnsupported | None:
    span = syntax_fault(error).span
    if not error.errors or span is None:
        return None
    description = error.errors[0].get("description") or ""
    lines = text.splitlines()
    remaining_text = "\n".join(lines[span.line - 1 :])[span.column - 1 :] if span.line <= len(lines) else ""
    for message_start, word, subject in _UNSUPPORTED_SYNTAX_BY_PARSER_ERROR:
        if description.startswith(message_start) and word.match(remaining_text):
            return QueryUnsupported(f"{subject} is not supported.", span=span)
    return None


def syntax_fault(error: ParseError) -> BadQuerySyntax:
    if not error.errors:
        return BadQuerySyntax("The text cannot be read as SQL.", span=Span(1, 1))
    first = error.errors[0]
    word = first.get("highlight") or ""
    line, end = first.get("line") or 1, first.get("col") or 1
    span = Span(line, max(end - len(word) + 1, 1))
    description = readable_parser_message(first.get("description") or "")
    near = f' near "{word[:40]}"' if word else ""
    return BadQuerySyntax(f"Syntax error: {description}{near}.", span=span)


def check_tree_depth(tree: exp.Expr) -> None:
    """Raise QueryRefused if the tree is too deep for later passes, which are recursive; the check itself is not."""
    level = [tree]
    for _ in range(MAX_TREE_DEPTH):
        level = [child for node in level for child in node.iter_expressions()]
        if not level:
            return
    raise nesting_error(None)
