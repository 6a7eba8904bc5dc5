"""Type inference: find BigQuery's type of every expression in a tree, by scopes in which names have types."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.budget import charge_nodes
from cordwood.sql.datatypes import (
    BIGNUMERIC,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    EVENT_NUMBER,
    FLOAT64,
    INT64,
    INTERVAL,
    JSON,
    NUMERIC,
    RESULT_TYPE_BY_FUNCTION_NAME,
    RESULT_TYPE_BY_NODE_CLASS,
    STRING,
    TIME,
    TIMESTAMP,
    VARIANT,
    array_of,
    common_stored_type,
    common_type,
    datatype_of,
    datatype_of_type_node,
    field_type,
    kind_of,
    set_datatype,
    struct_of,
)
from cordwood.sql.nodes import (
    OPERATION_ARGUMENT_KEY,
    EventValueElements,
    IsObjectTest,
    Operation,
    PathRead,
    RedactedEvent,
    RedactedEventText,
    RedactedSecret,
    RedactedText,
)

TypedColumns = list[tuple[str, Datatype | None]]


class TypedRelation(msgspec.Struct):
    """The names and types of a relation's columns, in order.

    If the rows of the relation are single values, `row_value_type` is the type of these values.
    """

    columns: TypedColumns
    row_value_type: Datatype | None = None

    def column_type(self, name: str) -> Datatype | None:
        return next((datatype for column, datatype in self.columns if column.lower() == name), None)

    def has_column(self, name: str) -> bool:
        return any(column.lower() == name for column, _ in self.columns)

    def row_type(self) -> Datatype:
        return self.row_value_type or struct_of(self.columns)


class TypeScope(msgspec.Struct):
    """The scope of one FROM: its relations by alias, the visible CTEs, and the enclosing scope."""

    ctes: Mapping[str, TypedRelation] = msgspec.field(default_factory=dict)
    parent: "TypeScope | None" = None
    relations: dict[str, TypedRelation] = msgspec.field(default_factory=dict)

    def column_type(self, name: str, table: str) -> Datatype | None:
        datatype = self._own_column_type(name, table)
        return datatype or (self.parent.column_type(name, table) if self.parent else None)

    def _own_column_type(self, name: str, table: str) -> Datatype | None:
        if table:
            relation = self.relations.get(table)
            if relation is None:
                base = self._own_column_type(table, "")
                return field_type(base, name)
            return relation.column_type(name)
        for relation in self.relations.values():
            if relation.has_column(name):
                return relation.column_type(name)
        relation_row = self.relations.get(name)
        return relation_row.row_type() if relation_row else None


# The metadata key for the column types of the two sides of a set operation.
SET_OPERATION_TYPES_METADATA_KEY: Final = "sides"


def annotate_types(tree: exp.Expr) -> TypedRelation:
    """Store the type of every expression of a statement on its node; return the types of the statement's columns."""
    return _annotate_query(tree, TypeScope())


def _annotate_query(node: exp.Expr, outer: TypeScope) -> TypedRelation:
    charge_nodes()
    scope = TypeScope(ctes=_annotate_ctes(node, outer), parent=outer)
    if isinstance(node, exp.Select):
        return _annotate_select(node, scope)
    if isinstance(node, exp.SetOperation):
        return _annotate_set_operation(node, scope)
    if isinstance(node, exp.Subquery):
        inner = _annotate_query(node.this, scope)
        _annotate_modifiers(node, TypeScope(scope.ctes, outer, {"": inner}))
        return inner
    if isinstance(node, exp.Table):
        return _annotate_relation(node, scope)
    return TypedRelation([])


def _annotate_ctes(node: exp.Expr, outer: TypeScope) -> dict[str, TypedRelation]:
    ctes = dict(outer.ctes)
    with_ = node.args.get("with_")
    for cte in with_.expressions if with_ else ():
        if with_ is not None and with_.args.get("recursive"):
            ctes[cte.alias.lower()] = _recursive_cte_columns(cte, TypeScope(ctes, outer.parent))
        ctes[cte.alias.lower()] = _rename_columns(_annotate_query(cte.this, TypeScope(ctes, outer)), cte)
    return ctes


def _recursive_cte_columns(cte: exp.Expr, scope: TypeScope) -> TypedRelation:
    """Return the column types of a recursive CTE, which are those of its first branch."""
    body = cte.this
    while isinstance(body, (exp.SetOperation, exp.Subquery, exp.Paren)):
        body = body.this
    return _rename_columns(_annotate_query(body, scope), cte)


def _rename_columns(relation: TypedRelation, node: exp.Expr) -> TypedRelation:
    names = [column.name for column in (node.args["alias"].columns if node.args.get("alias") else ())]
    if not names:
        return relation
    return TypedRelation([(name, datatype) for name, (_, datatype) in zip(names, relation.columns, strict=False)])


def _annotate_set_operation(node: exp.Expr, scope: TypeScope) -> TypedRelation:
    left, right = _annotate_query(node.this, scope), _annotate_query(node.expression, scope)
    columns: TypedColumns = list(left.columns)
    if len(left.columns) == len(right.columns):
        columns = [
            (name, common_stored_type((left_type, right_type)))
            for (name, left_type), (_, right_type) in zip(left.columns, right.columns, strict=True)
        ]
    result = TypedRelation(columns, common_stored_type((left.row_value_type, right.row_value_type)))
    node.meta[SET_OPERATION_TYPES_METADATA_KEY] = [
        tuple(datatype for _, datatype in side.columns) for side in (left, right)
    ]
    node.meta["columns"] = tuple(datatype for _, datatype in columns)
    _annotate_modifiers(node, TypeScope(scope.ctes, scope.parent, {"": result}))
    return result


def _annotate_select(node: exp.Expr, scope: TypeScope) -> TypedRelation:
    _add_sources(node, scope)
    columns = [column for item in node.expressions for column in _annotate_projection(item, scope)]
    alias_scope = _scope_with_aliases(scope, columns)
    for part in node.iter_expressions():
        if part.arg_key not in _CLAUSES_ANNOTATED_BEFORE_ALIASES:
            _annotate_expression(part, alias_scope)
    return _relation_of_select_as(node.args["kind"], columns) if node.args.get("kind") else TypedRelation(columns)


# Clauses that are annotated first, because select aliases are not visible in them.
_CLAUSES_ANNOTATED_BEFORE_ALIASES: Final = frozenset(("expressions", "from_", "joins", "with_", "laterals"))


def _relation_of_select_as(kind: str, columns: TypedColumns) -> TypedRelation:
    """Return the columns of a SELECT AS STRUCT or SELECT AS VALUE, and the type of the values that are its rows."""
    value = columns[0][1] if kind == "VALUE" and columns else struct_of(columns)
    return TypedRelation(list(value.fields) if value and value.kind is Kind.STRUCT else columns, value)


def _scope_with_aliases(scope: TypeScope, columns: TypedColumns) -> TypeScope:
    """Return a scope for the clauses in which select aliases are visible, such as ORDER BY."""
    return TypeScope(
        scope.ctes, TypeScope(scope.ctes, scope.parent, {"": TypedRelation(columns)}), dict(scope.relations)
    )


def _annotate_modifiers(node: exp.Expr, scope: TypeScope) -> None:
    for key in ("order", "limit", "offset"):
        if node.args.get(key):
            _annotate_expression(node.args[key], scope)


def _add_sources(node: exp.Expr, scope: TypeScope) -> None:
    from_ = node.args.get("from_")
    if from_ is not None:
        _add_source(from_.this, scope)
    for join in (*node.args.get("joins", ()), *node.args.get("laterals", ())):
        _add_source(join.this, scope)
        if join.args.get("on"):
            _annotate_expression(join.args["on"], scope)


def _add_source(node: exp.Expr, scope: TypeScope) -> None:
    relation = _annotate_relation(node, scope)
    scope.relations[_relation_name(node, scope)] = relation
    for join in node.args.get("joins") or ():
        _add_source(join.this, scope)
        if join.args.get("on"):
            _annotate_expression(join.args["on"], scope)


def _relation_name(node: exp.Expr, scope: TypeScope) -> str:
    alias = node.args.get("alias")
    if isinstance(node, exp.Unnest) and alias is not None and not alias.name and alias.columns:
        return str(alias.columns[0].name).lower()
    return (node.alias or (node.name if isinstance(node, exp.Table) else "")).lower() or f"#{len(scope.relations)}"


def _annotate_relation(node: exp.Expr, scope: TypeScope) -> TypedRelation:
    if isinstance(node, exp.Unnest):
        return _annotate_unnest(node, scope)
    if isinstance(node, exp.Subquery):
        if isinstance(node.this, (exp.Table, exp.Unnest)):
            _add_source(node.this, scope)
            return TypedRelation([])
        inner_scope = TypeScope(scope.ctes, scope) if scope.relations else scope
        return _rename_columns(_annotate_query(node.this, TypeScope(inner_scope.ctes, scope)), node)
    if isinstance(node, exp.Table):
        return scope.ctes.get(node.name.lower(), TypedRelation([])) if not node.db else TypedRelation([])
    return TypedRelation([])


def _annotate_unnest(node: exp.Expr, scope: TypeScope) -> TypedRelation:
    array = node.expressions[0]
    _annotate_expression(array, scope)
    datatype = datatype_of(array)
    element = datatype.element if datatype and datatype.kind is Kind.ARRAY else datatype
    alias = node.args.get("alias") or exp.TableAlias()
    names = ["", *(column.name for column in alias.columns)]
    columns: TypedColumns = [*(element.fields if element else ()), (names[-1], element)]
    offset = node.args.get("offset")
    if isinstance(offset, exp.Expr):
        columns.append((offset.name, INT64))
    return TypedRelation(columns, element)


def _annotate_projection(item: exp.Expr, scope: TypeScope) -> TypedColumns:
    if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
        return _expand_star(item, scope)
    datatype = _annotate_expression(item, scope)
    if isinstance(item, exp.Dot) and isinstance(item.expression, exp.Star):
        base = datatype_of(item.this)
        return list(base.fields) if base else []
    return [(item.alias_or_name, datatype)]


def _expand_star(item: exp.Expr, scope: TypeScope) -> TypedColumns:
    table = item.text("table").lower() if isinstance(item, exp.Column) else ""
    star = item.this if isinstance(item, exp.Column) else item
    excluded = {name.name.lower() for name in star.args.get("except_") or ()}
    relations = [relation for name, relation in scope.relations.items() if table in ("", name)]
    return [column for relation in relations for column in relation.columns if column[0].lower() not in excluded]


def _annotate_expression(node: exp.Expr, scope: TypeScope) -> Datatype | None:
    """Store the types of an expression and of its children, children first; return the expression's type."""
    charge_nodes()
    if isinstance(node, exp.Query):
        return _annotate_scalar_query(node, scope)
    if isinstance(node, exp.Column):
        return _store_type(node, _column_type(node, scope))
    for part in node.iter_expressions():
        if not isinstance(part, (exp.Identifier, exp.DataType, exp.Var)):
            _annotate_expression(part, scope)
    return _store_type(node, _result_type(node))


def _column_type(node: exp.Expr, scope: TypeScope) -> Datatype | None:
    stored = datatype_of_type_node(node.type)
    if stored is not None:
        return stored
    if isinstance(node.this, exp.Star):
        return None
    return scope.column_type(node.name.lower(), node.text("table").lower())


def _annotate_scalar_query(node: exp.Expr, scope: TypeScope) -> Datatype | None:
    """Store the types in a query that is used as a value; return the type of the value.

    The value is the query's only column or, with AS STRUCT or AS VALUE, its row.
    """
    relation = _annotate_query(node, TypeScope(scope.ctes, scope))
    datatype = relation.row_value_type or (relation.columns[0][1] if relation.columns else None)
    return _store_type(node, datatype)


def _store_type(node: exp.Expr, datatype: Datatype | None) -> Datatype | None:
    set_datatype(node, datatype)
    return datatype


TypeRule = Callable[[exp.Expr], Datatype | None]


def _result_type(node: exp.Expr) -> Datatype | None:
    """Return the type of a node's result; the types of its operands must already be stored."""
    fixed = RESULT_TYPE_BY_NODE_CLASS.get(type(node))
    if fixed is not None:
        return fixed
    rule = _RULE_BY_NODE_CLASS.get(type(node))
    return rule(node) if rule else None


def _first_operand_type(node: exp.Expr) -> Datatype | None:
    return datatype_of(node.this) if isinstance(node.this, exp.Expr) else None


def _literal_type(node: exp.Expr) -> Datatype | None:
    if node.is_string:
        return STRING
    text = str(node.this).lower()
    return INT64 if text.isdecimal() or text.startswith("0x") else FLOAT64


def _operand_types(node: exp.Expr) -> tuple[Datatype | None, Datatype | None]:
    return _first_operand_type(node), datatype_of(node.expression)


def _arithmetic_type(node: exp.Expr) -> Datatype | None:
    left, right = _operand_types(node)
    if INTERVAL in (left, right):
        return _time_plus_interval_type(left, right)
    if DATE in (left, right) and any(side is not None and _may_be_day_count(side) for side in (left, right)):
        return DATE
    if left == right and left in _TIME_TYPES:
        return INTERVAL
    return _numeric_or_float_type(common_type((left, right)))


def _may_be_day_count(datatype: Datatype) -> bool:
    return datatype in (INT64, VARIANT) or datatype.is_event_number


_TIME_TYPES: Final = (DATE, DATETIME, TIMESTAMP, TIME)


def _time_plus_interval_type(left: Datatype | None, right: Datatype | None) -> Datatype | None:
    """Return the type of a time plus or minus an interval: the type of the time, but DATETIME for a DATE."""
    time_type = right if left and left.kind is Kind.INTERVAL else left
    if time_type is not None and time_type.kind is Kind.DATE:
        return DATETIME
    return INTERVAL if time_type is None or time_type.kind is Kind.INT64 else time_type


def _numeric_or_float_type(datatype: Datatype | None) -> Datatype | None:
    if datatype == VARIANT:
        return EVENT_NUMBER
    return FLOAT64 if datatype is not None and datatype.kind in (Kind.STRING, Kind.JSON) else datatype


def _division_type(node: exp.Expr) -> Datatype | None:
    datatype = common_type(_operand_types(node))
    if datatype is not None and datatype.kind is Kind.INTERVAL:
        return INTERVAL
    return datatype if datatype in (NUMERIC, BIGNUMERIC) else FLOAT64


def _float_unless_numeric_type(node: exp.Expr) -> Datatype | None:
    """Return the type of ROUND, AVG etc.: the argument's type if NUMERIC, BIGNUMERIC or INTERVAL, else FLOAT64."""
    datatype = _aggregate_argument_type(node)
    return datatype if datatype in (NUMERIC, BIGNUMERIC, INTERVAL) else FLOAT64


def _aggregate_argument_type(node: exp.Expr) -> Datatype | None:
    """Return the type of an aggregate's argument, without modifiers such as DISTINCT and ORDER BY."""
    inner = node.this
    while isinstance(inner, (exp.Order, exp.Limit, exp.HavingMax, exp.IgnoreNulls, exp.RespectNulls)):
        inner = inner.this
    if isinstance(inner, exp.Distinct):
        return datatype_of(inner.expressions[0])
    return datatype_of(inner) if isinstance(inner, exp.Expr) else None


def _sum_type(node: exp.Expr) -> Datatype | None:
    return _numeric_or_float_type(_aggregate_argument_type(node))


def _array_of_argument_type(node: exp.Expr) -> Datatype | None:
    return array_of(_aggregate_argument_type(node))


def _case_type(node: exp.Expr) -> Datatype | None:
    ifs = [datatype_of(branch.args.get("true")) for branch in node.args["ifs"]]
    return common_type([*ifs, datatype_of(node.args.get("default"))])


def _if_type(node: exp.Expr) -> Datatype | None:
    return common_type((datatype_of(node.args.get("true")), datatype_of(node.args.get("false"))))


def _common_argument_type(node: exp.Expr) -> Datatype | None:
    return common_type([_first_operand_type(node), *(datatype_of(item) for item in node.expressions)])


def _array_type(node: exp.Expr) -> Datatype | None:
    return array_of(common_stored_type(datatype_of(item) for item in node.expressions))


def _struct_type(node: exp.Expr) -> Datatype | None:
    return struct_of(map(_struct_field_type, node.expressions))


def _struct_field_type(item: exp.Expr) -> tuple[str, Datatype | None]:
    if isinstance(item, exp.PropertyEQ):
        return item.name, datatype_of(item.expression)
    name = item.name if isinstance(item, (exp.Column, exp.Dot)) else item.alias
    return name, datatype_of(item)


def _bitwise_type(node: exp.Expr) -> Datatype | None:
    """Return the type of a bitwise operation: the type of its first operand, but INT64 for a number from an event."""
    datatype = _first_operand_type(node)
    return INT64 if datatype is not None and (datatype == VARIANT or datatype.is_event_number) else datatype


def _subscript_type(node: exp.Expr) -> Datatype | None:
    base = _first_operand_type(node)
    return base.element if base and base.kind is Kind.ARRAY else base if base in (JSON, VARIANT) else None


def _field_type(node: exp.Expr) -> Datatype | None:
    return field_type(_first_operand_type(node), node.expression.name) if node.expression else None


def _cast_type(node: exp.Expr) -> Datatype | None:
    return datatype_of_type_node(node.args.get("to"))


def _text_or_bytes_type(node: exp.Expr) -> Datatype | None:
    datatype = _aggregate_argument_type(node)
    return BYTES if datatype == BYTES else STRING


def _concat_type(node: exp.Expr) -> Datatype | None:
    return BYTES if node.expressions and kind_of(node.expressions[0]) is Kind.BYTES else STRING


def _concat_operator_type(node: exp.Expr) -> Datatype | None:
    left, right = _operand_types(node)
    if left is not None and left.kind in (Kind.ARRAY, Kind.BYTES):
        return left
    return right if right is not None and right.kind in (Kind.ARRAY, Kind.BYTES) else STRING


def _json_extract_type(node: exp.Expr) -> Datatype | None:
    return JSON if _first_operand_type(node) == JSON else STRING


def _json_array_type(node: exp.Expr) -> Datatype | None:
    return array_of(JSON if _first_operand_type(node) == JSON else STRING)


def _to_json_type(node: exp.Expr) -> Datatype | None:
    return JSON if node.args.get("to_json") else STRING


def _approx_top_type(node: exp.Expr) -> Datatype | None:
    name = "count" if isinstance(node, exp.ApproxTopK) else "sum"
    weight = INT64 if isinstance(node, exp.ApproxTopK) else datatype_of(node.expression)
    return array_of(struct_of([("value", _aggregate_argument_type(node)), (name, weight)]))


def _generated_array_type(node: exp.Expr) -> Datatype | None:
    return array_of(common_type(datatype_of(node.args.get(key)) for key in ("start", "end", "step")))


def _named_function_type(node: exp.Expr) -> Datatype | None:
    operation = node.args.get(OPERATION_ARGUMENT_KEY)
    return (
        RESULT_TYPE_BY_FUNCTION_NAME.get(str(node.this).upper())
        if operation is None
        else _TYPE_BY_OPERATION[type(operation)]
    )


_TYPE_BY_OPERATION: Final[Mapping[type[Operation], Datatype]] = {
    **dict.fromkeys((PathRead, RedactedEvent, RedactedEventText, RedactedSecret), VARIANT),
    RedactedText: STRING,
    EventValueElements: array_of(VARIANT),
    IsObjectTest: BOOL,
}


def _parameter_type(node: exp.Expr) -> Datatype | None:
    return datatype_of_type_node(node.type) or STRING


def _element_type(node: exp.Expr) -> Datatype | None:
    base = _first_operand_type(node)
    return base.element if base else None


def _array_or_array_query_type(node: exp.Expr) -> Datatype | None:
    items = node.expressions
    if len(items) == 1 and isinstance(items[0], exp.Query):
        return array_of(datatype_of(items[0]))
    return _array_type(node)


def _numeric_or_float_operand_type(node: exp.Expr) -> Datatype | None:
    return _numeric_or_float_type(_first_operand_type(node))


def _extract_type(node: exp.Expr) -> Datatype | None:
    return {"DATE": DATE, "TIME": TIME, "DATETIME": DATETIME}.get(node.this.name.upper(), INT64)


def _float_or_numeric_type(node: exp.Expr) -> Datatype | None:
    datatype = common_type(_operand_types(node))
    return datatype if datatype in (NUMERIC, BIGNUMERIC) else FLOAT64


def _int_unless_numeric_type(node: exp.Expr) -> Datatype | None:
    datatype = common_type(_operand_types(node))
    return datatype if datatype in (NUMERIC, BIGNUMERIC) else INT64


def _tuple_type(node: exp.Expr) -> Datatype | None:
    return struct_of(("", datatype_of(item)) for item in node.expressions)


_TIME_TYPE_BY_FUNCTION_CLASS: Final[dict[type[exp.Expr], Datatype]] = {
    exp.TimestampTrunc: TIMESTAMP,
    exp.TimestampAdd: TIMESTAMP,
    exp.TimestampSub: TIMESTAMP,
    exp.DatetimeTrunc: DATETIME,
    exp.DatetimeAdd: DATETIME,
    exp.DatetimeSub: DATETIME,
    exp.DateTrunc: DATE,
    exp.DateAdd: DATE,
    exp.DateSub: DATE,
    exp.TimeTrunc: TIME,
    exp.TimeAdd: TIME,
    exp.TimeSub: TIME,
}
# Functions whose result has the type in their name, DATETIME or TIMESTAMP, even if the argument is a DATE.
_DATE_CONVERTING_FUNCTIONS: Final = (exp.DatetimeAdd, exp.DatetimeSub, exp.TimestampAdd, exp.TimestampSub)


def _time_arithmetic_type(node: exp.Expr) -> Datatype | None:
    datatype = datatype_of(node.this)
    if (
        datatype is None
        or datatype not in _TIME_TYPES
        or (datatype == DATE and isinstance(node, _DATE_CONVERTING_FUNCTIONS))
    ):
        return _TIME_TYPE_BY_FUNCTION_CLASS[type(node)]
    return datatype


_RULE_BY_NODE_CLASS: Final[dict[type[exp.Expr], TypeRule]] = {
    exp.Literal: _literal_type,
    exp.Anonymous: _named_function_type,
    exp.AnonymousAggFunc: _named_function_type,
    exp.Parameter: _parameter_type,
    exp.Cast: _cast_type,
    exp.TryCast: _cast_type,
    exp.Struct: _struct_type,
    exp.Tuple: _tuple_type,
    exp.IntDiv: _int_unless_numeric_type,
    exp.Array: _array_or_array_query_type,
    exp.Bracket: _subscript_type,
    exp.Dot: _field_type,
    exp.Case: _case_type,
    exp.If: _if_type,
    exp.Concat: _concat_type,
    exp.DPipe: _concat_operator_type,
    exp.Div: _division_type,
    exp.SafeDivide: _division_type,
    exp.Nullif: _first_operand_type,
    exp.ApproxTopK: _approx_top_type,
    exp.ApproxTopSum: _approx_top_type,
    exp.GenerateSeries: _generated_array_type,
    exp.JSONExtract: _json_extract_type,
    exp.JSONExtractArray: _json_array_type,
    exp.JSONFormat: _to_json_type,
    exp.ArrayConcatAgg: _aggregate_argument_type,
    exp.ArrayConcat: _common_argument_type,
    exp.ArrayFirst: _element_type,
    exp.ArrayLast: _element_type,
    exp.Interval: lambda _: INTERVAL,
    exp.MakeInterval: lambda _: INTERVAL,
    exp.JustifyInterval: lambda _: INTERVAL,
    exp.JustifyDays: lambda _: INTERVAL,
    exp.JustifyHours: lambda _: INTERVAL,
    exp.Neg: _numeric_or_float_operand_type,
    exp.Abs: _numeric_or_float_operand_type,
    exp.Sign: _numeric_or_float_operand_type,
    exp.SafeNegate: _numeric_or_float_operand_type,
    exp.Split: lambda node: array_of(BYTES if _first_operand_type(node) == BYTES else STRING),
    exp.Pow: _float_or_numeric_type,
    exp.Log: _float_or_numeric_type,
    exp.PercentileCont: _float_or_numeric_type,
    exp.IgnoreNulls: _first_operand_type,
    exp.RespectNulls: _first_operand_type,
    exp.Window: _first_operand_type,
    exp.Filter: _first_operand_type,
    exp.Extract: _extract_type,
    **dict.fromkeys(
        (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.SafeAdd, exp.SafeSubtract, exp.SafeMultiply), _arithmetic_type
    ),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift), _bitwise_type),
    exp.BitwiseRightShift: _bitwise_type,
    **dict.fromkeys((exp.Ceil, exp.Floor, exp.Round, exp.Trunc, exp.Avg), _float_unless_numeric_type),
    exp.Sum: _sum_type,
    **dict.fromkeys(
        (exp.Min, exp.Max, exp.AnyValue, exp.PercentileDisc, exp.ArgMax, exp.ArgMin),
        _aggregate_argument_type,
    ),
    **dict.fromkeys((exp.FirstValue, exp.LastValue, exp.NthValue), _aggregate_argument_type),
    **dict.fromkeys(
        (exp.Lead, exp.Lag),
        lambda node: common_type((_aggregate_argument_type(node), datatype_of(node.args.get("default")))),
    ),
    **dict.fromkeys((exp.ArrayAgg, exp.ApproxQuantiles), _array_of_argument_type),
    **dict.fromkeys((exp.ArrayReverse, exp.ArraySlice, exp.Subquery, exp.Paren, exp.Alias), _first_operand_type),
    **dict.fromkeys(
        (exp.SafeFunc, exp.NetFunc, exp.AtTimeZone, exp.Order, exp.Limit, exp.Ordered, exp.HavingMax),
        _first_operand_type,
    ),
    exp.Distinct: lambda node: datatype_of(node.expressions[0]) if node.expressions else None,
    **dict.fromkeys((exp.Coalesce, exp.Greatest, exp.Least), _common_argument_type),
    **dict.fromkeys(
        (exp.Lower, exp.Upper, exp.Left, exp.Right, exp.Substring, exp.Reverse, exp.Repeat, exp.Replace, exp.Pad),
        _text_or_bytes_type,
    ),
    **dict.fromkeys(
        (exp.Trim, exp.RegexpExtract, exp.RegexpReplace, exp.Translate, exp.GroupConcat), _text_or_bytes_type
    ),
    **dict.fromkeys(_TIME_TYPE_BY_FUNCTION_CLASS, _time_arithmetic_type),
}
