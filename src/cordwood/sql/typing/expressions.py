"""The result types of expressions, by the types of their operands."""

from collections.abc import Callable, Mapping
from typing import Final

from sqlglot import exp

from cordwood.model.datatype import Datatype, Kind
from cordwood.sql.operations import (
    OPERATION_KEY,
    Operation,
    PathRead,
    RecordElements,
    RecordTest,
    RedactedEvent,
    RedactedEventText,
    RedactedSecret,
    RedactedText,
)
from cordwood.sql.typing.datatypes import (
    BIGNUMERIC,
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    INTERVAL,
    JSON,
    NUMERIC,
    STRING,
    TIME,
    TIMESTAMP,
    VARIANT,
    array_of,
    common_type,
    datatype_of,
    field_of,
    kind_of,
    struct_of,
    type_in_tree,
)
from cordwood.sql.typing.signatures import RESULT_BY_NAME, RESULT_BY_NODE

TypeRule = Callable[[exp.Expr], Datatype | None]


def result_of(node: exp.Expr) -> Datatype | None:
    """Return the type of a node whose children are annotated."""
    fixed = RESULT_BY_NODE.get(type(node))
    if fixed is not None:
        return fixed
    rule = _RULE_BY_NODE_CLASS.get(type(node))
    return rule(node) if rule else None


def _type_of_operand(node: exp.Expr) -> Datatype | None:
    return datatype_of(node.this) if isinstance(node.this, exp.Expr) else None


def _literal_type(node: exp.Expr) -> Datatype | None:
    if node.is_string:
        return STRING
    text = str(node.this).lower()
    return INT64 if text.isdecimal() or text.startswith("0x") else FLOAT64


def _operand_types(node: exp.Expr) -> tuple[Datatype | None, Datatype | None]:
    return _type_of_operand(node), datatype_of(node.expression)


def _arithmetic_type(node: exp.Expr) -> Datatype | None:
    left, right = _operand_types(node)
    if INTERVAL in (left, right):
        return _time_plus_interval_type(left, right)
    if DATE in (left, right) and INT64 in (left, right):
        return DATE
    if left == right and left in _TIME_TYPES:
        return INTERVAL
    return _numeric_or_float(common_type((left, right)))


_TIME_TYPES: Final = (DATE, DATETIME, TIMESTAMP, TIME)


def _time_plus_interval_type(left: Datatype | None, right: Datatype | None) -> Datatype | None:
    """Return the type of a time plus an interval: the time's own type, but DATETIME for a date."""
    time_type = right if left and left.kind is Kind.INTERVAL else left
    if time_type is not None and time_type.kind is Kind.DATE:
        return DATETIME
    return INTERVAL if time_type is None or time_type.kind is Kind.INT64 else time_type


def _numeric_or_float(datatype: Datatype | None) -> Datatype | None:
    return FLOAT64 if datatype is not None and datatype.kind in (Kind.VARIANT, Kind.STRING, Kind.JSON) else datatype


def _division_type(node: exp.Expr) -> Datatype | None:
    datatype = common_type(_operand_types(node))
    if datatype is not None and datatype.kind is Kind.INTERVAL:
        return INTERVAL
    return datatype if datatype in (NUMERIC, BIGNUMERIC) else FLOAT64


def _float_unless_numeric(node: exp.Expr) -> Datatype | None:
    """Return the type of ROUND, FLOOR, AVG and the like: FLOAT64 for integers, otherwise the argument's type."""
    datatype = _argument_type(node)
    return datatype if datatype in (NUMERIC, BIGNUMERIC, INTERVAL) else FLOAT64


def _argument_type(node: exp.Expr) -> Datatype | None:
    """Return the type of an aggregate's argument, ignoring its modifiers."""
    inner = node.this
    while isinstance(inner, (exp.Order, exp.Limit, exp.HavingMax, exp.IgnoreNulls, exp.RespectNulls)):
        inner = inner.this
    if isinstance(inner, exp.Distinct):
        return datatype_of(inner.expressions[0])
    return datatype_of(inner) if isinstance(inner, exp.Expr) else None


def _sum_type(node: exp.Expr) -> Datatype | None:
    return _numeric_or_float(_argument_type(node))


def _array_of_argument_type(node: exp.Expr) -> Datatype | None:
    return array_of(_argument_type(node))


def _case_type(node: exp.Expr) -> Datatype | None:
    ifs = [datatype_of(branch.args.get("true")) for branch in node.args["ifs"]]
    return common_type([*ifs, datatype_of(node.args.get("default"))])


def _if_type(node: exp.Expr) -> Datatype | None:
    return common_type((datatype_of(node.args.get("true")), datatype_of(node.args.get("false"))))


def _common_argument_type(node: exp.Expr) -> Datatype | None:
    return common_type([_type_of_operand(node), *(datatype_of(item) for item in node.expressions)])


def _array_type(node: exp.Expr) -> Datatype | None:
    return array_of(common_type(datatype_of(item) for item in node.expressions))


def _struct_type(node: exp.Expr) -> Datatype | None:
    return struct_of(map(_struct_field_type, node.expressions))


def _struct_field_type(item: exp.Expr) -> tuple[str, Datatype | None]:
    if isinstance(item, exp.PropertyEQ):
        return item.name, datatype_of(item.expression)
    name = item.name if isinstance(item, (exp.Column, exp.Dot)) else item.alias
    return name, datatype_of(item)


def _subscript_type(node: exp.Expr) -> Datatype | None:
    base = _type_of_operand(node)
    return base.element if base and base.kind is Kind.ARRAY else base if base in (JSON, VARIANT) else None


def _field_type(node: exp.Expr) -> Datatype | None:
    return field_of(_type_of_operand(node), node.expression.name) if node.expression else None


def _cast_type(node: exp.Expr) -> Datatype | None:
    return type_in_tree(node.args.get("to"))


def _text_or_bytes_type(node: exp.Expr) -> Datatype | None:
    datatype = _argument_type(node)
    return BYTES if datatype == BYTES else STRING


def _concat_type(node: exp.Expr) -> Datatype | None:
    return BYTES if node.expressions and kind_of(node.expressions[0]) is Kind.BYTES else STRING


def _concat_operator_type(node: exp.Expr) -> Datatype | None:
    left, right = _operand_types(node)
    if left is not None and left.kind in (Kind.ARRAY, Kind.BYTES):
        return left
    return right if right is not None and right.kind in (Kind.ARRAY, Kind.BYTES) else STRING


def _json_extract_type(node: exp.Expr) -> Datatype | None:
    return JSON if _type_of_operand(node) == JSON else STRING


def _json_array_type(node: exp.Expr) -> Datatype | None:
    return array_of(JSON if _type_of_operand(node) == JSON else STRING)


def _to_json_type(node: exp.Expr) -> Datatype | None:
    return JSON if node.args.get("to_json") else STRING


def _approx_top_type(node: exp.Expr) -> Datatype | None:
    name = "count" if isinstance(node, exp.ApproxTopK) else "sum"
    weight = INT64 if isinstance(node, exp.ApproxTopK) else datatype_of(node.expression)
    return array_of(struct_of([("value", _argument_type(node)), (name, weight)]))


def _generated_array_type(node: exp.Expr) -> Datatype | None:
    return array_of(common_type(datatype_of(node.args.get(key)) for key in ("start", "end", "step")))


def _function_by_name_type(node: exp.Expr) -> Datatype | None:
    operation = node.args.get(OPERATION_KEY)
    return RESULT_BY_NAME.get(str(node.this).upper()) if operation is None else _TYPE_BY_OPERATION[type(operation)]


_TYPE_BY_OPERATION: Final[Mapping[type[Operation], Datatype]] = {
    **dict.fromkeys((PathRead, RedactedEvent, RedactedEventText, RedactedSecret), VARIANT),
    RedactedText: STRING,
    RecordElements: array_of(VARIANT),
    RecordTest: BOOL,
}


def _parameter_type(node: exp.Expr) -> Datatype | None:
    return type_in_tree(node.type) or STRING


def _element_type(node: exp.Expr) -> Datatype | None:
    base = _type_of_operand(node)
    return base.element if base else None


def _array_or_array_query_type(node: exp.Expr) -> Datatype | None:
    items = node.expressions
    if len(items) == 1 and isinstance(items[0], exp.Query):
        return array_of(datatype_of(items[0]))
    return _array_type(node)


def _number_type(node: exp.Expr) -> Datatype | None:
    return _numeric_or_float(_type_of_operand(node))


def _extract_type(node: exp.Expr) -> Datatype | None:
    return {"DATE": DATE, "TIME": TIME, "DATETIME": DATETIME}.get(node.this.name.upper(), INT64)


def _float_or_numeric(node: exp.Expr) -> Datatype | None:
    datatype = common_type(_operand_types(node))
    return datatype if datatype in (NUMERIC, BIGNUMERIC) else FLOAT64


def _int_unless_numeric(node: exp.Expr) -> Datatype | None:
    datatype = common_type(_operand_types(node))
    return datatype if datatype in (NUMERIC, BIGNUMERIC) else INT64


def _tuple_type(node: exp.Expr) -> Datatype | None:
    return struct_of(("", datatype_of(item)) for item in node.expressions)


_TYPE_IN_FUNCTION_NAME: Final[dict[type[exp.Expr], Datatype]] = {
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
# Functions that convert a DATE to the DATETIME or TIMESTAMP in their name.
_DATE_CONVERTING_FUNCTIONS: Final = (exp.DatetimeAdd, exp.DatetimeSub, exp.TimestampAdd, exp.TimestampSub)


def _time_arithmetic_type(node: exp.Expr) -> Datatype | None:
    datatype = datatype_of(node.this)
    if (
        datatype is None
        or datatype not in _TIME_TYPES
        or (datatype == DATE and isinstance(node, _DATE_CONVERTING_FUNCTIONS))
    ):
        return _TYPE_IN_FUNCTION_NAME[type(node)]
    return datatype


_RULE_BY_NODE_CLASS: Final[dict[type[exp.Expr], TypeRule]] = {
    exp.Literal: _literal_type,
    exp.Anonymous: _function_by_name_type,
    exp.AnonymousAggFunc: _function_by_name_type,
    exp.Parameter: _parameter_type,
    exp.Cast: _cast_type,
    exp.TryCast: _cast_type,
    exp.Struct: _struct_type,
    exp.Tuple: _tuple_type,
    exp.IntDiv: _int_unless_numeric,
    exp.Array: _array_or_array_query_type,
    exp.Bracket: _subscript_type,
    exp.Dot: _field_type,
    exp.Case: _case_type,
    exp.If: _if_type,
    exp.Concat: _concat_type,
    exp.DPipe: _concat_operator_type,
    exp.Div: _division_type,
    exp.SafeDivide: _division_type,
    exp.Nullif: _type_of_operand,
    exp.ApproxTopK: _approx_top_type,
    exp.ApproxTopSum: _approx_top_type,
    exp.GenerateSeries: _generated_array_type,
    exp.JSONExtract: _json_extract_type,
    exp.JSONExtractArray: _json_array_type,
    exp.JSONFormat: _to_json_type,
    exp.ArrayConcatAgg: _argument_type,
    exp.ArrayConcat: _common_argument_type,
    exp.ArrayFirst: _element_type,
    exp.ArrayLast: _element_type,
    exp.Interval: lambda _: INTERVAL,
    exp.MakeInterval: lambda _: INTERVAL,
    exp.JustifyInterval: lambda _: INTERVAL,
    exp.JustifyDays: lambda _: INTERVAL,
    exp.JustifyHours: lambda _: INTERVAL,
    exp.Neg: _number_type,
    exp.Abs: _number_type,
    exp.Sign: _number_type,
    exp.SafeNegate: _number_type,
    exp.Split: lambda node: array_of(BYTES if _type_of_operand(node) == BYTES else STRING),
    exp.Pow: _float_or_numeric,
    exp.Log: _float_or_numeric,
    exp.PercentileCont: _float_or_numeric,
    exp.IgnoreNulls: _type_of_operand,
    exp.RespectNulls: _type_of_operand,
    exp.Window: _type_of_operand,
    exp.Filter: _type_of_operand,
    exp.Extract: _extract_type,
    **dict.fromkeys(
        (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.SafeAdd, exp.SafeSubtract, exp.SafeMultiply), _arithmetic_type
    ),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift), _type_of_operand),
    exp.BitwiseRightShift: _type_of_operand,
    **dict.fromkeys((exp.Ceil, exp.Floor, exp.Round, exp.Trunc, exp.Avg), _float_unless_numeric),
    exp.Sum: _sum_type,
    **dict.fromkeys(
        (exp.Min, exp.Max, exp.AnyValue, exp.PercentileDisc, exp.ArgMax, exp.ArgMin),
        _argument_type,
    ),
    **dict.fromkeys((exp.FirstValue, exp.LastValue, exp.NthValue), _argument_type),
    **dict.fromkeys(
        (exp.Lead, exp.Lag), lambda node: common_type((_argument_type(node), datatype_of(node.args.get("default"))))
    ),
    **dict.fromkeys((exp.ArrayAgg, exp.ApproxQuantiles), _array_of_argument_type),
    **dict.fromkeys((exp.ArrayReverse, exp.ArraySlice, exp.Subquery, exp.Paren, exp.Alias), _type_of_operand),
    **dict.fromkeys(
        (exp.SafeFunc, exp.NetFunc, exp.AtTimeZone, exp.Order, exp.Limit, exp.Ordered, exp.HavingMax), _type_of_operand
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
    **dict.fromkeys(_TYPE_IN_FUNCTION_NAME, _time_arithmetic_type),
}
