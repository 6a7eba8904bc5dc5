"""Translation of ClickHouse's expressions to BigQuery's, with their types."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from sqlglot import exp

from cordwood.clickhouse_sql.calls import Call, call_of
from cordwood.clickhouse_sql.casts import cast_to, type_named, type_of
from cordwood.clickhouse_sql.comparisons import (
    COMPARISONS,
    as_number,
    between,
    compare,
    compared,
    is_null,
    like,
    membership,
    placed,
    tuples_compared,
)
from cordwood.clickhouse_sql.expressions import Expressions
from cordwood.clickhouse_sql.moments import as_moment, between_moments, interval_of, moved, shifted
from cordwood.clickhouse_sql.scope import Row, Whole, attribute_need, column_need, whole_of
from cordwood.clickhouse_sql.template import fill, in_brackets
from cordwood.clickhouse_sql.values import (
    BOOL,
    CONDITIONS,
    FLAG,
    FLOAT,
    INT,
    INTERVAL,
    MAP,
    MOMENTS,
    NOTHING,
    NUMBERS,
    STRING,
    Type,
    Value,
    array_of,
    common,
    flag_value,
    literal_node,
    text_value,
)
from cordwood.errors import QueryRefused, Span, UnknownName
from cordwood.model.parameter import Parameter
from cordwood.sql.budget import copied, spend
from cordwood.sql.nodes import internal
from cordwood.sql.positions import span_of, start_of

Function = Callable[[Expressions, Call], Value]

_COLUMNS: Final = "id, timestamp, project, source, event_message, severity_text and log_attributes"


class Condition(msgspec.Struct, frozen=True):
    """A BOOL that filters rows or selects a branch, of which NULL is equivalent to false.

    `constant` is its value if known at compile time.
    """

    node: exp.Expr
    constant: bool | None = None


class Translator(msgspec.Struct):
    """The translator of expressions. `row` has the columns in scope, `parameters` those that the endpoint declares."""

    text: str
    row: Row
    functions: Mapping[str, Function]
    parameters: Mapping[str, Parameter] = {}

    def value(self, node: exp.Expr) -> Value:
        spend()
        node = node.unnest()
        rule = _RULES.get(type(node))
        if rule is not None:
            return rule(self, node)
        if isinstance(node, exp.Query):
            hint = "Write it in FROM, as in SELECT … FROM (SELECT …), or send two queries."
            raise self.refused(node, "A query cannot stand in an expression.", hint)
        call = call_of(node)
        if call is None:
            raise self.refused(node, f"{type(node).__name__.upper()} is refused here.")
        return self.call(call)

    def call(self, call: Call) -> Value:
        function = self.functions.get(call.name)
        if function is None and call.is_aggregate:
            hint = "Write HAVING for groups, or aggregate in a query in brackets."
            raise self.refused(call.node, f"The aggregate {call.spelled} cannot stand here.", hint)
        if function is None:
            raise self.refused(call.node, f"The function {call.spelled} cannot be called here.")
        return function(self, call)

    def plain(self, node: exp.Expr) -> Value:
        """Return the value, with its default instead of NULL."""
        return self.value(node).as_plain()

    def condition(self, node: exp.Expr) -> Condition:
        spend()
        node = node.unnest()
        if isinstance(node, (exp.And, exp.Or)):
            return self._connected(node)
        if isinstance(node, COMPARISONS):
            return self._compared(node)
        if isinstance(node, (exp.In, exp.Like, exp.ILike)) and not node.args.get("negate"):
            found = (
                membership(self, node, may_be_null=True)
                if isinstance(node, exp.In)
                else like(self, node, may_be_null=True)
            )
            return _as_condition(found)
        if isinstance(node, exp.Not):
            inner = self.condition(node.this)
            if inner.constant is not None:
                return _constant(not inner.constant)
        return _as_condition(self.truth(node))

    def truth(self, node: exp.Expr) -> Value:
        """Return a value as a condition in which NULL is distinct from false; a number is true unless it is 0."""
        value = self.plain(node)
        if value.type.name in CONDITIONS:
            return value
        if value.type.name == "Nothing":
            return Value(exp.Null(), FLAG.or_null())
        if value.type.name not in NUMBERS:
            raise self.refused(node, f"A {value.type} is no condition.", "Compare it, as in method = 'GET'.")
        made = exp.NEQ(this=in_brackets(value.node), expression=exp.Literal.number(0))
        constant = bool(value.constant) if isinstance(value.constant, (int, float)) else value.constant
        return Value(made, msgspec.structs.replace(FLAG, nullable=value.type.nullable), constant=constant)

    def _connected(self, node: exp.Expr) -> Condition:
        """Return AND or OR without its constant parts."""
        ends = not isinstance(node, exp.And)
        kept: list[exp.Expr] = []
        for part in _chain(node):
            found = self.condition(part)
            if found.constant is ends:
                return _constant(ends)
            if found.constant is None:
                kept.append(found.node)
        if not kept:
            return _constant(not ends)
        return Condition(_joined(type(node), kept))

    def _compared(self, node: exp.Expr) -> Condition:
        if isinstance(node.this, exp.Tuple):
            return self.condition(tuples_compared(self, node))
        left, right = self.value(node.this), self.value(node.expression)
        for one, other in ((left, right), (right, left)):
            # A missing key is NULL and stands for its default. If the default does not match, NULL has the same effect.
            if one.default is not None and other.is_constant and other.type.name == one.type.name:
                as_default = compared(type(node), one.default, other.constant, is_swapped=one is right)
                if as_default is False:
                    one.default = None
                    break
        return _as_condition(compare(self, node, left, right))

    def filter(self, node: exp.Expr) -> exp.Expr:
        return self.condition(node).node

    def fill(self, node: exp.Expr, template: str, **parts: exp.Expr) -> exp.Expr:
        """Return a filled template at the node's position."""
        return fill(template, start_of(node), **parts)

    def span(self, node: exp.Expr) -> Span | None:
        return span_of(node, self.text)

    def refused(self, node: exp.Expr, message: str, hint: str | None = None) -> QueryRefused:
        return QueryRefused(message, hint=hint, span=self.span(node))

    def string(self, node: exp.Expr) -> Value:
        """Return an argument that must be text."""
        value = self.plain(node)
        if value.type.name == "Nothing":
            return Value(exp.Null(), STRING.or_null())
        if value.type.name != "String":
            raise self.refused(
                node, f"A text is wanted here, and this is a {value.type}.", "Convert it with toString(…)."
            )
        return value

    def number(self, node: exp.Expr) -> Value:
        """Return an argument that must be a number; a condition counts as 0 or 1."""
        return self.number_of(node, self.plain(node))

    def number_of(self, node: exp.Expr, value: Value) -> Value:
        """Return the value as a number; refuse others at the node's position."""
        if value.type.name == "Nothing":
            return Value(exp.Null(), INT.or_null())
        if value.type.name not in NUMBERS:
            hint = "Convert it with toInt64OrZero(…) or toFloat64OrZero(…)."
            raise self.refused(node, f"A number is wanted here, and this is a {value.type}.", hint)
        return as_number(value)

    def array(self, node: exp.Expr) -> Value:
        value = self.plain(node)
        if value.type.name != "Array":
            raise self.refused(node, f"An array is wanted here, and this is a {value.type}.")
        return value

    def constant_text(self, node: exp.Expr, what: str) -> str:
        value = self.value(node)
        if not isinstance(value.constant, str):
            raise self.refused(node, f"{what} must be a text in quotes.")
        return value.constant

    def constant_number(self, node: exp.Expr, what: str) -> float:
        value = self.value(node)
        if not isinstance(value.constant, (int, float)):
            raise self.refused(node, f"{what} must be a number.")
        return value.constant


def _as_condition(value: Value) -> Condition:
    if value.is_constant:
        return _constant(bool(value.constant))
    return Condition(value.plain())


def _constant(is_true: bool) -> Condition:  # noqa: FBT001 - one or the other
    return Condition(exp.Boolean(this=is_true), is_true)


def _chain(node: exp.Expr) -> list[exp.Expr]:
    """Return the parts of a chain of one connector, without recursion."""
    kind = type(node)
    waiting, found = [node], []
    while waiting:
        one = waiting.pop().unnest()
        if isinstance(one, kind):
            waiting += [one.expression, one.this]
        else:
            found.append(one)
    return found


def _joined(kind: type[exp.Expr], parts: Sequence[exp.Expr]) -> exp.Expr:
    made = _operand(parts[0])
    for part in parts[1:]:
        made = kind(this=made, expression=_operand(part))
    return made


def _operand(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node) if isinstance(node, exp.Connector) else node


def _column(t: Expressions, node: exp.Expr) -> Value:
    name = node.name
    value = t.row.value(column_need(name))
    if value is None and name == "log_attributes" and t.row.has_attributes:
        # Its keys are read one by one; the map is only built for output.
        return Value(exp.Null(), MAP)
    if value is None:
        raise UnknownName(
            f'There is no column "{name[:60]}".',
            hint=f"The table logs has {_COLUMNS}; other fields are log_attributes['{name[:60]}'].",
            span=t.span(node),
        )
    return value


def _literal(t: Expressions, node: exp.Expr) -> Value:
    if node.is_string:
        return text_value(node.this)
    text = str(node.this)
    if text.isdigit():
        if int(text) >= 2**63:
            raise t.refused(node, "The number is too large: whole numbers have 64 bits.")
        return Value(exp.Literal.number(text), INT, constant=int(text))
    try:
        number = float(text)
    except ValueError:
        raise t.refused(node, f"{text[:40]} is not a number that can be read here.") from None
    return Value(exp.Literal.number(repr(number)), FLOAT, constant=number)


def _boolean(_: Expressions, node: exp.Expr) -> Value:
    return Value(exp.Boolean(this=bool(node.this)), BOOL, constant=bool(node.this))


def _null(_t: Expressions, _node: exp.Expr) -> Value:
    return Value(exp.Null(), NOTHING)


def _negative(t: Expressions, node: exp.Expr) -> Value:
    value = t.number(node.this)
    constant = -value.constant if isinstance(value.constant, (int, float)) else value.constant
    if isinstance(constant, (int, float)):
        return Value(literal_node(constant), value.type, constant=constant)
    return Value(exp.Neg(this=in_brackets(value.node)), value.type)


def _connector(t: Expressions, node: exp.Expr) -> Value:
    parts = [t.truth(part) for part in _chain(node)]
    type_ = msgspec.structs.replace(FLAG, nullable=any(part.type.nullable for part in parts))
    if all(part.is_constant for part in parts):
        found = (
            all(part.constant for part in parts) if isinstance(node, exp.And) else any(part.constant for part in parts)
        )
        return flag_value(is_true=found)
    return Value(_joined(type(node), [part.node for part in parts]), type_)


def _not(t: Expressions, node: exp.Expr) -> Value:
    value = t.truth(node.this)
    if value.is_constant:
        return flag_value(is_true=not value.constant)
    return Value(exp.Not(this=exp.Paren(this=value.node)), msgspec.structs.replace(FLAG, nullable=value.type.nullable))


def _is(t: Expressions, node: exp.Expr) -> Value:
    if not isinstance(node.expression, exp.Null):
        raise t.refused(node, "IS asks for NULL only.", "Write x IS NULL or x = y.")
    return is_null(t.plain(node.this))


def _comparison(t: Expressions, node: exp.Expr) -> Value:
    if isinstance(node.this, exp.Tuple):
        return t.truth(tuples_compared(t, node))
    return compare(t, node, t.value(node.this), t.value(node.expression))


_SIGNS: Final[Mapping[type[exp.Expr], str]] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}


def arithmetic(t: Expressions, node: exp.Expr, kind: type[exp.Expr], left: Value, right: Value) -> Value:
    """Return the translation of `+`, `-` or `*`, including arithmetic of times and intervals."""
    left, right = left.as_plain(), right.as_plain()
    if INTERVAL in (left.type, right.type):
        return moved(t, node, left, right, is_minus=kind is exp.Sub)
    times = [value for value in (left, right) if value.type.name in MOMENTS]
    if len(times) == 2 and kind is exp.Sub:
        return between_moments(t, node, left, right)
    if times and kind is not exp.Mul:
        return shifted(t, node, left, right, is_minus=kind is exp.Sub)
    for value in (left, right):
        if value.type.name not in (*NUMBERS, "Nothing"):
            sign = _SIGNS[kind]
            hint = "Convert it, as in toInt64OrZero(…)." if value.type.name == "String" else None
            raise t.refused(node, f'"{sign}" wants numbers, and this is a {value.type}.', hint)
    type_ = common(common(left.type, INT) or INT, right.type) or INT
    left, right = as_number(left), as_number(right)
    return Value(placed(node, kind(this=in_brackets(left.node), expression=in_brackets(right.node))), type_)


def _arithmetic(t: Expressions, node: exp.Expr) -> Value:
    return arithmetic(t, node, type(node), t.value(node.this), t.value(node.expression))


def divided(t: Expressions, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> Value:
    """Return a Float64 for operands of any numeric type; a division by 0 is infinite or NaN."""
    one, other = t.number(left), t.number(right)
    parts = {"one": as_float(one).node, "other": as_float(other).node}
    nullable = one.type.nullable or other.type.nullable
    return Value(t.fill(node, "ieee_divide(@one, @other)", **parts), msgspec.structs.replace(FLOAT, nullable=nullable))


def as_float(value: Value) -> Value:
    value = as_number(value)
    if value.type.name == "Float64":
        return value
    return Value(
        fill("cast(@number as float64)", number=value.node),
        msgspec.structs.replace(FLOAT, nullable=value.type.nullable),
    )


def remainder(t: Expressions, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> Value:
    one, other = t.number(left), t.number(right)
    if "Float64" in (one.type.name, other.type.name):
        raise t.refused(node, "A remainder wants whole numbers.", "Convert them with toInt64(…).")
    type_ = common(one.type, other.type) or INT
    return Value(t.fill(node, "mod(@one, @other)", one=one.node, other=other.node), type_)


def unified(t: Expressions, node: exp.Expr, values: Sequence[Value]) -> tuple[list[exp.Expr], Type]:
    """Return the expressions of several values with their common type, as for branches, lists and arrays."""
    type_: Type = NOTHING
    for value in values:
        found = common(type_, value.type)
        if found is None:
            hint = "Convert one of them, as in toString(…)."
            raise t.refused(node, f"A {type_} and a {value.type} have no type together.", hint)
        type_ = found
    if all(value.type.name == "Nothing" for value in values):
        return [exp.Null() for _ in values], NOTHING
    if not any(value.type.nullable for value in values):
        type_ = type_.never_null()
    return [converted(t, node, value, type_) for value in values], type_


def converted(t: Expressions, node: exp.Expr, value: Value, type_: Type) -> exp.Expr:
    """Return the expression of a value, converted to a wider type."""
    value = value.as_plain()
    if value.type.name == "Nothing":
        return exp.Null()
    if type_.name == "DateTime":
        return as_moment(t, node, value).node
    if type_.name == "Float64":
        return as_float(value).node
    if type_.name == "Int64":
        return as_number(value).node
    return value.node


def _case(t: Expressions, node: exp.Expr) -> Value:
    subject = node.args.get("this")
    conditions = []
    for one in node.args["ifs"]:
        test = exp.EQ(this=copied(subject), expression=copied(one.this)) if subject is not None else one.this
        conditions.append(t.filter(test))
    spend(sum(1 for _ in node.walk()))
    default = node.args.get("default")
    values = [t.value(one.args["true"]) for one in node.args["ifs"]]
    values.append(t.value(default) if default is not None else Value(exp.Null(), NOTHING))
    return chosen(t, node, conditions, values)


def chosen(t: Expressions, node: exp.Expr, conditions: Sequence[exp.Expr], values: Sequence[Value]) -> Value:
    """Return the value for the first condition that holds, or else the last value."""
    nodes, type_ = unified(t, node, values)
    ifs = [exp.If(this=condition, true=made) for condition, made in zip(conditions, nodes[:-1], strict=True)]
    return Value(placed(node, exp.Case(ifs=ifs, default=nodes[-1])), type_)


def _cast(t: Expressions, node: exp.Expr) -> Value:
    named = node.args["to"]
    if isinstance(named, exp.DataType):
        return cast_to(t, node, t.plain(node.this), type_of(t, named))
    return cast_to(t, node, t.plain(node.this), type_named(t, node, t.constant_text(named, "The name of a type")))


def _bracket(t: Expressions, node: exp.Expr) -> Value:
    """Return the value of a map's key or an array's element. sqlglot counts elements from 0, ClickHouse from 1."""
    if len(node.expressions) != 1:
        raise t.refused(node, "One key or one place is wanted in the brackets.")
    value = t.value(node.this)
    place = node.expressions[0]
    if value.type.name == "Map":
        return map_item(t, node, value, place)
    number = place.this if isinstance(place, exp.Neg) else place
    if isinstance(number, exp.Literal) and str(number.this).isdigit():
        counted = int(number.this) * (-1 if number is not place else 1) + 1
        place = exp.Literal.number(counted) if counted >= 0 else exp.Neg(this=exp.Literal.number(-counted))
    return element(t, node, value, place)


def map_item(t: Expressions, node: exp.Expr, value: Value, place: exp.Expr) -> Value:
    """Return the value of a map's key; for a missing key, the default of the values' type."""
    key = t.value(place)
    if value.parts is None:
        if isinstance(key.constant, str) and is_json(value):
            return Value(internal("json_string", value.node, key.node), STRING, default="")
        if isinstance(key.constant, str):
            found = t.row.value(attribute_need(key.constant))
            if found is not None:
                return found
        return _item_of_whole(t, node, value, place)
    if not isinstance(key.constant, str):
        raise t.refused(node, "The key of a map must be a text in quotes.")
    found = next((part for name, part in value.parts if name == key.constant), None)
    return found if found is not None else _missing(value.parts[0][1].type if value.parts else STRING)


_MOST_KEYS: Final = 50


def _item_of_whole(t: Expressions, node: exp.Expr, value: Value, place: exp.Expr) -> Value:
    """Return the value of a variable key of the attributes.

    If the key is one of a few constants, by arrayJoin, each is read at its own path.
    """
    place = place.unnest()
    if isinstance(place, exp.Explode) and isinstance(place.this.unnest(), exp.Array) and not is_json(value):
        keys = [key.this for key in place.this.unnest().expressions if isinstance(key, exp.Literal) and key.is_string]
        found = [t.row.value(attribute_need(key)) for key in keys]
        if 0 < len(keys) <= _MOST_KEYS and len(keys) == len(place.this.unnest().expressions) and None not in found:
            tests = [exp.EQ(this=copied(place), expression=exp.Literal.string(key)) for key in keys]
            return chosen(t, node, [t.filter(test) for test in tests], [*filter(None, found), text_value("")])
    key = t.string(place)
    return Value(internal("json_member", whole_map(t, node, value).node, key.node), STRING, default="")


def _missing(type_: Type) -> Value:
    """Return the value for a key that the map does not have."""
    if type_.nullable:
        return Value(exp.Null(), type_)
    default = default_of(type_)
    return text_value("") if default is None else Value(literal_node(default), type_, constant=default)


def element(t: Expressions, node: exp.Expr, value: Value, place: exp.Expr) -> Value:
    """Return an array's element by its index from 1, or from the end if negative; the default if it is out of range."""
    if value.type.name != "Array" or value.type.element is None:
        raise t.refused(node, f"A {value.type} has no elements.")
    at = t.number(place)
    inner = value.type.element
    array = value.plain()
    if isinstance(at.constant, (int, float)) and at.constant < 0:
        array, at.node = t.fill(node, "array_reverse(@array)", array=array), literal_node(-int(at.constant))
    made = placed(node, exp.Bracket(this=array, expressions=[at.node], offset=1, safe=True))
    return Value(made, inner, default=default_of(inner))


def default_of(type_: Type) -> str | int | float | None:
    """Return the default of a type; None for a nullable type and for times."""
    if type_.nullable:
        return None
    return _DEFAULTS.get(type_.name)


_DEFAULTS: Final[Mapping[str, str | int]] = {"String": "", "Int64": 0, "Float64": 0}


def _array(t: Expressions, node: exp.Expr) -> Value:
    return array_of_values(t, node, [t.plain(one) for one in node.expressions])


def array_of_values(t: Expressions, node: exp.Expr, values: Sequence[Value]) -> Value:
    nodes, type_ = unified(t, node, values)
    if type_.name in CONDITIONS:
        nodes, type_ = [as_number(value).node for value in values], INT
    if type_.nullable and values:
        raise t.refused(node, "NULL in an array is not supported.", "Leave it out, or write coalesce(…).")
    return Value(placed(node, exp.Array(expressions=nodes)), array_of(STRING if type_.name == "Nothing" else type_))


def _interval(t: Expressions, node: exp.Expr) -> Value:
    return interval_of(t, node, node.this, node.text("unit"))


def _placeholder(t: Expressions, node: exp.Expr) -> Value:
    """Return the endpoint's parameter for `{name:Type}`."""
    name = node.name
    if name not in t.parameters:
        known = ", ".join(t.parameters)
        raise UnknownName(f'There is no parameter "{name[:60]}".', hint=f"There are: {known}.", span=t.span(node))
    slot = exp.Parameter(this=exp.Var(this=name))
    declared = _PARAMETERS.get(str(t.parameters[name].type), STRING)
    return cast_to(t, node, Value(slot, declared.or_null()), type_of(t, node.args["kind"]).or_null())


_PARAMETERS: Final = {
    "INT64": INT,
    "FLOAT64": FLOAT,
    "BOOL": BOOL,
    "TIMESTAMP": Type("DateTime", scale=6),
    "DATE": Type("Date"),
}


def is_json(value: Value) -> bool:
    """Return whether a map is the JSON object of a derived table."""
    return value.parts is None and not isinstance(value.node, exp.Null)


def whole_map(t: Expressions, node: exp.Expr, value: Value) -> Value:
    """Return a map as a JSON object, as in the answer."""
    if value.parts is None:
        if is_json(value):
            return value
        found = whole_of(t.row, Whole.MAP)
        if found is None:
            raise t.refused(node, "The map is not known here.")
        return Value(found, MAP)
    arguments: list[exp.Expr] = []
    for key, part in value.parts:
        arguments += [exp.Literal.string(key), part.plain()]
    return Value(internal("json_object", *arguments), MAP, parts=value.parts)


def _tuple(t: Expressions, node: exp.Expr) -> Value:
    raise t.refused(node, "A tuple can be compared only.", "Select the values as columns of their own.")


_Rule = Callable[[Expressions, exp.Expr], Value]

_RULES: Final[Mapping[type[exp.Expr], _Rule]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Neg: _negative,
    exp.And: _connector,
    exp.Or: _connector,
    exp.Not: _not,
    exp.Is: _is,
    **dict.fromkeys(COMPARISONS, _comparison),
    exp.Between: between,
    exp.In: membership,
    exp.Like: like,
    exp.ILike: like,
    **dict.fromkeys(_SIGNS, _arithmetic),
    exp.Div: lambda t, node: divided(t, node, node.this, node.expression),
    exp.Mod: lambda t, node: remainder(t, node, node.this, node.expression),
    exp.Case: _case,
    exp.Cast: _cast,
    exp.CastToStrType: _cast,
    exp.Bracket: _bracket,
    exp.Array: _array,
    exp.Interval: _interval,
    exp.Placeholder: _placeholder,
    exp.Tuple: _tuple,
}
