"""Expansion of `*`, `t.*` and `record.*`, with EXCEPT and REPLACE."""

from collections.abc import Iterator

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.resolve import names as of_names
from cordwood.sql.resolve.expressions import Context, name_parts, resolve_expression
from cordwood.sql.scope import Field, Lineage, Relation, lineage_of


def is_star(item: exp.Expr) -> bool:
    return star_of(item) is not None


def star_of(item: exp.Expr) -> exp.Expr | None:
    if isinstance(item, exp.Star):
        return item
    if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
        return item.this
    if isinstance(item, exp.Dot) and isinstance(item.expression, exp.Star):
        return item.expression
    return None


def expand_star(item: exp.Expr, context: Context) -> list[exp.Expr]:
    """Return one alias for every column of the star."""
    star = star_of(item)
    if star is None:
        return [item]
    fields = _star_fields(item, context)
    excluded = {_lower_name(name) for name in star.args.get("except_") or []}
    replacements = {alias.alias.lower(): alias for alias in star.args.get("replace") or []}
    _check_listed_names(item, context, fields, excluded | set(replacements))
    return [
        _star_column(field, replacements.get(field.name.lower()), context)
        for field in fields
        if field.name.lower() not in excluded
    ]


def _lower_name(name: exp.Expr) -> str:
    return name.name.lower()


def _check_listed_names(item: exp.Expr, context: Context, fields: list[Field], listed: set[str]) -> None:
    missing = listed - {field.name.lower() for field in fields}
    if missing:
        name = exp.to_identifier(min(missing))
        name.meta.update(item.meta)
        raise of_names.unknown_name(context.resolution, [name], context.scope)


def _star_column(field: Field, replacement: exp.Expr | None, context: Context) -> exp.Expr:
    name = exp.to_identifier(field.name, quoted=True)
    if replacement is None:
        return exp.Alias(this=field.expression(), alias=name)
    alias = exp.Alias(this=copied(replacement.this), alias=name)
    resolve_expression(alias.this, context)
    return alias


def _star_fields(item: exp.Expr, context: Context) -> list[Field]:
    if isinstance(item, exp.Star):
        return list(_scope_fields(context))
    parts = name_parts(item)
    relation = context.scope.relation(parts[0].name) if len(parts) == 1 else None
    if relation is not None:
        return list(_relation_fields(relation, context))
    return list(_value_fields(_resolve_value(item, parts, context), context))


def _resolve_value(item: exp.Expr, parts: list[exp.Identifier], context: Context) -> exp.Expr:
    """Return the resolved value before `.*`."""
    if parts:
        return of_names.resolve_name(context.resolution, parts, context.scope)
    paren = exp.Paren(this=copied(item.this))
    resolve_expression(paren.this, context)
    value: exp.Expr = paren.this
    return value


def _scope_fields(context: Context) -> Iterator[Field]:
    scope = context.scope
    for index, relation in enumerate(scope.relations):
        yield from (merged.column for merged in scope.merged if merged.relation_index == index)
        for field in _relation_fields(relation, context):
            if scope.merged_in(relation, field.name) is None:
                yield field


def _relation_fields(relation: Relation, context: Context) -> Iterator[Field]:
    if relation.record is not None:
        yield from _record_fields(relation.record, context)
    yield from relation.fields.values()
    yield from of_names.extra_fields(context.resolution, relation)


def _record_fields(record: Field, context: Context) -> Iterator[Field]:
    """Yield the fields of a record, or any other element itself."""
    lineage = record.lineage
    if lineage.fields or (lineage.is_event and context.resolution.records.keys(lineage)):
        yield from _value_fields(record.expression(), context)
    else:
        yield record


def _value_fields(value: exp.Expr, context: Context) -> Iterator[Field]:
    lineage = lineage_of(value)
    names = context.resolution.records.keys(lineage) if lineage.is_event else tuple(name for name, _ in lineage.fields)
    if not names and lineage == Lineage():
        raise context.resolution.unsupported(value, "A star over a value whose fields are not known")
    for name in names:
        part = exp.to_identifier(name, quoted=True)
        value_of_field = of_names.access_fields(context.resolution, copied(value), [part])
        yield Field(name, value_of_field, lineage_of(value_of_field))
