"""Name resolution in queries: WITH, SELECT, set operations, and sub-queries."""

from sqlglot import exp

from cordwood.errors import AmbiguousName, CompileTooLong, PlanTooLarge
from cordwood.sql.budget import copied, spend
from cordwood.sql.resolve.clauses import (
    Aliases,
    order_of_set,
    resolve_filters,
    resolve_group,
    resolve_limits,
    resolve_order,
    resolve_projections,
)
from cordwood.sql.resolve.constants import constants
from cordwood.sql.resolve.expressions import Place, resolve_expression
from cordwood.sql.resolve.joins import add_condition
from cordwood.sql.resolve.sets import combined
from cordwood.sql.resolve.sources import read_from
from cordwood.sql.resolve.tables import as_table, told_apart
from cordwood.sql.resolve.work import Cte, Names, Output, Work
from cordwood.sql.scope import Field, Relation, Scope


def resolve_query(work: Work, node: exp.Expr, names: Names, parent: Scope | None) -> list[Output]:
    """Resolve a query in place; return its columns.

    Errors of an exceeded budget get the position of the innermost query.
    """
    spend(1 + len(names.ctes))
    try:
        return _read_query(work, node, names, parent)
    except (PlanTooLarge, CompileTooLong) as fault:
        fault.span = fault.span or work.span(node)
        raise


def _read_query(work: Work, node: exp.Expr, names: Names, parent: Scope | None) -> list[Output]:
    names = _read_with(work, node, names, parent)
    if isinstance(node, exp.Select):
        return _select(work, node, names, parent)
    if isinstance(node, exp.SetOperation):
        outputs = _set_operation(work, node, names, parent)
    elif isinstance(node, exp.Subquery):
        outputs = resolve_query(work, node.this, names, parent)
    else:
        raise work.refuse(node, "This is not a query that can be read.", "Write a SELECT.")
    place = Place(work, names, _of_outputs(outputs, parent))
    order_of_set(node, outputs, place)
    resolve_limits(node, place)
    return outputs


def _select(work: Work, select: exp.Expr, names: Names, parent: Scope | None) -> list[Output]:
    written_where = select.args.get("where")
    select.set("where", None)
    scope = read_from(select, work, names, parent)
    place = Place(work, names, scope)
    if written_where is not None:
        _put_first(select, written_where, place)
    outputs = resolve_projections(select, place)
    aliases = Aliases(select)
    resolve_group(select, place, aliases)
    resolve_filters(select, place, aliases)
    _resolve_distinct(select, place)
    resolve_order(select, place, aliases)
    resolve_limits(select, place)
    _resolve_rest(select, place)
    return outputs


def _put_first(select: exp.Expr, written: exp.Expr, place: Place) -> None:
    """Put the author's WHERE before the filters that replace unnested records."""
    drops = select.args.get("where")
    select.set("where", written)
    resolve_expression(written.this, place)
    if drops is not None:
        add_condition(select, drops.this)


def _resolve_distinct(select: exp.Expr, place: Place) -> None:
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on") is not None:
        raise place.work.unsupported(distinct, "DISTINCT ON")


_RESOLVED = frozenset(
    [
        "with_",
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "qualify",
        "windows",
        "distinct",
        "order",
        "limit",
        "offset",
        "kind",
    ]
)


def _resolve_rest(select: exp.Expr, place: Place) -> None:
    """Refuse any clause that is not resolved above."""
    for key, value in select.args.items():
        if value and key not in _RESOLVED and key != "operation_modifiers":
            where = value[0] if isinstance(value, list) and value else value
            node = where if isinstance(where, exp.Expr) else select
            raise place.work.unsupported(node, key.strip("_").replace("_", " ").upper())


def _set_operation(work: Work, node: exp.Expr, names: Names, parent: Scope | None) -> list[Output]:
    """Resolve a set operation; long chains nest on the left, so these are walked without recursion."""
    spine = [node]
    while isinstance(spine[-1].this, exp.SetOperation) and not spine[-1].this.args.get("with_"):
        spine.append(spine[-1].this)
    outputs = resolve_query(work, spine[-1].this, names, parent)
    for operation in reversed(spine):
        right = resolve_query(work, operation.expression, names, parent)
        _name_alike(operation.expression, outputs)
        if operation is not node:
            _inner_modifiers(work, operation, outputs, names, parent)
        outputs = combined(work, operation, outputs, right)
    return outputs


def _name_alike(query: exp.Expr, outputs: list[Output]) -> None:
    """Name the fields of both sides' structs alike: BigQuery pairs them by position, engines by name."""
    if query.args.get("kind") == "STRUCT" and len(query.expressions) == len(outputs):
        for item, output in zip(query.expressions, outputs, strict=True):
            if isinstance(item, exp.Alias):
                item.set("alias", exp.to_identifier(output.name, quoted=True))


def _inner_modifiers(work: Work, node: exp.Expr, outputs: list[Output], names: Names, parent: Scope | None) -> None:
    place = Place(work, names, _of_outputs(outputs, parent))
    order_of_set(node, outputs, place)
    resolve_limits(node, place)


def _of_outputs(outputs: list[Output], parent: Scope | None) -> Scope:
    """Return the scope of an ORDER BY after a set operation: its columns, which are written unqualified."""
    fields = {
        output.name.lower(): Field(
            output.name, exp.Column(this=exp.to_identifier(output.name, quoted=True)), output.nature
        )
        for output in outputs
    }
    return Scope(parent=parent, relations=[Relation("", fields)])


def _read_with(work: Work, node: exp.Expr, names: Names, parent: Scope | None) -> Names:
    with_ = node.args.get("with_")
    if with_ is None:
        return names
    _check_names(work, with_.expressions)
    recursive = bool(with_.args.get("recursive"))
    if recursive:
        with_.set("expressions", _by_dependency(with_.expressions))
    for cte in with_.expressions:
        names = names.with_cte(cte.alias, read_cte(work, cte, names, parent, recursive=recursive))
    return names


def _check_names(work: Work, ctes: list[exp.Expr]) -> None:
    taken: set[str] = set()
    for cte in ctes:
        if cte.alias.lower() in taken:
            raise AmbiguousName(
                f'Two sub-queries in WITH are called "{cte.alias}".', hint="Name one otherwise.", span=work.span(cte)
            )
        taken.add(cte.alias.lower())


def _by_dependency(ctes: list[exp.Expr]) -> list[exp.Expr]:
    """Order sub-queries by dependency, because in WITH RECURSIVE they may reference later ones."""
    by_name = {cte.alias.lower(): cte for cte in ctes}
    ordered: dict[str, exp.Expr] = {}

    def place(name: str, waiting: frozenset[str]) -> None:
        if name in ordered or name in waiting:
            return
        for table in by_name[name].find_all(exp.Table):
            if table.name.lower() in by_name:
                place(table.name.lower(), waiting | {name})
        ordered[name] = by_name[name]

    for name in by_name:
        place(name, frozenset())
    return list(ordered.values())


def read_cte(work: Work, cte: exp.Expr, names: Names, parent: Scope | None, *, recursive: bool) -> Cte:
    columns = cte.args["alias"].columns
    if columns:
        raise work.unsupported(cte, "A list of columns after a name in WITH")
    name = work.unique(cte.alias)
    is_value = as_table(cte.this)
    if recursive and isinstance(cte.this, exp.SetOperation):
        names = names.with_cte(cte.alias, Cte(name, _anchor(work, cte.this, names, parent)))
    outputs = told_apart(cte.this, work.query(work, cte.this, names, parent))
    cte.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
    values = None if is_value else _constants(cte.this, outputs)
    return Cte(name, outputs, is_value=is_value, constants=values)


def _constants(query: exp.Expr, outputs: list[Output]) -> dict[str, exp.Expr] | None:
    """Return the values of a constant sub-query; None if it is not one, or two of its columns share a name."""
    return None if any(output.column for output in outputs) else constants(query)


def _anchor(work: Work, union: exp.Expr, names: Names, parent: Scope | None) -> list[Output]:
    """Return the columns of a recursive sub-query, which are those of its non-recursive first part."""
    kept = set(work.spelt)
    first = copied(union)
    names = _read_with(work, first, names, parent)
    while isinstance(first, exp.SetOperation):
        first = first.this
    outputs = work.query(work, first, names, parent)
    work.spelt = kept
    return outputs
