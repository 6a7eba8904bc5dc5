"""The map of an event's attributes: the event's paths to which a key may refer, by the shape of the stream."""

from collections.abc import Iterator
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.template import fill
from cordwood.clickhouse_sql.values import STRING, Value, text_value
from cordwood.model.shape import MAX_STEPS
from cordwood.sql.nodes import internal
from cordwood.sql.record_shapes import RecordShapes, lineage_below
from cordwood.sql.scope import Lineage, Origin

METADATA: Final = "metadata"
EXTRAS: Final = "extras"

# The limit on paths for one key; keys with dots in them give several.
_MOST_PATHS: Final = 8
# Keys that are columns of the table, and therefore not attributes.
_COLUMNS: Final = frozenset({"id", "event_message", "timestamp"})

_SEVERITIES: Final = (
    (EXTRAS, "severity_text"),
    (EXTRAS, "severityText"),
    (METADATA, "level"),
    (EXTRAS, "level"),
    (METADATA, "parsed.error_severity"),
)
_NO_SEVERITY: Final = "INFO"


class Attributes(msgspec.Struct):
    """The attributes of a sub-query's events, read from its columns `metadata` and `extras`."""

    stream: str
    records: RecordShapes
    table: str
    has_own_project: bool = True

    def value(self, key: str) -> Value:
        """Return the text of an attribute, empty if it is missing.

        Top-level keys of the event take precedence over those of metadata.
        """
        parts = [self._text(EXTRAS, steps) for steps in self._paths(EXTRAS, key)]
        own = next(iter(_first_keys(key)), key)
        if key == "project" and self.has_own_project:
            parts.append(self._column("project"))
        hidden = self._may_lie_at_top(key)
        for steps in self._paths(METADATA, key):
            text = self._text(METADATA, steps)
            if hidden and own != "project":
                top = self._path(EXTRAS, (steps[0],))
                text = fill("if(@top is null, @text, null)", top=top, text=text)
            parts.append(text)
        if key == METADATA:
            parts.append(internal("attribute_scalar", self._column(METADATA)))
        if not parts:
            return text_value("")
        node = parts[0] if len(parts) == 1 else exp.Coalesce(this=parts[0], expressions=parts[1:])
        if len(parts) > 1:
            node.meta["bigquery_name"] = "COALESCE"
        return Value(node, STRING, default="")

    def severity(self) -> Value:
        texts = [
            fill("nullif(@text, '')", text=self._text(place, steps))
            for place, key in _SEVERITIES
            for steps in self._paths(place, key)
        ]
        if not texts:
            return text_value(_NO_SEVERITY)
        node = exp.Coalesce(this=texts[0], expressions=[*texts[1:], exp.Literal.string(_NO_SEVERITY)])
        node.meta["bigquery_name"] = "COALESCE"
        return Value(internal("upper", node), STRING)

    def document(self, name: str) -> exp.Expr:
        """Return the JSON of a part of the event; for the project its text, if it is an attribute."""
        if name != "project":
            return internal("json_text", self._column(name))
        return self._column("project") if self.has_own_project else fill("cast(null as string)")

    def levels(self) -> int:
        """Return the maximum nesting of objects in the events, up to the limit to which they are flattened."""
        found = [self.records.depth(self._lineage(place)) for place in (METADATA, EXTRAS)]
        return max((MAX_STEPS if depth is None else depth for depth in found), default=1)

    def _lineage(self, place: str) -> Lineage:
        path = () if place == EXTRAS else (place,)
        return Lineage(origins=frozenset({Origin(self.stream, path)}))

    def _may_lie_at_top(self, key: str) -> bool:
        top = self._lineage(EXTRAS)
        return any(self._may_be(lineage_below(top, (first,))) for first in _first_keys(key))

    def _may_be(self, lineage: Lineage) -> bool:
        return self.records.kinds(lineage) != frozenset()

    def _paths(self, place: str, key: str) -> list[tuple[str, ...]]:
        if place == EXTRAS and key in _COLUMNS:
            return []
        lineage = self._lineage(place)
        plain = tuple(key.split("."))
        if len(plain) > MAX_STEPS:
            # The whole map is only flattened to this depth, too.
            return []
        paths = [plain] if "" not in plain and self._may_be(lineage_below(lineage, plain)) else []
        for steps in self._dotted(lineage, key, ()):
            if len(paths) >= _MOST_PATHS:
                break
            if steps not in paths and self._may_be(lineage_below(lineage, steps)):
                paths.append(steps)
        return paths

    def _dotted(self, lineage: Lineage, rest: str, before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield the splits of the rest of a dotted key into keys that were seen."""
        if len(before) >= MAX_STEPS:
            return
        for known in self.records.keys_within(lineage, rest):
            if known == rest:
                yield (*before, known)
            else:
                yield from self._dotted(lineage_below(lineage, (known,)), rest[len(known) + 1 :], (*before, known))

    def _text(self, place: str, steps: tuple[str, ...]) -> exp.Expr:
        return internal("attribute", self._path(place, steps))

    def _path(self, place: str, steps: tuple[str, ...]) -> exp.Expr:
        node: exp.Expr = self._column(place)
        for step in steps:
            node = exp.Dot(this=node, expression=exp.to_identifier(step, quoted=True))
        return node

    def _column(self, name: str) -> exp.Expr:
        table = exp.to_identifier(self.table, quoted=True)
        return exp.Column(this=exp.to_identifier(name, quoted=True), table=table)


def _first_keys(key: str) -> Iterator[str]:
    """Yield the top-level keys of an event that may contain this one."""
    steps = key.split(".")
    for length in range(1, min(len(steps), MAX_STEPS) + 1):
        yield ".".join(steps[:length])
