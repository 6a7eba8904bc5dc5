"""The columns of the sub-query that an LQL query reads: their types, the arrays seen in them, and paths inside them.

In queries, an object inside an event is an array of structs. Therefore, the SELECT unnests the objects on a path with
joins. If arrays of objects were seen on a path, joins would repeat the event's row; each condition on such a path
instead unnests the objects in an EXISTS expression of its own.
"""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import Span, UnknownNameInQuery, find_closest_name
from cordwood.lql.query import EventFieldPath
from cordwood.model.datatype import Kind
from cordwood.model.event import ValueKind
from cordwood.sql.admit import admit_query
from cordwood.sql.datatypes import kind_of
from cordwood.sql.diagnostics import span_at
from cordwood.sql.nodes import outermost_select
from cordwood.sql.program import EndpointProgram
from cordwood.sql.query_templates import column_node, make_identifier, table_node
from cordwood.sql.record_shapes import RecordingShapeReader, lineage_below
from cordwood.sql.resolve.queries import resolve_sandbox_query
from cordwood.sql.scope import Lineage, ValueOrigin, lineage_of
from cordwood.sql.stages import AdmittedTree, ParsedQuery, Target
from cordwood.sql.type_inference import annotate_types

KeyPath = tuple[str, ...]

# Keywords of other query languages. If one is used as a column, the error suggests the corresponding LQL clause.
_CLAUSE_BY_FOREIGN_KEYWORD: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sort", "sort_by", "orderby", "order_by"), "order:timestamp@desc"),
    **dict.fromkeys(("since", "earliest"), "t:last@1h"),
    **dict.fromkeys(("fields", "columns"), "s:id s:event_message"),
    **dict.fromkeys(("by", "group", "groupby", "group_by"), "c:group_by(m.level) c:count(*)"),
    **dict.fromkeys(("head", "take"), "limit:5"),
}


class SubQueryInfo(msgspec.Struct, frozen=True):
    """The metadata of a sub-query: the types of its columns, and what is known about the values at paths.

    `may_have_array` returns whether an array was seen at a path, or cannot be excluded because the stream's shape does
    not list the path. `has_only_scalars` returns whether values were seen at a path and none of them was an array or an
    object. `may_have_scalar` returns whether a value that is neither an array nor an object is possible at a path.
    `child_keys` returns the keys of the objects seen at a path. `find_similar_path` returns the path in events whose
    last step is most similar to a name. `query_text` is the text of the query, in which errors have positions.
    """

    sub_query: str
    kind_by_column: Mapping[str, Kind]
    may_have_array: Callable[[KeyPath], bool]
    query_text: str
    find_similar_path: Callable[[str], str | None] = lambda _name: None
    has_only_scalars: Callable[[KeyPath], bool] = lambda _keys: False
    child_keys: Callable[[KeyPath], KeyPath] = lambda _keys: ()
    may_have_scalar: Callable[[KeyPath], bool] = lambda _keys: False

    def has_column(self, name: str) -> bool:
        return self._find_column_name(name) is not None

    def kind_of_path(self, path: EventFieldPath) -> Kind:
        """Return the type of the value at a path; raise UnknownNameInQuery if the path's first step is not a column."""
        first = path.steps[0]
        name = self._find_column_name(first)
        if name is None:
            raise self.unknown_column_error(first, path.text_offset)
        return self.kind_by_column[name] if len(path.steps) == 1 else Kind.VARIANT

    def query_text_span(self, offset: int) -> Span:
        return span_at(self.query_text, offset)

    def unknown_column_error(self, name: str, offset: int) -> UnknownNameInQuery:
        names = list(self.kind_by_column)
        closest_name = find_closest_name(name, names)
        command = _CLAUSE_BY_FOREIGN_KEYWORD.get(name.lower())
        if command is not None:
            hint = f"Write {command}."
            return UnknownNameInQuery(
                f"{self.sub_query} has no column {name[:60]}.", hint=hint, span=self.query_text_span(offset)
            )
        path = self.find_similar_path(name)
        path_example = f"m.{path.partition('.')[2]}" if path and path.startswith("metadata.") else path or f"m.{name}"
        hint = (
            f"Did you mean {closest_name}?"
            if closest_name
            else f"It has: {', '.join(names)}. Inside metadata: {path_example}."
        )
        return UnknownNameInQuery(
            f"{self.sub_query} has no column {name[:60]}.", hint=hint, span=self.query_text_span(offset)
        )

    def _find_column_name(self, name: str) -> str | None:
        return next((column for column in self.kind_by_column if column.lower() == name.lower()), None)


def describe_sub_query(
    program: EndpointProgram, sub_query: str, text: str, target: Target, records: RecordingShapeReader
) -> SubQueryInfo:
    """Return the metadata of a sub-query.

    The positions of errors refer to `text`. `records` collects all lookups in the streams' shapes.
    """
    resolved = resolve_sandbox_query(program, _select_all_columns(sub_query, text), target, records.shapes_by_stream)
    annotate_types(resolved.tree)
    records.shape_lookups.update(resolved.shape_lookups)
    return _sub_query_info(resolved.tree, sub_query, text, records)


def _select_all_columns(sub_query: str, text: str) -> AdmittedTree:
    """Return `SELECT *` from the sub-query. Its resolution yields the sub-query's columns and their types."""
    table = exp.Table(this=exp.to_identifier(sub_query, quoted=True))
    return admit_query(ParsedQuery(exp.Select(expressions=[exp.Star()]).from_(table, copy=False), text))


def _sub_query_info(resolved: exp.Expr, sub_query: str, text: str, records: RecordingShapeReader) -> SubQueryInfo:
    columns = outermost_select(resolved).expressions
    lineages = {column.alias_or_name.lower(): lineage_of(column) for column in columns}
    return SubQueryInfo(
        sub_query,
        {column.alias_or_name: _column_kind(column, lineages[column.alias_or_name.lower()]) for column in columns},
        lambda keys: _may_have_array(records, lineages.get(keys[0].lower()), keys),
        text,
        lambda name: _find_similar_path(records, lineages, name),
        lambda keys: _has_only_scalars(records, lineages.get(keys[0].lower()), keys),
        lambda keys: _child_keys(records, lineages.get(keys[0].lower()), keys),
        lambda keys: _may_have_scalar(records, lineages.get(keys[0].lower()), keys),
    )


def _find_similar_path(records: RecordingShapeReader, lineages: Mapping[str, Lineage], name: str) -> str | None:
    """Return the path in the sub-query's events whose last step is most similar to `name`; None if none is similar."""
    origins = sorted({origin for lineage in lineages.values() for origin in lineage.origins}, key=str)
    paths = (records.most_similar_path(ValueOrigin(origin.stream, (*origin.path, name))) for origin in origins)
    return next((path for path in paths if path), None)


def _column_kind(column: exp.Expr, lineage: Lineage) -> Kind:
    """Return a column's type; VARIANT if the type is unknown, so that values are converted where they are used."""
    return Kind.VARIANT if lineage.is_of_event_value else kind_of(column) or Kind.VARIANT


def _has_only_scalars(records: RecordingShapeReader, lineage: Lineage | None, keys: KeyPath) -> bool:
    if lineage is None or not lineage.is_of_event_value:
        return False
    kinds = records.kinds(lineage_below(lineage, keys[1:]) if len(keys) > 1 else lineage)
    return bool(kinds) and kinds is not None and kinds.isdisjoint({ValueKind.ARRAY, ValueKind.OBJECT})


def _may_have_scalar(records: RecordingShapeReader, lineage: Lineage | None, keys: KeyPath) -> bool:
    if lineage is None or not lineage.is_of_event_value:
        return False
    kinds = records.kinds(lineage_below(lineage, keys[1:]) if len(keys) > 1 else lineage)
    return kinds is None or not kinds <= {ValueKind.ARRAY, ValueKind.OBJECT}


def _child_keys(records: RecordingShapeReader, lineage: Lineage | None, keys: KeyPath) -> KeyPath:
    """Return the keys of the objects that were seen at a path."""
    if lineage is None or not lineage.is_of_event_value:
        return ()
    return records.keys(lineage_below(lineage, keys[1:]) if len(keys) > 1 else lineage)


def _may_have_array(records: RecordingShapeReader, lineage: Lineage | None, keys: KeyPath) -> bool:
    if lineage is None or not lineage.is_of_event_value:
        return False
    kinds = records.kinds(lineage_below(lineage, keys[1:]) if len(keys) > 1 else lineage)
    return ValueKind.ARRAY in kinds if kinds is not None else bool(records.shapes_by_stream)


_SHORT_ALIAS_BY_PATH: Final[Mapping[KeyPath, str]] = {("metadata",): "m"}
_NON_WORD_CHARACTER_PATTERN: Final = re.compile(r"\W")


class RecordUnnests:
    """The relations of one SELECT: the sub-query, and the UNNEST joins for the paths that the SELECT reads.

    `renaming_names` are the names, in lower case, that the SELECT gives to other columns than the sub-query's columns
    of the same names. In ORDER BY, such a name hides columns and relations, so no alias of a relation equals one.
    """

    def __init__(self, info: SubQueryInfo, renaming_names: frozenset[str] = frozenset()) -> None:
        self._sub_query_info = info
        self._renaming_names = renaming_names
        self._alias_by_path: dict[KeyPath, str] = {}
        self._used_lowercase_names = {name.lower() for name in (*info.kind_by_column, "item")} | renaming_names
        self.sub_query_alias = self._unused_name(info.sub_query)

    def sub_query_table(self) -> exp.Expr:
        """Return the sub-query for FROM, with an alias if the sub-query's own name could be hidden."""
        table = table_node(self._sub_query_info.sub_query)
        if self.sub_query_alias != self._sub_query_info.sub_query:
            table.set("alias", exp.TableAlias(this=make_identifier(self.sub_query_alias)))
        return table

    def column_at(self, path: EventFieldPath) -> exp.Expr:
        """Return the column at a path, and note the joins that it needs.

        Raise UnknownNameInQuery if the sub-query has no column with the name of the path's first step.
        """
        self._sub_query_info.kind_of_path(path)
        if len(path.steps) == 1:
            return column_node(path.steps, path.text_offset)
        return column_node((self._unnest_alias(path.steps[:-1]), path.last_step), path.text_offset)

    def sort_column_at(self, path: EventFieldPath) -> exp.Expr:
        """Return the column at a path for ORDER BY, where names of output columns hide names of columns."""
        column = self.column_at(path)
        if len(path.steps) > 1 or path.last_step.lower() not in self._renaming_names:
            return column
        return column_node((self.sub_query_alias, path.last_step), path.text_offset)

    def may_have_several_values(self, path: EventFieldPath) -> bool:
        """Return whether one event may have several values at the path, because arrays may occur on the path."""
        return any(self._sub_query_info.may_have_array(path.steps[:length]) for length in range(1, len(path.steps)))

    def any_value_condition(self, path: EventFieldPath, condition: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
        """Return `condition` for the value at a path.

        If an event may have several values there, at least one of them must meet the condition.
        """
        self._sub_query_info.kind_of_path(path)
        if not self.may_have_several_values(path):
            return condition(self.column_at(path))
        aliases = [self._unique_alias(keys) for keys in _parent_paths(path)]
        first_unnest = _build_unnest(column_node(path.steps[:1], path.text_offset), aliases[0], path.text_offset)
        query = exp.select("1").from_(first_unnest, copy=False)
        for (parent, alias), step in zip(pairwise(aliases), path.steps[1:-1], strict=True):
            query.join(
                _build_unnest(column_node((parent, step), path.text_offset), alias, path.text_offset),
                join_type="CROSS",
                copy=False,
            )
        query.where(condition(column_node((aliases[-1], path.last_step), path.text_offset)), copy=False)
        return exp.Exists(this=query)

    def add_joins(self, query: exp.Select) -> None:
        """Add the UNNESTs to a query as LEFT JOINs, which keep events that lack the objects; their columns are NULL."""
        for keys, alias in self._alias_by_path.items():
            value = column_node((self._alias_by_path[keys[:-1]], keys[-1])) if len(keys) > 1 else column_node(keys)
            query.join(_build_unnest(value, alias, 0), join_type="LEFT", on=exp.true(), copy=False)

    def _unnest_alias(self, keys: KeyPath) -> str:
        if len(keys) > 1:
            self._unnest_alias(keys[:-1])
        if keys not in self._alias_by_path:
            self._alias_by_path[keys] = self._unique_alias(keys)
        return self._alias_by_path[keys]

    def _unique_alias(self, keys: KeyPath) -> str:
        base = _SHORT_ALIAS_BY_PATH.get(keys) or _NON_WORD_CHARACTER_PATTERN.sub("_", keys[-1])
        return self._unused_name(f"_{base}" if base[:1].isdigit() else base)

    def _unused_name(self, base: str) -> str:
        name, count = base, 1
        while name.lower() in self._used_lowercase_names:
            count += 1
            name = f"{base}_{count}"
        self._used_lowercase_names.add(name.lower())
        return name


def _parent_paths(path: EventFieldPath) -> list[KeyPath]:
    return [path.steps[:length] for length in range(1, len(path.steps))]


def _build_unnest(value: exp.Expr, alias: str, offset: int) -> exp.Expr:
    unnest = exp.Unnest(expressions=[value], alias=exp.TableAlias(columns=[exp.to_identifier(alias)]), offset=False)
    unnest.meta["start"] = unnest.meta["end"] = offset
    return unnest
