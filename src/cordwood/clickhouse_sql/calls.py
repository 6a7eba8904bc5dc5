"""Function calls as the author wrote them, and the interface through which functions translate their arguments.

This module also checks the number of arguments, and time zones that are arguments.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.permitted_syntax import PERMITTED_AGGREGATES, PERMITTED_FUNCTIONS
from cordwood.clickhouse_sql.scope import RowScope
from cordwood.clickhouse_sql.values import TypedValue
from cordwood.errors import QueryRefused, Span
from cordwood.model.definitions import Parameter

# The key under which sqlglot's parser stores the name of a function as the author wrote it.
WRITTEN_NAME_METADATA_KEY: Final = "clickhouse_name"


class FunctionCall(msgspec.Struct, frozen=True):
    """A call of a function; `name` is in lower case.

    `if_condition` is the additional argument of an aggregate with the suffix If. `aggregate_parameters` are the
    parameters in brackets before the arguments, as in `quantile(0.9)(x)`.
    """

    name: str
    arguments: tuple[exp.Expr, ...]
    node: exp.Expr
    aggregate_parameters: tuple[exp.Expr, ...] = ()
    if_condition: exp.Expr | None = None
    is_distinct: bool = False

    @property
    def display_name(self) -> str:
        """The name in ClickHouse's spelling."""
        return PERMITTED_FUNCTIONS.get(self.name, self.name)

    @property
    def written_name(self) -> str:
        """The name as the author wrote it; if the syntax has no name, the name in ClickHouse's spelling."""
        name = self.node.this if isinstance(self.node.this, str) else self.node.meta_get(WRITTEN_NAME_METADATA_KEY)
        return str(name or self.display_name)

    @property
    def is_aggregate(self) -> bool:
        return self.name in PERMITTED_AGGREGATES


CallArguments = tuple[exp.Expr | None, ...]
CallReader = Callable[[exp.Expr], tuple[str, CallArguments]]


def _reader_of_child_nodes(name: str, *keys: str) -> CallReader:
    """Return a function that reads a node as a call of `name`.

    The arguments of the call are those children of the node that `keys` name, in this order.
    A child that is a list of nodes gives several arguments.
    """

    def read_call(node: exp.Expr) -> tuple[str, CallArguments]:
        parts: list[exp.Expr | None] = []
        for key in keys:
            value = node.args.get(key)
            parts.extend(value if isinstance(value, list) else [value])
        return name, tuple(parts)

    return read_call


def _read_start_of_unit(node: exp.Expr) -> tuple[str, CallArguments]:
    unit = node.text("unit").lower()
    return "tomonday" if unit.startswith("week") else f"tostartof{unit}", (node.this,)


def _read_quantile(node: exp.Expr) -> tuple[str, CallArguments]:
    return "quantile", (node.this,)


def _read_date_trunc(node: exp.Expr) -> tuple[str, CallArguments]:
    return "date_trunc", (exp.Literal.string(node.text("unit").lower()), node.this)


def _read_date_diff(node: exp.Expr) -> tuple[str, CallArguments]:
    return "datediff", (exp.Literal.string(node.text("unit").lower()), node.expression, node.this)


def _reader_of_time_shift(name: str) -> CallReader:
    """Return a function that reads both forms of a call: `date_add(t, INTERVAL 1 HOUR)` and `date_add(HOUR, 1, t)`."""

    def read_call(node: exp.Expr) -> tuple[str, CallArguments]:
        amount, unit = node.expression, node.args.get("unit")
        if unit is not None and not isinstance(amount, exp.Interval):
            amount = exp.Interval(this=amount, unit=unit)
        return name, (node.this, amount)

    return read_call


_TRIM_FUNCTION_BY_SIDE: Final = {"BOTH": "trimboth", "LEADING": "trimleft", "TRAILING": "trimright"}


def _read_trim(node: exp.Expr) -> tuple[str, CallArguments]:
    return _TRIM_FUNCTION_BY_SIDE.get(str(node.args.get("position") or "BOTH").upper(), "trim"), (
        node.this,
        node.expression,
    )


_FUNCTION_BY_TIME_PART: Final = {
    "YEAR": "toyear",
    "QUARTER": "toquarter",
    "MONTH": "tomonth",
    "DAY": "todayofmonth",
    "HOUR": "tohour",
    "MINUTE": "tominute",
    "SECOND": "tosecond",
}


def _read_extract(node: exp.Expr) -> tuple[str, CallArguments]:
    """Read `EXTRACT(HOUR FROM t)` as a call of the function for the part, such as toHour."""
    return _FUNCTION_BY_TIME_PART.get(node.name.upper(), "extract"), (node.expression,)


def _read_map(node: exp.Expr) -> tuple[str, CallArguments]:
    keys, values = node.args["keys"].expressions, node.args["values"].expressions
    return "map", tuple(part for pair in zip(keys, values, strict=True) for part in pair)


def _reader_of_json_extraction(name: str) -> CallReader:
    def read_call(node: exp.Expr) -> tuple[str, CallArguments]:
        path = node.expression
        if not isinstance(path, exp.JSONPath):
            return name, (node.this, path)
        keys = [part for part in path.expressions if not isinstance(part, exp.JSONPathRoot)]
        return name, (node.this, *(_json_key_argument(part) for part in keys))

    return read_call


def _json_key_argument(part: exp.Expr) -> exp.Expr:
    """Return a step of a JSON path as an argument of a call: a key, or the number of an array element.

    sqlglot counts array elements from 0, whereas ClickHouse counts them from 1.
    """
    if isinstance(part.this, int):
        return exp.Literal.number(part.this + 1 if part.this >= 0 else part.this)
    return exp.Literal.string(part.this)


_CALL_READER_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], CallReader]] = {
    exp.Abs: _reader_of_child_nodes("abs", "this"),
    exp.AnyValue: _reader_of_child_nodes("any", "this"),
    exp.ApproxDistinct: _reader_of_child_nodes("uniq", "this", "accuracy"),
    exp.ArgMax: _reader_of_child_nodes("argmax", "this", "expression"),
    exp.ArgMin: _reader_of_child_nodes("argmin", "this", "expression"),
    exp.ArrayConcat: _reader_of_child_nodes("arrayconcat", "this", "expressions"),
    exp.ArrayContains: _reader_of_child_nodes("has", "this", "expression"),
    exp.ArrayDistinct: _reader_of_child_nodes("arraydistinct", "this"),
    exp.ArrayReverse: _reader_of_child_nodes("arrayreverse", "this"),
    exp.ArrayToString: _reader_of_child_nodes("arraystringconcat", "this", "expression"),
    exp.Avg: _reader_of_child_nodes("avg", "this"),
    exp.Ceil: _reader_of_child_nodes("ceil", "this", "decimals"),
    exp.Coalesce: _reader_of_child_nodes("coalesce", "this", "expressions"),
    exp.Concat: _reader_of_child_nodes("concat", "expressions"),
    exp.Count: _reader_of_child_nodes("count", "this"),
    exp.CountIf: _reader_of_child_nodes("countif", "this"),
    exp.CurrentTimestamp: _reader_of_child_nodes("now"),
    exp.DPipe: _reader_of_child_nodes("concat", "this", "expression"),
    exp.DateDiff: _read_date_diff,
    exp.DateAdd: _reader_of_time_shift("date_add"),
    exp.DateSub: _reader_of_time_shift("date_sub"),
    exp.Date: _reader_of_child_nodes("todate", "this", "zone"),
    exp.DateTrunc: _read_date_trunc,
    exp.DayOfWeekIso: _reader_of_child_nodes("todayofweek", "this"),
    exp.EndsWith: _reader_of_child_nodes("endswith", "this", "expression"),
    exp.Exp: _reader_of_child_nodes("exp", "this"),
    exp.Extract: _read_extract,
    exp.Explode: _reader_of_child_nodes("arrayjoin", "this"),
    exp.Floor: _reader_of_child_nodes("floor", "this", "decimals"),
    exp.Greatest: _reader_of_child_nodes("greatest", "this", "expressions"),
    exp.If: _reader_of_child_nodes("if", "this", "true", "false"),
    exp.IsInf: _reader_of_child_nodes("isinfinite", "this"),
    exp.IsNan: _reader_of_child_nodes("isnan", "this"),
    exp.JSONExtract: _reader_of_json_extraction("jsonextractraw"),
    exp.JSONExtractScalar: _reader_of_json_extraction("jsonextractstring"),
    exp.Least: _reader_of_child_nodes("least", "this", "expressions"),
    exp.Left: _reader_of_child_nodes("left", "this", "expression"),
    exp.Length: _reader_of_child_nodes("length", "this"),
    exp.Ln: _reader_of_child_nodes("ln", "this"),
    exp.Lower: _reader_of_child_nodes("lower", "this"),
    exp.Max: _reader_of_child_nodes("max", "this", "expressions"),
    exp.Min: _reader_of_child_nodes("min", "this", "expressions"),
    exp.Nullif: _reader_of_child_nodes("nullif", "this", "expression"),
    exp.Pow: _reader_of_child_nodes("pow", "this", "expression"),
    exp.Quantile: _read_quantile,
    exp.RegexpLike: _reader_of_child_nodes("match", "this", "expression"),
    exp.Replace: _reader_of_child_nodes("replaceall", "this", "expression", "replacement"),
    exp.Reverse: _reader_of_child_nodes("reverse", "this"),
    exp.Right: _reader_of_child_nodes("right", "this", "expression"),
    exp.Round: _reader_of_child_nodes("round", "this", "decimals"),
    exp.Split: _reader_of_child_nodes("splitbychar", "expression", "this", "limit"),
    exp.Sqrt: _reader_of_child_nodes("sqrt", "this"),
    exp.StartsWith: _reader_of_child_nodes("startswith", "this", "expression"),
    exp.StrPosition: _reader_of_child_nodes("position", "this", "substr", "position"),
    exp.Substring: _reader_of_child_nodes("substring", "this", "start", "length"),
    exp.Sum: _reader_of_child_nodes("sum", "this"),
    exp.TimeToStr: _reader_of_child_nodes("formatdatetime", "this", "format", "zone"),
    exp.TimestampTrunc: _read_start_of_unit,
    exp.TimestampAdd: _reader_of_time_shift("date_add"),
    exp.TimestampSub: _reader_of_time_shift("date_sub"),
    exp.Trim: _read_trim,
    exp.Trunc: _reader_of_child_nodes("trunc", "this", "decimals"),
    exp.Upper: _reader_of_child_nodes("upper", "this"),
    exp.VarMap: _read_map,
    exp.WeekOfYear: _reader_of_child_nodes("toisoweek", "this"),
    exp.Xor: _reader_of_child_nodes("xor", "this", "expression"),
}

# The names of those children of sqlglot's nodes that are ignored: they are not arguments of the function call, and do
# not change its meaning here.
_IGNORED_NODE_ARGUMENTS: Final = frozenset(
    """
    big_int binary coalesce ensure_variant ignore_nulls json_type null_propagation only_json_types quantile safe
    scalar_only typed unit value_constructor zone
    """.split()
)


def call_of(node: exp.Expr) -> FunctionCall | None:
    """Return the function call that a node represents.

    Return None for a node that is not a call. Return None also if the node has a child that is not read as an argument,
    because the translation would ignore it.
    """
    if isinstance(node, (exp.ParameterizedAgg, exp.CombinedParameterizedAgg)):
        return _make_call(str(node.this), tuple(node.args.get("params") or ()), node, tuple(node.expressions))
    if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc, exp.CombinedAggFunc)):
        name = node.this if isinstance(node.this, str) else node.name
        return _make_call(str(name), tuple(part for part in node.expressions if part is not None), node, ())
    read = _CALL_READER_BY_NODE_CLASS.get(type(node))
    if read is None:
        return None
    name, parts = read(node)
    arguments = tuple(part for part in parts if part is not None and not isinstance(part, exp.Star))
    if not _reads_all_children(node, parts):
        return None
    parameters = (node.args["quantile"],) if isinstance(node, exp.Quantile) else ()
    return _make_call(name, arguments, node, parameters)


# The nodes whose children need no check, because the functions that read these nodes read every child.
_NODES_EXEMPT_FROM_CHILD_CHECK: Final = (
    exp.VarMap,
    exp.JSONExtract,
    exp.JSONExtractScalar,
    exp.DateAdd,
    exp.DateSub,
    exp.Extract,
    exp.TimestampAdd,
    exp.TimestampSub,
    exp.Trim,
)


def _reads_all_children(node: exp.Expr, parts: CallArguments) -> bool:
    """Return whether each child of the node is among the arguments `parts` of the call, or can be ignored.

    sqlglot may also store clauses of other dialects as children of a node. They would be lost in the translation.
    """
    part_ids = {id(part) for part in parts}
    for key, value in node.args.items():
        values = value if isinstance(value, list) else [value]
        if key in _IGNORED_NODE_ARGUMENTS or isinstance(node, _NODES_EXEMPT_FROM_CHILD_CHECK):
            continue
        if any(item not in (None, False) and id(item) not in part_ids for item in values):
            return False
    return True


def _make_call(
    name: str, arguments: tuple[exp.Expr, ...], node: exp.Expr, parameters: tuple[exp.Expr, ...]
) -> FunctionCall:
    name = name.lower()
    condition = None
    if name.endswith("if") and name[:-2] in PERMITTED_AGGREGATES:
        if arguments:
            *rest, condition = arguments
            arguments = tuple(rest)
        name = name[:-2]
    is_distinct = False
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        arguments, is_distinct = tuple(arguments[0].expressions), True
    return FunctionCall(name, arguments, node, parameters, condition, is_distinct)


def is_known_function(call: FunctionCall) -> bool:
    return call.name in PERMITTED_FUNCTIONS


class ArgumentTranslator(Protocol):
    """Translates arguments of calls to values; refuses a value of the wrong type with the argument's position."""

    @property
    def row_scope(self) -> RowScope:
        """The columns to which an argument may refer."""
        ...

    @property
    def endpoint_parameters(self) -> Mapping[str, Parameter]:
        """The parameters that the endpoint declares, by name."""
        ...

    def span(self, node: exp.Expr) -> Span | None: ...

    def translate_expression(self, node: exp.Expr) -> TypedValue: ...

    def value_with_default_for_null(self, node: exp.Expr) -> TypedValue:
        """Return the value of the node; if the value has a default, the expression yields it instead of NULL."""
        ...

    def string_value(self, node: exp.Expr) -> TypedValue: ...

    def number_value(self, node: exp.Expr) -> TypedValue: ...

    def require_number(self, node: exp.Expr, value: TypedValue) -> TypedValue:
        """Return the value as a number; if it is not a number, refuse it with the position of `node`."""
        ...

    def array_value(self, node: exp.Expr) -> TypedValue: ...

    def condition_value(self, node: exp.Expr) -> TypedValue: ...

    def filter_condition_node(self, node: exp.Expr) -> exp.Expr:
        """Return the node as a condition for filtering rows. In such a condition, NULL has the same effect as false."""
        ...

    def constant_text(self, node: exp.Expr, subject: str) -> str: ...

    def constant_number(self, node: exp.Expr, subject: str) -> float: ...

    def fill_template(self, node: exp.Expr, template: str, **parts: exp.Expr) -> exp.Expr:
        """Fill a template of BigQuery SQL; the nodes of the template get the position of `node` in the query's text."""
        ...

    def refused_error(self, node: exp.Expr, message: str, hint: str | None = None) -> QueryRefused:
        """Return the error QueryRefused with the position of `node`."""
        ...


def checked_arguments(
    translator: ArgumentTranslator, call: FunctionCall, minimum: int, maximum: int | None = None
) -> tuple[exp.Expr, ...]:
    """Return the arguments of a call; refuse the call if it has fewer than `minimum` or more than `maximum` arguments.

    By default, `maximum` equals `minimum`. If `maximum` is -1, there is no upper limit.
    """
    maximum = minimum if maximum is None else maximum
    count = len(call.arguments)
    if call.aggregate_parameters:
        raise translator.refused_error(call.node, f"{call.display_name} takes its arguments in one pair of brackets.")
    if count < minimum or (maximum >= 0 and count > maximum):
        expected = (
            str(minimum) if maximum == minimum else f"{minimum} or more" if maximum < 0 else f"{minimum} to {maximum}"
        )
        raise translator.refused_error(
            call.node, f"{call.display_name} takes {expected} arguments, and {count} were given."
        )
    return call.arguments


def arguments_before_zone(translator: ArgumentTranslator, call: FunctionCall, count: int) -> tuple[exp.Expr, ...]:
    """Return the first `count` arguments of a call; a further argument is optional and must be the time zone UTC."""
    parts = checked_arguments(translator, call, count, count + 1)
    if len(parts) > count:
        require_utc_zone(translator, parts[count])
    return parts[:count]


def require_utc_zone(translator: ArgumentTranslator, node: exp.Expr) -> None:
    """Refuse a time zone unless it is a name of UTC."""
    if translator.constant_text(node, "A time zone").upper() not in ("UTC", "GMT", "ETC/UTC", "Z"):
        raise translator.refused_error(
            node, "Time zones other than UTC are not supported.", "Leave the zone out, or write 'UTC'."
        )
