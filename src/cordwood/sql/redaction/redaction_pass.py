"""Redaction of a resolved query: every raw value is redacted before another expression can use the value.

A raw value is a value of an event, or a text column, that is not redacted yet. A sub-query may pass a raw value on
unchanged, and a path inside a raw value is a raw value, too. Any other use of a raw value is wrapped in its redaction.

Columns that are used only in the answer are redacted by the engine on output
(`ResolvedQuery.unredacted_column_indexes`). Thus, a query that sorts rows and returns the first n redacts only these n
rows, rather than all rows that it sorts.

If a correlated sub-query reads a raw column of an outer query, the read is moved into the relation that has the column,
and the value is redacted there. The reason is that engines evaluate a correlated sub-query once for each distinct outer
value, and join the results by this value. With raw values, the number of evaluations and the order of rows would reveal
which values are equal.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.model.event import ARRAY_ELEMENT_STEP, EventPath, EventShape, ValueKind
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.nodes import (
    RELATION_WRAPPER_METADATA_KEY,
    EventValueElements,
    RedactedEvent,
    RedactedEventText,
    RedactedSecret,
    RedactedText,
    RedactedValue,
    has_operation,
    is_event_path,
    is_object_test_node,
    operation_node,
    path_root,
    path_steps,
    replace_node,
    set_type,
)
from cordwood.sql.record_shapes import RecordingShapeReader
from cordwood.sql.redaction.patterns import RedactionPolicy
from cordwood.sql.scope import Lineage, ValueOrigin
from cordwood.sql.stages import ResolvedQuery

# Columns that stay unredacted: a tenant may know its own name, and times contain no personal data.
_NEVER_REDACTED_COLUMNS: Final = frozenset({"project", "timestamp", "ingested_at", "timestamp_inferred"})
_EVENT_COLUMNS: Final = frozenset({"metadata", "extras"})
_ALL_KINDS: Final = frozenset(ValueKind)

# The name of a stream, and a path inside the stream's events.
StreamPath = tuple[str, EventPath]


# The maximum number of paths from which one raw value may be read. Each access to an array's element doubles the number
# of possible paths, and a name that refers to n keys multiplies it by n.
_MAX_RAW_VALUE_PATHS: Final = 64


class RawValue(msgspec.Struct, frozen=True):
    """A value of an event or a text column before redaction. It is read from the first of `paths` that exists."""

    paths: tuple[StreamPath, ...]
    is_event_value: bool

    def descendant_value(self, *steps: str) -> "RawValue":
        paths = tuple((stream, (*path, *steps)) for stream, path in self.paths)
        return msgspec.structs.replace(self, paths=paths)

    def element_value(self) -> "RawValue | None":
        """Return the raw value of an element of this value; None if it would be read from too many paths.

        If the value is an object, its only element is the object itself.
        """
        paths = (*self.paths, *self.descendant_value(ARRAY_ELEMENT_STEP).paths)
        return None if len(paths) > _MAX_RAW_VALUE_PATHS else msgspec.structs.replace(self, paths=paths)

    @property
    def key_names(self) -> Iterator[str]:
        """All keys on the paths from which the value is read."""
        return (step for _, path in self.paths for step in path[1:])

    @property
    def last_key_names(self) -> Iterator[str]:
        """The last key of each path from which the value is read; steps into array elements are ignored."""
        for _, path in self.paths:
            yield from [step for step in path[1:] if step != ARRAY_ELEMENT_STEP][-1:]

    def seen_value_kinds(self, records: RecordingShapeReader) -> frozenset[ValueKind]:
        """Return the kinds of value seen at the paths; an empty set for a text column, whose kinds are not recorded."""
        return (
            frozenset().union(*(_kinds_of_path(path, records) for path in self.paths))
            if self.is_event_value
            else frozenset()
        )


RawColumns = Mapping[str, RawValue]
CteColumns = Mapping[str, RawColumns]


class ScopedRelation(msgspec.Struct, eq=False):
    """A relation of a FROM that is in scope, with what the redaction needs to know about it.

    `raw_columns_or_stream` has the relation's raw columns. For a stream, it is the stream's name instead, because all
    columns of a stream are raw except those in `_NEVER_REDACTED_COLUMNS`. `reading_select` is the SELECT with the
    relation in its FROM. `used_columns` are the columns that are read from the relation. `sub_query_values` are the
    values of raw columns that correlated sub-queries read. The relation gets a new column for each of them; the keys of
    the mapping are the names of these columns.
    """

    raw_columns_or_stream: RawColumns | str
    relation: exp.Expr
    reading_select: exp.Expr | None
    used_columns: dict[str, exp.Expr] = {}
    sub_query_values: dict[str, exp.Expr] = {}

    def raw_value(self, name: str) -> RawValue | None:
        if not isinstance(self.raw_columns_or_stream, str):
            return self.raw_columns_or_stream.get(name)
        if name in _NEVER_REDACTED_COLUMNS:
            return None
        path = () if name == "extras" else (name,)
        return RawValue(((self.raw_columns_or_stream, path),), is_event_value=name in _EVENT_COLUMNS)


RelationsByName = dict[str, ScopedRelation]


def _kinds_of_path(path: StreamPath, records: RecordingShapeReader) -> frozenset[ValueKind]:
    """Return the kinds of value seen at a path; all kinds if they are unknown."""
    kinds = records.kinds(Lineage(origins=frozenset({ValueOrigin(*path)})))
    return _ALL_KINDS if kinds is None else kinds


def _raw_column(node: exp.Column, sources: RelationsByName) -> RawValue | None:
    source = sources.get(node.table)
    if source is None:
        return None
    source.used_columns.setdefault(node.name, copy_tree(node))
    return source.raw_value(node.name)


def _only_relation_read_by(node: exp.Expr, sources: RelationsByName) -> ScopedRelation | None:
    """Return the only relation that the expression reads; None if it reads several or none."""
    tables = {column.table for column in node.find_all(exp.Column)}
    return sources.get(next(iter(tables))) if len(tables) == 1 else None


def _belongs_to_outer_query(source: ScopedRelation | None, node: exp.Expr) -> bool:
    """Return whether `source`, the relation that the node reads, belongs to an outer query."""
    return source is not None and node.find_ancestor(exp.Select) is not source.reading_select


def _add_sub_query_value_column(source: ScopedRelation, value: exp.Expr, number: int) -> exp.Column:
    """Add a column for `value` to the relation `source`; return a reference to it for the correlated sub-query.

    The name of a new column contains `number`.
    """
    name = next((name for name, lifted in source.sub_query_values.items() if lifted == value), f"lifted {number}")
    source.sub_query_values.setdefault(name, value)
    column = exp.column(name, source.relation.alias_or_name, quoted=True)
    column.type = value.type
    return column


def _wrap_relation(source: ScopedRelation) -> exp.Select:
    """Replace the relation by a SELECT from it that outputs the columns that are used, and the lifted values."""
    relation = source.relation
    select = exp.Select(
        expressions=[
            exp.alias_(value, name, quoted=True)
            for columns in (source.used_columns, source.sub_query_values)
            for name, value in columns.items()
        ]
    )
    select.meta[RELATION_WRAPPER_METADATA_KEY] = True
    joins = relation.args.get("joins")
    relation.set("joins", None)
    alias = exp.TableAlias(this=exp.to_identifier(relation.alias_or_name, quoted=True))
    relation.replace(exp.Subquery(this=select, alias=alias, joins=joins))
    select.set("from_", exp.From(this=relation))
    return select


def _is_read_by_sub_query(reader: exp.Expr | None, alias: str) -> bool:
    """Return whether a correlated sub-query of the SELECT reads a column of the relation with this alias."""
    if reader is None:
        return False
    columns = (column for column in reader.find_all(exp.Column) if column.table == alias)
    return any(column.find_ancestor(exp.Select) is not reader for column in columns)


_TEXT_ONLY_KINDS: Final = frozenset({ValueKind.TEXT})
_OBJECT_AND_ARRAY_KINDS: Final = frozenset({ValueKind.OBJECT, ValueKind.ARRAY})
_TEXTLESS_KINDS: Final = frozenset({ValueKind.NUMBER, ValueKind.BOOL})


def redact_raw_value_reads(
    resolved: ResolvedQuery, redaction: RedactionPolicy, shapes: Mapping[str, EventShape]
) -> ResolvedQuery:
    """Redact the reads of raw values in a resolved tree. Mutates the tree."""
    tree = resolved.tree
    walk = _ReadRedactor(redaction, RecordingShapeReader(shapes), frozenset(_star_expanded_relation_names(tree)))
    raw = walk.redact_query(tree, {}, {}, passes_raw=True)
    walk.refuse_unvisited_columns(tree)
    names = [item.alias_or_name for item in tree.expressions] if isinstance(tree, exp.Select) else []
    raw_columns = tuple(position for position, name in enumerate(names) if name in raw)
    if len(set(names)) < len(names) and raw_columns:
        raise QueryUnsupported("Two columns of the answer have one name.")
    shape_lookups = {**resolved.shape_lookups, **walk.shape_reader.shape_lookups}
    return msgspec.structs.replace(
        resolved,
        redact_mode=redaction.mode,
        unredacted_column_indexes=raw_columns,
        textless_paths=tuple(walk.textless_paths),
        shape_lookups=shape_lookups,
    )


def are_paths_still_textless(paths: Iterable[StreamPath], shapes: Mapping[str, EventShape]) -> bool:
    """Return whether still no text has been seen at the paths that a statement reads without redaction."""
    records = RecordingShapeReader(shapes)
    return all(_kinds_of_path(path, records) <= _TEXTLESS_KINDS for path in paths)


def _star_expanded_relation_names(tree: exp.Expr) -> Iterator[str]:
    """Yield the names of tables that are read by a star or a pivot.

    If such a table is a sub-query, the sub-query must not output raw values.
    """
    for table in tree.find_all(exp.Table):
        select = table.find_ancestor(exp.Select)
        if table.args.get("pivots") or (select is not None and _has_star(select)):
            yield table.name


def _has_star(select: exp.Select) -> bool:
    return any(isinstance(item, exp.Star) or item.is_star for item in select.expressions)


class _ReadRedactor:
    """Redactor of the reads in one tree. It walks over the tree query by query."""

    def __init__(
        self, redaction: RedactionPolicy, records: RecordingShapeReader, expanded_names: frozenset[str]
    ) -> None:
        self._redaction_policy = redaction
        self.shape_reader = records
        self._star_expanded_relation_names = expanded_names
        # Paths that are read without redaction, because no text was ever seen there.
        self.textless_paths: dict[StreamPath, None] = {}
        # Visited columns by object id. The nodes are held because Python could otherwise reuse their ids.
        self._visited_columns_by_id: dict[int, exp.Expr] = {}
        self._sub_query_value_count = 0

    def refuse_unvisited_columns(self, tree: exp.Expr) -> None:
        """Refuse a tree with a column that the walk did not visit, because it might be read without redaction."""
        for node in tree.walk(prune=_is_redacted):
            if isinstance(node, exp.Column) and id(node) not in self._visited_columns_by_id:
                raise QueryUnsupported("A column stands where redaction does not look.")

    def _mark_columns_visited(self, node: exp.Expr) -> None:
        self._visited_columns_by_id |= {id(column): column for column in node.find_all(exp.Column)}

    def redact_query(self, node: exp.Expr, ctes: CteColumns, outer: RelationsByName, *, passes_raw: bool) -> RawColumns:
        """Redact the reads of a query; return its output columns that are still raw, by name."""
        charge_nodes(1 + len(ctes))
        ctes = {**ctes, **self._redact_ctes(node, ctes, outer)}
        if isinstance(node, exp.Select):
            return self._redact_select(node, ctes, outer, passes_raw=passes_raw)
        for part in node.iter_expressions():
            if isinstance(part, exp.With):
                continue
            if isinstance(part, exp.Query):
                self.redact_query(part, ctes, outer, passes_raw=False)
            else:
                self._redact_expression(part, ctes, outer)
        return {}

    def _redact_ctes(self, node: exp.Expr, ctes: CteColumns, outer: RelationsByName) -> dict[str, RawColumns]:
        with_ = node.args.get("with_")
        columns_by_cte: dict[str, RawColumns] = {}
        if with_ is None:
            return columns_by_cte
        for cte in with_.expressions:
            is_simple = not with_.args.get("recursive") and not _has_column_aliases(cte)
            passes_raw = is_simple and cte.alias not in self._star_expanded_relation_names
            columns_by_cte[cte.alias] = self.redact_query(
                cte.this, {**ctes, **columns_by_cte}, outer, passes_raw=passes_raw
            )
        return columns_by_cte

    def _redact_select(
        self, node: exp.Select, ctes: CteColumns, outer: RelationsByName, *, passes_raw: bool
    ) -> RawColumns:
        sources = dict(outer)
        is_expanded = _has_star(node)
        for relation in _relations_of_from(node):
            self._redact_source(relation, ctes, sources, is_expanded=is_expanded)
        for part in _clauses_without_columns_and_relations(node):
            self._redact_clause(part, ctes, sources)
        raw_positions = output_positions_unused_by_clauses(node) if passes_raw else frozenset()
        raw_outputs: dict[str, RawValue] = {}
        for position, item in enumerate(node.expressions, start=1):
            raw = self._raw_value_of_output_column(item, sources) if position in raw_positions else None
            if raw is not None:
                raw_outputs[item.alias] = raw
            else:
                self._redact_expression(item, ctes, sources)
        for source in sources.values():
            if source.sub_query_values and source.reading_select is node:
                self._mark_columns_visited(_wrap_relation(source))
        return raw_outputs

    def _raw_value_of_output_column(self, item: exp.Expr, sources: RelationsByName) -> RawValue | None:
        """Return the raw value that an output column passes on unchanged; None if the column passes on no raw value."""
        raw = self._raw_value(item.this, sources) if isinstance(item, exp.Alias) else None
        if (
            raw is None
            or self._has_secret_key(raw)
            or _belongs_to_outer_query(_only_relation_read_by(item.this, sources), item)
        ):
            return None
        self._mark_columns_visited(item)
        return raw

    def _redact_clause(self, part: exp.Expr, ctes: CteColumns, sources: RelationsByName) -> None:
        """Redact a clause. Of a join, redact only the condition, because its relation has been visited already."""
        if isinstance(part, exp.Join):
            condition = part.args.get("on")
            if condition is not None:
                self._redact_expression(condition, ctes, sources)
        else:
            self._redact_expression(part, ctes, sources)

    def _redact_source(self, node: exp.Expr, ctes: CteColumns, sources: RelationsByName, *, is_expanded: bool) -> None:
        """Redact the reads in a relation, and in the relations that are joined to it within the same parentheses.

        `is_expanded` is set if the SELECT with the relation in its FROM has a star.
        """
        self._redact_relation(node, ctes, sources, is_expanded=is_expanded)
        for pivot in node.args.get("pivots") or ():
            self._redact_expression(pivot, ctes, sources)
        for join in node.args.get("joins") or ():
            self._redact_source(join.this, ctes, sources, is_expanded=is_expanded)
            self._redact_clause(join, ctes, sources)

    def _redact_relation(
        self, node: exp.Expr, ctes: CteColumns, sources: RelationsByName, *, is_expanded: bool
    ) -> None:
        columns: RawColumns | str
        if isinstance(node, exp.Table):
            columns = self._table_columns(node, ctes, is_expanded=is_expanded)
        elif isinstance(node, exp.Unnest):
            columns = self._redact_unnest(node, ctes, sources)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query) and node.alias:
            passes_raw = not (is_expanded or node.args.get("pivots") or _has_column_aliases(node))
            columns = self.redact_query(node.this, ctes, sources, passes_raw=passes_raw)
        else:
            # This is a parenthesised join. Its relations are in scope as if there were no parentheses.
            self._redact_source(node.this, ctes, sources, is_expanded=is_expanded)
            return
        sources[node.alias_or_name] = ScopedRelation(columns, node, node.find_ancestor(exp.Select))

    def _table_columns(self, node: exp.Table, ctes: CteColumns, *, is_expanded: bool) -> RawColumns | str:
        stream = node.meta_get("stream")
        if stream is None:
            return ctes.get(node.name, {})
        if is_expanded or node.args.get("pivots"):
            raise QueryUnsupported("The columns of this relation cannot be told, so they cannot be redacted.")
        return str(stream)

    def _redact_unnest(self, node: exp.Unnest, ctes: CteColumns, sources: RelationsByName) -> RawColumns:
        array = node.expressions[0]
        alias = node.args.get("alias")
        raw = self._raw_value_of_elements(array, sources)
        if raw is None or not self._can_unnest_raw(node, raw, sources):
            self._redact_expression(array, ctes, sources)
            return {}
        self._mark_columns_visited(array)
        return {column.name: raw for column in alias.columns} if alias is not None else {}

    def _can_unnest_raw(self, node: exp.Unnest, raw: RawValue, sources: RelationsByName) -> bool:
        """Return whether the elements of an array or record may stay raw when UNNEST yields them.

        The elements must be redacted by UNNEST if a key on their path is hidden, or if a correlated sub-query reads
        them or their array.
        """
        if self._has_hidden_key(raw) or _belongs_to_outer_query(
            _only_relation_read_by(node.expressions[0], sources), node
        ):
            return False
        return not _is_read_by_sub_query(node.find_ancestor(exp.Select), node.alias_or_name)

    def _redact_expression(self, node: exp.Expr, ctes: CteColumns, sources: RelationsByName) -> None:
        charge_nodes()
        raw = self._raw_value(node, sources)
        if raw is not None:
            self._redact_raw_value_read(node, raw, _only_relation_read_by(node, sources))
            return
        if _is_unambiguous_column(node):
            self._mark_columns_visited(node)
            return
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            self.redact_query(node, ctes, sources, passes_raw=False)
            return
        for part in list(node.iter_expressions()):
            self._redact_expression(part, ctes, sources)

    def _redact_raw_value_read(self, node: exp.Expr, raw: RawValue, source: ScopedRelation | None) -> None:
        is_from_outer_query = source is not None and _belongs_to_outer_query(source, node)
        if self._is_textless(raw) or (not is_from_outer_query and self._is_only_tested_for_presence(node, raw)):
            value = copy_tree(node) if is_from_outer_query else node
            self._mark_columns_visited(value)
        else:
            value = self._redact_value(copy_tree(node), raw)
        if source is not None and is_from_outer_query and not isinstance(value, exp.Null):
            self._sub_query_value_count += 1
            value = _add_sub_query_value_column(source, value, self._sub_query_value_count)
            self._mark_columns_visited(value)
        if value is not node:
            replace_node(node, value)

    def _raw_value(self, node: exp.Expr | None, sources: RelationsByName) -> RawValue | None:
        """Return the raw value that the expression denotes; None if it does not denote one."""
        if isinstance(node, exp.Column):
            return _raw_column(node, sources)
        if isinstance(node, exp.Paren):
            return self._raw_value(node.this, sources)
        if isinstance(node, exp.Bracket):
            return self._raw_value_of_element(node, sources)
        if isinstance(node, exp.Coalesce):
            return self._raw_value_of_coalesce(node, sources)
        if node is not None and is_event_path(node):
            base = self._raw_value(path_root(node), sources)
            return base.descendant_value(*path_steps(node)) if base is not None else None
        return None

    def _raw_value_of_coalesce(self, node: exp.Coalesce, sources: RelationsByName) -> RawValue | None:
        """Return COALESCE of event values as one raw value, which is read from the first of several paths that exists.

        Return None if an argument is not a raw value of an event, if the key of a value names a secret, or if there are
        too many paths.
        """
        values = [self._raw_value(part, sources) for part in (node.this, *node.expressions)]
        events = [raw for raw in values if raw is not None and raw.is_event_value and not self._has_secret_key(raw)]
        if len(events) < len(values) or _only_relation_read_by(node, sources) is None:
            return None
        paths = tuple(dict.fromkeys(path for raw in events for path in raw.paths))
        return RawValue(paths, is_event_value=True) if len(paths) <= _MAX_RAW_VALUE_PATHS else None

    def _raw_value_of_elements(self, node: exp.Expr, sources: RelationsByName) -> RawValue | None:
        if has_operation(node, EventValueElements):
            base = self._raw_value(node.expressions[0], sources)
            return base.element_value() if base is not None else None
        return None

    def _raw_value_of_element(self, node: exp.Bracket, sources: RelationsByName) -> RawValue | None:
        """Return an array's element as a raw value; None if it is not raw, or if the index is computed from columns.

        If the index is computed from columns, the array and these columns are redacted separately.
        """
        reads_columns = any(index.find(exp.Column, exp.Query) for index in node.expressions)
        return None if reads_columns else self._raw_value_of_elements(node.this, sources)

    def _redact_value(self, node: exp.Expr, raw: RawValue) -> exp.Expr:
        mode = self._redaction_policy.mode
        if not raw.is_event_value:
            return set_type(operation_node(RedactedText(mode), node), exp.DType.VARCHAR)
        if self._has_hidden_key(raw):
            return set_type(exp.Null(), exp.DType.VARIANT)
        if raw.seen_value_kinds(self.shape_reader) == _TEXT_ONLY_KINDS and not self._has_secret_key(raw):
            # The value is always a text, so redact it as a text: no test of the value's kind is needed, and the engine
            # stores such values in columns.
            return set_type(operation_node(RedactedEventText(mode), node), exp.DType.VARIANT)
        if self._has_secret_key(raw):
            may_be_record = bool(raw.seen_value_kinds(self.shape_reader) & _OBJECT_AND_ARRAY_KINDS)
            return set_type(operation_node(RedactedSecret(mode, may_be_record), node), exp.DType.VARIANT)
        return set_type(operation_node(RedactedEvent(mode), node), exp.DType.VARIANT)

    def _has_secret_key(self, raw: RawValue) -> bool:
        """Return whether the value must be redacted because of its key.

        Such a value must not be passed on raw, because a query that reads only the raw value does not know the key.
        """
        return self._has_hidden_key(raw) or (
            raw.is_event_value and any(map(self._redaction_policy.is_secret_name, raw.last_key_names))
        )

    def _is_only_tested_for_presence(self, node: exp.Expr, raw: RawValue) -> bool:
        """Return whether the query only tests whether the value is NULL or of some kind, which reveals no text."""
        return _is_tested_for_presence(node.parent) and not self._has_hidden_key(raw)

    def _is_textless(self, raw: RawValue) -> bool:
        """Return whether only numbers and booleans were ever seen at the value's paths; if so, record these paths."""
        kinds = raw.seen_value_kinds(self.shape_reader)
        is_textless = bool(kinds) and kinds <= _TEXTLESS_KINDS and not self._has_hidden_key(raw)
        if is_textless:
            self.textless_paths |= dict.fromkeys(raw.paths)
        return is_textless

    def _has_hidden_key(self, raw: RawValue) -> bool:
        """Return whether a key on the value's path is hidden, so that not even the value's presence may be revealed."""
        return raw.is_event_value and any(map(self._redaction_policy.is_hidden_name, raw.key_names))


def _relations_of_from(select: exp.Select) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    yield from (join.this for join in select.args.get("joins") or [])


def _is_unambiguous_column(node: exp.Expr) -> bool:
    """Return whether the node is a column that cannot be confused with another one by the engine.

    A column is unambiguous if it is qualified by the name of its relation. Only in set operations and PIVOT,
    unqualified columns are unambiguous, too. Elsewhere, the engine might find a raw column by an unqualified name.
    """
    if not isinstance(node, exp.Column):
        return False
    return bool(node.table) or not isinstance(node.find_ancestor(exp.Pivot, exp.Query), exp.Select)


def _is_redacted(node: exp.Expr) -> bool:
    return has_operation(node, RedactedValue)


def _is_tested_for_presence(reader: exp.Expr | None) -> bool:
    if isinstance(reader, exp.Is):
        return isinstance(reader.expression, exp.Null)
    return isinstance(reader, exp.Count) or is_object_test_node(reader)


def _has_column_aliases(node: exp.Expr) -> bool:
    alias = node.args.get("alias")
    return bool(alias and alias.columns)


def _clauses_without_columns_and_relations(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the parts of a SELECT other than its selected expressions, FROM and WITH."""
    for key, value in list(select.args.items()):
        if key not in ("expressions", "from_", "with_"):
            yield from (part for part in (value if isinstance(value, list) else [value]) if isinstance(part, exp.Expr))


# Clauses that cannot use the selected values. They read only their own expressions, in which every text is redacted.
# The items of ORDER BY are checked one by one. Any clause that is not listed here may use the selected values, as GROUP
# BY, DISTINCT and AS STRUCT do.
_CLAUSES_IGNORING_SELECTED_VALUES: Final = frozenset(
    {"expressions", "from_", "with_", "joins", "where", "qualify", "windows", "limit", "offset", "order"}
)
# An expression that contains one of these nodes is not taken for an ordinal or the name of a column by any engine.
_ROW_DEPENDENT_CLASSES: Final = (exp.Column, exp.AggFunc, exp.Window, exp.Query)


def output_positions_unused_by_clauses(select: exp.Select) -> frozenset[int]:
    """Return the positions of selected values by which no clause of the SELECT sorts, groups or compares.

    Positions are counted from 1. If the SELECT has a clause that is not in `_CLAUSES_IGNORING_SELECTED_VALUES`, return
    none.
    """
    if any(value and key not in _CLAUSES_IGNORING_SELECTED_VALUES for key, value in select.args.items()):
        return frozenset()
    order = select.args.get("order")
    positions = frozenset(range(1, len(select.expressions) + 1))
    return (
        _positions_without_sort_key(positions, [ordered.this for ordered in order.expressions])
        if order is not None
        else positions
    )


def _positions_without_sort_key(positions: frozenset[int], keys: Sequence[exp.Expr]) -> frozenset[int]:
    """Return the positions to which no sort key refers; an empty set if a key could refer to any position."""
    sorted_by = [_ordinal_of(key) for key in keys if not _depends_on_rows(key)]
    return positions.difference(sorted_by) if positions.issuperset(sorted_by) else frozenset()


def _ordinal_of(key: exp.Expr) -> int:
    """Return the ordinal that is a sort key, in the form that `resolve` gives ordinals; 0 for any other key."""
    if not isinstance(key, exp.Literal) or key.is_string or not str(key.this).isdecimal():
        return 0
    number = int(key.this)
    return number if str(number) == key.this else 0


def _depends_on_rows(key: exp.Expr) -> bool:
    """Return whether the key is computed from rows.

    An unqualified column does not count, because it may be the name of a selected value.
    """
    if isinstance(key, exp.Column):
        return bool(key.table)
    return key.find(*_ROW_DEPENDENT_CLASSES) is not None
