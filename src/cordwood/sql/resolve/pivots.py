"""Rewrite PIVOT as conditional aggregates, and UNPIVOT as a join with an array of structs."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.sql.budget import copied
from cordwood.sql.constants import constant_int, constant_text
from cordwood.sql.record_shapes import join_lineages
from cordwood.sql.resolve import names as of_names
from cordwood.sql.resolve.expressions import NameContext, resolve_expression
from cordwood.sql.resolve.resolution import CteScope, OutputColumn, Resolution
from cordwood.sql.scope import NO_LINEAGE, Field, Lineage, Relation, Scope, lineage_of


class Pivoted(msgspec.Struct):
    """A pivoted relation: the resolved query that PIVOT or UNPIVOT reads, under an alias."""

    resolution: Resolution
    ctes: CteScope
    inner: exp.Expr
    relation: Relation

    @property
    def context(self) -> NameContext:
        return NameContext(self.resolution, self.ctes, Scope(relations=[self.relation]))

    def resolve_copy(self, node: exp.Expr) -> exp.Expr:
        """Return a resolved copy of an expression over the relation's columns."""
        holder = exp.Paren(this=copied(node))
        resolve_expression(holder.this, self.context)
        value: exp.Expr = holder.this
        return value

    def select(self, items: Sequence[exp.Expr]) -> exp.Select:
        return exp.Select(expressions=list(items), from_=exp.From(this=self.inner))


def expand_pivot(pivoted: Pivoted, pivot: exp.Expr) -> tuple[exp.Select, list[OutputColumn]]:
    """Return the query that is equivalent to a PIVOT or an UNPIVOT, and its columns."""
    fields = pivot.args.get("fields") or []
    if len(fields) != 1 or not isinstance(fields[0], exp.In) or fields[0].find(exp.PivotAny):
        raise pivoted.resolution.unsupported(
            pivot, "This form of PIVOT", "Write PIVOT(aggregate FOR column IN (values))."
        )
    select = _values_to_rows(pivoted, pivot) if pivot.args.get("unpivot") else _rows_to_columns(pivoted, pivot)
    outputs = [OutputColumn(item.alias, lineage_of(item)) for item in select.expressions]
    return select, outputs


def _rows_to_columns(pivoted: Pivoted, pivot: exp.Expr) -> exp.Select:
    """Rewrite PIVOT as conditional aggregates, one for each value, grouped by the columns that they do not use."""
    key = pivoted.resolve_copy(pivot.args["fields"][0].this)
    calls = [
        (item.alias, pivoted.resolve_copy(_named_aggregate(pivoted.resolution, item))) for item in pivot.expressions
    ]
    used = {column.name.lower() for part in (key, *(call for _, call in calls)) for column in part.find_all(exp.Column)}
    group_fields = [field for field in pivoted.relation.fields.values() if field.name.lower() not in used]
    items = [_quoted_alias(field.expression(), field.name) for field in group_fields]
    for value, label in _pivot_values(pivoted.resolution, pivot):
        for prefix, call in calls:
            condition = _null_safe_equal(copied(key), pivoted.resolve_copy(value))
            name = f"{prefix}_{label}" if prefix else label
            items.append(_quoted_alias(_aggregate_where(pivoted.resolution, copied(call), condition), name))
    select = pivoted.select(items)
    if group_fields:
        select.set(
            "group", exp.Group(expressions=[exp.Literal.number(ordinal) for ordinal in range(1, len(group_fields) + 1)])
        )
    return select


def _named_aggregate(resolution: Resolution, item: exp.Expr) -> exp.Expr:
    call: exp.Expr = item.unalias()
    if not isinstance(call, exp.AggFunc):
        raise resolution.unsupported(item, "In PIVOT an expression that is no call of an aggregate")
    return call


def _pivot_values(resolution: Resolution, pivot: exp.Expr) -> Iterator[tuple[exp.Expr, str]]:
    for item in pivot.args["fields"][0].expressions:
        value = item.this if isinstance(item, exp.PivotAlias) else item
        if value.find(exp.Column, exp.Query):
            raise resolution.unsupported(item, "A value of PIVOT that is no constant")
        label = item.alias if isinstance(item, exp.PivotAlias) else label_of(value)
        if label is None:
            subject = "A value of PIVOT that is neither a text, a whole number, a truth nor a date, without a name,"
            raise resolution.unsupported(item, subject, "Write a name after it.")
        yield value, label


def label_of(value: exp.Expr) -> str | None:
    """Return the name that BigQuery gives to the column of a pivoted value; None if the value is not constant."""
    if isinstance(value, exp.Boolean):
        return "TRUE" if value.this else "FALSE"
    if isinstance(value, exp.Null):
        return "NULL"
    if isinstance(value, exp.Cast) and value.is_type(exp.DType.DATE):
        text = constant_text(value.this)
        return text and f"_{text.replace('-', '_')}"
    number = constant_int(value)
    if number is not None:
        return f"_minus_{-number}" if number < 0 else f"_{number}"
    return constant_text(value)


def _null_safe_equal(key: exp.Expr, value: exp.Expr) -> exp.Expr:
    if isinstance(value, exp.Null):
        return exp.Is(this=key, expression=value)
    return exp.EQ(this=key, expression=value)


# Aggregates that ignore NULL.
_NULL_IGNORING_AGGREGATES: Final = (
    *(exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Count, exp.CountIf, exp.AnyValue, exp.GroupConcat, exp.LogicalAnd),
    *(exp.LogicalOr, exp.Stddev, exp.StddevPop, exp.StddevSamp, exp.Variance, exp.VariancePop, exp.ApproxDistinct),
    *(exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg, exp.ArrayAgg, exp.ArgMax, exp.ArgMin),
)
_AGGREGATE_MODIFIERS: Final = (exp.Distinct, exp.Order, exp.Limit, exp.IgnoreNulls, exp.RespectNulls, exp.HavingMax)


def _aggregate_where(resolution: Resolution, call: exp.Expr, condition: exp.Expr) -> exp.Expr:
    """Return the aggregate over the rows that fulfil the condition.

    An aggregate that ignores NULL gets NULL as its argument for all other rows.
    """
    if not isinstance(call, _NULL_IGNORING_AGGREGATES) or call.find(exp.RespectNulls):
        raise resolution.unsupported(
            call, "In PIVOT an aggregate that does not leave NULL out", "Write a query with GROUP BY."
        )
    if isinstance(call, (exp.ArgMax, exp.ArgMin)):
        call.set("expression", exp.If(this=condition, true=copied(call.expression)))
        return call
    argument = call.this
    while isinstance(argument, _AGGREGATE_MODIFIERS):
        argument = argument.expressions[0] if isinstance(argument, exp.Distinct) else argument.this
    if argument is None or isinstance(argument, exp.Star):
        call.set("this", exp.If(this=condition, true=exp.Literal.number(1)))
        return call
    argument.replace(exp.If(this=condition, true=copied(argument)))
    return exp.IgnoreNulls(this=call) if isinstance(call, exp.ArrayAgg) and not call.find(exp.IgnoreNulls) else call


def _values_to_rows(pivoted: Pivoted, pivot: exp.Expr) -> exp.Select:
    """Rewrite UNPIVOT: each row once for every group of columns, with their values and the group's name."""
    values = [value.name for value in _tuple_parts(pivot.expressions[0])]
    name = pivot.args["fields"][0].this.name
    groups = [_columns_of(pivoted, item) for item in pivot.args["fields"][0].expressions]
    if any(len(columns) != len(values) for columns, _ in groups):
        raise pivoted.resolution.unsupported(pivot, "UNPIVOT into another number of columns than it takes")
    alias = exp.to_identifier(pivoted.resolution.unique_name("_unpivoted"), quoted=True)
    lineages = [_join_lineages([columns[position].lineage for columns, _ in groups]) for position in range(len(values))]
    value_columns = [_unnested_field(alias, value, lineage) for value, lineage in zip(values, lineages, strict=True)]
    items = [_quoted_alias(field.expression(), field.name) for field in _ungrouped_fields(pivoted, groups)]
    items += [_quoted_alias(value, value_name) for value, value_name in zip(value_columns, values, strict=True)]
    select = pivoted.select([*items, _quoted_alias(_unnested_field(alias, name, NO_LINEAGE), name)])
    select.set("joins", [exp.Join(this=_unnest_groups(groups, values, name, alias), kind="CROSS")])
    if not pivot.args.get("include_nulls"):
        null_tests = [exp.Is(this=copied(value), expression=exp.Null()) for value in value_columns]
        select.set("where", exp.Where(this=exp.Not(this=exp.Paren(this=exp.and_(*null_tests, copy=False)))))
    return select


def _ungrouped_fields(pivoted: Pivoted, groups: Sequence[tuple[list[Field], exp.Expr]]) -> list[Field]:
    """Return the fields of the relation that are in no group."""
    used = {field.name.lower() for columns, _ in groups for field in columns}
    return [field for field in pivoted.relation.fields.values() if field.name.lower() not in used]


def _unnest_groups(
    groups: Sequence[tuple[list[Field], exp.Expr]], values: Sequence[str], name: str, alias: exp.Identifier
) -> exp.Unnest:
    """Return UNNEST of one struct for each group: the group's columns under the names of `values`, and its label."""
    rows = [
        _struct_literal([*zip(values, (field.expression() for field in columns), strict=True), (name, label)])
        for columns, label in groups
    ]
    table = exp.TableAlias(this=copied(alias), columns=[copied(alias)])
    return exp.Unnest(expressions=[exp.Array(expressions=rows)], alias=table, offset=False)


def _columns_of(pivoted: Pivoted, item: exp.Expr) -> tuple[list[Field], exp.Expr]:
    """Return the columns of a group, and its label."""
    columns = _tuple_parts(item.this if isinstance(item, exp.PivotAlias) else item)
    fields = [_column_of(pivoted, column) for column in columns]
    label = item.args["alias"] if isinstance(item, exp.PivotAlias) else None
    if isinstance(label, exp.Literal):
        return fields, copied(label)
    return fields, exp.Literal.string(label.name if label is not None else "_".join(field.name for field in fields))


def _column_of(pivoted: Pivoted, column: exp.Expr) -> Field:
    name = column.this if isinstance(column, exp.Column) else column
    field = pivoted.relation.fields.get(name.name.lower()) if isinstance(name, exp.Identifier) else None
    if field is None or column.args.get("table") is not None:
        identifier = name if isinstance(name, exp.Identifier) else exp.to_identifier(column.sql("bigquery"))
        raise of_names.unknown_name_error(pivoted.resolution, [identifier], pivoted.context.scope)
    return field


def _tuple_parts(node: exp.Expr) -> list[exp.Expr]:
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def _struct_literal(fields: Sequence[tuple[str, exp.Expr]]) -> exp.Expr:
    parts = [exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value) for name, value in fields]
    return exp.Struct(expressions=parts)


def _unnested_field(relation: exp.Expr, name: str, lineage: Lineage) -> exp.Expr:
    row = exp.Column(this=copied(relation), table=copied(relation))
    dot = exp.Dot(this=row, expression=exp.to_identifier(name, quoted=True))
    dot.meta["lineage"] = lineage
    return dot


def _join_lineages(lineages: Sequence[Lineage]) -> Lineage:
    return join_lineages(lineages) if lineages and all(lineage.is_event for lineage in lineages) else NO_LINEAGE


def _quoted_alias(value: exp.Expr, name: str) -> exp.Expr:
    return exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True))
