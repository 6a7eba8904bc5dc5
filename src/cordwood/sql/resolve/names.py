"""The state of one run of name resolution, and the resolution of dotted names.

A dotted name is a column, a path into an event, or a field of a STRUCT.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import (
    MAX_COMPARED_NAME_LENGTH,
    AmbiguousName,
    QueryRefused,
    QueryUnsupported,
    Span,
    UnknownNameInQuery,
    find_closest_name,
)
from cordwood.model.definitions import Parameter
from cordwood.model.event import EventPath, ValueKind
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.diagnostics import span_of
from cordwood.sql.nodes import PATH_KINDS_METADATA_KEY, WHOLE_EXTRAS_METADATA_KEY, event_path_node, path_root_and_steps
from cordwood.sql.record_shapes import RecordingShapeReader, join_lineages
from cordwood.sql.scope import (
    NO_LINEAGE,
    Lineage,
    NamedExpression,
    Relation,
    Scope,
    ValueOrigin,
    copy_value,
    lineage_of,
)
from cordwood.sql.stages import Target


class OutputColumn(msgspec.Struct, frozen=True):
    """A column that a query outputs.

    The name may be empty, because a key of an event may be empty. `name_in_tree` is set if another column has the same
    `name`: it is the name that the column has in the resolved tree instead.
    """

    name: str
    lineage: Lineage
    name_in_tree: str | None = None


class Cte(msgspec.Struct):
    """A named sub-query in scope.

    `name` is the sub-query's name in the resolved tree. `is_value_table` is set if its rows are single values (SELECT
    AS VALUE). `constant_columns` are the columns of a sub-query that is one row of constants; otherwise None.
    """

    name: str
    output_columns: list[OutputColumn]
    is_value_table: bool = False
    constant_columns: dict[str, exp.Expr] | None = None


QueryResolver = Callable[["NameResolution", exp.Expr, "CteScope", Scope | None], list[OutputColumn]]


class CteScope(msgspec.Struct, frozen=True):
    """The named sub-queries in scope, by name. An inner query that redefines a name gets a CteScope of its own."""

    cte_by_name: Mapping[str, Cte] = msgspec.field(default_factory=dict)

    def with_cte(self, name: str, cte: Cte) -> "CteScope":
        return CteScope({**self.cte_by_name, name.lower(): cte})


class NameResolution(msgspec.Struct):
    """The state of one run of name resolution.

    If `may_read_streams` is set, names of tables may refer to the streams in `known_streams`, or to any stream if
    `known_streams` is None. Otherwise, they may only refer to sub-queries. `find_sub_query` resolves a sub-query of the
    endpoint, and `find_endpoint` resolves an endpoint that the query reads by name.
    """

    query_text: str
    target: Target
    shape_reader: RecordingShapeReader
    parameters: Mapping[str, Parameter]
    resolve_query: QueryResolver
    may_read_streams: bool = False
    known_streams: frozenset[str] | None = None
    file: str | None = None
    first_line: int = 1
    keeps_time_functions: bool = False
    find_sub_query: Callable[[str], Cte | None] = lambda _name: None
    find_endpoint: Callable[[str], Cte | None] = lambda _name: None
    sub_query_names: tuple[str, ...] = ()
    used_streams: dict[str, None] = msgspec.field(default_factory=dict)
    used_names: set[str] = msgspec.field(default_factory=set)

    def unique_name(self, name: str) -> str:
        """Return a name that no other name in the tree equals: `name` itself, or `name` with a number."""
        candidate, count = name, 1
        while candidate.lower() in self.used_names:
            count += 1
            candidate = f"{name}_{count}"
        self.used_names.add(candidate.lower())
        return candidate

    def span_of_node(self, node: exp.Expr) -> Span | None:
        return span_of(node, self.query_text)

    def refused_error(self, node: exp.Expr, message: str, hint: str | None = None) -> QueryRefused:
        return QueryRefused(message, hint=hint, span=self.span_of_node(node))

    def unsupported_error(self, node: exp.Expr, subject: str, hint: str | None = None) -> QueryUnsupported:
        return QueryUnsupported(f"{subject} is not supported.", hint=hint, span=self.span_of_node(node))


NameParts = Sequence[exp.Identifier]


def resolve_name(resolution: NameResolution, parts: NameParts, scope: Scope | None) -> exp.Expr:
    """Return the expression to which a name refers.

    Inner scopes take precedence over outer ones. Names of columns, and of keys that were seen in events, take
    precedence over names of keys that no event has had yet.
    """
    current = scope
    while current is not None:
        resolved = _resolve_column_or_seen_key(resolution, parts, current)
        if resolved is not None:
            return resolved
        current = current.parent
    current = scope
    while current is not None:
        resolved = _resolve_as_unseen_key(resolution, parts, current)
        if resolved is not None:
            return resolved
        current = current.parent
    raise unknown_name_error(resolution, parts, scope)


def _resolve_column_or_seen_key(resolution: NameResolution, parts: NameParts, scope: Scope) -> exp.Expr | None:
    first = parts[0].name
    relation = scope.find_relation(first)
    if relation is not None:
        resolved = _resolve_in_relation(resolution, parts, relation)
        if resolved is not None:
            return resolved
    column = _find_column(resolution, parts[0], scope)
    if column is not None:
        return access_fields(resolution, column.copy_expression(), parts[1:])
    if relation is not None and len(parts) == 1:
        return _row_struct(resolution, relation)
    if relation is not None:
        raise _unknown_column_error(resolution, parts[1], relation)
    return _resolve_record_field(resolution, parts, scope)


def _resolve_in_relation(resolution: NameResolution, parts: NameParts, relation: Relation) -> exp.Expr | None:
    """Resolve `alias.column…`, `alias.key…` or the alias of an unnested record; return None for any other name."""
    if len(parts) == 1:
        return relation.unnested_element.copy_expression() if relation.unnested_element is not None else None
    if parts[1].meta_get(WHOLE_EXTRAS_METADATA_KEY) and relation.extra_keys_object is not None:
        return relation.extra_keys_object.copy_expression()
    column = relation.columns_by_name.get(parts[1].name.lower())
    if column is not None:
        _check_unambiguous(resolution, parts[1], column)
        return access_fields(resolution, column.copy_expression(), parts[2:])
    if relation.unnested_element is not None:
        return access_fields(resolution, relation.unnested_element.copy_expression(), parts[1:])
    if relation.extra_keys_object is not None:
        return access_fields(resolution, relation.extra_keys_object.copy_expression(), parts[1:])
    return None


def _find_column(resolution: NameResolution, name: exp.Identifier, scope: Scope) -> NamedExpression | None:
    columns = scope.find_columns(name.name)
    if len(columns) > 1:
        raise ambiguous_name_error(resolution, name, columns)
    if columns:
        _check_unambiguous(resolution, name, columns[0][1])
    return columns[0][1] if columns else None


def ambiguous_name_error(
    resolution: NameResolution, name: exp.Identifier, candidates: Sequence[tuple[Relation, NamedExpression]]
) -> AmbiguousName:
    owners = " and ".join(f"{relation.name}.{column.name}" for relation, column in candidates)
    return AmbiguousName(
        f'"{name.name}" is ambiguous: it is {owners}.', hint="Write one of them.", span=resolution.span_of_node(name)
    )


def _check_unambiguous(resolution: NameResolution, name: exp.Identifier, column: NamedExpression) -> None:
    if column.has_duplicate_name:
        raise AmbiguousName(
            f'"{name.name}" is ambiguous: several columns have this name.',
            hint="Give them names of their own where they are selected.",
            span=resolution.span_of_node(name),
        )


def _row_struct(resolution: NameResolution, relation: Relation) -> exp.Expr:
    """Return a table's row as a struct, which is the value of a table's alias that is used as an expression."""
    fields = [
        exp.PropertyEQ(this=exp.to_identifier(column.name, quoted=True), expression=column.copy_expression())
        for column in (*relation.columns_by_name.values(), *extra_key_fields(resolution, relation))
    ]
    return exp.Struct(expressions=fields)


def extra_key_fields(resolution: NameResolution, relation: Relation) -> Iterator[NamedExpression]:
    """Yield as fields the known keys of a stream's events that are not columns of the stream's table."""
    if relation.extra_keys_object is None:
        return
    for name in resolution.shape_reader.keys(relation.extra_keys_object.lineage):
        if name.lower() not in relation.columns_by_name:
            value = access_fields(
                resolution, relation.extra_keys_object.copy_expression(), [exp.to_identifier(name, quoted=True)]
            )
            yield NamedExpression(name, value, lineage_of(value))


def _resolve_record_field(resolution: NameResolution, parts: NameParts, scope: Scope) -> exp.Expr | None:
    """Resolve an unqualified name as a field of an unnested record; raise AmbiguousName if several records have it."""
    owners = [relation for relation in scope.relations if _has_field(resolution, relation, parts[0])]
    if not owners:
        return None
    if len(owners) > 1:
        candidates = " and ".join(f"{owner.name}.{parts[0].name}" for owner in owners)
        raise AmbiguousName(
            f'"{parts[0].name}" is ambiguous: it is {candidates}.',
            hint="Write one of them.",
            span=resolution.span_of_node(parts[0]),
        )
    owner = owners[0].unnested_element or owners[0].extra_keys_object
    return access_fields(resolution, owner.copy_expression(), parts) if owner is not None else None


def _has_field(resolution: NameResolution, relation: Relation, name: exp.Identifier) -> bool:
    record = relation.unnested_element or relation.extra_keys_object
    if record is None:
        return False
    if record.lineage.is_of_event_value:
        return resolution.shape_reader.has_key(record.lineage, name.name, bool(name.quoted))
    return any(field.lower() == name.name.lower() for field, _ in record.lineage.fields)


def _resolve_as_unseen_key(resolution: NameResolution, parts: NameParts, scope: Scope) -> exp.Expr | None:
    """Resolve a name that no event has as a key yet, in an unnested record or else in a stream's events."""
    for relation in reversed(scope.relations):
        keys = _record_accepting_any_key(resolution, relation)
        if keys is not None:
            return access_fields(resolution, keys.copy_expression(), parts)
    return None


def _record_accepting_any_key(resolution: NameResolution, relation: Relation) -> NamedExpression | None:
    record = relation.unnested_element
    if (
        record is not None
        and record.lineage.is_of_event_value
        and resolution.shape_reader.has_no_seen_keys(record.lineage)
    ):
        return record
    return relation.extra_keys_object


def access_fields(resolution: NameResolution, value: exp.Expr, parts: NameParts) -> exp.Expr:
    """Return the expression that reads a nested field of a value; `parts` are the names on the way to the field."""
    for index, part in enumerate(parts):
        lineage = lineage_of(value)
        if lineage.is_of_event_value:
            return _make_path_read(resolution, value, lineage, parts[index:])
        value = _access_field(resolution, value, lineage, part)
    return value


def _access_field(resolution: NameResolution, value: exp.Expr, lineage: Lineage, part: exp.Identifier) -> exp.Expr:
    fields_by_name = {name.lower(): (name, inner) for name, inner in reversed(lineage.fields)}
    field = fields_by_name.get(part.name.lower())
    if fields_by_name and field is None:
        hint = _similar_names_hint(part.name, list(dict(lineage.fields)))
        raise UnknownNameInQuery(
            f'There is no field "{part.name}" here.', hint=hint, span=resolution.span_of_node(part)
        )
    if lineage is NO_LINEAGE and isinstance(value, exp.Column) and _is_scalar(value):
        raise UnknownNameInQuery(
            f'"{value.name}" has no fields; "{part.name}" was asked of it.', span=resolution.span_of_node(part)
        )
    if field is None:
        return _dot_access(value, copy_tree(part), NO_LINEAGE)
    return _dot_access(value, exp.to_identifier(field[0], quoted=True), field[1])


def _dot_access(value: exp.Expr, name: exp.Expr, lineage: Lineage) -> exp.Expr:
    dot = exp.Dot(this=value, expression=name)
    dot.meta["lineage"] = lineage
    return dot


def _is_scalar(column: exp.Column) -> bool:
    kind = column.type
    return kind is not None and kind.this in _SCALAR_TYPES


_SCALAR_TYPES = frozenset(
    {exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.TIMESTAMPTZ, exp.DType.BIGINT, exp.DType.BOOLEAN}
)


def _make_path_read(resolution: NameResolution, value: exp.Expr, lineage: Lineage, parts: NameParts) -> exp.Expr:
    """Return the read of a path into an event. In name resolution, only this function creates such reads.

    If a name refers to several keys, return COALESCE of the reads of their paths.
    """
    base, steps = path_root_and_steps(value)
    paths = [(steps, lineage)]
    for part in parts:
        paths = [extended for path in paths for extended in _extend_path_by_key(resolution, path, part)]
        # A name can refer to several keys that differ only in case or dashes. Each such name multiplies the number of
        # paths, so the budget counts the paths.
        charge_nodes(len(paths))
    resolution.shape_reader.record_unseen_paths(paths[0][1])
    reads = [_make_event_path(resolution, base, path) for path in paths]
    value_read = reads[0] if len(reads) == 1 else exp.Coalesce(this=reads[0], expressions=reads[1:])
    value_read.meta["lineage"] = join_lineages(path_lineage for _, path_lineage in paths)
    start = parts[0].meta_get("start")
    if start is not None:
        value_read.meta["start"], value_read.meta["end"] = start, parts[-1].meta_get("end", start)
    return value_read


def _make_event_path(resolution: NameResolution, base: exp.Expr, path: tuple[EventPath, Lineage]) -> exp.Expr:
    steps, lineage = path
    path_read = event_path_node(copy_value(base), steps)
    kinds = path_read.meta[PATH_KINDS_METADATA_KEY] = resolution.shape_reader.kinds(lineage)
    path_read.meta["only_text"] = kinds == frozenset({ValueKind.TEXT})
    return path_read


def _extend_path_by_key(
    resolution: NameResolution, path: tuple[EventPath, Lineage], part: exp.Identifier
) -> list[tuple[EventPath, Lineage]]:
    steps, lineage = path
    keys = resolution.shape_reader.keys_matching_name(lineage, part.name, bool(part.quoted)) or (part.name,)
    return [((*steps, key), resolution.shape_reader.child(lineage, key)) for key in keys]


def unknown_name_error(resolution: NameResolution, parts: NameParts, scope: Scope | None) -> UnknownNameInQuery:
    dotted = ".".join(part.name for part in parts)
    path = _find_similar_path(resolution, parts[-1].name, scope)
    names = visible_names(resolution, scope)
    hint = _similar_names_hint(parts[0].name, names)
    return UnknownNameInQuery(
        f'"{dotted}" is unknown here.',
        hint=f"Did you mean {path}?" if path and not (hint or "").startswith("Did") else hint,
        span=resolution.span_of_node(parts[0]),
    )


def _find_similar_path(resolution: NameResolution, name: str, scope: Scope | None) -> str | None:
    """Return the path of an event value in scope whose last step is similar to the name."""
    origins: set[ValueOrigin] = set()
    while scope is not None:
        for relation in scope.relations:
            origins.update(*(column.lineage.origins for column in relation.columns_by_name.values()))
        scope = scope.parent
    candidates = (ValueOrigin(origin.stream, (*origin.path, name)) for origin in sorted(origins, key=str))
    return next((similar for similar in map(resolution.shape_reader.most_similar_path, candidates) if similar), None)


def _unknown_column_error(resolution: NameResolution, part: exp.Identifier, relation: Relation) -> UnknownNameInQuery:
    names = [column.name for column in relation.columns_by_name.values()]
    return UnknownNameInQuery(
        f'"{relation.name}" has no column "{part.name}".',
        hint=_similar_names_hint(part.name, names),
        span=resolution.span_of_node(part),
    )


# Prefixes of generated aliases, for relations that the author did not name. sqlglot uses the prefix `__tmp` for the
# steps of pipe syntax (`|>`).
UNNEST_ALIAS: Final = "_unnested"
_GENERATED_ALIASES: Final = (UNNEST_ALIAS, "__tmp")


def visible_names(resolution: NameResolution, scope: Scope | None) -> list[str]:
    """Return all names that an expression can use in this scope, to suggest them in errors."""
    names: dict[str, None] = {}
    while scope is not None:
        for relation in scope.relations:
            names.update(dict.fromkeys(column.name for column in relation.columns_by_name.values()))
            if not relation.name.startswith(_GENERATED_ALIASES):
                names[relation.name] = None
            record = relation.unnested_element or relation.extra_keys_object
            if record is not None:
                names.update(dict.fromkeys(resolution.shape_reader.keys(record.lineage)))
                names.update(dict.fromkeys(name for name, _ in record.lineage.fields))
        scope = scope.parent
    return list(names)


def _similar_names_hint(name: str, names: Sequence[str]) -> str | None:
    """Return a hint with a similar name, or else with some of the existing names.

    The names include keys that senders chose: long names are omitted, and names that need no quotes come first.
    """
    closest_name = find_closest_name(name, names)
    if closest_name:
        return f'Did you mean "{closest_name}"?'
    short_names = [candidate for candidate in names if len(candidate) <= MAX_COMPARED_NAME_LENGTH]
    shown = sorted(short_names, key=lambda candidate: (not _UNQUOTED_NAME_PATTERN.fullmatch(candidate), candidate))[:12]
    return f"There are: {', '.join(shown)}." if shown else None


_UNQUOTED_NAME_PATTERN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
