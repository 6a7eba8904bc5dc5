"""Where a plan reads texts from events: every such read is hidden before anything else can look at it.

Raw values may flow through sub-queries that do nothing but hand them on, and paths may be taken into them; the
first thing that would read one reads it redacted. What nothing but the answer reads is left to the engine, which
hides it on the way out (`Resolved.hidden`): a top-n then redacts n rows, not all that it sorted.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.model.shape import ELEMENT, Path, Shape, ValueKind
from cordwood.sql.nodes import (
    EVENT_ARRAY_ELEMENTS,
    EVENT_ELEMENTS,
    REDACTED_EVENT,
    REDACTED_EVENT_TEXT,
    REDACTED_SECRET,
    REDACTED_TEXT,
    asks_for_record,
    is_event_path,
    path_steps,
    path_value,
    typed,
)
from cordwood.sql.records import Records
from cordwood.sql.redaction.redaction import Redaction
from cordwood.sql.scope import Nature, Origin
from cordwood.sql.stages import Resolved

# The name of the tenant is no secret to its tenant; of the rest, what is text is looked through.
_PLAIN_COLUMNS: Final = frozenset({"project", "timestamp", "ingested_at", "timestamp_inferred"})
_EVENT_COLUMNS: Final = frozenset({"metadata", "extras"})
_ANY: Final = frozenset(ValueKind)
_ONLY_TEXT: Final = frozenset({ValueKind.TEXT})
_RECORDS: Final = frozenset({ValueKind.OBJECT, ValueKind.ARRAY})
_NO_TEXT: Final = frozenset({ValueKind.NUMBER, ValueKind.BOOL})


class _Raw(msgspec.Struct, frozen=True):
    """A value straight from an event: of its VARIANT, or a text column of its own."""

    stream: str
    path: Path
    is_event: bool

    def below(self, *steps: str) -> "_Raw":
        return msgspec.structs.replace(self, path=(*self.path, *steps))


Columns = Mapping[str, _Raw]
# None stands for a stream's own table: its columns are raw by their names.
Sources = dict[str, Columns | str]
# A stream, and a path of its events.
Place = tuple[str, Path]
Known = Mapping[str, Columns]


def redact_leaves(resolved: Resolved, redaction: Redaction, shapes: Mapping[str, Shape]) -> Resolved:
    """Uses up the tree."""
    tree = resolved.tree
    leaves = _Leaves(redaction, Records(shapes), frozenset(_opened_names(tree)))
    raw = leaves.query(tree, {}, {}, hands_on=True)
    names = [item.alias_or_name for item in tree.expressions] if isinstance(tree, exp.Select) else []
    hidden = tuple(place for place, name in enumerate(names) if name in raw)
    if len(set(names)) < len(names) and hidden:
        raise QueryUnsupported("Two columns of the answer have one name.")
    facts = {**resolved.facts, **leaves.records.facts}
    return msgspec.structs.replace(
        resolved, redaction=redaction.mode, hidden=hidden, textless=tuple(leaves.textless), facts=facts
    )


def still_textless(places: Iterable[Place], shapes: Mapping[str, Shape]) -> bool:
    """Whether a statement that reads these places as they are may be answered: a text may have come there since."""
    records = Records(shapes)
    return all(_kinds_at(place, records) <= _NO_TEXT for place in places)


def _opened_names(tree: exp.Expr) -> Iterator[str]:
    """Sub-queries read in a way that does not name their columns: they hand on nothing raw."""
    for table in tree.find_all(exp.Table):
        select = table.find_ancestor(exp.Select)
        if table.args.get("pivots") or (select is not None and _has_star(select)):
            yield table.name


def _has_star(select: exp.Select) -> bool:
    return any(isinstance(item, exp.Star) or item.is_star for item in select.expressions)


class _Leaves:
    """One walk through a tree, query by query."""

    def __init__(self, redaction: Redaction, records: Records, opened: frozenset[str]) -> None:
        self._redaction = redaction
        self.records = records
        self._opened = opened
        # What is read as it is because no text was ever seen there.
        self.textless: dict[Place, None] = {}

    def query(self, node: exp.Expr, known: Known, outer: Sources, *, hands_on: bool) -> Columns:
        """Redact what the query reads; its columns that are still raw, by name."""
        known = {**known, **self._with(node, known, outer)}
        if isinstance(node, exp.Select):
            return self._select(node, known, outer, hands_on=hands_on)
        for part in node.iter_expressions():
            if isinstance(part, exp.With):
                continue
            if isinstance(part, exp.Query):
                self.query(part, known, outer, hands_on=False)
            else:
                self._expression(part, known, outer)
        return {}

    def _with(self, node: exp.Expr, known: Known, outer: Sources) -> dict[str, Columns]:
        with_ = node.args.get("with_")
        found: dict[str, Columns] = {}
        if with_ is None:
            return found
        for cte in with_.expressions:
            is_plain = not with_.args.get("recursive") and not _renames(cte)
            hands_on = is_plain and cte.alias not in self._opened
            found[cte.alias] = self.query(cte.this, {**known, **found}, outer, hands_on=hands_on)
        return found

    def _select(self, node: exp.Select, known: Known, outer: Sources, *, hands_on: bool) -> Columns:
        sources = dict(outer)
        is_opened = _has_star(node)
        for relation in _relations(node):
            self._source(relation, known, sources, is_opened=is_opened)
        for part in _clauses(node):
            self._clause(part, known, sources)
        plain = hands_on and not any(node.args.get(key) for key in ("distinct", "group", "kind"))
        kept: dict[str, _Raw] = {}
        for place, item in enumerate(node.expressions, start=1):
            raw = self._handed_on(node, place, sources) if plain else None
            if raw is not None:
                kept[item.alias] = raw
            else:
                self._expression(item, known, sources)
        return kept

    def _handed_on(self, select: exp.Select, place: int, sources: Sources) -> _Raw | None:
        """What a column hands on raw, when it does nothing else."""
        item = select.expressions[place - 1]
        raw = self._raw(item.this, sources) if isinstance(item, exp.Alias) else None
        return None if raw is None or _is_sorted_by(select, place) or self._is_secret(raw) else raw

    def _clause(self, part: exp.Expr, known: Known, sources: Sources) -> None:
        """Relations are read already; of a join only its condition is left."""
        if isinstance(part, exp.Join):
            condition = part.args.get("on")
            if condition is not None:
                self._expression(condition, known, sources)
        elif not isinstance(part, exp.Lateral):
            self._expression(part, known, sources)

    def _source(self, node: exp.Expr, known: Known, sources: Sources, *, is_opened: bool) -> None:
        name = node.alias_or_name
        if isinstance(node, exp.Table):
            sources[name] = self._table(node, known, is_opened=is_opened)
        elif isinstance(node, exp.Unnest):
            sources[name] = self._unnest(node, known, sources)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query) and node.alias:
            hands_on = not (is_opened or node.args.get("pivots") or _renames(node))
            sources[name] = self.query(node.this, known, sources, hands_on=hands_on)
        else:
            self._joined(node, known, sources, is_opened=is_opened)

    def _joined(self, node: exp.Expr, known: Known, sources: Sources, *, is_opened: bool) -> None:
        """A parenthesised join: its relations are in scope as if it had no parentheses."""
        for part in node.iter_expressions():
            if isinstance(part, exp.Join):
                self._source(part.this, known, sources, is_opened=is_opened)
                self._clause(part, known, sources)
            elif isinstance(part, (exp.Table, exp.Unnest, exp.Subquery)):
                self._source(part, known, sources, is_opened=is_opened)

    def _table(self, node: exp.Table, known: Known, *, is_opened: bool) -> Columns | str:
        stream = node.meta_get("stream")
        if stream is None:
            return known.get(node.name, {})
        if is_opened or node.args.get("pivots"):
            raise QueryUnsupported("The columns of this relation cannot be told, so they cannot be redacted.")
        return str(stream)

    def _unnest(self, node: exp.Unnest, known: Known, sources: Sources) -> Columns:
        array = node.expressions[0]
        alias = node.args.get("alias")
        raw = self._elements(array, sources)
        if raw is None:
            self._expression(array, known, sources)
            return {}
        return {column.name: raw for column in alias.columns} if alias is not None else {}

    def _expression(self, node: exp.Expr, known: Known, sources: Sources) -> None:
        raw = self._raw(node, sources)
        if raw is not None:
            if not self._is_harmless(node, raw):
                node.replace(self._redacted(node.copy(), raw))
            return
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            self.query(node, known, sources, hands_on=False)
            return
        for part in list(node.iter_expressions()):
            self._expression(part, known, sources)

    def _raw(self, node: exp.Expr | None, sources: Sources) -> _Raw | None:
        """What the expression reads from an event, when it does no more than that."""
        if isinstance(node, exp.Column):
            return _column(node, sources)
        if isinstance(node, exp.Paren):
            return self._raw(node.this, sources)
        if isinstance(node, exp.Bracket):
            return self._elements(node.this, sources)
        if isinstance(node, exp.Coalesce):
            return self._first(node, sources)
        if node is not None and is_event_path(node):
            base = self._raw(path_value(node), sources)
            return base.below(*path_steps(node)) if base is not None else None
        return None

    def _first(self, node: exp.Coalesce, sources: Sources) -> _Raw | None:
        """Paths that one name may mean: all of them are of one event."""
        found = [self._raw(part, sources) for part in (node.this, *node.expressions)]
        events = [raw for raw in found if raw is not None and raw.is_event]
        return events[0] if len(events) == len(found) else None

    def _elements(self, node: exp.Expr, sources: Sources) -> _Raw | None:
        if isinstance(node, exp.Anonymous) and node.this in (EVENT_ELEMENTS, EVENT_ARRAY_ELEMENTS):
            base = self._raw(node.expressions[0], sources)
            return base.below(ELEMENT) if base is not None else None
        return None

    def _redacted(self, node: exp.Expr, raw: _Raw) -> exp.Expr:
        mode = exp.Literal.string(self._redaction.mode.value)
        if not raw.is_event:
            return typed(exp.Anonymous(this=REDACTED_TEXT, expressions=[node, mode]), exp.DType.VARCHAR)
        if any(self._redaction.hides(step) for step in raw.path[1:]):
            # To be told whether a key is there is to be told the key.
            return typed(exp.Null(), exp.DType.VARIANT)
        if self._kinds(raw) == _ONLY_TEXT and not self._is_secret(raw):
            # Read as text at once: nothing has to be told apart, and the engine has such columns ready.
            return typed(exp.Anonymous(this=REDACTED_EVENT_TEXT, expressions=[node, mode]), exp.DType.VARIANT)
        if self._is_secret(raw):
            may_be_record = exp.Boolean(this=bool(self._kinds(raw) & _RECORDS))
            return typed(
                exp.Anonymous(this=REDACTED_SECRET, expressions=[node, mode, may_be_record]), exp.DType.VARIANT
            )
        return typed(exp.Anonymous(this=REDACTED_EVENT, expressions=[node, mode]), exp.DType.VARIANT)

    def _is_secret(self, raw: _Raw) -> bool:
        """Not to be handed on raw: what it is called matters, and that is lost on the way."""
        names = [step for step in raw.path[1:] if step != ELEMENT]
        return raw.is_event and (
            any(map(self._redaction.hides, names)) or any(map(self._redaction.is_secret_name, names[-1:]))
        )

    def _is_harmless(self, node: exp.Expr, raw: _Raw) -> bool:
        """Whether it is there, or what kind it is, tells no text; neither do numbers."""
        if raw.is_event and any(self._redaction.hides(step) for step in raw.path[1:]):
            return False
        if _is_only_counted(node.parent):
            return True
        kinds = self._kinds(raw)
        is_textless = bool(kinds) and kinds <= _NO_TEXT
        if is_textless:
            self.textless[raw.stream, raw.path] = None
        return is_textless

    def _kinds(self, raw: _Raw) -> frozenset[ValueKind]:
        """What has been seen there; nothing is known of a text column."""
        if not raw.is_event:
            return frozenset()
        return _kinds_at((raw.stream, raw.path), self.records)


def _kinds_at(place: Place, records: Records) -> frozenset[ValueKind]:
    """Any where it cannot be known."""
    kinds = records.kinds(Nature(origins=frozenset({Origin(*place)})))
    return _ANY if kinds is None else kinds


def _column(node: exp.Column, sources: Sources) -> _Raw | None:
    source = sources.get(node.table)
    name = node.name
    if isinstance(source, str):
        if name in _PLAIN_COLUMNS:
            return None
        path = () if name == "extras" else (name,)
        return _Raw(source, path, is_event=name in _EVENT_COLUMNS)
    return source.get(name) if source is not None else None


def _is_sorted_by(select: exp.Select, place: int) -> bool:
    """Whether an ordinal of ORDER BY means this column: its order would tell what it holds."""
    order = select.args.get("order")
    ordinals = [item.this for item in order.expressions] if order is not None else []
    return any(isinstance(one, exp.Literal) and one.this == str(place) for one in ordinals)


def _relations(select: exp.Select) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
        yield from (join.this for join in from_.this.args.get("joins") or [])
    yield from (join.this for join in select.args.get("joins") or [])
    yield from (lateral.this for lateral in select.args.get("laterals") or [])


def _is_only_counted(reader: exp.Expr | None) -> bool:
    if isinstance(reader, exp.Is):
        return isinstance(reader.expression, exp.Null)
    return isinstance(reader, exp.Count) or asks_for_record(reader)


def _renames(node: exp.Expr) -> bool:
    alias = node.args.get("alias")
    return bool(alias and alias.columns)


def _clauses(select: exp.Select) -> Iterator[exp.Expr]:
    """All but its columns and its relations."""
    for key, value in list(select.args.items()):
        if key not in ("expressions", "from_", "with_"):
            yield from (part for part in (value if isinstance(value, list) else [value]) if isinstance(part, exp.Expr))
