"""Name resolution in expressions."""

from collections.abc import Callable, Mapping

import msgspec
from sqlglot import exp

from cordwood.model.shape import ValueKind
from cordwood.sql.budget import copied, spend
from cordwood.sql.nodes import event_elements, is_event_path, swap
from cordwood.sql.resolve import names as of_names
from cordwood.sql.resolve.constants import row_value, scalar
from cordwood.sql.resolve.parameters import moment, slot
from cordwood.sql.resolve.work import Names, Work
from cordwood.sql.scope import Field, Nature, Relation, Scope, nature_of


class Place(msgspec.Struct, frozen=True):
    """The context of an expression: the names it can see. `aliases` are those of the select list, if visible."""

    work: Work
    names: Names
    scope: Scope
    aliases: Mapping[str, exp.Expr] = msgspec.field(default_factory=dict)


def resolve_expression(node: exp.Expr, place: Place) -> None:
    """Resolve an expression in place; it must have a parent, because it may be replaced."""
    _Walk(place).visit(node)


class _Walk(msgspec.Struct):
    place: Place
    in_aggregate: int = 0

    def visit(self, node: exp.Expr) -> None:
        spend()
        act = _ACTS.get(type(node))
        if act is not None:
            act(self, node)
        elif isinstance(node, exp.Query):
            self.query(node)
        else:
            self.inside(node)

    def inside(self, node: exp.Expr) -> None:
        deeper = isinstance(node, exp.AggFunc)
        self.in_aggregate += deeper
        for child in list(node.iter_expressions()):
            self.visit(child)
        self.in_aggregate -= deeper

    def query(self, node: exp.Expr) -> None:
        place = self.place
        scope = place.scope
        if place.aliases:
            fields = {name: Field(name, value, nature_of(value)) for name, value in place.aliases.items()}
            scope = Scope(parent=scope, relations=[Relation("", fields)])
        place.work.query(place.work, node, place.names, scope)
        if isinstance(node.parent, exp.Array):
            value = row_value(node)
        else:
            value = scalar(node) if isinstance(node, exp.Subquery) else None
        if value is not None:
            node.replace(value)

    def column(self, node: exp.Expr) -> None:
        parts = name_parts(node)
        if isinstance(node.this, exp.Star):
            raise self.place.work.refuse(node, '"*" cannot stand here.')
        aliased = self._alias(parts)
        made = aliased if aliased is not None else of_names.meaning(self.place.work, parts, self.place.scope)
        start = parts[0].meta_get("start")
        if start is not None and isinstance(made, exp.Column):
            made.meta["start"], made.meta["end"] = start, parts[-1].meta_get("end", start)
        swap(node, made)

    def _alias(self, parts: list[exp.Identifier]) -> exp.Expr | None:
        """Resolve a select alias, which takes precedence over a column except inside aggregates."""
        found = self.place.aliases.get(parts[0].name.lower())
        if found is None or (self.in_aggregate and self.place.scope.columns(parts[0].name)):
            return None
        return of_names.access(self.place.work, _standing_alone(found), parts[1:])

    def dot(self, node: exp.Expr) -> None:
        """Resolve a chain of names as one name, and any other operand of a dot as a value with fields."""
        root, parts = _flattened(node)
        if isinstance(root, exp.Column) and not isinstance(root.this, exp.Star):
            named = [*name_parts(root), *parts]
            aliased = self._alias(named)
            meaning = aliased if aliased is not None else of_names.meaning(self.place.work, named, self.place.scope)
            node.replace(meaning)
            return
        innermost = node
        while isinstance(innermost.this, exp.Dot):
            innermost = innermost.this
        self.visit(innermost.this)
        node.replace(of_names.access(self.place.work, innermost.this, parts))

    def bracket(self, node: exp.Expr) -> None:
        self.inside(node)
        nature = nature_of(node.this)
        if not nature.is_event:
            return
        simple = self._only_record(node, nature)
        if simple is not None:
            node.replace(simple)
            return
        node.this.replace(event_elements(copied(node.this), only_arrays=False))
        node.meta["nature"] = self.place.work.records.elements(nature)

    def _only_record(self, node: exp.Expr, nature: Nature) -> exp.Expr | None:
        """Return the value itself for element 0 of an object, which is an array of one record; None otherwise."""
        index = node.expressions[0] if len(node.expressions) == 1 else None
        is_first = (
            isinstance(index, exp.Literal) and not index.is_string and index.this == str(node.args.get("offset") or 0)
        )
        if not is_first or self.place.work.records.kinds(nature) != frozenset({ValueKind.OBJECT}):
            return None
        made: exp.Expr = copied(node.this)
        made.meta["nature"] = nature
        return made

    def membership(self, node: exp.Expr) -> None:
        """Resolve `x IN UNNEST(path)`, in which an event's value is the array of its elements."""
        self.inside(node)
        unnest = node.args.get("unnest")
        if isinstance(unnest, exp.Unnest):
            as_elements(self.place.work, unnest.expressions[0])

    def of_array(self, node: exp.Expr) -> None:
        self.inside(node)
        as_elements(self.place.work, node.this)

    def struct(self, node: exp.Expr) -> None:
        """Resolve STRUCT(…); a field without a name takes that of its column."""
        named: dict[str, exp.Expr] = {}
        for index, part in enumerate(node.expressions):
            name = implicit_name(part)
            is_bare = bool(name) and not isinstance(part, exp.Alias) and name.lower() not in named
            key = exp.to_identifier(name, quoted=True)
            named[name.lower() or str(index)] = exp.PropertyEQ(this=key, expression=part) if is_bare else part
        node.set("expressions", list(named.values()))
        for part in node.expressions:
            self.visit(part.expression if isinstance(part, exp.PropertyEQ) else part)

    def parameter(self, node: exp.Expr) -> None:
        node.replace(slot(self.place.work, node))

    def now(self, node: exp.Expr) -> None:
        self.inside(node)
        if not self.place.work.is_timeless:
            node.replace(moment(node))


def without_default(value: exp.Expr) -> exp.Expr:
    """Replace `COALESCE(path, [])` used as an array by the path, because a missing array has no elements anyway."""
    if isinstance(value, exp.Coalesce) and nature_of(value.this).is_event and all(map(_is_empty, value.expressions)):
        inner: exp.Expr = value.this
        value.replace(inner)
        return inner
    return value


def _is_empty(value: exp.Expr) -> bool:
    return isinstance(value, exp.Null) or (isinstance(value, exp.Array) and not value.expressions)


def as_elements(work: Work, value: exp.Expr) -> None:
    """Replace an event's value that is used as an array by its elements."""
    value = without_default(value)
    nature = nature_of(value)
    if nature.is_event:
        only_arrays = work.records.kinds(nature) == frozenset({ValueKind.ARRAY})
        made = event_elements(copied(value), only_arrays=only_arrays)
        made.meta["nature"] = Nature(element=work.records.elements(nature))
        value.replace(made)


def name_parts(column: exp.Expr) -> list[exp.Identifier]:
    """Return the parts of a dotted name, outermost first."""
    found = [column.args.get(key) for key in ("catalog", "db", "table", "this")]
    return [part for part in found if isinstance(part, exp.Identifier)]


def implicit_name(item: exp.Expr) -> str:
    """Return the alias, or the last part of a name; "" for anything else."""
    if isinstance(item, exp.Alias):
        return str(item.alias)
    while isinstance(item, exp.Paren):
        item = item.this
    if isinstance(item, exp.Column):
        return str(item.name)
    if isinstance(item, exp.Dot) and isinstance(item.expression, exp.Identifier):
        return str(item.expression.name)
    return ""


def _flattened(node: exp.Expr) -> tuple[exp.Expr, list[exp.Identifier]]:
    parts: list[exp.Identifier] = []
    while isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        parts.append(node.expression)
        node = node.this
    return node, parts[::-1]


def _standing_alone(aliased: exp.Expr) -> exp.Expr:
    """Return a copy of an alias's expression, parenthesised if it is not a single operand."""
    copy: exp.Expr = copied(aliased)
    bare = isinstance(copy, (exp.Column, exp.Literal, exp.Func, exp.Paren)) and not isinstance(copy, (exp.And, exp.Or))
    if bare or is_event_path(copy):
        return copy
    return exp.Paren(this=copy)


_ACTS: dict[type[exp.Expr], Callable[[_Walk, exp.Expr], None]] = {
    exp.Column: _Walk.column,
    exp.Dot: _Walk.dot,
    exp.Bracket: _Walk.bracket,
    exp.In: _Walk.membership,
    exp.ArraySize: _Walk.of_array,
    exp.ArrayToString: _Walk.of_array,
    exp.ArrayReverse: _Walk.of_array,
    exp.Struct: _Walk.struct,
    exp.Parameter: _Walk.parameter,
    exp.CurrentTimestamp: _Walk.now,
    exp.CurrentDate: _Walk.now,
    exp.CurrentDatetime: _Walk.now,
    exp.CurrentTime: _Walk.now,
}
