"""The wording of the errors of sqlglot's parser, some of which name parts of sqlglot's trees."""

import re
from typing import Final

# Patterns of sqlglot's messages, each with the message that callers get.
_MESSAGE_BY_PARSER_MESSAGE: Final = tuple(
    (re.compile(pattern), message)
    for pattern, message in (
        (r"Invalid expression / Unexpected token|Unexpected keyword", "unexpected word"),
        (r"Required keyword: 'alias' missing", "a name is missing"),
        (r"Required keyword", "an expression is missing"),
        (
            r"The number of provided arguments \((\d+)\) .* \((\d+)\)",
            r"a function has \1 arguments, but takes at most \2",
        ),
        (
            r"(?<!\w)\w++ does not support CTE|Failed to parse any statement following CTE",
            "a SELECT is missing after WITH",
        ),
        (r"Expected CTE to have alias", "a query in WITH needs a name"),
        (r"Expected (?:table|database) name", "the name of a table is missing"),
        (r"Expected DISTINCT or ALL for (\w+)", r"ALL or DISTINCT is missing after the word \1"),
        (r"Expected (?:type|TYPE after CAST)", "a type is missing"),
        (r"Expected (AS|END|FROM) .*after (\w+)", r"\1 is missing after \2"),
        (r"Expect(?:ed|ing) ([^\w\s]|FOR\b|IN\b)", r"Expecting \1"),
        (r"Expecting an aggregation function in PIVOT", "an aggregate function is missing in PIVOT"),
        (r"Found multiple '(\w+)' clauses", r"there are several \1 clauses"),
        (r"Cannot specify both ALL and DISTINCT", "ALL and DISTINCT exclude each other"),
    )
)


def readable_parser_message(description: str) -> str:
    """Return a parser's message without the words of sqlglot; a message that is not known becomes a general one."""
    for pattern, message in _MESSAGE_BY_PARSER_MESSAGE:
        match = pattern.match(description)
        if match is not None:
            return match.expand(message)
    return "the text cannot be read as SQL"
