"""Name resolution of tables: a sub-query in scope, or for owners a stream; nothing else can be read."""

import msgspec
from sqlglot import exp

from cordwood.errors import QueryFault, QueryRefused, closest
from cordwood.model.datatype import Kind
from cordwood.sql.budget import copied
from cordwood.sql.datatypes import DTYPE_BY_KIND
from cordwood.sql.nodes import set_type
from cordwood.sql.resolve.pivots import Pivoted, expand_pivot
from cordwood.sql.resolve.resolution import Cte, CteScope, OutputColumn, Resolution
from cordwood.sql.scope import Field, Lineage, Origin, Relation, Scope


def is_relation(scope: Scope | None, name: str) -> bool:
    while scope is not None:
        if scope.relation(name) is not None:
            return True
        scope = scope.parent
    return False


def read_table(resolution: Resolution, ctes: CteScope, scope: Scope, table: exp.Expr) -> None:
    _check_table_form(resolution, table)
    table_name = written_name(table)
    cte = _find_cte(resolution, ctes, table, table_name)
    if cte is not None:
        _read_cte(scope, table, cte)
        return
    if not resolution.may_read_streams:
        raise unknown_table_error(resolution, ctes, table, table_name)
    endpoint = _find_endpoint(resolution, table, table_name)
    if endpoint is not None:
        _read_endpoint(scope, table, endpoint, table_name)
        return
    if not _is_stream(resolution, table_name):
        raise unknown_table_error(resolution, ctes, table, table_name)
    if table.args.get("pivots"):
        raise resolution.refuse(
            table,
            "PIVOT and UNPIVOT cannot stand right after a stream.",
            "Pick the columns first: (SELECT … FROM stream) PIVOT(…). Those that are left over are what it groups by.",
        )
    _read_stream(resolution, scope, table, table_name)


def written_name(table: exp.Expr) -> str:
    """Return the table's name as the author wrote it; sqlglot splits dotted names that are not backquoted."""
    return ".".join(part.name for part in _name_parts(table))


def _name_parts(table: exp.Expr) -> list[exp.Expr]:
    identifiers: list[exp.Expr] = []
    for key in ("catalog", "db", "this"):
        part = table.args.get(key)
        if isinstance(part, exp.Dot):
            identifiers.extend(part.flatten())
        elif part is not None:
            identifiers.append(part)
    return identifiers


def _check_table_form(resolution: Resolution, table: exp.Expr) -> None:
    if not all(isinstance(part, exp.Identifier) for part in _name_parts(table)):
        raise resolution.refuse(table, "Table functions are refused.", "Read a sub-query by its name.")
    for key, value in table.args.items():
        if value and key not in ("this", "db", "catalog", "alias", "joins", "pivots"):
            raise resolution.refuse(table, f"{key.strip('_').upper()} cannot stand after a table here.")


def _find_cte(resolution: Resolution, ctes: CteScope, table: exp.Expr, table_name: str) -> Cte | None:
    if table.args.get("db") is not None:
        return None
    return ctes.by_name.get(table_name.lower()) or resolution.find_sub_query(table_name.lower())


def _find_endpoint(resolution: Resolution, table: exp.Expr, table_name: str) -> Cte | None:
    """Resolve an endpoint that is read by name; its errors get the position of that name."""
    try:
        return resolution.find_endpoint(table_name)
    except QueryFault as fault:
        message = f"The endpoint {table_name}: {fault.message}"
        raise type(fault)(message, hint=fault.hint, span=resolution.span(table)) from fault


def _read_endpoint(scope: Scope, table: exp.Expr, endpoint: Cte, table_name: str) -> None:
    """Add an endpoint's columns to the scope. Like a stream, it can be referred to by the last part of its name."""
    alias = table.alias or table_name.rpartition(".")[2]
    qualified_name = "" if table.alias else table_name
    table.set("this", exp.to_identifier(endpoint.name, quoted=True))
    table.set("db", None)
    table.set("catalog", None)
    name_source(table, alias)
    relation = _derived_relation(alias, endpoint.outputs, is_value=endpoint.is_value)
    scope.relations.append(msgspec.structs.replace(relation, qualified_name=qualified_name))


def constant_columns(resolution: Resolution, ctes: CteScope, source: exp.Expr) -> dict[str, exp.Expr] | None:
    """Return the columns of a table that is a constant sub-query; None for any other table."""
    if not isinstance(source, exp.Table) or any(source.args.get(key) for key in ("db", "joins", "pivots")):
        return None
    cte = _find_cte(resolution, ctes, source, written_name(source)) if isinstance(source.this, exp.Identifier) else None
    return cte.constants if cte is not None else None


def _read_cte(scope: Scope, table: exp.Expr, cte: Cte) -> None:
    alias = table.alias or table.name
    table.set("this", exp.to_identifier(cte.name, quoted=True))
    name_source(table, alias)
    scope.relations.append(_derived_relation(alias, cte.outputs, is_value=cte.is_value))


def read_derived_table(resolution: Resolution, ctes: CteScope, scope: Scope, source: exp.Expr) -> None:
    """Resolve a derived table. It may be correlated with outer queries but not with its siblings, as in BigQuery."""
    pivots = source.args.get("pivots") or []
    is_value = drop_select_kind(source.this)
    outputs = make_names_unique(source.this, resolution.resolve_query(resolution, source.this, ctes, scope.parent))
    alias = _pivots_alias(source) or source.alias or resolution.unique_name("_derived")
    source.set("pivots", None)
    for pivot in pivots:
        outputs = _apply_pivot(resolution, ctes, source, pivot, outputs)
    name_source(source, alias)
    scope.relations.append(_derived_relation(alias, outputs, is_value=is_value and not pivots))


def _apply_pivot(
    resolution: Resolution, ctes: CteScope, source: exp.Expr, pivot: exp.Expr, outputs: list[OutputColumn]
) -> list[OutputColumn]:
    """Wrap the derived table in the query that is equivalent to the pivot."""
    alias = resolution.unique_name("_pivoted")
    inner = exp.Subquery(this=copied(source.this))
    name_source(inner, alias)
    select, pivot_outputs = expand_pivot(Pivoted(resolution, ctes, inner, _derived_relation(alias, outputs)), pivot)
    source.set("this", select)
    return make_names_unique(select, pivot_outputs)


def pivot_as_query(resolution: Resolution, ctes: CteScope, table: exp.Expr) -> exp.Expr | None:
    """Rewrite `t PIVOT(…)` of a sub-query in place as `(SELECT * FROM t) PIVOT(…)`; return None for any other table."""
    pivots, joins = table.args.get("pivots"), table.args.get("joins")
    if not pivots or not isinstance(table.this, exp.Identifier):
        return None
    if _find_cte(resolution, ctes, table, written_name(table)) is None:
        return None
    table.set("pivots", None)
    table.set("joins", None)
    query = exp.Select(expressions=[exp.Star()], from_=exp.From(this=copied(table)))
    sub_query = exp.Subquery(this=query, pivots=pivots, joins=joins)
    name_source(sub_query, table.alias or table.name)
    table.replace(sub_query)
    return sub_query


def _pivots_alias(source: exp.Expr) -> str:
    """Remove and return the alias after PIVOT, which names the pivot's result."""
    alias = ""
    for pivot in source.args.get("pivots") or []:
        alias = pivot.alias or alias
        pivot.set("alias", None)
    return alias


def name_source(source: exp.Expr, alias: str) -> None:
    source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def drop_select_kind(query: exp.Expr) -> bool:
    """Turn SELECT AS STRUCT and SELECT AS VALUE into plain SELECTs; return whether the rows are values."""
    pending = [query]
    is_value = False
    while pending:
        node = pending.pop()
        if isinstance(node, exp.SetOperation):
            pending += [node.this, node.expression]
        elif isinstance(node, exp.Subquery):
            pending.append(node.this)
        elif isinstance(node, exp.Select) and node.args.get("kind"):
            is_value = is_value or node.args["kind"] == "VALUE"
            node.set("kind", None)
    return is_value


def _derived_relation(alias: str, outputs: list[OutputColumn], *, is_value: bool = False) -> Relation:
    fields: dict[str, Field] = {}
    for position, output in enumerate(outputs):
        lower = output.name.lower()
        field = Field(output.name, _quoted_column(alias, output.column or output.name), output.lineage)
        if lower in fields:
            fields[lower] = msgspec.structs.replace(fields[lower], repeated=True)
            lower = f"{lower}\0{position}"
            while lower in fields:
                lower += "\0"
        fields[lower] = field
    if is_value and len(fields) == 1:
        value = next(iter(fields.values()))
        return Relation(alias, record=Field(alias, value.value, value.lineage))
    return Relation(alias, fields)


def make_names_unique(query: exp.Expr, outputs: list[OutputColumn]) -> list[OutputColumn]:
    """Give columns with duplicate names unique ones within the tree, so that a star over them finds each."""
    items = _leftmost(query).expressions
    used_names = {output.name.lower() for output in outputs}
    if len(used_names) == len(outputs) or len(items) != len(outputs):
        return outputs
    seen: set[str] = set()
    next_suffixes: dict[str, int] = {}
    unique: list[OutputColumn] = []
    for output, item in zip(outputs, items, strict=True):
        lower = output.name.lower()
        if lower in seen and isinstance(item, exp.Alias):
            column = _unused_name(output.name, used_names, next_suffixes)
            item.set("alias", exp.to_identifier(column, quoted=True))
            unique.append(msgspec.structs.replace(output, column=column))
        else:
            unique.append(output)
        seen.add(lower)
    return unique


def _leftmost(query: exp.Expr) -> exp.Expr:
    """Return the SELECT that determines the names of a query's columns."""
    while not isinstance(query, exp.Select) and isinstance(query.this, exp.Expr):
        query = query.this
    return query


def _unused_name(name: str, used_names: set[str], next_suffixes: dict[str, int]) -> str:
    """Return a name that no column has; `next_suffixes` are the next suffixes to try, by name."""
    suffix = next_suffixes.get(name.lower(), 2)
    while f"{name}_{suffix}".lower() in used_names:
        suffix += 1
    next_suffixes[name.lower()] = suffix + 1
    used_names.add(f"{name}_{suffix}".lower())
    return f"{name}_{suffix}"


def _is_stream(resolution: Resolution, table_name: str) -> bool:
    return resolution.known_streams is None or table_name in resolution.known_streams


def _read_stream(resolution: Resolution, scope: Scope, table: exp.Expr, stream: str) -> None:
    """Add a stream to the scope: the columns of its table, and any other name as a key of its events."""
    stream_table = resolution.target.stream_table(stream)
    alias = table.alias or stream.rpartition(".")[2]
    fields = {name.lower(): _physical_column(stream, alias, name, kind) for name, kind in stream_table.columns.items()}
    extra_keys = _quoted_column(alias, stream_table.extras)
    set_type(extra_keys, exp.DType.VARIANT)
    whole_event = Lineage(origins=frozenset({Origin(stream, ())}))
    qualified_name = "" if table.alias else stream
    scope.relations.append(
        Relation(alias, fields, extra_keys=Field(alias, extra_keys, whole_event), qualified_name=qualified_name)
    )
    table.set("this", exp.to_identifier(stream_table.table, quoted=True))
    table.set("db", None)
    table.set("catalog", None)
    table.meta["stream"] = stream
    name_source(table, alias)
    resolution.streams[stream] = None


def _physical_column(stream: str, alias: str, name: str, kind: Kind) -> Field:
    column = set_type(_quoted_column(alias, name), DTYPE_BY_KIND[kind])
    lineage = Lineage(origins=frozenset({Origin(stream, (name,))})) if kind is Kind.VARIANT else Lineage()
    return Field(name, column, lineage)


def _quoted_column(alias: str, name: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def unknown_table_error(resolution: Resolution, ctes: CteScope, table: exp.Expr, table_name: str) -> QueryRefused:
    refusal = f'"{table_name}" cannot be read here.'
    order_hint = _order_hint(resolution, table, table_name)
    if order_hint is not None:
        return resolution.refuse(table, refusal, order_hint)
    streams = resolution.known_streams or () if resolution.may_read_streams else ()
    readable = sorted({*ctes.by_name, *resolution.sub_query_names, *streams})
    closest_name = closest(table_name, readable, 0.7)
    if closest_name:
        hint = f"Did you mean {closest_name}? These can be read: {', '.join(readable)}."
    else:
        hint = (
            f"These can be read: {', '.join(readable)}."
            if readable
            else "There is nothing to read here: only its own WITH."
        )
    return resolution.refuse(table, refusal, hint)


def _order_hint(resolution: Resolution, table: exp.Expr, table_name: str) -> str | None:
    """Return what to write instead of a reference to a sub-query that is defined later in WITH, or from within itself."""
    lower = table_name.lower()
    cte = table.find_ancestor(exp.CTE)
    while cte is not None:
        with_ = cte.parent
        names = {other.alias.lower() for other in with_.expressions} if isinstance(with_, exp.With) else set()
        if with_ is not None and with_.parent is None:
            names |= {name.lower() for name in resolution.sub_query_names}
        if lower in names:
            if with_ is not None and with_.args.get("recursive"):
                return "A sub-query of WITH RECURSIVE may read itself after UNION ALL, but no two may read each other."
            if cte.alias.lower() == lower:
                return "A sub-query reads itself only in WITH RECURSIVE, after UNION ALL."
            return f"{table_name} is defined later in this WITH: move it before {cte.alias}, or write WITH RECURSIVE."
        cte = cte.find_ancestor(exp.CTE)
    return None
