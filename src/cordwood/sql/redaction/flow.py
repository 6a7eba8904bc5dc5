"""Where a plan reads texts from events: every such read is hidden before anything else can look at it.

Raw values may flow through sub-queries that do nothing but hand them on, and paths may be taken into them; the
first thing that would read one reads it redacted. What nothing but the answer reads is left to the engine, which
hides it on the way out (`Resolved.hidden`): a top-n then redacts n rows, not all that it sorted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.model.shape import Shape, ValueKind
from cordwood.sql.budget import copied, spend
from cordwood.sql.nodes import (
    asks_for_record,
    is_event_path,
    path_steps,
    path_value,
    swap,
    typed,
)
from cordwood.sql.operations import (
    RecordElements,
    Redacted,
    RedactedEvent,
    RedactedEventText,
    RedactedSecret,
    RedactedText,
    does,
    operation,
)
from cordwood.sql.records import Records
from cordwood.sql.redaction.raw_columns import (
    MOST_PLACES,
    Columns,
    Known,
    Place,
    Raw,
    Source,
    Sources,
    is_around,
    is_read_from_within,
    kinds_at,
    lift,
    put_in,
    raw_column,
    source_of,
)
from cordwood.sql.redaction.redaction import Redaction
from cordwood.sql.stages import Resolved

_ONLY_TEXT: Final = frozenset({ValueKind.TEXT})
_RECORDS: Final = frozenset({ValueKind.OBJECT, ValueKind.ARRAY})
_NO_TEXT: Final = frozenset({ValueKind.NUMBER, ValueKind.BOOL})


def redact_reads(resolved: Resolved, redaction: Redaction, shapes: Mapping[str, Shape]) -> Resolved:
    """Uses up the tree."""
    tree = resolved.tree
    leaves = _Leaves(redaction, Records(shapes), frozenset(_opened_names(tree)))
    raw = leaves.query(tree, {}, {}, hands_on=True)
    leaves.require_judged(tree)
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
    return all(kinds_at(place, records) <= _NO_TEXT for place in places)


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
        # Columns by their ids; they are held, so that no id is given twice.
        self._judged: dict[int, exp.Expr] = {}
        self._lifted = 0

    def require_judged(self, tree: exp.Expr) -> None:
        """Refuse a tree with a column that the walk did not come to: it might be read as it is."""
        for node in tree.walk(prune=_is_redacted):
            if isinstance(node, exp.Column) and id(node) not in self._judged:
                raise QueryUnsupported("A column stands where redaction does not look.")

    def _judge(self, node: exp.Expr) -> None:
        self._judged |= {id(column): column for column in node.find_all(exp.Column)}

    def query(self, node: exp.Expr, known: Known, outer: Sources, *, hands_on: bool) -> Columns:
        """Redact what the query reads; its columns that are still raw, by name."""
        spend(1 + len(known))
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
        unread = unread_places(node) if hands_on else frozenset()
        kept: dict[str, Raw] = {}
        for place, item in enumerate(node.expressions, start=1):
            raw = self._handed_on(item, sources) if place in unread else None
            if raw is not None:
                kept[item.alias] = raw
            else:
                self._expression(item, known, sources)
        for source in sources.values():
            if source.lifted and source.reader is node:
                self._judge(put_in(source))
        return kept

    def _handed_on(self, item: exp.Expr, sources: Sources) -> Raw | None:
        """What a column hands on raw, when it does nothing else."""
        raw = self._raw(item.this, sources) if isinstance(item, exp.Alias) else None
        if raw is None or self._is_secret(raw) or is_around(source_of(item.this, sources), item):
            return None
        self._judge(item)
        return raw

    def _clause(self, part: exp.Expr, known: Known, sources: Sources) -> None:
        """Relations are read already; of a join only its condition is left."""
        if isinstance(part, exp.Join):
            condition = part.args.get("on")
            if condition is not None:
                self._expression(condition, known, sources)
        else:
            self._expression(part, known, sources)

    def _source(self, node: exp.Expr, known: Known, sources: Sources, *, is_opened: bool) -> None:
        """One relation, and those that are joined to it inside the same brackets."""
        self._relation(node, known, sources, is_opened=is_opened)
        for pivot in node.args.get("pivots") or ():
            self._expression(pivot, known, sources)
        for join in node.args.get("joins") or ():
            self._source(join.this, known, sources, is_opened=is_opened)
            self._clause(join, known, sources)

    def _relation(self, node: exp.Expr, known: Known, sources: Sources, *, is_opened: bool) -> None:
        columns: Columns | str
        if isinstance(node, exp.Table):
            columns = self._table(node, known, is_opened=is_opened)
        elif isinstance(node, exp.Unnest):
            columns = self._unnest(node, known, sources)
        elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query) and node.alias:
            hands_on = not (is_opened or node.args.get("pivots") or _renames(node))
            columns = self.query(node.this, known, sources, hands_on=hands_on)
        else:
            # A join in brackets: its relations are in scope as if it had none.
            self._source(node.this, known, sources, is_opened=is_opened)
            return
        sources[node.alias_or_name] = Source(columns, node, node.find_ancestor(exp.Select))

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
        if raw is None or not self._may_be_unnested(node, raw, sources):
            self._expression(array, known, sources)
            return {}
        self._judge(array)
        return {column.name: raw for column in alias.columns} if alias is not None else {}

    def _may_be_unnested(self, node: exp.Unnest, raw: Raw, sources: Sources) -> bool:
        """Whether its elements may be raw: not where a sub-query reads them, or reads the array, of rows around it."""
        if self._is_hidden(raw) or is_around(source_of(node.expressions[0], sources), node):
            return False
        return not is_read_from_within(node.find_ancestor(exp.Select), node.alias_or_name)

    def _expression(self, node: exp.Expr, known: Known, sources: Sources) -> None:
        spend()
        raw = self._raw(node, sources)
        if raw is not None:
            self._read(node, raw, source_of(node, sources))
            return
        if _is_known(node):
            self._judge(node)
            return
        if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
            self.query(node, known, sources, hands_on=False)
            return
        for part in list(node.iter_expressions()):
            self._expression(part, known, sources)

    def _read(self, node: exp.Expr, raw: Raw, source: Source | None) -> None:
        is_lifted = source is not None and is_around(source, node)
        if self._is_textless(raw) or (not is_lifted and self._is_shape(node, raw)):
            value = copied(node) if is_lifted else node
            self._judge(value)
        else:
            value = self._redacted(copied(node), raw)
        if source is not None and is_lifted and not isinstance(value, exp.Null):
            self._lifted += 1
            value = lift(source, value, self._lifted)
            self._judge(value)
        if value is not node:
            swap(node, value)

    def _raw(self, node: exp.Expr | None, sources: Sources) -> Raw | None:
        """What the expression reads from an event, when it does no more than that."""
        if isinstance(node, exp.Column):
            return raw_column(node, sources)
        if isinstance(node, exp.Paren):
            return self._raw(node.this, sources)
        if isinstance(node, exp.Bracket):
            return self._element(node, sources)
        if isinstance(node, exp.Coalesce):
            return self._first(node, sources)
        if node is not None and is_event_path(node):
            base = self._raw(path_value(node), sources)
            return base.below(*path_steps(node)) if base is not None else None
        return None

    def _first(self, node: exp.Coalesce, sources: Sources) -> Raw | None:
        """The first of several paths of events; where one of their names says something by itself, each is looked at alone."""
        found = [self._raw(part, sources) for part in (node.this, *node.expressions)]
        events = [raw for raw in found if raw is not None and raw.is_event and not self._is_secret(raw)]
        if len(events) < len(found) or source_of(node, sources) is None:
            return None
        places = tuple(dict.fromkeys(place for raw in events for place in raw.places))
        return Raw(places, is_event=True) if len(places) <= MOST_PLACES else None

    def _elements(self, node: exp.Expr, sources: Sources) -> Raw | None:
        if does(node, RecordElements):
            base = self._raw(node.expressions[0], sources)
            return base.elements() if base is not None else None
        return None

    def _element(self, node: exp.Bracket, sources: Sources) -> Raw | None:
        """One element of an array; where its index reads something, both are looked at by themselves."""
        reads = any(index.find(exp.Column, exp.Query) for index in node.expressions)
        return None if reads else self._elements(node.this, sources)

    def _redacted(self, node: exp.Expr, raw: Raw) -> exp.Expr:
        mode = self._redaction.mode
        if not raw.is_event:
            return typed(operation(RedactedText(mode), node), exp.DType.VARCHAR)
        if self._is_hidden(raw):
            return typed(exp.Null(), exp.DType.VARIANT)
        if raw.kinds(self.records) == _ONLY_TEXT and not self._is_secret(raw):
            # Read as text at once: nothing has to be told apart, and the engine has such columns ready.
            return typed(operation(RedactedEventText(mode), node), exp.DType.VARIANT)
        if self._is_secret(raw):
            may_be_record = bool(raw.kinds(self.records) & _RECORDS)
            return typed(operation(RedactedSecret(mode, may_be_record), node), exp.DType.VARIANT)
        return typed(operation(RedactedEvent(mode), node), exp.DType.VARIANT)

    def _is_secret(self, raw: Raw) -> bool:
        """Not to be handed on raw: what it is called matters, and that is lost on the way."""
        return self._is_hidden(raw) or (raw.is_event and any(map(self._redaction.is_secret_name, raw.own_names)))

    def _is_shape(self, node: exp.Expr, raw: Raw) -> bool:
        """Whether nothing is asked but whether it is there, or what kind it is: that tells no text."""
        return _is_only_counted(node.parent) and not self._is_hidden(raw)

    def _is_textless(self, raw: Raw) -> bool:
        """Whether no text was ever seen there: numbers tell none."""
        kinds = raw.kinds(self.records)
        is_textless = bool(kinds) and kinds <= _NO_TEXT and not self._is_hidden(raw)
        if is_textless:
            self.textless |= dict.fromkeys(raw.places)
        return is_textless

    def _is_hidden(self, raw: Raw) -> bool:
        """Whether a name on the way to it is something to hide: to be told whether a key is there is to be told the key."""
        return raw.is_event and any(map(self._redaction.hides, raw.names))


def _relations(select: exp.Select) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    yield from (join.this for join in select.args.get("joins") or [])


def _is_known(node: exp.Expr) -> bool:
    """Whether it is a column that says whose it is.

    Only a set operation's and a PIVOT's have no such name: any other bare name may be the engine's for a raw column.
    """
    if not isinstance(node, exp.Column):
        return False
    return bool(node.table) or not isinstance(node.find_ancestor(exp.Pivot, exp.Query), exp.Select)


def _is_redacted(node: exp.Expr) -> bool:
    return does(node, Redacted)


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


# Clauses that read only expressions of their own, in which every text is redacted. ORDER BY is looked at item by item.
# A GROUP BY, DISTINCT or a kind (AS STRUCT) reads what is selected; so might whatever else a SELECT can have.
_APART: Final = frozenset(
    {"expressions", "from_", "with_", "joins", "where", "qualify", "windows", "limit", "offset", "order"}
)
# What an engine can read neither as a place nor as the name of a column: it has to be asked row by row.
_OF_ROWS: Final = (exp.Column, exp.AggFunc, exp.Window, exp.Query)


def unread_places(select: exp.Select) -> frozenset[int]:
    """Return the places, from 1, of selected values that no clause of the SELECT sorts, groups or compares by.

    This is proved, not assumed: a SELECT with a clause that is not known here to read no column by its place has none.
    """
    if any(value and key not in _APART for key, value in select.args.items()):
        return frozenset()
    order = select.args.get("order")
    places = frozenset(range(1, len(select.expressions) + 1))
    return _unsorted(places, [ordered.this for ordered in order.expressions]) if order is not None else places


def _unsorted(places: frozenset[int], keys: Sequence[exp.Expr]) -> frozenset[int]:
    """The places that no key means; none where a key may mean any."""
    sorted_by = [_place(key) for key in keys if not _is_of_rows(key)]
    return places.difference(sorted_by) if places.issuperset(sorted_by) else frozenset()


def _place(key: exp.Expr) -> int:
    """The ordinal, in the one form that `resolve` leaves: a bare number without a zero before it; 0 for all else."""
    if not isinstance(key, exp.Literal) or key.is_string or not str(key.this).isdecimal():
        return 0
    number = int(key.this)
    return number if str(number) == key.this else 0


def _is_of_rows(key: exp.Expr) -> bool:
    """A bare column must say whose it is: else it may be the name of a selected value."""
    if isinstance(key, exp.Column):
        return bool(key.table)
    return key.find(*_OF_ROWS) is not None
