"""Name resolution in FROM and joins: tables are looked up, objects become paths, and arrays are unnested."""

from collections.abc import Sequence

import msgspec
from sqlglot import exp

from cordwood.model.shape import ValueKind
from cordwood.sql.budget import copied
from cordwood.sql.nodes import asks_for_record, is_record, is_within
from cordwood.sql.resolve import tables
from cordwood.sql.resolve.constants import are_keys, as_relation
from cordwood.sql.resolve.expressions import Place, as_elements, resolve_expression, without_default
from cordwood.sql.resolve.joins import add_condition, is_plain_truth, keep_row, using_to_on
from cordwood.sql.resolve.names import UNNAMED
from cordwood.sql.resolve.work import Names, Work
from cordwood.sql.scope import Field, Nature, Relation, Scope, fresh, nature_of


class Reader(msgspec.Struct):
    """The state of reading one FROM from left to right; `drops` collects filters that replace unnested objects.

    `paths_are_safe` if such a filter may be put in WHERE, because no later outer join adds rows with NULL. `first` is
    the index in the scope of the first relation of this chain of joins.
    """

    work: Work
    names: Names
    scope: Scope
    drops: list[exp.Expr]
    paths_are_safe: bool = True
    first: int = 0

    @property
    def place(self) -> Place:
        return Place(self.work, self.names, self.scope)


def read_from(select: exp.Expr, work: Work, names: Names, parent: Scope | None) -> Scope:
    """Resolve the FROM of a SELECT; filters that replace unnested objects are added to its WHERE."""
    reader = Reader(work, names, Scope(parent=parent), [])
    from_ = select.args.get("from_")
    if from_ is None:
        return reader.scope
    joins = select.args.get("joins") or []
    only = None if joins else _only_constants(reader, select)
    if only is not None:
        reader.scope.relations.append(as_relation(from_.this.alias or from_.this.name, only))
        select.set("from_", None)
        return reader.scope
    _read_chain(reader, from_.this, joins)
    select.set("joins", [join for join in joins if join.args.get("this") is not None])
    for drop in reader.drops:
        add_condition(select, drop)
    return reader.scope


def _only_constants(reader: Reader, select: exp.Expr) -> dict[str, exp.Expr] | None:
    """Return the columns of the constant row that is all a SELECT reads; None if it reads more, or groups by them."""
    if select.args.get("group"):
        return None
    return tables.constant_columns(reader.work, reader.names, select.args["from_"].this)


def _read_chain(reader: Reader, first: exp.Expr, joins: Sequence[exp.Expr]) -> None:
    _read_item(msgspec.structs.replace(reader, paths_are_safe=_are_safe(reader, joins)), first)
    _read_joins(reader, joins)


def _read_joins(reader: Reader, joins: Sequence[exp.Expr]) -> None:
    for index, join in enumerate(joins):
        _read_join(msgspec.structs.replace(reader, paths_are_safe=_are_safe(reader, joins[index + 1 :])), join)


def _are_safe(reader: Reader, later: Sequence[exp.Expr]) -> bool:
    return reader.paths_are_safe and not any(_keeps_right(join) for join in later)


def _keeps_right(join: exp.Expr) -> bool:
    """Return whether the join adds rows whose left side is NULL, which must not be filtered afterwards."""
    return join.args.get("side") in ("RIGHT", "FULL")


def _read_join(reader: Reader, join: exp.Expr) -> None:
    _check_join(reader.work, join)
    source = join.this
    _, unnest = _as_unnest(reader, source)
    if unnest is not None:
        _read_unnest(reader, unnest, join)
        return
    if _read_constants(reader, join, source):
        return
    side = join.args.get("side")
    safe = side == "LEFT" or (reader.paths_are_safe and side != "FULL")
    inner = msgspec.structs.replace(reader, drops=[], paths_are_safe=safe)
    before = len(reader.scope.relations)
    _read_item(inner, source)
    if join.args.get("using"):
        using_to_on(reader.work, join, reader.scope, (reader.first, before))
    elif join.args.get("on") is not None:
        resolve_expression(join.args["on"], reader.place)
    _place_drops(reader, join, inner.drops)


def _read_constants(reader: Reader, join: exp.Expr, source: exp.Expr) -> bool:
    """Replace a cross join with a constant row by its values; return whether this was done."""
    if any(join.args.get(key) for key in ("side", "on", "using")):
        return False
    columns = tables.constant_columns(reader.work, reader.names, source)
    if columns is None or are_keys(columns, join.parent_select):
        return False
    reader.scope.relations.append(as_relation(source.alias or source.name, columns))
    join.set("this", None)
    return True


def _check_join(work: Work, join: exp.Expr) -> None:
    if join.args.get("method") or join.args.get("kind") in ("SEMI", "ANTI", "STRAIGHT_JOIN"):
        raise work.unsupported(join, f"A {join.args.get('method') or join.args.get('kind')} JOIN")


def _place_drops(reader: Reader, join: exp.Expr, drops: list[exp.Expr]) -> None:
    """Put the filters of a parenthesised join into WHERE, or into the ON of the LEFT JOIN that contains it."""
    if join.args.get("side") != "LEFT":
        reader.drops.extend(drops)
        return
    if drops:
        join.set("on", exp.and_(join.args.get("on"), *drops, copy=False))


def _read_item(reader: Reader, source: exp.Expr) -> None:
    unnested, unnest = _as_unnest(reader, source)
    if unnest is not None:
        reader.scope.relations.append(_real_unnest(reader, unnest))
        if unnested is not unnest:
            source.replace(unnest)
    elif isinstance(source, exp.Table) and (made := tables.as_query(reader.work, reader.names, source)) is not None:
        _read_subquery(reader, made)
    elif isinstance(source, exp.Table):
        inner_joins = source.args.get("joins")
        inner = msgspec.structs.replace(reader, first=len(reader.scope.relations))
        tables.read_table(reader.work, reader.names, reader.scope, source)
        if inner_joins:
            _read_inner_joins(inner, source, inner_joins)
            _put_in_brackets(source)
    elif isinstance(source, exp.Subquery):
        _read_subquery(reader, source)
    else:
        raise reader.work.refuse(
            source, "This cannot stand in FROM.", "Read a sub-query, a SELECT in brackets or UNNEST."
        )


def _read_inner_joins(reader: Reader, source: exp.Expr, joins: list[exp.Expr]) -> None:
    _read_joins(reader, joins)
    source.set("joins", [join for join in joins if join.args.get("this") is not None])


def _put_in_brackets(source: exp.Expr) -> None:
    """Parenthesise `b` in `a JOIN b JOIN c ON … ON …`, because not every engine parses the nested joins without."""
    if source.args.get("joins") and isinstance(source.parent, exp.Join):
        source.replace(exp.Subquery(this=copied(source)))


def _read_subquery(reader: Reader, source: exp.Expr) -> None:
    """Resolve parentheses in FROM: a SELECT is a table, tables are a nested join."""
    inner = source.this
    if isinstance(inner, (exp.Table, exp.Subquery)) and not source.alias and not _is_query(inner):
        _read_bracket(reader, source, inner)
        return
    joins = source.args.get("joins") or []
    inner_reader = msgspec.structs.replace(reader, first=len(reader.scope.relations))
    source.set("joins", None)
    tables.read_derived(reader.work, reader.names, reader.scope, source)
    if joins:
        source.set("joins", joins)
        _read_inner_joins(inner_reader, source, joins)
        _put_in_brackets(source)


def _read_bracket(reader: Reader, source: exp.Expr, inner: exp.Expr) -> None:
    group = msgspec.structs.replace(reader, scope=Scope(parent=reader.scope), first=0)
    before = len(reader.scope.relations)
    _read_item(group, inner)
    _read_inner_joins(group, source, source.args.get("joins") or [])
    reader.scope.relations.extend(group.scope.relations)
    reader.scope.merged.extend(msgspec.structs.replace(one, at=one.at + before) for one in group.scope.merged)
    if not source.args.get("joins") and not source.this.args.get("joins"):
        # It never contained a join, or all of its joins have been removed.
        source.replace(source.this)


def _is_query(node: exp.Expr) -> bool:
    """Return whether it is a SELECT, in any number of parentheses; False if other tables are joined to it there."""
    while isinstance(node, exp.Subquery) and not node.alias and not node.args.get("joins"):
        node = node.this
    return isinstance(node, exp.Query) and not isinstance(node, exp.Table | exp.Subquery)


def _as_unnest(reader: Reader, source: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    """Return `UNNEST(…)` for a source that is one, or a path into a relation to its left (`FROM t, t.metadata`)."""
    if isinstance(source, exp.Unnest):
        return source, source
    if isinstance(source, exp.Table) and source.args.get("db") is not None:
        parts = [part for part in source.parts if isinstance(part, exp.Identifier)]
        if not source.meta.get("quoted_table") and tables.is_relation(reader.scope, parts[0].name):
            column = exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(parts), strict=False)))
            alias = source.alias or parts[-1].name
            made = exp.Unnest(
                expressions=[column], alias=exp.TableAlias(columns=[exp.to_identifier(alias)]), offset=False
            )
            return source, made
    return source, None


def _read_unnest(reader: Reader, unnest: exp.Expr, join: exp.Expr) -> None:
    """Resolve a join with an unnest; one that only holds objects becomes a path."""
    if unnest is not join.this:
        join.set("this", unnest)
    resolve_expression(unnest.expressions[0], reader.place)
    value = without_default(unnest.expressions[0])
    if _is_path(reader, value, join):
        _read_path(reader, unnest, value, join)
        return
    reader.scope.relations.append(_unnested(reader, unnest))
    if join.args.get("on") is not None:
        resolve_expression(join.args["on"], reader.place)


def _is_path(reader: Reader, value: exp.Expr, join: exp.Expr) -> bool:
    """Return whether the unnested value only holds objects, so that a path replaces the unnest."""
    nature = nature_of(value)
    if not nature.is_event or _keeps_right(join):
        return False
    kinds = reader.work.records.kinds(nature)
    if kinds is None or ValueKind.ARRAY in kinds:
        return False
    if join.args.get("side") == "LEFT":
        return is_plain_truth(join.args.get("on"))
    return reader.paths_are_safe


def _read_path(reader: Reader, unnest: exp.Expr, value: exp.Expr, join: exp.Expr) -> None:
    name = _alias(reader.work, unnest)
    nature = nature_of(value)
    record = Field(name, fresh(value), nature)
    relation = Relation(name, record=record)
    is_left = join.args.get("side") == "LEFT"
    offset = unnest.args.get("offset")
    if isinstance(offset, exp.Identifier):
        zero: exp.Expr = exp.Literal.number(0)
        place = exp.If(this=is_record(fresh(value)), true=zero) if is_left else zero
        relation.fields[offset.name.lower()] = Field(offset.name, place)
    reader.scope.relations.append(relation)
    if not is_left:
        reader.drops[:] = [drop for drop in reader.drops if not _is_implied(drop, value)]
        reader.drops.append(_is_there(reader.work, value, nature))
        keep_row(reader.drops, join, reader.place)
    join.set("this", None)


def _is_there(work: Work, value: exp.Expr, nature: Nature) -> exp.Expr:
    only_objects = work.records.kinds(nature) == frozenset({ValueKind.OBJECT})
    return is_record(fresh(value), only_objects=only_objects)


def _is_implied(drop: exp.Expr, value: exp.Expr) -> bool:
    """Return whether the filter is implied by the existence of an object inside its value."""
    return asks_for_record(drop) and is_within(value, drop.expressions[0])


def _real_unnest(reader: Reader, unnest: exp.Expr) -> Relation:
    resolve_expression(unnest.expressions[0], reader.place)
    return _unnested(reader, unnest)


def _unnested(reader: Reader, unnest: exp.Expr) -> Relation:
    """Return a relation with the element as its only column, and the offset as another one if it is named."""
    if len(unnest.expressions) != 1:
        raise reader.work.unsupported(unnest, "UNNEST of several arrays")
    as_elements(reader.work, unnest.expressions[0])
    element = nature_of(unnest.expressions[0]).element or Nature()
    name = _alias(reader.work, unnest)
    relation = Relation(name, record=Field(name, _column(name, name), element))
    offset = unnest.args.get("offset")
    if isinstance(offset, exp.Identifier):
        relation.fields[offset.name.lower()] = Field(offset.name, _column(offset.name, name))
        unnest.set("offset", exp.to_identifier(offset.name, quoted=True))
    quoted = exp.to_identifier(name, quoted=True)
    unnest.set("alias", exp.TableAlias(this=quoted, columns=[copied(quoted)]))
    return relation


def _alias(work: Work, unnest: exp.Expr) -> str:
    """Return the unnest's alias, or a unique generated one."""
    alias = unnest.args.get("alias")
    if alias is not None and alias.columns:
        return str(alias.columns[0].name)
    return unnest.alias or work.unique(UNNAMED)


def _column(name: str, table: str) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(table, quoted=True))
