"""Description of an endpoint's sub-queries for authors of sandbox queries: columns, and the paths seen in columns."""

from collections.abc import Mapping

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Kind
from cordwood.model.event import ARRAY_ELEMENT_STEP, EventPath, EventShape, ValueKind
from cordwood.sql.admit import admit_query
from cordwood.sql.datatypes import kind_of
from cordwood.sql.nodes import outermost_select
from cordwood.sql.program import EndpointProgram
from cordwood.sql.resolve.queries import resolve_sandbox_query
from cordwood.sql.scope import Lineage, lineage_of
from cordwood.sql.stages import ParsedQuery, Target
from cordwood.sql.type_inference import annotate_types

ValueKindsByPath = Mapping[EventPath, frozenset[ValueKind]]


class SubQueryColumn(msgspec.Struct, frozen=True):
    """A column of a sub-query, as it is described to authors of sandbox queries.

    `kind` is None for a value of an event, because its type varies. `value_kinds_by_path` are the paths that were seen
    in the value.
    """

    name: str
    kind: Kind | None
    value_kinds_by_path: ValueKindsByPath


class SubQuerySchema(msgspec.Struct, frozen=True):
    name: str
    columns: tuple[SubQueryColumn, ...]


ShapesByStream = Mapping[str, EventShape]


def describe_sub_queries(
    program: EndpointProgram, target: Target, shapes: ShapesByStream
) -> tuple[SubQuerySchema, ...]:
    """Return the descriptions of all sub-queries, in the order in which the endpoint's text defines them."""
    return tuple(
        SubQuerySchema(name, _describe_columns(program, name, target, shapes)) for name in program.sub_query_names
    )


def _describe_columns(
    program: EndpointProgram, name: str, target: Target, shapes: ShapesByStream
) -> tuple[SubQueryColumn, ...]:
    table = exp.Table(this=exp.to_identifier(name, quoted=True))
    select = exp.Select(expressions=[exp.Star()]).from_(table, copy=False)
    resolved = resolve_sandbox_query(program, admit_query(ParsedQuery(select, name)), target, shapes)
    annotate_types(resolved.tree)
    return tuple(_describe_column(column, shapes) for column in outermost_select(resolved.tree).expressions)


def _describe_column(column: exp.Expr, shapes: ShapesByStream) -> SubQueryColumn:
    lineage = lineage_of(column)
    kind = None if lineage.is_of_event_value else kind_of(column)
    return SubQueryColumn(column.alias_or_name, kind, _field_kinds_by_path(lineage, shapes))


def _field_kinds_by_path(lineage: Lineage, shapes: ShapesByStream) -> ValueKindsByPath:
    """Return the paths below a value as queries write them, with the kinds of value at each path.

    In queries, the elements of an array have the same path as the array.
    """
    fields: dict[EventPath, frozenset[ValueKind]] = {}
    for origin in lineage.origins:
        for path, kinds in shapes.get(origin.stream, EventShape()).value_kinds_by_path.items():
            if path[: len(origin.path)] == origin.path:
                field_path = tuple(step for step in path[len(origin.path) :] if step != ARRAY_ELEMENT_STEP)
                fields[field_path] = fields.get(field_path, frozenset()) | kinds
    return dict(sorted(fields.items()))
