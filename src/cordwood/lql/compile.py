"""LQL over an endpoint's sub-queries: read, written as BigQuery's tree, and compiled like a caller's SQL.

`compile_lql` is the sibling of `sql.compile.compile_sandbox`; whatever is refused is told at its place in the LQL.
"""

from collections.abc import Mapping

import msgspec
from sqlglot import exp

from cordwood.errors import QuerySyntax, UnknownName
from cordwood.lql.known import Keys, Known
from cordwood.lql.parse import parse
from cordwood.lql.query import Query
from cordwood.lql.write import Written, write
from cordwood.model.datatype import Kind
from cordwood.model.shape import Shape, ValueKind
from cordwood.sql.admit import admit
from cordwood.sql.budget import compiling
from cordwood.sql.compile import Program, compile_visiting
from cordwood.sql.emit import outermost_select
from cordwood.sql.places import span_at
from cordwood.sql.records import Records, below
from cordwood.sql.redaction.redaction import Redaction
from cordwood.sql.resolve.entry import resolve_visiting
from cordwood.sql.scope import Nature, nature_of
from cordwood.sql.stages import Admitted, Parsed, Statement
from cordwood.sql.target import Target
from cordwood.sql.typing import annotate, kind_of

Shapes = Mapping[str, Shape]


def compile_lql(
    program: Program, text: str, target: Target, shapes: Shapes, redaction: Redaction | None = None
) -> Statement:
    """A caller's LQL over the endpoint's sub-queries and nothing else."""
    records = Records(redaction.shown(shapes) if redaction else shapes)
    with compiling():
        written = _written(program, text, target, records)
        statement = compile_visiting(program, lambda: Parsed(written.tree, text), target, shapes, redaction)
    facts = {**records.facts, **statement.facts}
    return msgspec.structs.replace(statement, notices=written.notices, facts=facts)


def explain_lql(program: Program, text: str, target: Target, shapes: Shapes) -> str:
    """The SQL that the LQL means, in BigQuery's dialect; where nothing has been seen, as if there were no arrays."""
    with compiling():
        return _written(program, text, target, Records(shapes)).tree.sql("bigquery", pretty=True)


def _written(program: Program, text: str, target: Target, records: Records) -> Written:
    """What was asked of the shapes is told in the records' facts."""
    if not text.strip():
        raise QuerySyntax("The query is empty.", hint="Write it as in f:edge_logs error.", span=span_at(text, 0))
    query = parse(text)
    sub_query = _sub_query(program, query, text)
    resolved = resolve_visiting(program, _everything(sub_query, text), target, records.shapes)
    annotate(resolved.tree)
    records.facts.update(resolved.facts)
    return write(query, _known(resolved.tree, sub_query, text, records), program.endpoint.zone)


def _sub_query(program: Program, query: Query, text: str) -> str:
    names = {name.lower(): name for name in program.names}
    offered = ", ".join(program.names)
    if query.source is not None:
        found = names.get(query.source.name.lower())
        if found is None:
            raise UnknownName(
                f"There is no sub-query {query.source.name[:60]}.",
                hint=f"There are: {offered}." if names else "The endpoint has none.",
                span=span_at(text, query.source.at),
            )
        return found
    if len(names) != 1:
        what = f"The endpoint has several sub-queries: {offered}." if names else "The endpoint has no sub-query."
        hint = f"Say which one to ask, as in f:{program.names[0]}." if names else "It can be asked in SQL only."
        raise QuerySyntax(what, hint=hint, span=span_at(text, 0))
    return program.names[0]


def _everything(sub_query: str, text: str) -> Admitted:
    """`SELECT *` of the sub-query: resolving it tells what it yields."""
    table = exp.Table(this=exp.to_identifier(sub_query, quoted=True))
    return admit(Parsed(exp.Select(expressions=[exp.Star()]).from_(table, copy=False), text))


def _known(resolved: exp.Expr, sub_query: str, text: str, records: Records) -> Known:
    columns = outermost_select(resolved).expressions
    natures = {column.alias_or_name.lower(): nature_of(column) for column in columns}
    return Known(
        sub_query,
        {column.alias_or_name: _kind(column, natures[column.alias_or_name.lower()]) for column in columns},
        lambda keys: _has_array(records, natures.get(keys[0].lower()), keys),
        text,
    )


def _kind(column: exp.Expr, nature: Nature) -> Kind:
    """What cannot be told is taken as it comes, by use."""
    return Kind.VARIANT if nature.is_event else kind_of(column) or Kind.VARIANT


def _has_array(records: Records, nature: Nature | None, keys: Keys) -> bool:
    if nature is None or not nature.is_event:
        return False
    kinds = records.kinds(below(nature, keys[1:]) if len(keys) > 1 else nature)
    return ValueKind.ARRAY in kinds if kinds is not None else bool(records.shapes)
