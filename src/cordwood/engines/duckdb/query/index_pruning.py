"""Skip blocks by the n-gram index: derive from a query the texts that the message of a relevant event must contain."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import duckdb
import msgspec
from sqlglot import exp

from cordwood.engines.duckdb.query.scan_planning import RelationUses, ScanSource, find_reading_select
from cordwood.engines.duckdb.storage.blocks import NgramIndex, extract_ngrams
from cordwood.sql.lowering import block_filter_node, fragment_node, fragment_parts, string_literal_node
from cordwood.sql.nodes import Operation, RegexMatch, TextPosition, has_operation, split_and_conditions
from cordwood.sql.plan import BlockFilter

# A condition on messages, the alias of the relation that it reads, and the name of the relation's message column.
_MessageCondition = tuple[exp.Expr, str, str]

_MESSAGE_COLUMN: Final = "event_message"

# An escape that is neither a known class, such as \\d, nor an escaped punctuation mark. If a regular expression
# contains such an escape, no required text is derived from it.
_UNKNOWN_REGEX_ESCAPE_PATTERN: Final = re.compile(r"\\[^\WdwsDWSbB_]|\\$")
_ESCAPED_CHARACTER_PATTERN: Final = re.compile(r"(?s)\\.")
# The signs of alternatives and flags in a regular expression. If a regular expression contains such a sign, no required
# text is derived from it.
_REGEX_ALTERNATIVE_OR_FLAG_PATTERN: Final = re.compile(r"\||\(\?")
# From a longer regular expression, no required text is derived, because the time grows with the square of the length:
# innermost groups are removed until there are none, and an open bracket is searched for its end.
_MAX_ANALYSED_REGEX_CHARACTERS: Final = 1_000
# This pattern and the next two match the parts of a regular expression that are skipped when required texts are derived
# from it: groups, character classes and optional letters.
_INNERMOST_GROUP_PATTERN: Final = re.compile(r"\([^()]*\)(?:[*+?]|\{[^}]*\})?")
_CHARACTER_CLASS_PATTERN: Final = re.compile(r"\[\^?\]?[^\]]*\]")
_OPTIONAL_LETTER_PATTERN: Final = re.compile(r"[0-9A-Za-z](?:[*?]|\{[^}]*\})")

# Clauses that drop or combine rows. If a sub-query has such a clause, a filter of the query around it must not be
# applied to the events that the sub-query reads.
_ROW_COMBINING_CLAUSES: Final = ("limit", "offset", "group", "having", "qualify", "distinct")


def prune_blocks(tree: exp.Expr, sources: Sequence[ScanSource]) -> list[ScanSource]:
    """Return the scans with filters: regular expressions that messages must match, and a filter that skips blocks."""
    return [_prune_source(source, list(_find_message_conditions(tree, source.table))) for source in sources]


def _prune_source(source: ScanSource, message_conditions: Sequence[_MessageCondition]) -> ScanSource:
    prunable = _build_block_filter(source.table.name, message_conditions)
    patterns = tuple(map(_move_condition_to_table, filter(_is_regex_condition, message_conditions)))
    return msgspec.structs.replace(
        source, filters=patterns, flushed_filters=(block_filter_node(prunable),) if prunable else ()
    )


def _build_block_filter(stream: str, message_conditions: Sequence[_MessageCondition]) -> BlockFilter | None:
    texts = [text for condition in message_conditions for text in _texts_required_by_condition(*condition)]
    prunable = BlockFilter(
        stream,
        extract_ngrams(texts),
        _parameters_compared_with_message(message_conditions, TextPosition),
        _parameters_compared_with_message(message_conditions, RegexMatch),
    )
    return prunable if prunable.ngrams or prunable.text_parameter_names or prunable.pattern_parameter_names else None


def find_blocks_to_read(
    prunable: BlockFilter, values: Mapping[str, object], cursor: duckdb.DuckDBPyConnection, index: NgramIndex
) -> Sequence[int] | None:
    """Return the numbers of the blocks that may contain a matching message, or None if all blocks must be read.

    The numbers are valid only in the transaction in which `cursor` reads the index.
    """
    ngrams = prunable.ngrams + extract_ngrams(_texts_required_by_parameters(prunable, values))
    return index.find_candidate_blocks(cursor, prunable.stream, ngrams) if ngrams else None


def _find_message_conditions(tree: exp.Expr, table: exp.Table) -> Iterator[_MessageCondition]:
    """Yield the conditions that an event of `table` must fulfil to be used by the query.

    Each condition comes with the alias of the relation in which it is tested, and the name of that relation's message
    column.
    """
    relation: exp.Expr | None = table
    uses = RelationUses(tree)
    name: str | None = _MESSAGE_COLUMN
    while relation is not None and name is not None:
        select = find_reading_select(relation)
        if select is None:
            return
        alias = relation.alias_or_name
        yield from ((condition, alias, name) for condition in split_and_conditions(select.args.get("where")))
        if any(select.args.get(clause) for clause in _ROW_COMBINING_CLAUSES) or select.find(exp.Window) is not None:
            return
        name = _alias_of_selected_column(select, alias, name)
        relation = uses.find_single_use(select)


def _texts_required_by_parameters(prunable: BlockFilter, values: Mapping[str, object]) -> list[str]:
    """Return the texts that a message must contain so that it can match the values of the query's parameters.

    Parameters that are NULL are ignored, because a comparison with NULL matches no event.
    """
    texts = [str(values[name]) for name in prunable.text_parameter_names if values.get(name) is not None]
    patterns = (str(values[name]) for name in prunable.pattern_parameter_names if values.get(name) is not None)
    return texts + [text for pattern in patterns for text in _required_texts_of_regex(pattern)]


def _is_regex_condition(message_condition: _MessageCondition) -> bool:
    condition, alias, name = message_condition
    return bool(_literal_compared_with_message(condition, RegexMatch, alias, name))


def _move_condition_to_table(message_condition: _MessageCondition) -> exp.Expr:
    """Replace the condition by TRUE in the tree, and return it as a condition on the table's message column.

    The caller adds the returned condition to the scan, because DuckDB itself pushes down only conditions that cannot
    fail.
    """
    condition, alias, name = message_condition
    pattern = _literal_compared_with_message(condition, RegexMatch, alias, name)
    condition.replace(exp.true())
    return fragment_node(f'regexp_matches("{_MESSAGE_COLUMN}", {{0}})', string_literal_node(pattern))


def _parameters_compared_with_message(
    message_conditions: Sequence[_MessageCondition], kind: type[Operation]
) -> tuple[str, ...]:
    """Return the names of the parameters with which an operation of the class `kind` compares the message."""
    operands = (
        _operand_compared_with_message(_position_call_of_condition(condition) or condition, kind, alias, name)
        for condition, alias, name in message_conditions
    )
    return tuple(argument.name for argument in operands if isinstance(argument, exp.Parameter))


def _position_call_of_condition(condition: exp.Expr) -> exp.Expr | None:
    """Return the operand `instr(…)` of the condition `instr(…) > 0`, or None for any other condition."""
    is_occurrence_test = isinstance(condition, exp.GT) and _is_literal_number(condition.expression, "0")
    return condition.this if is_occurrence_test and has_operation(condition.this, TextPosition) else None


def _texts_required_by_condition(condition: exp.Expr, alias: str, name: str) -> list[str]:
    position = _position_call_of_condition(condition)
    if position is not None:
        return [_literal_compared_with_message(position, TextPosition, alias, name)]
    if has_operation(condition, RegexMatch):
        return _required_texts_of_regex(_literal_compared_with_message(condition, RegexMatch, alias, name))
    if isinstance(condition, exp.Like) and _is_column_of(condition.this, alias, name):
        return _required_texts_of_like(condition.expression)
    return []


def _literal_compared_with_message(node: exp.Expr, kind: type[Operation], alias: str, name: str) -> str:
    """Return the literal text with which the operation compares the message, or an empty text if there is none."""
    text = _operand_compared_with_message(node, kind, alias, name)
    return str(text.this) if isinstance(text, exp.Literal) and text.is_string else ""


def _operand_compared_with_message(node: exp.Expr, kind: type[Operation], alias: str, name: str) -> exp.Expr | None:
    if not has_operation(node, kind):
        return None
    message, argument = fragment_parts(node)
    return argument if _is_column_of(message, alias, name) else None


def _required_texts_of_regex(pattern: str) -> list[str]:
    """Return texts that every match of the regular expression contains; none for a very long regular expression."""
    if len(pattern) > _MAX_ANALYSED_REGEX_CHARACTERS or _UNKNOWN_REGEX_ESCAPE_PATTERN.search(pattern):
        return []
    pattern = _CHARACTER_CLASS_PATTERN.sub(" ", _ESCAPED_CHARACTER_PATTERN.sub(" ", pattern))
    if _REGEX_ALTERNATIVE_OR_FLAG_PATTERN.search(pattern):
        return []
    while _INNERMOST_GROUP_PATTERN.search(pattern):
        pattern = _INNERMOST_GROUP_PATTERN.sub(" ", pattern)
    return [] if set("()[]") & set(pattern) else re.findall("[0-9A-Za-z]+", _OPTIONAL_LETTER_PATTERN.sub(" ", pattern))


def _required_texts_of_like(pattern: exp.Expr) -> list[str]:
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        return []
    return re.split("[%_]", _ESCAPED_CHARACTER_PATTERN.sub(" ", str(pattern.this)))


def _alias_of_selected_column(select: exp.Select, alias: str, name: str) -> str | None:
    return next((item.alias for item in select.expressions if _is_column_of(item.unalias(), alias, name)), None)


def _is_column_of(node: exp.Expr, alias: str, name: str) -> bool:
    return isinstance(node, exp.Column) and node.table == alias and node.name == name


def _is_literal_number(node: exp.Expr, number: str) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.this == number
