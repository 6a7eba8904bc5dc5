"""The compiler of LQL over an endpoint's sub-queries: parsed, translated to BigQuery's tree, and compiled like SQL.

`compile_lql` corresponds to `sql.compile.compile_sandbox`; errors have their position in the LQL.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QuerySyntax, UnknownName
from cordwood.lql.likely_mistakes import find_likely_mistakes
from cordwood.lql.parse import parse
from cordwood.lql.query import Aggregate, Bucket, Dimension, Query, Source
from cordwood.lql.sub_query_info import Keys, SubQueryInfo
from cordwood.lql.translate import Translation, translate_query
from cordwood.model.datatype import Kind
from cordwood.model.shape import Shape, ValueKind
from cordwood.sql.admit import admit
from cordwood.sql.budget import compiling
from cordwood.sql.compile import Program, compile_sandbox_tree
from cordwood.sql.dialects.suggestions import nearest
from cordwood.sql.follow import refuse_followed
from cordwood.sql.nodes import outermost_select
from cordwood.sql.positions import span_at
from cordwood.sql.record_shapes import RecordShapes, lineage_below
from cordwood.sql.redaction.redaction import Redaction
from cordwood.sql.resolve.entry import resolve_sandbox
from cordwood.sql.scope import Lineage, Origin, lineage_of
from cordwood.sql.stages import Admitted, Parsed, Statement
from cordwood.sql.target import Target
from cordwood.sql.typing import annotate, kind_of

Shapes = Mapping[str, Shape]
_SQL_START: Final = re.compile(r"\s*(?:select|with)\s", re.IGNORECASE)


def compile_lql(
    program: Program, text: str, target: Target, shapes: Shapes, redaction: Redaction | None = None
) -> Statement:
    """Compile an LQL query, which can only read the endpoint's sub-queries."""
    records = RecordShapes(redaction.visible_shapes(shapes) if redaction else shapes)
    with compiling():
        translation = _translate(program, text, target, records, is_ordered=not program.page.follows)
        statement = compile_sandbox_tree(program, lambda: Parsed(translation.tree, text), target, shapes, redaction)
    shape_lookups = {**records.shape_lookups, **statement.shape_lookups}
    return msgspec.structs.replace(statement, notices=translation.notices, shape_lookups=shape_lookups)


def explain_lql(program: Program, text: str, target: Target, shapes: Shapes) -> str:
    """Return the equivalent SQL in BigQuery's dialect; paths that were never seen are assumed to have no arrays."""
    with compiling():
        return _translate(program, text, target, RecordShapes(shapes)).tree.sql("bigquery", pretty=True)


def _translate(
    program: Program, text: str, target: Target, records: RecordShapes, *, is_ordered: bool = True
) -> Translation:
    """Return the translated query, by default newest events first; lookups in the shapes are recorded in `records`."""
    if not text.strip():
        raise QuerySyntax("The query is empty.", hint="Write it as in f:edge_logs error.", span=span_at(text, 0))
    query = parse(text)
    if not is_ordered:
        _check_followed(query, text)
    info = describe_sub_query(program, _sub_query(program, query, text), text, target, records)
    translation = translate_query(query, info, program.endpoint.zone, is_ordered=is_ordered)
    return msgspec.structs.replace(translation, notices=(*translation.notices, *find_likely_mistakes(query, text)))


def describe_sub_query(
    program: Program, sub_query: str, text: str, target: Target, records: RecordShapes
) -> SubQueryInfo:
    """Return the metadata of a sub-query for the author of `text`; lookups in the shapes are recorded."""
    resolved = resolve_sandbox(program, _select_all(sub_query, text), target, records.shapes)
    annotate(resolved.tree)
    records.shape_lookups.update(resolved.shape_lookups)
    return _sub_query_info(resolved.tree, sub_query, text, records)


def _check_followed(query: Query, text: str) -> None:
    """Raise QueryRefused for a chart, an order or a limit, which need more than one event."""
    chart: list[Aggregate | Bucket | Dimension] = [*query.aggregates, *query.buckets, *query.dimensions]
    offsets = {
        "c: (a chart)": [node.offset for node in chart],
        "order:": [order.offset for order in query.orders],
        "limit:": [query.limit.offset] if query.limit else [],
    }
    for part, offsets_of_part in offsets.items():
        if offsets_of_part:
            raise refuse_followed(part, span_at(text, offsets_of_part[0]))


def _sub_query(program: Program, query: Query, text: str) -> str:
    names = {name.lower(): name for name in program.sub_query_names}
    if query.source is not None:
        source_name = names.get(query.source.name.lower())
        if source_name is None:
            raise _unknown_source(program, query.source, text)
        return source_name
    if len(names) != 1:
        raise _no_source(program, text)
    return program.sub_query_names[0]


def _unknown_source(program: Program, source: Source, text: str) -> UnknownName:
    closest_name = nearest(source.name, program.sub_query_names)
    known_names = (
        f"There are: {', '.join(program.sub_query_names)}." if program.sub_query_names else "The endpoint has none."
    )
    return UnknownName(
        f"There is no sub-query {source.name[:60]}.",
        hint=f"Did you mean f:{closest_name}?" if closest_name else known_names,
        span=span_at(text, source.offset),
    )


def _no_source(program: Program, text: str) -> QuerySyntax:
    if _SQL_START.match(text):
        return QuerySyntax("This is SQL, and it was sent as lql=.", hint="Send it as sql=.", span=span_at(text, 0))
    if not program.sub_query_names:
        message, hint = "The endpoint has no sub-query.", "It can be asked in SQL only."
        return QuerySyntax(message, hint=hint, span=span_at(text, 0))
    names = {name.lower() for name in program.sub_query_names}
    first = next((word for word in text.split() if word.lower() in names), program.sub_query_names[0])
    message = f"The endpoint has several sub-queries: {', '.join(program.sub_query_names)}."
    return QuerySyntax(message, hint=f"Say which one to ask, as in f:{first}.", span=span_at(text, 0))


def _select_all(sub_query: str, text: str) -> Admitted:
    """Return `SELECT *` of the sub-query, whose resolution gives the sub-query's columns."""
    table = exp.Table(this=exp.to_identifier(sub_query, quoted=True))
    return admit(Parsed(exp.Select(expressions=[exp.Star()]).from_(table, copy=False), text))


def _sub_query_info(resolved: exp.Expr, sub_query: str, text: str, records: RecordShapes) -> SubQueryInfo:
    columns = outermost_select(resolved).expressions
    lineages = {column.alias_or_name.lower(): lineage_of(column) for column in columns}
    return SubQueryInfo(
        sub_query,
        {column.alias_or_name: _kind(column, lineages[column.alias_or_name.lower()]) for column in columns},
        lambda keys: _has_array(records, lineages.get(keys[0].lower()), keys),
        text,
        lambda name: _find_similar_path(records, lineages, name),
        lambda keys: _is_single_value(records, lineages.get(keys[0].lower()), keys),
        lambda keys: _child_keys(records, lineages.get(keys[0].lower()), keys),
        lambda keys: _may_be_single_value(records, lineages.get(keys[0].lower()), keys),
    )


def _find_similar_path(records: RecordShapes, lineages: Mapping[str, Lineage], name: str) -> str | None:
    """Return the path of the events whose last step is most similar to the name."""
    origins = sorted({origin for lineage in lineages.values() for origin in lineage.origins}, key=str)
    paths = (records.nearest(Origin(origin.stream, (*origin.path, name))) for origin in origins)
    return next((path for path in paths if path), None)


def _kind(column: exp.Expr, lineage: Lineage) -> Kind:
    """Return the type of a column; VARIANT if it is unknown, which converts values where they are used."""
    return Kind.VARIANT if lineage.is_event else kind_of(column) or Kind.VARIANT


def _is_single_value(records: RecordShapes, lineage: Lineage | None, keys: Keys) -> bool:
    if lineage is None or not lineage.is_event:
        return False
    kinds = records.kinds(lineage_below(lineage, keys[1:]) if len(keys) > 1 else lineage)
    return bool(kinds) and kinds is not None and kinds.isdisjoint({ValueKind.ARRAY, ValueKind.OBJECT})


def _may_be_single_value(records: RecordShapes, lineage: Lineage | None, keys: Keys) -> bool:
    if lineage is None or not lineage.is_event:
        return False
    kinds = records.kinds(lineage_below(lineage, keys[1:]) if len(keys) > 1 else lineage)
    return kinds is None or not kinds <= {ValueKind.ARRAY, ValueKind.OBJECT}


def _child_keys(records: RecordShapes, lineage: Lineage | None, keys: Keys) -> Keys:
    """Return the keys of the objects that were seen at a path."""
    if lineage is None or not lineage.is_event:
        return ()
    return records.keys(lineage_below(lineage, keys[1:]) if len(keys) > 1 else lineage)


def _has_array(records: RecordShapes, lineage: Lineage | None, keys: Keys) -> bool:
    if lineage is None or not lineage.is_event:
        return False
    kinds = records.kinds(lineage_below(lineage, keys[1:]) if len(keys) > 1 else lineage)
    return ValueKind.ARRAY in kinds if kinds is not None else bool(records.shapes)
