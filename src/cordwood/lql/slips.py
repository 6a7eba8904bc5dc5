"""Detection of likely mistakes in valid LQL: words like a field or a clause, and values like an operator.

The query is run; a notice in the receipt says what may have been meant.
"""

import re
from collections.abc import Iterator
from typing import Final

from cordwood.lql.query import All, Any, Bare, Field, Filter, Message, Not, Operator, Path, Query

_MOST: Final = 5
_SHOWN: Final = 60
_COMPARED: Final = re.compile(r"((?:m\.)?[A-Za-z_][\w.]*)(>=|<=|!=|==|=|>|<)([^=<>\s]+)")
_CALLED: Final = re.compile(r"(group_by|count|countd|avg|sum|min|max|p\d{1,2}(?:\.\d+)?)\(.*\)", re.IGNORECASE)
_WORDS: Final = {
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
_TYPOGRAPHIC: Final = re.compile("[\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb]")
_SPELLED: Final = {"=": "", "==": "", "!=": ""}
_OPERATORS: Final = {"=": "", "==": "", "!=": "", "!": "", "=>": ">=", "=<": "<=", ">": "", "<": "", ":": ""}
_MISREAD: Final = re.compile(r"(==|!=|=>|=<|=|>|<|:|!)(.+)", re.DOTALL)
_IN: Final = re.compile(r"in\((.+)\)", re.IGNORECASE | re.DOTALL)
# Words that resemble clauses only together with what follows them.
_LEADING: Final = (
    (re.compile(r"last\s+(\d+[a-z]+)\b", re.IGNORECASE), "write t:last@{0} for a time"),
    (re.compile(r"in\s*\(", re.IGNORECASE), "write m.status:[200,404] for one of several values"),
    (re.compile(r"(?:group\s+)?by\s+((?:m\.)?[\w.]*\.[\w.]+)", re.IGNORECASE), "write c:group_by({0}) for a chart"),
)


def slips(query: Query, text: str) -> tuple[str, ...]:
    """Return notices for the receipt about words with a likely different intention."""
    found: dict[str, None] = {}
    for part in _parts(query.filter):
        said = _of_message(part, text) if isinstance(part, Message) else _of_field(part)
        if said:
            found[said] = None
    return tuple(found)[:_MOST]


def _parts(found: Filter) -> Iterator[Message | Field]:
    match found:
        case Not(inner):
            yield from _parts(inner)
        case All(filters) | Any(filters):
            for part in filters:
                yield from _parts(part)
        case Message() | Field():
            yield found


def _of_message(part: Message, text: str) -> str | None:
    if part.is_regex or text[part.at : part.at + 1] == '"':
        return None
    word = part.text
    leading = ((found.match(text, part.at), meaning) for found, meaning in _LEADING)
    clause = next((meaning.format(*match.groups()) for match, meaning in leading if match), None)
    meant = clause or _meant(word)
    return (
        f'the word {word[:_SHOWN]} is searched in the message: {meant}, or "{word[:_SHOWN]}" to search it'
        if meant
        else None
    )


def _meant(word: str) -> str | None:
    compared = _COMPARED.fullmatch(word)
    if compared is not None:
        path, operator, value = compared.groups()
        dotted = path if "." in path else f"m.{path}"
        sign, spelled = ("-" if operator == "!=" else ""), _SPELLED.get(operator, operator)
        return f"write {sign}{dotted}:{spelled}{value[:_SHOWN]} for a field"
    called = _CALLED.fullmatch(word)
    if called is not None:
        return f"write c:{word[:_SHOWN]} for a chart"
    if _TYPOGRAPHIC.search(word):
        return 'write " around a phrase'
    if len(word) > 1 and word[0] == "!" and word[1].isalnum():
        return f"write -{word[1:][:_SHOWN]} for what does not contain it"
    if len(word) > 2 and word.endswith("*"):
        return f"write {word[:-1][:_SHOWN]}, for a part of the message is enough"
    return _WORDS.get(word)


def _of_field(part: Field) -> str | None:
    """Return the notice for a value like an operator or a wildcard, which is compared literally."""
    if not isinstance(part.value, Bare):
        return None
    value, path = part.value.text, _shown(part.path)
    meant = _meant_by_operator(path, value, part.operator)
    if meant is None and part.operator is Operator.EQUAL:
        meant = _meant_by_value(path, value)
    return f"{path}: is compared with the text {value[:_SHOWN]}: write {meant}" if meant else None


def _meant_by_operator(path: str, value: str, written: Operator) -> str | None:
    misread = _MISREAD.fullmatch(value)
    if misread is None:
        return None
    negation = "-" if misread[1] in ("!=", "!") else ""
    operator = _OPERATORS[misread[1]] or str(written)
    return f"{negation}{path}:{operator}{misread[2][:_SHOWN]}"


def _meant_by_value(path: str, value: str) -> str | None:
    among = _IN.fullmatch(value)
    if among is not None:
        return f"{path}:[{among[1][:_SHOWN]}] for one of these"
    if len(value) > 1 and value.endswith("*"):
        return f"{path}:~^{re.escape(value[:-1])[:_SHOWN]} for what begins so"
    if "|" in value:
        return " OR ".join(f"{path}:{one}" for one in value.split("|"))[: _SHOWN * 2]
    return f"{path}:[{value[:_SHOWN]}] for one of these" if "," in value else None


def _shown(path: Path) -> str:
    first, *rest = path.parts
    return ".".join(["m" if first == "metadata" and rest else first, *rest])
