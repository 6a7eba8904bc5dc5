"""Endpoints in ClickHouse's dialect: sub-queries in BigQuery SQL that form the table `logs`, and a query over it.

A sub-query is `SELECT * FROM stream WHERE …`. If it reads the table `*` instead of a stream, it is replaced by several
sub-queries: one for each stream that no other sub-query reads, named after the stream. In the conditions of these new
sub-queries, `project` refers to the path at which the stream's events have their project.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect as Reader
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token

from cordwood.errors import COMPILE_FAULTS, BadQuerySyntax, QueryRefused, Span
from cordwood.model.definitions import Endpoint, StreamProjectPath
from cordwood.sql.admit import admit_query
from cordwood.sql.budget import (
    MAX_COMPILATION_CPU_SECONDS,
    MAX_COMPILATION_NODES,
    CompilationBudget,
    budget_scope,
    compilation_scope,
    copy_tree,
)
from cordwood.sql.diagnostics import span_at, span_of
from cordwood.sql.nodes import NOW_SLOT_NAME, WHOLE_EXTRAS_METADATA_KEY
from cordwood.sql.parse import parse_sql
from cordwood.sql.program import (
    EndpointProgram,
    SubQueryStreamSource,
    as_file_error,
    program_of_tree,
    program_with_positions,
)
from cordwood.sql.resolve.queries import check_endpoint
from cordwood.sql.resolve.tables import implicit_alias

_BIGQUERY_DIALECT: Final = Reader.get_or_raise("bigquery")
_SOURCE_SYNTAX_HINT: Final = (
    "Write WITH my_source AS (SELECT * FROM `my.stream` WHERE project = @project) SELECT … FROM logs."
)
# The table name that stands for every stream which no other sub-query reads.
OTHER_STREAMS_TABLE_NAME: Final = "*"
# How much the budget for reading an endpoint grows for each stream: in nodes, and in seconds. It grows because the
# table `*` may stand for all streams.
_STREAM_NODES, _STREAM_SECONDS = 1_000, 0.005
_EVENT_COLUMNS: Final = ("id", "timestamp", "event_message", "project", "metadata", "extras")


def read_clickhouse_endpoint(endpoint: Endpoint, streams: Collection[str] | None = None) -> EndpointProgram:
    """Return the program of an endpoint in ClickHouse's dialect; raise BadEndpointFile if its SQL has an error."""
    try:
        with budget_scope(_endpoint_compilation_budget(endpoint)), compilation_scope():
            program = _read_program(endpoint)
            check_endpoint(program_with_positions(program), streams)
    except COMPILE_FAULTS as fault:
        raise as_file_error(fault, endpoint) from fault
    return program


def _endpoint_compilation_budget(endpoint: Endpoint) -> CompilationBudget:
    """Return the budget for reading an endpoint, which grows with the number of streams that the endpoint may read."""
    count = len(endpoint.streams)
    return CompilationBudget(
        MAX_COMPILATION_NODES + _STREAM_NODES * count, seconds=MAX_COMPILATION_CPU_SECONDS + _STREAM_SECONDS * count
    )


def _read_program(endpoint: Endpoint) -> EndpointProgram:
    if any(parameter.name.lower() == NOW_SLOT_NAME for parameter in endpoint.parameters):
        raise QueryRefused(f'A parameter cannot be named "{NOW_SLOT_NAME}".', span=Span(1, 1))
    query_offset = _offset_of_main_query(endpoint.sql)
    text = endpoint.sql
    tree = admit_query(parse_sql(f"{text[:query_offset]} select 1 as one")).tree
    with_ = tree.args.get("with_")
    if with_ is None or with_.args.get("recursive"):
        raise BadQuerySyntax("The sub-queries stand in one WITH.", hint=_SOURCE_SYNTAX_HINT, span=Span(1, 1))
    sources: dict[str, SubQueryStreamSource] = {}
    ctes: list[exp.Expr] = []
    for name, sub_query, source_cte, stream_place in _named_sources(endpoint, with_.expressions, text):
        source_cte.set("alias", exp.TableAlias(this=exp.to_identifier(sub_query, quoted=True)))
        sources[name] = SubQueryStreamSource(
            sub_query, stream_place.stream_name, has_top_level_project=not stream_place.project_at
        )
        ctes.append(source_cte)
    with_.set("expressions", ctes)
    dialect_text = "".join(letter if letter == "\n" else " " for letter in text[:query_offset]) + text[query_offset:]
    return msgspec.structs.replace(
        program_of_tree(endpoint, tree), dialect_text=dialect_text, sub_query_sources=sources
    )


def _named_sources(
    endpoint: Endpoint, with_ctes: Sequence[exp.Expr], text: str
) -> Iterator[tuple[str, str, exp.Expr, StreamProjectPath]]:
    """Yield for each source its name, the name of its sub-query, the CTE of this sub-query, and its stream.

    A source is a part of the table `logs`, whose column `source` has the source's name. No two sources have the same
    name, and no two sub-queries have the same name.
    """
    stream_places = {stream_place.stream_name: stream_place for stream_place in endpoint.streams}
    streams = [_stream_of_source(cte, text) for cte in with_ctes]
    read_streams = {stream for stream in streams if stream != OTHER_STREAMS_TABLE_NAME}
    written = [cte for cte, stream in zip(with_ctes, streams, strict=True) if stream != OTHER_STREAMS_TABLE_NAME]
    written_names = _declared_source_names(written, text)
    used_names = {name.lower() for name in (*read_streams, *stream_places)}
    for cte, stream in zip(with_ctes, streams, strict=True):
        for source_cte, stream_place in _expand_source(cte, stream, stream_places, read_streams):
            name = source_cte.alias
            if source_cte is not cte and name.lower() in written_names:
                # This source comes from a stream that `*` stands for. Someone may send events to a new stream with the
                # name of a source that the endpoint defines. Such a stream must not take the place of that source.
                name = _unused_name(name, " (stream)", written_names | used_names)
            sub_query = _unused_name(name, " events", used_names)
            used_names.add(sub_query.lower())
            yield name, sub_query, source_cte, stream_place


def _declared_source_names(ctes: Sequence[exp.Expr], text: str) -> set[str]:
    """Return the names of the sources that the endpoint defines, in lower case; raise QueryRefused if two are equal."""
    names: set[str] = set()
    for cte in ctes:
        name = cte.alias.lower()
        if name in names:
            raise QueryRefused(f'Two sources are called "{cte.alias}".', hint="Rename one.", span=span_of(cte, text))
        names.add(name)
    return names


def _unused_name(name: str, suffix: str, used_names: Collection[str]) -> str:
    """Append `suffix` to the name as often as needed, so that no used name equals the result.

    The used names are in lower case, and case is ignored.
    """
    while name.lower() in used_names:
        name += suffix
    return name


def _offset_of_main_query(text: str) -> int:
    """Return the offset in the text at which the query after the WITH clause begins."""
    try:
        tokens: list[Token] = _BIGQUERY_DIALECT.tokenize(text)
    except TokenError as error:
        raise BadQuerySyntax(
            "The text cannot be read as SQL.", hint="A quote may be left open.", span=Span(1, 1)
        ) from error
    if not tokens or tokens[0].text.lower() != "with":
        raise BadQuerySyntax(
            "An endpoint in this dialect begins with its sources.", hint=_SOURCE_SYNTAX_HINT, span=Span(1, 1)
        )
    depth = 0
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and token.text == ")" and following is not None and following.text != ",":
            return int(following.start)
    raise BadQuerySyntax(
        "There is no query behind the sources.", hint=_SOURCE_SYNTAX_HINT, span=span_at(text, len(text))
    )


def _stream_of_source(cte: exp.Expr, text: str) -> str:
    """Return the stream that a source reads; refuse a source that is not `SELECT *` from one stream.

    The source may also have the clauses WHERE and ORDER BY.
    """
    select = cte.this
    from_ = select.args.get("from_") if isinstance(select, exp.Select) else None
    table = from_.this if from_ is not None else None
    other_clauses = [
        key for key, value in select.args.items() if value and key not in ("expressions", "from_", "where", "order")
    ]
    is_star = len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star)
    has_parts = is_star and any(select.expressions[0].args.values())
    if not isinstance(table, exp.Table) or other_clauses or not is_star or has_parts:
        raise QueryRefused(
            f'The source "{cte.alias}" must read whole events of one stream.',
            hint=_SOURCE_SYNTAX_HINT,
            span=span_of(cte, text),
        )
    return ".".join(part.name for part in table.parts)


def _expand_source(
    cte: exp.Expr, stream: str, stream_places: Mapping[str, StreamProjectPath], read_streams: Collection[str]
) -> Iterator[tuple[exp.Expr, StreamProjectPath]]:
    if stream != OTHER_STREAMS_TABLE_NAME:
        stream_place = stream_places.get(stream, StreamProjectPath(stream))
        yield _expand_star(cte, stream_place), stream_place
        return
    for stream_place in stream_places.values():
        if stream_place.stream_name in read_streams:
            continue
        source_cte = copy_tree(cte)
        source_cte.set("alias", exp.TableAlias(this=exp.to_identifier(stream_place.stream_name, quoted=True)))
        table = source_cte.this.args["from_"].this
        alias = table.alias or "t"
        table_alias = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
        table.replace(_quoted_table(stream_place.stream_name, table_alias))
        _replace_project_column(source_cte.this, alias, stream_place)
        yield _expand_star(source_cte, stream_place), stream_place


def _quoted_table(name: str, alias: exp.Expr) -> exp.Expr:
    table = exp.Table(this=exp.to_identifier(name, quoted=True), alias=alias)
    table.meta["quoted_table"] = True
    return table


def _replace_project_column(select: exp.Expr, alias: str, stream_place: StreamProjectPath) -> None:
    """In the WHERE of a source, replace `project` by the path at which the stream's events have their project."""
    where = select.args.get("where")
    if where is None or not stream_place.project_at:
        return
    for column in list(where.find_all(exp.Column)):
        if column.name.lower() == "project" and column.table in ("", alias):
            column.replace(_project_value_node(alias, stream_place))


def _project_value_node(alias: str, stream_place: StreamProjectPath) -> exp.Expr:
    if not stream_place.project_at:
        return _column_node(alias, "project")
    node: exp.Expr = _column_node(alias, "metadata")
    for step in stream_place.project_at:
        node = exp.Dot(this=node, expression=exp.to_identifier(step, quoted=True))
    return node


def _column_node(alias: str, name: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def _expand_star(cte: exp.Expr, stream_place: StreamProjectPath) -> exp.Expr:
    """Return the source's CTE, in which `*` is expanded to the columns of events."""
    select = cte.this
    table = select.args["from_"].this
    alias = table.alias or implicit_alias(stream_place.stream_name)
    items: list[exp.Expr] = []
    for name in _EVENT_COLUMNS:
        node = _column_node(alias, name)
        if name == "extras":
            node.this.meta[WHOLE_EXTRAS_METADATA_KEY] = True
        if name == "project" and stream_place.project_at:
            node = exp.Cast(
                this=_project_value_node(alias, stream_place), to=exp.DataType.build("STRING", dialect="bigquery")
            )
            node.meta["bigquery_name"] = "CAST"
        items.append(exp.Alias(this=node, alias=exp.to_identifier(name, quoted=True)))
    select.set("expressions", items)
    select.set("order", None)
    return cte
