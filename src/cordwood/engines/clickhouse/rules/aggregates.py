"""Aggregates: NULL for nothing, their modifiers (DISTINCT, ORDER BY, LIMIT, IGNORE NULLS, HAVING MAX), the approximate ones."""

from typing import Final

from sqlglot import exp

from cordwood.engines.clickhouse.rules.casts import cast_to
from cordwood.engines.clickhouse.rules.reading import read_as
from cordwood.engines.clickhouse.rules.words import NAMES, type_part
from cordwood.model.datatype import EXACT, Kind
from cordwood.sql.bigquery.aggregates import Argument, argument_of, demanded, has_window
from cordwood.sql.budget import copied
from cordwood.sql.constants import is_small
from cordwood.sql.fragment import fragment, holes, own_text
from cordwood.sql.lowering import Meaning, Rule
from cordwood.sql.typing import datatype_of, inherit, kind_of
from cordwood.sql.typing.datatypes import STRING
from cordwood.sql.windowed import by_several


def gathered(argument: Argument, *, skip_nulls: bool) -> tuple[exp.Expr, str, list[exp.Expr]]:
    """The values gathered, and what makes an array of them in order: wrapped, or NULLs would be left out."""
    value, ordered = argument.value, argument.order.expressions if argument.order is not None else []
    keys = [one.this if isinstance(one, exp.Ordered) else one for one in ordered]
    row = f"tuple({holes(len(keys) + 1)})"
    if skip_nulls:
        called = fragment(f"groupArrayIf({row}, isNotNull({{0}}))", value, *keys)
    else:
        called = fragment(f"groupArray({row})", value, *keys)
    template = "arrayDistinct({0})" if argument.distinct else "{0}"
    template = f"arrayMap(_t -> _t.1, {_sorted(template, ordered)})"
    if argument.limit is not None:
        return called, f"arraySlice({template}, 1, {{1}})", [argument.limit]
    return called, template, []


def listed(argument: Argument, *, skip_nulls: bool) -> exp.Expr:
    """The values as an array."""
    called, template, parts = gathered(argument, skip_nulls=skip_nulls)
    return fragment(template, called, *parts)


def _sorted(template: str, ordered: list[exp.Expr]) -> str:
    """Keys one after the other, the last first: the engine's sort keeps what is equal in place."""
    for at, one in reversed(list(enumerate(ordered))):
        down = isinstance(one, exp.Ordered) and bool(one.args.get("desc"))
        nulls_first = one.args.get("nulls_first") if isinstance(one, exp.Ordered) else None
        first = (not down) if nulls_first is None else bool(nulls_first)
        known = "isNotNull" if first is not down else "isNull"
        name = "arrayReverseSort" if down else "arraySort"
        template = f"{name}(_t -> tuple({known}(_t.{at + 2}), _t.{at + 2}), {template})"
    return template


def _array_agg(node: exp.Expr) -> exp.Expr:
    argument = argument_of(node)
    called, template, parts = gathered(argument, skip_nulls=bool(argument.ignore_nulls))
    return wrapped(node, called, template, *parts)


def _array_concat_agg(node: exp.Expr) -> exp.Expr:
    argument = argument_of(node)
    called, template, parts = gathered(argument, skip_nulls=False)
    datatype = datatype_of(argument.value)
    name = type_part(datatype)
    if name is None or datatype is None or datatype.element is None or datatype.element.kind is not Kind.ARRAY:
        return wrapped(node, called, f"arrayFlatten({template})", *parts)
    # The engine's own joins arrays within arrays as well.
    joined = f"arrayFold((_x, _y) -> arrayConcat(_x, _y), {template}, CAST([], {{{len(parts) + 1}}}))"
    return wrapped(node, called, joined, *parts, name)


def _string_agg(node: exp.Expr) -> exp.Expr:
    argument = argument_of(node)
    separator = node.args.get("separator") or exp.Literal.string(",")
    if kind_of(argument.value) not in (None, Kind.STRING, Kind.BYTES):
        argument.value = cast_to(node, argument.value, STRING)
    called, template, parts = gathered(argument, skip_nulls=True)
    joined = f"arrayStringConcat(arrayMap(_s -> assumeNotNull(_s), {template}), {{{len(parts) + 1}}})"
    return wrapped(node, called, f"if(empty({{0}}), NULL, {joined})", *parts, separator)


def _simple(name: str, *, cast: str | None = None) -> Rule:
    """An aggregate that the engine has under this name."""

    def rule(node: exp.Expr) -> exp.Expr:
        argument = argument_of(node)
        suffix = "Distinct" if argument.distinct else ""
        return settled(node, fragment(f"{name}{suffix}({{0}})", _value(argument, node)), cast)

    return rule


def settled(node: exp.Expr, called: exp.Expr, cast: str | None) -> exp.Expr:
    """A cast cannot stand between an aggregate and its OVER: there the window's rule sets it."""
    return wrapped(node, called, f"CAST({{0}}, {own_text(cast)})") if cast else called


def wrapped(node: exp.Expr, called: exp.Expr, template: str, *parts: exp.Expr) -> exp.Expr:
    """What is made of an aggregate's result, `{0}`: with an OVER around it, of that."""
    if has_window(node):
        called.meta["wrap"] = template, parts
        return called
    return fragment(template, called, *parts)


def _value(argument: Argument, node: exp.Expr) -> exp.Expr:
    kind = demanded(node)
    if kind_of(argument.value) is Kind.VARIANT and kind is not None:
        return read_as(argument.value, kind)
    return argument.value


def _sum(node: exp.Expr) -> exp.Expr:
    """Of nothing NULL; of whole numbers one that fits, where the engine's own would wrap around."""
    argument = argument_of(node)
    kind = kind_of(node)
    suffix = "Distinct" if argument.distinct else ""
    value = _value(argument, node)
    if kind is Kind.INT64 and not node.meta_get(_SMALL):
        called = fragment(f"sumOrNull{suffix}(toInt128({{0}}))", value)
        return wrapped(node, called, "accurateCast({0}, 'Nullable(Int64)')")
    called = fragment(f"sumOrNull{suffix}({{0}})", value)
    return settled(node, called, f"Nullable({NAMES[kind]})" if kind in (Kind.INT64, *EXACT) and kind else None)


# How a sum is marked that cannot overflow: the engine's own is then three times as fast.
_SMALL: Final = "small"


def _note_small(node: exp.Expr) -> exp.Expr:
    node.meta[_SMALL] = _is_small(argument_of(node).value)
    return node


def _is_small(node: exp.Expr | None) -> bool:
    """Whether it is nothing but small constants, as in counting by `SUM(IF(…, 1, 0))`."""
    if isinstance(node, exp.Case):
        branches = [branch.args.get("true") for branch in node.args["ifs"]]
        return all(map(_is_small, [*branches, node.args.get("default")]))
    if isinstance(node, exp.If):
        return all(map(_is_small, (node.args.get("true"), node.args.get("false"))))
    if isinstance(node, exp.Cast):
        return kind_of(node.this) is Kind.BOOL
    return node is None or isinstance(node, exp.Null) or is_small(node)


def _avg(node: exp.Expr) -> exp.Expr:
    argument = argument_of(node)
    suffix = "Distinct" if argument.distinct else ""
    value = _value(argument, node)
    kind = kind_of(node)
    if kind not in EXACT:
        return fragment(f"avgOrNull{suffix}({{0}})", value)
    count = fragment(f"{'uniqExact' if argument.distinct else 'count'}({{0}})", copied(value))
    return by_several(_AVERAGES[kind], fragment(f"sumOrNull{suffix}({{0}})", value), count)


# The engine's own average of exact numbers is a double.
_AVERAGES: Final = {
    Kind.NUMERIC: "CAST(round(CAST({0}, 'Nullable(Decimal(76, 18))') / nullIf({1}, 0), 9), 'Nullable(Decimal(38, 9))')",
    Kind.BIGNUMERIC: "({0} / nullIf({1}, 0))",
}


_COUNT = "Int64"


def _count(node: exp.Expr) -> exp.Expr:
    if isinstance(node.this, exp.Star) or node.this is None:
        return settled(node, fragment("count()"), _COUNT)
    argument = argument_of(node)
    value = argument.value
    if kind_of(value) is Kind.VARIANT:
        value = read_as(value, Kind.STRING)
    if kind_of(value) is Kind.FLOAT64 and argument.distinct:
        value = fragment("({0} + 0.)", value)
    return settled(node, fragment(f"{'uniqExact' if argument.distinct else 'count'}({{0}})", value), _COUNT)


def _count_if(node: exp.Expr) -> exp.Expr:
    argument = argument_of(node)
    value = _value(argument, node)
    called = "uniqExactIf({0}, {0})" if argument.distinct else "countIf({0})"
    return settled(node, fragment(called, value), _COUNT)


def _truth(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        value = _value(argument_of(node), node)
        return settled(node, fragment(f"{name}OrNull(toUInt8({{0}}))", value), "Nullable(Bool)")

    return rule


def _extremum(name: str) -> Rule:
    """NaN wins over every number; an event's values compare as numbers where all are."""

    def rule(node: exp.Expr) -> exp.Expr:
        value = argument_of(node).value
        if kind_of(value) is Kind.VARIANT:
            return _event_extremum(name, value)
        if kind_of(value) is Kind.FLOAT64:
            return _float_extremum(node, name, value)
        if kind_of(value) is Kind.BOOL:
            return settled(node, fragment(f"{name}OrNull(toUInt8({{0}}))", value), "Nullable(Bool)")
        return fragment(f"{name}OrNull({{0}})", value)

    return rule


def _float_extremum(node: exp.Expr, name: str, value: exp.Expr) -> exp.Expr:
    """The largest of pairs: first whether it is NaN, then the number, turned round for the least."""
    sign = "" if name == "max" else "-"
    called = fragment(
        f"maxOrNullIf(tuple(isNaN(assumeNotNull({{0}})), {sign}assumeNotNull({{0}})), isNotNull({{0}}))", value
    )
    return wrapped(node, called, f"if(isNull({{0}}), NULL, {sign}tupleElement({{0}}, 2))")


def _event_extremum(name: str, value: exp.Expr) -> exp.Expr:
    numbers, texts = read_as(value, Kind.FLOAT64), read_as(copied(value), Kind.STRING)
    counts = (fragment("count({0})", copied(each)) for each in (numbers, texts))
    ends = (fragment(f"{name}OrNull({{0}})", each) for each in (numbers, texts))
    return by_several("if({0} = {1}, toString({2}), toJSONString({3}))", *counts, *ends)


def _any_value(node: exp.Expr) -> exp.Expr:
    argument = argument_of(node)
    if argument.having is not None:
        name = "Max" if argument.having.args.get("max") else "Min"
        return _at_extremum(name, argument.value, argument.having.expression)
    return (
        fragment("anyOrNull({0})", argument.value)
        if kind_of(argument.value) is not Kind.ARRAY
        else fragment("any({0})", argument.value)
    )


def _at_extremum(name: str, value: exp.Expr, key: exp.Expr) -> exp.Expr:
    """A value of the rows that have the extreme key, NULL only if all of them do."""
    if kind_of(value) in (Kind.ARRAY, Kind.STRUCT):
        return by_several("tupleElement({0}, 1)", fragment(f"arg{name}(tuple({{0}}), {{1}})", value, key))
    extreme = fragment(f"{name.lower()}OrNull({{0}})", key)
    known = fragment(f"{name.lower()}OrNullIf({{0}}, isNotNull({{1}}))", copied(key), copied(value))
    found = fragment(f"arg{name}OrNull({{0}}, {{1}})", value, copied(key))
    return by_several("if({0} = {1}, {2}, NULL)", extreme, known, found)


def _by(name: str) -> Rule:
    return lambda node: _at_extremum(name, node.this, node.expression)


def _distinct_count(node: exp.Expr) -> exp.Expr:
    """Exact: what is allowed to be approximate may be right."""
    value = argument_of(node).value
    value = read_as(value, Kind.STRING) if kind_of(value) is Kind.VARIANT else value
    return settled(node, fragment("uniqExact({0})", value), _COUNT)


def plain(value: exp.Expr) -> exp.Expr:
    return read_as(value, Kind.STRING) if kind_of(value) is Kind.VARIANT else value


def _nulls(node: exp.Expr) -> exp.Expr:
    """What stands inside has already seen to it."""
    inner: exp.Expr = node.this
    return inherit(inner, node)


def _grouping(node: exp.Expr) -> exp.Expr:
    return fragment("toInt64(grouping({0}))", node.expressions[0] if node.expressions else node.this)


def _pair(name: str) -> Rule:
    def rule(node: exp.Expr) -> exp.Expr:
        left, right = read_as(node.this, Kind.FLOAT64), read_as(node.expression, Kind.FLOAT64)
        pair = "isNotNull({0}) AND isNotNull({1})"
        called = fragment(f"{name}StableOrNullIf({{0}}, {{1}}, {pair})", left, right)
        if name.endswith("Pop"):
            return _unsettled(called, fragment("anyOrNull({0} + {1})", copied(left), copied(right)))
        return _of_two(called, fragment(f"countIf({pair})", copied(left), copied(right)))

    return rule


def _spread(name: str) -> Rule:
    """The engine's usual ones subtract sums of squares: of large values close to each other nothing is left."""

    def rule(node: exp.Expr) -> exp.Expr:
        argument = argument_of(node)
        suffix = "Distinct" if argument.distinct else ""
        value = fragment("toFloat64({0})", _value(argument, node))
        called = fragment(f"{name}StableOrNull{suffix}({{0}})", value)
        if name.endswith("Pop"):
            return _unsettled(called, fragment("anyOrNull({0})", copied(value)))
        return _of_two(called, fragment(f"{'uniqExact' if argument.distinct else 'count'}({{0}})", copied(value)))

    return rule


def _of_two(called: exp.Expr, count: exp.Expr) -> exp.Expr:
    """Of fewer than two there is none, where the engine says NaN or infinity."""
    return by_several("if({0} < 2, NULL, {1})", count, called)


def _unsettled(called: exp.Expr, one: exp.Expr) -> exp.Expr:
    """Of one value that is no finite number NaN, where the engine says zero."""
    return by_several("({0} + 0 * {1})", called, one)


MEANING = Meaning(
    nodes={
        exp.ArrayAgg: _array_agg,
        exp.ArrayConcatAgg: _array_concat_agg,
        exp.GroupConcat: _string_agg,
        exp.Count: _count,
        exp.CountIf: _count_if,
        exp.LogicalAnd: _truth("min"),
        exp.LogicalOr: _truth("max"),
        exp.Sum: _sum,
        exp.Avg: _avg,
        exp.Min: _extremum("min"),
        exp.Max: _extremum("max"),
        exp.AnyValue: _any_value,
        exp.ArgMax: _by("Max"),
        exp.ArgMin: _by("Min"),
        exp.ApproxDistinct: _distinct_count,
        exp.IgnoreNulls: _nulls,
        exp.RespectNulls: _nulls,
        exp.Grouping: _grouping,
        exp.BitwiseAndAgg: _simple("groupBitAndOrNull", cast="Nullable(Int64)"),
        exp.BitwiseOrAgg: _simple("groupBitOrOrNull", cast="Nullable(Int64)"),
        exp.BitwiseXorAgg: _simple("groupBitXorOrNull", cast="Nullable(Int64)"),
        exp.Stddev: _spread("stddevSamp"),
        exp.StddevSamp: _spread("stddevSamp"),
        exp.StddevPop: _spread("stddevPop"),
        exp.Variance: _spread("varSamp"),
        exp.VariancePop: _spread("varPop"),
        exp.Corr: _pair("corr"),
        exp.CovarPop: _pair("covarPop"),
        exp.CovarSamp: _pair("covarSamp"),
    },
    first={exp.Sum: _note_small},
)
