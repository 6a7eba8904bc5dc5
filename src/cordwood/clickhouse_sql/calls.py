"""Function calls as the author wrote them, whatever classes sqlglot parses them into."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.permitted import AGGREGATES, FUNCTIONS


class Call(msgspec.Struct, frozen=True):
    """A call by its name in lower case.

    `condition` is the argument added by the combinator -If; `parameters` are those of a parametric aggregate.
    """

    name: str
    arguments: tuple[exp.Expr, ...]
    node: exp.Expr
    parameters: tuple[exp.Expr, ...] = ()
    condition: exp.Expr | None = None
    is_distinct: bool = False

    @property
    def spelled(self) -> str:
        """The name in ClickHouse's spelling."""
        return FUNCTIONS.get(self.name, self.name)

    @property
    def is_aggregate(self) -> bool:
        return self.name in AGGREGATES


Parts = tuple[exp.Expr | None, ...]
Reader = Callable[[exp.Expr], tuple[str, Parts]]


def _of(name: str, *keys: str) -> Reader:
    """Return a reader of nodes whose parts are the arguments in this order; a list is several arguments."""

    def read(node: exp.Expr) -> tuple[str, Parts]:
        parts: list[exp.Expr | None] = []
        for key in keys:
            value = node.args.get(key)
            parts.extend(value if isinstance(value, list) else [value])
        return name, tuple(parts)

    return read


def _start_of(node: exp.Expr) -> tuple[str, Parts]:
    unit = node.text("unit").lower()
    return "tomonday" if unit.startswith("week") else f"tostartof{unit}", (node.this,)


def _quantile(node: exp.Expr) -> tuple[str, Parts]:
    return "quantile", (node.this,)


def _date_trunc(node: exp.Expr) -> tuple[str, Parts]:
    return "date_trunc", (exp.Literal.string(node.text("unit").lower()), node.this)


def _date_diff(node: exp.Expr) -> tuple[str, Parts]:
    return "datediff", (exp.Literal.string(node.text("unit").lower()), node.expression, node.this)


def _moved(name: str) -> Reader:
    """Return a reader of `date_add(t, INTERVAL 1 HOUR)`, and of its other form `date_add(HOUR, 1, t)`."""

    def read(node: exp.Expr) -> tuple[str, Parts]:
        amount, unit = node.expression, node.args.get("unit")
        if unit is not None and not isinstance(amount, exp.Interval):
            amount = exp.Interval(this=amount, unit=unit)
        return name, (node.this, amount)

    return read


_TRIMS: Final = {"BOTH": "trimboth", "LEADING": "trimleft", "TRAILING": "trimright"}


def _trim(node: exp.Expr) -> tuple[str, Parts]:
    return _TRIMS.get(str(node.args.get("position") or "BOTH").upper(), "trim"), (node.this, node.expression)


_PARTS_OF_TIME: Final = {
    "YEAR": "toyear",
    "QUARTER": "toquarter",
    "MONTH": "tomonth",
    "DAY": "todayofmonth",
    "HOUR": "tohour",
    "MINUTE": "tominute",
    "SECOND": "tosecond",
}


def _part_of_time(node: exp.Expr) -> tuple[str, Parts]:
    """Read `EXTRACT(HOUR FROM t)`."""
    return _PARTS_OF_TIME.get(node.name.upper(), "extract"), (node.expression,)


def _map(node: exp.Expr) -> tuple[str, Parts]:
    keys, values = node.args["keys"].expressions, node.args["values"].expressions
    return "map", tuple(part for pair in zip(keys, values, strict=True) for part in pair)


def _json(name: str) -> Reader:
    def read(node: exp.Expr) -> tuple[str, Parts]:
        path = node.expression
        if not isinstance(path, exp.JSONPath):
            return name, (node.this, path)
        keys = [part for part in path.expressions if not isinstance(part, exp.JSONPathRoot)]
        return name, (node.this, *(_json_key(part) for part in keys))

    return read


def _json_key(part: exp.Expr) -> exp.Expr:
    """Return a step of a JSON path as an argument. sqlglot counts array elements from 0, ClickHouse from 1."""
    if isinstance(part.this, int):
        return exp.Literal.number(part.this + 1 if part.this >= 0 else part.this)
    return exp.Literal.string(part.this)


_NAMED: Final[Mapping[type[exp.Expr], Reader]] = {
    exp.Abs: _of("abs", "this"),
    exp.AnyValue: _of("any", "this"),
    exp.ApproxDistinct: _of("uniq", "this", "accuracy"),
    exp.ArgMax: _of("argmax", "this", "expression"),
    exp.ArgMin: _of("argmin", "this", "expression"),
    exp.ArrayConcat: _of("arrayconcat", "this", "expressions"),
    exp.ArrayContains: _of("has", "this", "expression"),
    exp.ArrayDistinct: _of("arraydistinct", "this"),
    exp.ArrayReverse: _of("arrayreverse", "this"),
    exp.ArrayToString: _of("arraystringconcat", "this", "expression"),
    exp.Avg: _of("avg", "this"),
    exp.Ceil: _of("ceil", "this", "decimals"),
    exp.Coalesce: _of("coalesce", "this", "expressions"),
    exp.Concat: _of("concat", "expressions"),
    exp.Count: _of("count", "this"),
    exp.CountIf: _of("countif", "this"),
    exp.CurrentTimestamp: _of("now"),
    exp.DPipe: _of("concat", "this", "expression"),
    exp.DateDiff: _date_diff,
    exp.DateAdd: _moved("date_add"),
    exp.DateSub: _moved("date_sub"),
    exp.Date: _of("todate", "this", "zone"),
    exp.DateTrunc: _date_trunc,
    exp.DayOfWeekIso: _of("todayofweek", "this"),
    exp.EndsWith: _of("endswith", "this", "expression"),
    exp.Exp: _of("exp", "this"),
    exp.Extract: _part_of_time,
    exp.Explode: _of("arrayjoin", "this"),
    exp.Floor: _of("floor", "this", "decimals"),
    exp.Greatest: _of("greatest", "this", "expressions"),
    exp.If: _of("if", "this", "true", "false"),
    exp.IsInf: _of("isinfinite", "this"),
    exp.IsNan: _of("isnan", "this"),
    exp.JSONExtract: _json("jsonextractraw"),
    exp.JSONExtractScalar: _json("jsonextractstring"),
    exp.Least: _of("least", "this", "expressions"),
    exp.Left: _of("left", "this", "expression"),
    exp.Length: _of("length", "this"),
    exp.Ln: _of("ln", "this"),
    exp.Lower: _of("lower", "this"),
    exp.Max: _of("max", "this", "expressions"),
    exp.Min: _of("min", "this", "expressions"),
    exp.Nullif: _of("nullif", "this", "expression"),
    exp.Pow: _of("pow", "this", "expression"),
    exp.Quantile: _quantile,
    exp.RegexpLike: _of("match", "this", "expression"),
    exp.Replace: _of("replaceall", "this", "expression", "replacement"),
    exp.Reverse: _of("reverse", "this"),
    exp.Right: _of("right", "this", "expression"),
    exp.Round: _of("round", "this", "decimals"),
    exp.Split: _of("splitbychar", "expression", "this", "limit"),
    exp.Sqrt: _of("sqrt", "this"),
    exp.StartsWith: _of("startswith", "this", "expression"),
    exp.StrPosition: _of("position", "this", "substr", "position"),
    exp.Substring: _of("substring", "this", "start", "length"),
    exp.Sum: _of("sum", "this"),
    exp.TimeToStr: _of("formatdatetime", "this", "format", "zone"),
    exp.TimestampTrunc: _start_of,
    exp.TimestampAdd: _moved("date_add"),
    exp.TimestampSub: _moved("date_sub"),
    exp.Trim: _trim,
    exp.Trunc: _of("trunc", "this", "decimals"),
    exp.Upper: _of("upper", "this"),
    exp.VarMap: _map,
    exp.WeekOfYear: _of("toisoweek", "this"),
    exp.Xor: _of("xor", "this", "expression"),
}

# Arguments of sqlglot's nodes that are not arguments of the call.
_SILENT: Final = frozenset(
    """
    big_int binary coalesce ensure_variant ignore_nulls json_type null_propagation only_json_types quantile safe
    scalar_only typed unit value_constructor zone
    """.split()
)


def call_of(node: exp.Expr) -> Call | None:
    """Return the call of a node; None for other nodes, and for calls with parts that are not arguments."""
    if isinstance(node, (exp.ParameterizedAgg, exp.CombinedParameterizedAgg)):
        return _aggregate(str(node.this), tuple(node.args.get("params") or ()), node, tuple(node.expressions))
    if isinstance(node, (exp.Anonymous, exp.AnonymousAggFunc, exp.CombinedAggFunc)):
        name = node.this if isinstance(node.this, str) else node.name
        return _aggregate(str(name), tuple(part for part in node.expressions if part is not None), node, ())
    read = _NAMED.get(type(node))
    if read is None:
        return None
    name, parts = read(node)
    arguments = tuple(part for part in parts if part is not None and not isinstance(part, exp.Star))
    if not _is_whole(node, parts):
        return None
    parameters = (node.args["quantile"],) if isinstance(node, exp.Quantile) else ()
    return _aggregate(name, arguments, node, parameters)


# Nodes whose reader handles each part.
_TAKEN_APART: Final = (
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


def _is_whole(node: exp.Expr, parts: Parts) -> bool:
    """Return whether all parts of the node are arguments; sqlglot also parses other dialects' clauses into it."""
    known = {id(part) for part in parts}
    for key, value in node.args.items():
        values = value if isinstance(value, list) else [value]
        if key in _SILENT or isinstance(node, _TAKEN_APART):
            continue
        if any(one not in (None, False) and id(one) not in known for one in values):
            return False
    return True


def _aggregate(name: str, arguments: tuple[exp.Expr, ...], node: exp.Expr, parameters: tuple[exp.Expr, ...]) -> Call:
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
