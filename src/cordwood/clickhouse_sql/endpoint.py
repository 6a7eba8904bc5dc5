"""Endpoints in ClickHouse's dialect: sub-queries in BigQuery SQL that form its table, and its own query over it.

A sub-query is `SELECT * FROM stream WHERE …`. One that reads the table `*` is expanded to a sub-query for each stream
that no other reads, named after the stream; in it `project` is the path at which the stream's events have it.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect as Reader
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token

from cordwood.errors import NOT_COMPILED, QueryRefused, QuerySyntax, Span
from cordwood.model.endpoint import Endpoint, StreamPlace
from cordwood.sql.admit import admit
from cordwood.sql.budget import compiling, copied
from cordwood.sql.nodes import NOW, WHOLE_EXTRAS
from cordwood.sql.parse import parse
from cordwood.sql.positions import span_at, span_of
from cordwood.sql.program import Program, Source, as_file_error, program_of, with_positions
from cordwood.sql.resolve.entry import check_endpoint

_BIGQUERY: Final = Reader.get_or_raise("bigquery")
_HINT: Final = "Write WITH my_source AS (SELECT * FROM `my.stream` WHERE project = @project) SELECT … FROM logs."
# The table that stands for every stream that no other sub-query reads.
ALL_OTHERS: Final = "*"
_COLUMNS: Final = ("id", "timestamp", "event_message", "project", "metadata", "extras")


def read_clickhouse_endpoint(endpoint: Endpoint, streams: Collection[str] | None = None) -> Program:
    """Return the program of an endpoint; raise BadEndpointFile with the position if it cannot be served."""
    try:
        with compiling():
            program = _program(endpoint)
            check_endpoint(with_positions(program), streams)
    except NOT_COMPILED as fault:
        raise as_file_error(fault, endpoint) from fault
    return program


def _program(endpoint: Endpoint) -> Program:
    if any(parameter.name.lower() == NOW for parameter in endpoint.parameters):
        raise QueryRefused(f'A parameter cannot be named "{NOW}".', span=Span(1, 1))
    at = _own_query(endpoint.sql)
    text = endpoint.sql
    tree = admit(parse(f"{text[:at]} select 1 as one")).tree
    with_ = tree.args.get("with_")
    if with_ is None or with_.args.get("recursive"):
        raise QuerySyntax("The sub-queries stand in one WITH.", hint=_HINT, span=Span(1, 1))
    sources: dict[str, Source] = {}
    ctes: list[exp.Expr] = []
    places = {place.name: place for place in endpoint.streams}
    read = {_stream(cte, text) for cte in with_.expressions}
    for cte in with_.expressions:
        for one, place in _spelled_out(cte, places, read, text):
            name = one.alias
            if name.lower() in map(str.lower, sources):
                raise QueryRefused(f'Two sources are called "{name}".', hint="Rename one.", span=span_of(cte, text))
            sub_query = _sub_query(name, {*read, *places})
            one.set("alias", exp.TableAlias(this=exp.to_identifier(sub_query, quoted=True)))
            sources[name] = Source(sub_query, place.name, has_own_project=not place.project_at)
            ctes.append(one)
    with_.set("expressions", ctes)
    own = "".join(letter if letter == "\n" else " " for letter in text[:at]) + text[at:]
    return msgspec.structs.replace(program_of(endpoint, tree), dialect_text=own, sources=sources)


def _sub_query(name: str, streams: Collection[str]) -> str:
    """Return a source's name for its sub-query, made distinct from the streams' names."""
    taken = {stream.lower() for stream in streams}
    while name.lower() in taken:
        name += " events"
    return name


def _own_query(text: str) -> int:
    """Return the offset at which the query after WITH begins."""
    try:
        found: list[Token] = _BIGQUERY.tokenize(text)
    except TokenError as error:
        raise QuerySyntax(
            "The text cannot be read as SQL.", hint="A quote may be left open.", span=Span(1, 1)
        ) from error
    if not found or found[0].text.lower() != "with":
        raise QuerySyntax("An endpoint in this dialect begins with its sources.", hint=_HINT, span=Span(1, 1))
    depth = 0
    for token, following in zip(found, [*found[1:], None], strict=True):
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and token.text == ")" and following is not None and following.text != ",":
            return int(following.start)
    raise QuerySyntax("There is no query behind the sources.", hint=_HINT, span=span_at(text, len(text)))


def _stream(cte: exp.Expr, text: str) -> str:
    """Return the stream of a source, which must select whole events of one stream by conditions."""
    select = cte.this
    from_ = select.args.get("from_") if isinstance(select, exp.Select) else None
    table = from_.this if from_ is not None else None
    rest = [
        key for key, value in select.args.items() if value and key not in ("expressions", "from_", "where", "order")
    ]
    is_star = len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star)
    has_parts = is_star and any(select.expressions[0].args.values())
    if not isinstance(table, exp.Table) or rest or not is_star or has_parts:
        raise QueryRefused(
            f'The source "{cte.alias}" must read whole events of one stream.',
            hint=_HINT,
            span=span_of(cte, text),
        )
    return ".".join(part.name for part in table.parts)


def _spelled_out(
    cte: exp.Expr, places: Mapping[str, StreamPlace], read: Collection[str], text: str
) -> Iterator[tuple[exp.Expr, StreamPlace]]:
    stream = _stream(cte, text)
    if stream != ALL_OTHERS:
        place = places.get(stream, StreamPlace(stream))
        yield _whole(cte, place), place
        return
    for place in places.values():
        if place.name in read:
            continue
        one = copied(cte)
        one.set("alias", exp.TableAlias(this=exp.to_identifier(place.name, quoted=True)))
        table = one.this.args["from_"].this
        alias = table.alias or "t"
        named = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
        table.replace(_quoted_table(place.name, named))
        _move_project(one.this, alias, place)
        yield _whole(one, place), place


def _quoted_table(name: str, alias: exp.Expr) -> exp.Expr:
    table = exp.Table(this=exp.to_identifier(name, quoted=True), alias=alias)
    table.meta["quoted_table"] = True
    return table


def _move_project(select: exp.Expr, alias: str, place: StreamPlace) -> None:
    """Replace `project` in the conditions by the path at which this stream has it."""
    where = select.args.get("where")
    if where is None or not place.project_at:
        return
    for column in list(where.find_all(exp.Column)):
        if column.name.lower() == "project" and column.table in ("", alias):
            column.replace(_project(alias, place))


def _project(alias: str, place: StreamPlace) -> exp.Expr:
    if not place.project_at:
        return _column(alias, "project")
    node: exp.Expr = _column(alias, "metadata")
    for step in place.project_at:
        node = exp.Dot(this=node, expression=exp.to_identifier(step, quoted=True))
    return node


def _column(alias: str, name: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def _whole(cte: exp.Expr, place: StreamPlace) -> exp.Expr:
    """Return the source with its star expanded to the table's columns."""
    select = cte.this
    table = select.args["from_"].this
    alias = table.alias or place.name.rpartition(".")[2]
    items: list[exp.Expr] = []
    for name in _COLUMNS:
        node = _column(alias, name)
        if name == "extras":
            node.this.meta[WHOLE_EXTRAS] = True
        if name == "project" and place.project_at:
            node = exp.Cast(this=_project(alias, place), to=exp.DataType.build("STRING", dialect="bigquery"))
            node.meta["bigquery_name"] = "CAST"
        items.append(exp.Alias(this=node, alias=exp.to_identifier(name, quoted=True)))
    select.set("expressions", items)
    select.set("order", None)
    return cte
