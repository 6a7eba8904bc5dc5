"""Detect likely mistakes in valid LQL: words that resemble a field or clause, and values that resemble an operator.

The query is run; a notice in the receipt says what the author may have meant.
"""

import re
from collections.abc import Iterator
from typing import Final

from cordwood.lql.query import And, Field, Filter, Message, Not, Operator, Or, Path, Query, Unquoted

_MAX_NOTICES: Final = 5
_MAX_SHOWN: Final = 60
_COMPARISON_WORD: Final = re.compile(r"((?:m\.)?[A-Za-z_][\w.]*)(>=|<=|!=|==|=|>|<)([^=<>\s]+)")
_FUNCTION_CALL: Final = re.compile(r"(group_by|count|countd|avg|sum|min|max|p\d{1,2}(?:\.\d+)?)\(.*\)", re.IGNORECASE)
_KEYWORD_HINTS: Final = {
    "or": 'write OR for "either"',
    "and": "leave it out: clauses side by side must all be true",
    "AND": "leave it out: clauses side by side must all be true",
    "not": 'write a minus before a clause for "not"',
    "NOT": 'write a minus before a clause for "not"',
    "desc": "write order:timestamp@desc for an order",
    "DESC": "write order:timestamp@desc for an order",
    "asc": "write order:timestamp@asc for an order",
    "ASC": "write order:timestamp@asc for an order",
    "limit": "write limit:5 for a number of rows",
    "LIMIT": "write limit:5 for a number of rows",
    "order": "write order:timestamp@desc for an order",
    "select": "write s:id for a column; SQL is sent as sql=",
    "SELECT": "write s:id for a column; SQL is sent as sql=",
}
_TYPOGRAPHIC_QUOTE: Final = re.compile("[\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb]")
_COMPARISON_OPERATORS: Final = {"=": "", "==": "", "!=": ""}
_OPERATOR_HINTS: Final = {"=": "", "==": "", "!=": "", "!": "", "=>": ">=", "=<": "<=", ">": "", "<": "", ":": ""}
_OPERATOR_IN_VALUE: Final = re.compile(r"(==|!=|=>|=<|=|>|<|:|!)(.+)", re.DOTALL)
_IN_LIST: Final = re.compile(r"in\((.+)\)", re.IGNORECASE | re.DOTALL)
# Words that resemble clauses only together with the word after them.
_PHRASE_HINTS: Final = (
    (re.compile(r"last\s+(\d+[a-z]+)\b", re.IGNORECASE), "write t:last@{0} for a time"),
    (re.compile(r"in\s*\(", re.IGNORECASE), "write m.status:[200,404] for one of several values"),
    (re.compile(r"(?:group\s+)?by\s+((?:m\.)?[\w.]*\.[\w.]+)", re.IGNORECASE), "write c:group_by({0}) for a chart"),
)


def find_likely_mistakes(query: Query, text: str) -> tuple[str, ...]:
    """Return notices for the receipt about words that the author probably meant otherwise."""
    notices: dict[str, None] = {}
    for part in _leaves(query.filter):
        notice = _check_message(part, text) if isinstance(part, Message) else _check_field(part)
        if notice:
            notices[notice] = None
    return tuple(notices)[:_MAX_NOTICES]


def _leaves(node: Filter) -> Iterator[Message | Field]:
    match node:
        case Not(inner):
            yield from _leaves(inner)
        case And(filters) | Or(filters):
            for part in filters:
                yield from _leaves(part)
        case Message() | Field():
            yield node


def _check_message(part: Message, text: str) -> str | None:
    if part.is_regex or text[part.offset : part.offset + 1] == '"':
        return None
    word = part.text
    leading = ((pattern.match(text, part.offset), template) for pattern, template in _PHRASE_HINTS)
    clause = next((template.format(*match.groups()) for match, template in leading if match), None)
    hint = clause or _word_hint(word)
    return (
        f'the word {word[:_MAX_SHOWN]} is searched in the message: {hint}, or "{word[:_MAX_SHOWN]}" to search it'
        if hint
        else None
    )


def _word_hint(word: str) -> str | None:
    comparison = _COMPARISON_WORD.fullmatch(word)
    if comparison is not None:
        path, operator, value = comparison.groups()
        dotted = path if "." in path else f"m.{path}"
        sign, lql_operator = ("-" if operator == "!=" else ""), _COMPARISON_OPERATORS.get(operator, operator)
        return f"write {sign}{dotted}:{lql_operator}{value[:_MAX_SHOWN]} for a field"
    call = _FUNCTION_CALL.fullmatch(word)
    if call is not None:
        return f"write c:{word[:_MAX_SHOWN]} for a chart"
    if _TYPOGRAPHIC_QUOTE.search(word):
        return 'write " around a phrase'
    if len(word) > 1 and word[0] == "!" and word[1].isalnum():
        return f"write -{word[1:][:_MAX_SHOWN]} for what does not contain it"
    if len(word) > 2 and word.endswith("*"):
        return f"write {word[:-1][:_MAX_SHOWN]}, for a part of the message is enough"
    return _KEYWORD_HINTS.get(word)


def _check_field(part: Field) -> str | None:
    """Return the notice for a value that resembles an operator or a wildcard, but is compared literally."""
    if not isinstance(part.value, Unquoted):
        return None
    value, path = part.value.text, _format_path(part.path)
    hint = _operator_hint(path, value, part.operator)
    if hint is None and part.operator is Operator.EQUAL:
        hint = _value_hint(path, value)
    return f"{path}: is compared with the text {value[:_MAX_SHOWN]}: write {hint}" if hint else None


def _operator_hint(path: str, value: str, field_operator: Operator) -> str | None:
    match = _OPERATOR_IN_VALUE.fullmatch(value)
    if match is None:
        return None
    negation = "-" if match[1] in ("!=", "!") else ""
    operator = _OPERATOR_HINTS[match[1]] or str(field_operator)
    return f"{negation}{path}:{operator}{match[2][:_MAX_SHOWN]}"


def _value_hint(path: str, value: str) -> str | None:
    value_list = _IN_LIST.fullmatch(value)
    if value_list is not None:
        return f"{path}:[{value_list[1][:_MAX_SHOWN]}] for one of these"
    if len(value) > 1 and value.endswith("*"):
        return f"{path}:~^{re.escape(value[:-1])[:_MAX_SHOWN]} for what begins so"
    if "|" in value:
        return " OR ".join(f"{path}:{choice}" for choice in value.split("|"))[: _MAX_SHOWN * 2]
    return f"{path}:[{value[:_MAX_SHOWN]}] for one of these" if "," in value else None


def _format_path(path: Path) -> str:
    first, *rest = path.parts
    return ".".join(["m" if first == "metadata" and rest else first, *rest])
