"""Expansion of `*`, `t.*` and `record.*`, with EXCEPT and REPLACE."""

from collections.abc import Iterator

from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.resolve import names as of_names
from cordwood.sql.resolve.expressions import Place, name_parts, resolve_expression
from cordwood.sql.scope import Field, Nature, Relation, nature_of


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


def expand(item: exp.Expr, place: Place) -> list[exp.Expr]:
    """Return one alias for every column of the star."""
    star = star_of(item)
    if star is None:
        return [item]
    fields = _fields(item, place)
    except_ = {_excepted(name) for name in star.args.get("except_") or []}
    replaced = {alias.alias.lower(): alias for alias in star.args.get("replace") or []}
    _check_named(item, place, fields, except_ | set(replaced))
    return [
        _column(field, replaced.get(field.name.lower()), place) for field in fields if field.name.lower() not in except_
    ]


def _excepted(name: exp.Expr) -> str:
    return name.name.lower()


def _check_named(item: exp.Expr, place: Place, fields: list[Field], named: set[str]) -> None:
    missing = named - {field.name.lower() for field in fields}
    if missing:
        name = exp.to_identifier(min(missing))
        name.meta.update(item.meta)
        raise of_names.unknown(place.work, [name], place.scope)


def _column(field: Field, replacement: exp.Expr | None, place: Place) -> exp.Expr:
    name = exp.to_identifier(field.name, quoted=True)
    if replacement is None:
        return exp.Alias(this=field.expression(), alias=name)
    made = exp.Alias(this=copied(replacement.this), alias=name)
    resolve_expression(made.this, place)
    return made


def _fields(item: exp.Expr, place: Place) -> list[Field]:
    if isinstance(item, exp.Star):
        return list(_everything(place))
    parts = name_parts(item)
    relation = place.scope.relation(parts[0].name) if len(parts) == 1 else None
    if relation is not None:
        return list(_of_relation(relation, place))
    return list(_of_value(_value(item, parts, place), place))


def _value(item: exp.Expr, parts: list[exp.Identifier], place: Place) -> exp.Expr:
    """Return the resolved value before `.*`."""
    if parts:
        return of_names.meaning(place.work, parts, place.scope)
    holder = exp.Paren(this=copied(item.this))
    resolve_expression(holder.this, place)
    value: exp.Expr = holder.this
    return value


def _everything(place: Place) -> Iterator[Field]:
    scope = place.scope
    for at, relation in enumerate(scope.relations):
        yield from (one.column for one in scope.merged if one.at == at)
        for field in _of_relation(relation, place):
            if scope.merged_in(relation, field.name) is None:
                yield field


def _of_relation(relation: Relation, place: Place) -> Iterator[Field]:
    if relation.record is not None:
        yield from _of_record(relation.record, place)
    yield from relation.fields.values()
    yield from of_names.extra_fields(place.work, relation)


def _of_record(record: Field, place: Place) -> Iterator[Field]:
    """Yield the fields of a record, or any other element itself."""
    nature = record.nature
    if nature.fields or (nature.is_event and place.work.records.keys(nature)):
        yield from _of_value(record.expression(), place)
    else:
        yield record


def _of_value(value: exp.Expr, place: Place) -> Iterator[Field]:
    nature = nature_of(value)
    names = place.work.records.keys(nature) if nature.is_event else tuple(name for name, _ in nature.fields)
    if not names and nature == Nature():
        raise place.work.unsupported(value, "A star over a value whose fields are not known")
    for name in names:
        part = exp.to_identifier(name, quoted=True)
        reached = of_names.access(place.work, copied(value), [part])
        yield Field(name, reached, nature_of(reached))
