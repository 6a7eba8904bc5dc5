"""The sources of a query's columns: sub-queries of the endpoint with events' attributes, derived tables, and unions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.values import (
    DATETIME64,
    INT,
    STRING,
    ClickHouseType,
    TypedValue,
    fill_template,
    text_value,
)
from cordwood.model.event import MAX_LISTED_PATH_STEPS
from cordwood.sql.budget import charge_nodes, copy_tree
from cordwood.sql.nodes import internal_call, internal_function_name
from cordwood.sql.record_shapes import RecordingShapeReader, lineage_below
from cordwood.sql.scope import Lineage, ValueOrigin

METADATA_COLUMN: Final = "metadata"
EXTRAS_COLUMN: Final = "extras"
# The column of the table of logs with the map of all attributes.
LOG_ATTRIBUTES_COLUMN: Final = "log_attributes"

# The maximum number of paths in events that are read for one key of `log_attributes`. A key with dots, such as `a.b`,
# may refer to several paths: the key `b` in the object `a`, and the key `a.b` itself.
_MAX_PATHS_PER_KEY: Final = 8
# Top-level keys of an event that are columns of the table, and therefore not attributes.
_NON_ATTRIBUTE_KEYS: Final = frozenset({"id", "event_message", "timestamp"})

_SEVERITY_PATHS: Final = (
    (EXTRAS_COLUMN, "severity_text"),
    (EXTRAS_COLUMN, "severityText"),
    (METADATA_COLUMN, "level"),
    (EXTRAS_COLUMN, "level"),
    (METADATA_COLUMN, "parsed.error_severity"),
)
_DEFAULT_SEVERITY: Final = "INFO"


class StreamAttributes(msgspec.Struct):
    """The attributes of the events in a sub-query, which are read from its columns `metadata` and `extras`.

    An attribute is the text of a field. It has a key with dots, such as `request.path`, as in ClickHouse's map
    `log_attributes`.
    """

    stream: str
    shape_reader: RecordingShapeReader
    table_alias: str
    has_top_level_project: bool = True

    def attribute_value(self, key: str) -> TypedValue:
        """Return the text of the attribute `key`, which is empty if an event does not have the attribute.

        If a top-level key of the event and a key of `metadata` are equal, the top-level key is read. The key `b` in an
        object `a` takes precedence over the key `a.b`. In the map of all attributes, the same keys take precedence.
        """
        parts = [self._attribute_text(EXTRAS_COLUMN, steps) for steps in self._possible_paths(EXTRAS_COLUMN, key)]
        if key == "project" and self.has_top_level_project:
            parts.append(self._column_node("project"))
        for steps in self._possible_paths(METADATA_COLUMN, key):
            text = self._attribute_text(METADATA_COLUMN, steps)
            top = self._top_level_value(steps[0])
            parts.append(text if top is None else fill_template("if(@top is null, @text, null)", top=top, text=text))
        if key == METADATA_COLUMN:
            parts.append(internal_call("attribute_scalar", self._column_node(METADATA_COLUMN)))
        if not parts:
            return text_value("")
        node = parts[0] if len(parts) == 1 else exp.Coalesce(this=parts[0], expressions=parts[1:])
        if len(parts) > 1:
            node.meta["bigquery_name"] = "COALESCE"
        return TypedValue(node, STRING, default_for_null="")

    def severity_value(self) -> TypedValue:
        texts = [
            fill_template("nullif(@text, '')", text=self._attribute_text(column, steps))
            for column, key in _SEVERITY_PATHS
            for steps in self._possible_paths(column, key)
        ]
        if not texts:
            return text_value(_DEFAULT_SEVERITY)
        node = exp.Coalesce(this=texts[0], expressions=[*texts[1:], exp.Literal.string(_DEFAULT_SEVERITY)])
        node.meta["bigquery_name"] = "COALESCE"
        return TypedValue(internal_call("upper", node), STRING)

    def json_of_column(self, name: str) -> exp.Expr:
        """Return the JSON of the event's column `name`, from which attributes are computed.

        The column `project` is a text and not JSON: return it as it is, or NULL if the stream's events do not have it.
        """
        if name != "project":
            return internal_call("json_text", self._column_node(name))
        return self._column_node("project") if self.has_top_level_project else fill_template("cast(null as string)")

    def max_nesting_depth(self) -> int:
        """Return how deeply objects are nested in the events, but at most the depth to which objects are flattened."""
        depths = [self.shape_reader.depth(self._column_lineage(column)) for column in (METADATA_COLUMN, EXTRAS_COLUMN)]
        return max((MAX_LISTED_PATH_STEPS if depth is None else depth for depth in depths), default=1)

    def _column_lineage(self, column: str) -> Lineage:
        path = () if column == EXTRAS_COLUMN else (column,)
        return Lineage(origins=frozenset({ValueOrigin(self.stream, path)}))

    def _top_level_value(self, key: str) -> exp.Expr | None:
        """Return the value of an event's top-level key, which hides this key of `metadata`; None if no event has it."""
        if key == "project" and self.has_top_level_project:
            return self._column_node("project")
        may_have_values = self._may_have_values(lineage_below(self._column_lineage(EXTRAS_COLUMN), (key,)))
        return self._path_node(EXTRAS_COLUMN, (key,)) if may_have_values else None

    def _may_have_values(self, lineage: Lineage) -> bool:
        return self.shape_reader.kinds(lineage) != frozenset()

    def _possible_paths(self, column: str, key: str) -> list[tuple[str, ...]]:
        if column == EXTRAS_COLUMN and key in _NON_ATTRIBUTE_KEYS:
            return []
        lineage = self._column_lineage(column)
        steps_of_key = tuple(key.split("."))
        if len(steps_of_key) > MAX_LISTED_PATH_STEPS:
            # A key with more than `MAX_LISTED_PATH_STEPS` steps has no path. The map of all attributes also flattens
            # objects only down to this depth.
            return []
        paths = (
            [steps_of_key]
            if "" not in steps_of_key and self._may_have_values(lineage_below(lineage, steps_of_key))
            else []
        )
        for steps in self._split_key_by_seen_keys(lineage, key, ()):
            if len(paths) >= _MAX_PATHS_PER_KEY:
                break
            if steps not in paths and self._may_have_values(lineage_below(lineage, steps)):
                paths.append(steps)
        return paths

    def _split_key_by_seen_keys(
        self, lineage: Lineage, remaining_key: str, prefix: tuple[str, ...]
    ) -> Iterator[tuple[str, ...]]:
        """Yield each way to split a key with dots into keys of nested objects, as far as such keys were seen in events.

        `prefix` are the keys that were already split off, and `remaining_key` is what is left of the key.
        """
        if len(prefix) >= MAX_LISTED_PATH_STEPS:
            return
        for seen_key in self.shape_reader.keys_starting_dotted_name(lineage, remaining_key):
            if seen_key == remaining_key:
                yield (*prefix, seen_key)
            else:
                yield from self._split_key_by_seen_keys(
                    lineage_below(lineage, (seen_key,)), remaining_key[len(seen_key) + 1 :], (*prefix, seen_key)
                )

    def _attribute_text(self, column: str, steps: tuple[str, ...]) -> exp.Expr:
        return internal_call("attribute", self._path_node(column, steps))

    def _path_node(self, column: str, steps: tuple[str, ...]) -> exp.Expr:
        node: exp.Expr = self._column_node(column)
        for step in steps:
            node = exp.Dot(this=node, expression=exp.to_identifier(step, quoted=True))
        return node

    def _column_node(self, name: str) -> exp.Expr:
        table = exp.to_identifier(self.table_alias, quoted=True)
        return exp.Column(this=exp.to_identifier(name, quoted=True), table=table)


# The name of the table of logs in a query.
LOGS_TABLE_NAME: Final = "logs"
# The alias of the relation in FROM in each SELECT of a translated tree. No column of a SELECT may have this name: in
# BigQuery, the alias of a column hides that of a relation in ORDER BY and HAVING.
ROWS_ALIAS: Final = "$rows"


class AttributeForm(StrEnum):
    """The form in which a query reads all attributes of an event at once."""

    MAP = internal_function_name("attributes")
    KEYS = internal_function_name("attribute_keys")
    VALUES = internal_function_name("attribute_values")


class RowValueReference(msgspec.Struct, frozen=True):
    """A value that an expression reads from a row: a column, one attribute, all attributes, or another expression."""

    reference_kind: str
    name: str


def column_reference(name: str) -> RowValueReference:
    return RowValueReference("column", name)


def attribute_reference(key: str) -> RowValueReference:
    return RowValueReference("attribute", key)


_JSON_COLUMNS: Final = ("metadata", "extras", "project")
_MAX_DEPTH_REFERENCE: Final = RowValueReference("levels", "")


def all_attributes(row: "RowScope", form: AttributeForm) -> exp.Expr | None:
    """Return an expression for all attributes of an event; return None if the rows are not events.

    The attributes are computed from the JSON of the event's columns. The branches of a union return only this JSON, so
    that the SQL contains the computation once and not in each branch.
    """
    values = [row.resolve_reference(RowValueReference("document", name)) for name in _JSON_COLUMNS]
    documents = [value.node for value in values if value is not None]
    levels = row.resolve_reference(_MAX_DEPTH_REFERENCE)
    if levels is None or len(documents) < len(values):
        return None
    return exp.Anonymous(this=str(form), expressions=[*documents, levels.node])


ARRAY_ELEMENT_REFERENCE_KIND: Final = "element"


def array_element_reference(node: exp.Expr) -> RowValueReference:
    """Return the reference to the array element that the arrayJoin `node` returns in the current row.

    The module `select` has stored the array's number on the node of the arrayJoin.
    """
    return RowValueReference(ARRAY_ELEMENT_REFERENCE_KIND, str(node.meta_get(ARRAY_ELEMENT_REFERENCE_KIND)))


class RowScope(Protocol):
    """The columns that an expression may read."""

    @property
    def has_attributes(self) -> bool:
        """Whether the rows are events, which have attributes."""
        ...

    def resolve_reference(self, item: RowValueReference) -> TypedValue | None:
        """Return the value of `item`, which refers to a column or another value; None if the rows do not have it."""
        ...


class RowSource(RowScope, Protocol):
    """The source of the rows of one SELECT in the translated tree."""

    def build_relation(self) -> exp.Expr:
        """Return the relation for FROM, which has all columns that calls of `resolve_reference` have returned.

        The translator calls this method once, after it has called `resolve_reference` for everything that the SELECT
        reads.
        """
        ...


def column_node(name: str, *, table: str = ROWS_ALIAS) -> exp.Expr:
    return exp.Column(this=exp.to_identifier(name, quoted=True), table=exp.to_identifier(table, quoted=True))


def named_table(name: str) -> exp.Expr:
    alias = exp.TableAlias(this=exp.to_identifier(ROWS_ALIAS, quoted=True))
    return exp.Table(this=exp.to_identifier(name, quoted=True), alias=alias)


def derived_table(query: exp.Expr) -> exp.Expr:
    alias = exp.TableAlias(this=exp.to_identifier(ROWS_ALIAS, quoted=True))
    return exp.Subquery(this=query, alias=alias)


_TEXT_COLUMNS: Final = ("event_message", "project")


class SubQueryBranch(msgspec.Struct):
    """The rows of one sub-query of the endpoint, which are the events of one stream."""

    source_name: str
    sub_query: str
    attributes: StreamAttributes

    @property
    def has_attributes(self) -> bool:
        return True

    def resolve_reference(self, item: RowValueReference) -> TypedValue | None:
        if item.reference_kind == "attribute":
            return self.attributes.attribute_value(item.name)
        if item.reference_kind == "document":
            return TypedValue(self.attributes.json_of_column(item.name), STRING.as_nullable())
        if item == _MAX_DEPTH_REFERENCE:
            levels = self.attributes.max_nesting_depth()
            return TypedValue(exp.Literal.number(levels), INT, constant_value=levels)
        if item.name == "source":
            return text_value(self.source_name)
        if item.name == "timestamp":
            return TypedValue(column_node("timestamp"), DATETIME64)
        if item.name == "id":
            return TypedValue(column_node("id"), STRING)
        if item.name == "severity_text":
            return self.attributes.severity_value()
        return TypedValue(column_node(item.name), STRING, default_for_null="") if item.name in _TEXT_COLUMNS else None

    def build_relation(self) -> exp.Expr:
        return named_table(self.sub_query)


class DerivedTableBranch(msgspec.Struct):
    """The rows of a derived table, which is a query in FROM or in WITH."""

    query: exp.Expr
    value_by_column: Mapping[str, TypedValue]

    @property
    def has_attributes(self) -> bool:
        return False

    def resolve_reference(self, item: RowValueReference) -> TypedValue | None:
        column_value = self.value_by_column.get(item.name) if item.reference_kind == "column" else None
        return None if column_value is None else copy_value(column_value)

    def build_relation(self) -> exp.Expr:
        return derived_table(self.query)


def copy_value(value: TypedValue) -> TypedValue:
    return msgspec.structs.replace(value, node=copy_tree(value.node))


class FilteredBranch(msgspec.Struct):
    """A branch of a union: its rows, the condition that selects some of them, and the ORDER BY of its SELECT."""

    row_source: RowSource
    where_condition: exp.Expr | None = None
    order_by: exp.Expr | None = None


class UnionRows(msgspec.Struct):
    """The rows of a UNION ALL of several branches.

    Every value that is read from the rows becomes a column of each branch's SELECT. Only these SELECTs can read paths
    of events.
    """

    filtered_branches: Sequence[FilteredBranch]
    translate_expression: Callable[[RowScope, str], TypedValue]
    branch_row_limit: int | None = None
    requested_values: dict[RowValueReference, TypedValue] = msgspec.field(default_factory=dict)
    branch_nodes_by_column: list[list[exp.Expr]] = msgspec.field(default_factory=list)

    @property
    def has_attributes(self) -> bool:
        return all(filtered.row_source.has_attributes for filtered in self.filtered_branches)

    def resolve_reference(self, item: RowValueReference) -> TypedValue | None:
        requested = self.requested_values.get(item)
        if requested is None:
            requested = self._value_of_reference(item)
            if requested is None:
                return None
            self.requested_values[item] = requested
        return copy_value(requested)

    def _value_of_reference(self, item: RowValueReference) -> TypedValue | None:
        branch_values = [self._branch_value(filtered.row_source, item) for filtered in self.filtered_branches]
        values = [value for value in branch_values if value is not None]
        if len(values) < len(branch_values):
            return None
        if item == _MAX_DEPTH_REFERENCE:
            return max(values, key=lambda value: int(str(value.constant_value)))
        return self._add_values_to_branches(
            _replace_missing_attributes_by_null(values) if item.reference_kind == "attribute" else values
        )

    def _add_values_to_branches(self, values: list[TypedValue]) -> TypedValue:
        """Add a value to the SELECT of each branch; return the column of the union that has these values."""
        first = values[0]
        self.branch_nodes_by_column.append([value.node for value in values])
        charge_nodes(len(values))
        constant = (
            first.constant_value
            if len(values) == 1 or all(_have_equal_constants(first, value) for value in values)
            else None
        )
        node = column_node(f"c{len(self.branch_nodes_by_column)}")
        default = next((value.default_for_null for value in values if value.default_for_null is not None), None)
        if constant is not None and first.is_constant:
            return TypedValue(node, first.type, constant_value=first.constant_value, default_for_null=default)
        return TypedValue(node, first.type, default_for_null=default)

    def _branch_value(self, branch: RowSource, item: RowValueReference) -> TypedValue | None:
        return (
            self.translate_expression(branch, item.name)
            if item.reference_kind == "expression"
            else branch.resolve_reference(item)
        )

    def build_relation(self) -> exp.Expr:
        """Return a derived table: the union that has one SELECT for each branch."""
        selects = [self._select_branch(index, filtered) for index, filtered in enumerate(self.filtered_branches)]
        tree = selects[0]
        for select in selects[1:]:
            tree = exp.Union(this=tree, expression=select, distinct=False)
        return derived_table(tree)

    def _select_branch(self, index: int, filtered: FilteredBranch) -> exp.Expr:
        items: list[exp.Expr] = [
            exp.Alias(this=nodes[index], alias=exp.to_identifier(f"c{number}", quoted=True))
            for number, nodes in enumerate(self.branch_nodes_by_column, 1)
        ]
        if not items:
            items = [exp.Alias(this=exp.Literal.number(1), alias=exp.to_identifier("c0", quoted=True))]
        select = exp.Select(expressions=items, from_=exp.From(this=filtered.row_source.build_relation()))
        if filtered.where_condition is not None:
            select.set("where", exp.Where(this=filtered.where_condition))
        if self.branch_row_limit is None:
            return select
        if filtered.order_by is not None:
            select.set("order", filtered.order_by)
        select.set("limit", exp.Limit(expression=exp.Literal.number(self.branch_row_limit)))
        return exp.Subquery(this=select) if len(self.filtered_branches) > 1 else select


def _replace_missing_attributes_by_null(values: list[TypedValue]) -> list[TypedValue]:
    """Return an attribute's value for each branch: NULL for a branch in which no event ever had the attribute.

    An empty text in place of NULL would make mapContains report that the attribute exists. If no branch ever had the
    attribute, the values are returned unchanged.
    """
    if all(value.is_constant for value in values):
        return values
    missing = TypedValue(fill_template("cast(null as string)"), STRING, default_for_null="")
    return [copy_value(missing) if value.is_constant else value for value in values]


def _have_equal_constants(first: TypedValue, second: TypedValue) -> bool:
    return first.is_constant and second.is_constant and first.constant_value == second.constant_value


class ArrayJoinedRows(msgspec.Struct):
    """The rows of a union, repeated for each element of the arrays that arrayJoin calls read."""

    union_rows: UnionRows
    arrays: Sequence[TypedValue]
    requested_values: dict[RowValueReference, TypedValue] = msgspec.field(default_factory=dict)
    select_items: list[exp.Expr] = msgspec.field(default_factory=list)

    @property
    def has_attributes(self) -> bool:
        return self.union_rows.has_attributes

    def resolve_reference(self, item: RowValueReference) -> TypedValue | None:
        if item == _MAX_DEPTH_REFERENCE:
            return self.union_rows.resolve_reference(item)
        if item not in self.requested_values:
            source_value = (
                self._array_element(item.name)
                if item.reference_kind == ARRAY_ELEMENT_REFERENCE_KIND
                else self.union_rows.resolve_reference(item)
            )
            if source_value is None:
                return None
            name = f"j{len(self.select_items) + 1}"
            self.select_items.append(exp.Alias(this=source_value.node, alias=exp.to_identifier(name, quoted=True)))
            self.requested_values[item] = msgspec.structs.replace(source_value, node=column_node(name))
        return copy_value(self.requested_values[item])

    def _array_element(self, name: str) -> TypedValue:
        element: ClickHouseType = self.arrays[int(name)].type.element_type or STRING
        node = exp.Column(this=exp.to_identifier(f"e{name}", quoted=True))
        return TypedValue(node, element)

    def build_relation(self) -> exp.Expr:
        items = self.select_items or [exp.Alias(this=exp.Literal.number(1), alias=exp.to_identifier("c0", quoted=True))]
        select = exp.Select(expressions=items, from_=exp.From(this=self.union_rows.build_relation()))
        joins = [
            exp.Join(this=_make_unnest(array.node, f"e{index}"), kind="CROSS")
            for index, array in enumerate(self.arrays)
        ]
        select.set("joins", joins)
        return derived_table(select)


def _make_unnest(array: exp.Expr, name: str) -> exp.Expr:
    alias = exp.TableAlias(columns=[exp.to_identifier(name, quoted=True)])
    return exp.Unnest(expressions=[array], alias=alias, offset=False)
