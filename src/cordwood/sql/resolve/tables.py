"""Name resolution of tables: a sub-query in scope, or for owners a stream; nothing else can be read."""

import msgspec
from sqlglot import exp

from cordwood.errors import QueryFault, QueryRefused, closest
from cordwood.model.datatype import Kind
from cordwood.sql.budget import copied
from cordwood.sql.nodes import typed
from cordwood.sql.resolve.parameters import SLOT_TYPES
from cordwood.sql.resolve.pivots import Pivoted, expand_pivot
from cordwood.sql.resolve.work import Cte, Names, Output, Work
from cordwood.sql.scope import Field, Nature, Origin, Relation, Scope


def is_relation(scope: Scope | None, name: str) -> bool:
    while scope is not None:
        if scope.relation(name) is not None:
            return True
        scope = scope.parent
    return False


def read_table(work: Work, names: Names, scope: Scope, table: exp.Expr) -> None:
    _check_plain(work, table)
    written = written_name(table)
    cte = _named(work, names, table, written)
    if cte is not None:
        _read_cte(scope, table, cte)
        return
    if not work.may_read_streams:
        raise outside(work, names, table, written)
    endpoint = _included(work, table, written)
    if endpoint is not None:
        _read_endpoint(scope, table, endpoint, written)
        return
    if not _is_stream(work, written):
        raise outside(work, names, table, written)
    if table.args.get("pivots"):
        raise work.refuse(
            table,
            "PIVOT and UNPIVOT cannot stand right after a stream.",
            "Pick the columns first: (SELECT … FROM stream) PIVOT(…). Those that are left over are what it groups by.",
        )
    _read_stream(work, scope, table, written)


def written_name(table: exp.Expr) -> str:
    """Return the table's name as the author wrote it; sqlglot splits dotted names that are not backquoted."""
    return ".".join(part.name for part in _parts(table))


def _parts(table: exp.Expr) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    for key in ("catalog", "db", "this"):
        part = table.args.get(key)
        if isinstance(part, exp.Dot):
            found.extend(part.flatten())
        elif part is not None:
            found.append(part)
    return found


def _check_plain(work: Work, table: exp.Expr) -> None:
    if not all(isinstance(part, exp.Identifier) for part in _parts(table)):
        raise work.refuse(table, "Table functions are refused.", "Read a sub-query by its name.")
    for key, value in table.args.items():
        if value and key not in ("this", "db", "catalog", "alias", "joins", "pivots"):
            raise work.refuse(table, f"{key.strip('_').upper()} cannot stand after a table here.")


def _named(work: Work, names: Names, table: exp.Expr, written: str) -> Cte | None:
    if table.args.get("db") is not None:
        return None
    return names.ctes.get(written.lower()) or work.demand(written.lower())


def _included(work: Work, table: exp.Expr, written: str) -> Cte | None:
    """Resolve an endpoint that is read by name; its errors get the position of that name."""
    try:
        return work.demand_endpoint(written)
    except QueryFault as fault:
        raise type(fault)(f"The endpoint {written}: {fault.message}", hint=fault.hint, span=work.span(table)) from fault


def _read_endpoint(scope: Scope, table: exp.Expr, endpoint: Cte, written: str) -> None:
    """Add an endpoint's columns to the scope. Like a stream, it is known by the last part of its name."""
    alias = table.alias or written.rpartition(".")[2]
    dotted = "" if table.alias else written
    table.set("this", exp.to_identifier(endpoint.name, quoted=True))
    table.set("db", None)
    table.set("catalog", None)
    name_source(table, alias)
    relation = _relation(alias, endpoint.outputs, is_value=endpoint.is_value)
    scope.relations.append(msgspec.structs.replace(relation, dotted=dotted))


def constant_columns(work: Work, names: Names, source: exp.Expr) -> dict[str, exp.Expr] | None:
    """Return the columns of a table that is a constant sub-query; None for any other table."""
    if not isinstance(source, exp.Table) or any(source.args.get(key) for key in ("db", "joins", "pivots")):
        return None
    cte = _named(work, names, source, written_name(source)) if isinstance(source.this, exp.Identifier) else None
    return cte.constants if cte is not None else None


def _read_cte(scope: Scope, table: exp.Expr, cte: Cte) -> None:
    alias = table.alias or table.name
    table.set("this", exp.to_identifier(cte.name, quoted=True))
    name_source(table, alias)
    scope.relations.append(_relation(alias, cte.outputs, is_value=cte.is_value))


def read_derived(work: Work, names: Names, scope: Scope, source: exp.Expr) -> None:
    """Resolve a derived table. It may be correlated with outer queries but not with its siblings, as in BigQuery."""
    pivots = source.args.get("pivots") or []
    is_value = as_table(source.this)
    outputs = told_apart(source.this, work.query(work, source.this, names, scope.parent))
    alias = _pivots_alias(source) or source.alias or work.unique("_derived")
    source.set("pivots", None)
    for pivot in pivots:
        outputs = _expand(work, names, source, pivot, outputs)
    name_source(source, alias)
    scope.relations.append(_relation(alias, outputs, is_value=is_value and not pivots))


def _expand(work: Work, names: Names, source: exp.Expr, pivot: exp.Expr, outputs: list[Output]) -> list[Output]:
    """Wrap the derived table in the query that is equivalent to the pivot."""
    alias = work.unique("_pivoted")
    inner = exp.Subquery(this=copied(source.this))
    name_source(inner, alias)
    select, made = expand_pivot(Pivoted(work, names, inner, _relation(alias, outputs)), pivot)
    source.set("this", select)
    return told_apart(select, made)


def as_query(work: Work, names: Names, table: exp.Expr) -> exp.Expr | None:
    """Rewrite `t PIVOT(…)` of a sub-query in place as `(SELECT * FROM t) PIVOT(…)`; return None for any other table."""
    pivots, joins = table.args.get("pivots"), table.args.get("joins")
    if not pivots or not isinstance(table.this, exp.Identifier):
        return None
    if _named(work, names, table, written_name(table)) is None:
        return None
    table.set("pivots", None)
    table.set("joins", None)
    query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=copied(table)))
    made = exp.Subquery(this=query, pivots=pivots, joins=joins)
    name_source(made, table.alias or table.name)
    table.replace(made)
    return made


def _pivots_alias(source: exp.Expr) -> str:
    """Return the alias after PIVOT, which names its result, and remove it from there."""
    found = ""
    for pivot in source.args.get("pivots") or []:
        found = pivot.alias or found
        pivot.set("alias", None)
    return found


def name_source(source: exp.Expr, alias: str) -> None:
    source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def as_table(query: exp.Expr) -> bool:
    """Turn SELECT AS STRUCT and SELECT AS VALUE into plain SELECTs; return whether the rows are values."""
    leaves = [query]
    is_value = False
    while leaves:
        leaf = leaves.pop()
        if isinstance(leaf, exp.SetOperation):
            leaves += [leaf.this, leaf.expression]
        elif isinstance(leaf, exp.Subquery):
            leaves.append(leaf.this)
        elif isinstance(leaf, exp.Select) and leaf.args.get("kind"):
            is_value = is_value or leaf.args["kind"] == "VALUE"
            leaf.set("kind", None)
    return is_value


def _relation(alias: str, outputs: list[Output], *, is_value: bool = False) -> Relation:
    fields: dict[str, Field] = {}
    for place, output in enumerate(outputs):
        lower = output.name.lower()
        field = Field(output.name, _column(alias, output.column or output.name), output.nature)
        if lower in fields:
            fields[lower] = msgspec.structs.replace(fields[lower], repeated=True)
            lower = f"{lower}\0{place}"
            while lower in fields:
                lower += "\0"
        fields[lower] = field
    if is_value and len(fields) == 1:
        value = next(iter(fields.values()))
        return Relation(alias, record=Field(alias, value.value, value.nature))
    return Relation(alias, fields)


def told_apart(query: exp.Expr, outputs: list[Output]) -> list[Output]:
    """Give columns with duplicate names unique ones within the tree, so that a star over them finds each."""
    items = _leftmost(query).expressions
    taken = {output.name.lower() for output in outputs}
    if len(taken) == len(outputs) or len(items) != len(outputs):
        return outputs
    seen: set[str] = set()
    numbers: dict[str, int] = {}
    told: list[Output] = []
    for output, item in zip(outputs, items, strict=True):
        lower = output.name.lower()
        if lower in seen and isinstance(item, exp.Alias):
            column = _free(output.name, taken, numbers)
            item.set("alias", exp.to_identifier(column, quoted=True))
            told.append(msgspec.structs.replace(output, column=column))
        else:
            told.append(output)
        seen.add(lower)
    return told


def _leftmost(query: exp.Expr) -> exp.Expr:
    """Return the SELECT that determines the names of a query's columns."""
    while not isinstance(query, exp.Select) and isinstance(query.this, exp.Expr):
        query = query.this
    return query


def _free(name: str, taken: set[str], numbers: dict[str, int]) -> str:
    """Return a name that no column has; `numbers` are the next suffixes to try, by name."""
    number = numbers.get(name.lower(), 2)
    while f"{name}_{number}".lower() in taken:
        number += 1
    numbers[name.lower()] = number + 1
    taken.add(f"{name}_{number}".lower())
    return f"{name}_{number}"


def _is_stream(work: Work, written: str) -> bool:
    return work.known_streams is None or written in work.known_streams


def _read_stream(work: Work, scope: Scope, table: exp.Expr, stream: str) -> None:
    """Add a stream to the scope: the columns of its table, and any other name as a key of its events."""
    place = work.target.stream_table(stream)
    alias = table.alias or stream.rpartition(".")[2]
    fields = {name.lower(): _physical(stream, alias, name, kind) for name, kind in place.columns.items()}
    extras = _column(alias, place.extras)
    typed(extras, exp.DType.VARIANT)
    everything = Nature(origins=frozenset({Origin(stream, ())}))
    dotted = "" if table.alias else stream
    scope.relations.append(Relation(alias, fields, extras=Field(alias, extras, everything), dotted=dotted))
    table.set("this", exp.to_identifier(place.table, quoted=True))
    table.set("db", None)
    table.set("catalog", None)
    table.meta["stream"] = stream
    name_source(table, alias)
    work.streams[stream] = None


def _physical(stream: str, alias: str, name: str, kind: Kind) -> Field:
    column = typed(_column(alias, name), SLOT_TYPES[kind])
    nature = Nature(origins=frozenset({Origin(stream, (name,))})) if kind is Kind.VARIANT else Nature()
    return Field(name, column, nature)


def _column(alias: str, name: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def outside(work: Work, names: Names, table: exp.Expr, written: str) -> QueryRefused:
    streams = work.known_streams or () if work.may_read_streams else ()
    readable = sorted({*names.ctes, *work.offered, *streams})
    close = closest(written, readable, 0.7)
    if close:
        hint = f"Did you mean {close}? These can be read: {', '.join(readable)}."
    else:
        hint = (
            f"These can be read: {', '.join(readable)}."
            if readable
            else "There is nothing to read here: only its own WITH."
        )
    return work.refuse(table, f'"{written}" cannot be read here.', hint)
