"""Resolution of dotted names: a column, a path into an event, or a field of a STRUCT."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from sqlglot import exp

from cordwood.errors import LONGEST_COMPARED, AmbiguousName, UnknownName, closest
from cordwood.model.shape import Path, ValueKind
from cordwood.sql.budget import copied, spend
from cordwood.sql.nodes import KINDS, WHOLE_EXTRAS, event_path, root_and_steps
from cordwood.sql.records import joined
from cordwood.sql.resolve.work import Work
from cordwood.sql.scope import PLAIN, Field, Nature, Origin, Relation, Scope, fresh, nature_of

Parts = Sequence[exp.Identifier]


def meaning(work: Work, parts: Parts, scope: Scope | None) -> exp.Expr:
    """Return the expression to which a name refers.

    Inner scopes take precedence, and names that were seen over names that are only possible.
    """
    outer = scope
    while outer is not None:
        found = _seen(work, parts, outer)
        if found is not None:
            return found
        outer = outer.parent
    outer = scope
    while outer is not None:
        found = _possible(work, parts, outer)
        if found is not None:
            return found
        outer = outer.parent
    raise unknown(work, parts, scope)


def _seen(work: Work, parts: Parts, scope: Scope) -> exp.Expr | None:
    first = parts[0].name
    relation = scope.relation(first)
    if relation is not None:
        found = _of_relation(work, parts, relation)
        if found is not None:
            return found
    column = _column(work, parts[0], scope)
    if column is not None:
        return access(work, column.expression(), parts[1:])
    if relation is not None and len(parts) == 1:
        return _whole_row(work, relation)
    if relation is not None:
        raise _no_column(work, parts[1], relation)
    return _record_field(work, parts, scope)


def _of_relation(work: Work, parts: Parts, relation: Relation) -> exp.Expr | None:
    """Resolve `alias.column…`, `alias.key…` of an unnested record, or the record itself; None for other names."""
    if len(parts) == 1:
        return relation.record.expression() if relation.record is not None else None
    if parts[1].meta_get(WHOLE_EXTRAS) and relation.extras is not None:
        return relation.extras.expression()
    column = relation.fields.get(parts[1].name.lower())
    if column is not None:
        _check_single(work, parts[1], column)
        return access(work, column.expression(), parts[2:])
    if relation.record is not None:
        return access(work, relation.record.expression(), parts[1:])
    if relation.extras is not None:
        return access(work, relation.extras.expression(), parts[1:])
    return None


def _column(work: Work, name: exp.Identifier, scope: Scope) -> Field | None:
    found = scope.columns(name.name)
    if len(found) > 1:
        raise ambiguous(work, name, found)
    if found:
        _check_single(work, name, found[0][1])
    return found[0][1] if found else None


def ambiguous(work: Work, name: exp.Identifier, found: Sequence[tuple[Relation, Field]]) -> AmbiguousName:
    owners = " and ".join(f"{relation.name}.{column.name}" for relation, column in found)
    return AmbiguousName(
        f'"{name.name}" is ambiguous: it is {owners}.', hint="Write one of them.", span=work.span(name)
    )


def _check_single(work: Work, name: exp.Identifier, column: Field) -> None:
    if column.repeated:
        raise AmbiguousName(
            f'"{name.name}" is ambiguous: several columns have this name.',
            hint="Give them names of their own where they are selected.",
            span=work.span(name),
        )


def _whole_row(work: Work, relation: Relation) -> exp.Expr:
    """Return a table's row as a struct, to which its alias alone refers."""
    fields = [
        exp.PropertyEQ(this=exp.to_identifier(column.name, quoted=True), expression=column.expression())
        for column in (*relation.fields.values(), *extra_fields(work, relation))
    ]
    return exp.Struct(expressions=fields)


def extra_fields(work: Work, relation: Relation) -> Iterator[Field]:
    """Yield the keys of a stream's events that are not columns of the table."""
    if relation.extras is None:
        return
    for name in work.records.keys(relation.extras.nature):
        if name.lower() not in relation.fields:
            value = access(work, relation.extras.expression(), [exp.to_identifier(name, quoted=True)])
            yield Field(name, value, nature_of(value))


def _record_field(work: Work, parts: Parts, scope: Scope) -> exp.Expr | None:
    """Resolve an unqualified name as a field of the only unnested record in scope that has it."""
    owners = [relation for relation in scope.relations if _exposes(work, relation, parts[0])]
    if not owners:
        return None
    if len(owners) > 1:
        both = " and ".join(f"{owner.name}.{parts[0].name}" for owner in owners)
        raise AmbiguousName(
            f'"{parts[0].name}" is ambiguous: it is {both}.', hint="Write one of them.", span=work.span(parts[0])
        )
    owner = owners[0].record or owners[0].extras
    return access(work, owner.expression(), parts) if owner is not None else None


def _exposes(work: Work, relation: Relation, name: exp.Identifier) -> bool:
    record = relation.record or relation.extras
    if record is None:
        return False
    if record.nature.is_event:
        return work.records.has(record.nature, name.name, bool(name.quoted))
    return any(known.lower() == name.name.lower() for known, _ in record.nature.fields)


def _possible(work: Work, parts: Parts, scope: Scope) -> exp.Expr | None:
    """Resolve a name that was never seen, as a key of a record or of a stream's events."""
    for relation in reversed(scope.relations):
        keys = _unseen_keys(work, relation)
        if keys is not None:
            return access(work, keys.expression(), parts)
    return None


def _unseen_keys(work: Work, relation: Relation) -> Field | None:
    record = relation.record
    if record is not None and record.nature.is_event and work.records.is_blank(record.nature):
        return record
    return relation.extras


def access(work: Work, value: exp.Expr, parts: Parts) -> exp.Expr:
    """Return the value of nested fields, one access for each part."""
    for index, part in enumerate(parts):
        nature = nature_of(value)
        if nature.is_event:
            return _path(work, value, nature, parts[index:])
        value = _dot(work, value, nature, part)
    return value


def _dot(work: Work, value: exp.Expr, nature: Nature, part: exp.Identifier) -> exp.Expr:
    known = {name.lower(): (name, inner) for name, inner in reversed(nature.fields)}
    found = known.get(part.name.lower())
    if known and found is None:
        hint = _nearest_hint(part.name, list(dict(nature.fields)))
        raise UnknownName(f'There is no field "{part.name}" here.', hint=hint, span=work.span(part))
    if nature is PLAIN and isinstance(value, exp.Column) and _is_scalar(value):
        raise UnknownName(f'"{value.name}" has no fields; "{part.name}" was asked of it.', span=work.span(part))
    if found is None:
        return _field(value, copied(part), PLAIN)
    return _field(value, exp.to_identifier(found[0], quoted=True), found[1])


def _field(value: exp.Expr, name: exp.Expr, nature: Nature) -> exp.Expr:
    made = exp.Dot(this=value, expression=name)
    made.meta["nature"] = nature
    return made


def _is_scalar(column: exp.Column) -> bool:
    kind = column.type
    return kind is not None and kind.this in _SCALARS


_SCALARS = frozenset({exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.TIMESTAMPTZ, exp.DType.BIGINT, exp.DType.BOOLEAN})


def _path(work: Work, value: exp.Expr, nature: Nature, parts: Parts) -> exp.Expr:
    """Return a path into an event: the only function that creates them.

    A name that refers to several keys becomes COALESCE of their paths.
    """
    base, known = root_and_steps(value)
    paths = [(known, nature)]
    for part in parts:
        paths = [further for path in paths for further in _step(work, path, part)]
        # Each name whose keys differ only in case or dashes multiplies the paths.
        spend(len(paths))
    work.records.note_unseen(paths[0][1])
    made = [_event_path(work, base, path) for path in paths]
    whole = made[0] if len(made) == 1 else exp.Coalesce(this=made[0], expressions=made[1:])
    whole.meta["nature"] = joined(of for _, of in paths)
    start = parts[0].meta_get("start")
    if start is not None:
        whole.meta["start"], whole.meta["end"] = start, parts[-1].meta_get("end", start)
    return whole


def _event_path(work: Work, base: exp.Expr, path: tuple[Path, Nature]) -> exp.Expr:
    steps, nature = path
    made = event_path(fresh(base), steps)
    kinds = made.meta[KINDS] = work.records.kinds(nature)
    made.meta["only_text"] = kinds == frozenset({ValueKind.TEXT})
    return made


def _step(work: Work, path: tuple[Path, Nature], part: exp.Identifier) -> list[tuple[Path, Nature]]:
    steps, nature = path
    keys = work.records.keys_for(nature, part.name, bool(part.quoted)) or (part.name,)
    return [((*steps, key), work.records.child(nature, key)) for key in keys]


def unknown(work: Work, parts: Parts, scope: Scope | None) -> UnknownName:
    dotted = ".".join(part.name for part in parts)
    path = _seen_path(work, parts[-1].name, scope)
    names = visible(work, scope)
    hint = _nearest_hint(parts[0].name, names)
    return UnknownName(
        f'"{dotted}" is unknown here.',
        hint=f"Did you mean {path}?" if path and not (hint or "").startswith("Did") else hint,
        span=work.span(parts[0]),
    )


def _seen_path(work: Work, name: str, scope: Scope | None) -> str | None:
    """Return the path of a visible event value whose last step is similar to the name."""
    origins: set[Origin] = set()
    while scope is not None:
        for relation in scope.relations:
            origins.update(*(column.nature.origins for column in relation.fields.values()))
        scope = scope.parent
    below = (Origin(origin.stream, (*origin.path, name)) for origin in sorted(origins, key=str))
    return next((found for found in map(work.records.nearest, below) if found), None)


def _no_column(work: Work, part: exp.Identifier, relation: Relation) -> UnknownName:
    names = [column.name for column in relation.fields.values()]
    return UnknownName(
        f'"{relation.name}" has no column "{part.name}".', hint=_nearest_hint(part.name, names), span=work.span(part)
    )


# Aliases of relations that the author did not name; the second is sqlglot's, for a step of a pipe.
UNNAMED: Final = "_unnested"
_NAMELESS: Final = (UNNAMED, "__tmp")


def visible(work: Work, scope: Scope | None) -> list[str]:
    """Return all names that can be referenced in the scope."""
    names: dict[str, None] = {}
    while scope is not None:
        for relation in scope.relations:
            names.update(dict.fromkeys(column.name for column in relation.fields.values()))
            if not relation.name.startswith(_NAMELESS):
                names[relation.name] = None
            record = relation.record or relation.extras
            if record is not None:
                names.update(dict.fromkeys(work.records.keys(record.nature)))
                names.update(dict.fromkeys(name for name, _ in record.nature.fields))
        scope = scope.parent
    return list(names)


def _nearest_hint(name: str, names: Sequence[str]) -> str | None:
    """Return a hint with a similar name, or else with some of the existing ones.

    The names include keys that senders chose: long ones are omitted, and those that need no quotes come first.
    """
    close = closest(name, names)
    if close:
        return f'Did you mean "{close}"?'
    short = [known for known in names if len(known) <= LONGEST_COMPARED]
    some = sorted(short, key=lambda known: (not _PLAIN_NAME.fullmatch(known), known))[:12]
    return f"There are: {', '.join(some)}." if some else None


_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
