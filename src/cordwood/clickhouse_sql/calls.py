"""Function calls as the author wrote them, and the interface through which functions translate their arguments.

The number of arguments, and time zones among them, are checked here.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.permitted import AGGREGATES, FUNCTIONS
from cordwood.clickhouse_sql.scope import Row
from cordwood.clickhouse_sql.values import Value
from cordwood.errors import QueryRefused, Span
from cordwood.model.definitions import Parameter


class Call(msgspec.Struct, frozen=True):
    """A call of a function; `name` is in lower case.

    `condition` is the argument added by the combinator -If; `parameters` are those of a parametric aggregate.
    """

    name: str
    arguments: tuple[exp.Expr, ...]
    node: exp.Expr
    parameters: tuple[exp.Expr, ...] = ()
    condition: exp.Expr | None = None
    is_distinct: bool = False

    @property
    def display_name(self) -> str:
        """The name in ClickHouse's spelling."""
        return FUNCTIONS.get(self.name, self.name)

    @property
    def is_aggregate(self) -> bool:
        return self.name in AGGREGATES


CallParts = tuple[exp.Expr | None, ...]
CallReader = Callable[[exp.Expr], tuple[str, CallParts]]


def _reader_of(name: str, *keys: str) -> CallReader:
    """Return a reader of nodes whose children `keys` are the arguments in this order; a list is several arguments."""

    def read(node: exp.Expr) -> tuple[str, CallParts]:
        parts: list[exp.Expr | None] = []
        for key in keys:
            value = node.args.get(key)
            parts.extend(value if isinstance(value, list) else [value])
        return name, tuple(parts)

    return read


def _read_start_of(node: exp.Expr) -> tuple[str, CallParts]:
    unit = node.text("unit").lower()
    return "tomonday" if unit.startswith("week") else f"tostartof{unit}", (node.this,)


def _read_quantile(node: exp.Expr) -> tuple[str, CallParts]:
    return "quantile", (node.this,)


def _read_date_trunc(node: exp.Expr) -> tuple[str, CallParts]:
    return "date_trunc", (exp.Literal.string(node.text("unit").lower()), node.this)


def _read_date_diff(node: exp.Expr) -> tuple[str, CallParts]:
    return "datediff", (exp.Literal.string(node.text("unit").lower()), node.expression, node.this)


def _reader_of_time_shift(name: str) -> CallReader:
    """Return a reader of `date_add(t, INTERVAL 1 HOUR)`, and of its other form `date_add(HOUR, 1, t)`."""

    def read(node: exp.Expr) -> tuple[str, CallParts]:
        amount, unit = node.expression, node.args.get("unit")
        if unit is not None and not isinstance(amount, exp.Interval):
            amount = exp.Interval(this=amount, unit=unit)
        return name, (node.this, amount)

    return read


_TRIM_FUNCTIONS: Final = {"BOTH": "trimboth", "LEADING": "trimleft", "TRAILING": "trimright"}


def _read_trim(node: exp.Expr) -> tuple[str, CallParts]:
    return _TRIM_FUNCTIONS.get(str(node.args.get("position") or "BOTH").upper(), "trim"), (node.this, node.expression)


_TIME_PART_FUNCTIONS: Final = {
    "YEAR": "toyear",
    "QUARTER": "toquarter",
    "MONTH": "tomonth",
    "DAY": "todayofmonth",
    "HOUR": "tohour",
    "MINUTE": "tominute",
    "SECOND": "tosecond",
}


def _read_part_of_time(node: exp.Expr) -> tuple[str, CallParts]:
    """Read `EXTRACT(HOUR FROM t)` as a call."""
    return _TIME_PART_FUNCTIONS.get(node.name.upper(), "extract"), (node.expression,)


def _read_map(node: exp.Expr) -> tuple[str, CallParts]:
    keys, values = node.args["keys"].expressions, node.args["values"].expressions
    return "map", tuple(part for pair in zip(keys, values, strict=True) for part in pair)


def _reader_of_json(name: str) -> CallReader:
    def read(node: exp.Expr) -> tuple[str, CallParts]:
        path = node.expression
        if not isinstance(path, exp.JSONPath):
            return name, (node.this, path)
        keys = [part for part in path.expressions if not isinstance(part, exp.JSONPathRoot)]
        return name, (node.this, *(_json_key(part) for part in keys))

    return read


def _json_key(part: exp.Expr) -> exp.Expr:
    """Return a step of a JSON path as an argument.

    sqlglot counts array elements from 0, ClickHouse from 1.
    """
    if isinstance(part.this, int):
        return exp.Literal.number(part.this + 1 if part.this >= 0 else part.this)
    return exp.Literal.string(part.this)


_READER_BY_NODE_CLASS: Final[Mapping[type[exp.Expr], CallReader]] = {
    exp.Abs: _reader_of("abs", "this"),
    exp.AnyValue: _reader_of("any", "this"),
    exp.ApproxDistinct: _reader_of("uniq", "this", "accuracy"),
    exp.ArgMax: _reader_of("argmax", "this", "expression"),
    exp.ArgMin: _reader_of("argmin", "this", "expression"),
    exp.ArrayConcat: _reader_of("arrayconcat", "this", "expressions"),
    exp.ArrayContains: _reader_of("has", "this", "expression"),
    exp.ArrayDistinct: _reader_of("arraydistinct", "this"),
    exp.ArrayReverse: _reader_of("arrayreverse", "this"),
    exp.ArrayToString: _reader_of("arraystringconcat", "this", "expression"),
    exp.Avg: _reader_of("avg", "this"),
    exp.Ceil: _reader_of("ceil", "this", "decimals"),
    exp.Coalesce: _reader_of("coalesce", "this", "expressions"),
    exp.Concat: _reader_of("concat", "expressions"),
    exp.Count: _reader_of("count", "this"),
    exp.CountIf: _reader_of("countif", "this"),
    exp.CurrentTimestamp: _reader_of("now"),
    exp.DPipe: _reader_of("concat", "this", "expression"),
    exp.DateDiff: _read_date_diff,
    exp.DateAdd: _reader_of_time_shift("date_add"),
    exp.DateSub: _reader_of_time_shift("date_sub"),
    exp.Date: _reader_of("todate", "this", "zone"),
    exp.DateTrunc: _read_date_trunc,
    exp.DayOfWeekIso: _reader_of("todayofweek", "this"),
    exp.EndsWith: _reader_of("endswith", "this", "expression"),
    exp.Exp: _reader_of("exp", "this"),
    exp.Extract: _read_part_of_time,
    exp.Explode: _reader_of("arrayjoin", "this"),
    exp.Floor: _reader_of("floor", "this", "decimals"),
    exp.Greatest: _reader_of("greatest", "this", "expressions"),
    exp.If: _reader_of("if", "this", "true", "false"),
    exp.IsInf: _reader_of("isinfinite", "this"),
    exp.IsNan: _reader_of("isnan", "this"),
    exp.JSONExtract: _reader_of_json("jsonextractraw"),
    exp.JSONExtractScalar: _reader_of_json("jsonextractstring"),
    exp.Least: _reader_of("least", "this", "expressions"),
    exp.Left: _reader_of("left", "this", "expression"),
    exp.Length: _reader_of("length", "this"),
    exp.Ln: _reader_of("ln", "this"),
    exp.Lower: _reader_of("lower", "this"),
    exp.Max: _reader_of("max", "this", "expressions"),
    exp.Min: _reader_of("min", "this", "expressions"),
    exp.Nullif: _reader_of("nullif", "this", "expression"),
    exp.Pow: _reader_of("pow", "this", "expression"),
    exp.Quantile: _read_quantile,
    exp.RegexpLike: _reader_of("match", "this", "expression"),
    exp.Replace: _reader_of("replaceall", "this", "expression", "replacement"),
    exp.Reverse: _reader_of("reverse", "this"),
    exp.Right: _reader_of("right", "this", "expression"),
    exp.Round: _reader_of("round", "this", "decimals"),
    exp.Split: _reader_of("splitbychar", "expression", "this", "limit"),
    exp.Sqrt: _reader_of("sqrt", "this"),
    exp.StartsWith: _reader_of("startswith", "this", "expression"),
    exp.StrPosition: _reader_of("position", "this", "substr", "position"),
    exp.Substring: _reader_of("substring", "this", "start", "length"),
    exp.Sum: _reader_of("sum", "this"),
    exp.TimeToStr: _reader_of("formatdatetime", "this", "format", "zone"),
    exp.TimestampTrunc: _read_start_of,
    exp.TimestampAdd: _reader_of_time_shift("date_add"),
    exp.TimestampSub: _reader_of_time_shift("date_sub"),
    exp.Trim: _read_trim,
    exp.Trunc: _reader_of("trunc", "this", "decimals"),
    exp.Upper: _reader_of("upper", "this"),
    exp.VarMap: _read_map,
    exp.WeekOfYear: _reader_of("toisoweek", "this"),
    exp.Xor: _reader_of("xor", "this", "expression"),
}

# Arguments of sqlglot's nodes that are not arguments of the call.
_NEUTRAL_ARGUMENTS: Final = frozenset(
    """
    big_int binary coalesce ensure_variant ignore_nulls json_type null_propagation only_json_types quantile safe
    scalar_only typed unit value_constructor zone
    """.split()
)


def call_of(node: exp.Expr) -> Call | None:
    """Return the call of a node; None for other nodes, and for calls with children that are not arguments."""
    if isinstance(node, (exp.ParameterizedAgg, exp.CombinedParameterizedAgg)):
        return _make_call(str(node.this), tuple(node.args.get("params") or ()), node, tuple(node.expressions))
    if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc, exp.CombinedAggFunc)):
        name = node.this if isinstance(node.this, str) else node.name
        return _make_call(str(name), tuple(part for part in node.expressions if part is not None), node, ())
    read = _READER_BY_NODE_CLASS.get(type(node))
    if read is None:
        return None
    name, parts = read(node)
    arguments = tuple(part for part in parts if part is not None and not isinstance(part, exp.Star))
    if not _is_fully_read(node, parts):
        return None
    parameters = (node.args["quantile"],) if isinstance(node, exp.Quantile) else ()
    return _make_call(name, arguments, node, parameters)


# Nodes for which the reader reads every child.
_FULLY_READ_NODES: Final = (
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


def _is_fully_read(node: exp.Expr, parts: CallParts) -> bool:
    """Return whether all children of the node are arguments; sqlglot also stores other dialects' clauses there."""
    part_ids = {id(part) for part in parts}
    for key, value in node.args.items():
        values = value if isinstance(value, list) else [value]
        if key in _NEUTRAL_ARGUMENTS or isinstance(node, _FULLY_READ_NODES):
            continue
        if any(item not in (None, False) and id(item) not in part_ids for item in values):
            return False
    return True


def _make_call(name: str, arguments: tuple[exp.Expr, ...], node: exp.Expr, parameters: tuple[exp.Expr, ...]) -> Call:
    name = name.lower()
    condition = None
    if name.endswith("if") and name[:-2] in AGGREGATES:
        if arguments:
            *rest, condition = arguments
            arguments = tuple(rest)
        name = name[:-2]
    is_distinct = False
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        arguments, is_distinct = tuple(arguments[0].expressions), True
    return Call(name, arguments, node, parameters, condition, is_distinct)


def is_known(call: Call) -> bool:
    return call.name in FUNCTIONS


class ArgumentTranslator(Protocol):
    """Translates arguments to values. A wrong type is refused at the argument's position."""

    @property
    def row(self) -> Row:
        """The columns in scope."""
        ...

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The endpoint's parameters."""
        ...

    def span(self, node: exp.Expr) -> Span | None: ...

    def value(self, node: exp.Expr) -> Value: ...

    def value_with_default(self, node: exp.Expr) -> Value:
        """Return the value, with its default instead of NULL."""
        ...

    def string(self, node: exp.Expr) -> Value: ...

    def number(self, node: exp.Expr) -> Value: ...

    def number_of(self, node: exp.Expr, value: Value) -> Value:
        """Return the value as a number; refuse any other value at the node's position."""
        ...

    def array(self, node: exp.Expr) -> Value: ...

    def condition_value(self, node: exp.Expr) -> Value: ...

    def filter(self, node: exp.Expr) -> exp.Expr:
        """Return a condition in which NULL has the same effect as false."""
        ...

    def constant_text(self, node: exp.Expr, subject: str) -> str: ...

    def constant_number(self, node: exp.Expr, subject: str) -> float: ...

    def fill(self, node: exp.Expr, template: str, **parts: exp.Expr) -> exp.Expr:
        """Return a filled template of BigQuery SQL at the node's position."""
        ...

    def refusal(self, node: exp.Expr, message: str, hint: str | None = None) -> QueryRefused:
        """Return a refusal with the node's position."""
        ...


def arguments(
    translator: ArgumentTranslator, call: Call, minimum: int, maximum: int | None = None
) -> tuple[exp.Expr, ...]:
    """Return the arguments; refuse a number outside of `minimum` and `maximum`.

    `maximum` is `minimum` by default, and -1 for no limit.
    """
    maximum = minimum if maximum is None else maximum
    count = len(call.arguments)
    if call.parameters:
        raise translator.refusal(call.node, f"{call.display_name} takes its arguments in one pair of brackets.")
    if count < minimum or (maximum >= 0 and count > maximum):
        expected = (
            str(minimum) if maximum == minimum else f"{minimum} or more" if maximum < 0 else f"{minimum} to {maximum}"
        )
        raise translator.refusal(call.node, f"{call.display_name} takes {expected} arguments, and {count} were given.")
    return call.arguments


def arguments_before_zone(translator: ArgumentTranslator, call: Call, count: int) -> tuple[exp.Expr, ...]:
    """Return `count` arguments; a time zone may follow them, which must be UTC."""
    parts = arguments(translator, call, count, count + 1)
    if len(parts) > count:
        check_zone(translator, parts[count])
    return parts[:count]


def check_zone(translator: ArgumentTranslator, node: exp.Expr) -> None:
    """Refuse a time zone other than UTC."""
    if translator.constant_text(node, "A time zone").upper() not in ("UTC", "GMT", "ETC/UTC", "Z"):
        raise translator.refusal(
            node, "Time zones other than UTC are not supported.", "Leave the zone out, or write 'UTC'."
        )
