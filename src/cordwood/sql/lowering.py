"""Lowering of a tree to engine SQL: each node is visited once, children first, and its rule replaces it by a fragment.

A fragment is a node that holds engine SQL: a template with placeholders, and the trees that fill them. Only rules write
the text of a template. Names, texts, bytes and slots are always nodes that fill placeholders.
`tree_printer` prints trees with fragments.

Only this module and the printer read templates. This module derives from a template's text how large the plan will be,
and whether a rewrite would change the result. Passes never derive from the text what a fragment computes; they
recognise a fragment by its operation (see `nodes`).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NoReturn, TypeVar

import msgspec
from sqlglot import exp

from cordwood.bounded_cache import memoize_short_texts
from cordwood.errors import QueryUnsupported, Span
from cordwood.sql.budget import charge_nodes
from cordwood.sql.datatypes import inherit_metadata
from cordwood.sql.nodes import OPERATION_ARGUMENT_KEY, Operation, attach_operation, is_operation, replace_node
from cordwood.sql.plan import BlockFilter, PartialRowsSelect, UncoveredBlocksCondition

LoweringRule = Callable[[exp.Expr], exp.Expr]
RuleKey = TypeVar("RuleKey", str, type[exp.Expr], type[Operation])

# The prefix of errors that a lowered query raises itself, to distinguish them from the engine's own errors.
RAISED_ERROR_PREFIX: Final = "cordwood: "

# The metadata key of nodes inside SAFE, as in `SAFE.F(…)`: an error of such a node becomes NULL.
_NULL_ON_ERROR_METADATA_KEY: Final = "safe"


class RuleSet(msgspec.Struct, frozen=True):
    """A set of lowering rules: by node class, or by function name for functions that have no node class.

    `by_operation_class` has the rules of nodes with an operation, by the operation's class. A rule in
    `by_node_class_before_children` is applied to a node before the node's children are lowered.
    """

    by_node_class: Mapping[type[exp.Expr], LoweringRule] = msgspec.field(default_factory=dict)
    by_function_name: Mapping[str, LoweringRule] = msgspec.field(default_factory=dict)
    by_operation_class: Mapping[type[Operation], LoweringRule] = msgspec.field(default_factory=dict)
    by_node_class_before_children: Mapping[type[exp.Expr], LoweringRule] = msgspec.field(default_factory=dict)


class LoweringRules(msgspec.Struct, frozen=True):
    """All lowering rules of a target, by the class of a node or its operation, or by the function's name.

    `convert_arguments` is called for each node before its rule, when its children are lowered.
    """

    by_node_class: Mapping[type[exp.Expr], LoweringRule]
    by_function_name: Mapping[str, LoweringRule]
    by_operation_class: Mapping[type[Operation], LoweringRule]
    by_node_class_before_children: Mapping[type[exp.Expr], LoweringRule]
    convert_arguments: Callable[[exp.Expr], None]

    def lower(self, node: exp.Expr) -> exp.Expr:
        charge_nodes()
        early_rule = self.by_node_class_before_children.get(type(node))
        if early_rule is not None:
            node = _set_replacement_parent(node, _apply_rule(node, early_rule))
        for part in list(node.iter_expressions()):
            lowered = self.lower(part)
            if lowered is not part:
                replace_node(part, lowered)
        self.convert_arguments(node)
        rule = self._find_rule(node)
        return _apply_rule(node, rule) if rule else node

    def _find_rule(self, node: exp.Expr) -> LoweringRule | None:
        if is_operation(node):
            return self.by_operation_class[type(node.args[OPERATION_ARGUMENT_KEY])]
        if isinstance(node, exp.Anonymous):
            return self.by_function_name.get(str(node.this).upper())
        return self.by_node_class.get(type(node))


def _set_replacement_parent(node: exp.Expr, replacement: exp.Expr) -> exp.Expr:
    """Set the parent of a replacement before its children are lowered, because rules look at a node's ancestors."""
    if replacement is not node:
        replacement.parent, replacement.arg_key, replacement.index = node.parent, node.arg_key, node.index
    return replacement


def _apply_rule(node: exp.Expr, rule: LoweringRule) -> exp.Expr:
    return inherit_metadata(rule(node), node)


def _keep_arguments(_: exp.Expr) -> None:
    """Convert no arguments."""


def merge_rule_sets(
    rule_sets: Iterable[RuleSet], convert_arguments: Callable[[exp.Expr], None] = _keep_arguments
) -> LoweringRules:
    """Merge all rule sets into one table; raise an error if two of them have a rule for the same node."""
    sets = list(rule_sets)
    return LoweringRules(
        by_node_class=_merge_rule_mappings(rule_set.by_node_class for rule_set in sets),
        by_function_name=_merge_rule_mappings(rule_set.by_function_name for rule_set in sets),
        by_operation_class=_merge_rule_mappings(rule_set.by_operation_class for rule_set in sets),
        by_node_class_before_children=_merge_rule_mappings(rule_set.by_node_class_before_children for rule_set in sets),
        convert_arguments=convert_arguments,
    )


def _merge_rule_mappings(tables: Iterable[Mapping[RuleKey, LoweringRule]]) -> dict[RuleKey, LoweringRule]:
    merged: dict[RuleKey, LoweringRule] = {}
    for table in tables:
        duplicates = merged.keys() & table.keys()
        if duplicates:
            raise ValueError(f"two rules for {duplicates}")
        merged.update(table)
    return merged


def raise_unsupported(node: exp.Expr, subject: str) -> NoReturn:
    raise QueryUnsupported(f"{subject} is not supported", span=span_of_node_or_descendant(node))


def span_of_node_or_descendant(node: exp.Expr) -> Span | None:
    """Return the position in the query's text of the node, or else of its first descendant that has a position."""
    for candidate in (node, *node.find_all(exp.Expr)):
        line, column = candidate.meta_get("line"), candidate.meta_get("col")
        if line is not None and column is not None:
            return Span(line, column - (candidate.meta_get("end", column) - candidate.meta_get("start", column)))
    return None


def bigquery_function_name(node: exp.Expr) -> str:
    """Return the BigQuery name of the function that the node calls."""
    written_name = node.meta_get("bigquery_name")
    # If sqlglot has a class for a function, `node.name` is the name of the function's first argument. Therefore use
    # `sql_name()`, which is sqlglot's name of the function.
    default_name = node.sql_name() if isinstance(node, exp.Func) and not isinstance(node, exp.Anonymous) else node.name
    return str(written_name or default_name).upper()


def mark_null_on_error(node: exp.Expr) -> exp.Expr:
    node.meta[_NULL_ON_ERROR_METADATA_KEY] = True
    return node


def returns_null_on_error(node: exp.Expr) -> bool:
    return bool(node.meta_get(_NULL_ON_ERROR_METADATA_KEY))


def is_evaluated_in_unchosen_branch(node: exp.Expr) -> bool:
    """Return whether engines evaluate the node even if IF, CASE or COALESCE chooses a branch without the node.

    Engines do so if the node is in a sub-query or an aggregate within its branch. Therefore, such a node must not raise
    errors.
    """
    in_query = False
    while node.parent is not None and not isinstance(node.parent, exp.CTE):
        if in_query and isinstance(node.parent, (exp.If, exp.Case, exp.Coalesce)):
            return True
        node = node.parent
        in_query = in_query or isinstance(node, (exp.Query, exp.AggFunc))
    return False


# sqlglot's compiled classes cannot be subclassed, so the compiler's own kinds of nodes are Anonymous nodes with these
# names.
# Admitted queries cannot contain these names.
FRAGMENT_NODE_NAME: Final = "$fragment"
OPTIONAL_PREDICATE_NODE_NAME: Final = "$optional"
BLOCK_SEGMENT_NODE_NAME: Final = "$blocks"
VERBATIM_SQL_NODE_NAME: Final = "$verbatim"
# Nodes named BLOCK_SEGMENT_NODE_NAME or VERBATIM_SQL_NODE_NAME have only one argument. These are the keys of that
# argument.
_BLOCK_SEGMENT_ARGUMENT_KEY: Final = "filter"
_VERBATIM_SQL_ARGUMENT_KEY: Final = "written"

VERBATIM_NAME_METADATA_KEY: Final = "verbatim_name"

# A placeholder in a template: a number in braces, which is the index of the fragment's part that replaces it.
PLACEHOLDER_PATTERN: Final = re.compile(r"\{(\d+)\}")
# Constants that rules may quote and write into a template: texts without braces and without characters to escape.
_TEXT_NEEDING_NO_ESCAPES_PATTERN: Final = re.compile(r"[ !%&()*+,./0-9:;<=>?A-Za-z\[\]^_|~'\-]*", re.ASCII)


def fragment_node(template: str, *parts: exp.Expr, operation: Operation | None = None) -> exp.Expr:
    """Return a fragment: a template of engine SQL, and the trees that replace the placeholders `{0}`, `{1}`, … in it.

    The printer adds parentheses around the trees where they are needed. A placeholder may occur several times.
    `operation` is the operation that the fragment implements; later passes recognise the fragment by it.
    """
    if any(isinstance(segment, int) and segment >= len(parts) for segment in split_template(template)):
        raise ValueError(f"a placeholder without a part: {template}")
    node = exp.Anonymous(this=FRAGMENT_NODE_NAME, expressions=[exp.Literal.string(template), *parts])
    return node if operation is None else attach_operation(node, operation)


def merge_fragments(template: str, *parts: exp.Expr) -> exp.Expr:
    """Return one fragment. The templates of its parts that are fragments themselves are inserted into `template`.

    They are inserted without parentheses.
    """
    texts: list[str] = []
    merged_parts: list[exp.Expr] = []
    for part in parts:
        inner_template, inner_parts = (
            (fragment_template(part), fragment_parts(part)) if is_fragment(part) else ("{0}", [part])
        )
        texts.append(_renumber_placeholders(inner_template, len(merged_parts)))
        merged_parts += inner_parts
    return fragment_node(
        PLACEHOLDER_PATTERN.sub(lambda placeholder: texts[int(placeholder[1])], template), *merged_parts
    )


def join_fragments(separator: str, parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return one fragment that prints all parts, with the separator between them."""
    return merge_fragments(separator.join(f"{{{index}}}" for index in range(len(parts))), *parts)


def _renumber_placeholders(template: str, first: int) -> str:
    return PLACEHOLDER_PATTERN.sub(lambda placeholder: f"{{{int(placeholder[1]) + first}}}", template)


# Long templates are not cached. They contain lists whose length depends on the query, so they are seldom used again.
@memoize_short_texts(max_length=512, max_entries=4096)
def split_template(template: str) -> tuple[str | int, ...]:
    """Split a template into texts and the indexes of placeholders, which alternate; the first element is a text."""
    return tuple(
        int(segment) if index % 2 else segment for index, segment in enumerate(PLACEHOLDER_PATTERN.split(template))
    )


def placeholders_text(count: int, first: int = 0) -> str:
    """Return `count` placeholders of a template, separated by commas."""
    return ", ".join(f"{{{index}}}" for index in range(first, first + count))


def identifier_node(name: str, *, is_verbatim: bool = False) -> exp.Identifier:
    """Return a name as a part of a fragment. The printer always writes such a name in quotes.

    The printer converts the name to the engine's spelling. If `is_verbatim` is set, the printer writes the name
    unchanged.
    """
    identifier = exp.Identifier(this=name, quoted=True)
    return mark_verbatim_name(identifier) if is_verbatim else identifier


def mark_verbatim_name(name: exp.Identifier) -> exp.Identifier:
    """Mark a name to be printed unchanged, without conversion to the engine's spelling."""
    name.meta[VERBATIM_NAME_METADATA_KEY] = True
    return name


def string_literal_node(text: str) -> exp.Expr:
    """Return a text as a part of a fragment. The printer always writes such a text as a literal."""
    return exp.Literal.string(text)


def bytes_literal_node(data: bytes) -> exp.Expr:
    """Return bytes as a part of a fragment. The printer writes them as a bytes literal."""
    return exp.ByteString(this=data.decode("latin-1"))


def quoted_literal_sql(text: str) -> str:
    """Return a rule's constant as a quoted literal for a template; raise ValueError if it would need escapes."""
    if not _TEXT_NEEDING_NO_ESCAPES_PATTERN.fullmatch(text):
        raise ValueError(f"no constant of the rules: {text!r}")
    return "'" + text.replace("'", "''") + "'"


def optional_predicate_node(parameter: exp.Parameter, test: exp.Expr, predicate: exp.Expr) -> exp.Expr:
    """Return a node for `(test OR predicate)`; the printed SQL has it as a segment `OptionalPredicate`."""
    return exp.Anonymous(this=OPTIONAL_PREDICATE_NODE_NAME, expressions=[test, predicate, exp.Var(this=parameter.name)])


def block_filter_node(filter_: BlockFilter) -> exp.Expr:
    """Return a placeholder node for the condition that restricts a scan to blocks that may match the filter.

    The blocks are determined, and the condition is written, for each call of the statement.
    """
    return exp.Anonymous(this=BLOCK_SEGMENT_NODE_NAME, **{_BLOCK_SEGMENT_ARGUMENT_KEY: filter_})


def uncovered_blocks_node(stream: str, *, at_edges: bool = False) -> exp.Expr:
    """Return a placeholder node for the condition that an event is not included in any partial answer.

    If `at_edges` is set, the condition is for blocks of which partial answers cover only some hours, otherwise for
    blocks that are not covered at all. The condition is written for each call of the statement.
    """
    return exp.Anonymous(
        this=BLOCK_SEGMENT_NODE_NAME, **{_BLOCK_SEGMENT_ARGUMENT_KEY: UncoveredBlocksCondition(stream, at_edges)}
    )


def partial_rows_node(columns: int) -> exp.Expr:
    """Return a placeholder node for the SELECT of the rows of partial answers, which is written for each call."""
    return exp.Anonymous(this=BLOCK_SEGMENT_NODE_NAME, **{_BLOCK_SEGMENT_ARGUMENT_KEY: PartialRowsSelect(columns)})


def block_segment_of(node: exp.Expr) -> BlockFilter | UncoveredBlocksCondition | PartialRowsSelect:
    """Return the segment of the plan that will be printed for this placeholder node."""
    segment: BlockFilter | UncoveredBlocksCondition | PartialRowsSelect = node.args[_BLOCK_SEGMENT_ARGUMENT_KEY]
    return segment


def replace_fragment_parts(node: exp.Expr, parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return a new fragment with the template of `node`, but with `parts` instead of its parts."""
    return fragment_node(fragment_template(node), *parts)


def verbatim_sql_node(text: str) -> exp.Expr:
    """Return a node of SQL that is complete in the engine's dialect. It is printed unchanged, including any braces."""
    return exp.Anonymous(this=VERBATIM_SQL_NODE_NAME, **{_VERBATIM_SQL_ARGUMENT_KEY: text})


def verbatim_sql_of(node: exp.Expr) -> str:
    text: str = node.args[_VERBATIM_SQL_ARGUMENT_KEY]
    return text


def is_fragment(node: object) -> bool:
    return isinstance(node, exp.Anonymous) and node.this == FRAGMENT_NODE_NAME


def fragment_template(node: exp.Expr) -> str:
    text: str = node.expressions[0].this
    return text


def fragment_parts(node: exp.Expr) -> list[exp.Expr]:
    return node.expressions[1:]


# Operators whose first operand is repeated by engines, because they expand the operator to several comparisons. A group
# captures the index of this operand's placeholder.
_OPERAND_REPEATED_BY_ENGINE_PATTERN: Final = re.compile(
    r"\{(\d+)\} (?:NOT )?BETWEEN|\bnullif\(\{(\d+)\}", re.IGNORECASE
)
_LAMBDA_KEYWORD: Final = "lambda "
_PLANNING_COST_KEYWORD_PATTERN: Final = re.compile(r"\b(SELECT|FROM|OVER|DISTINCT|UNION)\b")
# Calls that always fail or have a different result each time. DuckDB does not allow them inside TRY.
_VOLATILE_CALLS: Final = ("error(", "random()", "uuid()")


class TemplateSize(msgspec.Struct, frozen=True):
    """The size of a template: its length, its keywords that are costly to plan, and the uses of its placeholders.

    `planned_count_by_placeholder` is how often engines plan the part that replaces a placeholder, by the placeholder's
    index.
    """

    character_count: int
    keyword_counts: Mapping[str, int]
    planned_count_by_placeholder: Mapping[int, int]


@lru_cache(maxsize=4096)
def _measure_template(template: str) -> TemplateSize:
    placeholder_counts = Counter(int(match[1]) for match in PLACEHOLDER_PATTERN.finditer(template))
    lambda_start = template.find(_LAMBDA_KEYWORD)
    if lambda_start >= 0:
        # DuckDB binds the body of a lambda twice, so the placeholders in the body count twice.
        placeholder_counts += Counter(int(match[1]) for match in PLACEHOLDER_PATTERN.finditer(template, lambda_start))
    placeholder_counts += Counter(
        int(match[1] or match[2]) for match in _OPERAND_REPEATED_BY_ENGINE_PATTERN.finditer(template)
    )
    return TemplateSize(len(template), Counter(_PLANNING_COST_KEYWORD_PATTERN.findall(template)), placeholder_counts)


def measure_fragment(node: exp.Expr) -> TemplateSize:
    return _measure_template(fragment_template(node))


def has_function_calls(node: exp.Expr) -> bool:
    """Return whether the fragment's template has parentheses. Otherwise, it is only an operator, a cast or a path."""
    return "(" in fragment_template(node)


def is_volatile(node: exp.Expr) -> bool:
    """Return whether the fragment's template calls a function that always fails, or whose result varies."""
    template = fragment_template(node)
    return any(call in template for call in _VOLATILE_CALLS)


def catches_failures(node: exp.Expr) -> bool:
    """Return whether the fragment's template turns errors of its parts into NULL."""
    return "try(" in fragment_template(node)
