"""The result type of expressions, by the types of their parts."""

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

Rule = Callable[[exp.Expr], Datatype | None]


def result_of(node: exp.Expr) -> Datatype | None:
    """Return the type of a node whose parts are annotated."""
    fixed = RESULT_BY_NODE.get(type(node))
    if fixed is not None:
        return fixed
    rule = _RULES.get(type(node))
    return rule(node) if rule else None


def _type_of_this(node: exp.Expr) -> Datatype | None:
    return datatype_of(node.this) if isinstance(node.this, exp.Expr) else None


def _literal(node: exp.Expr) -> Datatype | None:
    if node.is_string:
        return STRING
    text = str(node.this).lower()
    return INT64 if text.isdecimal() or text.startswith("0x") else FLOAT64


def _operands(node: exp.Expr) -> tuple[Datatype | None, Datatype | None]:
    return _type_of_this(node), datatype_of(node.expression)


def _arithmetic(node: exp.Expr) -> Datatype | None:
    left, right = _operands(node)
    if INTERVAL in (left, right):
        return _time_plus_interval(left, right)
    if DATE in (left, right) and INT64 in (left, right):
        return DATE
    if left == right and left in _TIMES:
        return INTERVAL
    return _numeric_or_float(common_type((left, right)))


_TIMES: Final = (DATE, DATETIME, TIMESTAMP, TIME)


def _time_plus_interval(left: Datatype | None, right: Datatype | None) -> Datatype | None:
    """Return the type of a time plus an interval: the time's own, but DATETIME for a date."""
    time_type = right if left and left.kind is Kind.INTERVAL else left
    if time_type is not None and time_type.kind is Kind.DATE:
        return DATETIME
    return INTERVAL if time_type is None or time_type.kind is Kind.INT64 else time_type


def _numeric_or_float(datatype: Datatype | None) -> Datatype | None:
    return FLOAT64 if datatype is not None and datatype.kind in (Kind.VARIANT, Kind.STRING, Kind.JSON) else datatype


def _division(node: exp.Expr) -> Datatype | None:
    datatype = common_type(_operands(node))
    if datatype is not None and datatype.kind is Kind.INTERVAL:
        return INTERVAL
    return datatype if datatype in (NUMERIC, BIGNUMERIC) else FLOAT64


def _float_unless_numeric(node: exp.Expr) -> Datatype | None:
    """Return the type of ROUND, FLOOR, AVG and the like: FLOAT64 for integers, otherwise unchanged."""
    datatype = _argument(node)
    return datatype if datatype in (NUMERIC, BIGNUMERIC, INTERVAL) else FLOAT64


def _argument(node: exp.Expr) -> Datatype | None:
    """Return the type of an aggregate's argument, ignoring its modifiers."""
    inner = node.this
    while isinstance(inner, (exp.Order, exp.Limit, exp.HavingMax, exp.IgnoreNulls, exp.RespectNulls)):
        inner = inner.this
    if isinstance(inner, exp.Distinct):
        return datatype_of(inner.expressions[0])
    return datatype_of(inner) if isinstance(inner, exp.Expr) else None


def _sum(node: exp.Expr) -> Datatype | None:
    return _numeric_or_float(_argument(node))


def _array_of_argument(node: exp.Expr) -> Datatype | None:
    return array_of(_argument(node))


def _branches(node: exp.Expr) -> Datatype | None:
    ifs = [datatype_of(branch.args.get("true")) for branch in node.args["ifs"]]
    return common_type([*ifs, datatype_of(node.args.get("default"))])


def _if(node: exp.Expr) -> Datatype | None:
    return common_type((datatype_of(node.args.get("true")), datatype_of(node.args.get("false"))))


def _all_arguments(node: exp.Expr) -> Datatype | None:
    return common_type([_type_of_this(node), *(datatype_of(item) for item in node.expressions)])


def _array(node: exp.Expr) -> Datatype | None:
    return array_of(common_type(datatype_of(item) for item in node.expressions))


def _struct(node: exp.Expr) -> Datatype | None:
    return struct_of(map(_struct_field, node.expressions))


def _struct_field(item: exp.Expr) -> tuple[str, Datatype | None]:
    if isinstance(item, exp.PropertyEQ):
        return item.name, datatype_of(item.expression)
    name = item.name if isinstance(item, (exp.Column, exp.Dot)) else item.alias
    return name, datatype_of(item)


def _bracket(node: exp.Expr) -> Datatype | None:
    base = _type_of_this(node)
    return base.element if base and base.kind is Kind.ARRAY else base if base in (JSON, VARIANT) else None


def _dot(node: exp.Expr) -> Datatype | None:
    return field_of(_type_of_this(node), node.expression.name) if node.expression else None


def _cast(node: exp.Expr) -> Datatype | None:
    return type_in_tree(node.args.get("to"))


def _text_or_bytes(node: exp.Expr) -> Datatype | None:
    datatype = _argument(node)
    return BYTES if datatype == BYTES else STRING


def _concat(node: exp.Expr) -> Datatype | None:
    return BYTES if node.expressions and kind_of(node.expressions[0]) is Kind.BYTES else STRING


def _concatenated(node: exp.Expr) -> Datatype | None:
    left, right = _operands(node)
    if left is not None and left.kind in (Kind.ARRAY, Kind.BYTES):
        return left
    return right if right is not None and right.kind in (Kind.ARRAY, Kind.BYTES) else STRING


def _json_extract(node: exp.Expr) -> Datatype | None:
    return JSON if _type_of_this(node) == JSON else STRING


def _json_list(node: exp.Expr) -> Datatype | None:
    return array_of(JSON if _type_of_this(node) == JSON else STRING)


def _json_text(node: exp.Expr) -> Datatype | None:
    return JSON if node.args.get("to_json") else STRING


def _approx_top(node: exp.Expr) -> Datatype | None:
    name = "count" if isinstance(node, exp.ApproxTopK) else "sum"
    weight = INT64 if isinstance(node, exp.ApproxTopK) else datatype_of(node.expression)
    return array_of(struct_of([("value", _argument(node)), (name, weight)]))


def _series(node: exp.Expr) -> Datatype | None:
    return array_of(common_type(datatype_of(node.args.get(key)) for key in ("start", "end", "step")))


def _anonymous(node: exp.Expr) -> Datatype | None:
    operation = node.args.get(OPERATION_KEY)
    return RESULT_BY_NAME.get(str(node.this).upper()) if operation is None else _BY_OPERATION[type(operation)]


_BY_OPERATION: Final[Mapping[type[Operation], Datatype]] = {
    **dict.fromkeys((PathRead, RedactedEvent, RedactedEventText, RedactedSecret), VARIANT),
    RedactedText: STRING,
    RecordElements: array_of(VARIANT),
    RecordTest: BOOL,
}


def _parameter(node: exp.Expr) -> Datatype | None:
    return type_in_tree(node.type) or STRING


def _element(node: exp.Expr) -> Datatype | None:
    base = _type_of_this(node)
    return base.element if base else None


def _array_query(node: exp.Expr) -> Datatype | None:
    items = node.expressions
    if len(items) == 1 and isinstance(items[0], exp.Query):
        return array_of(datatype_of(items[0]))
    return _array(node)


def _number(node: exp.Expr) -> Datatype | None:
    return _numeric_or_float(_type_of_this(node))


def _extract(node: exp.Expr) -> Datatype | None:
    return {"DATE": DATE, "TIME": TIME, "DATETIME": DATETIME}.get(node.this.name.upper(), INT64)


def _float_or_numeric(node: exp.Expr) -> Datatype | None:
    datatype = common_type(_operands(node))
    return datatype if datatype in (NUMERIC, BIGNUMERIC) else FLOAT64


def _int_unless_numeric(node: exp.Expr) -> Datatype | None:
    datatype = common_type(_operands(node))
    return datatype if datatype in (NUMERIC, BIGNUMERIC) else INT64


def _tuple(node: exp.Expr) -> Datatype | None:
    return struct_of(("", datatype_of(item)) for item in node.expressions)


_TYPES_IN_NAME: Final[dict[type[exp.Expr], Datatype]] = {
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
# These convert a DATE to the DATETIME or TIMESTAMP in their name.
_COERCING: Final = (exp.DatetimeAdd, exp.DatetimeSub, exp.TimestampAdd, exp.TimestampSub)


def _time_arithmetic(node: exp.Expr) -> Datatype | None:
    datatype = datatype_of(node.this)
    if datatype is None or datatype not in _TIMES or (datatype == DATE and isinstance(node, _COERCING)):
        return _TYPES_IN_NAME[type(node)]
    return datatype


_RULES: Final[dict[type[exp.Expr], Rule]] = {
    exp.Literal: _literal,
    exp.Anonymous: _anonymous,
    exp.AnonymousAggFunc: _anonymous,
    exp.Parameter: _parameter,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Struct: _struct,
    exp.Tuple: _tuple,
    exp.IntDiv: _int_unless_numeric,
    exp.Array: _array_query,
    exp.Bracket: _bracket,
    exp.Dot: _dot,
    exp.Case: _branches,
    exp.If: _if,
    exp.Concat: _concat,
    exp.DPipe: _concatenated,
    exp.Div: _division,
    exp.SafeDivide: _division,
    exp.Nullif: _type_of_this,
    exp.ApproxTopK: _approx_top,
    exp.ApproxTopSum: _approx_top,
    exp.GenerateSeries: _series,
    exp.JSONExtract: _json_extract,
    exp.JSONExtractArray: _json_list,
    exp.JSONFormat: _json_text,
    exp.ArrayConcatAgg: _argument,
    exp.ArrayConcat: _all_arguments,
    exp.ArrayFirst: _element,
    exp.ArrayLast: _element,
    exp.Interval: lambda _: INTERVAL,
    exp.MakeInterval: lambda _: INTERVAL,
    exp.JustifyInterval: lambda _: INTERVAL,
    exp.JustifyDays: lambda _: INTERVAL,
    exp.JustifyHours: lambda _: INTERVAL,
    exp.Neg: _number,
    exp.Abs: _number,
    exp.Sign: _number,
    exp.SafeNegate: _number,
    exp.Split: lambda node: array_of(BYTES if _type_of_this(node) == BYTES else STRING),
    exp.Pow: _float_or_numeric,
    exp.Log: _float_or_numeric,
    exp.PercentileCont: _float_or_numeric,
    exp.IgnoreNulls: _type_of_this,
    exp.RespectNulls: _type_of_this,
    exp.Window: _type_of_this,
    exp.Filter: _type_of_this,
    exp.Extract: _extract,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.SafeAdd, exp.SafeSubtract, exp.SafeMultiply), _arithmetic),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseLeftShift), _type_of_this),
    exp.BitwiseRightShift: _type_of_this,
    **dict.fromkeys((exp.Ceil, exp.Floor, exp.Round, exp.Trunc, exp.Avg), _float_unless_numeric),
    exp.Sum: _sum,
    **dict.fromkeys(
        (exp.Min, exp.Max, exp.AnyValue, exp.PercentileDisc, exp.ArgMax, exp.ArgMin),
        _argument,
    ),
    **dict.fromkeys((exp.FirstValue, exp.LastValue, exp.NthValue), _argument),
    **dict.fromkeys(
        (exp.Lead, exp.Lag), lambda node: common_type((_argument(node), datatype_of(node.args.get("default"))))
    ),
    **dict.fromkeys((exp.ArrayAgg, exp.ApproxQuantiles), _array_of_argument),
    **dict.fromkeys((exp.ArrayReverse, exp.ArraySlice, exp.Subquery, exp.Paren, exp.Alias), _type_of_this),
    **dict.fromkeys(
        (exp.SafeFunc, exp.NetFunc, exp.AtTimeZone, exp.Order, exp.Limit, exp.Ordered, exp.HavingMax), _type_of_this
    ),
    exp.Distinct: lambda node: datatype_of(node.expressions[0]) if node.expressions else None,
    **dict.fromkeys((exp.Coalesce, exp.Greatest, exp.Least), _all_arguments),
    **dict.fromkeys(
        (exp.Lower, exp.Upper, exp.Left, exp.Right, exp.Substring, exp.Reverse, exp.Repeat, exp.Replace, exp.Pad),
        _text_or_bytes,
    ),
    **dict.fromkeys((exp.Trim, exp.RegexpExtract, exp.RegexpReplace, exp.Translate, exp.GroupConcat), _text_or_bytes),
    **dict.fromkeys(_TYPES_IN_NAME, _time_arithmetic),
}
