"""Prune blocks by the n-gram index: derive the texts that a relevant event's message must contain."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import duckdb
import msgspec
from sqlglot import exp

from cordwood.engines.duckdb.query.plan_path import Readings, reader
from cordwood.engines.duckdb.query.scan_source import Source
from cordwood.engines.duckdb.storage.ngram_index import blocks_that_may_have, ngrams_of
from cordwood.sql.fragment import block_filter, fragment, parts_of, text_part
from cordwood.sql.nodes import conditions
from cordwood.sql.operations import Operation, RegexMatch, TextPosition, has_operation
from cordwood.sql.plan import BlockFilter

# A condition, and the relation and column that hold the message in it.
_Asked = tuple[exp.Expr, str, str]

_MESSAGE: Final = "event_message"

# An escape that is neither a known class such as \\d nor an escaped punctuation mark.
_STRANGE: Final = re.compile(r"\\[^\WdwsDWSbB_]|\\$")
_ESCAPED: Final = re.compile(r"(?s)\\.")
# Alternatives or flags: no text can be derived.
_LAWLESS: Final = re.compile(r"\||\(\?")
# Groups and optional letters are skipped.
_GROUP: Final = re.compile(r"\([^()]*\)(?:[*+?]|\{[^}]*\})?")
_CLASS: Final = re.compile(r"\[\^?\]?[^\]]*\]")
_ABSENT: Final = re.compile(r"[0-9A-Za-z](?:[*?]|\{[^}]*\})")

# Above a SELECT with one of these, a filter does not restrict the events that are read below.
_ENDS: Final = ("limit", "offset", "group", "having", "qualify", "distinct")


def prune(tree: exp.Expr, sources: Sequence[Source]) -> list[Source]:
    """Add to the scan sources the patterns that their messages must match, and filters of their blocks."""
    return [_pruned(source, list(_asked(tree, source.table))) for source in sources]


def _pruned(source: Source, asked: Sequence[_Asked]) -> Source:
    which = _filter_of(source.table.name, asked)
    matches = tuple(map(_taken, filter(_is_pattern, asked)))
    return msgspec.structs.replace(source, matches=matches, narrowing=(block_filter(which),) if which else ())


def _filter_of(stream: str, asked: Sequence[_Asked]) -> BlockFilter | None:
    texts = [text for one in asked for text in _texts_of(*one)]
    which = BlockFilter(stream, ngrams_of(texts), _parameters(asked, TextPosition), _parameters(asked, RegexMatch))
    return which if which.ngrams or which.texts or which.patterns else None


def blocks_to_read(
    which: BlockFilter, values: Mapping[str, object], cursor: duckdb.DuckDBPyConnection
) -> Sequence[int] | None:
    """Return the blocks that pass the filter, or None for all; valid for the transaction that reads the index."""
    ngrams = which.ngrams + ngrams_of(_bound(which, values))
    return blocks_that_may_have(cursor, which.stream, ngrams) if ngrams else None


def _asked(tree: exp.Expr, table: exp.Table) -> Iterator[_Asked]:
    """Yield the conditions that every relevant event fulfils, with the message's relation and column in each."""
    relation: exp.Expr | None = table
    readings = Readings(tree)
    name: str | None = _MESSAGE
    while relation is not None and name is not None:
        select = reader(relation)
        if select is None:
            return
        alias = relation.alias_or_name
        yield from ((one, alias, name) for one in conditions(select.args.get("where")))
        if any(select.args.get(end) for end in _ENDS) or select.find(exp.Window) is not None:
            return
        name = _handed_on(select, alias, name)
        relation = readings.only_reading(select)


def _bound(which: BlockFilter, values: Mapping[str, object]) -> list[str]:
    """Return the texts that parameter values require in a message.

    A NULL value requires none, because no event matches.
    """
    texts = [str(values[name]) for name in which.texts if values.get(name) is not None]
    patterns = (str(values[name]) for name in which.patterns if values.get(name) is not None)
    return texts + [text for pattern in patterns for text in _required(pattern)]


def _is_pattern(asked: _Asked) -> bool:
    condition, alias, name = asked
    return bool(_literal(condition, RegexMatch, alias, name))


def _taken(asked: _Asked) -> exp.Expr:
    """Return the condition in terms of the table's column.

    DuckDB pushes only conditions that cannot fail into a scan.
    """
    condition, alias, name = asked
    pattern = _literal(condition, RegexMatch, alias, name)
    condition.replace(exp.true())
    return fragment(f'regexp_matches("{_MESSAGE}", {{0}})', text_part(pattern))


def _parameters(asked: Sequence[_Asked], kind: type[Operation]) -> tuple[str, ...]:
    """Return the names of the parameters that the operation compares the message with."""
    called = (_argument(_position(condition) or condition, kind, alias, name) for condition, alias, name in asked)
    return tuple(argument.name for argument in called if isinstance(argument, exp.Parameter))


def _position(condition: exp.Expr) -> exp.Expr | None:
    """Return the operand of a condition that a text occurs: `instr(…) > 0`."""
    is_asked = isinstance(condition, exp.GT) and _is_number(condition.expression, "0")
    return condition.this if is_asked and has_operation(condition.this, TextPosition) else None


def _texts_of(condition: exp.Expr, alias: str, name: str) -> list[str]:
    position = _position(condition)
    if position is not None:
        return [_literal(position, TextPosition, alias, name)]
    if has_operation(condition, RegexMatch):
        return _required(_literal(condition, RegexMatch, alias, name))
    if isinstance(condition, exp.Like) and _is_column(condition.this, alias, name):
        return _parts(condition.expression)
    return []


def _literal(node: exp.Expr, kind: type[Operation], alias: str, name: str) -> str:
    """Return the literal text operand of an operation on the message; empty for other operations."""
    text = _argument(node, kind, alias, name)
    return str(text.this) if isinstance(text, exp.Literal) and text.is_string else ""


def _argument(node: exp.Expr, kind: type[Operation], alias: str, name: str) -> exp.Expr | None:
    if not has_operation(node, kind):
        return None
    message, argument = parts_of(node)
    return argument if _is_column(message, alias, name) else None


def _required(pattern: str) -> list[str]:
    """Return texts that every match of the regular expression contains."""
    if _STRANGE.search(pattern):
        return []
    pattern = _CLASS.sub(" ", _ESCAPED.sub(" ", pattern))
    if _LAWLESS.search(pattern):
        return []
    while _GROUP.search(pattern):
        pattern = _GROUP.sub(" ", pattern)
    return [] if set("()[]") & set(pattern) else re.findall("[0-9A-Za-z]+", _ABSENT.sub(" ", pattern))


def _parts(pattern: exp.Expr) -> list[str]:
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        return []
    return re.split("[%_]", _ESCAPED.sub(" ", str(pattern.this)))


def _handed_on(select: exp.Select, alias: str, name: str) -> str | None:
    return next((item.alias for item in select.expressions if _is_column(item.unalias(), alias, name)), None)


def _is_column(node: exp.Expr, alias: str, name: str) -> bool:
    return isinstance(node, exp.Column) and node.table == alias and node.name == name


def _is_number(node: exp.Expr, number: str) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.this == number
