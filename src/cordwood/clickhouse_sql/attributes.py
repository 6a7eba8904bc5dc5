"""The map of an event's attributes: by a stream's shape, find the event's paths to which a key may refer."""

from collections.abc import Iterator
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.values import STRING, Value, fill, text_value
from cordwood.model.shape import MAX_STEPS
from cordwood.sql.nodes import internal
from cordwood.sql.record_shapes import RecordShapes, lineage_below
from cordwood.sql.scope import Lineage, Origin

METADATA_COLUMN: Final = "metadata"
EXTRAS_COLUMN: Final = "extras"

# The limit on paths for one key; a key with dots may refer to several paths.
_MAX_PATHS: Final = 8
# Keys that are columns of the table, and therefore not attributes.
_TABLE_COLUMNS: Final = frozenset({"id", "event_message", "timestamp"})

_SEVERITY_TEMPLATES: Final = (
    (EXTRAS_COLUMN, "severity_text"),
    (EXTRAS_COLUMN, "severityText"),
    (METADATA_COLUMN, "level"),
    (EXTRAS_COLUMN, "level"),
    (METADATA_COLUMN, "parsed.error_severity"),
)
_DEFAULT_SEVERITY: Final = "INFO"


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
        parts = [self._attribute_text(EXTRAS_COLUMN, steps) for steps in self._paths(EXTRAS_COLUMN, key)]
        first_key = next(iter(_possible_top_level_keys(key)), key)
        if key == "project" and self.has_own_project:
            parts.append(self._column_node("project"))
        may_be_shadowed = self._may_be_top_level(key)
        for steps in self._paths(METADATA_COLUMN, key):
            text = self._attribute_text(METADATA_COLUMN, steps)
            if may_be_shadowed and first_key != "project":
                top = self._path_node(EXTRAS_COLUMN, (steps[0],))
                text = fill("if(@top is null, @text, null)", top=top, text=text)
            parts.append(text)
        if key == METADATA_COLUMN:
            parts.append(internal("attribute_scalar", self._column_node(METADATA_COLUMN)))
        if not parts:
            return text_value("")
        node = parts[0] if len(parts) == 1 else exp.Coalesce(this=parts[0], expressions=parts[1:])
        if len(parts) > 1:
            node.meta["bigquery_name"] = "COALESCE"
        return Value(node, STRING, default="")

    def severity(self) -> Value:
        texts = [
            fill("nullif(@text, '')", text=self._attribute_text(column, steps))
            for column, key in _SEVERITY_TEMPLATES
            for steps in self._paths(column, key)
        ]
        if not texts:
            return text_value(_DEFAULT_SEVERITY)
        node = exp.Coalesce(this=texts[0], expressions=[*texts[1:], exp.Literal.string(_DEFAULT_SEVERITY)])
        node.meta["bigquery_name"] = "COALESCE"
        return Value(internal("upper", node), STRING)

    def document(self, name: str) -> exp.Expr:
        """Return the JSON of the event's column `name`; for the project its text, if it is an attribute."""
        if name != "project":
            return internal("json_text", self._column_node(name))
        return self._column_node("project") if self.has_own_project else fill("cast(null as string)")

    def levels(self) -> int:
        """Return the maximum nesting of objects in the events, up to the limit to which they are flattened."""
        depths = [self.records.depth(self._column_lineage(column)) for column in (METADATA_COLUMN, EXTRAS_COLUMN)]
        return max((MAX_STEPS if depth is None else depth for depth in depths), default=1)

    def _column_lineage(self, column: str) -> Lineage:
        path = () if column == EXTRAS_COLUMN else (column,)
        return Lineage(origins=frozenset({Origin(self.stream, path)}))

    def _may_be_top_level(self, key: str) -> bool:
        top = self._column_lineage(EXTRAS_COLUMN)
        return any(self._may_exist(lineage_below(top, (first,))) for first in _possible_top_level_keys(key))

    def _may_exist(self, lineage: Lineage) -> bool:
        return self.records.kinds(lineage) != frozenset()

    def _paths(self, column: str, key: str) -> list[tuple[str, ...]]:
        if column == EXTRAS_COLUMN and key in _TABLE_COLUMNS:
            return []
        lineage = self._column_lineage(column)
        steps_of_key = tuple(key.split("."))
        if len(steps_of_key) > MAX_STEPS:
            # Stop at this depth, because the whole map is flattened to this depth, too.
            return []
        paths = (
            [steps_of_key] if "" not in steps_of_key and self._may_exist(lineage_below(lineage, steps_of_key)) else []
        )
        for steps in self._split_by_seen_keys(lineage, key, ()):
            if len(paths) >= _MAX_PATHS:
                break
            if steps not in paths and self._may_exist(lineage_below(lineage, steps)):
                paths.append(steps)
        return paths

    def _split_by_seen_keys(
        self, lineage: Lineage, remaining_key: str, prefix: tuple[str, ...]
    ) -> Iterator[tuple[str, ...]]:
        """Yield the splits of the rest of a dotted key into keys that were seen."""
        if len(prefix) >= MAX_STEPS:
            return
        for seen_key in self.records.keys_within(lineage, remaining_key):
            if seen_key == remaining_key:
                yield (*prefix, seen_key)
            else:
                yield from self._split_by_seen_keys(
                    lineage_below(lineage, (seen_key,)), remaining_key[len(seen_key) + 1 :], (*prefix, seen_key)
                )

    def _attribute_text(self, column: str, steps: tuple[str, ...]) -> exp.Expr:
        return internal("attribute", self._path_node(column, steps))

    def _path_node(self, column: str, steps: tuple[str, ...]) -> exp.Expr:
        node: exp.Expr = self._column_node(column)
        for step in steps:
            node = exp.Dot(this=node, expression=exp.to_identifier(step, quoted=True))
        return node

    def _column_node(self, name: str) -> exp.Expr:
        table = exp.to_identifier(self.table, quoted=True)
        return exp.Column(this=exp.to_identifier(name, quoted=True), table=table)


def _possible_top_level_keys(key: str) -> Iterator[str]:
    """Yield the top-level keys of an event under which this dotted key may be."""
    steps = key.split(".")
    for length in range(1, min(len(steps), MAX_STEPS) + 1):
        yield ".".join(steps[:length])
