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
from cordwood.sql.budget import count_nodes
from cordwood.sql.datatypes import inherit_metadata
from cordwood.sql.nodes import OPERATION_KEY, Operation, attach_operation, is_operation, replace_node
from cordwood.sql.plan import BlockFilter, PartialRowsSelect, UncoveredBlocksCondition

LoweringRule = Callable[[exp.Expr], exp.Expr]
RuleKey = TypeVar("RuleKey", str, type[exp.Expr], type[Operation])

# The prefix of errors that a lowered query raises itself, to distinguish them from the engine's own errors.
RAISED_ERROR_PREFIX: Final = "cordwood: "

# The metadata key of nodes whose errors become NULL, as in SAFE.F(…).
_NULL_ON_ERROR_KEY: Final = "safe"


class RuleSet(msgspec.Struct, frozen=True):
    """A set of lowering rules: by node class (`nodes`), or by name for functions without a class (`by_name`).

    `operations` has rules for nodes with an operation; rules in `before_children` are applied before a node's children
    are lowered.
    """

    nodes: Mapping[type[exp.Expr], LoweringRule] = msgspec.field(default_factory=dict)
    by_name: Mapping[str, LoweringRule] = msgspec.field(default_factory=dict)
    operations: Mapping[type[Operation], LoweringRule] = msgspec.field(default_factory=dict)
    before_children: Mapping[type[exp.Expr], LoweringRule] = msgspec.field(default_factory=dict)


class LoweringRules(msgspec.Struct, frozen=True):
    """All lowering rules of a target, looked up by the class of the node."""

    nodes: Mapping[type[exp.Expr], LoweringRule]
    by_name: Mapping[str, LoweringRule]
    operations: Mapping[type[Operation], LoweringRule]
    before_children: Mapping[type[exp.Expr], LoweringRule]

    def lower(self, node: exp.Expr) -> exp.Expr:
        count_nodes()
        early_rule = self.before_children.get(type(node))
        if early_rule is not None:
            node = _attach_to_parent(node, _apply_rule(node, early_rule))
        for part in list(node.iter_expressions()):
            lowered = self.lower(part)
            if lowered is not part:
                replace_node(part, lowered)
        rule = self._find_rule(node)
        return _apply_rule(node, rule) if rule else node

    def _find_rule(self, node: exp.Expr) -> LoweringRule | None:
        if is_operation(node):
            return self.operations[type(node.args[OPERATION_KEY])]
        if isinstance(node, exp.Anonymous):
            return self.by_name.get(str(node.this).upper())
        return self.nodes.get(type(node))


def _attach_to_parent(node: exp.Expr, replacement: exp.Expr) -> exp.Expr:
    """Set the parent of a replacement before its children are lowered, because their rules look at their ancestors."""
    if replacement is not node:
        replacement.parent, replacement.arg_key, replacement.index = node.parent, node.arg_key, node.index
    return replacement


def _apply_rule(node: exp.Expr, rule: LoweringRule) -> exp.Expr:
    return inherit_metadata(rule(node), node)


def merge_rule_sets(rule_sets: Iterable[RuleSet]) -> LoweringRules:
    """Merge all rule sets into one table; two rules for the same node are a programming error."""
    sets = list(rule_sets)
    return LoweringRules(
        nodes=_merge_tables(rule_set.nodes for rule_set in sets),
        by_name=_merge_tables(rule_set.by_name for rule_set in sets),
        operations=_merge_tables(rule_set.operations for rule_set in sets),
        before_children=_merge_tables(rule_set.before_children for rule_set in sets),
    )


def _merge_tables(tables: Iterable[Mapping[RuleKey, LoweringRule]]) -> dict[RuleKey, LoweringRule]:
    merged: dict[RuleKey, LoweringRule] = {}
    for table in tables:
        duplicates = merged.keys() & table.keys()
        if duplicates:
            raise ValueError(f"two rules for {duplicates}")
        merged.update(table)
    return merged


def raise_unsupported(node: exp.Expr, subject: str) -> NoReturn:
    raise QueryUnsupported(f"{subject} is not supported", span=span_in_text(node))


def span_in_text(node: exp.Expr) -> Span | None:
    """Return the position of the node, or of the first part with a position, in the query's text."""
    for candidate in (node, *node.find_all(exp.Expr)):
        line, column = candidate.meta_get("line"), candidate.meta_get("col")
        if line is not None and column is not None:
            return Span(line, column - (candidate.meta_get("end", column) - candidate.meta_get("start", column)))
    return None


def bigquery_function_name(node: exp.Expr) -> str:
    """Return the BigQuery name of the function that the node calls."""
    written_name = node.meta_get("bigquery_name")
    # For functions with a class of their own, sqlglot's `name` is the name of the first argument.
    default_name = node.sql_name() if isinstance(node, exp.Func) and not isinstance(node, exp.Anonymous) else node.name
    return str(written_name or default_name).upper()


def mark_null_on_error(node: exp.Expr) -> exp.Expr:
    node.meta[_NULL_ON_ERROR_KEY] = True
    return node


def returns_null_on_error(node: exp.Expr) -> bool:
    return bool(node.meta_get(_NULL_ON_ERROR_KEY))


def is_evaluated_in_unchosen_branch(node: exp.Expr) -> bool:
    """Return whether engines evaluate the node even if its branch of IF, CASE or COALESCE is not chosen.

    Engines do so for a node in a sub-query or aggregate within the branch. Such a node must not raise errors.
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
# Keys of the arguments of nodes with the names BLOCK_SEGMENT_NODE_NAME and VERBATIM_SQL_NODE_NAME.
_BLOCK_SEGMENT_KEY: Final = "filter"
_VERBATIM_SQL_KEY: Final = "written"

VERBATIM_NAME_KEY: Final = "verbatim_name"

# A placeholder of a template: the number of a part in braces.
PLACEHOLDER_PATTERN: Final = re.compile(r"\{(\d+)\}")
# Constants that may be literals in a template: text without placeholders and without characters to escape.
_UNESCAPED_CONSTANT_PATTERN: Final = re.compile(r"[ !%&()*+,./0-9:;<=>?A-Za-z\[\]^_|~'\-]*", re.ASCII)


def fragment(template: str, *parts: exp.Expr, operation: Operation | None = None) -> exp.Expr:
    """Return a fragment: engine SQL in which `{0}` is the first part. The printer adds parentheses where needed.

    A part may be used several times. `operation` is the fragment's operation, for passes that recognise it.
    """
    if any(isinstance(segment, int) and segment >= len(parts) for segment in split_template(template)):
        raise ValueError(f"a placeholder without a part: {template}")
    node = exp.Anonymous(this=FRAGMENT_NODE_NAME, expressions=[exp.Literal.string(template), *parts])
    return node if operation is None else attach_operation(node, operation)


def merge_fragments(template: str, *parts: exp.Expr) -> exp.Expr:
    """Return one fragment: templates of parts that are fragments are inserted into `template` without parentheses."""
    texts: list[str] = []
    merged_parts: list[exp.Expr] = []
    for part in parts:
        inner_template, inner_parts = (
            (fragment_template(part), fragment_parts(part)) if is_fragment(part) else ("{0}", [part])
        )
        texts.append(_renumber_placeholders(inner_template, len(merged_parts)))
        merged_parts += inner_parts
    return fragment(PLACEHOLDER_PATTERN.sub(lambda placeholder: texts[int(placeholder[1])], template), *merged_parts)


def join_fragments(separator: str, parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return one fragment of all parts, with the separator between them."""
    return merge_fragments(separator.join(f"{{{index}}}" for index in range(len(parts))), *parts)


def _renumber_placeholders(template: str, first: int) -> str:
    return PLACEHOLDER_PATTERN.sub(lambda placeholder: f"{{{int(placeholder[1]) + first}}}", template)


# Long templates are not cached: they contain lists, whose length depends on the query.
@memoize_short_texts(max_length=512, max_entries=4096)
def split_template(template: str) -> tuple[str | int, ...]:
    """Split a template into texts and part numbers, alternating, beginning with a text."""
    return tuple(
        int(segment) if index % 2 else segment for index, segment in enumerate(PLACEHOLDER_PATTERN.split(template))
    )


def placeholders_text(count: int, first: int = 0) -> str:
    """Return `count` placeholders of a template, separated by commas."""
    return ", ".join(f"{{{index}}}" for index in range(first, first + count))


def name_part(name: str, *, is_verbatim: bool = False) -> exp.Identifier:
    """Return a name as a part of a fragment, which is always printed in quotes.

    The printer converts the name to the engine's spelling. If `is_verbatim` is set, it prints the name unchanged.
    """
    identifier = exp.Identifier(this=name, quoted=True)
    return mark_verbatim_name(identifier) if is_verbatim else identifier


def mark_verbatim_name(name: exp.Identifier) -> exp.Identifier:
    """Mark a name to be printed unchanged, without conversion to the engine's spelling."""
    name.meta[VERBATIM_NAME_KEY] = True
    return name


def text_part(text: str) -> exp.Expr:
    """Return a text as a part of a fragment, which is always printed as a literal."""
    return exp.Literal.string(text)


def bytes_part(data: bytes) -> exp.Expr:
    """Return bytes as a part of a fragment, which is printed as a bytes literal."""
    return exp.ByteString(this=data.decode("latin-1"))


def quoted_constant(text: str) -> str:
    """Return a rule's constant as a quoted literal for a template; raise ValueError if it would need escapes."""
    if not _UNESCAPED_CONSTANT_PATTERN.fullmatch(text):
        raise ValueError(f"no constant of the rules: {text!r}")
    return "'" + text.replace("'", "''") + "'"


def optional_predicate_node(parameter: exp.Parameter, test: exp.Expr, predicate: exp.Expr) -> exp.Expr:
    """Return the condition `(test OR predicate)`, which is printed as an `OptionalPredicate` of the plan."""
    return exp.Anonymous(this=OPTIONAL_PREDICATE_NODE_NAME, expressions=[test, predicate, exp.Var(this=parameter.name)])


def block_filter_node(filter_: BlockFilter) -> exp.Expr:
    """Return a placeholder, filled for each call, for the condition that restricts a scan to the filter's blocks."""
    return exp.Anonymous(this=BLOCK_SEGMENT_NODE_NAME, **{_BLOCK_SEGMENT_KEY: filter_})


def uncovered_blocks_node(stream: str, *, at_edges: bool = False) -> exp.Expr:
    """Return a placeholder, filled for each call, for the condition that no partial answer includes an event."""
    return exp.Anonymous(
        this=BLOCK_SEGMENT_NODE_NAME, **{_BLOCK_SEGMENT_KEY: UncoveredBlocksCondition(stream, at_edges)}
    )


def partial_rows_node(columns: int) -> exp.Expr:
    """Return a placeholder, filled for each call, for the SELECT of the rows of the partial answers."""
    return exp.Anonymous(this=BLOCK_SEGMENT_NODE_NAME, **{_BLOCK_SEGMENT_KEY: PartialRowsSelect(columns)})


def block_segment_of(node: exp.Expr) -> BlockFilter | UncoveredBlocksCondition | PartialRowsSelect:
    """Return the segment of the plan for which a placeholder stands."""
    segment: BlockFilter | UncoveredBlocksCondition | PartialRowsSelect = node.args[_BLOCK_SEGMENT_KEY]
    return segment


def replace_fragment_parts(node: exp.Expr, parts: Sequence[exp.Expr]) -> exp.Expr:
    """Return a new fragment with the template of `node` and other parts."""
    return fragment(fragment_template(node), *parts)


def verbatim_sql_node(text: str) -> exp.Expr:
    """Return a node of SQL that the engine wrote itself. It is printed unchanged: its braces are not placeholders."""
    return exp.Anonymous(this=VERBATIM_SQL_NODE_NAME, **{_VERBATIM_SQL_KEY: text})


def verbatim_sql_of(node: exp.Expr) -> str:
    text: str = node.args[_VERBATIM_SQL_KEY]
    return text


def is_fragment(node: object) -> bool:
    return isinstance(node, exp.Anonymous) and node.this == FRAGMENT_NODE_NAME


def fragment_template(node: exp.Expr) -> str:
    text: str = node.expressions[0].this
    return text


def fragment_parts(node: exp.Expr) -> list[exp.Expr]:
    return node.expressions[1:]


# Operators that engines expand to several comparisons, each of which repeats the captured operand.
_OPERAND_REPEATED_BY_ENGINE_PATTERN: Final = re.compile(
    r"\{(\d+)\} (?:NOT )?BETWEEN|\bnullif\(\{(\d+)\}", re.IGNORECASE
)
_LAMBDA_KEYWORD: Final = "lambda "
_PLANNING_COST_KEYWORD_PATTERN: Final = re.compile(r"\b(SELECT|FROM|OVER|DISTINCT|UNION)\b")
# Calls that DuckDB does not allow inside TRY.
_VOLATILE_CALLS: Final = ("error(", "random()", "uuid()")


class TemplateSize(msgspec.Struct, frozen=True):
    """A template's length, its expensive keywords, and how often engines plan the part that fills each placeholder."""

    character_count: int
    keyword_counts: Mapping[str, int]
    planned_count_by_placeholder: Mapping[int, int]


@lru_cache(maxsize=4096)
def _measure_template(template: str) -> TemplateSize:
    placeholder_counts = Counter(int(match[1]) for match in PLACEHOLDER_PATTERN.finditer(template))
    lambda_start = template.find(_LAMBDA_KEYWORD)
    if lambda_start >= 0:
        # DuckDB binds the body of a lambda twice.
        placeholder_counts += Counter(int(match[1]) for match in PLACEHOLDER_PATTERN.finditer(template, lambda_start))
    placeholder_counts += Counter(
        int(match[1] or match[2]) for match in _OPERAND_REPEATED_BY_ENGINE_PATTERN.finditer(template)
    )
    return TemplateSize(len(template), Counter(_PLANNING_COST_KEYWORD_PATTERN.findall(template)), placeholder_counts)


def measure_fragment(node: exp.Expr) -> TemplateSize:
    return _measure_template(fragment_template(node))


def has_calls(node: exp.Expr) -> bool:
    """Return whether the template has parentheses; without parentheses, it is an operator, a cast or a path."""
    return "(" in fragment_template(node)


def is_volatile(node: exp.Expr) -> bool:
    """Return whether the template calls a function that always fails, or whose result varies."""
    template = fragment_template(node)
    return any(call in template for call in _VOLATILE_CALLS)


def catches_failures(node: exp.Expr) -> bool:
    """Return whether the template turns errors of its parts into NULL."""
    return "try(" in fragment_template(node)
