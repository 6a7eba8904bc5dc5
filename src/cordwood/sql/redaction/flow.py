"""Data flow of raw event values: every read of a text is redacted before anything else can use its value.

Raw values may pass unchanged through sub-queries, and paths may be read below them; the first other read is redacted.
Columns that only the answer reads are redacted by the engine on output (`Resolved.raw_columns`), so that a top-n query
redacts n rows rather than all that it sorts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.errors import QueryUnsupported
from cordwood.model.shape import Shape, ValueKind
from cordwood.sql.budget import copied, spend
from cordwood.sql.nodes import (
    is_event_path,
    is_record_test,
    path_steps,
    path_value,
    set_type,
    swap,
)
from cordwood.sql.operations import (
    RecordElements,
    Redacted,
    RedactedEvent,
    RedactedEventText,
    RedactedSecret,
    RedactedText,
    has_operation,
    operation_node,
)
from cordwood.sql.record_shapes import RecordShapes
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
    """Redact the reads of a resolved tree. Mutates the tree."""
    tree = resolved.tree
    leaves = _Leaves(redaction, RecordShapes(shapes), frozenset(_opened_names(tree)))
    raw = leaves.query(tree, {}, {}, hands_on=True)
    leaves.require_judged(tree)
    names = [item.alias_or_name for item in tree.expressions] if isinstance(tree, exp.Select) else []
    raw_columns = tuple(place for place, name in enumerate(names) if name in raw)
    if len(set(names)) < len(names) and raw_columns:
        raise QueryUnsupported("Two columns of the answer have one name.")
    shape_lookups = {**resolved.shape_lookups, **leaves.records.shape_lookups}
    return msgspec.structs.replace(
        resolved,
        redaction=redaction.mode,
        raw_columns=raw_columns,
        textless_paths=tuple(leaves.textless_paths),
        shape_lookups=shape_lookups,
    )


def still_textless(places: Iterable[Place], shapes: Mapping[str, Shape]) -> bool:
    """Return whether these places, which a statement reads without redaction, still hold no texts."""
    records = RecordShapes(shapes)
    return all(kinds_at(place, records) <= _NO_TEXT for place in places)


def _opened_names(tree: exp.Expr) -> Iterator[str]:
    """Yield the names of sub-queries that are read by a star or a pivot, which therefore must not output raw values."""
    for table in tree.find_all(exp.Table):
        select = table.find_ancestor(exp.Select)
        if table.args.get("pivots") or (select is not None and _has_star(select)):
            yield table.name


def _has_star(select: exp.Select) -> bool:
    return any(isinstance(item, exp.Star) or item.is_star for item in select.expressions)


class _Leaves:
    """The state of one walk over a tree, query by query."""

    def __init__(self, redaction: Redaction, records: RecordShapes, opened: frozenset[str]) -> None:
        self._redaction = redaction
        self.records = records
        self._opened = opened
        # Places that are read without redaction, because no text was ever seen there.
        self.textless_paths: dict[Place, None] = {}
        # Columns by their ids; referenced here so that ids are not reused.
        self._judged: dict[int, exp.Expr] = {}
        self._lifted = 0

    def require_judged(self, tree: exp.Expr) -> None:
        """Refuse a tree with a column that was not visited, since it might be read without redaction."""
        for node in tree.walk(prune=_is_redacted):
            if isinstance(node, exp.Column) and id(node) not in self._judged:
                raise QueryUnsupported("A column stands where redaction does not look.")

    def _judge(self, node: exp.Expr) -> None:
        self._judged |= {id(column): column for column in node.find_all(exp.Column)}

    def query(self, node: exp.Expr, known: Known, outer: Sources, *, hands_on: bool) -> Columns:
        """Redact what the query reads; return its columns that are still raw, by name."""
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
        """Return the raw value that a column passes on unchanged; None for any other column."""
        raw = self._raw(item.this, sources) if isinstance(item, exp.Alias) else None
        if raw is None or self._is_secret(raw) or is_around(source_of(item.this, sources), item):
            return None
        self._judge(item)
        return raw

    def _clause(self, part: exp.Expr, known: Known, sources: Sources) -> None:
        """Redact a clause; of a join only the condition, because its relation has been visited."""
        if isinstance(part, exp.Join):
            condition = part.args.get("on")
            if condition is not None:
                self._expression(condition, known, sources)
        else:
            self._expression(part, known, sources)

    def _source(self, node: exp.Expr, known: Known, sources: Sources, *, is_opened: bool) -> None:
        """Visit a relation, and those that are joined to it within the same parentheses."""
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
            # A parenthesised join: its relations are in scope as if there were no parentheses.
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
        """Return whether the elements may be raw: not if they, or the array, are read by a correlated sub-query."""
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
        """Return the raw event value that the expression is; None if it is anything else."""
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
        """Return COALESCE of event values as one raw value of several places; None if a name makes one secret."""
        found = [self._raw(part, sources) for part in (node.this, *node.expressions)]
        events = [raw for raw in found if raw is not None and raw.is_event and not self._is_secret(raw)]
        if len(events) < len(found) or source_of(node, sources) is None:
            return None
        places = tuple(dict.fromkeys(place for raw in events for place in raw.places))
        return Raw(places, is_event=True) if len(places) <= MOST_PLACES else None

    def _elements(self, node: exp.Expr, sources: Sources) -> Raw | None:
        if has_operation(node, RecordElements):
            base = self._raw(node.expressions[0], sources)
            return base.elements() if base is not None else None
        return None

    def _element(self, node: exp.Bracket, sources: Sources) -> Raw | None:
        """Return an array's element as a raw value; None if its index reads columns.

        In that case both are redacted separately.
        """
        reads = any(index.find(exp.Column, exp.Query) for index in node.expressions)
        return None if reads else self._elements(node.this, sources)

    def _redacted(self, node: exp.Expr, raw: Raw) -> exp.Expr:
        mode = self._redaction.mode
        if not raw.is_event:
            return set_type(operation_node(RedactedText(mode), node), exp.DType.VARCHAR)
        if self._is_hidden(raw):
            return set_type(exp.Null(), exp.DType.VARIANT)
        if raw.kinds(self.records) == _ONLY_TEXT and not self._is_secret(raw):
            # Read as text directly: no test of the kind is needed, and the engine keeps such values as columns.
            return set_type(operation_node(RedactedEventText(mode), node), exp.DType.VARIANT)
        if self._is_secret(raw):
            may_be_record = bool(raw.kinds(self.records) & _RECORDS)
            return set_type(operation_node(RedactedSecret(mode, may_be_record), node), exp.DType.VARIANT)
        return set_type(operation_node(RedactedEvent(mode), node), exp.DType.VARIANT)

    def _is_secret(self, raw: Raw) -> bool:
        """Return whether the value is redacted because of its name, which would be lost if it were passed on raw."""
        return self._is_hidden(raw) or (raw.is_event and any(map(self._redaction.is_secret_name, raw.own_names)))

    def _is_shape(self, node: exp.Expr, raw: Raw) -> bool:
        """Return whether only the value's presence or kind is read, which reveals no text."""
        return _is_only_counted(node.parent) and not self._is_hidden(raw)

    def _is_textless(self, raw: Raw) -> bool:
        """Return whether only numbers and booleans were ever seen there; the places are recorded."""
        kinds = raw.kinds(self.records)
        is_textless = bool(kinds) and kinds <= _NO_TEXT and not self._is_hidden(raw)
        if is_textless:
            self.textless_paths |= dict.fromkeys(raw.places)
        return is_textless

    def _is_hidden(self, raw: Raw) -> bool:
        """Return whether a key on the value's path must be hidden; whether such a key exists would reveal the key."""
        return raw.is_event and any(map(self._redaction.hides, raw.names))


def _relations(select: exp.Select) -> Iterator[exp.Expr]:
    from_ = select.args.get("from_")
    if from_ is not None:
        yield from_.this
    yield from (join.this for join in select.args.get("joins") or [])


def _is_known(node: exp.Expr) -> bool:
    """Return whether it is a column qualified with its relation.

    Only columns of set operations and PIVOT may be unqualified: any other could refer to a raw column in the engine.
    """
    if not isinstance(node, exp.Column):
        return False
    return bool(node.table) or not isinstance(node.find_ancestor(exp.Pivot, exp.Query), exp.Select)


def _is_redacted(node: exp.Expr) -> bool:
    return has_operation(node, Redacted)


def _is_only_counted(reader: exp.Expr | None) -> bool:
    if isinstance(reader, exp.Is):
        return isinstance(reader.expression, exp.Null)
    return isinstance(reader, exp.Count) or is_record_test(reader)


def _renames(node: exp.Expr) -> bool:
    alias = node.args.get("alias")
    return bool(alias and alias.columns)


def _clauses(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the clauses of a SELECT other than its columns and relations."""
    for key, value in list(select.args.items()):
        if key not in ("expressions", "from_", "with_"):
            yield from (part for part in (value if isinstance(value, list) else [value]) if isinstance(part, exp.Expr))


# Clauses that read only their own expressions, in which every text is redacted. ORDER BY is checked by item. GROUP BY,
# DISTINCT and a kind (AS STRUCT) read the selected values, and clauses that are not listed might.
_APART: Final = frozenset(
    {"expressions", "from_", "with_", "joins", "where", "qualify", "windows", "limit", "offset", "order"}
)
# Expressions with these can be neither an ordinal nor the name of a column for any engine.
_OF_ROWS: Final = (exp.Column, exp.AggFunc, exp.Window, exp.Query)


def unread_places(select: exp.Select) -> frozenset[int]:
    """Return the positions, from 1, of selected values by which no clause of the SELECT sorts, groups or compares.

    A SELECT with a clause that is not known to read no selected value has no such position.
    """
    if any(value and key not in _APART for key, value in select.args.items()):
        return frozenset()
    order = select.args.get("order")
    places = frozenset(range(1, len(select.expressions) + 1))
    return _unsorted(places, [ordered.this for ordered in order.expressions]) if order is not None else places


def _unsorted(places: frozenset[int], keys: Sequence[exp.Expr]) -> frozenset[int]:
    """Return the positions to which no key refers; none if a key may refer to any."""
    sorted_by = [_place(key) for key in keys if not _is_of_rows(key)]
    return places.difference(sorted_by) if places.issuperset(sorted_by) else frozenset()


def _place(key: exp.Expr) -> int:
    """Return the ordinal of a key, which `resolve` leaves as a plain decimal number; 0 for any other key."""
    if not isinstance(key, exp.Literal) or key.is_string or not str(key.this).isdecimal():
        return 0
    number = int(key.this)
    return number if str(number) == key.this else 0


def _is_of_rows(key: exp.Expr) -> bool:
    """Return whether the key is computed from rows. An unqualified column may be the name of a selected value."""
    if isinstance(key, exp.Column):
        return bool(key.table)
    return key.find(*_OF_ROWS) is not None
